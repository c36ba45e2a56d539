//! The knowledge base of a project: its file, its sources, and keeping it up to
//! date.
//!
//! Opened when it is first needed. What is searched, and how, is not known here
//! but in `moonlark-knowledge`; how tools ask is in `tools`.

mod background_sync;
mod knowledge_tools;
pub(crate) mod timestamps;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use moonlark_core::{Problem, Result};
use moonlark_gateway::Gateway;
use moonlark_knowledge::{
    ChunkSettings, EmbeddingApi, EmbeddingServiceSettings, KnowledgeDatabase, KnowledgeSettings,
    LocalModelFolder, SourceStats, SyncOptions, SyncSummary, TextEmbedder,
};
use parking_lot::Mutex;
use secrecy::SecretString;
use tokio::sync::watch;

use crate::cli::near_hint;
use crate::connectors::KnowledgeSource;
use moonlark_config::config_file::LoadedConfig;
use moonlark_config::{
    self as config, BUILTIN_EMBEDDER_NAME, EmbedderConfig, RemoteEmbedderKind, SyncTrigger,
};
use moonlark_state::state_folder::{STATE_FOLDER_NAME, prepare_state_folder, state_folder_path};

/// How long a service may take for one batch of texts.
const EMBEDDING_TIMEOUT: Duration = Duration::from_secs(60);

/// Of models that were added, in the state folder.
const MODELS_FOLDER_NAME: &str = "models";
/// That are said of a source.
const MAX_NAMED_LANGUAGES: usize = 4;

/// Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
pub(crate) struct KnowledgeBase(Arc<KnowledgeBaseInner>);

#[derive(Default)]
struct KnowledgeBaseInner {
    now: Mutex<KnowledgeBaseState>,
    opened: tokio::sync::Mutex<Option<(KnowledgeOpenOptions, KnowledgeDatabase)>>,
    /// Counts how often sources or settings became others.
    changed: watch::Sender<u64>,
}

/// What the configuration says at present.
#[derive(Clone, Default)]
struct KnowledgeBaseState {
    opened: KnowledgeOpenOptions,
    sources: Arc<Vec<KnowledgeSource>>,
    when: SyncTrigger,
    interval: Option<Duration>,
    /// Sources that there are documents of, where none is configured.
    left: Arc<Vec<String>>,
}

/// What a knowledge base is opened with.
#[derive(Clone, PartialEq, Default)]
struct KnowledgeOpenOptions {
    file: PathBuf,
    /// Of the project.
    root: PathBuf,
    config: config::KnowledgeConfig,
    /// What tells the model that is named from another of its name; none where it is not
    /// there. Only known once it is opened.
    model: Option<String>,
}

/// One source, as configured and as it is.
pub(crate) struct KnowledgeSourceStatus {
    pub(crate) stats: SourceStats,
    pub(crate) configured: bool,
    /// Why it cannot be read, or was not at the last sync.
    pub(crate) problem: Option<String>,
    /// What to do about that.
    pub(crate) hint: Option<String>,
    /// What the model that embeds does not know of its documents.
    pub(crate) note: Option<String>,
}

impl KnowledgeBase {
    /// Use these sources and settings from now on.
    pub(crate) fn apply_config(&self, loaded: &LoadedConfig, sources: Vec<KnowledgeSource>) {
        let config = &loaded.config.knowledge;
        let opened = KnowledgeOpenOptions {
            file: loaded.config.store.sqlite_file(&loaded.root),
            root: loaded.root.clone(),
            config: config.clone(),
            model: None,
        };
        let interval = config.interval.map(config::TimeoutSeconds::to_duration);
        let left = Arc::default();
        let next = KnowledgeBaseState {
            opened,
            sources: Arc::new(sources),
            when: config.sync,
            interval,
            left,
        };
        let mut now = self.0.now.lock();
        let same_sources = now.sources.len() == next.sources.len()
            && now.sources.iter().zip(&*next.sources).all(|(a, b)| a.reads_same_as(b));
        let same = same_sources && now.opened == next.opened && now.interval == next.interval;
        *now = next;
        drop(now);
        if !same {
            self.0.changed.send_modify(|count| *count += 1);
        }
    }

    pub(crate) fn sources(&self) -> Arc<Vec<KnowledgeSource>> {
        self.0.now.lock().sources.clone()
    }

    pub(crate) fn find_source(&self, name: &str) -> Result<KnowledgeSource> {
        let sources = self.sources();
        sources.iter().find(|it| it.name == name).cloned().ok_or_else(|| {
            let names = sources.iter().map(|it| it.name.as_str());
            let near = near_hint(name, names.clone());
            let all = names.collect::<Vec<_>>().join(", ");
            let name = moonlark_core::value::shorten_text(name);
            let hint = near.unwrap_or_else(|| match all.as_str() {
                "" => FIRST_SOURCE_HINT.to_owned(),
                all => format!("there are {all}"),
            });
            Problem::bad_request(format!("there is no connector {name}")).with_hint(hint)
        })
    }

