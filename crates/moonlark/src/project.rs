//! A project: its configuration, its scripts, and the gateway that serves them.
//!
//! The only file that knows every crate. Loading and reloading are the same
//! walk: look at what is on disk, load what is new or changed, put the next
//! catalog together, publish it. What fails to load keeps its last good version.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::StreamExt;
use moonlark_core::{Catalog, Gateway, Module, Place, Problem, Result, Tool};
use moonlark_luau::Luau;
use moonlark_server::Auth;
use moonlark_starlark::Starlark;
use tokio::sync::Mutex;
use tokio_util::task::AbortOnDropHandle;

use crate::apis::Apis;
use crate::builtin;
use crate::config::{Api, ApiAuth, Config, McpServer};
use crate::config_file::{self, Loaded};
use crate::connectors;
use crate::extensions;
use crate::journal::{self, Journaling};
use crate::knowledge::KnowledgeBase;
use crate::learned::{self, Keeping};
use crate::policy;
use crate::scripts::{self, Entries, Entry, Found, Kind};
use crate::telemetry::Telemetry;
use crate::upstreams::Upstreams;
use crate::who;

/// Scripts loaded at the same time.
const LOADING: usize = 16;

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
    state: Mutex<State>,
}

struct State {
    loaded: Loaded,
    /// Why the newest configuration is not in use.
    config_problems: Vec<Problem>,
    scripts: Entries,
    connectors: connectors::Entries,
    execute: Option<builtin::Execute>,
    /// Made once: the same for as long as the project is open.
    builtin: Vec<Arc<Tool>>,
    /// Of Moonlark and of all scripts, in order.
    tools: Vec<Arc<Tool>>,
    /// What is wrong with the scripts and the configuration.
    problems: Vec<Problem>,
}

/// Sources from the command line, which come before those of the file.
#[derive(Debug, Default, Clone)]
pub struct More {
    pub servers: BTreeMap<String, McpServer>,
    /// Documents of APIs, by the names they get. Files are seen from the working
    /// directory.
    pub specs: BTreeMap<String, String>,
    /// The environment variables that hold their secrets.
    pub logins: BTreeMap<String, String>,
}

/// What a reload did, in words for the log.
#[derive(Debug, Default)]
pub struct Report {
    pub changes: Vec<String>,
    pub problems: Vec<Problem>,
}

impl Project {
    /// Read the configuration and load everything it leads to.
    pub async fn open(explicit: Option<&Path>, cwd: &Path) -> Result<Project, Vec<Problem>> {
        Self::open_with(explicit, cwd, More::default()).await
    }

