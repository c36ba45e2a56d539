//! The knowledge base of a project: its file, its sources, and keeping it up to
//! date.
//!
//! Opened when it is first needed. What is searched, and how, is not known here
//! but in `moonlark-knowledge`; how tools ask is in `tools`.

mod follow;
pub(crate) mod time;
mod tools;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use moonlark_core::{Gateway, Problem, Result};
use moonlark_knowledge::{
    ChunkSettings, Embedder, HttpSettings, Knowledge, Settings, SourceStats, Speaks, Summary,
    SyncOptions,
};
use parking_lot::Mutex;
use secrecy::SecretString;
use tokio::sync::watch;

use crate::config::{self, EmbedderKind, SyncWhen};
use crate::config_file::Loaded;
use crate::connectors::Source;
use crate::state_folder::{STATE_FOLDER, prepare_state_folder};

/// How long a service may take for one batch of texts.
const PATIENCE: Duration = Duration::from_secs(60);

/// Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
pub(crate) struct KnowledgeBase(Arc<Inner>);

#[derive(Default)]
struct Inner {
    now: Mutex<Now>,
    opened: tokio::sync::Mutex<Option<(Opened, Knowledge)>>,
    /// Counts how often sources or settings became others.
    changed: watch::Sender<u64>,
}

/// What the configuration says at present.
#[derive(Clone, Default)]
struct Now {
    opened: Opened,
    sources: Arc<Vec<Source>>,
    when: SyncWhen,
    interval: Option<Duration>,
    /// Sources that there are documents of, where none is configured.
    left: Arc<Vec<String>>,
}

/// What a knowledge base is opened with.
#[derive(Clone, PartialEq, Default)]
struct Opened {
    file: PathBuf,
    config: config::Knowledge,
}

/// One source, as configured and as it is.
pub(crate) struct Known {
    pub(crate) stats: SourceStats,
    pub(crate) configured: bool,
    /// Why it cannot be read, or was not at the last sync.
    pub(crate) problem: Option<String>,
    /// What to do about that.
    pub(crate) hint: Option<String>,
}

impl KnowledgeBase {
    /// Use these sources and settings from now on.
    pub(crate) fn apply(&self, loaded: &Loaded, sources: Vec<Source>) {
        let config = &loaded.config.knowledge;
        let opened =
            Opened { file: loaded.config.store.file(&loaded.root), config: config.clone() };
        let interval = config.interval.map(config::Seconds::duration);
        let left = Arc::default();
        let next = Now { opened, sources: Arc::new(sources), when: config.sync, interval, left };
        let mut now = self.0.now.lock();
        let same_sources = now.sources.len() == next.sources.len()
            && now.sources.iter().zip(&*next.sources).all(|(a, b)| a.reads_like(b));
        let same = same_sources && now.opened == next.opened && now.interval == next.interval;
        *now = next;
        drop(now);
        if !same {
            self.0.changed.send_modify(|count| *count += 1);
        }
    }

    pub(crate) fn sources(&self) -> Arc<Vec<Source>> {
        self.0.now.lock().sources.clone()
    }

    pub(crate) fn source(&self, name: &str) -> Result<Source> {
        let sources = self.sources();
        sources.iter().find(|it| it.name == name).cloned().ok_or_else(|| {
            let names = sources.iter().map(|it| it.name.as_str());
            let near = moonlark_core::nearest::nearest(name, names.clone());
            let all = names.collect::<Vec<_>>().join(", ");
            let name = moonlark_core::value::shorten(name);
            Problem::bad_request(format!("there is no connector {name}")).hint(match near {
                Some(near) => format!("did you mean {near}?"),
                None if all.is_empty() => HOW_TO_BEGIN.to_owned(),
                None => format!("there are {all}"),
            })
        })
    }

    /// Whether any source is configured.
    pub(crate) fn is_configured(&self) -> bool {
        !self.0.now.lock().sources.is_empty()
    }

    /// Whether there is, or is to be, anything to find.
    pub(crate) fn has_anything(&self) -> bool {
        let now = self.0.now.lock();
        !now.sources.is_empty() || !now.left.is_empty()
    }

    /// See whether there are documents although no source is configured.
    pub(crate) async fn look_for_left_sources(&self) {
        if self.is_configured() || !has_file(&self.file()) {
            return;
        }
        let left = match self.open().await {
            Ok(knowledge) => knowledge.sources().await.unwrap_or_default(),
            // Whoever searches is told.
            Err(_) => return,
        };
        let names = left.into_iter().filter(|it| it.documents > 0).map(|it| it.name).collect();
        self.0.now.lock().left = Arc::new(names);
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.now.lock().opened.file.clone()
    }