    /// Whether any source is configured.
    pub(crate) fn is_configured(&self) -> bool {
        !self.0.now.lock().sources.is_empty()
    }

    /// Whether there is, or is to be, anything to find.
    pub(crate) fn has_sources_or_documents(&self) -> bool {
        let now = self.0.now.lock();
        !now.sources.is_empty() || !now.left.is_empty()
    }

    /// See whether there are documents although no source is configured.
    pub(crate) async fn find_leftover_sources(&self) {
        if self.is_configured() || !self.database_file().exists() {
            return;
        }
        let left = match self.open().await {
            Ok(knowledge) => knowledge.list_sources().await.unwrap_or_default(),
            // Whoever searches is told.
            Err(_) => return,
        };
        let names = left.into_iter().filter(|it| it.documents > 0).map(|it| it.name).collect();
        self.0.now.lock().left = Arc::new(names);
    }

    pub(crate) fn database_file(&self) -> PathBuf {
        self.0.now.lock().opened.file.clone()
    }

    /// The knowledge base itself, as the configuration is now.
    pub(crate) async fn open(&self) -> Result<KnowledgeDatabase> {
        let mut wanted = self.0.now.lock().opened.clone();
        if let Some(problem) = wanted.config.outage.first() {
            return Err(problem.clone());
        }
        // One that is added later is used from then on.
        wanted.model = named_model_id(&wanted);
        let mut opened = self.0.opened.lock().await;
        if let Some((_, knowledge)) = opened.as_ref().filter(|(with, _)| *with == wanted) {
            return Ok(knowledge.clone());
        }
        // Elsewhere, the folder is the operator's own business.
        if let Some(folder) =
            wanted.file.parent().filter(|folder| folder.ends_with(STATE_FOLDER_NAME))
        {
            prepare_state_folder(folder);
        }
        let knowledge = KnowledgeDatabase::open(&wanted.file, knowledge_settings(&wanted)).await?;
        *opened = Some((wanted, knowledge.clone()));
        Ok(knowledge)
    }

    /// The same for readers, who have nothing to read before the first sync.
    async fn open_for_reading(&self, what: &str) -> Result<KnowledgeDatabase> {
        if !self.is_configured() {
            let is_empty = !self.database_file().exists()
                || self.open().await?.list_sources().await?.is_empty();
            if is_empty {
                return Err(Problem::unavailable(format!(
                    "{what}: there is no knowledge base yet"
                ))
                .with_hint(FIRST_SOURCE_HINT)
                .with_retryable(false));
            }
        }
        self.open().await
    }

    /// Why nothing can be embedded as configured: search is by words, and nothing is synced.
    pub(crate) fn embedder_problem(&self) -> Option<Problem> {
        let options = self.0.now.lock().opened.clone();
        configured_embedder(&options).err()
    }

    /// Bring one source up to date.
    pub(crate) async fn sync_source(
        &self,
        source: &KnowledgeSource,
        gateway: &Gateway,
        options: SyncOptions,
    ) -> Result<SyncSummary> {
        if let Some(problem) = self.embedder_problem() {
            return Err(problem);
        }
        let connector = source.make_connector(options.full, gateway)?;
        let knowledge = self.open().await?;
        knowledge.sync_source(&source.name, source.kind(), connector, options).await
    }

    /// Remove what came from sources that are no longer configured: their names.
    pub(crate) async fn forget_unconfigured_sources(&self) -> Result<Vec<SourceStats>> {
        let (knowledge, sources) = (self.open().await?, self.sources());
        let mut forgotten = Vec::new();
        for stats in knowledge.list_sources().await? {
            if !sources.iter().any(|it| it.name == stats.name) {
                knowledge.remove_source(&stats.name).await?;
                forgotten.push(stats);
            }
        }
        Ok(forgotten)
    }

    /// All sources, configured or left from before, in order.
    pub(crate) async fn source_statuses(&self) -> Result<Vec<KnowledgeSourceStatus>> {
        let sources = self.sources();
        let mut there = if self.database_file().exists() {
            self.open().await?.list_sources().await?
        } else {
            Vec::new()
        };
        let mut known = Vec::new();
        for source in sources.iter() {
            let stats = match there.iter().position(|it| it.name == source.name) {
                Some(index) => there.swap_remove(index),
                None => never_synced_stats(source),
            };
            let again = || Some(format!("`moonlark sync {}` tries again", stats.name));
            let (problem, hint) = match (&source.problem, &stats.problem) {
                (Some(problem), _) => (Some(problem.to_line()), problem.hint.clone()),
                (None, Some(problem)) => (Some(problem.clone()), again()),
                (None, None) => (None, None),
            };
            let note = self.language_note(&stats);
            known.push(KnowledgeSourceStatus { stats, configured: true, problem, hint, note });
        }
        there.sort_by(|a, b| a.name.cmp(&b.name));
        known.extend(there.into_iter().map(|stats| {
            let problem = stats.problem.clone();
            let hint =
                problem.as_ref().map(|_| "`moonlark sync` removes what is left of it".into());
            let note = self.language_note(&stats);
            KnowledgeSourceStatus { stats, configured: false, problem, hint, note }
        }));
        Ok(known)
    }

