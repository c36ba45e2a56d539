//! Vectors: rows of bytes for the chunks of a segment, by the model that made
//! them.
//!
//! A segment has rows of a model for all of its chunks or for none. While a new
//! model's rows are being made, those of the old one stay and answer.

use std::collections::{BTreeSet, HashMap};

use moonlark_search::RowBitmap;
use rusqlite::{Connection, params};

use super::segments::{find_segment, read_members};
use crate::store::{StoreResult, damaged_error, execute_cached, query_all, query_first};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EmbeddingModel {
    pub(crate) model: i64,
    pub(crate) name: String,
    /// Bytes of a row.
    pub(crate) width: usize,
}

pub(super) type ModelsBySegment = HashMap<i64, BTreeSet<i64>>;

/// The model of this name. Rows of another width are of another model that had
/// its name, and go.
pub(crate) fn find_or_create_model(
    connection: &Connection,
    name: &str,
    width: usize,
) -> StoreResult<EmbeddingModel> {
    let sql = "SELECT model, dimensions FROM kb_models WHERE name = ?1";
    let known: Option<(i64, usize)> = query_first(connection, sql, [name], |row| row.try_into())?;
    let model = match known {
        Some((model, known)) if known == width => model,
        other => {
            if let Some((model, _)) = other {
                connection.execute("DELETE FROM kb_vectors WHERE model = ?1", [model])?;
                connection.execute("DELETE FROM kb_models WHERE model = ?1", [model])?;
            }
            let insert = "INSERT INTO kb_models (name, dimensions) VALUES (?1, ?2)";
            connection.execute(insert, params![name, width])?;
            connection.last_insert_rowid()
        }
    };
    Ok(EmbeddingModel { model, name: name.to_owned(), width })
}

pub(super) fn list_models(connection: &Connection) -> rusqlite::Result<Vec<EmbeddingModel>> {
    let sql = "SELECT model, name, dimensions FROM kb_models ORDER BY model";
    query_all(connection, sql, [], |row| {
        Ok(EmbeddingModel { model: row.get(0)?, name: row.get(1)?, width: row.get(2)? })
    })
}

pub(super) fn models_by_segment(connection: &Connection) -> StoreResult<ModelsBySegment> {
    let sql = "SELECT segment, model FROM kb_vectors";
    let mut by_segment = ModelsBySegment::new();
    for (segment, model) in query_all(connection, sql, [], |row| row.try_into())? {
        by_segment.entry(segment).or_default().insert(model);
    }
    Ok(by_segment)
}

/// Segments that have no rows of this model.
pub(crate) fn segments_without_vectors(
    connection: &Connection,
    model: &str,
) -> StoreResult<Vec<i64>> {
    let sql = "SELECT segment FROM kb_segments WHERE segment NOT IN
                   (SELECT segment FROM kb_vectors JOIN kb_models USING (model) WHERE name = ?1)
               ORDER BY first_chunk";
    Ok(query_all(connection, sql, [model], |row| row.get(0))?)
}

pub(crate) fn write_vectors(
    connection: &Connection,
    segment: i64,
    model: i64,
    rows: &[u8],
) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO kb_vectors (segment, model, vectors) VALUES (?1, ?2, ?3)";
    execute_cached(connection, sql, params![segment, model, rows])
}

pub(super) fn read_vectors(
    connection: &Connection,
    segment: i64,
    model: i64,
) -> rusqlite::Result<Option<Vec<u8>>> {
    let sql = "SELECT vectors FROM kb_vectors WHERE segment = ?1 AND model = ?2";
    query_first(connection, sql, [segment, model], |row| row.get(0))
}

/// The rows of segments that become one: of the models that all of them have.
pub(super) fn merge_vectors(
    connection: &Connection,
    segment: i64,
    old: &[(i64, &RowBitmap)],
) -> StoreResult<()> {
    'models: for model in list_models(connection)? {
        let mut merged = Vec::new();
        for (old, alive) in old {
            let Some(rows) = read_vectors(connection, *old, model.model)? else { continue 'models };
            for (at, row) in rows.chunks_exact(model.width.max(1)).enumerate() {
                if alive.get(at) {
                    merged.extend_from_slice(row);
                }
            }
        }
        write_vectors(connection, segment, model.model, &merged)?;
    }
    Ok(())
}

/// The row of one chunk, for a chunk that says the same.
pub(crate) fn find_chunk_vector(
    connection: &Connection,
    model: &EmbeddingModel,
    chunk: u32,
) -> StoreResult<Option<Vec<u8>>> {
    let Some(segment) = find_segment(connection, chunk)? else { return Ok(None) };
    let Some(at) = read_members(connection, segment)?.find_ordinal(chunk) else { return Ok(None) };
    let sql = "SELECT substr(vectors, ?3 * ?4 + 1, ?4) FROM kb_vectors
               WHERE segment = ?1 AND model = ?2";
    let params = params![segment, model.model, at, model.width];
    let row: Option<Vec<u8>> = query_first(connection, sql, params, |row| row.get(0))?;
    match row {
        Some(row) if row.len() != model.width => Err(damaged_error("a vector is cut off")),
        row => Ok(row),
    }
}

/// Once every segment has rows of this model, nobody needs the others.
pub(crate) fn drop_other_models(connection: &Connection, name: &str) -> StoreResult<()> {
    let others = "(SELECT model FROM kb_models WHERE name <> ?1)";
    connection.execute(&format!("DELETE FROM kb_vectors WHERE model IN {others}"), [name])?;
    connection.execute("DELETE FROM kb_models WHERE name <> ?1", [name])?;
    Ok(())
}

/// The model of this name, if it has made vectors.
pub(crate) fn find_model(
    connection: &Connection,
    name: &str,
) -> rusqlite::Result<Option<EmbeddingModel>> {
    Ok(list_models(connection)?.into_iter().find(|model| model.name == name))
}

/// The numbers of a segment's chunks; none if it is gone.
pub(crate) fn chunks_in_segment(connection: &Connection, segment: i64) -> StoreResult<Vec<u32>> {
    let there: bool = connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM kb_segments WHERE segment = ?1)")?
        .query_row([segment], |row| row.get(0))?;
    if there { Ok(read_members(connection, segment)?.chunks) } else { Ok(Vec::new()) }
}
