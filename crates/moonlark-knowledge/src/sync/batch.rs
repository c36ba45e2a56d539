//! What a scan finds, prepared in parallel and handed to the writer in batches.

use std::sync::Arc;

use futures::{Stream, StreamExt};
use moonlark_core::{Problem, Result};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{Instant, timeout_at};

use super::prepare::{Preparing, Step, weight};
use super::write::Message;
use crate::embedder::Patience;
use crate::item::Found;

/// Bytes of content that may be on their way at once.
const ON_THE_WAY: usize = 64 << 20;

/// Until the scan is over, or nobody writes any more.
pub(super) async fn batches(
    preparing: Arc<Preparing>,
    found: mpsc::Receiver<Found>,
    writer: mpsc::Sender<Message>,
) -> Result<()> {
    let size = preparing.knowledge.batch;
    let mut steps = std::pin::pin!(steps(preparing.clone(), found));
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
            if let Step::Write(prepared) = &step {
                chunks += prepared.chunks.len();
            }
            batch.push(step);
        }
        let problem = match embedding {
            true => embed(&preparing, &mut batch).await.err(),
            false => None,
        };
        embedding &= problem.is_none();
        if !batch.is_empty() && writer.send(Message::Batch(batch, problem)).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// In the order in which they were found, so that the same scan gives the same file.
fn steps(preparing: Arc<Preparing>, found: mpsc::Receiver<Found>) -> impl Stream<Item = Step> {
    let most = ON_THE_WAY;
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
                let bytes = weight(&found).min(most) as u32;
                (found, room.acquire_many_owned(bytes).await)
            }
        })
        .map(move |(found, held)| {
            let preparing = preparing.clone();
            async move {
                let name = name_of(&found);
                let prepared = tokio::task::spawn_blocking(move || {
                    let _held = held;
                    preparing.step(found)
                });
                prepared.await.unwrap_or_else(|_| {
                    Step::Failed(
                        name,
                        Problem::internal("reading it broke off: a defect of Moonlark"),
                    )
                })
            }
        })
        .buffered(at_once)
}

fn name_of(found: &Found) -> String {
    match found {
        Found::Item(item) => item.source_id.clone(),
        Found::Same(name)
        | Found::Gone(name)
        | Found::Skipped(name, _)
        | Found::Failed(name, _) => name.clone(),
    }
}

/// Vectors for the chunks of a batch that have none yet.
async fn embed(preparing: &Preparing, batch: &mut [Step]) -> Result<()> {
    let mut texts = Vec::new();
    let mut places = Vec::new();
    for (step, it) in batch.iter().enumerate() {
        let Step::Write(prepared) = it else { continue };
        for number in (0..prepared.chunks.len()).filter(|at| prepared.chunks[*at].vector.is_none())
        {
            texts.push(prepared.text(number));
            places.push((step, number));
        }
    }
    if texts.is_empty() {
        return Ok(());
    }
    let rows = preparing.knowledge.settings.embedder.rows(texts, Patience::Sync).await?;
    for ((step, number), row) in places.into_iter().zip(rows) {
        if let Step::Write(prepared) = &mut batch[step] {
            prepared.chunks[number].vector = Some(row);
        }
    }
    Ok(())
}
