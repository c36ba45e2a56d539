//! SQLite state files: opened in one way, migrated to the schema that this program knows,
//! with errors as Problems.
//!
//! The version is in the file's `user_version`. Every step from one version to the next
//! is a transaction of its own, so a step that fails leaves the version before it.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use moonlark_core::{Problem, ProblemCode, Result};
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};

use crate::atomic_file::{create_private_folder, parent_folder};

/// Between two tries to open a file that is just being opened or closed elsewhere.
const OPEN_RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// Changes the tables of one version into those of the next.
pub type MigrationStep = fn(&Transaction<'_>) -> rusqlite::Result<()>;

/// What kind of file it is: its tables, and how people are told about it.
#[derive(Debug)]
pub struct StateDatabase {
    /// With its article: "the journal".
    pub name: &'static str,
    /// The first makes the tables of version 1 in a new file, and so on. Steps are only
    /// ever added: files of every earlier version go through them.
    pub migrations: &'static [MigrationStep],
    /// A table of version 1. With it, a file without a version has version 1: such were
    /// written before the version was kept in `user_version`.
    pub first_table: &'static str,
    /// How long a statement waits for another process.
    pub busy_timeout: Duration,
    /// Bytes of the file beside the database that stay after a burst.
    pub max_kept_wal_bytes: i64,
    pub hints: DatabaseHints,
}

/// What the operator can do about it.
#[derive(Debug)]
pub struct DatabaseHints {
    pub newer: &'static str,
    pub damaged: &'static str,
    pub full: &'static str,
    pub unwritable: &'static str,
}

impl StateDatabase {
    /// Open the file for writing, with the tables of this version; make it, for this user
    /// alone, if there is none. One of a newer version is refused and left as it is.
    pub fn open_to_write(&self, path: &Path) -> Result<Connection> {
        // What SQLite makes beside it is as private as the file.
        let mut options = OpenOptions::new();
        let made = create_private_folder(parent_folder(path)).and_then(|()| {
            match options.write(true).create_new(true).mode(0o600).open(path) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
                _ => Ok(()),
            }
        });
        made.map_err(|error| self.unwritable_problem(path, &error))?;
        self.open_patiently(path, || {
            let mut connection = self.connect(path)?;
            self.check_version(&connection)?;
            // Only a new file can still choose; it lets unused pages be given back.
            connection.pragma_update(None, "auto_vacuum", "incremental")?;
            connection.pragma_update(None, "journal_mode", "wal")?;
            connection.pragma_update(None, "journal_size_limit", self.max_kept_wal_bytes)?;
            self.migrate(&mut connection)?;
            Ok(connection)
        })
    }

    /// Open a file that is there; none if there is none, or nothing of ours in it yet. One
    /// of an older version is brought to this one.
    pub fn open_existing(&self, path: &Path) -> Result<Option<Connection>> {
        if !path.exists() {
            return Ok(None);
        }
        self.open_patiently(path, || {
            let mut connection = self.connect(path)?;
            if self.check_version(&connection)? == 0 {
                return Ok(None);
            }
            self.migrate(&mut connection)?;
            Ok(Some(connection))
        })
    }

    /// What SQLite says about the file at `path`.
    pub fn problem(&self, path: &Path, error: &rusqlite::Error) -> Problem {
        let (name, file) = (self.name, path.display());
        let damaged = |message: String| {
            Problem::unavailable(message).with_retryable(false).with_hint(self.hints.damaged)
        };
        let Some(code) = error.sqlite_error_code() else {
            // A column that is not what the tables say.
            return damaged(format!("{name} {file} is damaged: {error}"));
        };
        match code {
            ErrorCode::NotADatabase => damaged(format!("{file} is not {name}, or damaged")),
            ErrorCode::DatabaseCorrupt => damaged(format!("{name} {file} is damaged: {error}")),
            ErrorCode::DiskFull => Problem::unavailable(format!(
                "there is no room for {name} {file}: the disk is full"
            ))
            .with_hint(self.hints.full),
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
                Problem::unavailable(format!("{name} {file} is being written by another process"))
                    .with_hint("try again in a moment")
            }
            ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied => {
                self.unwritable_problem(path, error)
            }
            ErrorCode::OperationInterrupted => {
                Problem::new(ProblemCode::Cancelled, "the work was given up")
            }
            ErrorCode::SystemIoFailure => {
                Problem::unavailable(format!("{name} {file} cannot be read or written: {error}"))
                    .with_hint("look at the disk and how full it is, then try again")
            }
            _ => Problem::internal(format!("{name} {file} cannot be used: {error}")),
        }
    }

    fn unwritable_problem(&self, path: &Path, error: &dyn std::error::Error) -> Problem {
        let (name, file) = (self.name, path.display());
        Problem::unavailable(format!("{name} {file} cannot be opened for writing: {error}"))
            .with_retryable(false)
            .with_hint(self.hints.unwritable)
    }

    fn connect(&self, path: &Path) -> rusqlite::Result<Connection> {
        // Also to read: reading a WAL means taking part in it.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(self.busy_timeout)?;
        Ok(connection)
    }

    /// SQLite waits for no lock while a WAL is begun, recovered or removed by its last
    /// user, so that is tried again here.
    fn open_patiently<T>(
        &self,
        path: &Path,
        open: impl Fn() -> Result<T, OpenDatabaseError>,
    ) -> Result<T> {
        let until = Instant::now() + self.busy_timeout;
        loop {
            match open() {
                Err(OpenDatabaseError::Sqlite(error))
                    if is_busy(&error) && Instant::now() < until =>
                {
                    std::thread::sleep(OPEN_RETRY_INTERVAL);
                }
                Err(OpenDatabaseError::Sqlite(error)) => return Err(self.problem(path, &error)),
                Err(OpenDatabaseError::Newer(version)) => {
                    return Err(self.newer_problem(path, version));
                }
                Ok(opened) => return Ok(opened),
            }
        }
    }

    /// The version of the tables in the file, which is not higher than ours.
    fn check_version(&self, connection: &Connection) -> Result<usize, OpenDatabaseError> {
        let version = self.read_version(connection)?;
        match usize::try_from(version) {
            Ok(version) if version <= self.migrations.len() => Ok(version),
            _ => Err(OpenDatabaseError::Newer(version)),
        }
    }

    fn read_version(&self, connection: &Connection) -> rusqlite::Result<i64> {
        match connection.query_row("PRAGMA user_version", [], |row| row.get(0))? {
            0 => connection.query_row(
                "SELECT count(*) FROM sqlite_master WHERE name = ?1",
                [self.first_table],
                |row| row.get(0),
            ),
            version => Ok(version),
        }
    }

    fn migrate(&self, connection: &mut Connection) -> Result<(), OpenDatabaseError> {
        while self.check_version(connection)? < self.migrations.len() {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            // Another process may have been faster.
            let version = self.check_version(&transaction)?;
            if let Some(step) = self.migrations.get(version) {
                step(&transaction)?;
                transaction.pragma_update(None, "user_version", version as i64 + 1)?;
            }
            transaction.commit()?;
        }
        Ok(())
    }

    fn newer_problem(&self, path: &Path, version: i64) -> Problem {
        Problem::unavailable(format!(
            "{} {} was written by a newer Moonlark: its tables have version {version}, and this one knows version {}",
            self.name,
            path.display(),
            self.migrations.len()
        ))
        .with_retryable(false)
        .with_hint(self.hints.newer)
    }
}

