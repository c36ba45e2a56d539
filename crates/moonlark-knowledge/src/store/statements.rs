//! Prepared statements.

use rusqlite::{Connection, OptionalExtension, Params, Row as SqlRow};

pub(crate) fn execute_cached(
    connection: &Connection,
    sql: &str,
    params: impl Params,
) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute(params)?;
    Ok(())
}

/// The first row, if there is one.
pub(crate) fn query_first<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&SqlRow<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    connection.prepare_cached(sql)?.query_row(params, read).optional()
}

pub(crate) fn query_all<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnMut(&SqlRow<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    connection.prepare_cached(sql)?.query_map(params, read)?.collect()
}
