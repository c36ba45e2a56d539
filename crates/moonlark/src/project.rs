//! A project: its configuration, its scripts, and the gateway that serves them.
//!
//! The only file that knows every crate. Loading and reloading are the same
//! walk: look at what is on disk, load what is new or changed, put the next
//! catalog together, publish it. What fails to load keeps its last good version.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::StreamExt;
use moonlark_core::{Catalog, Gateway, Module, Problem, Result};
use moonlark_luau::Luau;
use tokio::sync::Mutex;

use crate::builtin;
use crate::config::Config;
use crate::config_file::{self, Loaded};
use crate::scripts::{self, Entries, Entry, Found};

/// Scripts loaded at the same time.
const LOADING: usize = 16;

pub struct Project {
    pub gateway: Gateway,
    /// `--config`, if it was given.
    explicit: Option<PathBuf>,
    cwd: PathBuf,
    modules: Arc<Vec<Module>>,
    engine: Luau,
    state: Mutex<State>,
}

struct State {
    loaded: Loaded,
    /// Why the newest configuration is not in use.
    config_problems: Vec<Problem>,
    scripts: Entries,
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
        let loaded = read_config(explicit, cwd)?;
        let modules = Arc::new(moonlark_host::all());
        let engine = Luau::new(&modules).map_err(|problem| vec![problem])?;
        let empty = Catalog::new(modules.clone(), Vec::new(), &[], Vec::new());
        let project = Project {
            gateway: Gateway::new(empty, loaded.config.limits.runs as usize),
            explicit: explicit.map(Path::to_owned),
            cwd: cwd.to_owned(),
            modules,
            engine,
            state: Mutex::new(State {
                loaded,
                config_problems: Vec::new(),
                scripts: Entries::new(),
            }),
        };
        let mut state = project.state.lock().await;
        project.load_scripts(&mut state).await.map_err(|problem| vec![problem])?;
        drop(state);
        Ok(project)
    }

    /// Look again at what is on disk.
    pub async fn reload(&self) -> Report {
        let mut state = self.state.lock().await;
        match read_config(self.explicit.as_deref(), &self.cwd) {
            Ok(loaded) => {
                self.gateway.set_runs(loaded.config.limits.runs as usize);
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
        let mut folders =
            vec![self.cwd.clone(), loaded.root.clone(), loaded.root.join(&loaded.config.tools.dir)];
        folders.extend(loaded.path.iter().filter_map(|path| Some(path.parent()?.to_owned())));
        folders.extend(state.scripts.keys().filter_map(|path| Some(path.parent()?.to_owned())));
        folders.sort();
        folders.dedup();
        folders
    }

    /// How many scripts there are, working or not.
    pub async fn script_count(&self) -> usize {
        self.state.lock().await.scripts.len()
    }

    async fn load_scripts(&self, state: &mut State) -> Result<Report> {
        let (found, mut problems) = scripts::find(&state.loaded);
        let config = &state.loaded.config;
        let old = std::mem::take(&mut state.scripts);
        let order: Vec<PathBuf> = found.iter().map(|found| found.path.clone()).collect();

        let loads = found.into_iter().map(|found| async {
            let entry = self.load_one(&found, config, old.get(&found.path)).await;
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
                Loading::Failed(ref problem, _) => report.problems.push(problem.clone()),
            }
            let previous = old.get(&found.path);
            entries.insert(found.path, loading.into_entry(previous));
        }
        for path in old.keys().filter(|path| !entries.contains_key(*path)) {
            let shown = path.strip_prefix(&state.loaded.root).unwrap_or(path);
            report.changes.push(format!("{} removed", shown.display()));
        }
        report.changes.sort();

        problems.extend(state.config_problems.iter().cloned());
        report.problems.extend(state.config_problems.iter().cloned());
        let mut tools = builtin::tools()?;
        for entry in order.iter().filter_map(|path| entries.get(path)) {
            problems.extend(entry.problem.clone());
            tools.extend(entry.tool.clone());
        }
        state.scripts = entries;
        let catalog = Catalog::new(self.modules.clone(), tools, &builtin::REPLACEABLE, problems);
        let before = self.gateway.catalog();
        let same_tools = before.tools().len() == catalog.tools().len()
            && before.tools().iter().zip(catalog.tools()).all(|(a, b)| {
                Arc::ptr_eq(a, b) || (a.name == b.name && a.source.name == "moonlark")
            });
        if !same_tools || before.problems() != catalog.problems() {
            self.gateway.publish(catalog);
        }
        Ok(report)
    }

    async fn load_one(&self, found: &Found, config: &Config, old: Option<&Entry>) -> Loading {
        let text = match scripts::read(found) {
            Ok(text) => text,
            Err(problem) => return Loading::Failed(problem, String::new()),
        };
        let fingerprint = scripts::fingerprint(found, &text, config);
        if old.is_some_and(|old| old.fingerprint == fingerprint) {
            return Loading::Same;
        }
        let loaded = match scripts::prepare(found, text, config) {
            Ok(script) => self.engine.load(script, &self.gateway).await,
            Err(problem) => Err(problem),
        };
        match loaded {
            Ok(tool) => {
                Loading::New(Entry { fingerprint, tool: Some(Arc::new(tool)), problem: None })
            }
            Err(problem) => Loading::Failed(problem, fingerprint),
        }
    }
}

enum Loading {
    Same,
    New(Entry),
    Failed(Problem, String),
}

impl Loading {
    fn into_entry(self, old: Option<&Entry>) -> Entry {
        match self {
            Loading::New(entry) => entry,
            Loading::Failed(problem, fingerprint) => Entry {
                fingerprint,
                tool: old.and_then(|old| old.tool.clone()),
                problem: Some(problem),
            },
            Loading::Same => Entry {
                fingerprint: old.map(|old| old.fingerprint.clone()).unwrap_or_default(),
                tool: old.and_then(|old| old.tool.clone()),
                problem: old.and_then(|old| old.problem.clone()),
            },
        }
    }
}

fn read_config(explicit: Option<&Path>, cwd: &Path) -> Result<Loaded, Vec<Problem>> {
    config_file::load(explicit, cwd, &|name| std::env::var(name).ok())
}
