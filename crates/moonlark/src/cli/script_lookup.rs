//! Scripts by path, for `check` and `tool test`: in either language, inside the project's
//! folders or elsewhere.

use std::path::Path;
use std::sync::Arc;

use moonlark_core::{Problem, ProblemCode, Result, SourceLocation, Tool};

use super::test::test_files::ScriptTests;
use super::{CommandError, display_path, near_hint, working_dir};
use crate::extensions::{self, ScriptFolder};
use crate::project::Project;
use crate::saved_scripts;
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
    let config = &loaded.config;
    let connectors = config.connectors.script.values().map(|it| &it.path);
    let agents = config.agents.script.values().map(|it| &it.path);
    let kind = if belongs_to_folder(&whole, loaded, &config.connectors.dir, connectors) {
        Some(ScriptKind::Connector)
    } else if belongs_to_folder(&whole, loaded, &config.agents.dir, agents) {
        Some(ScriptKind::Agent)
    } else if belongs_to_folder(&whole, loaded, &config.scripts.dir, [].into_iter()) {
        Some(ScriptKind::Saved)
    } else {
        (!is_starlark_path(path)).then_some(ScriptKind::Tool)
    };
    if let Some(kind) = kind {
        return Ok(DiscoveredScript { path: whole, file: display_path(path), configured, kind });
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

/// Whether a script is one of the folder `dir`, or `configured` beside those.
fn belongs_to_folder<'a>(
    whole: &Path,
    loaded: &LoadedConfig,
    dir: &str,
    mut configured: impl Iterator<Item = &'a String>,
) -> bool {
    let at_home = whole.parent() == Some(&loaded.root.join(dir)) && !is_test_file(whole);
    at_home || configured.any(|path| loaded.root.join(path) == whole)
}

/// Nothing in the configuration is called `[SECTION.script.NAME]`.
pub(super) fn no_table_problem<'a>(
    section: &str,
    name: &str,
    known: impl Iterator<Item = &'a str>,
) -> Problem {
    let message = format!("there is no [{section}.script.{name}] in the configuration");
    Problem::bad_request(message).with_optional_hint(near_hint(name, known))
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
    if let ScriptKind::Saved = found.kind {
        return saved_scripts::load_saved_script(found, &loaded)?.0.map(|_| vec![]);
    }
    let ScriptKind::Extension(folder) = &found.kind else {
        let script = scripts::prepare_script(found, &loaded)?;
        let (luau, gateway) = (&project.luau, &project.gateway);
        return match found.kind {
            ScriptKind::Connector => luau.load_connector(script, gateway).await.0.map(|_| vec![]),
            ScriptKind::Agent => luau.load_prompt(script, gateway).await.0.map(|_| vec![]),
            _ => luau.load_tool(script, gateway).await.0.map(|tool| vec![tool]),
        };
    };
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

/// Load a file of tests and run none.
pub(super) async fn load_tests(found: &DiscoveredScript, project: &Project) -> Result<()> {
    let loaded = project.loaded_config().await;
    let scope = Arc::new(scripts::script_test_scope(found, &loaded.config, &[])?);
    let call = project.gateway.open_test_call(scope, None);
    let folder = scripts::script_folder(found, &loaded);
    let loading = ScriptTests::load(&found.kind, &folder, project, &call);
    let loaded = tokio::time::timeout_at(call.deadline(), loading).await;
    let too_long = || Problem::new(ProblemCode::Timeout, "it takes too long to load");
    loaded.unwrap_or_else(|_| Err(too_long())).map(drop)
}
