//! Sync: from a connector to the file: what is new, what is gone, what failed.
//!
//! A scan streams what it finds. Items whose content is new are read, cut into
//! chunks and embedded on threads of their own; one writer commits them, some at
//! a time, each time with all that belongs to them. So memory does not depend on
//! how much there is, and a sync that is cut off anywhere goes on where its last
//! commit was. Documents that a scan did not name are removed only when it ended
//! well and said that it named everything.

mod batch;
mod item_preparer;
mod source_removal;
mod sync_writer;
mod vector_backfill;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use futures::FutureExt;
use moonlark_child::spawn_owned;
use moonlark_core::{Problem, ProblemCode, Result, Value};
use rusqlite::InterruptHandle;
use tokio::sync::mpsc;

use crate::knowledge_database::KnowledgeDatabaseInner;
use crate::run_blocking;
use crate::source_connector::{ScanOutcome, SourceConnector, SourceScan};
use crate::store::{self, MapStoreError};
use crate::sync_summary::{SyncOptions, SyncSummary};
use item_preparer::ItemPreparer;
pub(crate) use item_preparer::{HEADING_SEPARATOR, path_end, path_words};
pub(crate) use source_removal::remove_source;
pub(crate) use sync_writer::field_value;
use sync_writer::{SyncWriter, SyncWriterMessage};
pub(crate) use vector_backfill::backfill_vectors;

/// Items between a connector and us. Few: each may be as large as a file may be.
const SCAN_CHANNEL_CAPACITY: usize = 4;

/// How much is committed at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchSize {
    pub(crate) items: usize,
    pub(crate) chunks: usize,
    pub(crate) time: std::time::Duration,
}

impl Default for BatchSize {
    fn default() -> Self {
        BatchSize { items: 1_024, chunks: 8_192, time: std::time::Duration::from_secs(2) }
    }
}

pub(crate) async fn sync_source(
    knowledge: Arc<KnowledgeDatabaseInner>,
    name: &str,
    kind: &str,
    connector: Arc<dyn SourceConnector>,
    options: SyncOptions,
) -> Result<SyncSummary> {
    let began = Instant::now();
    let synced = run_sync(&knowledge, name, kind, connector, options).await;
    if let Err(problem) = &synced {
        let (name, problem) = (name.to_owned(), problem.clone());
        // Whoever works on it says himself how it went.
        let noted = run_blocking(move || record_failure(&knowledge, &name, &problem)).await;
        if let Err(problem) = noted {
            tracing::debug!("cannot note that a sync failed: {}", problem.to_line());
        }
    }
    synced.map(|summary| SyncSummary { took: began.elapsed(), ..summary })
}

fn record_failure(knowledge: &KnowledgeDatabaseInner, name: &str, problem: &Problem) -> Result<()> {
    let file = knowledge.store.file();
    if !file.exists() {
        return Ok(());
    }
    let Ok(_lock) = store::SourceLock::try_acquire(file, name) else { return Ok(()) };
    let writer = knowledge.store.open_writer()?;
    store::record_sync_failure(&writer, name, &problem.to_line()).map_store_error(file)
}

async fn run_sync(
    knowledge: &Arc<KnowledgeDatabaseInner>,
    name: &str,
    kind: &str,
    connector: Arc<dyn SourceConnector>,
    options: SyncOptions,
) -> Result<SyncSummary> {
    let begin = {
        let (knowledge, name, kind) = (knowledge.clone(), name.to_owned(), kind.to_owned());
        let options = options.clone();
        move || SyncWriter::begin_sync(&knowledge, &name, &kind, &options)
    };
    let (mut writer, state) = run_blocking(begin).await?;
    // Rows that are missing come first: what follows looks for nothing old.
    let embedding = backfill_vectors(knowledge).await.err();
    writer.note_embedding_problem(embedding.clone());
    let preparing = Arc::new(ItemPreparer {
        knowledge: knowledge.clone(),
        source: writer.source_number(),
        full: options.full,
        model: if embedding.is_none() { knowledge.settings.embedder.model_name() } else { None },
        reading: options.reading.clone(),
    });
    let abandoned = SyncAbortGuard::new(writer.interrupt_handle());
    let stopped = abandoned.stopped.clone();
    let (batches, inbox) = mpsc::channel(1);
    let mut writing = spawn_owned(run_blocking(move || writer.commit_until_end(inbox, &stopped)));
    let reading = async {
        let (out, found) = mpsc::channel(SCAN_CHANNEL_CAPACITY);
        let known = {
            let preparing = preparing.clone();
            run_blocking(move || preparing.stamp_lookup()).await?
        };
        let scan = SourceScan { known, state, out };
        let scanning = scan_checked(connector, scan);
        let batching = batch::send_batches(preparing.clone(), found, batches.clone());
        // Also of a scan that fails, what it found until then is kept.
        let (scanned, batched) = tokio::join!(scanning, batching);
        batched.and(scanned)
    };
    let scanned: Result<ScanOutcome> = tokio::select! {
        scanned = reading => scanned,
        // It only ends this early when it cannot write.
        written = &mut writing => return writer_outcome(written),
    };
    let scanned = match scanned {
        Ok(scanned) => scanned,
        Err(problem) => {
            drop(batches);
            return match writer_outcome(writing.await) {
                Err(other) if other.code != ProblemCode::Cancelled => Err(other),
                _ => Err(problem),
            };
        }
    };
    let sent = batches.send(SyncWriterMessage::End(scanned)).await;
    drop((sent, batches));
    writer_outcome(writing.await)
}

fn writer_outcome(
    written: Result<Result<SyncSummary>, tokio::task::JoinError>,
) -> Result<SyncSummary> {
    written.unwrap_or_else(|error| Err(Problem::internal(format!("the sync broke off: {error}"))))
}

/// Connectors are others' code: one that panics is one that failed.
async fn scan_checked(
    connector: Arc<dyn SourceConnector>,
    scan: SourceScan,
) -> Result<ScanOutcome> {
    let scanning = std::panic::AssertUnwindSafe(async move { connector.scan(scan).await });
    let scanned = scanning.catch_unwind().await.unwrap_or_else(|_| {
        Err(Problem::internal("the connector broke off while it was scanning"))
    })?;
    match &scanned.state {
        Value::Null => Ok(scanned),
        // Whatever cannot be kept is found out before anything is removed.
        state => state.encode_json("the connector's state").map(|_| scanned),
    }
}

/// Whoever drops a sync ends it: also a merge or a commit that is under way.
struct SyncAbortGuard {
    stopped: Arc<AtomicBool>,
    interrupt: InterruptHandle,
}

impl SyncAbortGuard {
    fn new(interrupt: InterruptHandle) -> SyncAbortGuard {
        SyncAbortGuard { stopped: Arc::default(), interrupt }
    }
}

impl Drop for SyncAbortGuard {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.interrupt.interrupt();
    }
}

#[cfg(test)]
mod tests;
