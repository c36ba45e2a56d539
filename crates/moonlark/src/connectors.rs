//! The sources of the knowledge base: which there are, as the configuration and
//! the connectors folder say.
//!
//! A script is loaded as a tool's is: aside, and its last good version stays.
//! What becomes of documents is not known here but in `moonlark-knowledge`.

mod item;
mod script;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use moonlark_core::tool::Scope;
use moonlark_core::{Gateway, Place, Problem, Result};
use moonlark_knowledge::{Connector, Filesystem, FilesystemSettings, Git, GitSettings, Repository};
use moonlark_luau::Luau;

use crate::config::{FilesystemSource, GitSource};
use crate::config_file::Loaded;
use crate::scripts::{self, Found, Kind, shown};

pub(crate) use script::ScriptSource;

/// A place that documents come from.
#[derive(Clone)]
pub(crate) struct Source {
    pub(crate) name: String,
    way: Way,
    /// Why its newest version is not in use.
    pub(crate) problem: Option<Problem>,
}

#[derive(Clone)]
enum Way {
    Filesystem(Arc<FilesystemSource>, PathBuf),
    Git(Arc<GitSource>, PathBuf),
    Script(Box<Loading>),
}

/// A script, if any version of it has loaded.
#[derive(Clone)]
struct Loading {
    /// As messages show it.
    file: String,
    script: Option<moonlark_luau::Connector>,
    scope: Arc<Scope>,
}

impl Source {
    pub(crate) fn kind(&self) -> &'static str {
        match &self.way {
            Way::Filesystem(..) => "filesystem",
            Way::Git(..) => "git",
            Way::Script(_) => "script",
        }
    }

    /// Where it reads, for people.
    pub(crate) fn place(&self) -> String {
        match &self.way {
            Way::Filesystem(config, _) => config.root.clone(),
            Way::Git(config, _) => {
                let url = config.url.as_deref().map(moonlark_knowledge::without_secrets);
                url.or_else(|| config.path.clone()).unwrap_or_default()
            }
            Way::Script(loading) => loading.file.clone(),
        }
    }

    /// What its author says it brings.
    pub(crate) fn description(&self) -> Option<&str> {
        let Way::Script(loading) = &self.way else { return None };
        loading.script.as_ref().map(|it| it.description.as_str()).filter(|it| !it.is_empty())
    }

    /// Whether it may call tools, which then have to be there.
    pub(crate) fn calls_tools(&self) -> bool {
        let Way::Script(loading) = &self.way else { return false };
        loading.scope.grants.has_kind("tool")
    }

    /// What reads it; with `full`, as if for the first time.
    pub(crate) fn connector(&self, full: bool, gateway: &Gateway) -> Result<Arc<dyn Connector>> {
        match &self.way {
            Way::Filesystem(config, root) => filesystem(&self.name, config, root),
            Way::Git(config, root) => git(&self.name, config, root),
            Way::Script(loading) => match &loading.script {
                Some(script) => Ok(Arc::new(ScriptSource {
                    name: self.name.clone(),
                    script: script.clone(),
                    scope: loading.scope.clone(),
                    gateway: gateway.clone(),
                    full,
                })),
                None => Err(self.problem.clone().unwrap_or_else(|| {
                    Problem::bad_script("the connector does not load")
                        .at(Place::file(loading.file.clone()))
                })),
            },
        }
    }

    /// The folder whose changes are followed while serving.
    pub(crate) fn watched(&self) -> Option<&Path> {
        match &self.way {
            Way::Filesystem(config, root) if config.watch => Some(root),
            _ => None,
        }
    }

    /// Two that are equal in this read the same in the same way.
    fn settings(&self) -> String {
        match &self.way {
            Way::Filesystem(config, root) => format!("{config:?} {}", root.display()),
            Way::Git(config, root) => format!("{config:?} {}", root.display()),
            // Made anew whenever the script is loaded again.
            Way::Script(loading) => format!("{} {:p}", loading.file, Arc::as_ptr(&loading.scope)),
        }
    }

    pub(crate) fn reads_like(&self, other: &Source) -> bool {
        self.name == other.name && self.settings() == other.settings()
    }
}

