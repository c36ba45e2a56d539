//! The connector interface: what connectors bring to a sync, and how.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use moonlark_core::tool::BoxFuture;
use moonlark_core::{Problem, Result, Value};
use tokio::sync::mpsc;

use crate::extract::file_extension;

/// One document as its source has it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SourceItem {
    /// What the source calls it: a path, a key, a number. Unique there, and the
    /// same at the next sync.
    pub source_id: String,
    pub title: Option<String>,
    pub content: ItemContent,
    /// A media type; guessed from the name and the content where it is missing.
    pub content_type: Option<String>,
    pub source_url: Option<String>,
    pub author: Option<String>,
    pub created_at: Option<Timestamp>,
    pub updated_at: Option<Timestamp>,
    /// An object, or null.
    pub metadata: Value,
    /// Changes whenever the content may have: size and time of a file, an object
    /// id of git. Whoever has one is asked for the content only when it changed.
    pub stamp: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ItemContent {
    Text(String),
    Bytes(Bytes),
}

impl SourceItem {
    /// A file by its path below the root of its source.
    pub(crate) fn from_file(path: String, content: Vec<u8>) -> SourceItem {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let metadata = Value::from_fields([
            ("folder", folder.into()),
            ("extension", file_extension(&path).into()),
        ]);
        let content = ItemContent::Bytes(content.into());
        SourceItem { content, metadata, source_id: path, ..SourceItem::default() }
    }
}

impl ItemContent {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            ItemContent::Text(text) => text.as_bytes(),
            ItemContent::Bytes(bytes) => bytes,
        }
    }
}

impl Default for ItemContent {
    fn default() -> Self {
        ItemContent::Text(String::new())
    }
}

/// What a scan says about one document.
#[derive(Debug)]
pub enum ScanFinding {
    /// It is there; the sync sees whether its content is new.
    Item(Box<SourceItem>),
    /// It is there with the stamp it had.
    Same(String),
    /// It is no longer there. Only a scan that is not complete has to say so.
    Gone(String),
    /// It is there and nothing we can read: which, and why not.
    Skipped(String, String),
    /// It could not be read this time: it stays as it was.
    Failed(String, Problem),
}

/// One pass over a source.
pub struct SourceScan {
    /// The stamp a document had at the last sync.
    pub known: Arc<KnownStamps>,
    /// What the last scan that ended well left for this one.
    pub state: Value,
    pub out: ScanSender,
}

/// From what a source calls a document to the stamp it had.
pub type KnownStamps = dyn Fn(&str) -> Option<String> + Send + Sync;

/// Bounded: a scan waits while the sync is behind. Closed when the sync is over.
pub type ScanSender = mpsc::Sender<ScanFinding>;

/// How a scan ended that ended well.
#[derive(Debug, Clone, PartialEq)]
pub struct ScanOutcome {
    /// Whether it named everything there is: what it did not name is gone.
    pub complete: bool,
    /// For the next scan.
    pub state: Value,
}

/// A place that documents come from.
pub trait SourceConnector: Send + Sync {
    fn scan(self: Arc<Self>, scan: SourceScan) -> BoxFuture<Result<ScanOutcome>>;
}
