//! Scripts become tools and connectors: found on disk, compared with what is there,
//! loaded aside, and taken over.
//!
//! Each is loaded by a task of its own with a time limit of its own (`limits.load`).
//! One that takes long holds up neither the others nor the configuration, and a newer
//! version of it ends the load of the older. Only the one future that has
//! [`ScriptLoadJobs`] starts loads and takes their results.
//!
//! A configuration that was read is staged. It and the scripts that changed with it are
//! taken over together, so that rules and tools that belong together take effect in one
//! step. Loads that were under way before are not waited for.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use moonlark_core::{Problem, SourceLocation};
use moonlark_luau::ExpectedScripts;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Instant;

use super::{Project, ProjectState, ReloadProblem, ReloadReport};
use crate::connectors;
use crate::prompt_scripts;
use crate::saved_scripts;
use crate::scripts::{
    self, DiscoveredScript, ScriptEntries, ScriptEntry, ScriptKey, ScriptKind, ScriptLoadSettings,
};
use moonlark_config::config_file::LoadedConfig;

/// How long what is loaded waits for the rest before it is published without.
const PUBLISH_INTERVAL: Duration = Duration::from_millis(250);
/// How long a knowledge base without configured sources may take to say what is in it.
const LEFTOVER_SOURCES_TIMEOUT: Duration = Duration::from_secs(2);
/// Callers wait for the scripts of a server that starts for at most this many times
/// `limits.load`.
const LOAD_WAIT_FACTOR: u32 = 2;

/// The loads under way.
#[derive(Default)]
pub(super) struct ScriptLoadJobs {
    running: BTreeMap<ScriptKey, ScriptLoadJob>,
    tasks: JoinSet<FinishedScriptLoad>,
    started: u64,
    /// The configuration that the last look at the disk went by.
    scanned: Option<Arc<LoadedConfig>>,
    /// What that look found, until it is taken over.
    listing: Option<ScriptListing>,
    /// Results that take effect together with the staged configuration.
    held: Vec<FinishedScriptLoad>,
}

/// The scripts there are, in order, with their files, and what is wrong with the folders.
struct ScriptListing {
    found: Vec<(ScriptKey, String)>,
    problems: Vec<Problem>,
}

/// One load, and what it was started for.
struct ScriptLoadJob {
    number: u64,
    version: ScriptLoadVersion,
    /// The disk was looked at while it ran: a file that it had read may be another now.
    is_outdated: bool,
    /// The staged configuration waits for its result.
    is_awaited: bool,
    task: AbortHandle,
}

/// What has to be the same for two loads to be the same.
#[derive(Debug, Clone, PartialEq)]
struct ScriptLoadVersion {
    settings: ScriptLoadSettings,
    text: String,
}

struct FinishedScriptLoad {
    key: ScriptKey,
    number: u64,
    entry: ScriptEntry,
}

/// What a look at the disk found.
struct DiskScan {
    found: Vec<ScannedScript>,
    problems: Vec<Problem>,
}

struct ScannedScript {
    key: ScriptKey,
    found: DiscoveredScript,
    /// None if it is what was loaded last.
    changed: Option<ScriptLoadVersion>,
}

impl ScannedScript {
    fn is_changed_extension(&self) -> bool {
        self.changed.is_some() && matches!(self.found.kind, ScriptKind::Extension(_))
    }
}

impl Project {
    /// Load all scripts for the first time, and give up waiting for those that take too
    /// long.
    pub(crate) async fn load_scripts_initially(&self) {
        let load = self.current_config().config.limits.load.to_duration();
        // What is wrong is in the catalog.
        let mut tell = |_| {};
        let _ = tokio::time::timeout(load * LOAD_WAIT_FACTOR, self.load_scripts(&mut tell)).await;
        self.end_first_load();
    }

    /// Load scripts again whenever somebody says that the disk has changed, for ever.
    pub(crate) async fn load_scripts_on_change(&self, mut tell: impl FnMut(ReloadReport) + Send) {
        self.saved_scripts.follow_changes(self.look_again.clone());
        loop {
            self.look_again.notified().await;
            self.load_scripts(&mut tell).await;
        }
    }

    /// Say that the disk may have changed.
    pub(crate) fn request_disk_scan(&self) {
        self.look_again.notify_one();
    }

