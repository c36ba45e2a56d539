//! What is too old, or too much, goes: the oldest first, a little at a time, so
//! that the writer is never away for long.

use std::time::{Duration, SystemTime};

use rusqlite::{Connection, params};

use crate::journal_rows::unix_micros;
use crate::journal_schema::JournalSettings;
use crate::process_lock::is_process_alive;

/// Rows that go in one go: more than are written in one.
const MAX_REMOVED_ROWS: i64 = 5000;
/// Pages that are given back to the file system in one go.
const MAX_RELEASED_PAGES: u64 = 2000;
/// What is this new stays, however much it is.
const MIN_KEPT_AGE: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct JournalRetention {
    /// It was too large, and is made somewhat smaller than it may be: not so
    /// that every row that comes costs one that goes.
    shrinking: bool,
}

impl JournalRetention {
    /// Remove some; whether that was all.
    pub(crate) fn remove_expired(
        &mut self,
        connection: &mut Connection,
        settings: &JournalSettings,
    ) -> rusqlite::Result<bool> {
        let goal = if self.shrinking { settings.size / 10 * 9 } else { settings.size };
        self.shrinking = used_bytes(connection)? > goal;
        let keep = if self.shrinking { MIN_KEPT_AGE } else { settings.keep };
        let bound = SystemTime::now().checked_sub(keep).map_or(0, unix_micros);
        let removed = remove_old_rows(connection, bound)?;
        remove_dead_processes(connection, settings, bound)?;
        self.shrinking &= removed > 0;
        if pragma_number(connection, "freelist_count")? > MAX_RELEASED_PAGES {
            release_free_pages(connection)?;
        }
        Ok(removed < MAX_REMOVED_ROWS && !self.shrinking)
    }
}

/// Remove the oldest rows from before `bound`: calls with what they held, and
/// runs that have none left. A run that waits for a person is not over.
fn remove_old_rows(connection: &mut Connection, bound: i64) -> rusqlite::Result<i64> {
    let transaction = connection.transaction()?;
    transaction.execute_batch(
        "CREATE TEMP TABLE IF NOT EXISTS going (id BLOB PRIMARY KEY, at INTEGER) WITHOUT ROWID; \
         DELETE FROM going;",
    )?;
    // Keys sort by time.
    transaction.execute(
        "INSERT INTO going SELECT id, at FROM journal_calls AS call WHERE at < ?1 AND NOT EXISTS \
         (SELECT 1 FROM journal_runs AS run WHERE run.id = call.run AND approval IS NOT NULL) \
         ORDER BY id LIMIT ?2",
        params![bound, MAX_REMOVED_ROWS],
    )?;
    let mut removed =
        transaction.execute("DELETE FROM journal_calls WHERE id IN (SELECT id FROM going)", [])?;
    transaction.execute("DELETE FROM journal_exact WHERE id IN (SELECT id FROM going)", [])?;
    transaction.execute(
        "DELETE FROM approval_requests WHERE id IN (SELECT id FROM approval_requests \
         WHERE at < ?1 AND expires < ?1 ORDER BY id LIMIT ?2)",
        params![bound, MAX_REMOVED_ROWS],
    )?;
    removed += transaction.execute(
        "DELETE FROM journal_runs WHERE id IN (SELECT id FROM journal_runs AS run \
         WHERE at < ?1 AND at <= coalesce((SELECT max(at) FROM going), ?1) AND approval IS NULL \
         AND NOT EXISTS (SELECT 1 FROM journal_calls WHERE journal_calls.run = run.id) \
         ORDER BY id LIMIT ?2)",
        params![bound, MAX_REMOVED_ROWS],
    )?;
    transaction.commit()?;
    Ok(i64::try_from(removed).unwrap_or(i64::MAX))
}

/// Processes that are gone, and of which nothing is left.
fn remove_dead_processes(
    connection: &Connection,
    settings: &JournalSettings,
    bound: i64,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare(
        "SELECT number, lock FROM journal_processes WHERE at < ?1 ORDER BY number LIMIT 100",
    )?;
    let old = statement.query_map(params![bound], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let old: Vec<(i64, String)> = old.collect::<rusqlite::Result<_>>()?;
    for (number, _) in old.iter().filter(|(_, lock)| !is_process_alive(&settings.file, lock)) {
        connection.execute(
            "DELETE FROM journal_processes WHERE number = ?1 \
             AND NOT EXISTS (SELECT 1 FROM journal_runs WHERE process = ?1)",
            params![number],
        )?;
    }
    Ok(())
}

fn release_free_pages(connection: &Connection) -> rusqlite::Result<()> {
    let mut statement =
        connection.prepare(&format!("PRAGMA incremental_vacuum({MAX_RELEASED_PAGES})"))?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(())
}

/// Bytes that are in use.
fn used_bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let pages = pragma_number(connection, "page_count")?;
    let free = pragma_number(connection, "freelist_count")?;
    Ok(pages.saturating_sub(free) * pragma_number(connection, "page_size")?)
}

fn pragma_number(connection: &Connection, pragma: &str) -> rusqlite::Result<u64> {
    let number: i64 = connection.query_row(&format!("PRAGMA {pragma}"), [], |row| row.get(0))?;
    Ok(u64::try_from(number).unwrap_or(0))
}
