//! Scripts become tools and connectors: found on disk, compared with what is there,
//! loaded aside, and taken over.
//!
//! Each is loaded by a task of its own with a time limit of its own (`limits.load`).
//! One that takes long holds up neither the others nor the configuration, and a newer
//! version of it ends the load of the older. Only the one future that has
//! [`LoadJobs`] starts loads and takes their results.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use moonlark_core::{Place, Problem, Result, Tool};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::{Project, ReloadProblem, Report, State};
use crate::agents;
use crate::config_file::Loaded;
use crate::connectors;
use crate::extensions;
use crate::scripts::{self, Entries, Entry, Found, Kind, shown};

/// How long what is loaded waits for the rest before it is published without.
const PUBLISH_PAUSE: Duration = Duration::from_millis(250);
/// How long a knowledge base without configured sources may take to say what is in it.
const LEFT_SOURCES_TIMEOUT: Duration = Duration::from_secs(2);
/// Callers wait for the scripts of a server that starts for at most this many times
/// `limits.load`.
const MAX_LOAD_WAITS: u32 = 2;

/// What a script is known by from one look at the disk to the next.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ScriptKey {
    /// A tool or an extension, by its file.
    Script(PathBuf),
    /// A connector, by its name.
    Connector(String),
    /// A prompt, by its file.
    Agent(PathBuf),
}

/// The loads under way.
#[derive(Default)]
pub(super) struct LoadJobs {
    running: BTreeMap<ScriptKey, LoadJob>,
    tasks: JoinSet<FinishedLoad>,
    started: u64,
}

/// One load, and what it was started for.
struct LoadJob {
    number: u64,
    version: ScriptVersion,
    /// The disk was looked at while it ran: a file that it had read may be another now.
    is_outdated: bool,
    task: AbortHandle,
}

/// What has to be the same for two loads to be the same.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ScriptVersion {
    fingerprint: String,
    text: String,
}

struct FinishedLoad {
    key: ScriptKey,
    number: u64,
    found: Found,
    fingerprint: String,
    loaded: LoadedScript,
}

enum LoadedScript {
    Script(Entry),
    Connector(connectors::Entry),
    Agent(agents::Entry),
}

/// What a look at the disk found.
struct DiskLook {
    found: Vec<FoundScript>,
    problems: Vec<Problem>,
}

/// What is loaded so far.
struct KnownScripts {
    scripts: Entries,
    connectors: connectors::Entries,
    agents: agents::Entries,
}

struct FoundScript {
    key: ScriptKey,
    found: Found,
    /// None if it is what was loaded last.
    changed: Option<ScriptVersion>,
}

impl Project {
    /// Load all scripts for the first time, and give up waiting for those that take too
    /// long.
    pub(crate) async fn finish_loading(&self) {
        let load = self.current().config.limits.load.duration();
        // What is wrong is in the catalog.
        let mut tell = |_| {};
        let _ = tokio::time::timeout(load * MAX_LOAD_WAITS, self.load_scripts(&mut tell)).await;
        self.end_first_load();
    }

    /// Load scripts again whenever somebody says that the disk has changed, for ever.
    pub(crate) async fn keep_loading(&self, mut tell: impl FnMut(Report) + Send) {
        loop {
            self.look_again.notified().await;
            self.load_scripts(&mut tell).await;
        }
    }

    /// Say that the disk may have changed.
    pub(crate) fn look_again(&self) {
        self.look_again.notify_one();
    }