    /// Load what is new or changed on disk, until there is nothing left to load.
    pub(crate) async fn load_scripts(&self, tell: &mut (dyn FnMut(ReloadReport) + Send)) {
        let mut jobs = self.jobs.lock().await;
        let first_until = Instant::now()
            + self.current_config().config.limits.load.to_duration() * LOAD_WAIT_FACTOR;
        loop {
            self.start_loads(&mut jobs).await;
            let mut report = ReloadReport::default();
            let mut outdated = self.take_over_when_ready(&mut jobs, &mut report);
            let mut publish_at = Instant::now() + PUBLISH_INTERVAL;
            let again = loop {
                if jobs.running.is_empty() {
                    break outdated || jobs.has_new_config_to_scan(&self.state.lock());
                }
                let (is_first, staged_until) = {
                    let state = self.state.lock();
                    let load = state.next_config().config.limits.load.to_duration();
                    (state.loading, state.staged.as_ref().map(|staged| staged.since + load))
                };
                tokio::select! {
                    () = self.look_again.notified() => break true,
                    finished = jobs.tasks.join_next() => {
                        match finished {
                            Some(Ok(finished)) => {
                                jobs.hold_result(finished);
                                outdated |= self.take_over_when_ready(&mut jobs, &mut report);
                            }
                            // What was aborted has no result.
                            Some(Err(_)) => {}
                            None => jobs.running.clear(),
                        }
                    }
                    // A script that keeps changing holds no rule up for longer.
                    () = tokio::time::sleep_until(staged_until.unwrap_or(publish_at)),
                        if staged_until.is_some() => {
                        if jobs.has_new_config_to_scan(&self.state.lock()) {
                            break true;
                        }
                        jobs.running.values_mut().for_each(|job| job.is_awaited = false);
                        outdated |= self.take_over_when_ready(&mut jobs, &mut report);
                    }
                    () = tokio::time::sleep_until(publish_at) => {
                        self.compose_catalog(&mut self.state.lock());
                        if !report.is_empty() {
                            tell(std::mem::take(&mut report));
                        }
                        publish_at = Instant::now() + PUBLISH_INTERVAL;
                    }
                    () = tokio::time::sleep_until(first_until), if is_first => {
                        self.end_first_load();
                    }
                }
            };
            if !again {
                // A file that somebody else has locked is given up.
                let looking = self.knowledge.find_leftover_sources();
                let _ = tokio::time::timeout(LEFTOVER_SOURCES_TIMEOUT, looking).await;
                let mut state = self.state.lock();
                state.loading = false;
                self.compose_catalog(&mut state);
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
            self.compose_catalog(&mut state);
        }
    }

    /// Start in the background what the first load and the first run would wait for, as far
    /// as the project needs it.
    pub(crate) fn prepare_engines(&self) {
        self.list_scripts();
        let (loaded, extensions, scripts) = {
            let state = self.state.lock();
            let extensions = state.found.iter().filter(|(key, _)| key.is_starlark()).count();
            (state.loaded.clone(), extensions, state.found.len() - extensions)
        };
        if extensions > 0 {
            self.starlark.prepare_worker();
        }
        if scripts > 0 {
            self.luau.prepare_for(ExpectedScripts::Tools);
        }
        // What others offer is for scripts of agents.
        if !loaded.config.mcp_servers.is_empty() || !loaded.config.apis.is_empty() {
            self.luau.prepare_for(ExpectedScripts::Agents);
        }
    }

    /// List the scripts there are, without loading any.
    pub(crate) fn list_scripts(&self) {
        let loaded = self.current_config();
        let (found, problems) = find_all_scripts(&loaded);
        let mut state = self.state.lock();
        state.found = found.into_iter().map(|(key, found)| (key, found.file)).collect();
        state.folder_problems = problems;
    }

    /// Look at the disk, and start to load what has changed there.
    async fn start_loads(&self, jobs: &mut ScriptLoadJobs) {
        let (loaded, known) = {
            let state = self.state.lock();
            (state.next_config().clone(), state.scripts.clone())
        };
        let config = loaded.clone();
        // Disks may be slow, and folders large.
        let looking = tokio::task::spawn_blocking(move || scan_disk(&config, &known));
        jobs.scanned = Some(loaded.clone());
        let Ok(look) = looking.await else { return };
        let found = look.found.iter().map(|it| (it.key.clone(), it.found.file.clone())).collect();
        jobs.listing = Some(ScriptListing { found, problems: look.problems });
        let is_awaited = *self.current_config() != *loaded;
        let mut left = std::mem::take(&mut jobs.running);
        let extensions = look.found.iter().filter(|it| it.is_changed_extension());
        self.starlark_turns.widen_for(extensions.count());
        for ScannedScript { key, found, changed } in look.found {
            let running = left.remove(&key);
            match (running, changed) {
                (Some(mut job), Some(version)) if job.version == version => {
                    job.is_outdated = true;
                    jobs.running.insert(key, job);
                }
                (running, Some(version)) => {
                    running.inspect(|job| job.task.abort());
                    self.start_load(jobs, key, found, version, loaded.clone(), is_awaited);
                }
                // It was changed back.
                (running, None) => drop(running.inspect(|job| job.task.abort())),
            }
        }
        left.values().for_each(|job| job.task.abort());
    }

    fn start_load(
        &self,
        jobs: &mut ScriptLoadJobs,
        key: ScriptKey,
        found: DiscoveredScript,
        version: ScriptLoadVersion,
        loaded: Arc<LoadedConfig>,
        is_awaited: bool,
    ) {
        jobs.started += 1;
        let number = jobs.started;
        // It is large, and would be copied several times on its way into a task.
        let loading = Box::pin(self.load_script(found, version.settings.clone(), loaded));
        let its_key = key.clone();
        let task = jobs.tasks.spawn(async move {
            FinishedScriptLoad { key: its_key, number, entry: loading.await }
        });
        jobs.running
            .insert(key, ScriptLoadJob { number, version, is_outdated: false, is_awaited, task });
    }

    /// Take over what was found and loaded, and the staged configuration with it, unless
    /// that still waits for a script. Whether the disk has to be looked at again.
    fn take_over_when_ready(&self, jobs: &mut ScriptLoadJobs, report: &mut ReloadReport) -> bool {
        let mut state = self.state.lock();
        let has_new_config = state.staged.is_some();
        if has_new_config && jobs.running.values().any(|job| job.is_awaited) {
            return false;
        }
        // Which scripts go with it is not known yet.
        if jobs.has_new_config_to_scan(&state) {
            return false;
        }
        self.put_config_in_force(&mut state, report);
        if let Some(listing) = jobs.listing.take() {
            (state.found, state.folder_problems) = (listing.found, listing.problems);
            forget_removed_scripts(&mut state, report);
        }
        let mut outdated = false;
        for load in std::mem::take(&mut jobs.held) {
            outdated |= take_over_load(&mut state, jobs, load, report);
        }
        if has_new_config {
            self.compose_catalog(&mut state);
        }
        outdated
    }
}

/// Take the result of a load over, if it is still wanted. Whether the disk has to be
/// looked at again.
fn take_over_load(
    state: &mut ProjectState,
    jobs: &mut ScriptLoadJobs,
    load: FinishedScriptLoad,
    report: &mut ReloadReport,
) -> bool {
    if jobs.running.get(&load.key).is_none_or(|job| job.number != load.number) {
        return false;
    }
    let job = jobs.running.remove(&load.key);
    let FinishedScriptLoad { key, mut entry, .. } = load;
    // What it may do was decided by a configuration that no longer holds.
    if ScriptLoadSettings::from_config(&entry.found, &state.loaded.config) != entry.settings {
        return true;
    }
    let old = state.scripts.get(&key);
    let was_there = old.is_some();
    let last_good_stays = entry.keep_last_good(old.map(|old| &**old));
    let file = &entry.found.file;
    match entry.problem.clone() {
        Some(problem) => report.problems.push(ReloadProblem { problem, last_good_stays }),
        None if was_there => report.changes.push(format!("{file} changed")),
        None => report.changes.push(format!("{file} added")),
    }
    state.scripts.insert(key, Arc::new(entry));
    job.is_some_and(|job| job.is_outdated)
}

impl ScriptLoadJobs {
    /// Whether a configuration was staged since the disk was looked at last.
    fn has_new_config_to_scan(&self, state: &ProjectState) -> bool {
        let scanned = self.scanned.as_ref();
        let is_scanned = |loaded| scanned.is_some_and(|scanned| Arc::ptr_eq(scanned, loaded));
        state.staged.as_ref().is_some_and(|staged| !is_scanned(&staged.loaded))
    }

