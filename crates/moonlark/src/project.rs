//! A project: its configuration, its scripts, and the gateway that serves them.
//!
//! Loading and reloading are the same
//! walk: look at what is on disk, load what is new or changed, put the next
//! catalog together, publish it. What fails to load keeps its last good version.
//!
//! Scripts are loaded beside everything else ([`script_loading`]). A configuration takes
//! effect in one step with the scripts that changed with it; it waits for no other, and for
//! those no longer than `limits.load`. The state is locked to look at it and to swap a
//! part, never while something loads.

mod catalog_publication;
mod cli_sources;
mod effective_config;
mod reload_report;
mod script_load;
mod script_load_limiter;
mod script_loading;
mod watch_list;
mod written_script;

pub use cli_sources::{CliSources, StateRetention};
pub use reload_report::{ReloadProblem, ReloadReport};

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use moonlark_child::spawn_owned;
use moonlark_core::{Catalog, Module, Problem, Result, Tool, Warning};
use moonlark_gateway::gateway::CallRecords;
use moonlark_gateway::{Caller, Gateway};
use moonlark_luau::LuauEngine;
use moonlark_mcp_client::ClosePace;
use moonlark_server::{RequestAuthenticator, SessionVault};
use moonlark_starlark::StarlarkEngine;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::apis::ApiSources;
use crate::builtin;
use crate::http_auth;
use crate::knowledge_base::KnowledgeBase;
use crate::learned_shapes_file::{self, LearnedShapesWriter};
use crate::project_journal::{self, ProjectJournal};
use crate::prompt_scripts;
use crate::saved_scripts::SavedScriptStore;
use crate::scripts::{ScriptEntries, ScriptKey, display_path};
use crate::source_selection::SourceSelection;
use crate::upstreams::UpstreamServers;
use moonlark_config::config_file::{self, LoadedConfig, RejectedConfig};
use moonlark_config::{ByteSize, ProjectConfig, TelemetryConfig};
use moonlark_state::state_folder::{
    create_state_folder, prepare_state_folder, remove_stale_partial_files,
};
use moonlark_telemetry::{TelemetryExport, TelemetryOptions};

use effective_config::read_effective_config;
use script_load_limiter::ScriptLoadLimiter;
use script_loading::ScriptLoadJobs;

pub(crate) use script_load::LoadedProduct;
pub(crate) use watch_list::WatchList;

pub struct Project {
    pub gateway: Gateway,
    /// `--config`, if it was given.
    explicit: Option<PathBuf>,
    cwd: PathBuf,
    modules: Arc<Vec<Module>>,
    pub(crate) luau: LuauEngine,
    pub(crate) starlark: StarlarkEngine,
    pub(crate) upstreams: UpstreamServers,
    pub(crate) apis: ApiSources,
    pub(crate) knowledge: KnowledgeBase,
    saved_scripts: SavedScriptStore,
    journaling: ProjectJournal,
    telemetry: TelemetryExport,
    /// Who may call over HTTP.
    pub(crate) auth: Arc<RequestAuthenticator>,
    /// From the command line, which comes before the file.
    more: CliSources,
    /// In place of `.moonlark/` where there is no project.
    passing_state: Option<tempfile::TempDir>,
    state: Mutex<ProjectState>,
    /// Loads under way; whoever has it sees to them.
    jobs: tokio::sync::Mutex<ScriptLoadJobs>,
    session_vault: OnceLock<Arc<SessionVault>>,
    /// Callers of a server that starts wait until the documents that are files are read.
    awaits_documents: AtomicBool,
    /// Something may have changed on disk.
    look_again: Arc<Notify>,
    /// What follows the sources, for as long as the project is there.
    tasks: Mutex<Vec<AbortOnDropHandle<()>>>,
    lua_turns: Arc<ScriptLoadLimiter>,
    starlark_turns: Arc<ScriptLoadLimiter>,
}

/// A configuration that was read and is not in use yet.
struct StagedConfig {
    loaded: Arc<LoadedConfig>,
    /// When the first change was read that is still to be put in force.
    since: Instant,
    /// The file as it was before could not be used.
    mends_broken: bool,
}

