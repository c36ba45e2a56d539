//! Changes to the rows of documents; all in the caller's transaction.

use std::ops::Range;

use rusqlite::{Connection, params};

use super::document_bodies::delete_body;
use super::documents::DocumentRow;
use super::source_rows::SourceRow;
use super::statements::execute_cached;
use super::store_error::StoreResult;
use crate::knowledge_document::document_id;

/// A new document, or what one that is there has become, with its first chunk and how many
/// it has. Gives its number.
pub(crate) fn write_document(
    connection: &Connection,
    source: &SourceRow,
    source_id: &str,
    row: &DocumentRow,
    (hash, first_chunk, chunks): (&[u8], u32, u32),
) -> rusqlite::Result<i64> {
    connection
        .prepare_cached(
            "INSERT INTO kb_documents (id, source, source_id, title, source_url, author, created_at,
                 updated_at, content_type, metadata, stamp, hash, first_chunk, chunks, language)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14,
                 ?15)
             ON CONFLICT (source, source_id) DO UPDATE SET
                 title = excluded.title, source_url = excluded.source_url,
                 author = excluded.author, created_at = excluded.created_at,
                 updated_at = excluded.updated_at, content_type = excluded.content_type,
                 metadata = excluded.metadata, stamp = excluded.stamp, hash = excluded.hash,
                 first_chunk = excluded.first_chunk, chunks = excluded.chunks,
                 language = excluded.language
             RETURNING document",
        )?
        .query_row(
            params![
                document_id(&source.name, source_id),
                source.source,
                source_id,
                row.title,
                row.source_url,
                row.author,
                row.created_at,
                row.updated_at,
                row.content_type,
                row.metadata,
                row.stamp,
                hash,
                first_chunk,
                chunks,
                row.language
            ],
            |row| row.get(0),
        )
}

pub(crate) fn insert_chunk(
    connection: &Connection,
    chunk: u32,
    document: i64,
    heading: Option<&str>,
    range: &Range<usize>,
) -> rusqlite::Result<()> {
    let row = params![chunk, document, heading, range.start, range.len()];
    execute_cached(connection, "INSERT INTO kb_chunks VALUES (?1, ?2, ?3, ?4, ?5)", row)
}

pub(crate) fn delete_chunks(
    connection: &Connection,
    first: u32,
    count: u32,
) -> rusqlite::Result<()> {
    let range = [i64::from(first), i64::from(first) + i64::from(count)];
    execute_cached(connection, "DELETE FROM kb_chunks WHERE chunk >= ?1 AND chunk < ?2", range)
}

/// Without its chunks.
pub(crate) fn delete_document(connection: &Connection, document: i64) -> StoreResult<()> {
    delete_body(connection, document)?;
    execute_cached(connection, "DELETE FROM kb_fields WHERE document = ?1", [document])?;
    execute_cached(connection, "DELETE FROM kb_documents WHERE document = ?1", [document])?;
    Ok(())
}