    /// Load what is new or changed on disk, until there is nothing left to load.
    pub(crate) async fn load_scripts(&self, tell: &mut (dyn FnMut(Report) + Send)) {
        let mut jobs = self.jobs.lock().await;
        let first_until =
            Instant::now() + self.current().config.limits.load.duration() * MAX_LOAD_WAITS;
        loop {
            let mut report = self.start_loads(&mut jobs).await;
            let mut outdated = false;
            let mut publish_at = Instant::now() + PUBLISH_PAUSE;
            let again = loop {
                if jobs.running.is_empty() {
                    break outdated;
                }
                let is_first = self.state.lock().loading;
                tokio::select! {
                    () = self.look_again.notified() => break true,
                    finished = jobs.tasks.join_next() => {
                        match finished {
                            Some(Ok(finished)) => {
                                outdated |= self.take_over(&mut jobs, finished, &mut report);
                            }
                            // What was aborted has no result.
                            Some(Err(_)) => {}
                            None => jobs.running.clear(),
                        }
                    }
                    () = tokio::time::sleep_until(publish_at) => {
                        self.compose(&mut self.state.lock());
                        if !report.is_empty() {
                            tell(std::mem::take(&mut report));
                        }
                        publish_at = Instant::now() + PUBLISH_PAUSE;
                    }
                    () = tokio::time::sleep_until(first_until), if is_first => {
                        self.end_first_load();
                    }
                }
            };
            if !again {
                // A file that somebody else has locked is given up.
                let looking = self.knowledge.look_for_left_sources();
                let _ = tokio::time::timeout(LEFT_SOURCES_TIMEOUT, looking).await;
                let mut state = self.state.lock();
                state.loading = false;
                self.compose(&mut state);
            }
            report.changes.sort();
            if !report.is_empty() {
                tell(report);
            }
            if !again {
                return;
            }
        }
    }

    /// Nobody waits for scripts from now on.
    fn end_first_load(&self) {
        let mut state = self.state.lock();
        if state.loading {
            state.loading = false;
            self.compose(&mut state);
        }
    }

    /// List the scripts there are, without loading any.
    pub(crate) fn find_scripts(&self) {
        let loaded = self.current();
        let (found, problems) = find_all(&loaded);
        let mut state = self.state.lock();
        state.found = found.into_iter().map(|(key, found)| (key, found.file)).collect();
        state.folder_problems = problems;
    }

    /// Look at the disk, and start to load what has changed there.
    async fn start_loads(&self, jobs: &mut LoadJobs) -> Report {
        let (loaded, known) = {
            let state = self.state.lock();
            let known = KnownScripts {
                scripts: state.scripts.clone(),
                connectors: state.connectors.clone(),
                agents: state.agents.clone(),
            };
            (state.loaded.clone(), known)
        };
        let config = loaded.clone();
        // Disks may be slow, and folders large.
        let looking = tokio::task::spawn_blocking(move || look_at_disk(&config, &known));
        let Ok(look) = looking.await else { return Report::default() };
        let mut report = Report::default();
        let mut state = self.state.lock();
        state.found = look.found.iter().map(|it| (it.key.clone(), it.found.file.clone())).collect();
        state.folder_problems = look.problems;
        forget_removed(&mut state, &mut report);
        drop(state);
        let mut left = std::mem::take(&mut jobs.running);
        for FoundScript { key, found, changed } in look.found {
            let running = left.remove(&key);
            match (running, changed) {
                (Some(mut job), Some(version)) if job.version == version => {
                    job.is_outdated = true;
                    jobs.running.insert(key, job);
                }
                (running, Some(version)) => {
                    running.inspect(|job| job.task.abort());
                    self.start_load(jobs, key, found, version, loaded.clone());
                }
                // It was changed back.
                (running, None) => drop(running.inspect(|job| job.task.abort())),
            }
        }
        left.values().for_each(|job| job.task.abort());
        report
    }

    fn start_load(
        &self,
        jobs: &mut LoadJobs,
        key: ScriptKey,
        found: Found,
        version: ScriptVersion,
        loaded: Arc<Loaded>,
    ) {
        jobs.started += 1;
        let number = jobs.started;
        let loading = self.load_one(found.clone(), version.fingerprint.clone(), loaded);
        let (its_key, fingerprint) = (key.clone(), version.fingerprint.clone());
        let task = jobs.tasks.spawn(async move {
            let loaded = loading.await;
            FinishedLoad { key: its_key, number, found, fingerprint, loaded }
        });
        jobs.running.insert(key, LoadJob { number, version, is_outdated: false, task });
    }

