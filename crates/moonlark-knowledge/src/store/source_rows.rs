//! Sources and the facts about the file as a whole.

use jiff::Timestamp;
use moonlark_core::Value;
use moonlark_search::TextLanguage;
use rusqlite::{Connection, params};

use super::documents::timestamp_from_micros;
use super::statements::{execute_cached, query_all, query_first};
use super::store_error::StoreResult;
use crate::knowledge_document::SourceStats;

/// A row of `kb_sources`.
#[derive(Debug, Clone)]
pub(crate) struct SourceRow {
    pub(crate) source: i64,
    pub(crate) name: String,
    pub(crate) kind: String,
}

/// What is found, as of one commit: the number grows with every one that changes
/// it, in one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexGeneration {
    pub(crate) file: i64,
    pub(crate) number: i64,
}

pub(crate) fn read_generation(connection: &Connection) -> rusqlite::Result<IndexGeneration> {
    connection
        .prepare_cached(
            "SELECT (SELECT value FROM kb_meta WHERE key = 'file'),
                    (SELECT value FROM kb_meta WHERE key = 'generation')",
        )?
        .query_row([], |row| Ok(IndexGeneration { file: row.get(0)?, number: row.get(1)? }))
}

/// What is found has changed.
pub(crate) fn advance_generation(connection: &Connection) -> rusqlite::Result<()> {
    let sql = "UPDATE kb_meta SET value = value + 1 WHERE key = 'generation'";
    execute_cached(connection, sql, [])
}

pub(crate) fn read_next_chunk(connection: &Connection) -> rusqlite::Result<u32> {
    connection.query_row("SELECT value FROM kb_meta WHERE key = 'next_chunk'", [], |row| row.get(0))
}

pub(crate) fn set_next_chunk(connection: &Connection, next: u32) -> rusqlite::Result<()> {
    execute_cached(connection, "UPDATE kb_meta SET value = ?1 WHERE key = 'next_chunk'", [next])
}

/// How the chunks and terms were made. Where that is no longer how they would
/// be, nothing counts as unchanged.
pub(crate) fn read_recipe(connection: &Connection) -> rusqlite::Result<String> {
    connection.query_row("SELECT value FROM kb_meta WHERE key = 'made_by'", [], |row| row.get(0))
}

/// From now on it is made this way, so that every source is read again.
pub(crate) fn set_recipe(connection: &Connection, how: &str) -> rusqlite::Result<()> {
    connection.execute("UPDATE kb_meta SET value = ?1 WHERE key = 'made_by'", [how])?;
    connection.execute("UPDATE kb_documents SET stamp = NULL, hash = x''", [])?;
    connection.execute("UPDATE kb_sources SET state = NULL", [])?;
    connection.execute("DELETE FROM kb_skips", [])?;
    Ok(())
}

/// The source of this name, and what its last scan left for the next.
pub(crate) fn upsert_source(
    connection: &Connection,
    name: &str,
    kind: &str,
) -> rusqlite::Result<(SourceRow, Option<String>)> {
    connection.execute(
        "INSERT INTO kb_sources (name, kind) VALUES (?1, ?2)
         ON CONFLICT (name) DO UPDATE SET kind = excluded.kind",
        [name, kind],
    )?;
    connection.query_row("SELECT source, state FROM kb_sources WHERE name = ?1", [name], |row| {
        let source =
            SourceRow { source: row.get(0)?, name: name.to_owned(), kind: kind.to_owned() };
        Ok((source, row.get(1)?))
    })
}

pub(crate) fn list_sources(connection: &Connection) -> rusqlite::Result<Vec<SourceRow>> {
    query_all(connection, "SELECT source, name, kind FROM kb_sources ORDER BY name", [], |row| {
        Ok(SourceRow { source: row.get(0)?, name: row.get(1)?, kind: row.get(2)? })
    })
}

/// A sync ended well, and left this for the next. Nothing: what the last one left.
pub(crate) fn record_sync_success(
    connection: &Connection,
    source: &SourceRow,
    state: Option<&Value>,
) -> StoreResult<()> {
    let now = Timestamp::now().as_microsecond();
    let update = "UPDATE kb_sources SET last_sync = ?2, problem = NULL WHERE source = ?1";
    connection.execute(update, params![source.source, now])?;
    let Some(state) = state else { return Ok(()) };
    let state = match state {
        Value::Null => None,
        state => Some(state.encode_json("the connector's state")?),
    };
    let update = "UPDATE kb_sources SET state = ?2 WHERE source = ?1";
    connection.execute(update, params![source.source, state])?;
    Ok(())
}

