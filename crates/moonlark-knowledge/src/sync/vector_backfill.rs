//! Vectors that are missing: of another model than before, or because an
//! embedder did not answer.
//!
//! Segment by segment, each in one commit; the old model's rows answer until the
//! last segment has new ones, and go then.

use std::sync::Arc;

use moonlark_core::Result;
use rusqlite::Connection;

use crate::embedder::{EmbeddingPurpose, QuantizedVector, embedding_text};
use crate::index::{
    chunks_in_segment, drop_other_models, find_or_create_model, segments_without_vectors,
    write_vectors,
};
use crate::knowledge_database::KnowledgeDatabaseInner;
use crate::run_blocking;
use crate::store::{self, MapStoreError, StoreResult};

/// Texts in memory at once.
const MAX_EMBEDDED_TEXTS: usize = 512;

pub(crate) async fn backfill_vectors(knowledge: &Arc<KnowledgeDatabaseInner>) -> Result<()> {
    let Some(name) = knowledge.settings.embedder.model_name() else { return Ok(()) };
    let missing = {
        let (knowledge, name) = (knowledge.clone(), name.clone());
        run_blocking(move || {
            knowledge
                .store
                .in_read_transaction(|connection| segments_without_vectors(connection, &name))
        })
        .await?
    };
    let missing = missing.unwrap_or_default();
    for segment in &missing {
        backfill_segment(knowledge, &name, *segment).await?;
    }
    let knowledge = knowledge.clone();
    run_blocking(move || drop_old_models(&knowledge, &name)).await
}

async fn backfill_segment(
    knowledge: &Arc<KnowledgeDatabaseInner>,
    name: &str,
    segment: i64,
) -> Result<()> {
    let read = move |connection: &Connection| chunks_in_segment(connection, segment);
    let Some(chunks) = read_blocking(knowledge, read).await? else { return Ok(()) };
    let mut rows: Vec<u8> = Vec::new();
    let mut width = None;
    // A chunk that died meanwhile has no text; its row does not matter.
    let mut missing = 0;
    for some in chunks.chunks(MAX_EMBEDDED_TEXTS) {
        let texts = {
            let some = some.to_vec();
            read_blocking(knowledge, move |connection| embedding_texts(connection, &some))
                .await?
                .unwrap_or_default()
        };
        let (there, texts): (Vec<usize>, Vec<String>) =
            texts.into_iter().enumerate().filter_map(|(at, text)| Some((at, text?))).unzip();
        let made = knowledge.settings.embedder.embed_texts(texts, EmbeddingPurpose::Sync).await?;
        let mut made = there.into_iter().zip(made).peekable();
        for at in 0..some.len() {
            match made.next_if(|(of, _)| *of == at) {
                Some((_, row)) => push_vector(&mut rows, &mut width, &mut missing, &row),
                None => match width {
                    Some(width) => rows.resize(rows.len() + width, 0),
                    None => missing += 1,
                },
            }
        }
    }
    let Some(width) = width else { return Ok(()) };
    let (knowledge, name, count) = (knowledge.clone(), name.to_owned(), chunks.len());
    run_blocking(move || {
        let file = knowledge.store.file();
        let connection = knowledge.store.open_writer()?;
        let write = || -> StoreResult<()> {
            let transaction = connection.unchecked_transaction()?;
            // Merged or changed by another sync: then it is looked at next time.
            if chunks_in_segment(&transaction, segment)?.len() != count {
                return Ok(());
            }
            let model = find_or_create_model(&transaction, &name, width)?;
            write_vectors(&transaction, segment, model.model, &rows)?;
            store::advance_generation(&transaction)?;
            transaction.commit()?;
            Ok(())
        };
        write().map_store_error(file)
    })
    .await
}

/// The first row says how wide those are that nobody will look at.
fn push_vector(
    rows: &mut Vec<u8>,
    width: &mut Option<usize>,
    missing: &mut usize,
    row: &QuantizedVector,
) {
    if width.is_none() {
        *width = Some(row.len());
        rows.resize(*missing * row.len(), 0);
    }
    rows.extend_from_slice(row);
}

/// What is embedded of these chunks.
fn embedding_texts(connection: &Connection, chunks: &[u32]) -> StoreResult<Vec<Option<String>>> {
    let text = |chunk: &u32| -> StoreResult<_> {
        let found = store::read_chunk_text(connection, *chunk)?;
        Ok(found.map(|it| embedding_text(&it.title, it.heading.as_deref(), &it.text)))
    };
    chunks.iter().map(text).collect()
}

fn drop_old_models(knowledge: &KnowledgeDatabaseInner, name: &str) -> Result<()> {
    let store = &knowledge.store;
    let done = store.in_read_transaction(|connection| {
        let without = segments_without_vectors(connection, name)?;
        Ok(without.is_empty() && store::has_other_models(connection, name)?)
    })?;
    if done != Some(true) {
        return Ok(());
    }
    let connection = store.open_writer()?;
    let drop = || -> StoreResult<()> {
        let transaction = connection.unchecked_transaction()?;
        if segments_without_vectors(&transaction, name)?.is_empty() {
            drop_other_models(&transaction, name)?;
            store::advance_generation(&transaction)?;
        }
        transaction.commit()?;
        Ok(())
    };
    drop().map_store_error(store.file())
}

async fn read_blocking<T: Send + 'static>(
    knowledge: &Arc<KnowledgeDatabaseInner>,
    work: impl FnOnce(&Connection) -> StoreResult<T> + Send + 'static,
) -> Result<Option<T>> {
    let knowledge = knowledge.clone();
    run_blocking(move || knowledge.store.in_read_transaction(work)).await
}