    /// Take the result of a load over, if it is still wanted. Whether the disk has to be
    /// looked at again.
    fn take_over(&self, jobs: &mut LoadJobs, load: FinishedLoad, report: &mut Report) -> bool {
        if jobs.running.get(&load.key).is_none_or(|job| job.number != load.number) {
            return false;
        }
        let job = jobs.running.remove(&load.key);
        let mut state = self.state.lock();
        // What it may do was decided by a configuration that no longer holds.
        if scripts::fingerprint(&load.found, &state.loaded.config) != load.fingerprint {
            return true;
        }
        let (was_there, works, problem) = match (load.key, load.loaded) {
            (ScriptKey::Script(path), LoadedScript::Script(mut entry)) => {
                let old = state.scripts.get(&path);
                let was_there = old.is_some();
                // One that loads and misses a value is there, and says so when it is called.
                let is_broken = entry.problem.is_some() && entry.tools.is_empty();
                if let Some(old) = old.filter(|_| is_broken) {
                    // The last good version stays.
                    entry.tools.clone_from(&old.tools);
                }
                let works = is_broken && !entry.tools.is_empty();
                let problem = entry.problem.clone();
                state.scripts.insert(path, Arc::new(entry));
                (was_there, works, problem)
            }
            (ScriptKey::Agent(path), LoadedScript::Agent(entry)) => {
                let old = state.agents.get(&path).cloned();
                let entry = entry.after(old.as_deref());
                let (works, problem) = (entry.works(), entry.problem().cloned());
                state.agents.insert(path, Arc::new(entry));
                (old.is_some(), works, problem)
            }
            (ScriptKey::Connector(name), LoadedScript::Connector(entry)) => {
                let old = state.connectors.get(&name).cloned();
                let entry = entry.after(old.as_deref());
                let (works, problem) = (entry.works(), entry.problem().cloned());
                state.connectors.insert(name, Arc::new(entry));
                (old.is_some(), works, problem)
            }
            _ => return false,
        };
        match problem {
            Some(problem) => {
                report.problems.push(ReloadProblem { problem, last_good_stays: works });
            }
            None if was_there => report.changes.push(format!("{} changed", load.found.file)),
            None => report.changes.push(format!("{} added", load.found.file)),
        }
        job.is_some_and(|job| job.is_outdated)
    }

    /// Load one script. A panic on the way is a Problem of that script.
    fn load_one(
        &self,
        found: Found,
        fingerprint: String,
        loaded: Arc<Loaded>,
    ) -> impl Future<Output = LoadedScript> + Send + 'static {
        let (luau, starlark) = (self.luau.clone(), self.starlark.clone());
        let gateway = self.gateway.clone();
        let turns = match found.kind {
            Kind::Tool | Kind::Connector | Kind::Agent => self.lua_turns.clone(),
            Kind::Extension(_) => self.starlark_turns.clone(),
        };
        async move {
            let print = fingerprint.clone();
            let load = async {
                match &found.kind {
                    Kind::Connector => {
                        let entry =
                            connectors::load_one(&found, print, &loaded, &luau, &gateway).await;
                        LoadedScript::Connector(entry)
                    }
                    Kind::Agent => {
                        let entry = agents::load_one(&found, print, &loaded, &luau, &gateway).await;
                        LoadedScript::Agent(entry)
                    }
                    Kind::Tool => {
                        let entry = load_tool(&found, print, &loaded, &luau, &gateway).await;
                        LoadedScript::Script(entry)
                    }
                    Kind::Extension(folder) => {
                        let entry =
                            load_extension(&found, folder, print, &loaded, &starlark, &gateway);
                        LoadedScript::Script(entry.await)
                    }
                }
            };
            let loading = AssertUnwindSafe(turns.take(load)).catch_unwind();
            loading.await.unwrap_or_else(|_| failed(&found, fingerprint, &loaded))
        }
    }
}

