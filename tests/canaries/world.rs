//! A project in which every secret is in use, a server for it, and its clients.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::echo::{Echo, document};
use super::search::{Canary, Evidence};
use crate::harness::{Answer, Project, eventually, modern, moonlark, request};

const LEAKY_LUA: &str = r#"
tool = {
    name = "leaky", description = "Says what it knows", version = "1",
    parameters = {
        { name = "how", type = "string", required = true },
        { name = "password", type = "string" },
        { name = "more", type = "object" },
        { name = "pin", type = "string", pattern = "^[0-9]{4}$" },
        { name = "q", type = "string" },
    },
}
function tool.execute(params, context)
    local own = context.config
    local all = { own.api_token, own.password, own.nested.client_secret, own.db }
    local text = table.concat(all, " ")
    if params.how == "values" then return all end
    if params.how == "keys" then return { [own.password] = 1, list = { { text } } } end
    if params.how == "json" then return json.encode({ all = all }) end
    if params.how == "base64" then
        local encoded = {}
        for i, value in all do encoded[i] = base64.encode(string.rep("x", i) .. value) end
        return encoded
    end
    if params.how == "url" then return url.encode_query({ all = all }) end
    if params.how == "error" then error(text) end
    if params.how == "raise" then error({ code = "x", message = text }) end
    if params.how == "log" then
        for _, value in all do log.error(value, { field = value, list = { value } }) log.debug(value) end
        progress(1, 2, text)
        return "logged"
    end
    if params.how == "fetch" then
        local address = "http://127.0.0.1:PORT/fetch/" .. url.encode(own.nested.client_secret)
        local opts = { query = { key = own.api_token }, headers = { Authorization = "Bearer " .. own.password } }
        return http.get(address, opts).json
    end
    if params.how == "unreachable" then
        return http.get("http://me:" .. own.password .. "@127.0.0.1:1/?key=" .. own.api_token)
    end
    if params.how == "invalid" then return http.get("http://nowhere.invalid/" .. own.password .. "/" .. own.api_token) end
    if params.how == "db" then return postgres.query(own.db, "select 1") end
    if params.how == "env" then return env.get("VARIABLE") end
    return "nothing"
end
"#;

const LEAKY_STAR: &str = r#"
def leak(params, context):
    own = context.config["password"]
    if params["how"] == "error":
        fail(own)
    if params["how"] == "log":
        log.warn(own, {"field": own})
    return {"own": own, "text": json.encode([own])}

def describe_extension():
    return Extension(name = "star", tools = [Tool("star_leaky", "Leaks", [ToolParameter("how", "string", True)], leak)])
"#;

const PAY: &str = r#"
tool = { name = "pay", description = "Pays", parameters = { { name = "card_token", type = "string" } } }
function tool.execute() return "paid" end
"#;

/// What the child says: everything it was given.
const CHILD_LUA: &str = r#"
tool = { name = "leak", description = "Leaks", parameters = { { name = "how", type = "string" } } }
function tool.execute(params)
    local text = env.get("CHILD_TOKEN") .. " " .. env.get("ARG")
    log.error(text)
    if params.how == "error" then error(text) end
    return { text = text, encoded = base64.encode("user:" .. text) }
end
"#;

pub struct World {
    pub echo: Echo,
    pub project: Project,
    pub child: Project,
    pub canaries: Vec<Canary>,
    pub alice: String,
}

