//! The tools that are part of Moonlark itself.
//!
//! `search`, `get_document` and `list_sources` belong to the knowledge base. Until
//! there is one behind them they answer with a Problem, and a script of the same
//! name takes their place. What agents find functions with is in a crate of its
//! own.

use std::sync::Arc;

use moonlark_core::grant::{Grant, Grants};
use moonlark_core::schema::Schema;
use moonlark_core::tool::{Body, Effects, Scope, Source, SourceKind};
use moonlark_core::{Place, Problem, Result, Tool};
use moonlark_luau::{Check, ExecuteSettings, Luau};
use serde_json::{Value as Json, json};

use crate::config::{CheckMode, Config};
use crate::config_file::Loaded;

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
    let mut tools = vec![
        tool("search", None, "Search indexed documents", search)?,
        tool("get_document", Some("get"), "Retrieve full document by ID", get)?,
        tool("list_sources", Some("sources"), "List configured data sources", sources)?,
    ];
    tools.extend(moonlark_discovery::tools()?);
    Ok(tools)
}

/// The tool that runs agents' scripts, with what it was made from: it stays the
/// same as long as that does.
pub type Execute = (String, Arc<Tool>);

pub fn execute(luau: &Luau, loaded: &Loaded, old: Option<&Execute>) -> Result<Execute> {
    let Config { execute, limits, .. } = &loaded.config;
    let made_from = format!("{execute:?}\n{limits:?}\n{}", loaded.root.display());
    if let Some(old) = old.filter(|(known, _)| *known == made_from) {
        return Ok(old.clone());
    }
    let read = |grant: &String| {
        let at = |problem: Problem| problem.at(Place::file("execute.allow"));
        grant.parse::<Grant>().map_err(at)
    };
    let grants = execute.allow.iter().map(read).collect::<Result<Vec<_>>>()?;
    let dir = execute.dir.as_ref().map(|dir| loaded.root.join(dir));
    let own = limits.of("execute", execute.timeout);
    let settings = ExecuteSettings {
        check: match execute.check {
            CheckMode::Error => Check::Error,
            CheckMode::Warn => Check::Warn,
            CheckMode::Off => Check::Off,
        },
        max_timeout: execute.max_timeout.map_or(own.timeout, |it| it.duration().max(own.timeout)),
        result: usize::try_from(limits.result.bytes()).unwrap_or(usize::MAX),
        scope: Scope {
            grants: Grants::agents("execute", dir, grants),
            limits: own,
            ..Scope::default()
        },
    };
    Ok((made_from, Arc::new(luau.execute_tool(settings)?)))
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
