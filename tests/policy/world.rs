//! A Moonlark inside the test, with a source of each kind behind it, and callers
//! who are whom they say.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::middleware::{Next, from_fn};
use axum::routing::{delete, get};
use moonlark::project::Project;
use moonlark_server::{HttpApp, HttpServerOptions, Principal, build_http_app};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use crate::code_mode::upstream::{Offer, Reply, Upstream, text};
use crate::harness::{self, Answer};

/// A tool under all its names, and arguments that it takes.
pub struct Named {
    pub tool: &'static str,
    pub source: &'static str,
    pub function: &'static str,
    pub shown: &'static str,
    pub args: &'static str,
    /// A type that only it speaks of, if there is one.
    pub types: &'static str,
}

/// What there is: scripts, upstream servers, an API. Each with one that only
/// reads and one that does not.
pub const TOOLS: [Named; 7] = [
    script("quarterly_report"),
    script("wipe_disk"),
    Named {
        tool: "git-box.list-issues",
        source: "git_box",
        function: "list_issues",
        shown: "git-box__list-issues",
        args: "{}",
        types: "IssueFilter",
    },
    Named {
        tool: "git-box.delete_branch",
        source: "git_box",
        function: "delete_branch",
        shown: "git-box__delete_branch",
        args: "{}",
        types: "BranchName",
    },
    Named {
        tool: "mailer.send",
        source: "mailer",
        function: "send",
        shown: "mailer__send",
        args: "{}",
        types: "",
    },
    Named {
        tool: "petshop.listPets",
        source: "petshop",
        function: "listPets",
        shown: "petshop__listPets",
        args: "{}",
        types: "PetKind",
    },
    Named {
        tool: "petshop.deletePet",
        source: "petshop",
        function: "deletePet",
        shown: "petshop__deletePet",
        args: r#"{"id":"7"}"#,
        types: "",
    },
];

const fn script(name: &'static str) -> Named {
    Named { tool: name, source: "tools", function: name, shown: name, args: "{}", types: "" }
}

const REPORT: &str = r#"
tool = { name = "quarterly_report", description = "Adds up the quarter.", parameters = {}, annotations = { read_only = true } }
function tool.execute() return "done" end
"#;

const WIPE: &str = r#"
tool = { name = "wipe_disk", description = "Wipes a disk.", parameters = {} }
function tool.execute() return "done" end
"#;

/// Calls whatever it is told to.
const RELAY: &str = r#"
tool = {
    name = "relay", description = "Passes on.",
    parameters = { { name = "tool", type = "string", required = true }, { name = "args", type = "object" } },
}
function tool.execute(params, context) return context.call(params.tool, params.args or {}) end
"#;

const SHOP: &str = r##"
openapi: 3.1.0
info: { title: Petshop, version: "1" }
servers: [{ url: "http://127.0.0.1:PORT" }]
paths:
  /pets:
    get:
      operationId: listPets
      summary: Lists the pets.
      parameters: [{ name: kind, in: query, schema: { $ref: "#/components/schemas/PetKind" } }]
      responses: { "200": { description: Pets. } }
  /pets/{id}:
    delete:
      operationId: deletePet
      summary: Sells a pet.
      parameters: [{ name: id, in: path, required: true, schema: { type: string } }]
      responses: { "200": { description: Sold. } }
components:
  schemas:
    PetKind: { type: object, properties: { legs: { type: integer } } }
"##;

pub struct World {
    files: harness::Project,
    config: String,
    pub project: Arc<Project>,
    pub address: String,
    upstreams: [Upstream; 2],
    pets: Arc<AtomicUsize>,
    stop: CancellationToken,
    runtime: Runtime,
}

impl World {
    pub fn new() -> World {
        let runtime = Runtime::new().unwrap();
        let upstreams = [
            Upstream::start(vec![
                offer("list-issues", "Lists the issues.", "IssueFilter", true),
                offer("delete_branch", "Deletes a branch.", "BranchName", false),
            ]),
            Upstream::start(vec![offer("send", "Sends a letter.", "Letter", false)]),
        ];
        let pets = Arc::new(AtomicUsize::new(0));
        let (project, files, config, address, stop) = runtime.block_on(async {
            let shop = listen().await;
            let port = shop.local_addr().unwrap().port().to_string();
            tokio::spawn(axum::serve(shop, petshop(pets.clone())).into_future());
            let files = harness::Project::new(&[
                ("tools/report.luau", REPORT),
                ("tools/wipe.luau", WIPE),
                ("tools/relay.luau", RELAY),
                ("petshop.yaml", &SHOP.replace("PORT", &port)),
            ]);
            let servers: String = [("git-box", &upstreams[0]), ("mailer", &upstreams[1])]
                .map(|(name, it)| {
                    format!("[mcp_servers.{name}]\nurl = {:?}\nexpose = 'both'\n", it.url)
                })
                .concat();
            let config = format!(
                "[tools.script.relay]\npath = 'tools/relay.luau'\nallow = ['tool:*']\n[apis.petshop]\nspec = 'petshop.yaml'\nexpose = 'both'\n{servers}"
            );
            files.write("moonlark.toml", &config);
            let root = files.path(".");
            let project = Project::open(None, &root).await.map_err(|it| format!("{it:?}")).unwrap();
            let project = Arc::new(project);
            project.connect_all_sources().await;
            let listener = listen().await;
            let address = listener.local_addr().unwrap().to_string();
            let stop = CancellationToken::new();
            let options =
                HttpServerOptions { allowed_hosts: vec![], allowed_origins: vec![], request_body: 1 << 20, callers: moonlark_server::CallerIdentification::Anybody, sessions: moonlark_server::SessionVault::in_memory() };
            let app = build_http_app(project.gateway.clone(), options, stop.clone());
            let app = HttpApp::new(Router::new().fallback_service(app).layer(from_fn(who)));
            tokio::spawn(moonlark_server::serve_listener(listener, app, stop.clone()));
            let mut changes = project.gateway.subscribe();
            while project.gateway.catalog().tools().len() < TOOLS.len() + 1
                || !project.gateway.catalog().connecting_sources().is_empty()
            {
                changes.changed().await.unwrap();
            }
            (project, files, config, address, stop)
        });
        World { files, config, project, address, upstreams, pets, stop, runtime }
    }

