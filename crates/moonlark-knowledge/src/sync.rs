//! From a connector to the file: what is new, what is gone, what failed.
//!
//! A scan streams what it finds. Items whose content is new are read, cut into
//! chunks and embedded on threads of their own; one writer commits them, some at
//! a time, each time with all that belongs to them. So memory does not depend on
//! how much there is, and a sync that is cut off anywhere goes on where its last
//! commit was. Documents that a scan did not name are removed only when it ended
//! well and said that it named everything.

mod batch;
mod catch_up;
mod forget;
mod prepare;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use futures::FutureExt;
use moonlark_core::{Code, Problem, Result, Value};
use rusqlite::InterruptHandle;
use tokio::sync::mpsc;

use crate::blocking;
use crate::item::{Connector, Scan, Scanned};
use crate::knowledge::Inner;
use crate::store::{self, Explain};
use crate::summary::{Summary, SyncOptions};
pub(crate) use catch_up::catch_up;
pub(crate) use forget::forget;
use prepare::Preparing;
pub(crate) use prepare::{UNDER, path_words};
pub(crate) use write::field;
use write::{Message, Writer};

/// Items between a connector and us. Few: each may be as large as a file may be.
const WAITING: usize = 4;

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

pub(crate) async fn sync(
    knowledge: Arc<Inner>,
    name: &str,
    kind: &str,
    connector: Arc<dyn Connector>,
    options: SyncOptions,
) -> Result<Summary> {
    let began = Instant::now();
    let synced = run(&knowledge, name, kind, connector, options).await;
    if let Err(problem) = &synced {
        let (name, problem) = (name.to_owned(), problem.clone());
        // Whoever works on it says himself how it went.
        let noted = blocking(move || note(&knowledge, &name, &problem)).await;
        if let Err(problem) = noted {
            tracing::debug!("cannot note that a sync failed: {}", problem.line());
        }
    }
    synced.map(|summary| Summary { took: began.elapsed(), ..summary })
}

fn note(knowledge: &Inner, name: &str, problem: &Problem) -> Result<()> {
    let file = knowledge.store.file();
    if !file.exists() {
        return Ok(());
    }
    let Ok(_lock) = store::SourceLock::take(file, name) else { return Ok(()) };
    let writer = knowledge.store.writer()?;
    store::failed(&writer, name, &problem.line()).explain(file)
}

async fn run(
    knowledge: &Arc<Inner>,
    name: &str,
    kind: &str,
    connector: Arc<dyn Connector>,
    options: SyncOptions,
) -> Result<Summary> {
    let begin = {
        let (knowledge, name, kind) = (knowledge.clone(), name.to_owned(), kind.to_owned());
        let options = options.clone();
        move || Writer::begin(&knowledge, &name, &kind, &options)
    };
    let (mut writer, state) = blocking(begin).await?;
    // Rows that are missing come first: what follows looks for nothing old.
    let embedding = catch_up(knowledge).await.err();
    writer.embedding(embedding.clone());
    let preparing = Arc::new(Preparing {
        knowledge: knowledge.clone(),
        source: writer.source(),
        full: options.full,
        model: if embedding.is_none() { knowledge.settings.embedder.name() } else { None },
        reading: options.reading.clone(),
    });
    let abandoned = Abandon::new(writer.interrupt());
    let stopped = abandoned.stopped.clone();
    let (batches, inbox) = mpsc::channel(1);
    let mut writing = tokio::spawn(blocking(move || writer.run(inbox, &stopped)));
    let reading = async {
        let (out, found) = mpsc::channel(WAITING);
        let known = {
            let preparing = preparing.clone();
            blocking(move || preparing.known()).await?
        };
        let scan = Scan { known, state, out };
        let scanning = scan_well(connector, scan);
        let batching = batch::batches(preparing.clone(), found, batches.clone());
        // Also of a scan that fails, what it found until then is kept.
        let (scanned, batched) = tokio::join!(scanning, batching);
        batched.and(scanned)
    };
    let scanned: Result<Scanned> = tokio::select! {
        scanned = reading => scanned,
        // It only ends this early when it cannot write.
        written = &mut writing => return settled(written),
    };
    let scanned = match scanned {
        Ok(scanned) => scanned,
        Err(problem) => {
            drop(batches);
            return match settled(writing.await) {
                Err(other) if other.code != Code::Cancelled => Err(other),
                _ => Err(problem),
            };
        }
    };
    let sent = batches.send(Message::End(scanned)).await;
    drop((sent, batches));
    settled(writing.await)
}

fn settled(written: Result<Result<Summary>, tokio::task::JoinError>) -> Result<Summary> {
    written.unwrap_or_else(|error| Err(Problem::internal(format!("the sync broke off: {error}"))))
}

/// Connectors are others' code: one that panics is one that failed.
async fn scan_well(connector: Arc<dyn Connector>, scan: Scan) -> Result<Scanned> {
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
struct Abandon {
    stopped: Arc<AtomicBool>,
    interrupt: InterruptHandle,
}

impl Abandon {
    fn new(interrupt: InterruptHandle) -> Abandon {
        Abandon { stopped: Arc::default(), interrupt }
    }
}

impl Drop for Abandon {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.interrupt.interrupt();
    }
}

#[cfg(test)]
mod tests;
