//! The knowledge base: what connectors bring becomes documents, chunks and an
//! index, in one file, and is found again.
//!
//! Knows core and the ranking of `moonlark-search`. What a connector script is
//! knows the binary, which hands it over as a [`SourceConnector`].

#![cfg_attr(not(test), forbid(unsafe_code))]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)
)]

mod chunk;
mod embedder;
mod excerpt;
mod extract;
#[cfg(test)]
mod faults;
mod filesystem;
mod folder_watcher;
mod git;
mod globs;
mod index;
mod knowledge_database;
mod knowledge_document;
mod knowledge_search;
#[cfg(test)]
mod knowledge_testing;
mod search_query;
mod source_connector;
mod store;
mod sync;
mod sync_summary;

pub use chunk::{ChunkSettings, TextChunk, split_into_chunks};
pub use embedder::{
    EmbeddingApi, EmbeddingServiceSettings, LocalEmbedder, LocalModelFolder, LocalModelInfo,
    TextEmbedder,
};
pub use excerpt::{DocumentExcerpt, ExcerptRequest};
pub use extract::{
    ExtractLimits, ExtractedDocument, ExtractionOutcome, TextBlock, TextBlockKind,
    extract_document, run_pdf_reader_if_requested,
};
pub use filesystem::{FilesystemConnector, FilesystemSettings};
pub use folder_watcher::FolderWatcher;
pub use git::{GitConnector, GitRepository, GitSettings, redact_repository_url};
pub use knowledge_database::{KnowledgeDatabase, KnowledgeSettings};
pub use knowledge_document::{DocumentChunk, KnowledgeDocument, SourceStats};
pub use search_query::{
    DocumentHit, ScoreExplanation, SearchFilter, SearchMode, SearchQuery, SearchResults,
};
pub use source_connector::{
    ItemContent, KnownStamps, ScanFinding, ScanOutcome, ScanSender, SourceConnector, SourceItem,
    SourceScan,
};
pub use sync_summary::{
    ItemReadingCallback, NamedItems, SkippedItem, SyncOptions, SyncProgressCallback,
    SyncProgressCounts, SyncSummary,
};

/// Work that computes or waits for the disk, off the async threads.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> moonlark_core::Result<T> + Send + 'static,
) -> moonlark_core::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(moonlark_core::Problem::internal(format!("the work did not finish: {error}")))
    })
}