    /// Put these rules in force, as an operator does.
    pub fn rule(&self, rules: &str) {
        self.files.write("moonlark.toml", &format!("{}\n{rules}", self.config));
        let report = self.runtime.block_on(self.project.reload());
        assert!(report.problems.is_empty(), "{rules}: {:?}", report.problems);
    }

    /// How often the tools of servers were called, all together.
    pub fn called(&self) -> usize {
        let upstreams = self.upstreams.iter().map(|it| it.seen().calls.len());
        upstreams.sum::<usize>() + self.pets.load(Ordering::Acquire)
    }

    pub fn get(&self, caller: &str, path: &str) -> Value {
        harness::request(&self.address, "GET", path, &[(CALLER, caller)], b"").json()
    }

    pub fn post(&self, caller: &str, tool: &str, args: &Value) -> Answer {
        let headers = [("Content-Type", "application/json"), (CALLER, caller)];
        let path = format!("/tools/{tool}");
        harness::request(&self.address, "POST", &path, &headers, args.to_string().as_bytes())
    }

    pub fn mcp(&self, caller: &str, method: &str, params: Value) -> Value {
        harness::mcp(&self.address, &[(CALLER, caller)], method, params)
    }

    /// A request of an older client: the session it has or gets, and the answer.
    pub fn old(
        &self,
        caller: &str,
        session: Option<&str>,
        method: &str,
        params: &Value,
    ) -> (Option<String>, String) {
        let mut message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        if !method.starts_with("notifications/") {
            message["id"] = json!(1);
        }
        let mut headers = vec![
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
            (CALLER, caller),
        ];
        headers.extend(session.map(|session| ("Mcp-Session-Id", session)));
        let body = message.to_string();
        let answer = harness::request(&self.address, "POST", "/mcp", &headers, body.as_bytes());
        (answer.header("mcp-session-id").map(str::to_owned), answer.text())
    }

    /// The answer of a tool over MCP: whether it worked, and all of it as text.
    pub fn call(&self, caller: &str, name: &str, arguments: &Value) -> (bool, String) {
        let params = json!({"name": name, "arguments": arguments});
        let answer = self.mcp(caller, "tools/call", params);
        let worked = answer.get("error").is_none() && answer["result"]["isError"] != json!(true);
        (worked, answer.to_string())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
        self.runtime.block_on(self.project.disconnect_quickly());
    }
}

/// Who somebody is, they say themselves.
const CALLER: &str = "X-Caller";

async fn who(mut request: Request, next: Next) -> axum::response::Response {
    let name = request.headers().get(CALLER).map(|name| name.to_str().unwrap().to_owned());
    if let Some(name) = name.filter(|name| name != "anonymous") {
        request.extensions_mut().insert(Principal::with_name(name));
    }
    next.run(request).await
}

fn offer(name: &str, description: &str, named: &str, reads: bool) -> Offer {
    let definition = json!({
        "name": name,
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": {"with": {"$ref": format!("#/$defs/{named}")}},
            "$defs": {named: {"type": "object", "properties": {"of": {"type": "string"}}}},
        },
        "annotations": {"readOnlyHint": reads},
    });
    Offer::defined(definition, |_| Reply::Now(text("done")))
}

fn petshop(count: Arc<AtomicUsize>) -> Router {
    let list = async |State(count): State<Arc<AtomicUsize>>| {
        count.fetch_add(1, Ordering::AcqRel);
        axum::Json(json!(["done"]))
    };
    let sell = async |State(count): State<Arc<AtomicUsize>>, Path(_): Path<String>| {
        count.fetch_add(1, Ordering::AcqRel);
        axum::Json(json!("done"))
    };
    Router::new().route("/pets", get(list)).route("/pets/{id}", delete(sell)).with_state(count)
}

async fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}
