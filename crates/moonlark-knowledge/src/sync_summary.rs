//! Sync summary and progress.

use std::sync::Arc;
use std::time::Duration;

use moonlark_core::Problem;

/// How many skipped and failed items are kept by name; the rest is counted.
const MAX_NAMED_ITEMS: usize = 100;

/// What one sync did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SyncSummary {
    pub added: u64,
    pub changed: u64,
    pub removed: u64,
    pub unchanged: u64,
    pub skipped: NamedItems<SkippedItem>,
    pub failed: NamedItems<Problem>,
    /// Chunks that were made.
    pub chunks: u64,
    /// Bytes of content that were read.
    pub bytes: u64,
    /// Why chunks have no vectors yet. The next sync tries again; until then
    /// they are found by their words.
    pub embedding: Option<Problem>,
    pub took: Duration,
}

/// Why an item is not in the knowledge base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedItem {
    pub reason: String,
    /// It was not skipped for this reason at the last sync.
    pub is_new: bool,
}

/// Items with what is to be said about each: how many, and the first of them.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedItems<T> {
    pub count: u64,
    pub first: Vec<(String, T)>,
}

impl<T> Default for NamedItems<T> {
    fn default() -> Self {
        NamedItems { count: 0, first: Vec::new() }
    }
}

impl<T> NamedItems<T> {
    pub(crate) fn push(&mut self, name: String, what: T) {
        self.count += 1;
        if self.first.len() < MAX_NAMED_ITEMS {
            self.first.push((name, what));
        }
    }
}

/// How far a sync is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SyncProgressCounts {
    /// Items dealt with.
    pub done: u64,
    /// How many there were at the last sync: about how many there will be.
    pub expected: Option<u64>,
    /// Bytes of content read.
    pub bytes: u64,
    /// Chunks made.
    pub chunks: u64,
    /// Items that are safe: a sync that is cut off now does not do them again.
    pub committed: u64,
    pub failed: u64,
}

/// Told on every step, from several threads; must return at once.
pub type SyncProgressCallback = Arc<dyn Fn(SyncProgressCounts) + Send + Sync>;

/// Told the name of an item when its content is read, from several threads; must
/// return at once.
pub type ItemReadingCallback = Arc<dyn Fn(&str) + Send + Sync>;

/// How to sync.
#[derive(Clone)]
pub struct SyncOptions {
    /// Read everything again, whatever seems unchanged.
    pub full: bool,
    pub progress: SyncProgressCallback,
    pub reading: ItemReadingCallback,
}

impl Default for SyncOptions {
    fn default() -> Self {
        SyncOptions { full: false, progress: Arc::new(|_| ()), reading: Arc::new(|_| ()) }
    }
}