struct ProjectState {
    loaded: Arc<LoadedConfig>,
    staged: Option<StagedConfig>,
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
    scripts: ScriptEntries,
    execute: Option<builtin::CachedExecuteTool>,
    /// Made once; only what `search` says of itself changes with the sources.
    builtin: Vec<Arc<Tool>>,
    /// Of Moonlark and of all scripts, in order.
    tools: Vec<Arc<Tool>>,
    /// What is wrong with the scripts and the configuration.
    problems: Vec<Problem>,
    /// What is wrong with scripts that agents saved, which no other caller is told.
    agent_problems: Vec<Problem>,
}

impl ProjectState {
    /// The configuration that holds from the next publication on.
    fn next_config(&self) -> &Arc<LoadedConfig> {
        self.staged.as_ref().map_or(&self.loaded, |staged| &staged.loaded)
    }
}

impl Project {
    /// Read the configuration and load everything it leads to.
    pub async fn open(explicit: Option<&Path>, cwd: &Path) -> Result<Project, RejectedConfig> {
        Self::open_with_sources(explicit, cwd, CliSources::default()).await
    }

    /// The same, with sources that are not in the file.
    pub async fn open_with_sources(
        explicit: Option<&Path>,
        cwd: &Path,
        more: CliSources,
    ) -> Result<Project, RejectedConfig> {
        let project = Self::open_without_scripts(explicit, cwd, more)?;
        project.load_scripts_initially().await;
        Ok(project)
    }

    /// Read the configuration and put its rules in force. Scripts are not loaded yet:
    /// callers wait for them until they are.
    pub fn open_without_scripts(
        explicit: Option<&Path>,
        cwd: &Path,
        more: CliSources,
    ) -> Result<Project, RejectedConfig> {
        let mut loaded = read_effective_config(explicit, cwd, &more)?;
        let passing_state = match more.state_kept {
            StateRetention::UntilTheEnd if !loaded.is_project() => tempfile::tempdir().ok(),
            _ => None,
        };
        if let Some(folder) = &passing_state {
            loaded.state = folder.path().to_owned();
        }
        let modules = Arc::new(moonlark_host::host_modules());
        let luau = LuauEngine::new(&modules)?;
        let starlark = StarlarkEngine::new(own_binary_path(), &modules);
        let empty = Catalog::new(modules.clone(), Vec::new(), &[], Vec::new());
        let gateway = Gateway::new(empty, loaded.config.limits.runs as usize);
        let knowledge = KnowledgeBase::default();
        let builtin = builtin::make_builtin_tools(&knowledge)?;
        let project = Project {
            auth: http_auth::make_http_auth(&loaded, &gateway),
            gateway,
            explicit: explicit.map(Path::to_owned),
            cwd: cwd.to_owned(),
            modules,
            luau,
            starlark,
            upstreams: UpstreamServers::default(),
            apis: ApiSources::default(),
            knowledge,
            saved_scripts: SavedScriptStore::default(),
            journaling: ProjectJournal::default(),
            telemetry: TelemetryExport::default(),
            more,
            passing_state,
            state: Mutex::new(ProjectState {
                loaded: Arc::new(loaded),
                staged: None,
                config_problems: Vec::new(),
                broken_config: None,
                loading: true,
                found: Vec::new(),
                folder_problems: Vec::new(),
                scripts: ScriptEntries::new(),
                execute: None,
                builtin,
                tools: Vec::new(),
                problems: Vec::new(),
                agent_problems: Vec::new(),
            }),
            jobs: tokio::sync::Mutex::default(),
            session_vault: OnceLock::new(),
            awaits_documents: AtomicBool::new(false),
            look_again: Arc::default(),
            tasks: Mutex::default(),
            lua_turns: Arc::new(ScriptLoadLimiter::for_lua()),
            starlark_turns: Arc::new(ScriptLoadLimiter::for_starlark()),
        };
        let mut state = project.state.lock();
        project.limit_script_memory(&state.loaded.config);
        let engine = project.luau.clone();
        project.gateway.metrics().add_collector(move || engine.memory_metrics());
        learned_shapes_file::import_learned_shapes(&project.gateway, &state.loaded.state);
        project.compose_catalog(&mut state);
        drop(state);
        Ok(project)
    }

    fn limit_script_memory(&self, config: &ProjectConfig) {
        let limits = &config.limits;
        self.luau.set_memory_total(limits.memory_total.map(ByteSize::bytes), limits.memory.bytes());
    }