    /// The same, with sources that are not in the file.
    pub async fn open_with(
        explicit: Option<&Path>,
        cwd: &Path,
        more: More,
    ) -> Result<Project, Vec<Problem>> {
        let loaded = read_config(explicit, cwd, &more)?;
        let modules = Arc::new(moonlark_host::all());
        let luau = Luau::new(&modules).map_err(|problem| vec![problem])?;
        let starlark = Starlark::new(own_binary(), &modules);
        let empty = Catalog::new(modules.clone(), Vec::new(), &[], Vec::new());
        let gateway = Gateway::new(empty, loaded.config.limits.runs as usize);
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
            knowledge: KnowledgeBase::default(),
            journaling: Journaling::default(),
            telemetry: Telemetry::default(),
            more,
            state: Mutex::new(State {
                loaded,
                config_problems: Vec::new(),
                scripts: Entries::new(),
                connectors: connectors::Entries::new(),
                execute: None,
                builtin: Vec::new(),
                tools: Vec::new(),
                problems: Vec::new(),
            }),
        };
        let mut state = project.state.lock().await;
        project.gateway.set_places(state.loaded.config.limits.places());
        project.gateway.set_policy(policy::in_force(&state.loaded));
        learned::recall(&project.gateway, &state.loaded.root);
        project.load_scripts(&mut state).await.map_err(|problem| vec![problem])?;
        drop(state);
        Ok(project)
    }

    /// Look again at what is on disk.
    pub async fn reload(&self) -> Report {
        let mut state = self.state.lock().await;
        match read_config(self.explicit.as_deref(), &self.cwd, &self.more) {
            Ok(loaded) => {
                self.gateway.set_places(loaded.config.limits.places());
                self.gateway.set_policy(policy::in_force(&loaded));
                self.journaling.configure(&loaded);
                self.auth.configure(loaded.config.server.auth.settings());
                if self.upstreams.is_connected() {
                    self.upstreams.apply(&loaded, &self.gateway);
                    self.apis.apply(&loaded, &self.upstreams.changed());
                }
                state.loaded = loaded;
                state.config_problems.clear();
            }
            Err(problems) => state.config_problems = problems,
        }
        match self.load_scripts(&mut state).await {
            Ok(report) => report,
            Err(problem) => Report { problems: vec![problem], ..Report::default() },
        }
    }

    /// Begin to connect to the upstream servers, and follow what they offer.
    pub async fn connect(self: &Arc<Self>) {
        let state = self.state.lock().await;
        self.upstreams.apply(&state.loaded, &self.gateway);
        self.apis.apply(&state.loaded, &self.upstreams.changed());
        self.publish(&state, state.problems.clone());
        drop(state);
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
        let state = self.state.lock().await;
        self.publish(&state, state.problems.clone());
    }

    /// Write down what is learned of tools from now on.
    pub(crate) async fn keep_learned(&self) -> Keeping {
        Keeping::start(self.gateway.clone(), &self.state.lock().await.loaded.root)
    }

    /// Keep the journal, and send telemetry, from now on until the project is
    /// disconnected.
    pub(crate) async fn keep_journal(&self) {
        let state = self.state.lock().await;
        self.telemetry.begin(&state.loaded.config.telemetry, &self.gateway);
        self.journaling.begin(&state.loaded, &self.gateway);
    }

    /// Go on with runs that waited when their process ended, for as long as this
    /// is held.
    pub(crate) async fn take_up_runs(&self) -> AbortOnDropHandle<()> {
        let loaded = self.loaded().await;
        let taking_up = journal::take_up(loaded, self.gateway.clone());
        AbortOnDropHandle::new(tokio::spawn(taking_up))
    }

    /// Wait until every source has been tried once.
    pub(crate) async fn settled(&self) {
        self.upstreams.settled().await;
        self.apis.settled().await;
    }

    /// End the upstream servers as they like to be ended, and the journal; send
    /// the last of what is to be seen of all this.
    pub async fn disconnect(&self) {
        self.upstreams.stop().await;
        tokio::join!(self.journaling.end(), self.telemetry.end());
    }

    pub async fn config(&self) -> Config {
        self.state.lock().await.loaded.config.clone()
    }

    /// The configuration as loaded, with where it came from.
    pub async fn loaded(&self) -> Loaded {
        let state = self.state.lock().await;
        Loaded {
            config: state.loaded.config.clone(),
            path: state.loaded.path.clone(),
            root: state.loaded.root.clone(),
        }
    }

    /// The folders in which a change matters.
    pub async fn folders(&self) -> Vec<PathBuf> {
        let state = self.state.lock().await;
        let loaded = &state.loaded;
        let mut folders = vec![self.cwd.clone(), loaded.root.clone()];
        folders.extend(loaded.path.iter().filter_map(|path| Some(path.parent()?.to_owned())));
        if loaded.config.tools.watch {
            folders.push(loaded.root.join(&loaded.config.tools.dir));
            folders.extend(state.scripts.keys().filter_map(|path| Some(path.parent()?.to_owned())));
            folders.extend(state.scripts.values().flat_map(Entry::folders));
            folders.push(loaded.root.join(&loaded.config.connectors.dir));
            folders.extend(state.connectors.values().flat_map(connectors::Entry::folders));
        }
        if loaded.config.extensions.watch {
            folders.extend(extensions::folders(&loaded.root.join(&loaded.config.extensions.dir)));
        }
        folders.extend(self.apis.folders());
        folders.sort();
        folders.dedup();
        folders
    }

    /// How many scripts there are, working or not.
    pub async fn script_count(&self) -> usize {
        let state = self.state.lock().await;
        state.scripts.len() + state.connectors.len()
    }

    async fn load_scripts(&self, state: &mut State) -> Result<Report> {
        let (found, mut problems) = scripts::find(&state.loaded);
        let old = std::mem::take(&mut state.scripts);
        let order: Vec<(PathBuf, String)> =
            found.iter().map(|found| (found.path.clone(), found.file.clone())).collect();

        let loads = found.into_iter().map(|found| async {
            let entry = self.load_one(&found, &state.loaded, old.get(&found.path)).await;
            (found, entry)
        });
        let results: Vec<(Found, Loading)> =
            futures::stream::iter(loads).buffer_unordered(LOADING).collect().await;

        let mut report = Report::default();
        let mut entries = Entries::new();
        for (found, loading) in results {
            match loading {
                Loading::Same => {}
                Loading::New(_) => report.changes.push(match old.get(&found.path) {
                    Some(_) => format!("{} changed", found.file),
                    None => format!("{} added", found.file),
                }),
                Loading::Failed(Entry { ref problem, .. }) => {
                    report.problems.extend(problem.clone());
                }
            }
            let previous = old.get(&found.path);
            entries.insert(found.path, loading.into_entry(previous));
        }
        for path in old.keys().filter(|path| !entries.contains_key(*path)) {
            let shown = path.strip_prefix(&state.loaded.root).unwrap_or(path);
            report.changes.push(format!("{} removed", shown.display()));
        }
        let before = std::mem::take(&mut state.connectors);
        let looked = connectors::load(&state.loaded, before, &self.luau, &self.gateway).await;
        self.knowledge.apply(&state.loaded, looked.sources);
        state.connectors = looked.entries;
        report.changes.extend(looked.changes);
        report.problems.extend(looked.news);
        report.changes.sort();

        problems.extend(looked.problems);
        problems.extend(state.config_problems.iter().cloned());
        report.problems.extend(state.config_problems.iter().cloned());
        if state.builtin.is_empty() {
            state.builtin = builtin::tools(&self.knowledge)?;
        }
        state.tools = state.builtin.clone();
        match builtin::execute(&self.luau, &state.loaded, state.execute.as_ref()) {
            Ok(execute) => state.execute = Some(execute),
            Err(problem) => problems.push(problem),
        }
        state.tools.extend(state.execute.iter().map(|(_, tool)| tool.clone()));
        let artifacts = state.loaded.config.limits.artifacts.bytes();
        self.gateway.artifacts().set_bytes(usize::try_from(artifacts).unwrap_or(usize::MAX));
        for (path, file) in &order {
            let Some(entry) = entries.get(path) else { continue };
            problems.extend(entry.problem.clone());
            problems.extend(is_idle(path, file, entry, &entries));
            state.tools.extend(entry.tools.iter().cloned());
        }
        state.scripts = entries;
        state.problems = problems;
        self.publish(state, state.problems.clone());
        Ok(report)
    }

    /// Put the next catalog together, and publish it if it says anything new.
    fn publish(&self, state: &State, mut problems: Vec<Problem>) {
        let mut tools = state.tools.clone();
        let upstreams = self.upstreams.offered();
        let apis = self.apis.offered();
        tools.extend(upstreams.tools.into_iter().chain(apis.tools));
        problems.extend(upstreams.problems.into_iter().chain(apis.problems));
        let connecting = [upstreams.connecting, apis.connecting].concat();
        let health = [upstreams.health, apis.health].concat();
        let catalog = Catalog::new(self.modules.clone(), tools, &builtin::REPLACEABLE, problems)
            .with_offers(upstreams.offers, connecting);
        let catalog = match self.knowledge.is_configured() {
            true => catalog.with_none_idle(),
            false => catalog,
        };
        let catalog = catalog.with_own_offers(moonlark_discovery::offers).with_health(health);
        let before = self.gateway.catalog();
        let same_tools = before.tools().len() == catalog.tools().len()
            && before.tools().iter().zip(catalog.tools()).all(|(a, b)| Arc::ptr_eq(a, b))
            && before.has_idle() == catalog.has_idle();
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

    async fn load_one(&self, found: &Found, loaded: &Loaded, old: Option<&Entry>) -> Loading {
        let config = &loaded.config;
        let fingerprint = scripts::fingerprint(found, config);
        let same = |text: &dyn Fn(&str) -> Result<String>| {
            old.is_some_and(|old| {
                let is_same =
                    |(file, was): (&String, &String)| text(file).unwrap_or_default() == *was;
                old.fingerprint == fingerprint
                    && !old.texts.is_empty()
                    && old.texts.iter().all(is_same)
            })
        };
        let mut entry = Entry { fingerprint: fingerprint.clone(), ..Entry::default() };
        let loaded = match &found.kind {
            Kind::Tool => {
                let folder = scripts::folder(found, loaded);
                let files = scripts::files(found, &folder);
                if same(&*files) {
                    return Loading::Same;
                }
                entry.folder = folder.path;
                match scripts::prepare(found, loaded) {
                    Ok(script) => {
                        let (loaded, texts) = self.luau.load(script, &self.gateway).await;
                        entry.texts = texts;
                        loaded.map(|tool| vec![tool])
                    }
                    Err(problem) => {
                        let text = files(&folder.main).unwrap_or_default();
                        entry.texts.insert(folder.main, text);
                        Err(problem)
                    }
                }
            }
            Kind::Connector => Err(Problem::internal("a connector is no tool")),
            Kind::Extension(folder) => {
                entry.folder = folder.path.clone();
                if same(&*extensions::files(folder)) {
                    return Loading::Same;
                }
                match extensions::prepare(found, folder, config) {
                    Ok(extension) => {
                        let (loaded, texts) = self.starlark.load(extension, &self.gateway).await;
                        entry.texts = texts;
                        loaded.map(|loaded| {
                            entry.library = loaded.library;
                            loaded.tools
                        })
                    }
                    Err(problem) => Err(problem),
                }
            }
        };
        match loaded {
            Ok(tools) => {
                let expose = scripts::expose(found, config);
                let exposed = |mut tool: Tool| {
                    tool.expose = expose;
                    Arc::new(tool)
                };
                entry.tools = tools.into_iter().map(exposed).collect();
                Loading::New(entry)
            }
            Err(problem) => {
                entry.problem = Some(problem);
                Loading::Failed(entry)
            }
        }
    }
}

