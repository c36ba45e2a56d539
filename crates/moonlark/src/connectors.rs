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
use crate::state_folder::state_folder;

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

    /// What it brings, for agents: what its author says, or where that is, without
    /// the folders above it.
    pub(crate) fn subject(&self) -> String {
        if let Some(said) = self.description() {
            return said.to_owned();
        }
        let place = self.place();
        let last = place.trim_end_matches('/').rsplit(['/', '\\', ':']).next().unwrap_or_default();
        let last = last.strip_suffix(".git").unwrap_or(last);
        match &self.way {
            _ if last.is_empty() || last.starts_with('.') => self.kind().to_owned(),
            Way::Filesystem(..) => format!("files in {last}"),
            Way::Git(..) => format!("repository {last}"),
            Way::Script(_) => "script".to_owned(),
        }
    }

    /// Whether it may call tools, which then have to be there.
    pub(crate) fn calls_tools(&self) -> bool {
        let Way::Script(loading) = &self.way else { return false };
        loading.scope.grants.has_kind("tool")
    }

    /// What reads it; with `full`, as if for the first time.
    pub(crate) fn connector(&self, full: bool, gateway: &Gateway) -> Result<Arc<dyn Connector>> {
        if let (Some(problem), Way::Filesystem(..) | Way::Git(..)) = (&self.problem, &self.way) {
            return Err(problem.clone());
        }
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
pub(crate) type Entries = BTreeMap<String, Arc<Entry>>;

pub(crate) struct Entry {
    path: PathBuf,
    fingerprint: String,
    inner: scripts::Entry,
    loading: Loading,
    /// It misses a value that its settings name, so no version of it can be used.
    is_out_of_order: bool,
}

impl Entry {
    /// The files it consists of.
    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> {
        self.inner.files().chain([self.path.clone()])
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
    pub(crate) fn works(&self) -> bool {
        self.loading.script.is_some()
    }

    /// One that could not be loaded, for a reason that is not in its files.
    pub(crate) fn broken(
        found: &Found,
        fingerprint: String,
        loaded: &Loaded,
        problem: Problem,
    ) -> Entry {
        let folder = scripts::folder(found, loaded).path;
        let inner = scripts::Entry { folder, problem: Some(problem), ..scripts::Entry::default() };
        let loading = Loading { file: found.file.clone(), script: None, scope: Arc::default() };
        let is_out_of_order = false;
        Entry { path: found.path.clone(), fingerprint, inner, loading, is_out_of_order }
    }

    /// With the last version that loaded in the place of one that did not.
    pub(crate) fn after(mut self, old: Option<&Entry>) -> Entry {
        let is_broken = self.loading.script.is_none() && !self.is_out_of_order;
        if let Some(old) = old.filter(|_| is_broken) {
            self.loading.script = old.loading.script.clone();
            self.loading.scope = old.loading.scope.clone();
        }
        self
    }
}

/// All sources: those of the configuration, then those of scripts.
pub(crate) fn sources<'a>(
    loaded: &Loaded,
    found: impl Iterator<Item = (&'a str, &'a str)>,
    entries: &Entries,
) -> Vec<Source> {
    let mut sources = configured(loaded);
    sources.extend(found.map(|(name, file)| {
        let (loading, problem) = match entries.get(name) {
            Some(entry) => (entry.loading.clone(), entry.inner.problem.clone()),
            // It counts as configured, so nothing it brought earlier is forgotten.
            None => {
                let problem = Problem::unavailable("the connector is still being loaded")
                    .at(Place::file(file.to_owned()));
                let loading =
                    Loading { file: file.to_owned(), script: None, scope: Arc::default() };
                (loading, Some(problem))
            }
        };
        Source { name: name.to_owned(), way: Way::Script(Box::new(loading)), problem }
    }));
    sources
}

/// The script at `path`, whatever the project would call it.
pub(crate) fn script(path: PathBuf, file: String, configured: Option<String>) -> Found {
    Found { path, file, configured, kind: Kind::Connector }
}

/// Folders and repositories.
fn configured(loaded: &Loaded) -> Vec<Source> {
    let config = &loaded.config.connectors;
    let of = |name: &String, way, outage: &[Problem]| Source {
        name: name.clone(),
        way,
        problem: outage.first().cloned(),
    };
    let folders = config.filesystem.iter().map(|(name, it)| {
        let root = loaded.root.join(&it.root);
        of(name, Way::Filesystem(Arc::new(it.clone()), root), &it.outage)
    });
    let repositories = config.git.iter().map(|(name, it)| {
        of(name, Way::Git(Arc::new(it.clone()), loaded.root.clone()), &it.outage)
    });
    folders.chain(repositories).collect()
}

/// The scripts by name: those of the configuration, then those in the folder.
pub(crate) fn find(loaded: &Loaded) -> (Vec<(String, Found)>, Vec<Problem>) {
    let config = &loaded.config.connectors;
    let mut problems = Vec::new();
    let mut found: Vec<(String, Found)> = Vec::new();
    for (name, it) in &config.script {
        let path = loaded.root.join(&it.path);
        let file = shown(&loaded.root, &path);
        found.push((name.clone(), script(path, file, Some(name.clone()))));
    }
    let paths = match scripts::in_folder(&loaded.root.join(&config.dir)) {
        Ok(mut paths) => {
            problems.extend(scripts::too_many(paths.len(), &config.dir));
            paths.truncate(scripts::MAX_SCRIPTS);
            paths
        }
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

/// Whether it has not changed since it was loaded.
pub(crate) fn is_same(old: &Entry, found: &Found, fingerprint: &str, loaded: &Loaded) -> bool {
    if old.fingerprint != fingerprint || old.path != found.path || old.inner.texts.is_empty() {
        return false;
    }
    let files = scripts::files(found, &scripts::folder(found, loaded));
    let same = |(file, was): (&String, &String)| files(file).unwrap_or_default() == *was;
    old.inner.texts.iter().all(same)
}

/// Load it, whatever was there before.
pub(crate) async fn load_one(
    found: &Found,
    fingerprint: String,
    loaded: &Loaded,
    luau: &Luau,
    gateway: &Gateway,
) -> Entry {
    let folder = scripts::folder(found, loaded);
    let mut inner = scripts::Entry { folder: folder.path.clone(), ..scripts::Entry::default() };
    let outage = scripts::outage(found, &loaded.config).first().cloned();
    let is_out_of_order = outage.is_some();
    let outcome = match scripts::prepare(found, loaded) {
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
            let text = scripts::files(found, &folder)(&folder.main).unwrap_or_default();
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
    let loading = Loading { file: found.file.clone(), script, scope };
    Entry { path: found.path.clone(), fingerprint, inner, loading, is_out_of_order }
}

/// What is fetched of repositories, in the state folder.
const FETCHED: &str = "git";

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
        cache: state_folder(root).join(FETCHED).join(name),
    })?))
}
