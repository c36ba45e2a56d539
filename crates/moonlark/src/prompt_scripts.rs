//! Prompt scripts: prompts that the project's authors write.
//!
//! A script is loaded as a tool's is: aside, and its last good version stays.
//! To clients it is a source that offers one prompt; who asks for it goes
//! through the gateway, as with the prompts of upstream servers.

mod prompt_source;

use std::collections::BTreeMap;
use std::sync::Arc;

use moonlark_core::source_resources::SourceResources;
use moonlark_core::tool::CallScope;
use moonlark_core::{Catalog, Problem, Result, SourceLocation, Warning};
use moonlark_luau::PromptScript;

use crate::scripts::{self, DiscoveredScript, PromptProduct, ScriptEntries, ScriptKind};
use crate::source_selection::may_belong_to_source;
use moonlark_config::ProjectConfig;
use moonlark_config::config_file::LoadedConfig;

/// What all of them offer.
pub(crate) fn collect_prompt_offers(entries: &ScriptEntries) -> Vec<Arc<SourceResources>> {
    entries.values().filter_map(|entry| Some(entry.prompt()?.offers.clone())).collect()
}

/// Tools in `agent.tools` that do not exist. Those of a source that has not connected
/// are not known, so nothing is said of them.
pub(crate) fn unknown_tool_warnings(
    entries: &ScriptEntries,
    catalog: &Catalog,
    config: &ProjectConfig,
) -> Vec<Warning> {
    let servers = config.mcp_servers.iter().map(|(name, it)| (name, it.prefix.as_deref()));
    let apis = config.apis.iter().map(|(name, it)| (name, it.prefix.as_deref()));
    let is_connected = |source: &str| catalog.tools().iter().any(|it| it.source.name == source);
    let unconnected: Vec<(&String, Option<&str>)> =
        servers.chain(apis).filter(|(source, _)| !is_connected(source)).collect();
    let may_come = |tool: &str| {
        let mut sources = unconnected.iter();
        sources.any(|(source, prefix)| {
            // Without a prefix, any name may be one of its tools'.
            *prefix == Some("") || may_belong_to_source(tool, source, *prefix)
        })
    };
    let mut warnings = Vec::new();
    for prompt in entries.values().filter_map(|entry| entry.prompt()) {
        for tool in prompt.tools.iter().filter(|tool| !may_come(tool)) {
            let Err(unknown) = catalog.find_tool_for_agents(tool) else { continue };
            let message = format!("agent.tools names {tool}, which does not exist");
            let hint = unknown.hint.unwrap_or_else(|| "`moonlark tool list` has all".to_owned());
            warnings.push(
                Warning::new(message)
                    .at_location(SourceLocation::in_file(prompt.offers.source.name.clone()))
                    .with_hint(hint),
            );
        }
    }
    warnings
}

/// Prompts of which clients get only the first.
pub(crate) fn prompt_name_collisions<'a>(
    prompts: impl Iterator<Item = (&'a PromptProduct, &'a str)>,
) -> Vec<Problem> {
    let mut names: BTreeMap<String, &str> = BTreeMap::new();
    let mut problems = Vec::new();
    for (prompt, file) in prompts {
        let Some(name) = prompt_source::offered_prompt_name(&prompt.offers) else { continue };
        if let Some(first) = names.insert(name.to_owned(), file) {
            let message = format!("{first} and {file} both make a prompt named {name}");
            problems.push(
                Problem::bad_script(message)
                    .at_location(SourceLocation::in_file(file.to_owned()))
                    .with_hint("rename one of them: clients get the first"),
            );
        }
    }
    problems
}

/// Those of the configuration by name, then those in the folder.
pub(crate) fn find_prompt_scripts(loaded: &LoadedConfig) -> (Vec<DiscoveredScript>, Vec<Problem>) {
    let config = &loaded.config.agents;
    let configured = config.script.iter().map(|(name, it)| (name, &it.path));
    scripts::find_lua_scripts(loaded, "agents", &config.dir, configured, &ScriptKind::Agent)
}

/// What a script that loads has for clients.
pub(crate) fn prompt_product(
    found: &DiscoveredScript,
    script: PromptScript,
    scope: Arc<CallScope>,
) -> Result<PromptProduct> {
    let tools = script.header.tools.clone();
    let offers = Arc::new(prompt_source::offer_prompt(found, script, scope)?);
    Ok(PromptProduct { offers, tools })
}
