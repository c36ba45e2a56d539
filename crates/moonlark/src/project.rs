//! A project: its configuration, its scripts, and the gateway that serves them.
//!
//! The only file that knows every crate. Loading and reloading are the same
//! walk: look at what is on disk, load what is new or changed, put the next
//! catalog together, publish it. What fails to load keeps its last good version.
//!
//! Nothing waits for a script: the configuration and its rules hold as soon as they
//! are read, and scripts are loaded beside everything else ([`script_loading`]). The
//! state is locked to look at it and to swap a part, never while something loads.

mod effective_config;
mod load_turns;
mod script_loading;
mod watch_list;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use moonlark_core::{Caller, Catalog, Gateway, Module, Place, Problem, Result, Tool};
use moonlark_luau::Luau;
use moonlark_server::{Auth, SessionVault};
use moonlark_starlark::Starlark;
use moonlark_upstream::mcp::ClosePace;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

use crate::agents;
use crate::apis::Apis;
use crate::builtin;
use crate::config::{Config, McpServer};
use crate::config_file::{self, Loaded, RejectedConfig, ValuesNeeded};
use crate::connectors;
use crate::journal::{self, Journaling};
use crate::knowledge::KnowledgeBase;
use crate::learned::{self, Keeping};
use crate::policy;
use crate::scripts::{Entries, shown};
use crate::source_names;
use crate::source_start::SourceStart;
use crate::state_folder::{create_state_folder, prepare_state_folder, remove_leftovers};
use crate::telemetry::Telemetry;
use crate::upstreams::Upstreams;
use crate::who;

use effective_config::read_config;
use load_turns::LoadTurns;
use script_loading::{LoadJobs, LoadedFiles, ScriptKey};

pub(crate) use watch_list::WatchList;

pub struct Project {
    pub gateway: Gateway,
    /// `--config`, if it was given.
    explicit: Option<PathBuf>,
    cwd: PathBuf,
    modules: Arc<Vec<Module>>,
    pub(crate) luau: Luau,
    pub(crate) starlark: Starlark,
    pub(crate) upstreams: Upstreams,
    pub(crate) apis: Apis,
    pub(crate) knowledge: KnowledgeBase,
    journaling: Journaling,
    telemetry: Telemetry,
    /// Who may call over HTTP.
    pub(crate) auth: Arc<Auth>,
    /// From the command line, which comes before the file.
    more: More,
    /// In place of `.moonlark/` where there is no project.
    passing_state: Option<tempfile::TempDir>,
    state: Mutex<State>,
    /// Loads under way; whoever has it sees to them.
    jobs: tokio::sync::Mutex<LoadJobs>,
    session_vault: OnceLock<Arc<SessionVault>>,
    /// Callers of a server that starts wait until the documents that are files are read.
    awaits_documents: AtomicBool,
    /// Something may have changed on disk.
    look_again: Notify,
    lua_turns: Arc<LoadTurns>,
    starlark_turns: Arc<LoadTurns>,
}

struct State {
    loaded: Arc<Loaded>,
    /// Why the newest configuration is not in use.
    config_problems: Vec<Problem>,
    /// The text that has these problems, so that each version is reported once.
    broken_config: Option<Vec<u8>>,
    /// Scripts are being loaded for the first time.
    loading: bool,
    /// What the last look at the disk found, in order.
    found: Vec<(ScriptKey, String)>,
    /// What is wrong with the folders of scripts.
    folder_problems: Vec<Problem>,
    scripts: Entries,
    connectors: connectors::Entries,
    agents: agents::Entries,
    execute: Option<builtin::Execute>,
    /// Made once; only what `search` says of itself changes with the sources.
    builtin: Vec<Arc<Tool>>,
    /// Of Moonlark and of all scripts, in order.
    tools: Vec<Arc<Tool>>,
    /// What is wrong with the scripts and the configuration.
    problems: Vec<Problem>,
}

/// Sources from the command line, which come before those of the file, and what the
/// command makes of the project.
#[derive(Debug, Default, Clone)]
pub struct More {
    pub servers: BTreeMap<String, McpServer>,
    /// Documents of APIs, by the names they get. Files are seen from the working
    /// directory.
    pub specs: BTreeMap<String, String>,
    /// The environment variables that hold their secrets.
    pub logins: BTreeMap<String, String>,
    /// Whether the values of variables have to be there.
    pub values_needed: ValuesNeeded,
    /// What becomes of what there is to remember where there is no project.
    pub state_kept: StateKept,
}