/// The scripts among the sources, by the names of those, with their files.
pub(crate) type Entries = BTreeMap<String, Entry>;

pub(crate) struct Entry {
    path: PathBuf,
    fingerprint: String,
    inner: scripts::Entry,
    loading: Loading,
}

impl Entry {
    /// The folders in which one of its files is, or would be.
    pub(crate) fn folders(&self) -> impl Iterator<Item = PathBuf> {
        self.inner.folders().chain(self.path.parent().map(Path::to_owned))
    }
}

/// What a look at the disk found.
pub(crate) struct Looked {
    pub(crate) entries: Entries,
    pub(crate) sources: Vec<Source>,
    /// In words for the log.
    pub(crate) changes: Vec<String>,
    /// Of the folder, and of scripts that are new in being broken.
    pub(crate) problems: Vec<Problem>,
    pub(crate) news: Vec<Problem>,
}

/// All sources, those of scripts loaded if they are new or have changed.
pub(crate) async fn load(
    loaded: &Loaded,
    mut old: Entries,
    luau: &Luau,
    gateway: &Gateway,
) -> Looked {
    let (found, problems) = find(loaded);
    let mut looked = Looked {
        entries: Entries::new(),
        sources: configured(loaded),
        changes: Vec::new(),
        problems,
        news: Vec::new(),
    };
    for (name, found) in found {
        let before = old.remove(&name);
        let was_there = before.is_some();
        let (entry, changed) = load_one(&found, loaded, before, luau, gateway).await;
        if changed {
            match &entry.inner.problem {
                Some(problem) => looked.news.push(problem.clone()),
                None if was_there => looked.changes.push(format!("{} changed", found.file)),
                None => looked.changes.push(format!("{} added", found.file)),
            }
        }
        looked.problems.extend(entry.inner.problem.clone());
        looked.sources.push(Source {
            name: name.clone(),
            way: Way::Script(Box::new(entry.loading.clone())),
            problem: entry.inner.problem.clone(),
        });
        looked.entries.insert(name, entry);
    }
    let gone = old.into_values().map(|entry| format!("{} removed", entry.loading.file));
    looked.changes.extend(gone);
    looked
}

/// The script at `path`, whatever the project would call it.
pub(crate) fn script(path: PathBuf, file: String, configured: Option<String>) -> Found {
    Found { path, file, configured, kind: Kind::Connector }
}

/// Folders and repositories.
fn configured(loaded: &Loaded) -> Vec<Source> {
    let config = &loaded.config.connectors;
    let of = |name: &String, way| Source { name: name.clone(), way, problem: None };
    let folders = config.filesystem.iter().map(|(name, it)| {
        of(name, Way::Filesystem(Arc::new(it.clone()), loaded.root.join(&it.root)))
    });
    let repositories = config
        .git
        .iter()
        .map(|(name, it)| of(name, Way::Git(Arc::new(it.clone()), loaded.root.clone())));
    folders.chain(repositories).collect()
}

/// The scripts by name: those of the configuration, then those in the folder.
fn find(loaded: &Loaded) -> (Vec<(String, Found)>, Vec<Problem>) {
    let config = &loaded.config.connectors;
    let mut problems = Vec::new();
    let mut found: Vec<(String, Found)> = Vec::new();
    for (name, it) in &config.script {
        let path = loaded.root.join(&it.path);
        let file = shown(&loaded.root, &path);
        found.push((name.clone(), script(path, file, Some(name.clone()))));
    }
    let paths = match scripts::in_folder(&loaded.root.join(&config.dir)) {
        Ok(paths) => paths,
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            let problem = format!("the connectors folder cannot be read: {error}");
            problems.push(Problem::bad_config(problem).at(Place::file(config.dir.clone())));
            Vec::new()
        }
    };
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let taken: Vec<PathBuf> = found.iter().map(|(_, it)| real(&it.path)).collect();
    for path in paths.into_iter().filter(|path| !taken.contains(&real(path))) {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let file = shown(&loaded.root, &path);
        let named = |name: &String| *name == stem;
        let is_taken = config.filesystem.keys().chain(config.git.keys()).any(named)
            || found.iter().any(|(name, _)| *name == stem);
        if is_taken {
            problems.push(
                Problem::bad_config(format!("another connector has the name {stem}"))
                    .at(Place::file(file))
                    .hint("rename the file, or the other connector"),
            );
            continue;
        }
        found.push((stem, script(path, file, None)));
    }
    (found, problems)
}

