//! Removing a source with all its documents.

use moonlark_core::Result;

use super::sync_writer::remove_documents;
use crate::index::{SegmentTombstones, merge_after_sync};
use crate::knowledge_database::KnowledgeDatabaseInner;
use crate::store::{self, MapStoreError, SourceLock, StoreResult};

pub(crate) fn remove_source(knowledge: &KnowledgeDatabaseInner, name: &str) -> Result<()> {
    let file = knowledge.store.file();
    if !file.exists() {
        return Ok(());
    }
    let _lock = SourceLock::try_acquire(file, name)?;
    let connection = knowledge.store.open_writer()?;
    let forget = || -> StoreResult<()> {
        let Some(source) = store::find_source(&connection, name)? else { return Ok(()) };
        let documents = store::documents_of_source(&connection, source)?;
        remove_documents(&connection, &mut SegmentTombstones::default(), &documents)?;
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
