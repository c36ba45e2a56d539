//! Bytes of the journal by caller: a table kept in the same transactions as the rows, so
//! that retention knows who has most without reading them all.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::{Connection, params};

/// What a row takes besides its texts and values: the other columns, and its part of indexes.
const ROW_BYTES: i64 = 300;

/// Bytes of one call, as they are counted when it is written; `exact` may be missing.
pub(crate) const CALL_BYTES: &str = "300 + octet_length(call.args) \
     + coalesce(octet_length(call.message), 0) + coalesce(octet_length(exact.args), 0) \
     + coalesce(octet_length(exact.answer), 0)";
/// Bytes of one run without its calls.
pub(crate) const RUN_BYTES: &str = "300 + octet_length(run.script) + octet_length(run.sealed) \
     + coalesce(octet_length(run.answer), 0)";

/// What was added or removed of each caller.
#[derive(Default)]
pub(crate) struct CallerUsage(HashMap<Arc<str>, i64>);

impl CallerUsage {
    pub(crate) fn add_row(&mut self, caller: Arc<str>, bytes: usize) {
        *self.0.entry(caller).or_default() += ROW_BYTES + saturating_bytes(bytes);
    }

    pub(crate) fn add_bytes(&mut self, caller: Arc<str>, bytes: usize) {
        if bytes > 0 {
            *self.0.entry(caller).or_default() += saturating_bytes(bytes);
        }
    }

    pub(crate) fn remove_bytes(&mut self, caller: Arc<str>, bytes: i64) {
        *self.0.entry(caller).or_default() -= bytes;
    }

    /// Into the table, in the transaction of the rows.
    pub(crate) fn add_to_table(&self, connection: &Connection) -> rusqlite::Result<()> {
        let mut statement = connection.prepare_cached(
            "INSERT INTO journal_usage (caller, bytes) VALUES (?1, max(?2, 0)) \
             ON CONFLICT (caller) DO UPDATE SET bytes = max(bytes + ?2, 0)",
        )?;
        for (caller, bytes) in &self.0 {
            statement.execute(params![&**caller, bytes])?;
        }
        if self.0.values().any(|bytes| *bytes < 0) {
            connection.execute("DELETE FROM journal_usage WHERE bytes = 0", [])?;
        }
        Ok(())
    }
}

/// The callers, those with most first.
pub(crate) fn callers_by_usage(connection: &Connection) -> rusqlite::Result<Vec<(Arc<str>, u64)>> {
    let mut statement = connection.prepare_cached(
        "SELECT caller, bytes FROM journal_usage WHERE bytes > 0 ORDER BY bytes DESC, caller",
    )?;
    let rows = statement.query_map([], |row| {
        let bytes: i64 = row.get(1)?;
        Ok((Arc::from(row.get::<_, String>(0)?), u64::try_from(bytes).unwrap_or(0)))
    })?;
    rows.collect()
}

/// Make the table for a journal that has none, with what is in the journal.
pub(crate) fn create_usage_table(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(&format!(
        "CREATE TABLE IF NOT EXISTS journal_usage (caller TEXT PRIMARY KEY, bytes INTEGER NOT NULL) \
         WITHOUT ROWID; \
         INSERT OR IGNORE INTO journal_usage SELECT caller, sum(bytes) FROM (\
         SELECT coalesce(call.caller, '') AS caller, {CALL_BYTES} AS bytes \
         FROM journal_calls AS call LEFT JOIN journal_exact AS exact ON exact.id = call.id \
         UNION ALL SELECT coalesce(run.caller, ''), {RUN_BYTES} FROM journal_runs AS run) \
         GROUP BY caller"
    ))
}

fn saturating_bytes(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
