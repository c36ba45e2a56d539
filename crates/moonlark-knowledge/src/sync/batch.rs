//! Batches: what a scan finds, prepared in parallel and handed to the writer.

use std::sync::Arc;

use futures::{Stream, StreamExt};
use moonlark_core::{Problem, Result};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout_at};

use super::item_preparer::{ItemPreparer, SyncStep, content_bytes};
use super::sync_writer::SyncWriterMessage;
use crate::embedder::EmbeddingPurpose;
use crate::source_connector::ScanFinding;

/// Bytes of content that may be on their way at once.
const MAX_IN_FLIGHT_BYTES: usize = 64 << 20;

/// Until the scan is over, or nobody writes any more.
pub(super) async fn send_batches(
    preparing: Arc<ItemPreparer>,
    found: mpsc::Receiver<ScanFinding>,
    writer: mpsc::Sender<SyncWriterMessage>,
) -> Result<()> {
    let size = preparing.knowledge.batch;
    let mut steps = std::pin::pin!(prepare_steps(preparing.clone(), found));
    let mut embedding = preparing.model.is_some();
    let mut over = false;
    while !over {
        let mut batch = Vec::new();
        let (mut chunks, mut until) = (0, None);
        while batch.len() < size.items && chunks < size.chunks {
            let next = match until {
                None => steps.next().await,
                Some(until) => match timeout_at(until, steps.next()).await {
                    Ok(next) => next,
                    Err(_) => break,
                },
            };
            let Some(step) = next else {
                over = true;
                break;
            };
            until.get_or_insert_with(|| Instant::now() + size.time);
            if let SyncStep::Write(prepared) = &step {
                chunks += prepared.chunks.len();
            }
            batch.push(step);
        }
        let problem =
            if embedding { embed_batch(&preparing, &mut batch).await.err() } else { None };
        embedding &= problem.is_none();
        if !batch.is_empty() && writer.send(SyncWriterMessage::Batch(batch, problem)).await.is_err()
        {
            return Ok(());
        }
    }
    Ok(())
}

/// In the order in which they were found, so that the same scan gives the same file.
fn prepare_steps(
    preparing: Arc<ItemPreparer>,
    found: mpsc::Receiver<ScanFinding>,
) -> impl Stream<Item = SyncStep> {
    let most = MAX_IN_FLIGHT_BYTES;
    let room = Arc::new(Semaphore::new(most));
    let at_once = std::thread::available_parallelism().map_or(2, usize::from) * 4;
    let found = futures::stream::unfold(found, |mut found| async move {
        found.recv().await.map(|next| (next, found))
    });
    found
        .then(move |found| {
            let room = room.clone();
            async move {
                // Never more than there is, or one large item would wait for ever.
                let bytes = content_bytes(&found).min(most) as u32;
                (found, room.acquire_many_owned(bytes).await)
            }
        })
        .map(move |(found, held)| {
            let preparing = preparing.clone();
            async move {
                let name = finding_name(&found);
                let prepared = tokio::task::spawn_blocking(move || {
                    let _held = held;
                    preparing.prepare_step(found)
                });
                prepared.await.unwrap_or_else(|_| {
                    SyncStep::Failed(
                        name,
                        Problem::internal("reading it broke off: a defect of Moonlark"),
                    )
                })
            }
        })
        .buffered(at_once)
}

fn finding_name(found: &ScanFinding) -> String {
    match found {
        ScanFinding::Item(item) => item.source_id.clone(),
        ScanFinding::Same(name)
        | ScanFinding::Gone(name)
        | ScanFinding::Skipped(name, _)
        | ScanFinding::Failed(name, _) => name.clone(),
    }
}

/// Vectors for the chunks of a batch that have none yet.
async fn embed_batch(preparing: &ItemPreparer, batch: &mut [SyncStep]) -> Result<()> {
    let mut texts = Vec::new();
    let mut places = Vec::new();
    for (step, it) in batch.iter().enumerate() {
        let SyncStep::Write(prepared) = it else { continue };
        for number in (0..prepared.chunks.len()).filter(|at| prepared.chunks[*at].vector.is_none())
        {
            texts.push(prepared.chunk_embedding_text(number));
            places.push((step, number));
        }
    }
    if texts.is_empty() {
        return Ok(());
    }
    let rows =
        preparing.knowledge.settings.embedder.embed_texts(texts, EmbeddingPurpose::Sync).await?;
    for ((step, number), row) in places.into_iter().zip(rows) {
        if let SyncStep::Write(prepared) = &mut batch[step] {
            prepared.chunks[number].vector = Some(row);
        }
    }
    Ok(())
}
