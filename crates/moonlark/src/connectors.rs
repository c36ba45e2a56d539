//! The sources of the knowledge base: which there are, as the configuration and
//! the connectors folder say.
//!
//! A script is loaded as a tool's is: aside, and its last good version stays.
//! What becomes of documents is not known here but in `moonlark-knowledge`.

mod connector_item;
mod scripted_connector;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use moonlark_core::tool::CallScope;
use moonlark_core::{Problem, Result, SourceLocation};
use moonlark_gateway::Gateway;
use moonlark_knowledge::{
    FilesystemConnector, FilesystemSettings, GitConnector, GitRepository, GitSettings,
    SourceConnector,
};

use crate::scripts::{
    DiscoveredScript, ScriptEntries, ScriptKey, ScriptKind, ScriptProduct, find_lua_scripts,
};
use moonlark_config::config_file::LoadedConfig;
use moonlark_config::{FilesystemSourceConfig, GitSourceConfig};
use moonlark_state::state_folder::state_folder_path;

pub(crate) use scripted_connector::ScriptedConnector;

/// A place that documents come from.
#[derive(Clone)]
pub(crate) struct KnowledgeSource {
    pub(crate) name: String,
    kind: ConnectorKind,
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
        match &self.kind {
            ConnectorKind::Filesystem(..) => "filesystem",
            ConnectorKind::Git(..) => "git",
            ConnectorKind::Script(_) => "script",
        }
    }

    /// Where it reads, for people.
    pub(crate) fn location(&self) -> String {
        match &self.kind {
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
        let ConnectorKind::Script(loading) = &self.kind else { return None };
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
        match &self.kind {
            _ if last.is_empty() || last.starts_with('.') => self.kind().to_owned(),
            ConnectorKind::Filesystem(..) => format!("files in {last}"),
            ConnectorKind::Git(..) => format!("repository {last}"),
            ConnectorKind::Script(_) => "script".to_owned(),
        }
    }

    /// Whether it may call tools, which then have to be there.
    pub(crate) fn may_call_tools(&self) -> bool {
        let ConnectorKind::Script(loading) = &self.kind else { return false };
        loading.scope.grants.has_kind("tool")
    }

    /// What reads it; with `full`, as if for the first time.
    pub(crate) fn make_connector(
        &self,
        full: bool,
        gateway: &Gateway,
    ) -> Result<Arc<dyn SourceConnector>> {
        if let (Some(problem), ConnectorKind::Filesystem(..) | ConnectorKind::Git(..)) =
            (&self.problem, &self.kind)
        {
            return Err(problem.clone());
        }
        match &self.kind {
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
        match &self.kind {
            ConnectorKind::Filesystem(config, root) if config.watch => Some(root),
            _ => None,
        }
    }

    /// Whether both read the same in the same way.
    pub(crate) fn reads_same_as(&self, other: &KnowledgeSource) -> bool {
        self.name == other.name
            && match (&self.kind, &other.kind) {
                (ConnectorKind::Filesystem(a, from), ConnectorKind::Filesystem(b, there)) => {
                    a == b && from == there
                }
                (ConnectorKind::Git(a, from), ConnectorKind::Git(b, there)) => {
                    a == b && from == there
                }
                // The scope is made anew whenever the script is loaded again.
                (ConnectorKind::Script(a), ConnectorKind::Script(b)) => {
                    a.file == b.file && Arc::ptr_eq(&a.scope, &b.scope)
                }
                _ => false,
            }
    }
}

/// All sources: those of the configuration, then those of scripts.
pub(crate) fn list_knowledge_sources<'a>(
    loaded: &LoadedConfig,
    found: impl Iterator<Item = (&'a ScriptKey, &'a str)>,
    entries: &ScriptEntries,
) -> Vec<KnowledgeSource> {
    let mut sources = configured_sources(loaded);
    for (key, file) in found {
        let ScriptKey::Connector(name) = key else { continue };
        let entry = entries.get(key);
        let (script, scope) = match entry.and_then(|entry| entry.product.clone()) {
            Some(ScriptProduct::Connector(script, scope)) => (Some(script), scope),
            _ => (None, Arc::default()),
        };
        let problem = match entry {
            Some(entry) => entry.problem.clone(),
            // It counts as configured, so nothing it brought earlier is forgotten.
            None => Some(
                Problem::unavailable("the connector is still being loaded")
                    .at_location(SourceLocation::in_file(file.to_owned())),
            ),
        };
        let state = ConnectorScriptState { file: file.to_owned(), script, scope };
        let kind = ConnectorKind::Script(Box::new(state));
        sources.push(KnowledgeSource { name: name.clone(), kind, problem });
    }
    sources
}

/// Folders and repositories.
fn configured_sources(loaded: &LoadedConfig) -> Vec<KnowledgeSource> {
    let config = &loaded.config.connectors;
    let of = |name: &String, kind, outage: &[Problem]| KnowledgeSource {
        name: name.clone(),
        kind,
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
    let configured = config.script.iter().map(|(name, it)| (name, &it.path));
    let kind = ScriptKind::Connector;
    let (scripts, mut problems) =
        find_lua_scripts(loaded, "connectors", &config.dir, configured, &kind);
    let mut found: Vec<(String, DiscoveredScript)> = Vec::new();
    for script in scripts {
        if let Some(name) = script.configured.clone() {
            found.push((name, script));
            continue;
        }
        let stem = script.path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let names = config.filesystem.keys().chain(config.git.keys());
        if names.chain(found.iter().map(|(name, _)| name)).any(|name| *name == stem) {
            problems.push(
                Problem::bad_config(format!("another connector has the name {stem}"))
                    .at_location(SourceLocation::in_file(script.file))
                    .with_hint("rename the file, or the other connector"),
            );
            continue;
        }
        found.push((stem, script));
    }
    (found, problems)
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
