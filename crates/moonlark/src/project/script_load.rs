//! One script is loaded, whatever it is to become: a tool, an extension, a connector or a
//! prompt.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use moonlark_core::{Problem, Result, SourceLocation, Tool};
use moonlark_gateway::Gateway;
use moonlark_gateway::tool_body::into_failing_tool;
use moonlark_luau::LuauEngine;
use moonlark_starlark::StarlarkEngine;

use super::Project;
use crate::extensions;
use crate::prompt_scripts;
use crate::saved_scripts;
use crate::scripts::{
    self, DiscoveredScript, ScriptEntry, ScriptKind, ScriptLoadSettings, ScriptProduct,
};
use moonlark_config::config_file::LoadedConfig;

impl Project {
    /// Load one script. A panic on the way is a Problem of that script.
    pub(super) fn load_script(
        &self,
        found: DiscoveredScript,
        settings: ScriptLoadSettings,
        loaded: Arc<LoadedConfig>,
    ) -> impl Future<Output = ScriptEntry> + Send + 'static {
        let (luau, starlark) = (self.luau.clone(), self.starlark.clone());
        let gateway = self.gateway.clone();
        let turns = match found.kind {
            ScriptKind::Tool | ScriptKind::Connector | ScriptKind::Agent | ScriptKind::Saved => {
                self.lua_turns.clone()
            }
            ScriptKind::Extension(_) => self.starlark_turns.clone(),
        };
        async move {
            let mut entry = ScriptEntry::new(found, settings, &loaded);
            let loader = ScriptLoader { found: &entry.found, loaded: &loaded, gateway: &gateway };
            let load = loader.load_product(&luau, &starlark);
            let (product, texts) = AssertUnwindSafe(turns.run_load(load))
                .catch_unwind()
                .await
                .unwrap_or_else(|_| (Err(panicked_load_problem(&entry.found)), BTreeMap::new()));
            entry.texts = texts;
            match product {
                Ok(product) => {
                    let outage = scripts::script_outage(&entry.found, &loaded.config).first();
                    // A connector or a prompt without a value that it needs cannot be used.
                    let is_usable = outage.is_none() || product.is_callable();
                    entry.product = is_usable.then_some(product);
                    entry.problem = outage.cloned();
                }
                Err(problem) => entry.problem = Some(problem),
            }
            entry
        }
    }
}

/// What a script has, and the files that it read for that.
pub(crate) type LoadedProduct = (Result<ScriptProduct>, BTreeMap<String, String>);

struct ScriptLoader<'a> {
    found: &'a DiscoveredScript,
    loaded: &'a LoadedConfig,
    gateway: &'a Gateway,
}

impl ScriptLoader<'_> {
    async fn load_product(&self, luau: &LuauEngine, starlark: &StarlarkEngine) -> LoadedProduct {
        let prepared = match &self.found.kind {
            ScriptKind::Extension(folder) => self.load_extension(folder, starlark).await,
            ScriptKind::Saved => saved_scripts::load_saved_script(self.found, self.loaded),
            _ => self.load_lua_script(luau).await,
        };
        prepared.unwrap_or_else(|problem| {
            let folder = scripts::script_folder(self.found, self.loaded);
            let text = scripts::script_files(self.found, &folder)(&folder.main);
            (Err(problem), BTreeMap::from([(folder.main, text.unwrap_or_default())]))
        })
    }

    async fn load_lua_script(&self, luau: &LuauEngine) -> Result<LoadedProduct> {
        let script = scripts::prepare_script(self.found, self.loaded)?;
        let scope = Arc::new(script.scope.clone());
        Ok(match &self.found.kind {
            ScriptKind::Connector => {
                let (connector, texts) = luau.load_connector(script, self.gateway).await;
                (connector.map(|it| ScriptProduct::Connector(it, scope)), texts)
            }
            ScriptKind::Agent => {
                let (prompt, texts) = luau.load_prompt(script, self.gateway).await;
                let prompt =
                    prompt.and_then(|it| prompt_scripts::prompt_product(self.found, it, scope));
                (prompt.map(|it| ScriptProduct::Prompt(Arc::new(it))), texts)
            }
            ScriptKind::Tool | ScriptKind::Extension(_) | ScriptKind::Saved => {
                let (tool, texts) = luau.load_tool(script, self.gateway).await;
                (tool.map(|tool| self.expose_tools(vec![tool])), texts)
            }
        })
    }

    async fn load_extension(
        &self,
        folder: &extensions::ScriptFolder,
        starlark: &StarlarkEngine,
    ) -> Result<LoadedProduct> {
        let file = extensions::prepare_extension(self.found, folder, &self.loaded.config)?;
        let (extension, texts) = starlark.load_extension(file, self.gateway).await;
        let product = extension.map(|extension| {
            if extension.library {
                ScriptProduct::Library
            } else {
                self.expose_tools(extension.tools)
            }
        });
        Ok((product, texts))
    }

    /// Tools that miss a value which their settings name say so when they are called.
    fn expose_tools(&self, tools: Vec<Tool>) -> ScriptProduct {
        let expose = scripts::script_exposure(self.found, &self.loaded.config);
        let outage = scripts::script_outage(self.found, &self.loaded.config).first();
        let exposed = tools.into_iter().map(|mut tool| {
            tool.expose = expose;
            Arc::new(match outage {
                Some(problem) => into_failing_tool(tool, problem),
                None => tool,
            })
        });
        ScriptProduct::Tools(exposed.collect())
    }
}

/// Whoever wrote the script can do nothing about it.
fn panicked_load_problem(found: &DiscoveredScript) -> Problem {
    Problem::internal("the script could not be loaded")
        .at_location(SourceLocation::in_file(found.file.clone()))
        .with_hint("this is a defect of Moonlark: please report it with the server's log")
}
