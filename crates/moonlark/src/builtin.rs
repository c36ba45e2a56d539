//! The tools that are part of Moonlark itself.
//!
//! `search`, `get_document` and `list_sources` are those of the knowledge base; a
//! script of the same name takes their place. What agents find functions with is
//! in a crate of its own.

use std::sync::Arc;

use moonlark_core::grant::{Grant, GrantSet};
use moonlark_core::tool::CallScope;
use moonlark_core::{Problem, Result, SourceLocation, Tool};
use moonlark_luau::{ExecuteSettings, LuauCheckMode, LuauEngine};

use crate::knowledge_base::KnowledgeBase;
use crate::saved_scripts::may_agents_save;
use moonlark_config::config_file::LoadedConfig;
use moonlark_config::{ExecuteCheckConfig, ProjectConfig};

/// Built-ins that a script may stand in for.
pub const REPLACEABLE_TOOL_NAMES: [&str; 3] = ["search", "get_document", "list_sources"];

/// All but `execute`.
pub(crate) fn make_builtin_tools(knowledge: &KnowledgeBase) -> Result<Vec<Arc<Tool>>> {
    let mut tools = knowledge.knowledge_tools()?;
    tools.extend(moonlark_discovery::discovery_tools()?);
    Ok(tools)
}

/// The tool that runs agents' scripts, with what it was made from: it stays the
/// same as long as that does.
#[derive(Clone)]
pub struct CachedExecuteTool {
    made_from: String,
    pub(crate) tool: Arc<Tool>,
    pub(crate) settings: Arc<ExecuteSettings>,
}

pub fn make_execute_tool(
    luau: &LuauEngine,
    loaded: &LoadedConfig,
    has_saved_scripts: bool,
    old: Option<&CachedExecuteTool>,
) -> Result<CachedExecuteTool> {
    let ProjectConfig { execute, limits, network, .. } = &loaded.config;
    let root = loaded.root.display();
    let has_saved_scripts = has_saved_scripts || may_agents_save(&loaded.config);
    let made_from = format!("{execute:?}\n{limits:?}\n{network:?}\n{has_saved_scripts}\n{root}");
    if let Some(old) = old.filter(|old| old.made_from == made_from) {
        return Ok(old.clone());
    }
    let read = |grant: &String| {
        let at = |problem: Problem| problem.at_location(SourceLocation::in_file("execute.allow"));
        grant.parse::<Grant>().map_err(at)
    };
    let grants = execute.allow.iter().map(read).collect::<Result<Vec<_>>>()?;
    let dir = execute.dir.as_ref().map(|dir| loaded.root.join(dir));
    let own = limits.for_tool("execute", execute.timeout);
    let settings = Arc::new(ExecuteSettings {
        check: match execute.check {
            ExecuteCheckConfig::Error => LuauCheckMode::Error,
            ExecuteCheckConfig::Warn => LuauCheckMode::Warn,
            ExecuteCheckConfig::Off => LuauCheckMode::Off,
        },
        max_timeout: execute
            .max_timeout
            .map_or(own.timeout, |it| it.to_duration().max(own.timeout)),
        result: usize::try_from(limits.result.bytes()).unwrap_or(usize::MAX),
        scope: CallScope {
            grants: GrantSet::for_agent_script("execute", dir, grants)
                .with_network_policy(&network.to_network_rules()),
            limits: own,
            ..CallScope::default()
        },
        has_saved_scripts,
    });
    let tool = Arc::new(luau.execute_tool(settings.clone())?);
    Ok(CachedExecuteTool { made_from, tool, settings })
}

#[cfg(test)]
mod tests {
    use moonlark_core::schema::Schema;

    use super::*;

    #[test]
    fn the_schemas_of_builtin_tools_compile() {
        let tools = make_builtin_tools(&KnowledgeBase::default()).unwrap();
        for tool in tools {
            for schema in std::iter::once(&tool.input).chain(&tool.output) {
                let mut json = (**schema.json()).clone();
                // So that it is compiled at once.
                json.insert("$comment".to_owned(), "".into());
                assert!(Schema::compile(json).is_ok(), "{}", tool.name);
            }
        }
    }
}
