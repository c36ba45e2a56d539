//! The sources of the knowledge base: which there are, as the configuration and
//! the connectors folder say.
//!
//! A script is loaded as a tool's is: aside, and its last good version stays.
//! What becomes of documents is not known here but in `moonlark-knowledge`.

mod connector_item;
mod scripted_connector;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use moonlark_core::tool::CallScope;
use moonlark_core::{Problem, Result, SourceLocation};
use moonlark_gateway::Gateway;
use moonlark_knowledge::{
    FilesystemConnector, FilesystemSettings, GitConnector, GitRepository, GitSettings,
    SourceConnector,
};
use moonlark_luau::LuauEngine;

use crate::scripts::{self, DiscoveredScript, ScriptKind, display_path};
use moonlark_config::config_file::LoadedConfig;
use moonlark_config::{FilesystemSourceConfig, GitSourceConfig};
use moonlark_state::state_folder::state_folder_path;

pub(crate) use scripted_connector::ScriptedConnector;

/// A place that documents come from.
#[derive(Clone)]
pub(crate) struct KnowledgeSource {
    pub(crate) name: String,
    way: ConnectorKind,
    /// Why its newest version is not in use.
    pub(crate) problem: Option<Problem>,
}

#[derive(Clone)]
enum ConnectorKind {
    Filesystem(Arc<FilesystemSourceConfig>, PathBuf),
    Git(Arc<GitSourceConfig>, PathBuf),
    Script(Box<ConnectorScriptState>),
}

/// A script, if any version of it has loaded.
#[derive(Clone)]
struct ConnectorScriptState {
    /// As messages show it.
    file: String,
    script: Option<moonlark_luau::ConnectorScript>,
    scope: Arc<CallScope>,
}

impl KnowledgeSource {
    pub(crate) fn kind(&self) -> &'static str {
        match &self.way {
            ConnectorKind::Filesystem(..) => "filesystem",
            ConnectorKind::Git(..) => "git",
            ConnectorKind::Script(_) => "script",
        }
    }

    /// Where it reads, for people.
    pub(crate) fn location(&self) -> String {
        match &self.way {
            ConnectorKind::Filesystem(config, _) => config.root.clone(),
            ConnectorKind::Git(config, _) => {
                let url = config.url.as_deref().map(moonlark_knowledge::redact_repository_url);
                url.or_else(|| config.path.clone()).unwrap_or_default()
            }
            ConnectorKind::Script(loading) => loading.file.clone(),
        }
    }

    /// What its author says it brings.
    pub(crate) fn description(&self) -> Option<&str> {
        let ConnectorKind::Script(loading) = &self.way else { return None };
        loading.script.as_ref().map(|it| it.description.as_str()).filter(|it| !it.is_empty())
    }

    /// What it brings, for agents: what its author says, or where that is, without
    /// the folders above it.
    pub(crate) fn describe_subject(&self) -> String {
        if let Some(said) = self.description() {
            return said.to_owned();
        }
        let place = self.location();
        let last = place.trim_end_matches('/').rsplit(['/', '\\', ':']).next().unwrap_or_default();
        let last = last.strip_suffix(".git").unwrap_or(last);
        match &self.way {
            _ if last.is_empty() || last.starts_with('.') => self.kind().to_owned(),
            ConnectorKind::Filesystem(..) => format!("files in {last}"),
            ConnectorKind::Git(..) => format!("repository {last}"),
            ConnectorKind::Script(_) => "script".to_owned(),
        }
    }

    /// Whether it may call tools, which then have to be there.
    pub(crate) fn may_call_tools(&self) -> bool {
        let ConnectorKind::Script(loading) = &self.way else { return false };
        loading.scope.grants.has_kind("tool")
    }

    /// What reads it; with `full`, as if for the first time.
    pub(crate) fn make_connector(
        &self,
        full: bool,
        gateway: &Gateway,
    ) -> Result<Arc<dyn SourceConnector>> {
        if let (Some(problem), ConnectorKind::Filesystem(..) | ConnectorKind::Git(..)) =
            (&self.problem, &self.way)
        {
            return Err(problem.clone());
        }
        match &self.way {
            ConnectorKind::Filesystem(config, root) => {
                filesystem_connector(&self.name, config, root)
            }
            ConnectorKind::Git(config, root) => git_connector(&self.name, config, root),
            ConnectorKind::Script(loading) => match &loading.script {
                Some(script) => Ok(Arc::new(ScriptedConnector {
                    name: self.name.clone(),
                    script: script.clone(),
                    scope: loading.scope.clone(),
                    gateway: gateway.clone(),
                    full,
                })),
                None => Err(self.problem.clone().unwrap_or_else(|| {
                    Problem::bad_script("the connector does not load")
                        .at_location(SourceLocation::in_file(loading.file.clone()))
                })),
            },
        }
    }

    /// The folder whose changes are followed while serving.
    pub(crate) fn watched_folder(&self) -> Option<&Path> {
        match &self.way {
            ConnectorKind::Filesystem(config, root) if config.watch => Some(root),
            _ => None,
        }
    }

    /// Two that are equal in this read the same in the same way.
    fn settings_fingerprint(&self) -> String {
        match &self.way {
            ConnectorKind::Filesystem(config, root) => format!("{config:?} {}", root.display()),
            ConnectorKind::Git(config, root) => format!("{config:?} {}", root.display()),
            // Made anew whenever the script is loaded again.
            ConnectorKind::Script(loading) => {
                format!("{} {:p}", loading.file, Arc::as_ptr(&loading.scope))
            }
        }
    }

    pub(crate) fn reads_same_as(&self, other: &KnowledgeSource) -> bool {
        self.name == other.name && self.settings_fingerprint() == other.settings_fingerprint()
    }
}