    /// Look again at what is on disk, and wait until all of it is in use.
    pub async fn reload(&self) -> ReloadReport {
        let mut report = self.reload_config();
        self.look_again.notify_one();
        self.load_scripts(&mut |more| report.merge_report(more)).await;
        report
    }

    /// Read the configuration again. It takes effect together with the scripts that changed
    /// with it ([`script_loading`]), so that no call is judged by new rules on old tools.
    pub(crate) fn reload_config(&self) -> ReloadReport {
        let mut report = ReloadReport::default();
        let read = self.read_config();
        let mut state = self.state.lock();
        match read {
            Ok(loaded) => {
                let is_same = *state.loaded == loaded && state.staged.is_none();
                let before = state.staged.take();
                let since = before.as_ref().map_or_else(Instant::now, |it| it.since);
                let mends_broken = !std::mem::take(&mut state.config_problems).is_empty()
                    || before.is_some_and(|it| it.mends_broken);
                let loaded = Arc::new(loaded);
                state.staged = Some(StagedConfig { loaded, since, mends_broken });
                state.broken_config = None;
                if is_same {
                    self.put_config_in_force(&mut state, &mut report);
                    self.compose_catalog(&mut state);
                } else {
                    self.request_disk_scan();
                }
            }
            Err(RejectedConfig { errors: problems, .. }) => {
                // Once for each version of the file, whatever else changes meanwhile.
                let text = self.read_config_text();
                if state.broken_config.as_ref() != Some(&text) || state.config_problems != problems
                {
                    let news = problems.iter().cloned();
                    report.problems.extend(
                        news.map(|problem| ReloadProblem { problem, last_good_stays: true }),
                    );
                }
                state.broken_config = Some(text);
                state.config_problems = problems;
                self.compose_catalog(&mut state);
            }
        }
        report
    }

    /// Make the staged configuration the one in use. Its rules and limits are published
    /// with the catalog, by whoever holds the state.
    fn put_config_in_force(&self, state: &mut ProjectState, report: &mut ReloadReport) {
        let Some(StagedConfig { loaded, mends_broken, .. }) = state.staged.take() else { return };
        self.limit_script_memory(&loaded.config);
        self.journaling.apply_config(&loaded);
        self.auth.configure(loaded.config.server.auth.to_auth_settings());
        if self.upstreams.is_connected() {
            self.upstreams.apply_config(&loaded, &self.gateway);
            self.apis.apply_config(&loaded, &self.upstreams.changed());
        }
        if *state.loaded != *loaded || mends_broken {
            let file = loaded.path.as_deref().map(|path| display_path(&loaded.root, path));
            let file = file.unwrap_or_else(|| config_file::CONFIG_FILE_NAME.to_owned());
            report.changes.push(format!("{file} taken over"));
            state.loaded = loaded;
        }
    }

    /// The configuration as it is on disk.
    fn read_config(&self) -> Result<LoadedConfig, RejectedConfig> {
        let mut loaded = read_effective_config(self.explicit.as_deref(), &self.cwd, &self.more)?;
        if let Some(folder) = &self.passing_state {
            loaded.state = folder.path().to_owned();
        }
        Ok(loaded)
    }

    /// The configuration file as it is, if it can be read at all.
    fn read_config_text(&self) -> Vec<u8> {
        let env = |name: &str| std::env::var(name).ok();
        let file = config_file::find_config_path(self.explicit.as_deref(), &self.cwd, &env);
        let file = file.filter(|file| file.is_file());
        file.and_then(|file| std::fs::read(file).ok()).unwrap_or_default()
    }