    /// The model in the binary has read English: what is in other languages is found by
    /// its words.
    fn language_note(&self, stats: &SourceStats) -> Option<String> {
        let is_builtin = match &self.0.now.lock().opened.config.embedder {
            EmbedderConfig::Named(name) => name == BUILTIN_EMBEDDER_NAME,
            EmbedderConfig::Service(_) => false,
        };
        if !is_builtin || stats.languages.is_empty() {
            return None;
        }
        let mut named: Vec<String> = stats
            .languages
            .iter()
            .take(MAX_NAMED_LANGUAGES)
            .map(|(language, count)| format!("{count} in {}", language.name()))
            .collect();
        if stats.languages.len() > MAX_NAMED_LANGUAGES {
            named.push("more in others".to_owned());
        }
        Some(format!(
            "{}: found by their words, hardly by meaning, since the built-in model has read English only",
            named.join(", ")
        ))
    }
}

/// What to do where there is nothing to search.
pub(crate) const FIRST_SOURCE_HINT: &str = "name a source in moonlark.toml, such as [connectors.filesystem.docs] with root = \"docs\", then run `moonlark sync`";

fn never_synced_stats(source: &KnowledgeSource) -> SourceStats {
    SourceStats {
        name: source.name.clone(),
        kind: source.kind().to_owned(),
        documents: 0,
        chunks: 0,
        languages: Vec::new(),
        last_sync: None,
        problem: None,
    }
}

/// Where the models are that were added to a project.
pub(crate) fn local_models(root: &Path) -> LocalModelFolder {
    LocalModelFolder::new(state_folder_path(root).join(MODELS_FOLDER_NAME))
}

fn named_model_id(options: &KnowledgeOpenOptions) -> Option<String> {
    match &options.config.embedder {
        EmbedderConfig::Named(name) if name != BUILTIN_EMBEDDER_NAME => {
            let opened = local_models(&options.root).open_model(name).ok()?;
            Some(opened.id().to_owned())
        }
        EmbedderConfig::Named(_) | EmbedderConfig::Service(_) => None,
    }
}

fn configured_embedder(options: &KnowledgeOpenOptions) -> Result<TextEmbedder> {
    Ok(match &options.config.embedder {
        EmbedderConfig::Named(name) if name == BUILTIN_EMBEDDER_NAME => TextEmbedder::Builtin,
        EmbedderConfig::Named(name) => {
            let opened = local_models(&options.root).open_model(name);
            TextEmbedder::Local(opened.map_err(|problem| {
                Problem::bad_config(format!("knowledge.embedder: {}", problem.message))
                    .with_hint("`moonlark model add FOLDER` adds it; \"builtin\" is always there")
            })?)
        }
        EmbedderConfig::Service(service) => {
            TextEmbedder::Http(Box::new(EmbeddingServiceSettings {
                speaks: match service.kind {
                    RemoteEmbedderKind::Openai => EmbeddingApi::OpenAi,
                    RemoteEmbedderKind::Ollama => EmbeddingApi::Ollama,
                },
                url: service.url.clone(),
                model: service.model.clone(),
                api_key: service.api_key.as_ref().map(|key| SecretString::from(key.0.clone())),
                dimensions: service.dimensions.map(|count| count as usize),
                batch: service.batch as usize,
                timeout: EMBEDDING_TIMEOUT,
                client: moonlark_http::shared_http_client()?.clone(),
            }))
        }
    })
}

fn knowledge_settings(options: &KnowledgeOpenOptions) -> KnowledgeSettings {
    let config = &options.config;
    // Without it there are still the words of all documents.
    let embedder = configured_embedder(options)
        .unwrap_or_else(|problem| TextEmbedder::Unusable(Box::new(problem)));
    // The three go together: a block is cut when it is much longer than a chunk.
    let usual = ChunkSettings::default();
    let target = config.chunk as usize;
    let chunks = ChunkSettings {
        target,
        most: target * usual.most / usual.target,
        overlap: target * usual.overlap / usual.target,
    };
    KnowledgeSettings { embedder, chunks, ..KnowledgeSettings::default() }
}