/// The scripts among the sources, by the names of those, with their files.
pub(crate) type ConnectorEntries = BTreeMap<String, Arc<ConnectorEntry>>;

pub(crate) struct ConnectorEntry {
    path: PathBuf,
    fingerprint: String,
    inner: scripts::ScriptEntry,
    loading: ConnectorScriptState,
    /// It misses a value that its settings name, so no version of it can be used.
    is_out_of_order: bool,
}

impl ConnectorEntry {
    /// The files it consists of.
    pub(crate) fn source_files(&self) -> impl Iterator<Item = PathBuf> {
        self.inner.source_files().chain([self.path.clone()])
    }

    /// As messages show it.
    pub(crate) fn file(&self) -> &str {
        &self.loading.file
    }

    /// Why the newest version did not load.
    pub(crate) fn problem(&self) -> Option<&Problem> {
        self.inner.problem.as_ref()
    }

    /// Whether a version of it works.
    pub(crate) fn has_working_version(&self) -> bool {
        self.loading.script.is_some()
    }

    /// One that could not be loaded, for a reason that is not in its files.
    pub(crate) fn from_problem(
        found: &DiscoveredScript,
        fingerprint: String,
        loaded: &LoadedConfig,
        problem: Problem,
    ) -> ConnectorEntry {
        let folder = scripts::script_folder(found, loaded).path;
        let inner = scripts::ScriptEntry {
            folder,
            problem: Some(problem),
            ..scripts::ScriptEntry::default()
        };
        let loading =
            ConnectorScriptState { file: found.file.clone(), script: None, scope: Arc::default() };
        let is_out_of_order = false;
        ConnectorEntry { path: found.path.clone(), fingerprint, inner, loading, is_out_of_order }
    }

    /// With the last version that loaded in the place of one that did not.
    pub(crate) fn with_last_good(mut self, old: Option<&ConnectorEntry>) -> ConnectorEntry {
        let is_broken = self.loading.script.is_none() && !self.is_out_of_order;
        if let Some(old) = old.filter(|_| is_broken) {
            self.loading.script = old.loading.script.clone();
            self.loading.scope = old.loading.scope.clone();
        }
        self
    }
}

/// All sources: those of the configuration, then those of scripts.
pub(crate) fn list_knowledge_sources<'a>(
    loaded: &LoadedConfig,
    found: impl Iterator<Item = (&'a str, &'a str)>,
    entries: &ConnectorEntries,
) -> Vec<KnowledgeSource> {
    let mut sources = configured_sources(loaded);
    sources.extend(found.map(|(name, file)| {
        let (loading, problem) = match entries.get(name) {
            Some(entry) => (entry.loading.clone(), entry.inner.problem.clone()),
            // It counts as configured, so nothing it brought earlier is forgotten.
            None => {
                let problem = Problem::unavailable("the connector is still being loaded")
                    .at_location(SourceLocation::in_file(file.to_owned()));
                let loading = ConnectorScriptState {
                    file: file.to_owned(),
                    script: None,
                    scope: Arc::default(),
                };
                (loading, Some(problem))
            }
        };
        KnowledgeSource {
            name: name.to_owned(),
            way: ConnectorKind::Script(Box::new(loading)),
            problem,
        }
    }));
    sources
}

/// The script at `path`, whatever the project would call it.
pub(crate) fn discovered_connector_script(
    path: PathBuf,
    file: String,
    configured: Option<String>,
) -> DiscoveredScript {
    DiscoveredScript { path, file, configured, kind: ScriptKind::Connector }
}

/// Folders and repositories.
fn configured_sources(loaded: &LoadedConfig) -> Vec<KnowledgeSource> {
    let config = &loaded.config.connectors;
    let of = |name: &String, way, outage: &[Problem]| KnowledgeSource {
        name: name.clone(),
        way,
        problem: outage.first().cloned(),
    };
    let folders = config.filesystem.iter().map(|(name, it)| {
        let root = loaded.root.join(&it.root);
        of(name, ConnectorKind::Filesystem(Arc::new(it.clone()), root), &it.outage)
    });
    let repositories = config.git.iter().map(|(name, it)| {
        of(name, ConnectorKind::Git(Arc::new(it.clone()), loaded.root.clone()), &it.outage)
    });
    folders.chain(repositories).collect()
}

