//! The knowledge base: what connectors bring becomes documents, chunks and an
//! index, in one file, and is found again.
//!
//! Knows core and the ranking of `moonlark-search`. What a connector script is
//! knows the binary, which hands it over as a [`Connector`].

#![cfg_attr(not(test), forbid(unsafe_code))]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod chunk;
mod document;
mod embedder;
mod excerpt;
mod extract;
#[cfg(test)]
mod faults;
mod filesystem;
mod git;
mod globs;
mod index;
mod item;
mod knowledge;
mod query;
mod search;
mod store;
mod summary;
mod sync;
#[cfg(test)]
mod testing;
mod watch;

pub use chunk::{Chunk, ChunkSettings, chunk};
pub use document::{Document, Part, SourceStats};
pub use embedder::{Embedder, HttpSettings, Speaks};
pub use excerpt::{DocumentExcerpt, ExcerptRequest};
pub use extract::{Block, ExtractLimits, Extracted, Kind, Reading, extract, read_if_asked};
pub use filesystem::{Filesystem, FilesystemSettings};
pub use git::{Git, GitSettings, Repository, without_secrets};
pub use item::{Connector, Content, Found, Item, Known, Out, Scan, Scanned};
pub use knowledge::{Knowledge, Settings};
pub use query::{Answer, Explain, Filter, Hit, Mode, Query};
pub use summary::{Advance, ItemReading, Named, Progress, SkippedItem, Summary, SyncOptions};
pub use watch::Watch;

/// Work that computes or waits for the disk, off the async threads.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> moonlark_core::Result<T> + Send + 'static,
) -> moonlark_core::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(moonlark_core::Problem::internal(format!("the work did not finish: {error}")))
    })
}

/// Where a letter begins, at this byte or before it.
pub(crate) fn floor(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}
