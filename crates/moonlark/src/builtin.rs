//! The tools that are part of Moonlark itself.
//!
//! `search`, `get_document` and `list_sources` belong to the knowledge base. Until
//! there is one behind them they answer with a Problem, and a script of the same
//! name takes their place.

use std::sync::Arc;

use moonlark_core::schema::Schema;
use moonlark_core::tool::{Body, Effects, Source, SourceKind};
use moonlark_core::{Problem, Result, Tool};
use serde_json::{Value as Json, json};

/// Built-ins that a script may stand in for.
pub const REPLACEABLE: [&str; 3] = ["search", "get_document", "list_sources"];

pub fn tools() -> Result<Vec<Arc<Tool>>> {
    let search = json!({
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "Search query"},
            "mode": {"type": "string", "enum": ["keyword", "semantic", "hybrid"], "default": "keyword"},
            "limit": {"type": "integer", "minimum": 1, "default": 12},
            "source": {"type": "string", "description": "Only documents of this source"},
        },
        "required": ["query"],
        "additionalProperties": false,
    });
    let get = json!({
        "type": "object",
        "properties": {"id": {"type": "string", "description": "The document's ID"}},
        "required": ["id"],
        "additionalProperties": false,
    });
    let sources = json!({"type": "object", "properties": {}, "additionalProperties": false});
    Ok(vec![
        tool("search", None, "Search indexed documents", search)?,
        tool("get_document", Some("get"), "Retrieve full document by ID", get)?,
        tool("list_sources", Some("sources"), "List configured data sources", sources)?,
    ])
}

fn tool(
    name: &'static str,
    alias: Option<&str>,
    description: &str,
    input: Json,
) -> Result<Arc<Tool>> {
    let Json::Object(input) = input else { return Err(Problem::internal("not an object schema")) };
    let source = Source { kind: SourceKind::Builtin, name: "moonlark".to_owned() };
    let body = Body::now(move |_, _| {
        Err(Problem::unavailable(format!("{name}: this version of Moonlark has no knowledge base"))
            .hint(format!("a script tool named {name} in the tools folder takes its place"))
            .retryable_if(false))
    });
    let mut tool = Tool::new(name, Arc::new(source), Schema::compile(input)?, body);
    tool.aliases = alias.map(str::to_owned).into_iter().collect();
    tool.description = description.to_owned();
    tool.effects = Effects::READ;
    Ok(Arc::new(tool))
}