    /// Begin to connect to the upstream servers, and follow what they offer. Clients
    /// that ask meanwhile what there is wait, but not for long.
    pub async fn connect_all_sources(self: &Arc<Self>) {
        let config = self.config().await;
        remove_stale_partial_files(&self.current_config().state);
        let settle = config.server.settle_time();
        self.awaits_documents.store(true, Ordering::Release);
        self.gateway.begin_settling(settle);
        self.connect_sources(&SourceSelection::All).await;
        let (project, load) = (self.clone(), config.limits.load.to_duration());
        let settling = spawn_owned(async move {
            let settled = async {
                tokio::join!(project.upstreams.wait_until_tried(), project.apis.wait_until_tried())
            };
            let documents = async {
                let _ = tokio::time::timeout(load, project.apis.wait_until_files_tried()).await;
                project.awaits_documents.store(false, Ordering::Release);
                project.refresh_catalog().await;
            };
            let sources = async {
                let _ = tokio::time::timeout(settle, settled).await;
                if !settle.is_zero() {
                    project.upstreams.stop_waiting_for_start();
                }
                project.refresh_catalog().await;
                project.gateway.end_settling();
            };
            tokio::join!(documents, sources);
        });
        self.tasks.lock().push(settling);
    }

    /// The same, for a command that needs only some of them.
    pub(crate) async fn connect_sources(self: &Arc<Self>, start: &SourceSelection) {
        let loaded = start.restrict_config(&self.state.lock().loaded);
        if !loaded.config.mcp_servers.is_empty() {
            prepare_state_folder(&loaded.state);
        }
        self.upstreams.apply_config(&loaded, &self.gateway);
        self.apis.apply_config(&loaded, &self.upstreams.changed());
        self.publish_catalog(&self.state.lock());
        let project = Arc::downgrade(self);
        let changed = self.upstreams.changed();
        let following = spawn_owned(async move {
            loop {
                changed.notified().await;
                let Some(project) = project.upgrade() else { return };
                project.refresh_catalog().await;
            }
        });
        self.tasks.lock().push(following);
    }

    /// See to it that the catalog has all that the upstreams have said so far.
    pub async fn refresh_catalog(&self) {
        self.publish_catalog(&self.state.lock());
    }

    /// Write down what is learned of tools from now on.
    pub(crate) async fn persist_learned_shapes(&self) -> LearnedShapesWriter {
        LearnedShapesWriter::start(self.gateway.clone(), &self.current_config().state)
    }

    /// Keep the journal, and send telemetry, from now on until the project is
    /// disconnected.
    pub(crate) async fn start_journal_and_telemetry(&self) {
        let loaded = self.current_config();
        let gateway = self.gateway.clone();
        let tracer = self.telemetry.start_export(
            &telemetry_options(&loaded.config.telemetry),
            &self.gateway,
            Box::new(move || {
                let gateway = gateway.clone();
                Box::pin(async move { moonlark_server::collect_metrics(&gateway).await })
            }),
        );
        let mut records = CallRecords { tracer, ..CallRecords::default() };
        if self.passing_state.is_none() {
            prepare_state_folder(&loaded.state);
            records.artifacts = project_journal::open_artifact_files(&loaded.state);
            let journal = self.journaling.open_records(&loaded);
            (records.recorder, records.approvals) = (journal.recorder, journal.approvals);
        }
        self.gateway.keep_records(records);
    }

    /// Write what the journal has yet to write, so that readers of its file see it.
    pub(crate) async fn flush_journal(&self) -> Result<()> {
        match self.journaling.journal() {
            Some(journal) => journal.flush().await,
            None => Ok(()),
        }
    }

    /// Count the runs that were interrupted, and go on with those that waited when their
    /// process ended, for as long as this is held.
    pub(crate) async fn resume_waiting_runs(&self) -> Option<AbortOnDropHandle<()>> {
        let journal = self.journaling.journal()?;
        let interrupted = project_journal::count_interrupted_runs(journal.clone()).await;
        let (loaded, gateway) = (self.loaded_config().await, self.gateway.clone());
        let taking_up = project_journal::resume_decided_runs(loaded, gateway, journal, interrupted);
        Some(spawn_owned(taking_up))
    }

    /// Keep the knowledge base up to date, from when its connectors are loaded, for as
    /// long as this is held.
    pub(crate) fn sync_knowledge_in_background(&self) -> AbortOnDropHandle<()> {
        let (knowledge, gateway) = (self.knowledge.clone(), self.gateway.clone());
        spawn_owned(async move {
            gateway.loaded_catalog(&Caller::new("sync")).await;
            let _following = knowledge.start_background_sync(&gateway);
            std::future::pending::<()>().await;
        })
    }

    /// Wait until every source has been tried once.
    pub(crate) async fn wait_for_sources(&self) {
        self.gateway.loaded_catalog(&Caller::new("cli")).await;
        self.upstreams.wait_until_tried().await;
        self.apis.wait_until_tried().await;
    }