pub(crate) fn record_sync_failure(
    connection: &Connection,
    name: &str,
    problem: &str,
) -> rusqlite::Result<()> {
    execute_cached(
        connection,
        "UPDATE kb_sources SET problem = ?2 WHERE name = ?1",
        [name, problem],
    )
}

/// Its row and what is remembered for it; documents are removed before.
pub(crate) fn delete_source(connection: &Connection, source: i64) -> rusqlite::Result<()> {
    connection.execute("DELETE FROM kb_skips WHERE source = ?1", [source])?;
    connection.execute("DELETE FROM kb_sources WHERE source = ?1", [source])?;
    Ok(())
}

pub(crate) fn source_statistics(connection: &Connection) -> rusqlite::Result<Vec<SourceStats>> {
    let sql = "SELECT name, kind, last_sync, problem,
                   (SELECT count(*) FROM kb_documents AS it WHERE it.source = kb_sources.source),
                   (SELECT coalesce(sum(chunks), 0) FROM kb_documents AS it
                    WHERE it.source = kb_sources.source)
               FROM kb_sources ORDER BY name";
    let languages = languages_by_source(connection)?;
    query_all(connection, sql, [], |row| {
        let name: String = row.get(0)?;
        let own = languages.iter().filter(|(of, _, _)| *of == name);
        let languages = own.map(|(_, language, count)| (*language, *count)).collect();
        Ok(SourceStats {
            name,
            kind: row.get(1)?,
            languages,
            last_sync: timestamp_from_micros(row.get(2)?),
            problem: row.get(3)?,
            documents: row.get::<_, i64>(4)?.try_into().unwrap_or(0),
            chunks: row.get::<_, i64>(5)?.try_into().unwrap_or(0),
        })
    })
}

/// The languages of all documents, the most frequent first.
pub(crate) fn read_languages(connection: &Connection) -> rusqlite::Result<Vec<TextLanguage>> {
    let sql =
        "SELECT language FROM kb_documents GROUP BY language ORDER BY count(*) DESC, language";
    let codes: Vec<Option<String>> = query_all(connection, sql, [], |row| row.get(0))?;
    let of = |code: Option<String>| code.as_deref().and_then(TextLanguage::from_code);
    Ok(codes.into_iter().map(|code| of(code).unwrap_or_default()).collect())
}

/// How many documents of each source are in which language other than English.
fn languages_by_source(
    connection: &Connection,
) -> rusqlite::Result<Vec<(String, TextLanguage, u64)>> {
    let sql = "SELECT name, language, count(*) FROM kb_documents JOIN kb_sources USING (source)
               WHERE language IS NOT NULL GROUP BY source, language
               ORDER BY count(*) DESC, language";
    let rows = query_all(connection, sql, [], |row| {
        Ok((row.get(0)?, row.get::<_, String>(1)?, row.get::<_, i64>(2)?.unsigned_abs()))
    })?;
    let known = |(name, code, count): (String, String, u64)| {
        Some((name, TextLanguage::from_code(&code)?, count))
    };
    Ok(rows.into_iter().filter_map(known).collect())
}

pub(crate) fn synced_source_names(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let sql = "SELECT name FROM kb_sources WHERE last_sync IS NOT NULL";
    query_all(connection, sql, [], |row| row.get(0))
}

/// The documents of a source, if it is there.
pub(crate) fn find_source(connection: &Connection, name: &str) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT source FROM kb_sources WHERE name = ?1";
    query_first(connection, sql, [name], |row| row.get(0))
}

/// Whether vectors are kept that another model made.
pub(crate) fn has_other_models(connection: &Connection, name: &str) -> rusqlite::Result<bool> {
    let sql = "SELECT EXISTS (SELECT 1 FROM kb_models WHERE name <> ?1)";
    connection.query_row(sql, [name], |row| row.get(0))
}

pub(crate) fn count_documents(connection: &Connection, source: i64) -> rusqlite::Result<u64> {
    let sql = "SELECT count(*) FROM kb_documents WHERE source = ?1";
    connection.query_row(sql, [source], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)
}

/// Give room that nobody needs back to the disk, once it is worth it.
pub(crate) fn release_free_pages(connection: &Connection) -> rusqlite::Result<()> {
    let of = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let (all, free) = (of("page_count")?, of("freelist_count")?);
    if free > 2_000 && free > all / 5 {
        connection.execute_batch("PRAGMA incremental_vacuum")?;
    }
    Ok(())
}
