//! The knowledge base as the rest of the program holds it.

use std::path::Path;
use std::sync::Arc;

use moonlark_core::{Code, Problem, Result};
use tokio::sync::Semaphore;

use crate::blocking;
use crate::chunk::ChunkSettings;
use crate::document::{Document, SourceStats};
use crate::embedder::Embedder;
use crate::extract::ExtractLimits;
use crate::index::Current;
use crate::item::Connector;
use crate::query::{Answer, Query};
use crate::search;
use crate::store::{self, Store};
use crate::summary::{Summary, SyncOptions};
use crate::sync::{self, BatchSize};

/// Searches at once: each holds a number for every chunk.
const READERS: usize = 8;

/// Changes when the same content would give other chunks or terms than before,
/// so that everything is read again.
const MAKING: &str = "2";

#[derive(Clone, Default)]
pub struct Settings {
    pub embedder: Embedder,
    pub chunks: ChunkSettings,
    pub extract: ExtractLimits,
}

/// One file of documents, their chunks and their index. Cheap to clone.
#[derive(Clone)]
pub struct Knowledge(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) store: Store,
    pub(crate) settings: Settings,
    pub(crate) current: Current,
    pub(crate) readers: Semaphore,
    pub(crate) batch: BatchSize,
}

impl Knowledge {
    /// The file is made by the first sync; until then there is nothing to find.
    /// One that is there has to be a knowledge base that we can read.
    pub async fn open(file: &Path, settings: Settings) -> Result<Knowledge> {
        let knowledge = Knowledge::new(Store::new(file), settings, BatchSize::default());
        let inner = knowledge.0.clone();
        blocking(move || inner.store.read(|_| Ok(()))).await?;
        Ok(knowledge)
    }

    pub(crate) fn new(store: Store, settings: Settings, batch: BatchSize) -> Knowledge {
        Knowledge(Arc::new(Inner {
            store,
            settings,
            current: Current::default(),
            readers: Semaphore::new(READERS),
            batch,
        }))
    }

    pub fn file(&self) -> &Path {
        self.0.store.file()
    }

    /// The documents that answer a question, best first.
    pub async fn search(&self, query: Query) -> Result<Answer> {
        search::search(self.0.clone(), query).await
    }

    /// A document by its id, with its chunks.
    pub async fn get(&self, id: &str) -> Result<Document> {
        let (inner, id) = (self.0.clone(), id.trim().to_owned());
        blocking(move || {
            // A chunk is named by its document's id and its number.
            let document = id.split_once('#').map_or(id.as_str(), |(document, _)| document);
            let found = inner.store.read(|connection| {
                let found = store::find(connection, document)?;
                found.map(|it| store::read_document(connection, it)).transpose()
            })?;
            found.flatten().ok_or_else(|| {
                let id = moonlark_core::value::shorten(document);
                Problem::new(Code::NotFound, format!("there is no document {id}"))
                    .hint("ids are in the results of search; a document that is gone from its source is gone here")
            })
        })
        .await
    }

    /// What there is of every source that was ever synced.
    pub async fn sources(&self) -> Result<Vec<SourceStats>> {
        let inner = self.0.clone();
        blocking(move || {
            let statistics = inner.store.read(|connection| Ok(store::statistics(connection)?))?;
            Ok(statistics.unwrap_or_default())
        })
        .await
    }

    /// Bring the source `name` up to date. Dropping the future ends it; what was
    /// committed stays.
    pub async fn sync(
        &self,
        name: &str,
        kind: &str,
        connector: Arc<dyn Connector>,
        options: SyncOptions,
    ) -> Result<Summary> {
        sync::sync(self.0.clone(), name, kind, connector, options).await
    }

    /// Make the vectors that are missing, as after the embedder was changed.
    /// Until then the old ones answer. Every sync begins with this.
    pub async fn catch_up(&self) -> Result<()> {
        sync::catch_up(&self.0).await
    }

    /// Remove a source with all its documents.
    pub async fn forget(&self, name: &str) -> Result<()> {
        let (inner, name) = (self.0.clone(), name.to_owned());
        blocking(move || sync::forget(&inner, &name)).await
    }
}

/// How chunks and terms are made.
pub(crate) fn recipe(settings: &Settings) -> String {
    let ChunkSettings { target, most, overlap } = settings.chunks;
    format!("{MAKING} {target} {most} {overlap}")
}
