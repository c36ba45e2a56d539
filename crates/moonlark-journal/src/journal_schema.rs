//! The tables, and how a connection to them is opened.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use moonlark_core::{Problem, Result};
use rusqlite::{Connection, OpenFlags};

use crate::journal_problem::journal_problem;
use crate::usage::create_usage_table;

/// What the operator decides about the journal.
#[derive(Debug, Clone, PartialEq)]
pub struct JournalSettings {
    /// The database. The key and the locks of processes are beside it.
    pub file: PathBuf,
    /// Whether what must be durable survives a loss of power, not only of the
    /// process.
    pub power: bool,
    /// How long entries are kept.
    pub keep: Duration,
    /// Bytes they may take.
    pub size: u64,
}

/// Raised with every change of the tables that older versions cannot read.
const JOURNAL_SCHEMA_VERSION: i64 = 1;
/// Bytes of the file beside the database that stay after a burst.
const MAX_KEPT_WAL_BYTES: i64 = 16 * 1024 * 1024;
/// How long a statement waits for another process.
const JOURNAL_BUSY_TIMEOUT: Duration = Duration::from_secs(5);

const CREATE_TABLES: &str = "
CREATE TABLE journal_processes (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    lock   TEXT NOT NULL,
    pid    INTEGER NOT NULL,
    at     INTEGER NOT NULL
);
CREATE TABLE journal_runs (
    id       BLOB PRIMARY KEY,
    call     BLOB,
    process  INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    surface  TEXT NOT NULL,
    caller   TEXT,
    client   TEXT,
    script   TEXT NOT NULL,
    plan     INTEGER NOT NULL,
    follows  BLOB,
    sealed   BLOB NOT NULL,
    approval BLOB,
    place    TEXT,
    took     INTEGER,
    outcome  TEXT,
    message  TEXT,
    answer   BLOB
) WITHOUT ROWID;
CREATE INDEX journal_runs_that_wait ON journal_runs (approval) WHERE approval IS NOT NULL;
CREATE TABLE journal_calls (
    id       BLOB PRIMARY KEY,
    parent   BLOB,
    run      BLOB,
    place    TEXT,
    process  INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    tool     TEXT NOT NULL,
    source   TEXT NOT NULL,
    effects  INTEGER NOT NULL,
    surface  TEXT NOT NULL,
    caller   TEXT,
    client   TEXT,
    args     TEXT NOT NULL,
    took     INTEGER,
    outcome  TEXT,
    message  TEXT,
    number   INTEGER
) WITHOUT ROWID;
CREATE INDEX journal_calls_of_run ON journal_calls (run) WHERE run IS NOT NULL;
CREATE INDEX journal_calls_of_call ON journal_calls (parent) WHERE parent IS NOT NULL;
CREATE TABLE journal_exact (
    id     BLOB PRIMARY KEY,
    args   BLOB NOT NULL,
    answer BLOB
);
CREATE TABLE approval_requests (
    id         BLOB PRIMARY KEY,
    at         INTEGER NOT NULL,
    expires    INTEGER NOT NULL,
    state      TEXT NOT NULL,
    tool       TEXT NOT NULL,
    source     TEXT NOT NULL,
    effects    INTEGER NOT NULL,
    surface    TEXT NOT NULL,
    caller     TEXT NOT NULL,
    client     TEXT,
    args       TEXT NOT NULL,
    sealed     BLOB NOT NULL,
    digest     BLOB NOT NULL,
    run        BLOB,
    place      TEXT,
    decided_at INTEGER,
    decided_by TEXT
) WITHOUT ROWID;
CREATE INDEX approval_requests_by_call ON approval_requests (digest);
";

/// What was added since, in a way that older versions can read on.
const ADDED_COLUMNS: [(&str, &str, &str); 2] = [
    (
        "approval_requests",
        "left_out",
        "ALTER TABLE approval_requests ADD COLUMN left_out INTEGER NOT NULL DEFAULT 1",
    ),
    ("approval_requests", "shown", "ALTER TABLE approval_requests ADD COLUMN shown BLOB"),
];
const ADDED_INDEXES: &str = "
CREATE INDEX IF NOT EXISTS journal_runs_that_follow ON journal_runs (follows) WHERE follows IS NOT NULL;
CREATE INDEX IF NOT EXISTS journal_runs_without_end ON journal_runs (process) WHERE outcome IS NULL;
CREATE INDEX IF NOT EXISTS approval_requests_that_wait ON approval_requests (caller) WHERE state = 'waiting';
";

/// Between two tries to open a file that is just being opened or closed elsewhere.
const OPEN_RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// Open the database for writing; make it if there is none.
///
/// SQLite waits for no lock while a WAL is begun, recovered or removed by its last
/// user, so that is tried again here.
pub(crate) fn open_database(path: &Path) -> Result<Connection> {
    let until = Instant::now() + JOURNAL_BUSY_TIMEOUT;
    loop {
        match open_database_once(path) {
            Err(problem) if problem.is_retryable() && Instant::now() < until => {
                std::thread::sleep(OPEN_RETRY_INTERVAL);
            }
            opened => return opened,
        }
    }
}

