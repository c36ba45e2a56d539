//! Document bodies, stored in pieces.

use std::ops::Range;

use rusqlite::{Connection, params};

use super::statements::{execute_cached, query_all};
use super::store_error::{StoreResult, damaged_error};

/// Piece by piece of about this many bytes, cut where a letter begins: the first
/// before every multiple of it. A chunk is in one piece, or in two.
const BODY_PIECE_BYTES: usize = 16 * 1024;

pub(crate) fn write_body(connection: &Connection, document: i64, body: &str) -> StoreResult<()> {
    delete_body(connection, document)?;
    let mut insert = connection.prepare_cached(
        "INSERT INTO kb_bodies (document, number, start, text) VALUES (?1, ?2, ?3, ?4)",
    )?;
    for number in 0..body.len().div_ceil(BODY_PIECE_BYTES) {
        let (start, end) = (
            body.floor_char_boundary(number * BODY_PIECE_BYTES),
            body.floor_char_boundary((number + 1) * BODY_PIECE_BYTES),
        );
        insert.execute(params![document, number, start, &body[start..end]])?;
    }
    Ok(())
}

pub(crate) fn delete_body(connection: &Connection, document: i64) -> rusqlite::Result<()> {
    execute_cached(connection, "DELETE FROM kb_bodies WHERE document = ?1", [document])
}

pub(crate) fn read_body(connection: &Connection, document: i64) -> StoreResult<String> {
    let sql = "SELECT text FROM kb_bodies WHERE document = ?1 ORDER BY number";
    Ok(query_all(connection, sql, [document], |row| row.get::<_, String>(0))?.concat())
}

/// These bytes of a body. Only they are looked at, not all of the pieces they
/// are in.
pub(crate) fn read_body_range(
    connection: &Connection,
    document: i64,
    range: Range<usize>,
) -> StoreResult<String> {
    let outside = || damaged_error("a chunk is outside of its document");
    let mut statement = connection
        .prepare_cached("SELECT start, text FROM kb_bodies WHERE document = ?1 AND number = ?2")?;
    let mut part: Vec<u8> = Vec::with_capacity(range.len().min(BODY_PIECE_BYTES));
    let mut number = range.start / BODY_PIECE_BYTES;
    while part.len() < range.len() {
        let mut rows = statement.query(params![document, number])?;
        let row = rows.next()?.ok_or_else(outside)?;
        let start: usize = row.get(0)?;
        let piece = row.get_ref(1)?.as_bytes().map_err(rusqlite::Error::from)?;
        let from = (range.start + part.len()).checked_sub(start).ok_or_else(outside)?;
        let to = piece.len().min(range.end.saturating_sub(start));
        // Nothing of it where the letter before the cut is the last of its piece.
        part.extend_from_slice(piece.get(from..to).unwrap_or_default());
        number += 1;
    }
    String::from_utf8(part).map_err(|_| outside())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_survives_whole_and_in_parts() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(include_str!("schema.sql")).unwrap();
        let body = "äöü€ abc ".repeat(30_000);
        write_body(&connection, 7, "old").unwrap();
        write_body(&connection, 7, &body).unwrap();
        write_body(&connection, 8, "").unwrap();
        assert!(read_body(&connection, 7).unwrap() == body);
        assert_eq!(read_body(&connection, 8).unwrap(), "");
        for start in (0..body.len() - 2_000).filter(|at| body.is_char_boundary(*at)).step_by(997) {
            let end = body.floor_char_boundary(start + 2_000);
            assert_eq!(read_body_range(&connection, 7, start..end).unwrap(), body[start..end]);
        }
        assert!(read_body_range(&connection, 7, 1..3).is_err());
        assert!(read_body_range(&connection, 7, 0..body.len() + 1).is_err());
        assert!(read_body_range(&connection, 9, 0..1).is_err());
    }
}
