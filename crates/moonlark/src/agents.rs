//! Prompt scripts: prompts that the project's authors write.
//!
//! A script is loaded as a tool's is: aside, and its last good version stays.
//! To clients it is a source that offers one prompt; who asks for it goes
//! through the gateway, as with the prompts of upstream servers.

mod prompt;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use moonlark_core::offers::Offers;
use moonlark_core::{Gateway, Place, Problem};
use moonlark_luau::Luau;

use crate::config_file::Loaded;
use crate::scripts::{self, Found, Kind, shown};

/// The scripts by their files.
pub(crate) type Entries = BTreeMap<PathBuf, Arc<Entry>>;

pub(crate) struct Entry {
    fingerprint: String,
    /// Its files, and why the newest version is not in use.
    inner: scripts::Entry,
    /// What the last version that loaded offers.
    offers: Option<Arc<Offers>>,
    /// It misses a value that its settings name, so no version of it can be used.
    is_out_of_order: bool,
}

impl Entry {
    /// One that could not be loaded, for a reason that is not in its files.
    pub(crate) fn broken(
        found: &Found,
        fingerprint: String,
        loaded: &Loaded,
        problem: Problem,
    ) -> Entry {
        let folder = scripts::folder(found, loaded).path;
        let inner = scripts::Entry { folder, problem: Some(problem), ..scripts::Entry::default() };
        Entry { fingerprint, inner, offers: None, is_out_of_order: false }
    }

    /// The files it consists of.
    pub(crate) fn files(&self) -> impl Iterator<Item = PathBuf> {
        self.inner.files()
    }

    /// Why the newest version did not load.
    pub(crate) fn problem(&self) -> Option<&Problem> {
        self.inner.problem.as_ref()
    }

    /// Whether a version of it works.
    pub(crate) fn works(&self) -> bool {
        self.offers.is_some()
    }

    /// With the last version that loaded in the place of one that did not.
    pub(crate) fn after(mut self, old: Option<&Entry>) -> Entry {
        let is_broken = self.offers.is_none() && !self.is_out_of_order;
        if let Some(old) = old.filter(|_| is_broken) {
            self.offers.clone_from(&old.offers);
        }
        self
    }
}

/// What all of them offer.
pub(crate) fn offers(entries: &Entries) -> Vec<Arc<Offers>> {
    entries.values().filter_map(|entry| entry.offers.clone()).collect()
}

/// Prompts of which clients get only the first.
pub(crate) fn name_collisions<'a>(
    entries: impl Iterator<Item = (&'a Entry, &'a str)>,
) -> Vec<Problem> {
    let mut names: BTreeMap<String, &str> = BTreeMap::new();
    let mut problems = Vec::new();
    for (entry, file) in entries {
        let Some(name) = entry.offers.as_deref().and_then(prompt::name_of) else { continue };
        if let Some(first) = names.insert(name.to_owned(), file) {
            let message = format!("{first} and {file} both make a prompt named {name}");
            problems.push(
                Problem::bad_script(message)
                    .at(Place::file(file.to_owned()))
                    .hint("rename one of them: clients get the first"),
            );
        }
    }
    problems
}

/// The script at `path`, whatever the project would call it.
pub(crate) fn script(path: PathBuf, file: String, configured: Option<String>) -> Found {
    Found { path, file, configured, kind: Kind::Agent }
}

/// Those of the configuration by name, then those in the folder.
pub(crate) fn find(loaded: &Loaded) -> (Vec<Found>, Vec<Problem>) {
    let config = &loaded.config.agents;
    let mut problems = Vec::new();
    let mut found: Vec<Found> = Vec::new();
    for (name, it) in &config.script {
        let path = loaded.root.join(&it.path);
        let file = shown(&loaded.root, &path);
        found.push(script(path, file, Some(name.clone())));
    }
    let paths = match scripts::in_folder(&loaded.root.join(&config.dir)) {
        Ok(mut paths) => {
            problems.extend(scripts::too_many(paths.len(), &config.dir));
            paths.truncate(scripts::MAX_SCRIPTS);
            paths
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => {
            let problem = format!("the agents folder cannot be read: {error}");
            problems.push(Problem::bad_config(problem).at(Place::file(config.dir.clone())));
            Vec::new()
        }
    };
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let taken: Vec<PathBuf> = found.iter().map(|it| real(&it.path)).collect();
    for path in paths.into_iter().filter(|path| !taken.contains(&real(path))) {
        let file = shown(&loaded.root, &path);
        found.push(script(path, file, None));
    }
    (found, problems)
}

/// Whether it has not changed since it was loaded.
pub(crate) fn is_same(old: &Entry, found: &Found, fingerprint: &str, loaded: &Loaded) -> bool {
    if old.fingerprint != fingerprint || old.inner.texts.is_empty() {
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
            let (agent, texts) = luau.load_prompt(script, gateway).await;
            inner.texts = texts;
            match outage {
                Some(problem) => agent.and(Err(problem)),
                None => agent.and_then(|agent| prompt::offer(found, agent, scope)),
            }
        }
        Err(problem) => {
            let text = scripts::files(found, &folder)(&folder.main).unwrap_or_default();
            inner.texts.insert(folder.main.clone(), text);
            Err(problem)
        }
    };
    let offers = match outcome {
        Ok(offers) => Some(Arc::new(offers)),
        Err(problem) => {
            inner.problem = Some(problem);
            None
        }
    };
    Entry { fingerprint, inner, offers, is_out_of_order }
}