    /// Keep a result until it is taken over; nothing waits for it any more.
    fn hold_result(&mut self, load: FinishedScriptLoad) {
        if let Some(job) = self.running.get_mut(&load.key).filter(|it| it.number == load.number) {
            job.is_awaited = false;
            self.held.push(load);
        }
    }
}

fn forget_removed_scripts(state: &mut ProjectState, report: &mut ReloadReport) {
    let there: BTreeSet<&ScriptKey> = state.found.iter().map(|(key, _)| key).collect();
    state.scripts.retain(|key, entry| {
        let stays = there.contains(key);
        if !stays {
            report.changes.push(format!("{} removed", entry.found.file));
        }
        stays
    });
}

fn find_all_scripts(loaded: &LoadedConfig) -> (Vec<(ScriptKey, DiscoveredScript)>, Vec<Problem>) {
    let (found, mut problems) = scripts::find_tools_and_extensions(loaded);
    let (more, more_problems) = connectors::find_connector_scripts(loaded);
    problems.extend(more_problems);
    let (prompts, prompt_problems) = prompt_scripts::find_prompt_scripts(loaded);
    problems.extend(prompt_problems);
    let (saved, saved_problems) = saved_scripts::find_saved_scripts(loaded);
    problems.extend(saved_problems);
    let saved = saved.into_iter().map(|it| (ScriptKey::Saved(it.path.clone()), it));
    let scripts = found.into_iter().map(|it| (ScriptKey::Script(it.path.clone()), it));
    let connectors = more.into_iter().map(|(name, it)| (ScriptKey::Connector(name), it));
    let prompts = prompts.into_iter().map(|it| (ScriptKey::Agent(it.path.clone()), it));
    (scripts.chain(connectors).chain(prompts).chain(saved).collect(), problems)
}

fn scan_disk(loaded: &LoadedConfig, known: &ScriptEntries) -> DiskScan {
    let (found, problems) = find_all_scripts(loaded);
    let look = |(key, found): (ScriptKey, DiscoveredScript)| {
        let settings = ScriptLoadSettings::from_config(&found, &loaded.config);
        let is_same =
            known.get(&key).is_some_and(|old| old.is_unchanged(&found, &settings, loaded));
        let changed = (!is_same).then(|| {
            let folder = scripts::script_folder(&found, loaded);
            let text = scripts::script_files(&found, &folder)(&folder.main).unwrap_or_default();
            ScriptLoadVersion { settings, text }
        });
        ScannedScript { key, found, changed }
    };
    DiskScan { found: found.into_iter().map(look).collect(), problems }
}

/// How many scripts consist of each file, by its path in its folder.
pub(super) struct ScriptFileUseCounts<'a>(HashMap<&'a str, usize>);

impl<'a> ScriptFileUseCounts<'a> {
    pub(super) fn count_uses(scripts: &'a ScriptEntries) -> Self {
        let mut counts = HashMap::new();
        if scripts.values().any(|entry| entry.is_library()) {
            for file in scripts.values().flat_map(|entry| entry.texts.keys()) {
                *counts.entry(file.as_str()).or_default() += 1;
            }
        }
        Self(counts)
    }

    /// A file that is no extension and that no extension loads is a mistake.
    pub(super) fn unused_library_problem(&self, entry: &ScriptEntry) -> Option<Problem> {
        let found = &entry.found;
        let name = found.path.strip_prefix(&entry.folder).ok().filter(|_| entry.is_library())?;
        let name = name.to_string_lossy();
        let by_itself = usize::from(entry.texts.contains_key(&*name));
        let used = self.0.get(&*name).is_some_and(|count| *count > by_itself);
        let problem = || {
            Problem::bad_script("the file defines no function describe_extension")
                .at_location(SourceLocation::in_file(found.file.clone()))
                .with_hint("define it, or begin the file's name with _ if others are to load it")
        };
        (!used).then(problem)
    }
}
