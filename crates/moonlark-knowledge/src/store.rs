//! The file: connections, its version, and who may write.
//!
//! Everything is in one SQLite file in WAL mode, so that readers see the last
//! commit and never wait for the writer. The tables are named `kb_`; the journal
//! has a file of its own. What the tables mean is
//! in `schema.sql`; what is in them is written by [`crate::sync`] and read by
//! [`crate::search`].

mod document_bodies;
mod document_changes;
mod documents;
mod source_lock;
mod source_rows;
mod store_error;

use std::path::{Path, PathBuf};
use std::time::Duration;

use moonlark_core::{Problem, Result};
use parking_lot::Mutex;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

pub(crate) use document_bodies::write_body;
pub(crate) use document_changes::{
    delete_chunks, delete_document, insert_chunk, insert_document, update_document_content,
    update_document_row,
};
pub(crate) use documents::{
    DocumentRow, KnownDocument, chunk_range, documents_of_source, find_document,
    find_known_document, find_same_content, find_skip, find_stamp, forget_skip, parse_metadata,
    read_chunk_text, read_document, remember_skip, skips_of_source, timestamp_from_micros,
};
pub(crate) use source_lock::SourceLock;
pub(crate) use source_rows::{
    IndexGeneration, SourceRow, advance_generation, count_documents, delete_source, find_source,
    has_other_models, list_sources, read_generation, read_next_chunk, read_recipe,
    record_sync_failure, record_sync_success, release_free_pages, set_next_chunk, set_recipe,
    source_statistics, upsert_source,
};
pub(crate) use store_error::{MapStoreError, StoreResult, damaged_error};

/// What the tables are like. A file with a higher number is somebody else's.
const KNOWLEDGE_SCHEMA_VERSION: i64 = 1;

/// How long a writer waits for another one's commit.
const WRITER_BUSY_TIMEOUT: Duration = Duration::from_secs(30);
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
        if let Some(folder) = self.file.parent() {
            std::fs::create_dir_all(folder).map_err(|error| {
                Problem::unavailable(format!("cannot make {}: {error}", folder.display()))
                    .with_hint("the knowledge base is kept there; store.url names another place")
            })?;
        }
        self.create_private()?;
        let mut connection = self.open_connection(OpenFlags::SQLITE_OPEN_CREATE)?;
        self.prepare_writer(&mut connection).map_store_error(&self.file)?;
        match self.schema_version(&connection)? {
            Some(_) => (),
            None => self.create_tables(&mut connection)?,
        }
        Ok(connection)
    }

    /// Make the file for its user alone: documents are nobody else's to read. The files
    /// that SQLite puts beside it get the same permissions.
    fn create_private(&self) -> Result<()> {
        use std::os::unix::fs::OpenOptionsExt;
        let mut options = std::fs::OpenOptions::new();
        match options.write(true).create_new(true).mode(0o600).open(&self.file) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                Err(Problem::unavailable(format!("cannot make {}: {error}", self.file.display()))
                    .with_hint("the knowledge base is kept there; store.url names another place"))
            }
            _ => Ok(()),
        }
    }

    fn prepare_writer(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        // Says how the file is made, if it is not there yet.
        connection.pragma_update(None, "auto_vacuum", "incremental")?;
        connection.pragma_update(None, "journal_mode", "wal")?;
        // A crash of the process loses nothing; one of the machine may lose the
        // last commits, which the next sync makes again.
        connection.pragma_update(None, "synchronous", "normal")?;
        connection.pragma_update(None, "journal_size_limit", 64 << 20)?;
        connection.pragma_update(None, "temp_store", "memory")?;
        #[cfg(test)]
        if let Some(most) = self.most_pages {
            connection.pragma_update(None, "max_page_count", most)?;
        }
        connection.set_transaction_behavior(TransactionBehavior::Immediate);
        Ok(())
    }

    fn create_tables(&self, connection: &mut Connection) -> Result<()> {
        let transaction = connection.transaction().map_store_error(&self.file)?;
        // Somebody else may have been first.
        if self.schema_version(&transaction)?.is_none() {
            transaction
                .execute_batch(include_str!("store/schema.sql"))
                .map_store_error(&self.file)?;
            transaction
                .execute("INSERT INTO kb_meta VALUES ('version', ?1)", [KNOWLEDGE_SCHEMA_VERSION])
                .map_store_error(&self.file)?;
        }
        transaction.commit().map_store_error(&self.file)
    }

    /// A connection that only reads, if there is anything to read.
    pub(crate) fn open_reader(&self) -> Result<Option<Connection>> {
        if !self.file.exists() {
            return Ok(None);
        }
        let connection = self.open_connection(OpenFlags::empty())?;
        connection.pragma_update(None, "query_only", true).map_store_error(&self.file)?;
        connection.pragma_update(None, "cache_size", -16_384).map_store_error(&self.file)?;
        Ok(self.schema_version(&connection)?.map(|_| connection))
    }

    fn open_connection(&self, flags: OpenFlags) -> Result<Connection> {
        let flags = flags | OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection =
            Connection::open_with_flags(&self.file, flags).map_store_error(&self.file)?;
        connection.busy_timeout(WRITER_BUSY_TIMEOUT).map_store_error(&self.file)?;
        // Or it plans anew whenever a parameter changes.
        connection
            .set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
            .map_store_error(&self.file)?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(connection)
    }

    /// Which version the tables have, if there are any that we can read.
    fn schema_version(&self, connection: &Connection) -> Result<Option<i64>> {
        let there: bool = connection
            .query_row(
                "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'kb_meta')",
                [],
                |row| row.get(0),
            )
            .map_store_error(&self.file)?;
        if !there {
            return Ok(None);
        }
        let version: i64 = connection
            .query_row("SELECT value FROM kb_meta WHERE key = 'version'", [], |row| row.get(0))
            .map_store_error(&self.file)?;
        if version == KNOWLEDGE_SCHEMA_VERSION {
            return Ok(Some(version));
        }
        let file = self.file.display();
        Err(Problem::unavailable(format!(
            "the knowledge base {file} has version {version}, and this Moonlark knows version {KNOWLEDGE_SCHEMA_VERSION}"
        ))
        .with_retryable(false)
        .with_hint("it was written by a newer Moonlark: use that one, or name another file by store.url and sync again"))
    }
}
