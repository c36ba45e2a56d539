//! A small catalog for the tests.

use std::sync::Arc;

use moonlark_core::schema::Schema;
use moonlark_core::tool::{Source, SourceKind, ToolExposure};
use moonlark_core::{Catalog, Tool, Value};
use moonlark_gateway::tool_body::ToolBody;
use moonlark_gateway::{Call, Caller, Gateway};
use serde_json::{Value as Json, json};

/// Two servers: `git-hub` and `files`.
pub(crate) fn world() -> Gateway {
    gateway(tools_of_world())
}

fn tools_of_world() -> Vec<Arc<Tool>> {
    let create = json!({
        "description": "Create an issue. It is open at first.",
        "annotations": {"destructiveHint": false},
        "inputSchema": {
            "type": "object",
            "required": ["repo", "title"],
            "properties": {
                "repo": {"type": "string", "description": "Owner and name"},
                "title": {"type": "string"},
                "labels": {"type": "array", "items": {"$ref": "#/$defs/Label"}},
            },
            "$defs": {"Label": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "color": {"enum": ["red", "blue"]}},
            }},
        },
        "outputSchema": {"type": "object", "required": ["number"], "properties": {
            "number": {"type": "integer"},
        }},
    });
    let list = json!({
        "description": "List issues of a repository.",
        "_meta": {"fastmcp": {"tags": ["reading"]}},
    });
    let read = json!({
        "description": "Read a file.",
        "inputSchema": {"type": "object", "required": ["path"], "properties": {
            "path": {"type": "string"},
        }},
    });
    vec![
        tool("git-hub", "create-issue", &create),
        tool("git-hub", "list-issues", &list),
        tool("files", "read_file", &read),
    ]
}

/// The same, with a knowledge base of one document, which says what it was asked.
pub(crate) fn with_documents() -> Gateway {
    let text = |args: &Value, key: &str| args.get(key).and_then(Value::as_str).map(str::to_owned);
    let search = ToolBody::from_fn(move |_, args| {
        let query = text(&args, "query").unwrap_or_default();
        let of = text(&args, "source").unwrap_or("everything".to_owned());
        let limit = args.get("limit").cloned().unwrap_or(Value::Null).to_json_lossy();
        let hit = json!({
            "id": "1-2", "title": "Deploys", "source": "handbook", "source_id": "deploys.md",
            "heading": "Deploys > Rolling back",
            "snippet": format!("asked {query}\n of {of}, {limit} at most"),
        });
        let results = if query == "nowhere" { json!([]) } else { json!([hit]) };
        Value::from_json(json!({"results": results, "notes": ["by words only"]}))
    });
    let sources =
        ToolBody::from_fn(|_, _| Value::from_json(json!({"sources": [{"name": "handbook"}]})));
    let mut tools = tools_of_world();
    for (name, body) in [("search", search), ("list_sources", sources)] {
        let kind = SourceKind::Builtin;
        let source = Arc::new(Source { kind, name: "knowledge".to_owned() });
        let input = Schema::description_only(serde_json::Map::new());
        tools.push(Arc::new(Tool::new(name, source, input, body)));
    }
    gateway(tools)
}

/// The same, with one more tool of `git-hub`.
pub(crate) fn with_tool(name: &str, definition: &Json) -> Gateway {
    let mut tools = tools_of_world();
    tools.push(tool("git-hub", name, definition));
    gateway(tools)
}

/// One server with this many tools.
pub(crate) fn many(count: usize) -> Gateway {
    let named = |number| tool("many", &format!("do_{number}"), &json!({"description": "Do it."}));
    gateway((0..count).map(named).collect())
}

/// A call of a tool for its text, or that of its Problem.
pub(crate) async fn ask(gateway: &Gateway, name: &str, args: Json) -> String {
    let args = Value::from_json(args).unwrap();
    match gateway.call(&enter(gateway), name, args).await {
        Ok(value) => value.as_str().unwrap().to_owned(),
        Err(problem) => problem.to_string(),
    }
}

pub(crate) fn enter(gateway: &Gateway) -> Call {
    gateway.open_call(Caller::new("test")).unwrap()
}

fn gateway(mut tools: Vec<Arc<Tool>>) -> Gateway {
    tools.extend(crate::discovery_tools().unwrap());
    Gateway::new(Catalog::new(Arc::default(), tools, &[], Vec::new()), 10)
}

fn tool(source: &str, name: &str, definition: &Json) -> Arc<Tool> {
    let source = Arc::new(Source { kind: SourceKind::Upstream, name: source.to_owned() });
    let object = |key: &str| definition.get(key).and_then(Json::as_object).cloned();
    let input = Schema::description_only(object("inputSchema").unwrap_or_default());
    let body = ToolBody::from_fn(|_, _| Ok(Value::Null));
    let mut tool = Tool::new(format!("{}.{name}", source.name), source, input, body);
    tool.description = definition["description"].as_str().unwrap().to_owned();
    tool.output = object("outputSchema").map(Schema::description_only);
    tool.effects.destructive = definition.get("annotations").is_none();
    tool.expose = ToolExposure::Code;
    if let Value::Object(definition) = Value::from_json(definition.clone()).unwrap() {
        tool.definition = Some(Arc::new(definition));
    }
    Arc::new(tool)
}