/// Where a folder that is no project keeps what Moonlark remembers.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum StateKept {
    /// Nowhere: a command that is done in a moment leaves nothing behind.
    #[default]
    UntilTheEnd,
    /// In the folder, which is the project of a server from then on.
    InFolder,
}

/// What a reload did, in words for the log.
#[derive(Debug, Default)]
pub struct Report {
    pub changes: Vec<String>,
    pub problems: Vec<ReloadProblem>,
}

/// Something that was not taken over.
#[derive(Debug)]
pub struct ReloadProblem {
    pub problem: Problem,
    /// An earlier version works, and stays in use.
    pub last_good_stays: bool,
}

impl Report {
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.problems.is_empty()
    }

    fn add(&mut self, other: Report) {
        self.changes.extend(other.changes);
        self.problems.extend(other.problems);
    }
}

impl Project {
    /// Read the configuration and load everything it leads to.
    pub async fn open(explicit: Option<&Path>, cwd: &Path) -> Result<Project, RejectedConfig> {
        Self::open_with(explicit, cwd, More::default()).await
    }

    /// The same, with sources that are not in the file.
    pub async fn open_with(
        explicit: Option<&Path>,
        cwd: &Path,
        more: More,
    ) -> Result<Project, RejectedConfig> {
        let project = Self::prepare(explicit, cwd, more)?;
        project.finish_loading().await;
        Ok(project)
    }

    /// Read the configuration and put its rules in force. Scripts are not loaded yet:
    /// callers wait for them until they are.
    pub fn prepare(
        explicit: Option<&Path>,
        cwd: &Path,
        more: More,
    ) -> Result<Project, RejectedConfig> {
        let mut loaded = read_config(explicit, cwd, &more)?;
        let passing_state = match more.state_kept {
            StateKept::UntilTheEnd if !loaded.is_project() => tempfile::tempdir().ok(),
            _ => None,
        };
        if let Some(folder) = &passing_state {
            loaded.state = folder.path().to_owned();
        }
        let modules = Arc::new(moonlark_host::all());
        let luau = Luau::new(&modules)?;
        let starlark = Starlark::new(own_binary(), &modules);
        let empty = Catalog::new(modules.clone(), Vec::new(), &[], Vec::new());
        let gateway = Gateway::new(empty, loaded.config.limits.runs as usize);
        let knowledge = KnowledgeBase::default();
        let builtin = builtin::tools(&knowledge)?;
        let project = Project {
            auth: who::auth(&loaded, &gateway),
            gateway,
            explicit: explicit.map(Path::to_owned),
            cwd: cwd.to_owned(),
            modules,
            luau,
            starlark,
            upstreams: Upstreams::default(),
            apis: Apis::default(),
            knowledge,
            journaling: Journaling::default(),
            telemetry: Telemetry::default(),
            more,
            passing_state,
            state: Mutex::new(State {
                loaded: Arc::new(loaded),
                config_problems: Vec::new(),
                broken_config: None,
                loading: true,
                found: Vec::new(),
                folder_problems: Vec::new(),
                scripts: Entries::new(),
                connectors: connectors::Entries::new(),
                agents: agents::Entries::new(),
                execute: None,
                builtin,
                tools: Vec::new(),
                problems: Vec::new(),
            }),
            jobs: tokio::sync::Mutex::default(),
            session_vault: OnceLock::new(),
            awaits_documents: AtomicBool::new(false),
            look_again: Notify::new(),
            lua_turns: Arc::new(LoadTurns::for_lua()),
            starlark_turns: Arc::new(LoadTurns::for_starlark()),
        };
        let mut state = project.state.lock();
        project.gateway.set_places(state.loaded.config.limits.places());
        project.gateway.set_policy(policy::in_force(&state.loaded));
        project.gateway.set_identity(state.loaded.config.server.identity());
        learned::recall(&project.gateway, &state.loaded.state);
        project.compose(&mut state);
        drop(state);
        Ok(project)
    }

    /// Look again at what is on disk, and wait until all of it is in use.
    pub async fn reload(&self) -> Report {
        let mut report = self.reload_config();
        self.look_again.notify_one();
        self.load_scripts(&mut |more| report.add(more)).await;
        report
    }

