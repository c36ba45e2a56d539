//! The texts of documents, in pieces.

use std::ops::Range;

use rusqlite::{Connection, params};

use super::failure::{Attempt, damaged};
use crate::floor;

/// A chunk is at most a few thousand bytes: it is in one piece, or in two.
const PIECE: usize = 64 * 1024;

pub(crate) fn write_body(connection: &Connection, document: i64, body: &str) -> Attempt<()> {
    delete_body(connection, document)?;
    let mut insert = connection
        .prepare_cached("INSERT INTO kb_bodies (document, start, text) VALUES (?1, ?2, ?3)")?;
    let mut start = 0;
    while start < body.len() {
        let end = floor(body, start + PIECE);
        insert.execute(params![document, start, &body[start..end]])?;
        start = end;
    }
    Ok(())
}

pub(crate) fn delete_body(connection: &Connection, document: i64) -> Attempt<()> {
    connection.prepare_cached("DELETE FROM kb_bodies WHERE document = ?1")?.execute([document])?;
    Ok(())
}

pub(crate) fn read_body(connection: &Connection, document: i64) -> Attempt<String> {
    read(connection, document, 0..usize::MAX).map(|(_, text)| text)
}

/// These bytes of a body.
pub(crate) fn read_part(
    connection: &Connection,
    document: i64,
    range: Range<usize>,
) -> Attempt<String> {
    let (start, text) = read(connection, document, range.clone())?;
    let within = range.start.checked_sub(start).zip(range.end.checked_sub(start));
    let part = within.and_then(|(from, to)| text.get(from..to));
    part.map(str::to_owned).ok_or_else(|| damaged("a chunk is outside of its document"))
}

/// All pieces that have some of the range, and where they begin.
fn read(connection: &Connection, document: i64, range: Range<usize>) -> Attempt<(usize, String)> {
    let mut statement = connection.prepare_cached(
        "SELECT start, text FROM kb_bodies WHERE document = ?1 AND start < ?3 AND start >=
             (SELECT max(start) FROM kb_bodies WHERE document = ?1 AND start <= ?2)
         ORDER BY start",
    )?;
    let end = i64::try_from(range.end).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![document, range.start, end])?;
    let (mut begin, mut body) = (None, String::new());
    while let Some(row) = rows.next()? {
        let start: usize = row.get(0)?;
        if start != *begin.get_or_insert(start) + body.len() {
            return Err(damaged("a piece of a document is missing"));
        }
        body.push_str(row.get_ref(1)?.as_str().map_err(rusqlite::Error::from)?);
    }
    Ok((begin.unwrap_or(0), body))
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
            let end = floor(&body, start + 2_000);
            assert_eq!(read_part(&connection, 7, start..end).unwrap(), body[start..end]);
        }
        assert!(read_part(&connection, 7, 1..3).is_err());
        assert!(read_part(&connection, 7, 0..body.len() + 1).is_err());
        assert!(read_part(&connection, 9, 0..1).is_err());
    }
}
