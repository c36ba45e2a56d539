//! Scripts that somebody names by their path, for `check` and `tool test`: in
//! either language, inside the project's folders or elsewhere.

use std::path::Path;
use std::sync::Arc;

use moonlark_core::{Problem, ProblemCode, Result, SourceLocation, Tool};

use super::{CommandError, display_path, working_dir};
use crate::connectors;
use crate::extensions::{self, ScriptFolder};
use crate::project::Project;
use crate::prompt_scripts;
use crate::scripts::{self, DiscoveredScript, ScriptKind};
use moonlark_clients::config_paths::normalize_path;
use moonlark_config::config_file::LoadedConfig;

/// The script at `path`. `configured` is the name its settings have.
pub(super) fn find_script(
    path: &Path,
    configured: Option<String>,
    loaded: &LoadedConfig,
) -> Result<DiscoveredScript, CommandError> {
    let whole = normalize_path(&working_dir()?.join(path));
    let configured = configured.or_else(|| find_config_entry(&whole, loaded));
    if is_connector_path(&whole, loaded) {
        return Ok(connectors::discovered_connector_script(whole, display_path(path), configured));
    }
    if is_agent_path(&whole, loaded) {
        return Ok(prompt_scripts::discovered_prompt_script(whole, display_path(path), configured));
    }
    if !is_starlark_path(path) {
        return Ok(DiscoveredScript::tool_script(whole, display_path(path), configured));
    }
    let ScriptFolder { path, label, main } = extension_folder(path, &whole, loaded);
    Ok(extensions::discovered_extension(&path, label, main, configured))
}

/// The name of the configuration's entry for this very file, whether it says so by
/// `path` or the file lies where the entry's name says.
pub(super) fn find_config_entry(whole: &Path, loaded: &LoadedConfig) -> Option<String> {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let (config, wanted) = (&loaded.config, real(whole));
    let is_it = |path: &str| real(&loaded.root.join(path)) == wanted;
    let extension = |name: &String| {
        let own = config.extensions.script.get(name).and_then(|it| it.path.clone());
        let file = own.unwrap_or_else(|| format!("{name}.star"));
        is_it(&format!("{}/{file}", config.extensions.dir))
    };
    let tools = config.tools.script.iter().map(|(name, it)| (name, &it.path));
    let connectors = config.connectors.script.iter().map(|(name, it)| (name, &it.path));
    let by_path = tools.chain(connectors).find(|(_, path)| is_it(path)).map(|(name, _)| name);
    by_path.or_else(|| config.extensions.script.keys().find(|name| extension(name))).cloned()
}

/// Whether it is a connector, by where it is.
fn is_connector_path(whole: &Path, loaded: &LoadedConfig) -> bool {
    let config = &loaded.config.connectors;
    let mut configured = config.script.values().map(|it| loaded.root.join(&it.path));
    let at_home = whole.parent() == Some(&loaded.root.join(&config.dir)) && !is_test_file(whole);
    at_home || configured.any(|path| path == whole)
}

/// Whether it is a prompt script, by where it is.
fn is_agent_path(whole: &Path, loaded: &LoadedConfig) -> bool {
    let config = &loaded.config.agents;
    let mut configured = config.script.values().map(|it| loaded.root.join(&it.path));
    let at_home = whole.parent() == Some(&loaded.root.join(&config.dir)) && !is_test_file(whole);
    at_home || configured.any(|path| path == whole)
}

pub(super) fn is_starlark_path(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "star")
}

/// Whether it is a file of tests, by its name.
pub(super) fn is_test_file(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| display_path(Path::new(stem)).ends_with("_test"))
}

/// The folder that an extension's other files come from: the project's if it is
/// in there, otherwise its own.
fn extension_folder(path: &Path, whole: &Path, loaded: &LoadedConfig) -> ScriptFolder {
    let home = loaded.root.join(&loaded.config.extensions.dir);
    if let Ok(main) = whole.strip_prefix(&home) {
        let label = scripts::display_path(&loaded.root, &home);
        return ScriptFolder { path: home.clone(), label, main: display_path(main) };
    }
    let label = match path.parent().map(display_path).unwrap_or_default() {
        label if label.is_empty() => ".".to_owned(),
        label => label,
    };
    let main = whole.file_name().map(|name| display_path(Path::new(name))).unwrap_or_default();
    ScriptFolder { path: whole.parent().unwrap_or(whole).to_owned(), label, main }
}

/// Its tools; none if it is there for others to load.
pub(super) async fn load_tools(found: &DiscoveredScript, project: &Project) -> Result<Vec<Tool>> {
    let loaded = project.loaded_config().await;
    match &found.kind {
        ScriptKind::Tool => {
            let script = scripts::prepare_script(found, &loaded)?;
            Ok(vec![project.luau.load_tool(script, &project.gateway).await.0?])
        }
        ScriptKind::Extension(folder) => {
            let extension = extensions::prepare_extension(found, folder, &loaded.config)?;
            let extension = project.starlark.load_extension(extension, &project.gateway).await.0?;
            if extension.hides_tools {
                return Err(Problem::bad_script(
                    "the file makes tools, but defines no function describe_extension: it gives none",
                )
                .at_location(SourceLocation::in_file(found.file.clone()))
                .with_hint(
                    "end it with: def describe_extension(): return Extension(name = \"…\", tools = […])",
                ));
            }
            Ok(extension.tools)
        }
        ScriptKind::Connector => {
            let script = scripts::prepare_script(found, &loaded)?;
            project.luau.load_connector(script, &project.gateway).await.0.map(|_| Vec::new())
        }
        ScriptKind::Agent => {
            let script = scripts::prepare_script(found, &loaded)?;
            project.luau.load_prompt(script, &project.gateway).await.0.map(|_| Vec::new())
        }
    }
}

/// Load a file of tests and run none.
pub(super) async fn load_tests(found: &DiscoveredScript, project: &Project) -> Result<()> {
    let loaded = project.loaded_config().await;
    let scope = Arc::new(scripts::script_test_scope(found, &loaded.config, &[])?);
    let call = project.gateway.open_test_call(scope, None);
    let folder = match &found.kind {
        ScriptKind::Tool | ScriptKind::Connector | ScriptKind::Agent => {
            scripts::script_folder(found, &loaded)
        }
        ScriptKind::Extension(folder) => folder.clone(),
    };
    let files = extensions::folder_files(&folder);
    let ScriptFolder { label, main, .. } = folder;
    let loading = async {
        match &found.kind {
            ScriptKind::Tool | ScriptKind::Connector | ScriptKind::Agent => {
                project.luau.load_tests(label, main, files, &call).await.map(drop)
            }
            ScriptKind::Extension(_) => {
                project.starlark.load_tests(label, main, files, &call).await.map(drop)
            }
        }
    };
    tokio::time::timeout_at(call.deadline(), loading)
        .await
        .unwrap_or_else(|_| Err(Problem::new(ProblemCode::Timeout, "it takes too long to load")))
}
