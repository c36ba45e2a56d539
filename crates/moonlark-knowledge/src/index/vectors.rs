//! Vectors: rows of bytes for the chunks of a segment, by the model that made
//! them.
//!
//! A segment has rows of a model for all of its chunks or for none. While a new
//! model's rows are being made, those of the old one stay and answer.

use std::collections::{BTreeSet, HashMap};

use rusqlite::{Connection, OptionalExtension, params};

use super::bit_set::GrowableBitSet;
use super::segments::{find_segment, read_members};
use crate::store::{StoreResult, damaged_error};

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
    let known: Option<(i64, usize)> = connection
        .query_row("SELECT model, dimensions FROM kb_models WHERE name = ?1", [name], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?;
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

pub(super) fn list_models(connection: &Connection) -> StoreResult<Vec<EmbeddingModel>> {
    let mut statement = connection
        .prepare_cached("SELECT model, name, dimensions FROM kb_models ORDER BY model")?;
    let rows = statement.query_map([], |row| {
        Ok(EmbeddingModel { model: row.get(0)?, name: row.get(1)?, width: row.get(2)? })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn models_by_segment(connection: &Connection) -> StoreResult<ModelsBySegment> {
    let mut statement = connection.prepare_cached("SELECT segment, model FROM kb_vectors")?;
    let mut rows = statement.query([])?;
    let mut by_segment = ModelsBySegment::new();
    while let Some(row) = rows.next()? {
        by_segment.entry(row.get(0)?).or_default().insert(row.get(1)?);
    }
    Ok(by_segment)
}

/// Segments that have no rows of this model.
pub(crate) fn segments_without_vectors(
    connection: &Connection,
    model: &str,
) -> StoreResult<Vec<i64>> {
    let mut statement = connection.prepare_cached(
        "SELECT segment FROM kb_segments WHERE segment NOT IN
             (SELECT segment FROM kb_vectors JOIN kb_models USING (model) WHERE name = ?1)
         ORDER BY first_chunk",
    )?;
    let rows = statement.query_map([model], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

pub(crate) fn write_vectors(
    connection: &Connection,
    segment: i64,
    model: i64,
    rows: &[u8],
) -> StoreResult<()> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO kb_vectors (segment, model, vectors) VALUES (?1, ?2, ?3)",
        )?
        .execute(params![segment, model, rows])?;
    Ok(())
}

pub(super) fn read_vectors(
    connection: &Connection,
    segment: i64,
    model: i64,
) -> StoreResult<Option<Vec<u8>>> {
    let rows = connection
        .prepare_cached("SELECT vectors FROM kb_vectors WHERE segment = ?1 AND model = ?2")?
        .query_row([segment, model], |row| row.get(0))
        .optional()?;
    Ok(rows)
}

/// The rows of segments that become one: of the models that all of them have.
pub(super) fn merge_vectors(
    connection: &Connection,
    segment: i64,
    old: &[(i64, &GrowableBitSet)],
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
    let row: Option<Vec<u8>> = connection
        .prepare_cached(
            "SELECT substr(vectors, ?3 * ?4 + 1, ?4) FROM kb_vectors
             WHERE segment = ?1 AND model = ?2",
        )?
        .query_row(params![segment, model.model, at, model.width], |row| row.get(0))
        .optional()?;
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
) -> StoreResult<Option<EmbeddingModel>> {
    Ok(list_models(connection)?.into_iter().find(|model| model.name == name))
}

/// The numbers of a segment's chunks; none if it is gone.
pub(crate) fn chunks_in_segment(connection: &Connection, segment: i64) -> StoreResult<Vec<u32>> {
    let there: bool = connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM kb_segments WHERE segment = ?1)")?
        .query_row([segment], |row| row.get(0))?;
    if there { Ok(read_members(connection, segment)?.chunks) } else { Ok(Vec::new()) }
}