/// Whoever wrote the script can do nothing about it.
fn failed(found: &Found, fingerprint: String, loaded: &Loaded) -> LoadedScript {
    let problem = Problem::internal("the script could not be loaded")
        .at(Place::file(found.file.clone()))
        .hint("this is a defect of Moonlark: please report it with the server's log");
    match &found.kind {
        Kind::Connector => {
            LoadedScript::Connector(connectors::Entry::broken(found, fingerprint, loaded, problem))
        }
        Kind::Agent => {
            LoadedScript::Agent(agents::Entry::broken(found, fingerprint, loaded, problem))
        }
        Kind::Tool | Kind::Extension(_) => {
            LoadedScript::Script(Entry { fingerprint, problem: Some(problem), ..Entry::default() })
        }
    }
}

async fn load_tool(
    found: &Found,
    fingerprint: String,
    loaded: &Loaded,
    luau: &moonlark_luau::Luau,
    gateway: &moonlark_core::Gateway,
) -> Entry {
    let folder = scripts::folder(found, loaded);
    let mut entry = Entry { fingerprint, folder: folder.path.clone(), ..Entry::default() };
    let outcome = match scripts::prepare(found, loaded) {
        Ok(script) => {
            let (tool, texts) = luau.load(script, gateway).await;
            entry.texts = texts;
            tool.map(|tool| vec![tool])
        }
        Err(problem) => {
            let text = scripts::files(found, &folder)(&folder.main).unwrap_or_default();
            entry.texts.insert(folder.main, text);
            Err(problem)
        }
    };
    with_outcome(entry, outcome, found, loaded)
}

async fn load_extension(
    found: &Found,
    folder: &extensions::Folder,
    fingerprint: String,
    loaded: &Loaded,
    starlark: &moonlark_starlark::Starlark,
    gateway: &moonlark_core::Gateway,
) -> Entry {
    let mut entry = Entry { fingerprint, folder: folder.path.clone(), ..Entry::default() };
    let outcome = match extensions::prepare(found, folder, &loaded.config) {
        Ok(extension) => {
            let (extension, texts) = starlark.load(extension, gateway).await;
            entry.texts = texts;
            extension.map(|extension| {
                entry.library = extension.library;
                extension.tools
            })
        }
        Err(problem) => {
            let text = extensions::files(folder)(&folder.main).unwrap_or_default();
            entry.texts.insert(folder.main.clone(), text);
            Err(problem)
        }
    };
    with_outcome(entry, outcome, found, loaded)
}

fn with_outcome(
    mut entry: Entry,
    outcome: Result<Vec<Tool>>,
    found: &Found,
    loaded: &Loaded,
) -> Entry {
    match outcome {
        Ok(tools) => {
            let expose = scripts::expose(found, &loaded.config);
            let outage = scripts::outage(found, &loaded.config).first().cloned();
            let exposed = |mut tool: Tool| {
                tool.expose = expose;
                Arc::new(match &outage {
                    Some(problem) => tool.out_of_order(problem),
                    None => tool,
                })
            };
            entry.problem = outage.clone();
            entry.tools = tools.into_iter().map(exposed).collect();
        }
        Err(problem) => entry.problem = Some(problem),
    }
    entry
}

fn forget_removed(state: &mut State, report: &mut Report) {
    let State { found, scripts, connectors, agents, loaded, .. } = state;
    let there: BTreeSet<&ScriptKey> = found.iter().map(|(key, _)| key).collect();
    scripts.retain(|path, _| {
        let stays = there.contains(&ScriptKey::Script(path.clone()));
        if !stays {
            report.changes.push(format!("{} removed", shown(&loaded.root, path)));
        }
        stays
    });
    agents.retain(|path, _| {
        let stays = there.contains(&ScriptKey::Agent(path.clone()));
        if !stays {
            report.changes.push(format!("{} removed", shown(&loaded.root, path)));
        }
        stays
    });
    connectors.retain(|name, entry| {
        let stays = there.contains(&ScriptKey::Connector(name.clone()));
        if !stays {
            report.changes.push(format!("{} removed", entry.file()));
        }
        stays
    });
}

