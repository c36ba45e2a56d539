//! Documents and chunks: their rows.

use std::ops::Range;

use jiff::Timestamp;
use moonlark_core::{Result, Value};
use moonlark_search::TextLanguage;
use rusqlite::{Connection, Row as SqlRow, params};

use super::document_bodies::{read_body, read_body_range};
use super::statements::{execute_cached, query_all, query_first};
use super::store_error::{StoreResult, damaged_error};
use crate::knowledge_document::{DocumentChunk, KnowledgeDocument};

/// What the sync has to know of a document that is there already.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KnownDocument {
    pub(crate) document: i64,
    pub(crate) hash: Vec<u8>,
    pub(crate) first_chunk: u32,
    pub(crate) chunks: u32,
    pub(crate) row: DocumentRow,
}

/// What a document says about itself beside its text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DocumentRow {
    pub(crate) title: String,
    pub(crate) source_url: Option<String>,
    pub(crate) author: Option<String>,
    pub(crate) created_at: Option<i64>,
    pub(crate) updated_at: Option<i64>,
    pub(crate) content_type: Option<String>,
    /// JSON.
    pub(crate) metadata: Option<String>,
    pub(crate) stamp: Option<String>,
    /// A code; nothing for English and for what cannot be told.
    pub(crate) language: Option<String>,
}

pub(crate) fn find_known_document(
    connection: &Connection,
    source: i64,
    source_id: &str,
) -> rusqlite::Result<Option<KnownDocument>> {
    let sql = "SELECT title, source_url, author, created_at, updated_at, content_type, metadata,
                   stamp, language, document, hash, first_chunk, chunks
               FROM kb_documents WHERE source = ?1 AND source_id = ?2";
    query_first(connection, sql, params![source, source_id], |row| {
        Ok(KnownDocument {
            row: read_document_row(row)?,
            document: row.get(9)?,
            hash: row.get(10)?,
            first_chunk: row.get(11)?,
            chunks: row.get(12)?,
        })
    })
}

/// The first nine columns.
pub(crate) fn read_document_row(row: &SqlRow<'_>) -> rusqlite::Result<DocumentRow> {
    Ok(DocumentRow {
        title: row.get(0)?,
        source_url: row.get(1)?,
        author: row.get(2)?,
        created_at: row.get(3)?,
        updated_at: row.get(4)?,
        content_type: row.get(5)?,
        metadata: row.get(6)?,
        stamp: row.get(7)?,
        language: row.get(8)?,
    })
}

/// The stamp of a document, or of something that was skipped.
pub(crate) fn find_stamp(
    connection: &Connection,
    source: i64,
    source_id: &str,
) -> rusqlite::Result<Option<String>> {
    let of = |sql: &str| -> rusqlite::Result<Option<String>> {
        Ok(query_first(connection, sql, params![source, source_id], |row| row.get(0))?.flatten())
    };
    match of("SELECT stamp FROM kb_documents WHERE source = ?1 AND source_id = ?2")? {
        Some(stamp) => Ok(Some(stamp)),
        None => of("SELECT stamp FROM kb_skips WHERE source = ?1 AND source_id = ?2"),
    }
}

/// What was skipped under this name: its number, and why.
pub(crate) fn find_skip(
    connection: &Connection,
    source: i64,
    source_id: &str,
) -> rusqlite::Result<Option<(i64, String)>> {
    let sql = "SELECT skip, reason FROM kb_skips WHERE source = ?1 AND source_id = ?2";
    query_first(connection, sql, params![source, source_id], |row| row.try_into())
}

/// Gives its number.
pub(crate) fn remember_skip(
    connection: &Connection,
    source: i64,
    source_id: &str,
    stamp: Option<&str>,
    reason: &str,
) -> rusqlite::Result<i64> {
    connection
        .prepare_cached(
            "INSERT INTO kb_skips (source, source_id, stamp, reason) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (source, source_id)
             DO UPDATE SET stamp = excluded.stamp, reason = excluded.reason
             RETURNING skip",
        )?
        .query_row(params![source, source_id, stamp, reason], |row| row.get(0))
}

pub(crate) fn forget_skip(
    connection: &Connection,
    source: i64,
    source_id: &str,
) -> rusqlite::Result<()> {
    let sql = "DELETE FROM kb_skips WHERE source = ?1 AND source_id = ?2";
    execute_cached(connection, sql, params![source, source_id])
}

/// The number of a document by its id.
pub(crate) fn find_document(connection: &Connection, id: &str) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT document FROM kb_documents WHERE id = ?1";
    query_first(connection, sql, [id], |row| row.get(0))
}

