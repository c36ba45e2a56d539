//! Vector backfill: vectors of another model than before, or missing because an embedder
//! did not answer.
//!
//! Segment by segment, each in one commit; the old model's rows answer until the
//! last segment has new ones, and go then.

use std::sync::Arc;

use moonlark_core::Result;
use rusqlite::Connection;

use crate::embedder::{EmbeddingPurpose, QuantizedVector, TextEmbedder, embedding_text};
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
    if let TextEmbedder::Unusable(problem) = &knowledge.settings.embedder {
        return Err((**problem).clone());
    }
    let Some(name) = knowledge.settings.embedder.model_name() else { return Ok(()) };
    let of = name.clone();
    let missing = move |connection: &Connection| segments_without_vectors(connection, &of);
    for segment in read_blocking(knowledge, missing).await?.unwrap_or_default() {
        backfill_segment(knowledge, &name, segment).await?;
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
    let mut rows: Vec<Option<QuantizedVector>> = Vec::with_capacity(chunks.len());
    for some in chunks.chunks(MAX_EMBEDDED_TEXTS) {
        let some = some.to_vec();
        let read = move |connection: &Connection| embedding_texts(connection, &some);
        let Some(texts) = read_blocking(knowledge, read).await? else { return Ok(()) };
        let there: Vec<bool> = texts.iter().map(Option::is_some).collect();
        let texts = texts.into_iter().flatten().collect();
        let made = knowledge.settings.embedder.embed_texts(texts, EmbeddingPurpose::Sync).await?;
        let mut made = made.into_iter();
        rows.extend(there.into_iter().map(|there| if there { made.next() } else { None }));
    }
    let Some(width) = rows.iter().flatten().next().map(Vec::len) else { return Ok(()) };
    // A chunk that died meanwhile has no text; its row does not matter.
    let filled = rows.into_iter().flat_map(|row| row.unwrap_or_else(|| vec![0; width]));
    let rows: Vec<u8> = filled.collect();
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