    /// Read the configuration again and put it in force, without waiting for any script.
    pub(crate) fn reload_config(&self) -> Report {
        let mut report = Report::default();
        let read = read_config(self.explicit.as_deref(), &self.cwd, &self.more);
        let mut state = self.state.lock();
        match read {
            Ok(mut loaded) => {
                if let Some(folder) = &self.passing_state {
                    loaded.state = folder.path().to_owned();
                }
                self.gateway.set_places(loaded.config.limits.places());
                self.gateway.set_policy(policy::in_force(&loaded));
                self.gateway.set_identity(loaded.config.server.identity());
                self.journaling.configure(&loaded);
                self.auth.configure(loaded.config.server.auth.settings());
                if self.upstreams.is_connected() {
                    self.upstreams.apply(&loaded, &self.gateway);
                    self.apis.apply(&loaded, &self.upstreams.changed());
                }
                if *state.loaded != loaded || !state.config_problems.is_empty() {
                    let file = loaded.path.as_deref().map(|path| shown(&loaded.root, path));
                    let file = file.unwrap_or_else(|| config_file::FILE_NAME.to_owned());
                    report.changes.push(format!("{file} taken over"));
                    state.loaded = Arc::new(loaded);
                }
                state.config_problems.clear();
                state.broken_config = None;
            }
            Err(RejectedConfig { errors: problems, .. }) => {
                // Once for each version of the file, whatever else changes meanwhile.
                let text = self.config_text();
                if state.broken_config.as_ref() != Some(&text) || state.config_problems != problems
                {
                    let news = problems.iter().cloned();
                    report.problems.extend(
                        news.map(|problem| ReloadProblem { problem, last_good_stays: true }),
                    );
                }
                state.broken_config = Some(text);
                state.config_problems = problems;
            }
        }
        self.compose(&mut state);
        report
    }

    /// The configuration file as it is, if it can be read at all.
    fn config_text(&self) -> Vec<u8> {
        let env = |name: &str| std::env::var(name).ok();
        let file = config_file::in_effect(self.explicit.as_deref(), &self.cwd, &env);
        let file = file.filter(|file| file.is_file());
        file.and_then(|file| std::fs::read(file).ok()).unwrap_or_default()
    }

    /// Begin to connect to the upstream servers, and follow what they offer. Clients
    /// that ask meanwhile what there is wait, but not for long.
    pub async fn connect(self: &Arc<Self>) {
        let config = self.config().await;
        remove_leftovers(&self.current().state);
        let settle = config.server.settle_time();
        self.awaits_documents.store(true, Ordering::Release);
        self.gateway.begin_settling(settle);
        self.connect_to(&SourceStart::All).await;
        let (project, load) = (self.clone(), config.limits.load.duration());
        tokio::spawn(async move {
            let settled =
                async { tokio::join!(project.upstreams.settled(), project.apis.settled()) };
            let documents = async {
                let _ = tokio::time::timeout(load, project.apis.files_settled()).await;
                project.awaits_documents.store(false, Ordering::Release);
                project.refresh().await;
            };
            let sources = async {
                let _ = tokio::time::timeout(settle, settled).await;
                if !settle.is_zero() {
                    project.upstreams.stop_waiting_for_start();
                }
                project.refresh().await;
                project.gateway.end_settling();
            };
            tokio::join!(documents, sources);
        });
    }

    /// The same, for a command that needs only some of them.
    pub(crate) async fn connect_to(self: &Arc<Self>, start: &SourceStart) {
        let loaded = start.restrict(&self.state.lock().loaded);
        if !loaded.config.mcp_servers.is_empty() {
            prepare_state_folder(&loaded.state);
        }
        self.upstreams.apply(&loaded, &self.gateway);
        self.apis.apply(&loaded, &self.upstreams.changed());
        self.publish(&self.state.lock());
        let project = Arc::downgrade(self);
        let changed = self.upstreams.changed();
        tokio::spawn(async move {
            loop {
                changed.notified().await;
                let Some(project) = project.upgrade() else { return };
                project.refresh().await;
            }
        });
    }

    /// See to it that the catalog has all that the upstreams have said so far.
    pub async fn refresh(&self) {
        self.publish(&self.state.lock());
    }

    /// Write down what is learned of tools from now on.
    pub(crate) async fn keep_learned(&self) -> Keeping {
        Keeping::start(self.gateway.clone(), &self.current().state)
    }

    /// Keep the journal, and send telemetry, from now on until the project is
    /// disconnected.
    pub(crate) async fn keep_journal(&self) {
        let loaded = self.current();
        self.telemetry.begin(&loaded.config.telemetry, &self.gateway);
        if self.passing_state.is_none() {
            prepare_state_folder(&loaded.state);
            self.journaling.begin(&loaded, &self.gateway);
        }
    }

    /// Count the runs that were interrupted, and go on with those that waited when their
    /// process ended, for as long as this is held.
    pub(crate) async fn take_up_runs(&self) -> Option<AbortOnDropHandle<()>> {
        let journal = self.journaling.journal()?;
        let interrupted = journal::count_interrupted(journal.clone()).await;
        let (loaded, gateway) = (self.loaded().await, self.gateway.clone());
        let taking_up = journal::take_up(loaded, gateway, journal, interrupted);
        Some(AbortOnDropHandle::new(tokio::spawn(taking_up)))
    }