/// Whether it is another than before, beside it.
async fn load_one(
    found: &Found,
    loaded: &Loaded,
    old: Option<Entry>,
    luau: &Luau,
    gateway: &Gateway,
) -> (Entry, bool) {
    let fingerprint = scripts::fingerprint(found, &loaded.config);
    let folder = scripts::folder(found, loaded);
    let files = scripts::files(found, &folder);
    if let Some(old) = old.as_ref().filter(|it| it.fingerprint == fingerprint) {
        let texts = &old.inner.texts;
        let same = |(file, was): (&String, &String)| files(file).unwrap_or_default() == *was;
        if old.path == found.path && !texts.is_empty() && texts.iter().all(same) {
            return (old_entry(old), false);
        }
    }
    let mut inner = scripts::Entry { folder: folder.path.clone(), ..scripts::Entry::default() };
    let last_good = old.and_then(|old| old.loading.script.map(|it| (it, old.loading.scope)));
    let outcome = match scripts::prepare(found, loaded) {
        Ok(script) => {
            let scope = Arc::new(script.scope.clone());
            let (connector, texts) = luau.load_connector(script, gateway).await;
            inner.texts = texts;
            connector.map(|connector| (connector, scope))
        }
        Err(problem) => {
            let text = files(&folder.main).unwrap_or_default();
            inner.texts.insert(folder.main.clone(), text);
            Err(problem)
        }
    };
    let (script, scope) = match outcome {
        Ok((script, scope)) => (Some(script), scope),
        Err(problem) => {
            inner.problem = Some(problem);
            last_good.map_or((None, Arc::default()), |(script, scope)| (Some(script), scope))
        }
    };
    let loading = Loading { file: found.file.clone(), script, scope };
    (Entry { path: found.path.clone(), fingerprint, inner, loading }, true)
}

fn old_entry(old: &Entry) -> Entry {
    Entry {
        path: old.path.clone(),
        fingerprint: old.fingerprint.clone(),
        inner: old.inner.clone(),
        loading: old.loading.clone(),
    }
}

/// What is fetched of repositories, below the project.
const FETCHED: &str = ".moonlark/git";

fn filesystem(name: &str, config: &FilesystemSource, root: &Path) -> Result<Arc<dyn Connector>> {
    Ok(Arc::new(Filesystem::new(FilesystemSettings {
        name: name.to_owned(),
        root: root.to_owned(),
        include: config.include.clone(),
        exclude: config.exclude.clone(),
        hidden: config.hidden,
        max_file: config.max_file.bytes(),
        url: config.url.clone(),
    })?))
}

fn git(name: &str, config: &GitSource, root: &Path) -> Result<Arc<dyn Connector>> {
    let from = match (&config.url, &config.path) {
        (Some(url), _) => Repository::Url(url.clone()),
        (None, path) => Repository::Path(root.join(path.as_deref().unwrap_or("."))),
    };
    Ok(Arc::new(Git::new(GitSettings {
        name: name.to_owned(),
        from,
        branch: config.branch.clone(),
        include: config.include.clone(),
        exclude: config.exclude.clone(),
        max_file: config.max_file.bytes(),
        cache: root.join(FETCHED).join(name),
    })?))
}
