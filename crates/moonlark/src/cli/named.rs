//! Scripts that somebody names by their path, for `check` and `tool test`: in
//! either language, inside the project's folders or elsewhere.

use std::path::Path;
use std::sync::Arc;

use moonlark_core::{Code, Place, Problem, Result, Tool};

use super::{Failure, here, shown};
use crate::agents;
use crate::config_file::Loaded;
use crate::connectors;
use crate::extensions::{self, Folder};
use crate::project::Project;
use crate::scripts::{self, Found, Kind};

/// The script at `path`. `configured` is the name its settings have.
pub(super) fn script(
    path: &Path,
    configured: Option<String>,
    loaded: &Loaded,
) -> Result<Found, Failure> {
    let whole = here()?.join(path);
    let configured = configured.or_else(|| entry_of(&whole, loaded));
    if is_connector(&whole, loaded) {
        return Ok(connectors::script(whole, shown(path), configured));
    }
    if is_agent(&whole, loaded) {
        return Ok(agents::script(whole, shown(path), configured));
    }
    if !is_starlark(path) {
        return Ok(Found::tool(whole, shown(path), configured));
    }
    let Folder { path, label, main } = folder(path, &whole, loaded);
    Ok(extensions::extension(&path, label, main, configured))
}

/// The name of the configuration's entry for this very file, whether it says so by
/// `path` or the file lies where the entry's name says.
pub(super) fn entry_of(whole: &Path, loaded: &Loaded) -> Option<String> {
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
fn is_connector(whole: &Path, loaded: &Loaded) -> bool {
    let config = &loaded.config.connectors;
    let mut configured = config.script.values().map(|it| loaded.root.join(&it.path));
    let at_home = whole.parent() == Some(&loaded.root.join(&config.dir)) && !is_tests(whole);
    at_home || configured.any(|path| path == whole)
}

/// Whether it is a prompt script, by where it is.
fn is_agent(whole: &Path, loaded: &Loaded) -> bool {
    let config = &loaded.config.agents;
    let mut configured = config.script.values().map(|it| loaded.root.join(&it.path));
    let at_home = whole.parent() == Some(&loaded.root.join(&config.dir)) && !is_tests(whole);
    at_home || configured.any(|path| path == whole)
}

pub(super) fn is_starlark(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "star")
}

/// Whether it is a file of tests, by its name.
pub(super) fn is_tests(path: &Path) -> bool {
    path.file_stem().is_some_and(|stem| shown(Path::new(stem)).ends_with("_test"))
}

/// The folder that an extension's other files come from: the project's if it is
/// in there, otherwise its own.
fn folder(path: &Path, whole: &Path, loaded: &Loaded) -> Folder {
    let home = loaded.root.join(&loaded.config.extensions.dir);
    if let Ok(main) = whole.strip_prefix(&home) {
        let label = scripts::shown(&loaded.root, &home);
        return Folder { path: home.clone(), label, main: shown(main) };
    }
    let label = match path.parent().map(shown).unwrap_or_default() {
        label if label.is_empty() => ".".to_owned(),
        label => label,
    };
    let main = whole.file_name().map(|name| shown(Path::new(name))).unwrap_or_default();
    Folder { path: whole.parent().unwrap_or(whole).to_owned(), label, main }
}

/// Its tools; none if it is there for others to load.
pub(super) async fn tools(found: &Found, project: &Project) -> Result<Vec<Tool>> {
    let loaded = project.loaded().await;
    match &found.kind {
        Kind::Tool => {
            let script = scripts::prepare(found, &loaded)?;
            Ok(vec![project.luau.load(script, &project.gateway).await.0?])
        }
        Kind::Extension(folder) => {
            let extension = extensions::prepare(found, folder, &loaded.config)?;
            let extension = project.starlark.load(extension, &project.gateway).await.0?;
            if extension.hides_tools {
                return Err(Problem::bad_script(
                    "the file makes tools, but defines no function describe_extension: it gives none",
                )
                .at(Place::file(found.file.clone()))
                .hint(
                    "end it with: def describe_extension(): return Extension(name = \"…\", tools = […])",
                ));
            }
            Ok(extension.tools)
        }
        Kind::Connector => {
            let script = scripts::prepare(found, &loaded)?;
            project.luau.load_connector(script, &project.gateway).await.0.map(|_| Vec::new())
        }
        Kind::Agent => {
            let script = scripts::prepare(found, &loaded)?;
            project.luau.load_prompt(script, &project.gateway).await.0.map(|_| Vec::new())
        }
    }
}

/// Load a file of tests and run none.
pub(super) async fn tests(found: &Found, project: &Project) -> Result<()> {
    let loaded = project.loaded().await;
    let scope = Arc::new(scripts::test_scope(found, &loaded.config, &[])?);
    let call = project.gateway.test(scope, None);
    let folder = match &found.kind {
        Kind::Tool | Kind::Connector | Kind::Agent => scripts::folder(found, &loaded),
        Kind::Extension(folder) => folder.clone(),
    };
    let files = extensions::files(&folder);
    let Folder { label, main, .. } = folder;
    let loading = async {
        match &found.kind {
            Kind::Tool | Kind::Connector | Kind::Agent => {
                project.luau.tests(label, main, files, &call).await.map(drop)
            }
            Kind::Extension(_) => project.starlark.tests(label, main, files, &call).await.map(drop),
        }
    };
    tokio::time::timeout_at(call.deadline(), loading)
        .await
        .unwrap_or_else(|_| Err(Problem::new(Code::Timeout, "it takes too long to load")))
}