    /// Keep the knowledge base up to date, from when its connectors are loaded, for as
    /// long as this is held.
    pub(crate) fn follow_knowledge(&self) -> AbortOnDropHandle<()> {
        let (knowledge, gateway) = (self.knowledge.clone(), self.gateway.clone());
        AbortOnDropHandle::new(tokio::spawn(async move {
            gateway.loaded(&Caller::new("sync")).await;
            let _following = knowledge.follow(&gateway);
            std::future::pending::<()>().await;
        }))
    }

    /// Wait until every source has been tried once.
    pub(crate) async fn settled(&self) {
        self.gateway.loaded(&Caller::new("cli")).await;
        self.upstreams.settled().await;
        self.apis.settled().await;
    }

    /// End the upstream servers as they like to be ended, and the journal; send the
    /// last of what is to be seen of all this.
    pub(crate) async fn disconnect_gently(&self) {
        self.disconnect_at(ClosePace::Gentle).await;
    }

    /// The same where somebody waits for the end of this process.
    pub async fn disconnect(&self) {
        self.disconnect_at(ClosePace::Quick).await;
    }

    async fn disconnect_at(&self, pace: ClosePace) {
        self.upstreams.stop(pace).await;
        tokio::join!(self.journaling.end(), self.telemetry.end());
    }

    pub async fn config(&self) -> Config {
        self.current().config.clone()
    }

    /// The configuration as loaded, with where it came from.
    pub async fn loaded(&self) -> Loaded {
        Loaded::clone(&self.current())
    }

    /// What is kept of MCP sessions beyond this process, made when it is first needed.
    pub(crate) fn session_vault(&self) -> Arc<SessionVault> {
        let open = || {
            let state = self.current().state.clone();
            let opened = create_state_folder(&state).and_then(|()| SessionVault::open(&state));
            opened.unwrap_or_else(|error| {
                tracing::warn!("MCP sessions will end with this process: {error}");
                SessionVault::passing()
            })
        };
        let vault = || if self.passing_state.is_some() { SessionVault::passing() } else { open() };
        self.session_vault.get_or_init(vault).clone()
    }

    /// Files beside the configuration whose content is part of it.
    pub(crate) fn value_files(&self) -> Vec<PathBuf> {
        self.current().value_files.clone()
    }

    fn current(&self) -> Arc<Loaded> {
        self.state.lock().loaded.clone()
    }

    /// Whether there is any script, working or not, loaded or not.
    pub(crate) fn has_scripts(&self) -> bool {
        if self.state.lock().found.is_empty() {
            self.find_scripts();
        }
        !self.state.lock().found.is_empty()
    }

    /// How many scripts there are, working or not.
    pub async fn script_count(&self) -> usize {
        self.state.lock().found.len()
    }

    /// Make the tools and problems of scripts and configuration what they are now, and
    /// publish them.
    fn compose(&self, state: &mut State) {
        let scripts = state.found.iter().filter_map(|(key, file)| match key {
            ScriptKey::Connector(name) => Some((name.as_str(), file.as_str())),
            ScriptKey::Script(_) | ScriptKey::Agent(_) => None,
        });
        let sources = connectors::sources(&state.loaded, scripts, &state.connectors);
        let mut problems = state.folder_problems.clone();
        let configured = sources.iter().filter(|it| it.kind() != "script");
        problems.extend(configured.filter_map(|it| it.problem.clone()));
        problems.extend(state.loaded.config.knowledge.outage.iter().cloned());
        self.knowledge.apply(&state.loaded, sources);
        problems.extend(self.knowledge.renew_search_tool(&mut state.builtin).err());
        let mut tools = state.builtin.clone();
        match builtin::execute(&self.luau, &state.loaded, state.execute.as_ref()) {
            Ok(execute) => state.execute = Some(execute),
            Err(problem) => problems.push(problem),
        }
        tools.extend(state.execute.iter().map(|(_, tool)| tool.clone()));
        let artifacts = state.loaded.config.limits.artifacts.bytes();
        self.gateway.artifacts().set_bytes(usize::try_from(artifacts).unwrap_or(usize::MAX));
        let libraries = (!state.loading).then(|| LoadedFiles::of(&state.scripts));
        for (key, file) in &state.found {
            let problem = match key {
                ScriptKey::Script(path) => match state.scripts.get(path) {
                    Some(entry) => {
                        let idle = libraries.as_ref();
                        problems.extend(idle.and_then(|it| it.idle_problem(path, file, entry)));
                        tools.extend(entry.tools.iter().cloned());
                        entry.problem.clone()
                    }
                    None => still_loading(state.loading, file),
                },
                ScriptKey::Connector(name) => match state.connectors.get(name) {
                    Some(entry) => entry.problem().cloned(),
                    None => still_loading(state.loading, file),
                },
                ScriptKey::Agent(path) => match state.agents.get(path) {
                    Some(entry) => entry.problem().cloned(),
                    None => still_loading(state.loading, file),
                },
            };
            problems.extend(problem);
        }
        let prompts = state.found.iter().filter_map(|(key, file)| match key {
            ScriptKey::Agent(path) => Some((state.agents.get(path)?.as_ref(), file.as_str())),
            ScriptKey::Script(_) | ScriptKey::Connector(_) => None,
        });
        problems.extend(agents::name_collisions(prompts));
        problems.extend(state.config_problems.iter().cloned());
        (state.tools, state.problems) = (tools, problems);
        self.publish(state);
    }

