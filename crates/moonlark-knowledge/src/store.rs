//! The database file: connections, versions, and the write lock.
//!
//! Everything is in one SQLite file in WAL mode, so that readers see the last
//! commit and never wait for the writer. The tables are named `kb_`; the journal
//! has a file of its own. What the tables mean is
//! in `schema.sql`; what is in them is written by [`crate::sync`] and read by
//! [`crate::knowledge_search`].

mod document_bodies;
mod document_changes;
mod documents;
mod source_lock;
mod source_rows;
mod statements;
mod store_error;

use std::path::{Path, PathBuf};
use std::time::Duration;

use moonlark_core::Result;
use moonlark_state::state_database::{DatabaseHints, StateDatabase};
use parking_lot::Mutex;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, TransactionBehavior};

pub(crate) use document_bodies::write_body;
pub(crate) use document_changes::{delete_chunks, delete_document, insert_chunk, write_document};
pub(crate) use documents::{
    DocumentRow, KnownDocument, chunk_range, documents_of_source, find_document,
    find_known_document, find_same_content, find_skip, find_stamp, forget_skip, parse_metadata,
    read_chunk_text, read_document, remember_skip, skips_of_source, timestamp_from_micros,
};
pub(crate) use source_lock::SourceLock;
pub(crate) use source_rows::{
    IndexGeneration, SourceRow, advance_generation, count_documents, delete_source, find_source,
    has_other_models, list_sources, read_generation, read_languages, read_next_chunk, read_recipe,
    record_sync_failure, record_sync_success, release_free_pages, set_next_chunk, set_recipe,
    source_statistics, synced_source_names, upsert_source,
};
pub(crate) use statements::{execute_cached, query_all, query_first};
pub(crate) use store_error::{MapStoreError, StoreResult, damaged_error};

static KNOWLEDGE_DATABASE: StateDatabase = StateDatabase {
    name: "the knowledge base",
    migrations: &[
        |transaction| transaction.execute_batch(include_str!("store/schema.sql")),
        |transaction| transaction.execute_batch(include_str!("store/languages.sql")),
    ],
    first_table: "kb_meta",
    busy_timeout: Duration::from_secs(30),
    max_kept_wal_bytes: 64 << 20,
    hints: DatabaseHints {
        newer: "use that one, or name another file by store.url and sync again",
        damaged: "move the file away and sync again: all of it is made from its sources",
        full: "make room on the disk and sync again: what was committed is not done again",
        unwritable: "the file and its folder have to be readable and writable for this process; store.url names another place",
    },
};

/// Connections kept for the next reader.
const MAX_IDLE_READERS: usize = 8;

/// Which file it is, whatever its name.
type FileIdentity = (u64, u64);

pub(crate) struct KnowledgeStore {
    file: PathBuf,
    /// With the file that each has open: it may have been replaced.
    idle: Mutex<Vec<(FileIdentity, Connection)>>,
    /// A full disk, for tests: no more pages than this.
    #[cfg(test)]
    pub(crate) most_pages: Option<u32>,
}

impl KnowledgeStore {
    pub(crate) fn new(file: &Path) -> KnowledgeStore {
        KnowledgeStore {
            file: file.to_owned(),
            idle: Mutex::default(),
            #[cfg(test)]
            most_pages: None,
        }
    }

    pub(crate) fn file(&self) -> &Path {
        &self.file
    }

    /// Read from one commit. Nothing where there is no knowledge base yet.
    pub(crate) fn in_read_transaction<T>(
        &self,
        work: impl FnOnce(&Connection) -> StoreResult<T>,
    ) -> Result<Option<T>> {
        let Some(identity) = self.file_identity() else { return Ok(None) };
        let idle = std::iter::from_fn(|| self.idle.lock().pop()).find(|(of, _)| *of == identity);
        let connection = match idle {
            Some((_, connection)) => connection,
            None => match self.open_reader()? {
                Some(connection) => connection,
                None => return Ok(None),
            },
        };
        let answer = {
            // Reads only: dropping it is as good as ending it.
            let transaction = connection.unchecked_transaction().map_store_error(&self.file)?;
            work(&transaction).map_store_error(&self.file)?
        };
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE_READERS {
            idle.push((identity, connection));
        }
        Ok(Some(answer))
    }

    fn file_identity(&self) -> Option<FileIdentity> {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(&self.file).ok().map(|it| (it.dev(), it.ino()))
    }

    /// A connection that writes; makes the file and its tables.
    pub(crate) fn open_writer(&self) -> Result<Connection> {
        let mut connection = KNOWLEDGE_DATABASE.open_to_write(&self.file)?;
        self.prepare_writer(&mut connection).map_store_error(&self.file)?;
        Ok(connection)
    }

    fn prepare_writer(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        prepare_connection(connection)?;
        // A crash of the process loses nothing; one of the machine may lose the
        // last commits, which the next sync makes again.
        connection.pragma_update(None, "synchronous", "normal")?;
        connection.pragma_update(None, "temp_store", "memory")?;
        #[cfg(test)]
        if let Some(most) = self.most_pages {
            connection.pragma_update(None, "max_page_count", most)?;
        }
        connection.set_transaction_behavior(TransactionBehavior::Immediate);
        Ok(())
    }

    /// A connection that only reads, if there is anything to read.
    pub(crate) fn open_reader(&self) -> Result<Option<Connection>> {
        let opened = KNOWLEDGE_DATABASE.open_existing(&self.file)?;
        let Some(connection) = opened else { return Ok(None) };
        let prepared = prepare_connection(&connection)
            .and_then(|()| connection.pragma_update(None, "query_only", true))
            .and_then(|()| connection.pragma_update(None, "cache_size", -16_384));
        prepared.map_store_error(&self.file)?;
        Ok(Some(connection))
    }
}

fn prepare_connection(connection: &Connection) -> rusqlite::Result<()> {
    // Or it plans anew whenever a parameter changes.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}
