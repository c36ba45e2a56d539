//! The tables and their migrations.

use std::path::{Path, PathBuf};
use std::time::Duration;

use moonlark_core::{Problem, Result};
use moonlark_state::state_database::{DatabaseHints, StateDatabase};
use rusqlite::{Connection, Transaction};

use crate::entry_log::recover_left_logs;
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

/// Version 1.
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

const ADDED_COLUMNS: [(&str, &str); 2] = [
    ("left_out", "ALTER TABLE approval_requests ADD COLUMN left_out INTEGER NOT NULL DEFAULT 1"),
    ("shown", "ALTER TABLE approval_requests ADD COLUMN shown BLOB"),
];
const ADDED_INDEXES: &str = "
CREATE INDEX IF NOT EXISTS journal_runs_that_follow ON journal_runs (follows) WHERE follows IS NOT NULL;
CREATE INDEX IF NOT EXISTS journal_runs_without_end ON journal_runs (process) WHERE outcome IS NULL;
CREATE INDEX IF NOT EXISTS approval_requests_that_wait ON approval_requests (caller) WHERE state = 'waiting';
";

/// The journal's file.
pub(crate) static JOURNAL_DATABASE: StateDatabase = StateDatabase {
    name: "the journal",
    migrations: &[
        |transaction| transaction.execute_batch(CREATE_TABLES),
        add_columns_indexes_and_usage,
    ],
    first_table: "journal_runs",
    busy_timeout: Duration::from_secs(5),
    max_kept_wal_bytes: 16 * 1024 * 1024,
    hints: DatabaseHints {
        newer: "run that version, or move the file away: a new one is begun",
        damaged: "move the file away: a new one is begun",
        full: "make room, or lower journal.size",
        unwritable: "check that this user may write there, or set journal.enabled = false",
    },
};

/// To version 2. Files of version 1 may have any of it: it used to be added without a
/// version of its own.
fn add_columns_indexes_and_usage(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    for (column, sql) in ADDED_COLUMNS {
        let has = "SELECT count(*) FROM pragma_table_info('approval_requests') WHERE name = ?1";
        if transaction.query_row(has, [column], |row| row.get::<_, i64>(0))? == 0 {
            transaction.execute_batch(sql)?;
        }
    }
    transaction.execute_batch(ADDED_INDEXES)?;
    create_usage_table(transaction)
}

/// Why something was not read or written: the file's fault, or what is in it.
#[derive(Debug)]
pub(crate) enum JournalError {
    Sqlite(rusqlite::Error),
    Problem(Problem),
}

impl From<rusqlite::Error> for JournalError {
    fn from(error: rusqlite::Error) -> Self {
        JournalError::Sqlite(error)
    }
}

impl From<Problem> for JournalError {
    fn from(problem: Problem) -> Self {
        JournalError::Problem(problem)
    }
}

impl JournalError {
    /// For the file at `path`.
    pub(crate) fn into_problem(self, path: &Path) -> Problem {
        match self {
            JournalError::Sqlite(error) => journal_problem(path, &error),
            JournalError::Problem(problem) => problem,
        }
    }
}

/// What went wrong with the file at `path`.
pub(crate) fn journal_problem(path: &Path, error: &rusqlite::Error) -> Problem {
    JOURNAL_DATABASE.problem(path, error)
}

/// Open it to look; a Problem if there is none.
pub(crate) fn open_to_read(path: &Path) -> Result<Connection> {
    let found = open_if_there(path)?;
    found.ok_or_else(|| Problem::unavailable(format!("there is no journal {}", path.display())))
}

/// Open it to look, with what processes have left that were killed; none if there is none.
pub(crate) fn open_if_there(path: &Path) -> Result<Option<Connection>> {
    let mut found = JOURNAL_DATABASE.open_existing(path)?;
    if let Some(connection) = &mut found {
        recover_left_logs(connection, path, None).map_err(|error| error.into_problem(path))?;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_journal_of_version_1_keeps_its_entries_and_counts_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal.db");
        let old = Connection::open(&path).unwrap();
        old.execute_batch(CREATE_TABLES).unwrap();
        old.pragma_update(None, "user_version", 1).unwrap();
        // Some of version 1 have one of the columns.
        old.execute_batch(ADDED_COLUMNS[0].1).unwrap();
        old.execute_batch(
            "INSERT INTO journal_runs (id, process, at, surface, caller, script, plan, sealed) \
             VALUES (x'01', 1, 2, 'cli', 'ann', 'return 1', 0, x'00')",
        )
        .unwrap();
        drop(old);
        let new = open_to_read(&path).unwrap();
        let usage = new.query_row("SELECT caller, bytes FROM journal_usage", [], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
        });
        assert_eq!(usage.unwrap(), ("ann".to_owned(), 309));
        new.execute_batch("SELECT shown, left_out FROM approval_requests").unwrap();
        let version: i64 = new.query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
        assert_eq!(version, 2);
    }
}