    /// End the upstream servers as they like to be ended, and the journal; send the
    /// last of what is to be seen of all this.
    pub(crate) async fn disconnect_at_pace(&self, pace: ClosePace) {
        self.upstreams.stop_all(pace).await;
        tokio::join!(self.journaling.flush_and_close(), self.telemetry.flush_and_stop());
    }

    /// The same where somebody waits for the end of this process.
    pub async fn disconnect_quickly(&self) {
        self.disconnect_at_pace(ClosePace::Quick).await;
    }

    pub async fn config(&self) -> ProjectConfig {
        self.current_config().config.clone()
    }

    /// The configuration as loaded, with where it came from.
    pub async fn loaded_config(&self) -> LoadedConfig {
        LoadedConfig::clone(&self.current_config())
    }

    /// What is kept of MCP sessions beyond this process, made when it is first needed.
    pub(crate) fn session_vault(&self) -> Arc<SessionVault> {
        let open = || {
            let state = self.current_config().state.clone();
            let opened = create_state_folder(&state).and_then(|()| SessionVault::open(&state));
            opened.unwrap_or_else(|error| {
                tracing::warn!("MCP sessions will end with this process: {error}");
                SessionVault::in_memory()
            })
        };
        let vault =
            || if self.passing_state.is_some() { SessionVault::in_memory() } else { open() };
        self.session_vault.get_or_init(vault).clone()
    }

    /// Files beside the configuration whose content is part of it.
    pub(crate) fn value_files(&self) -> Vec<PathBuf> {
        self.current_config().value_files.clone()
    }

    fn current_config(&self) -> Arc<LoadedConfig> {
        self.state.lock().loaded.clone()
    }

    /// Whether there is any script, working or not, loaded or not.
    pub(crate) fn has_scripts(&self) -> bool {
        if self.state.lock().found.is_empty() {
            self.list_scripts();
        }
        !self.state.lock().found.is_empty()
    }

    /// How many scripts there are, working or not.
    pub async fn script_count(&self) -> usize {
        self.state.lock().found.len()
    }

    /// What is wrong with this project, but for what upstream servers and APIs have: how
    /// those are doing is logged where it is found out.
    pub(crate) fn own_problems(&self) -> Vec<Problem> {
        let catalog = self.gateway.catalog();
        let offered =
            [self.upstreams.current_offerings().problems, self.apis.current_offerings().problems]
                .concat();
        let of_sources = |problem: &Problem| {
            let mut down = catalog.health().iter().filter_map(|it| it.problem.as_ref());
            offered.contains(problem) || down.any(|it| it == problem)
        };
        catalog.problems().iter().filter(|it| !of_sources(it)).cloned().collect()
    }

    /// What is wrong with scripts that agents saved: for the operator, and not in the catalog,
    /// which all callers see.
    pub(crate) fn agent_script_problems(&self) -> Vec<Problem> {
        self.state.lock().agent_problems.clone()
    }

    /// What the authors of scripts might write otherwise.
    pub(crate) fn script_warnings(&self) -> Vec<Warning> {
        let catalog = self.gateway.catalog();
        let state = self.state.lock();
        let config = &state.loaded.config;
        let mut warnings: Vec<Warning> = catalog.warnings().cloned().collect();
        warnings.extend(prompt_scripts::unknown_tool_warnings(&state.scripts, &catalog, config));
        warnings
    }
}

/// This very binary, which is its own worker. The link of the kernel holds even
/// when the file was replaced by a newer version.
fn own_binary_path() -> PathBuf {
    if cfg!(target_os = "linux") {
        return PathBuf::from("/proc/self/exe");
    }
    std::env::current_exe().unwrap_or_else(|_| PathBuf::from("moonlark"))
}

fn telemetry_options(config: &TelemetryConfig) -> TelemetryOptions {
    TelemetryOptions {
        otlp: config.otlp.clone(),
        headers: config.headers.iter().map(|(name, it)| (name.clone(), it.0.clone())).collect(),
        service: config.service.clone(),
        traces: config.traces,
        sample: config.sample,
        metrics: config.metrics,
        interval: config.interval.to_duration(),
    }
}