enum OpenDatabaseError {
    Sqlite(rusqlite::Error),
    Newer(i64),
}

impl From<rusqlite::Error> for OpenDatabaseError {
    fn from(error: rusqlite::Error) -> Self {
        OpenDatabaseError::Sqlite(error)
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    const FIRST: MigrationStep = |it| it.execute_batch("CREATE TABLE notes (text TEXT)");
    const SECOND: MigrationStep =
        |it| it.execute_batch("ALTER TABLE notes ADD COLUMN author TEXT DEFAULT 'nobody'");
    const BROKEN: MigrationStep =
        |it| it.execute_batch("DELETE FROM notes; ALTER TABLE missing ADD COLUMN x");

    fn notes(migrations: &'static [MigrationStep]) -> StateDatabase {
        StateDatabase {
            name: "the notebook",
            migrations,
            first_table: "notes",
            busy_timeout: Duration::from_secs(5),
            max_kept_wal_bytes: 1 << 20,
            hints: DatabaseHints {
                newer: "run the newer one",
                damaged: "move it away",
                full: "make room",
                unwritable: "make it writable",
            },
        }
    }

    fn version(path: &Path) -> i64 {
        let connection = Connection::open(path).unwrap();
        connection.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap()
    }

    fn count(connection: &Connection, sql: &str) -> i64 {
        connection.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_file_of_an_older_version_is_migrated_whoever_opens_it() {
        let root = tempfile::tempdir().unwrap();
        for reads in [false, true] {
            let path = root.path().join(format!("new/{reads}.db"));
            assert!(notes(&[FIRST]).open_existing(&path).unwrap().is_none());
            let old = notes(&[FIRST]).open_to_write(&path).unwrap();
            old.execute("INSERT INTO notes VALUES ('a')", []).unwrap();
            drop(old);
            let both = notes(&[FIRST, SECOND]);
            let new = if reads {
                both.open_existing(&path).unwrap().unwrap()
            } else {
                both.open_to_write(&path).unwrap()
            };
            assert_eq!(count(&new, "SELECT count(*) FROM notes WHERE author = 'nobody'"), 1);
            assert_eq!(version(&path), 2);
            assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_file_of_a_newer_version_is_refused_and_left_untouched() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a.db");
        drop(notes(&[FIRST, SECOND]).open_to_write(&path).unwrap());
        let before = std::fs::read(&path).unwrap();
        let old = notes(&[FIRST]);
        let problem = old.open_to_write(&path).unwrap_err();
        assert_eq!(
            problem.to_string(),
            format!(
                "error[unavailable]: the notebook {} was written by a newer Moonlark: its tables have version 2, and this one knows version 1\nhint: run the newer one",
                path.display()
            )
        );
        assert!(!problem.is_retryable());
        assert_eq!(old.open_existing(&path).unwrap_err(), problem);
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }

    #[test]
    fn a_step_that_fails_half_way_leaves_the_version_before_it() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a.db");
        let old = notes(&[FIRST]).open_to_write(&path).unwrap();
        old.execute("INSERT INTO notes VALUES ('a')", []).unwrap();
        drop(old);
        let problem = notes(&[FIRST, SECOND, BROKEN]).open_to_write(&path).unwrap_err();
        assert_eq!(problem.code, ProblemCode::Internal, "{problem}");
        assert_eq!(version(&path), 2);
        let connection = notes(&[FIRST, SECOND]).open_existing(&path).unwrap().unwrap();
        assert_eq!(count(&connection, "SELECT count(*) FROM notes"), 1);
    }

    #[test]
    fn tables_without_a_version_are_the_first_and_other_tables_do_not_matter() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a.db");
        let other = Connection::open(&path).unwrap();
        other.execute_batch("CREATE TABLE guests (name)").unwrap();
        assert!(notes(&[FIRST, SECOND]).open_existing(&path).unwrap().is_none());
        other.execute_batch("CREATE TABLE notes (text TEXT)").unwrap();
        let opened = notes(&[FIRST, SECOND]).open_existing(&path).unwrap().unwrap();
        assert_eq!(count(&opened, "SELECT count(author) FROM notes"), 0);
        assert_eq!(version(&path), 2);
    }

    #[test]
    fn many_who_open_a_file_at_once_migrate_it_once() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a.db");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| notes(&[FIRST, SECOND]).open_to_write(&path).unwrap());
            }
        });
        assert_eq!(version(&path), 2);
    }

    #[test]
    fn what_is_no_database_is_said_and_kept() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a.db");
        std::fs::write(&path, "This is a letter to my aunt. ".repeat(100)).unwrap();
        let problem = notes(&[FIRST]).open_to_write(&path).unwrap_err();
        assert_eq!(problem.message, format!("{} is not the notebook, or damaged", path.display()));
        assert!(std::fs::read_to_string(&path).unwrap().starts_with("This is a letter"));
    }
}