fn find_all(loaded: &Loaded) -> (Vec<(ScriptKey, Found)>, Vec<Problem>) {
    let (found, mut problems) = scripts::find(loaded);
    let (more, more_problems) = connectors::find(loaded);
    problems.extend(more_problems);
    let (prompts, prompt_problems) = agents::find(loaded);
    problems.extend(prompt_problems);
    let scripts = found.into_iter().map(|it| (ScriptKey::Script(it.path.clone()), it));
    let connectors = more.into_iter().map(|(name, it)| (ScriptKey::Connector(name), it));
    let prompts = prompts.into_iter().map(|it| (ScriptKey::Agent(it.path.clone()), it));
    (scripts.chain(connectors).chain(prompts).collect(), problems)
}

fn look_at_disk(loaded: &Loaded, known: &KnownScripts) -> DiskLook {
    let (found, problems) = find_all(loaded);
    let look = |(key, found): (ScriptKey, Found)| {
        let fingerprint = scripts::fingerprint(&found, &loaded.config);
        let is_same = match &key {
            ScriptKey::Script(path) => {
                let old = known.scripts.get(path);
                old.is_some_and(|old| is_same(old, &found, &fingerprint, loaded))
            }
            ScriptKey::Agent(path) => {
                let old = known.agents.get(path);
                old.is_some_and(|old| agents::is_same(old, &found, &fingerprint, loaded))
            }
            ScriptKey::Connector(name) => known
                .connectors
                .get(name)
                .is_some_and(|old| connectors::is_same(old, &found, &fingerprint, loaded)),
        };
        let changed = (!is_same).then(|| {
            let text = main_text(&found, loaded);
            ScriptVersion { fingerprint, text }
        });
        FoundScript { key, found, changed }
    };
    DiskLook { found: found.into_iter().map(look).collect(), problems }
}

/// Whether it has not changed since it was loaded.
fn is_same(old: &Entry, found: &Found, fingerprint: &str, loaded: &Loaded) -> bool {
    if old.fingerprint != fingerprint || old.texts.is_empty() {
        return false;
    }
    let files = match &found.kind {
        Kind::Extension(folder) => extensions::files(folder),
        _ => scripts::files(found, &scripts::folder(found, loaded)),
    };
    old.texts.iter().all(|(file, was)| files(file).unwrap_or_default() == *was)
}

fn main_text(found: &Found, loaded: &Loaded) -> String {
    let text = match &found.kind {
        Kind::Extension(folder) => extensions::files(folder)(&folder.main),
        _ => {
            let folder = scripts::folder(found, loaded);
            scripts::files(found, &folder)(&folder.main)
        }
    };
    text.unwrap_or_default()
}

/// How many scripts consist of each file, by its path in its folder.
pub(super) struct LoadedFiles<'a>(HashMap<&'a str, usize>);

impl<'a> LoadedFiles<'a> {
    pub(super) fn of(scripts: &'a Entries) -> Self {
        let mut counts = HashMap::new();
        if scripts.values().any(|entry| entry.library) {
            for file in scripts.values().flat_map(|entry| entry.texts.keys()) {
                *counts.entry(file.as_str()).or_default() += 1;
            }
        }
        Self(counts)
    }

    /// A file that is no extension and that no extension loads is a mistake.
    pub(super) fn idle_problem(&self, path: &Path, file: &str, entry: &Entry) -> Option<Problem> {
        let name = path.strip_prefix(&entry.folder).ok().filter(|_| entry.library)?;
        let name = name.to_string_lossy();
        let by_itself = usize::from(entry.texts.contains_key(&*name));
        let used = self.0.get(&*name).is_some_and(|count| *count > by_itself);
        let problem = || {
            Problem::bad_script("the file defines no function describe_extension")
                .at(Place::file(file))
                .hint("define it, or begin the file's name with _ if others are to load it")
        };
        (!used).then(problem)
    }
}
