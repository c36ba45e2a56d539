//! The file: connections, its version, and who may write.
//!
//! Everything is in one SQLite file in WAL mode, so that readers see the last
//! commit and never wait for the writer. The tables are named `kb_`; the journal
//! has a file of its own. What the tables mean is
//! in `schema.sql`; what is in them is written by [`crate::sync`] and read by
//! [`crate::search`].

mod bodies;
mod changes;
mod documents;
mod failure;
mod lock;
mod meta;

use std::path::{Path, PathBuf};
use std::time::Duration;

use moonlark_core::{Problem, Result};
use parking_lot::Mutex;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

pub(crate) use bodies::write_body;
pub(crate) use changes::{
    delete_chunks, delete_document, insert_chunk, insert_row, update_content, update_row,
};
pub(crate) use documents::{
    Known, Row, alike, chunk_range, chunk_text, documents_of, find, forget_skip, known, known_skip,
    known_stamp, metadata, read_document, remember_skip, skips_of, timestamp,
};
pub(crate) use failure::{Attempt, Explain, damaged};
pub(crate) use lock::SourceLock;
pub(crate) use meta::{
    Generation, Source, count_documents, ended_well, failed, find_source, forget_source,
    generation, give_back, has_other_models, made_by, next_chunk, set_made_by, set_next_chunk,
    source_named, sources, statistics, touch,
};

/// What the tables are like. A file with a higher number is somebody else's.
const VERSION: i64 = 1;

/// How long a writer waits for another one's commit.
const PATIENCE: Duration = Duration::from_secs(30);
/// Connections kept for the next reader.
const IDLE: usize = 8;

/// Which file it is, whatever its name.
type Identity = (u64, u64);

pub(crate) struct Store {
    file: PathBuf,
    /// With the file that each has open: it may have been replaced.
    idle: Mutex<Vec<(Identity, Connection)>>,
    /// A full disk, for tests: no more pages than this.
    #[cfg(test)]
    pub(crate) most_pages: Option<u32>,
}

impl Store {
    pub(crate) fn new(file: &Path) -> Store {
        Store {
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
    pub(crate) fn read<T>(
        &self,
        work: impl FnOnce(&Connection) -> Attempt<T>,
    ) -> Result<Option<T>> {
        let Some(identity) = self.identity() else { return Ok(None) };
        let idle = std::iter::from_fn(|| self.idle.lock().pop()).find(|(of, _)| *of == identity);
        let connection = match idle {
            Some((_, connection)) => connection,
            None => match self.reader()? {
                Some(connection) => connection,
                None => return Ok(None),
            },
        };
        let answer = {
            // Reads only: dropping it is as good as ending it.
            let transaction = connection.unchecked_transaction().explain(&self.file)?;
            work(&transaction).explain(&self.file)?
        };
        let mut idle = self.idle.lock();
        if idle.len() < IDLE {
            idle.push((identity, connection));
        }
        Ok(Some(answer))
    }

    fn identity(&self) -> Option<Identity> {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(&self.file).ok().map(|it| (it.dev(), it.ino()))
    }

    /// A connection that writes; makes the file and its tables.
    pub(crate) fn writer(&self) -> Result<Connection> {
        if let Some(folder) = self.file.parent() {
            std::fs::create_dir_all(folder).map_err(|error| {
                Problem::unavailable(format!("cannot make {}: {error}", folder.display()))
                    .hint("the knowledge base is kept there; store.url names another place")
            })?;
        }
        self.create_private()?;
        let mut connection = self.connect(OpenFlags::SQLITE_OPEN_CREATE)?;
        self.prepare_writer(&mut connection).explain(&self.file)?;
        match self.version(&connection)? {
            Some(_) => (),
            None => self.create(&mut connection)?,
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
                    .hint("the knowledge base is kept there; store.url names another place"))
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

    fn create(&self, connection: &mut Connection) -> Result<()> {
        let transaction = connection.transaction().explain(&self.file)?;
        // Somebody else may have been first.
        if self.version(&transaction)?.is_none() {
            transaction.execute_batch(include_str!("store/schema.sql")).explain(&self.file)?;
            transaction
                .execute("INSERT INTO kb_meta VALUES ('version', ?1)", [VERSION])
                .explain(&self.file)?;
        }
        transaction.commit().explain(&self.file)
    }

    /// A connection that only reads, if there is anything to read.
    pub(crate) fn reader(&self) -> Result<Option<Connection>> {
        if !self.file.exists() {
            return Ok(None);
        }
        let connection = self.connect(OpenFlags::empty())?;
        connection.pragma_update(None, "query_only", true).explain(&self.file)?;
        connection.pragma_update(None, "cache_size", -16_384).explain(&self.file)?;
        Ok(self.version(&connection)?.map(|_| connection))
    }

    fn connect(&self, flags: OpenFlags) -> Result<Connection> {
        let flags = flags | OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.file, flags).explain(&self.file)?;
        connection.busy_timeout(PATIENCE).explain(&self.file)?;
        // Or it plans anew whenever a parameter changes.
        connection
            .set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
            .explain(&self.file)?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(connection)
    }

    /// Which version the tables have, if there are any that we can read.
    fn version(&self, connection: &Connection) -> Result<Option<i64>> {
        let there: bool = connection
            .query_row(
                "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'kb_meta')",
                [],
                |row| row.get(0),
            )
            .explain(&self.file)?;
        if !there {
            return Ok(None);
        }
        let version: i64 = connection
            .query_row("SELECT value FROM kb_meta WHERE key = 'version'", [], |row| row.get(0))
            .explain(&self.file)?;
        if version == VERSION {
            return Ok(Some(version));
        }
        let file = self.file.display();
        Err(Problem::unavailable(format!(
            "the knowledge base {file} has version {version}, and this Moonlark knows version {VERSION}"
        ))
        .retryable_if(false)
        .hint("it was written by a newer Moonlark: use that one, or name another file by store.url and sync again"))
    }
}
