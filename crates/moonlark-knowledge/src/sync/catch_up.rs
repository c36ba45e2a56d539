//! Vectors that are missing: of another model than before, or because an
//! embedder did not answer.
//!
//! Segment by segment, each in one commit; the old model's rows answer until the
//! last segment has new ones, and go then.

use std::sync::Arc;

use moonlark_core::Result;
use rusqlite::Connection;

use crate::blocking;
use crate::embedder::{Patience, Row, text_of};
use crate::index::{chunks_in, drop_other_models, model_named, segments_without, write_vectors};
use crate::knowledge::Inner;
use crate::store::{self, Attempt, Explain};

/// Texts in memory at once.
const AT_ONCE: usize = 512;

pub(crate) async fn catch_up(knowledge: &Arc<Inner>) -> Result<()> {
    let Some(name) = knowledge.settings.embedder.name() else { return Ok(()) };
    let missing = {
        let (knowledge, name) = (knowledge.clone(), name.clone());
        blocking(move || knowledge.store.read(|connection| segments_without(connection, &name)))
            .await?
    };
    let missing = missing.unwrap_or_default();
    for segment in &missing {
        embed(knowledge, &name, *segment).await?;
    }
    let knowledge = knowledge.clone();
    blocking(move || finish(&knowledge, &name)).await
}

async fn embed(knowledge: &Arc<Inner>, name: &str, segment: i64) -> Result<()> {
    let read = move |connection: &Connection| chunks_in(connection, segment);
    let Some(chunks) = on(knowledge, read).await? else { return Ok(()) };
    let mut rows: Vec<u8> = Vec::new();
    let mut width = None;
    // A chunk that died meanwhile has no text; its row does not matter.
    let mut missing = 0;
    for some in chunks.chunks(AT_ONCE) {
        let texts = {
            let some = some.to_vec();
            on(knowledge, move |connection| texts(connection, &some)).await?.unwrap_or_default()
        };
        let (there, texts): (Vec<usize>, Vec<String>) =
            texts.into_iter().enumerate().filter_map(|(at, text)| Some((at, text?))).unzip();
        let made = knowledge.settings.embedder.rows(texts, Patience::Sync).await?;
        let mut made = there.into_iter().zip(made).peekable();
        for at in 0..some.len() {
            match made.next_if(|(of, _)| *of == at) {
                Some((_, row)) => push(&mut rows, &mut width, &mut missing, &row),
                None => match width {
                    Some(width) => rows.resize(rows.len() + width, 0),
                    None => missing += 1,
                },
            }
        }
    }
    let Some(width) = width else { return Ok(()) };
    let (knowledge, name, count) = (knowledge.clone(), name.to_owned(), chunks.len());
    blocking(move || {
        let file = knowledge.store.file();
        let connection = knowledge.store.writer()?;
        let write = || -> Attempt<()> {
            let transaction = connection.unchecked_transaction()?;
            // Merged or changed by another sync: then it is looked at next time.
            if chunks_in(&transaction, segment)?.len() != count {
                return Ok(());
            }
            let model = model_named(&transaction, &name, width)?;
            write_vectors(&transaction, segment, model.model, &rows)?;
            store::touch(&transaction)?;
            transaction.commit()?;
            Ok(())
        };
        write().explain(file)
    })
    .await
}

/// The first row says how wide those are that nobody will look at.
fn push(rows: &mut Vec<u8>, width: &mut Option<usize>, missing: &mut usize, row: &Row) {
    if width.is_none() {
        *width = Some(row.len());
        rows.resize(*missing * row.len(), 0);
    }
    rows.extend_from_slice(row);
}

/// What is embedded of these chunks.
fn texts(connection: &Connection, chunks: &[u32]) -> Attempt<Vec<Option<String>>> {
    let text = |chunk: &u32| -> Attempt<_> {
        let found = store::chunk_text(connection, *chunk)?;
        Ok(found.map(|it| text_of(&it.title, it.heading.as_deref(), &it.text)))
    };
    chunks.iter().map(text).collect()
}

fn finish(knowledge: &Inner, name: &str) -> Result<()> {
    let store = &knowledge.store;
    let done = store.read(|connection| {
        let without = segments_without(connection, name)?;
        Ok(without.is_empty() && store::has_other_models(connection, name)?)
    })?;
    if done != Some(true) {
        return Ok(());
    }
    let connection = store.writer()?;
    let drop = || -> Attempt<()> {
        let transaction = connection.unchecked_transaction()?;
        if segments_without(&transaction, name)?.is_empty() {
            drop_other_models(&transaction, name)?;
            store::touch(&transaction)?;
        }
        transaction.commit()?;
        Ok(())
    };
    drop().explain(store.file())
}

async fn on<T: Send + 'static>(
    knowledge: &Arc<Inner>,
    work: impl FnOnce(&Connection) -> Attempt<T> + Send + 'static,
) -> Result<Option<T>> {
    let knowledge = knowledge.clone();
    blocking(move || knowledge.store.read(work)).await
}