/// The scripts by name: those of the configuration, then those in the folder.
pub(crate) fn find_connector_scripts(
    loaded: &LoadedConfig,
) -> (Vec<(String, DiscoveredScript)>, Vec<Problem>) {
    let config = &loaded.config.connectors;
    let mut problems = Vec::new();
    let mut found: Vec<(String, DiscoveredScript)> = Vec::new();
    for (name, it) in &config.script {
        let path = loaded.root.join(&it.path);
        let file = display_path(&loaded.root, &path);
        found.push((name.clone(), discovered_connector_script(path, file, Some(name.clone()))));
    }
    let paths = match scripts::list_lua_scripts(&loaded.root.join(&config.dir)) {
        Ok(mut paths) => {
            problems.extend(scripts::too_many_scripts_problem(paths.len(), &config.dir));
            paths.truncate(scripts::MAX_SCRIPTS_PER_FOLDER);
            paths
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            let problem = format!("the connectors folder cannot be read: {error}");
            problems.push(
                Problem::bad_config(problem)
                    .at_location(SourceLocation::in_file(config.dir.clone())),
            );
            Vec::new()
        }
    };
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let taken: Vec<PathBuf> = found.iter().map(|(_, it)| real(&it.path)).collect();
    for path in paths.into_iter().filter(|path| !taken.contains(&real(path))) {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let file = display_path(&loaded.root, &path);
        let named = |name: &String| *name == stem;
        let is_taken = config.filesystem.keys().chain(config.git.keys()).any(named)
            || found.iter().any(|(name, _)| *name == stem);
        if is_taken {
            problems.push(
                Problem::bad_config(format!("another connector has the name {stem}"))
                    .at_location(SourceLocation::in_file(file))
                    .with_hint("rename the file, or the other connector"),
            );
            continue;
        }
        found.push((stem, discovered_connector_script(path, file, None)));
    }
    (found, problems)
}

/// Whether it has not changed since it was loaded.
pub(crate) fn is_connector_unchanged(
    old: &ConnectorEntry,
    found: &DiscoveredScript,
    fingerprint: &str,
    loaded: &LoadedConfig,
) -> bool {
    if old.fingerprint != fingerprint || old.path != found.path || old.inner.texts.is_empty() {
        return false;
    }
    let files = scripts::script_files(found, &scripts::script_folder(found, loaded));
    let same = |(file, was): (&String, &String)| files(file).unwrap_or_default() == *was;
    old.inner.texts.iter().all(same)
}

/// Load it, whatever was there before.
pub(crate) async fn load_connector_script(
    found: &DiscoveredScript,
    fingerprint: String,
    loaded: &LoadedConfig,
    luau: &LuauEngine,
    gateway: &Gateway,
) -> ConnectorEntry {
    let folder = scripts::script_folder(found, loaded);
    let mut inner =
        scripts::ScriptEntry { folder: folder.path.clone(), ..scripts::ScriptEntry::default() };
    let outage = scripts::script_outage(found, &loaded.config).first().cloned();
    let is_out_of_order = outage.is_some();
    let outcome = match scripts::prepare_script(found, loaded) {
        Ok(script) => {
            let scope = Arc::new(script.scope.clone());
            let (connector, texts) = luau.load_connector(script, gateway).await;
            inner.texts = texts;
            match outage {
                Some(problem) => connector.and(Err(problem)),
                None => connector.map(|connector| (connector, scope)),
            }
        }
        Err(problem) => {
            let text = scripts::script_files(found, &folder)(&folder.main).unwrap_or_default();
            inner.texts.insert(folder.main.clone(), text);
            Err(problem)
        }
    };
    let (script, scope) = match outcome {
        Ok((script, scope)) => (Some(script), scope),
        Err(problem) => {
            inner.problem = Some(problem);
            (None, Arc::default())
        }
    };
    let loading = ConnectorScriptState { file: found.file.clone(), script, scope };
    ConnectorEntry { path: found.path.clone(), fingerprint, inner, loading, is_out_of_order }
}

/// What is fetched of repositories, in the state folder.
const GIT_CLONES_FOLDER: &str = "git";

fn filesystem_connector(
    name: &str,
    config: &FilesystemSourceConfig,
    root: &Path,
) -> Result<Arc<dyn SourceConnector>> {
    Ok(Arc::new(FilesystemConnector::new(FilesystemSettings {
        name: name.to_owned(),
        root: root.to_owned(),
        include: config.include.clone(),
        exclude: config.exclude.clone(),
        hidden: config.hidden,
        max_file: config.max_file.bytes(),
        url: config.url.clone(),
    })?))
}

fn git_connector(
    name: &str,
    config: &GitSourceConfig,
    root: &Path,
) -> Result<Arc<dyn SourceConnector>> {
    let from = match (&config.url, &config.path) {
        (Some(url), _) => GitRepository::Url(url.clone()),
        (None, path) => GitRepository::Path(root.join(path.as_deref().unwrap_or("."))),
    };
    Ok(Arc::new(GitConnector::new(GitSettings {
        name: name.to_owned(),
        from,
        branch: config.branch.clone(),
        include: config.include.clone(),
        exclude: config.exclude.clone(),
        max_file: config.max_file.bytes(),
        cache: state_folder_path(root).join(GIT_CLONES_FOLDER).join(name),
    })?))
}
