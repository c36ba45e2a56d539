//! Saved scripts: those of the folder `scripts`, which the project's authors write, and
//! those that agents save.
//!
//! Both are files that are loaded and reloaded as tools are. What agents save is in the
//! state folder ([`script_store`]) and exists for its owner alone, unless the operator lets
//! all callers write to all.

mod saved_file;
mod script_store;
mod script_tools;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use moonlark_config::ProjectConfig;
use moonlark_config::config_file::LoadedConfig;
use moonlark_core::tool::ToolExposure;
use moonlark_core::{Problem, Result, Tool};
use moonlark_luau::{ExecuteSettings, LuauEngine, SavedScript};
use parking_lot::Mutex;

use crate::project::LoadedProduct;
use crate::scripts::{self, DiscoveredScript, ScriptKey, ScriptKind, ScriptProduct, read_script};
use saved_file::SavedFile;
pub(crate) use script_store::SavedScriptStore;

const WRITE_GRANT: &str = "scripts:write";
const WRITE_ALL_GRANT: &str = "scripts:write-all";

/// Where what agents save is kept.
const SAVED_SCRIPTS_FOLDER: &str = "scripts";

/// Whether agents may save scripts.
pub(crate) fn may_agents_save(config: &ProjectConfig) -> bool {
    config.execute.allow.iter().any(|grant| grant == WRITE_GRANT || grant == WRITE_ALL_GRANT)
}

/// Whether what one saves is everybody's.
fn are_saves_shared(config: &ProjectConfig) -> bool {
    config.execute.allow.iter().any(|grant| grant == WRITE_ALL_GRANT)
}

/// Whether an agent saved this script. Its text is the choice of one caller, so what is wrong
/// with it is not for the eyes of all.
pub(crate) fn is_saved_by_agent(key: &ScriptKey, loaded: &LoadedConfig) -> bool {
    let folder = saved_scripts_folder(loaded);
    matches!(key, ScriptKey::Saved(path) if path.parent() == Some(&folder))
}

pub(crate) fn saved_scripts_folder(loaded: &LoadedConfig) -> PathBuf {
    loaded.state.join(SAVED_SCRIPTS_FOLDER)
}

/// Those of the folder, then those that agents saved.
pub(crate) fn find_saved_scripts(loaded: &LoadedConfig) -> (Vec<DiscoveredScript>, Vec<Problem>) {
    let nothing = || std::iter::empty();
    let dir = &loaded.config.scripts.dir;
    let (mut found, mut problems) =
        scripts::find_lua_scripts(loaded, "scripts", dir, nothing(), &ScriptKind::Saved);
    if may_agents_save(&loaded.config) {
        let folder = saved_scripts_folder(loaded);
        let folder = folder.to_string_lossy();
        let (saved, more) =
            scripts::find_lua_scripts(loaded, "scripts", &folder, nothing(), &ScriptKind::Saved);
        found.extend(saved);
        problems.extend(more);
    }
    (found, problems)
}

/// Read a script. One without a header in the folder is a script for `moonlark run`.
pub(crate) fn load_saved_script(
    found: &DiscoveredScript,
    loaded: &LoadedConfig,
) -> Result<LoadedProduct> {
    let text = read_script(&found.path, &found.file)?;
    let main = scripts::script_folder(found, loaded).main;
    let texts = BTreeMap::from([(main, text.clone())]);
    let is_of_agents = found.path.parent() == Some(&saved_scripts_folder(loaded));
    let product = if is_of_agents {
        SavedFile::parse(&found.file, &text).and_then(|saved| {
            let owner = (!are_saves_shared(&loaded.config)).then(|| saved.owner.clone());
            let script = SavedScript::parse(&found.file, &saved.text)?;
            Ok(script.map(|script| SavedScriptProduct::new(script, owner, saved.version)))
        })
    } else {
        let script = SavedScript::parse(&found.file, &text);
        script.map(|it| it.map(|script| SavedScriptProduct::new(script, None, 0)))
    };
    let product = product.map(|it| match it {
        Some(saved) => ScriptProduct::Saved(Arc::new(saved)),
        None => ScriptProduct::Plain,
    });
    Ok((product, texts))
}

/// A saved script that loads.
pub(crate) struct SavedScriptProduct {
    script: Arc<SavedScript>,
    /// The only caller it exists for.
    owner: Option<Arc<str>>,
    /// 0 for those of the project.
    version: u32,
    /// It stays the same tool for as long as the settings are the same.
    tool: Mutex<Option<CachedScriptTool>>,
}

/// A tool, with what it was made from.
type CachedScriptTool = (Arc<ExecuteSettings>, ToolExposure, Arc<Tool>);

impl SavedScriptProduct {
    fn new(script: SavedScript, owner: Option<Arc<str>>, version: u32) -> Self {
        Self { script: Arc::new(script), owner, version, tool: Mutex::default() }
    }

    pub(crate) fn make_tool(
        &self,
        luau: &LuauEngine,
        file: &str,
        expose: ToolExposure,
        settings: &Arc<ExecuteSettings>,
    ) -> Result<Arc<Tool>> {
        // What an agent saves changes nobody's list of tools.
        let expose = if self.version == 0 { expose } else { ToolExposure::Code };
        let mut known = self.tool.lock();
        if let Some((made_for, exposed, tool)) = &*known
            && Arc::ptr_eq(made_for, settings)
            && *exposed == expose
        {
            return Ok(tool.clone());
        }
        let script = self.script.clone();
        let mut tool = luau.saved_script_tool(script, file, expose, settings.clone())?;
        tool.owner = self.owner.clone();
        if self.version > 0 {
            tool.tags.push(script_tools::SAVED_BY_AGENT_TAG.to_owned());
        }
        let tool = Arc::new(tool);
        *known = Some((settings.clone(), expose, tool.clone()));
        Ok(tool)
    }
}