    /// What is wrong with this project, but for what upstream servers and APIs have: how
    /// those are doing is logged where it is found out.
    pub(crate) fn problems_of_its_own(&self) -> Vec<Problem> {
        let catalog = self.gateway.catalog();
        let offered = [self.upstreams.offered().problems, self.apis.offered().problems].concat();
        let of_sources = |problem: &Problem| {
            let mut down = catalog.health().iter().filter_map(|it| it.problem.as_ref());
            offered.contains(problem) || down.any(|it| it == problem)
        };
        catalog.problems().iter().filter(|it| !of_sources(it)).cloned().collect()
    }

    /// Put the next catalog together, and publish it if it says anything new.
    fn publish(&self, state: &State) {
        let (mut tools, mut problems) = (state.tools.clone(), state.problems.clone());
        let upstreams = self.upstreams.offered();
        let apis = self.apis.offered();
        tools.extend(upstreams.tools.into_iter().chain(apis.tools));
        problems.extend(upstreams.problems.into_iter().chain(apis.problems));
        let connecting = [upstreams.connecting, apis.connecting].concat();
        let mut health = [upstreams.health, apis.health].concat();
        let config = &state.loaded.config;
        let names = config.mcp_servers.keys().chain(config.apis.keys()).map(String::as_str);
        for (source, problem) in source_names::collisions(names) {
            let of = health.iter_mut().filter(|it| it.source == source);
            of.for_each(|it| it.flaws.push(problem.clone()));
            problems.push(problem);
        }
        let catalog = Catalog::new(self.modules.clone(), tools, &builtin::REPLACEABLE, problems)
            .with_offers([agents::offers(&state.agents), upstreams.offers].concat(), connecting);
        let catalog = match self.knowledge.has_anything() {
            true => catalog.with_none_idle(),
            false => catalog,
        };
        let catalog = catalog.with_own_offers(moonlark_discovery::offers).with_health(health);
        let reads_documents =
            self.awaits_documents.load(Ordering::Acquire) && self.apis.is_reading_files();
        let catalog = catalog.while_loading(state.loading || reads_documents);
        let before = self.gateway.catalog();
        let same_tools = before.tools().len() == catalog.tools().len()
            && before.tools().iter().zip(catalog.tools()).all(|(a, b)| Arc::ptr_eq(a, b))
            && before.has_idle() == catalog.has_idle()
            && before.is_loading() == catalog.is_loading();
        let same_offers = before.offers().len() == catalog.offers().len()
            && before.offers().iter().zip(catalog.offers()).all(|(a, b)| {
                // Our own say nothing that the tools do not.
                Arc::ptr_eq(a, b) || (a.uris == b.uris && a.source.name == "moonlark")
            })
            && before.connecting() == catalog.connecting()
            && before.health() == catalog.health();
        if !same_tools || !same_offers || before.problems() != catalog.problems() {
            self.gateway.publish(catalog);
        }
    }
}

/// The Problem of a script that callers no longer wait for.
fn still_loading(first: bool, file: &str) -> Option<Problem> {
    let problem = || {
        Problem::unavailable("the script is still being loaded").at(Place::file(file.to_owned()))
    };
    (!first).then(problem)
}

/// This very binary, which is its own worker. The link of the kernel holds even
/// when the file was replaced by a newer version.
fn own_binary() -> PathBuf {
    if cfg!(target_os = "linux") {
        return PathBuf::from("/proc/self/exe");
    }
    std::env::current_exe().unwrap_or_else(|_| PathBuf::from("moonlark"))
}
