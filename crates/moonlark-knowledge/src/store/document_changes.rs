//! Changes to the rows of documents; all in the caller's transaction.

use std::ops::Range;

use rusqlite::{Connection, params};

use super::document_bodies::delete_body;
use super::documents::DocumentRow;
use super::store_error::StoreResult;

/// Gives the document's number; its content follows.
pub(crate) fn insert_document(
    connection: &Connection,
    id: &str,
    source: i64,
    source_id: &str,
    row: &DocumentRow,
) -> StoreResult<i64> {
    connection
        .prepare_cached(
            "INSERT INTO kb_documents (id, source, source_id, title, source_url, author, created_at,
                 updated_at, content_type, metadata, stamp, hash, first_chunk, chunks)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, x'', 0, 0)",
        )?
        .execute(params![
            id,
            source,
            source_id,
            row.title,
            row.source_url,
            row.author,
            row.created_at,
            row.updated_at,
            row.content_type,
            row.metadata,
            row.stamp
        ])?;
    Ok(connection.last_insert_rowid())
}

pub(crate) fn update_document_row(
    connection: &Connection,
    document: i64,
    row: &DocumentRow,
) -> StoreResult<()> {
    connection
        .prepare_cached(
            "UPDATE kb_documents SET title = ?2, source_url = ?3, author = ?4, created_at = ?5,
                 updated_at = ?6, content_type = ?7, metadata = ?8, stamp = ?9
             WHERE document = ?1",
        )?
        .execute(params![
            document,
            row.title,
            row.source_url,
            row.author,
            row.created_at,
            row.updated_at,
            row.content_type,
            row.metadata,
            row.stamp
        ])?;
    Ok(())
}

pub(crate) fn update_document_content(
    connection: &Connection,
    document: i64,
    hash: &[u8],
    first_chunk: u32,
    chunks: u32,
) -> StoreResult<()> {
    connection
        .prepare_cached(
            "UPDATE kb_documents SET hash = ?2, first_chunk = ?3, chunks = ?4 WHERE document = ?1",
        )?
        .execute(params![document, hash, first_chunk, chunks])?;
    Ok(())
}

pub(crate) fn insert_chunk(
    connection: &Connection,
    chunk: u32,
    document: i64,
    heading: Option<&str>,
    range: &Range<usize>,
) -> StoreResult<()> {
    connection
        .prepare_cached("INSERT INTO kb_chunks VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute(params![chunk, document, heading, range.start, range.len()])?;
    Ok(())
}

pub(crate) fn delete_chunks(connection: &Connection, first: u32, count: u32) -> StoreResult<()> {
    connection
        .prepare_cached("DELETE FROM kb_chunks WHERE chunk >= ?1 AND chunk < ?2")?
        .execute([i64::from(first), i64::from(first) + i64::from(count)])?;
    Ok(())
}

/// Without its chunks.
pub(crate) fn delete_document(connection: &Connection, document: i64) -> StoreResult<()> {
    delete_body(connection, document)?;
    connection.prepare_cached("DELETE FROM kb_fields WHERE document = ?1")?.execute([document])?;
    connection
        .prepare_cached("DELETE FROM kb_documents WHERE document = ?1")?
        .execute([document])?;
    Ok(())
}
