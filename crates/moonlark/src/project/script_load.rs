//! One script is loaded, whatever it is to become: a tool, an extension, a connector or a
//! prompt.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use moonlark_core::{Problem, Result, SourceLocation, Tool};
use moonlark_gateway::tool_body::into_failing_tool;

use super::Project;
use crate::connectors;
use crate::extensions;
use crate::prompt_scripts;
use crate::scripts::{self, DiscoveredScript, ScriptEntry, ScriptKind};
use moonlark_config::config_file::LoadedConfig;

/// What became of one.
pub(super) enum LoadedScriptEntry {
    Script(ScriptEntry),
    Connector(connectors::ConnectorEntry),
    Agent(prompt_scripts::PromptScriptEntry),
}

impl Project {
    /// Load one script. A panic on the way is a Problem of that script.
    pub(super) fn load_script(
        &self,
        found: DiscoveredScript,
        fingerprint: String,
        loaded: Arc<LoadedConfig>,
    ) -> impl Future<Output = LoadedScriptEntry> + Send + 'static {
        let (luau, starlark) = (self.luau.clone(), self.starlark.clone());
        let gateway = self.gateway.clone();
        let turns = match found.kind {
            ScriptKind::Tool | ScriptKind::Connector | ScriptKind::Agent => self.lua_turns.clone(),
            ScriptKind::Extension(_) => self.starlark_turns.clone(),
        };
        async move {
            let print = fingerprint.clone();
            let load = async {
                match &found.kind {
                    ScriptKind::Connector => {
                        let entry = connectors::load_connector_script(
                            &found, print, &loaded, &luau, &gateway,
                        )
                        .await;
                        LoadedScriptEntry::Connector(entry)
                    }
                    ScriptKind::Agent => {
                        let entry = prompt_scripts::load_prompt_script(
                            &found, print, &loaded, &luau, &gateway,
                        )
                        .await;
                        LoadedScriptEntry::Agent(entry)
                    }
                    ScriptKind::Tool => {
                        let entry = load_tool_script(&found, print, &loaded, &luau, &gateway).await;
                        LoadedScriptEntry::Script(entry)
                    }
                    ScriptKind::Extension(folder) => {
                        let entry =
                            load_extension(&found, folder, print, &loaded, &starlark, &gateway);
                        LoadedScriptEntry::Script(entry.await)
                    }
                }
            };
            let loading = AssertUnwindSafe(turns.run_load(load)).catch_unwind();
            loading.await.unwrap_or_else(|_| panicked_load(&found, fingerprint, &loaded))
        }
    }
}

/// Whoever wrote the script can do nothing about it.
fn panicked_load(
    found: &DiscoveredScript,
    fingerprint: String,
    loaded: &LoadedConfig,
) -> LoadedScriptEntry {
    let problem = Problem::internal("the script could not be loaded")
        .at_location(SourceLocation::in_file(found.file.clone()))
        .with_hint("this is a defect of Moonlark: please report it with the server's log");
    match &found.kind {
        ScriptKind::Connector => LoadedScriptEntry::Connector(
            connectors::ConnectorEntry::from_problem(found, fingerprint, loaded, problem),
        ),
        ScriptKind::Agent => LoadedScriptEntry::Agent(
            prompt_scripts::PromptScriptEntry::from_problem(found, fingerprint, loaded, problem),
        ),
        ScriptKind::Tool | ScriptKind::Extension(_) => LoadedScriptEntry::Script(ScriptEntry {
            fingerprint,
            problem: Some(problem),
            ..ScriptEntry::default()
        }),
    }
}

async fn load_tool_script(
    found: &DiscoveredScript,
    fingerprint: String,
    loaded: &LoadedConfig,
    luau: &moonlark_luau::LuauEngine,
    gateway: &moonlark_gateway::Gateway,
) -> ScriptEntry {
    let folder = scripts::script_folder(found, loaded);
    let mut entry =
        ScriptEntry { fingerprint, folder: folder.path.clone(), ..ScriptEntry::default() };
    let outcome = match scripts::prepare_script(found, loaded) {
        Ok(script) => {
            let (tool, texts) = luau.load_tool(script, gateway).await;
            entry.texts = texts;
            tool.map(|tool| vec![tool])
        }
        Err(problem) => {
            let text = scripts::script_files(found, &folder)(&folder.main).unwrap_or_default();
            entry.texts.insert(folder.main, text);
            Err(problem)
        }
    };
    with_load_outcome(entry, outcome, found, loaded)
}

async fn load_extension(
    found: &DiscoveredScript,
    folder: &extensions::ScriptFolder,
    fingerprint: String,
    loaded: &LoadedConfig,
    starlark: &moonlark_starlark::StarlarkEngine,
    gateway: &moonlark_gateway::Gateway,
) -> ScriptEntry {
    let mut entry =
        ScriptEntry { fingerprint, folder: folder.path.clone(), ..ScriptEntry::default() };
    let outcome = match extensions::prepare_extension(found, folder, &loaded.config) {
        Ok(extension) => {
            let (extension, texts) = starlark.load_extension(extension, gateway).await;
            entry.texts = texts;
            extension.map(|extension| {
                entry.library = extension.library;
                extension.tools
            })
        }
        Err(problem) => {
            let text = extensions::folder_files(folder)(&folder.main).unwrap_or_default();
            entry.texts.insert(folder.main.clone(), text);
            Err(problem)
        }
    };
    with_load_outcome(entry, outcome, found, loaded)
}

fn with_load_outcome(
    mut entry: ScriptEntry,
    outcome: Result<Vec<Tool>>,
    found: &DiscoveredScript,
    loaded: &LoadedConfig,
) -> ScriptEntry {
    match outcome {
        Ok(tools) => {
            let expose = scripts::script_exposure(found, &loaded.config);
            let outage = scripts::script_outage(found, &loaded.config).first().cloned();
            let exposed = |mut tool: Tool| {
                tool.expose = expose;
                Arc::new(match &outage {
                    Some(problem) => into_failing_tool(tool, problem),
                    None => tool,
                })
            };
            entry.problem = outage.clone();
            entry.tools = tools.into_iter().map(exposed).collect();
        }
        Err(problem) => entry.problem = Some(problem),
    }
    entry
}
