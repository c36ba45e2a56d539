//! Removing a source with all its documents.

use moonlark_core::Result;

use super::sync_writer::remove_document;
use crate::index::{SegmentTombstones, merge_after_sync};
use crate::knowledge_database::KnowledgeDatabaseInner;
use crate::store::{self, MapStoreError, SourceLock, StoreResult};

/// In commits of this many, so that others can write in between.
const SOURCE_REMOVAL_BATCH: usize = 2_000;

pub(crate) fn remove_source(knowledge: &KnowledgeDatabaseInner, name: &str) -> Result<()> {
    let file = knowledge.store.file();
    if !file.exists() {
        return Ok(());
    }
    let _lock = SourceLock::try_acquire(file, name)?;
    let connection = knowledge.store.open_writer()?;
    let forget = || -> StoreResult<()> {
        let Some(source) = store::find_source(&connection, name)? else { return Ok(()) };
        let mut segments = SegmentTombstones::default();
        for some in store::documents_of_source(&connection, source)?.chunks(SOURCE_REMOVAL_BATCH) {
            let transaction = connection.unchecked_transaction()?;
            for document in some {
                remove_document(&transaction, &mut segments, *document)?;
            }
            segments.flush(&transaction)?;
            store::advance_generation(&transaction)?;
            transaction.commit()?;
        }
        let transaction = connection.unchecked_transaction()?;
        while merge_after_sync(&transaction)? {}
        store::delete_source(&transaction, source)?;
        store::advance_generation(&transaction)?;
        transaction.commit()?;
        store::release_free_pages(&connection)?;
        Ok(())
    };
    forget().map_store_error(file)
}