    /// The knowledge base itself, as the configuration is now.
    pub(crate) async fn open(&self) -> Result<Knowledge> {
        let wanted = self.0.now.lock().opened.clone();
        if let Some(problem) = wanted.config.outage.first() {
            return Err(problem.clone());
        }
        let mut opened = self.0.opened.lock().await;
        if let Some((_, knowledge)) = opened.as_ref().filter(|(with, _)| *with == wanted) {
            return Ok(knowledge.clone());
        }
        // Elsewhere, the folder is the operator's own business.
        if let Some(folder) = wanted.file.parent().filter(|folder| folder.ends_with(STATE_FOLDER)) {
            prepare_state_folder(folder);
        }
        let knowledge = Knowledge::open(&wanted.file, settings(&wanted.config)?).await?;
        *opened = Some((wanted, knowledge.clone()));
        Ok(knowledge)
    }

    /// The same for readers, who have nothing to read before the first sync.
    async fn open_to_read(&self, what: &str) -> Result<Knowledge> {
        if !self.is_configured() {
            let nothing = |_| self.nothing_yet(what);
            if !has_file(&self.file()) {
                return Err(nothing(()));
            }
            let knowledge = self.open().await?;
            return match knowledge.sources().await?.is_empty() {
                true => Err(nothing(())),
                false => Ok(knowledge),
            };
        }
        self.open().await
    }

    fn nothing_yet(&self, what: &str) -> Problem {
        Problem::unavailable(format!("{what}: there is no knowledge base yet"))
            .hint(HOW_TO_BEGIN)
            .retryable_if(false)
    }

    /// Bring one source up to date.
    pub(crate) async fn sync(
        &self,
        source: &Source,
        gateway: &Gateway,
        options: SyncOptions,
    ) -> Result<Summary> {
        let connector = source.connector(options.full, gateway)?;
        let knowledge = self.open().await?;
        knowledge.sync(&source.name, source.kind(), connector, options).await
    }

    /// Remove what came from sources that are no longer configured: their names.
    pub(crate) async fn forget_others(&self) -> Result<Vec<SourceStats>> {
        let (knowledge, sources) = (self.open().await?, self.sources());
        let mut forgotten = Vec::new();
        for stats in knowledge.sources().await? {
            if !sources.iter().any(|it| it.name == stats.name) {
                knowledge.forget(&stats.name).await?;
                forgotten.push(stats);
            }
        }
        Ok(forgotten)
    }

    /// All sources, configured or left from before, in order.
    pub(crate) async fn known(&self) -> Result<Vec<Known>> {
        let sources = self.sources();
        let mut there = match has_file(&self.file()) {
            true => self.open().await?.sources().await?,
            false => Vec::new(),
        };
        let mut known = Vec::new();
        for source in sources.iter() {
            let stats = match there.iter().position(|it| it.name == source.name) {
                Some(index) => there.swap_remove(index),
                None => never_synced(source),
            };
            let again = || Some(format!("`moonlark sync {}` tries again", stats.name));
            let (problem, hint) = match (&source.problem, &stats.problem) {
                (Some(problem), _) => (Some(problem.line()), problem.hint.clone()),
                (None, Some(problem)) => (Some(problem.clone()), again()),
                (None, None) => (None, None),
            };
            known.push(Known { stats, configured: true, problem, hint });
        }
        there.sort_by(|a, b| a.name.cmp(&b.name));
        known.extend(there.into_iter().map(|stats| {
            let problem = stats.problem.clone();
            let hint =
                problem.as_ref().map(|_| "`moonlark sync` removes what is left of it".into());
            Known { stats, configured: false, problem, hint }
        }));
        Ok(known)
    }
}

/// What to do where there is nothing to search.
pub(crate) const HOW_TO_BEGIN: &str = "name a source in moonlark.toml, such as [connectors.filesystem.docs] with root = \"docs\", then run `moonlark sync`";

fn never_synced(source: &Source) -> SourceStats {
    SourceStats {
        name: source.name.clone(),
        kind: source.kind().to_owned(),
        documents: 0,
        chunks: 0,
        last_sync: None,
        problem: None,
    }
}

fn has_file(file: &Path) -> bool {
    file.exists()
}

fn settings(config: &config::Knowledge) -> Result<Settings> {
    let embedder = match &config.embedder {
        config::Embedder::Named(_) => Embedder::Builtin,
        config::Embedder::Service(service) => Embedder::Http(Box::new(HttpSettings {
            speaks: match service.kind {
                EmbedderKind::Openai => Speaks::OpenAi,
                EmbedderKind::Ollama => Speaks::Ollama,
            },
            url: service.url.clone(),
            model: service.model.clone(),
            api_key: service.api_key.as_ref().map(|key| SecretString::from(key.0.clone())),
            dimensions: service.dimensions.map(|count| count as usize),
            batch: service.batch as usize,
            timeout: PATIENCE,
            client: moonlark_upstream::auth::client()?.clone(),
        })),
    };
    // The three go together: a block is cut when it is much longer than a chunk.
    let usual = ChunkSettings::default();
    let target = config.chunk as usize;
    let chunks = ChunkSettings {
        target,
        most: target * usual.most / usual.target,
        overlap: target * usual.overlap / usual.target,
    };
    Ok(Settings { embedder, chunks, ..Settings::default() })
}