fn open_database_once(path: &Path) -> Result<Connection> {
    if let Some(folder) = path.parent() {
        create_private_folder(folder)?;
    }
    // What SQLite makes beside it is as private as the file.
    let mut options = std::fs::OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let _ = options.write(true).create_new(true).open(path);
    let fail = |error: rusqlite::Error| journal_problem(path, &error);
    let connection = Connection::open(path).map_err(fail)?;
    connection.busy_timeout(JOURNAL_BUSY_TIMEOUT).map_err(fail)?;
    // Only a new file can still choose; it lets retention give pages back.
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL").map_err(fail)?;
    connection.pragma_update(None, "journal_mode", "WAL").map_err(fail)?;
    connection.pragma_update(None, "journal_size_limit", MAX_KEPT_WAL_BYTES).map_err(fail)?;
    prepare_tables(&connection, path)?;
    Ok(connection)
}

/// Open it to look; none if there is no journal yet, or one that somebody is just
/// beginning.
pub(crate) fn open_if_begun(path: &Path) -> Result<Option<Connection>> {
    if !path.exists() {
        return Ok(None);
    }
    let connection = open_to_read(path)?;
    // Tables and version come into the file at once.
    let is_begun = schema_version(&connection, path)? > 0;
    Ok(is_begun.then_some(connection))
}

/// Open it to look; a Problem if there is none.
pub(crate) fn open_to_read(path: &Path) -> Result<Connection> {
    let fail = |error: rusqlite::Error| journal_problem(path, &error);
    // Not read-only: reading a WAL means taking part in it.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(fail)?;
    connection.busy_timeout(JOURNAL_BUSY_TIMEOUT).map_err(fail)?;
    check_version(schema_version(&connection, path)?, path)?;
    Ok(connection)
}

fn prepare_tables(connection: &Connection, path: &Path) -> Result<()> {
    let fail = |error: rusqlite::Error| journal_problem(path, &error);
    if check_version(schema_version(connection, path)?, path)? == JOURNAL_SCHEMA_VERSION {
        return add_missing_columns(connection).map_err(fail);
    }
    // Two processes may get here at once: the second finds the tables made.
    connection.execute_batch("BEGIN IMMEDIATE").map_err(fail)?;
    let made = match schema_version(connection, path)? {
        JOURNAL_SCHEMA_VERSION => Ok(()),
        _ => connection
            .execute_batch(CREATE_TABLES)
            .and_then(|()| connection.pragma_update(None, "user_version", JOURNAL_SCHEMA_VERSION)),
    };
    let end = if made.is_ok() { "COMMIT" } else { "ROLLBACK" };
    connection.execute_batch(end).map_err(fail)?;
    made.and_then(|()| add_missing_columns(connection)).map_err(fail)
}

/// Add what the tables of an earlier version do not have.
fn add_missing_columns(connection: &Connection) -> rusqlite::Result<()> {
    let has = |table: &str, column: &str| {
        let sql = "SELECT count(*) FROM pragma_table_info(?1) WHERE name = ?2";
        connection.query_row(sql, [table, column], |row| row.get::<_, i64>(0))
    };
    for (table, column, sql) in ADDED_COLUMNS {
        // Another process may add it at the same time.
        if has(table, column)? == 0
            && let Err(error) = connection.execute_batch(sql)
            && has(table, column)? == 0
        {
            return Err(error);
        }
    }
    let exists = |name: &str| {
        let sql = "SELECT count(*) > 0 FROM sqlite_master WHERE name = ?1";
        connection.query_row(sql, [name], |row| row.get::<_, bool>(0))
    };
    if !exists("approval_requests_that_wait")? {
        connection.execute_batch(ADDED_INDEXES)?;
    }
    if !exists("journal_usage")? {
        create_usage_table(connection)?;
    }
    Ok(())
}

fn schema_version(connection: &Connection, path: &Path) -> Result<i64> {
    let version = connection.query_row("PRAGMA user_version", [], |row| row.get(0));
    version.map_err(|error| journal_problem(path, &error))
}

fn check_version(version: i64, path: &Path) -> Result<i64> {
    if version <= JOURNAL_SCHEMA_VERSION {
        return Ok(version);
    }
    Err(Problem::unavailable(format!(
        "the journal {} was written by a newer version of Moonlark (form {version}, this one knows {JOURNAL_SCHEMA_VERSION})",
        path.display()
    ))
    .with_retryable(false)
    .with_hint("run that version, or move the file away: a new one is begun"))
}

/// A folder that is this user's alone if we make it.
pub(crate) fn create_private_folder(folder: &Path) -> Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder).map_err(|error| {
        Problem::unavailable(format!("{} cannot be made: {error}", folder.display()))
            .with_retryable(false)
            .with_hint("check that this user may write there, or set journal.enabled = false")
    })
}