pub(crate) fn read_document(
    connection: &Connection,
    document: i64,
) -> StoreResult<KnowledgeDocument> {
    let read = |row: &SqlRow<'_>| {
        let fields = read_document_row(row)?;
        let found = KnowledgeDocument {
            id: row.get(9)?,
            title: fields.title,
            body: String::new(),
            chunks: Vec::new(),
            source: row.get(10)?,
            source_id: row.get(11)?,
            source_url: fields.source_url,
            author: fields.author,
            created_at: timestamp_from_micros(fields.created_at),
            updated_at: timestamp_from_micros(fields.updated_at),
            content_type: fields.content_type,
            language: fields.language,
            metadata: Value::Null,
        };
        Ok((found, fields.metadata))
    };
    let (mut found, json) = connection
        .prepare_cached(
            "SELECT title, source_url, author, created_at, updated_at, content_type, metadata, stamp,
                    language, id, name, source_id
             FROM kb_documents JOIN kb_sources USING (source)
             WHERE document = ?1",
        )?
        .query_row([document], read)?;
    found.metadata = parse_metadata(json.as_deref())?;
    found.body = read_body(connection, document)?;
    for (index, (heading, range)) in
        chunks_of_document(connection, document)?.into_iter().enumerate()
    {
        let outside = || damaged_error("a chunk is outside of its document");
        let start = range.start;
        let text = found.body.get(range).ok_or_else(outside)?.to_owned();
        found.chunks.push(DocumentChunk { index, heading, start, text });
    }
    Ok(found)
}

/// The chunks of a document in order: headings, and which bytes of the body.
pub(crate) fn chunks_of_document(
    connection: &Connection,
    document: i64,
) -> rusqlite::Result<Vec<(Option<String>, Range<usize>)>> {
    let sql = "SELECT heading, start, length FROM kb_chunks
               WHERE chunk >= (SELECT first_chunk FROM kb_documents WHERE document = ?1)
                 AND chunk < (SELECT first_chunk + chunks FROM kb_documents WHERE document = ?1)
               ORDER BY chunk";
    query_all(connection, sql, [document], |row| {
        let (start, length): (usize, usize) = (row.get(1)?, row.get(2)?);
        Ok((row.get(0)?, start..start.saturating_add(length)))
    })
}

/// A chunk by its number, with its document's title.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ChunkText {
    pub(crate) title: String,
    /// Of the document.
    pub(crate) source_id: String,
    pub(crate) heading: Option<String>,
    /// That its document was read in.
    pub(crate) language: TextLanguage,
    pub(crate) text: String,
}

pub(crate) fn read_chunk_text(
    connection: &Connection,
    chunk: u32,
) -> StoreResult<Option<ChunkText>> {
    let sql = "SELECT document, title, heading, source_id, language, start, length
               FROM kb_chunks JOIN kb_documents USING (document) WHERE chunk = ?1";
    type ChunkRow = (i64, String, Option<String>, String, Option<String>, usize, usize);
    let found: Option<ChunkRow> = query_first(connection, sql, [chunk], |row| row.try_into())?;
    let Some((document, title, heading, source_id, language, start, length)) = found else {
        return Ok(None);
    };
    let text = read_body_range(connection, document, start..start.saturating_add(length))?;
    let language = language.as_deref().and_then(TextLanguage::from_code).unwrap_or_default();
    Ok(Some(ChunkText { title, source_id, heading, language, text }))
}

pub(crate) fn timestamp_from_micros(microseconds: Option<i64>) -> Option<Timestamp> {
    microseconds.and_then(|at| Timestamp::from_microsecond(at).ok())
}

pub(crate) fn parse_metadata(json: Option<&str>) -> Result<Value> {
    json.map_or(Ok(Value::Null), |json| Value::parse_json(json.as_bytes()))
}

/// The chunks of a document: the first, and how many.
pub(crate) fn chunk_range(connection: &Connection, document: i64) -> rusqlite::Result<(u32, u32)> {
    connection
        .prepare_cached("SELECT first_chunk, chunks FROM kb_documents WHERE document = ?1")?
        .query_row([document], |row| row.try_into())
}

/// The chunks of a document with this content, whatever its name.
pub(crate) fn find_same_content(
    connection: &Connection,
    hash: &[u8],
) -> rusqlite::Result<Option<(u32, u32)>> {
    let sql = "SELECT first_chunk, chunks FROM kb_documents WHERE hash = ?1 LIMIT 1";
    query_first(connection, sql, [hash], |row| row.try_into())
}

/// The numbers of all documents of a source.
pub(crate) fn documents_of_source(
    connection: &Connection,
    source: i64,
) -> rusqlite::Result<Vec<i64>> {
    let sql = "SELECT document FROM kb_documents WHERE source = ?1 ORDER BY document";
    query_all(connection, sql, [source], |row| row.get(0))
}

pub(crate) fn skips_of_source(connection: &Connection, source: i64) -> rusqlite::Result<Vec<i64>> {
    query_all(connection, "SELECT skip FROM kb_skips WHERE source = ?1", [source], |row| row.get(0))
}