impl World {
    pub fn new() -> World {
        let mut canaries = super::canaries();
        let echo = Echo::open(&canaries);
        let child = Project::new(&[
            ("tools/leak.lua", CHILD_LUA),
            (
                "moonlark.toml",
                "[tools.script.leak]\npath = \"tools/leak.lua\"\nallow = [\"env:CHILD_TOKEN\", \"env:ARG\"]\n",
            ),
        ]);
        let port = echo.port;
        let leaky = LEAKY_LUA.replace("PORT", &port.to_string());
        let bearer = document(port, "bearer", json!({"type": "http", "scheme": "bearer"}));
        let basic = document(port, "basic", json!({"type": "http", "scheme": "basic"}));
        let query =
            document(port, "query", json!({"type": "apiKey", "in": "query", "name": "key"}));
        let tokens = format!("http://127.0.0.1:{port}/oauth/token");
        let flows = json!({"clientCredentials": {"tokenUrl": tokens, "scopes": {}}});
        let client = document(port, "client", json!({"type": "oauth2", "flows": flows}));
        let project = Project::new(&[
            ("tools/leaky.lua", &leaky),
            ("tools/pay.lua", PAY),
            ("extensions/star.star", LEAKY_STAR),
            ("specs/bearer.json", &bearer),
            ("specs/basic.json", &basic),
            ("specs/query.json", &query),
            ("specs/client.json", &client),
            ("filed.token", value(&canaries, "file_first")),
        ]);
        project.write("moonlark.toml", &config(&canaries, port, &child));
        // Its token is shown to whoever asked for it, once.
        let added = with_env(&mut moonlark(), &canaries)
            .args(["token", "add", "alice"])
            .current_dir(project.path("."))
            .output()
            .unwrap();
        assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
        let alice = String::from_utf8(added.stdout).unwrap().trim().to_owned();
        canaries.push(Canary::of("alice_token", alice.clone(), &alice, &[]));
        World { echo, project, child, canaries, alice }
    }

    pub fn value(&self, name: &str) -> &str {
        value(&self.canaries, name)
    }
}

pub fn value<'a>(canaries: &'a [Canary], name: &str) -> &'a str {
    &canaries.iter().find(|it| it.name == name).unwrap().value
}

/// The variables that the configuration refers to, and one that it does not.
pub fn with_env<'a>(command: &'a mut Command, canaries: &[Canary]) -> &'a mut Command {
    for (variable, name) in [
        ("VARIABLE", "variable"),
        ("SCRIPT_ENV", "script_env"),
        ("CHILD_ARG_TOKEN", "child_arg"),
        ("WEB_TOKEN", "web_query"),
        ("BASIC_AUTH", "api_basic"),
    ] {
        let text = value(canaries, name);
        let text = if name == "api_basic" { format!("user:{text}") } else { text.to_owned() };
        command.env(variable, text);
    }
    // The site asks nobody before it gives out a token.
    command.env("MOONLARK_OAUTH_FOLLOW", "1")
}

fn config(canaries: &[Canary], port: u16, child: &Project) -> String {
    let it = |name: &str| format!("'{}'", value(canaries, name));
    let encoded = |name: &str| value(canaries, name).replace('/', "%2F").replace('=', "%3D");
    format!(
        r#"
[server.auth]
operators = ["bob"]
[server.auth.tokens]
bob = {bob}

[execute]
allow = ["net:127.0.0.1:{port}", "tool:*"]

[[policy.rules]]
tools = ["pay"]
action = "approve"

[telemetry]
otlp = "http://127.0.0.1:{port}"
headers = {{ X-Token = {otlp} }}
interval = "1s"

[tools.script.leaky]
path = "tools/leaky.lua"
allow = ["net:127.0.0.1"]
expose = "both"
api_token = "${{SCRIPT_ENV}}"
password = {password}
db = "postgres://me:{db}@127.0.0.1:1/x"
known_token = {known}
[tools.script.leaky.nested]
client_secret = {nested}

[extensions.script.star]
path = "star.star"
password = {password}

[mcp_servers.child]
command = "sh"
args = ["-c", "ARG=\"$1\" exec \"$0\" stdio", {binary:?}, "${{CHILD_ARG_TOKEN}}"]
cwd = {cwd:?}
env = {{ CHILD_TOKEN = {child_env} }}

[mcp_servers.web]
url = "http://127.0.0.1:{port}/mcp?key=${{WEB_TOKEN}}"
headers = {{ X-Api-Key = {web_header}, Cookie = {web_cookie} }}
auth = {{ type = "bearer", token = {web_bearer} }}

[mcp_servers.login]
url = "http://127.0.0.1:{port}/login"
auth = "oauth"
[mcp_servers.filed]
url = "http://127.0.0.1:{port}/filed"
auth = {{ type = "bearer", token_file = "filed.token" }}

[apis.bearer]
spec = "specs/bearer.json"
auth = {api_bearer}
headers = {{ X-Secret = {api_header} }}
frozen_params = {{ tenant_token = {api_frozen} }}
[apis.basic]
spec = "specs/basic.json"
auth_env = "BASIC_AUTH"
[apis.query]
spec = "specs/query.json"
auth = {api_query}

[apis.client]
spec = "specs/client.json"
auth = {{ it = {{ client_id = "suite", client_secret = {api_client} }} }}

[apis.away]
spec = "http://me:{spec}@127.0.0.1:{port}/fail/spec.json?key={spec}"

[connectors.git.handbook]
url = "http://me:{git}@127.0.0.1:1/handbook.git"
"#,
        bob = it("bob_token"),
        otlp = it("otlp_header"),
        password = it("script_password"),
        db = encoded("script_db"),
        known = it("known"),
        nested = it("script_nested"),
        binary = env!("CARGO_BIN_EXE_moonlark"),
        cwd = child.path("."),
        child_env = it("child_env"),
        web_header = it("web_header"),
        web_cookie = it("web_cookie"),
        web_bearer = it("web_bearer"),
        api_bearer = it("api_bearer"),
        api_header = it("api_header"),
        api_frozen = it("api_frozen"),
        api_query = it("api_query"),
        api_client = it("api_client"),
        git = encoded("git_url"),
        spec = encoded("spec_url"),
    )
}

