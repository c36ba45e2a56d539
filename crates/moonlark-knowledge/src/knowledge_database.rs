//! The handle of the knowledge base.

use std::path::Path;
use std::sync::Arc;

use moonlark_core::{Problem, Result};
use tokio::sync::Semaphore;

use crate::chunk::ChunkSettings;
use crate::embedder::TextEmbedder;
use crate::extract::ExtractLimits;
use crate::index::CurrentIndexSnapshot;
use crate::knowledge_document::{KnowledgeDocument, SourceStats};
use crate::knowledge_search;
use crate::run_blocking;
use crate::search_query::{SearchQuery, SearchResults};
use crate::source_connector::SourceConnector;
use crate::store::{self, KnowledgeStore};
use crate::sync::{self, BatchSize};
use crate::sync_summary::{SyncOptions, SyncSummary};

/// Searches at once: each holds a number for every chunk.
const MAX_CONCURRENT_SEARCHES: usize = 8;

/// Changes when the same content would give other chunks or terms than before,
/// so that everything is read again.
const INDEX_RECIPE_VERSION: &str = "3";

#[derive(Clone, Default)]
pub struct KnowledgeSettings {
    pub embedder: TextEmbedder,
    pub chunks: ChunkSettings,
    pub extract: ExtractLimits,
}

/// One file of documents, their chunks and their index. Cheap to clone.
#[derive(Clone)]
pub struct KnowledgeDatabase(Arc<KnowledgeDatabaseInner>);

pub(crate) struct KnowledgeDatabaseInner {
    pub(crate) store: KnowledgeStore,
    pub(crate) settings: KnowledgeSettings,
    pub(crate) current: CurrentIndexSnapshot,
    pub(crate) readers: Semaphore,
    pub(crate) batch: BatchSize,
}

impl KnowledgeDatabase {
    /// The file is made by the first sync; until then there is nothing to find.
    /// One that is there has to be a knowledge base that we can read.
    pub async fn open(file: &Path, settings: KnowledgeSettings) -> Result<KnowledgeDatabase> {
        let knowledge =
            KnowledgeDatabase::new(KnowledgeStore::new(file), settings, BatchSize::default());
        let inner = knowledge.0.clone();
        run_blocking(move || inner.store.in_read_transaction(|_| Ok(()))).await?;
        Ok(knowledge)
    }

    pub(crate) fn new(
        store: KnowledgeStore,
        settings: KnowledgeSettings,
        batch: BatchSize,
    ) -> KnowledgeDatabase {
        KnowledgeDatabase(Arc::new(KnowledgeDatabaseInner {
            store,
            settings,
            current: CurrentIndexSnapshot::default(),
            readers: Semaphore::new(MAX_CONCURRENT_SEARCHES),
            batch,
        }))
    }

    pub fn file(&self) -> &Path {
        self.0.store.file()
    }

    /// The documents that answer a question, best first.
    pub async fn search(&self, query: SearchQuery) -> Result<SearchResults> {
        knowledge_search::search_documents(self.0.clone(), query).await
    }

    /// A document by its id, with its chunks.
    pub async fn get(&self, id: &str) -> Result<KnowledgeDocument> {
        let (inner, id) = (self.0.clone(), id.trim().to_owned());
        run_blocking(move || {
            // A chunk is named by its document's id and its number.
            let document = id.split_once('#').map_or(id.as_str(), |(document, _)| document);
            let found = inner.store.in_read_transaction(|connection| {
                let found = store::find_document(connection, document)?;
                found.map(|it| store::read_document(connection, it)).transpose()
            })?;
            found.flatten().ok_or_else(|| {
                let id = moonlark_core::value::shorten_text(document);
                Problem::not_found(format!("there is no document {id}"))
                    .with_hint("ids are in the results of search; a document that is gone from its source is gone here")
            })
        })
        .await
    }

    /// What there is of every source that was ever synced.
    pub async fn list_sources(&self) -> Result<Vec<SourceStats>> {
        let inner = self.0.clone();
        run_blocking(move || {
            let read = |connection: &_| Ok(store::source_statistics(connection)?);
            Ok(inner.store.in_read_transaction(read)?.unwrap_or_default())
        })
        .await
    }

    /// Which of these sources no sync has ever read to its end.
    pub async fn find_never_synced(&self, names: Vec<String>) -> Result<Vec<String>> {
        let inner = self.0.clone();
        run_blocking(move || {
            let read = |connection: &_| Ok(store::synced_source_names(connection)?);
            let synced = inner.store.in_read_transaction(read)?.unwrap_or_default();
            Ok(names.into_iter().filter(|name| !synced.contains(name)).collect())
        })
        .await
    }

    /// Bring the source `name` up to date. Dropping the future ends it; what was
    /// committed stays.
    pub async fn sync_source(
        &self,
        name: &str,
        kind: &str,
        connector: Arc<dyn SourceConnector>,
        options: SyncOptions,
    ) -> Result<SyncSummary> {
        sync::sync_source(self.0.clone(), name, kind, connector, options).await
    }

    /// Make the vectors that are missing, as after the embedder was changed.
    /// Until then the old ones answer. Every sync begins with this.
    #[cfg(test)]
    pub(crate) async fn backfill_vectors(&self) -> Result<()> {
        sync::backfill_vectors(&self.0).await
    }

    /// Remove a source with all its documents.
    pub async fn remove_source(&self, name: &str) -> Result<()> {
        let (inner, name) = (self.0.clone(), name.to_owned());
        run_blocking(move || sync::remove_source(&inner, &name)).await
    }
}

/// How chunks and terms are made.
pub(crate) fn index_recipe(settings: &KnowledgeSettings) -> String {
    let ChunkSettings { target, most, overlap } = settings.chunks;
    format!("{INDEX_RECIPE_VERSION} {target} {most} {overlap}")
}