/// A file that is no extension and that no extension loads is a mistake.
fn is_idle(path: &Path, file: &str, entry: &Entry, all: &Entries) -> Option<Problem> {
    let name = path.strip_prefix(&entry.folder).ok().filter(|_| entry.library)?.to_string_lossy();
    let used = all.iter().any(|(other, it)| other != path && it.texts.contains_key(&*name));
    let problem = || {
        Problem::bad_script("the file defines no function describe_extension")
            .at(Place::file(file))
            .hint("define it, or begin the file's name with _ if others are to load it")
    };
    (!used).then(problem)
}

enum Loading {
    Same,
    New(Entry),
    Failed(Entry),
}

impl Loading {
    fn into_entry(self, old: Option<&Entry>) -> Entry {
        match self {
            Loading::New(entry) => entry,
            // The last good version stays.
            Loading::Failed(entry) => {
                Entry { tools: old.map(|old| old.tools.clone()).unwrap_or_default(), ..entry }
            }
            Loading::Same => old.cloned().unwrap_or_default(),
        }
    }
}

/// This very binary, which is its own worker. The link of the kernel holds even
/// when the file was replaced by a newer version.
fn own_binary() -> PathBuf {
    if cfg!(target_os = "linux") {
        return PathBuf::from("/proc/self/exe");
    }
    std::env::current_exe().unwrap_or_else(|_| PathBuf::from("moonlark"))
}

fn read_config(explicit: Option<&Path>, cwd: &Path, more: &More) -> Result<Loaded, Vec<Problem>> {
    let mut loaded = config_file::load(explicit, cwd, &|name| std::env::var(name).ok())?;
    loaded.config.mcp_servers.extend(more.servers.clone());
    for (name, spec) in &more.specs {
        let api = Api { spec: spec.clone(), ..Api::default() };
        if let Some((_, fault)) = api.faults(name).into_iter().next() {
            let message = format!("the API {}: {fault}", moonlark_core::value::shorten(name));
            return Err(vec![Problem::bad_config(message)]);
        }
        loaded.config.apis.insert(name.clone(), api);
    }
    for (name, variable) in &more.logins {
        match loaded.config.apis.get_mut(name) {
            Some(api) => {
                api.auth = ApiAuth::None;
                api.auth_env = Some(variable.clone());
            }
            None => {
                let message = format!("--auth names the API {name}, which is not there");
                let hint =
                    format!("name its document too: --api {name}=SPEC, or spec in [apis.{name}]");
                return Err(vec![Problem::bad_config(message).hint(hint)]);
            }
        }
    }
    Ok(loaded)
}