/// A server, and every byte that it wrote to where people look.
pub struct Running {
    child: Child,
    pub address: String,
    written: Arc<Mutex<Vec<u8>>>,
}

impl Running {
    pub fn start(world: &World, args: &[&str], level: Option<&str>) -> Running {
        let mut command = moonlark();
        with_env(&mut command, &world.canaries)
            .args(["serve", "--port", "0"])
            .args(args)
            .current_dir(world.project.path("."))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(level) = level {
            command.env("MOONLARK_LOG", level);
        }
        let mut child = command.spawn().unwrap();
        let written = Arc::default();
        follow(child.stdout.take().unwrap(), &written);
        follow(child.stderr.take().unwrap(), &written);
        let address = eventually("the address", || {
            let written = String::from_utf8_lossy(&written.lock().unwrap()).into_owned();
            let after = written.split("listening on http://").nth(1).ok_or(written.clone())?;
            let end = after.find([' ', '"', ',']).ok_or(written.clone())?;
            Ok(after[..end].to_owned())
        });
        Running { child, address, written }
    }

    pub fn end(mut self) -> Vec<u8> {
        // SAFETY: a number, and the process is our own child.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        self.child.wait().unwrap();
        self.written.lock().unwrap().clone()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn follow(mut output: impl Read + Send + 'static, written: &Arc<Mutex<Vec<u8>>>) {
    let written = written.clone();
    std::thread::spawn(move || {
        let mut chunk = [0; 65536];
        while let Ok(count @ 1..) = output.read(&mut chunk) {
            written.lock().unwrap().extend_from_slice(&chunk[..count]);
        }
    });
}

/// Somebody who sends requests, and what comes back.
pub struct Client<'a> {
    pub name: &'a str,
    pub token: &'a str,
    pub more: Vec<(&'a str, String)>,
    pub address: &'a str,
}

impl Client<'_> {
    pub fn ask(&self, evidence: &mut Evidence, method: &str, path: &str, body: &Value) -> Answer {
        self.ask_with(evidence, method, path, &[], body)
    }

    pub fn ask_with(
        &self,
        evidence: &mut Evidence,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &Value,
    ) -> Answer {
        let bearer = format!("Bearer {}", self.token);
        let mut all = vec![("Authorization", &*bearer), ("Content-Type", "application/json")];
        all.extend(self.more.iter().map(|(name, value)| (*name, &**value)));
        all.extend(headers);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let answer = request(self.address, method, path, &all, body.as_bytes());
        let head = format!("{} {:?}\n", answer.status, answer.headers);
        evidence.add(
            format!("answer to {} {path}", self.name),
            [head.as_bytes(), &answer.body].concat(),
        );
        answer
    }

    pub fn mcp(&self, evidence: &mut Evidence, method: &str, params: Value) -> String {
        let name = params["name"].as_str().or(params["uri"].as_str()).map(str::to_owned);
        let mut headers = vec![
            ("Accept", "application/json, text/event-stream"),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", method),
        ];
        headers.extend(name.as_deref().map(|name| ("Mcp-Name", name)));
        let mut message = modern(1, method, params);
        message["params"]["_meta"]["io.modelcontextprotocol/logLevel"] = json!("debug");
        message["params"]["_meta"]["progressToken"] = json!("p");
        self.ask_with(evidence, "POST", "/mcp", &headers, &message).text()
    }
}
