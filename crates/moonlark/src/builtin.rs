//! The tools that are part of Moonlark itself.
//!
//! `search`, `get_document` and `list_sources` are those of the knowledge base; a
//! script of the same name takes their place. What agents find functions with is
//! in a crate of its own.

use std::sync::Arc;

use moonlark_core::grant::{Grant, Grants};
use moonlark_core::tool::Scope;
use moonlark_core::{Place, Problem, Result, Tool};
use moonlark_luau::{Check, ExecuteSettings, Luau};

use crate::config::{CheckMode, Config};
use crate::config_file::Loaded;
use crate::knowledge::KnowledgeBase;

/// Built-ins that a script may stand in for.
pub const REPLACEABLE: [&str; 3] = ["search", "get_document", "list_sources"];

/// All but `execute`.
pub(crate) fn tools(knowledge: &KnowledgeBase) -> Result<Vec<Arc<Tool>>> {
    let mut tools = knowledge.tools()?;
    tools.extend(moonlark_discovery::tools()?);
    Ok(tools)
}

/// The tool that runs agents' scripts, with what it was made from: it stays the
/// same as long as that does.
pub type Execute = (String, Arc<Tool>);

pub fn execute(luau: &Luau, loaded: &Loaded, old: Option<&Execute>) -> Result<Execute> {
    let Config { execute, limits, network, .. } = &loaded.config;
    let made_from = format!("{execute:?}\n{limits:?}\n{network:?}\n{}", loaded.root.display());
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
            grants: Grants::agents("execute", dir, grants).under(&network.rules()),
            limits: own,
            ..Scope::default()
        },
    };
    Ok((made_from, Arc::new(luau.execute_tool(settings)?)))
}
