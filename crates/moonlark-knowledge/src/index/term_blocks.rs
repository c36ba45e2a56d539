//! Term blocks: terms with their postings, in rows of about a page each.
//!
//! A row has terms in order; each leaves out what it begins with in common with
//! the one before. A term with a long list has a row to itself, so that looking
//! for its neighbours does not read it.

use rusqlite::{Connection, params};

use super::postings::PostingList;
use super::varint::{VarintReader, push_varint};
use crate::store::{StoreResult, damaged_error, execute_cached, query_all, query_first};

/// What fits into one page of the file beside what the page needs itself.
const MAX_TERM_BLOCK_BYTES: usize = 3_800;
/// Longer lists have a row to themselves.
const MAX_SHARED_LIST_BYTES: usize = 1_200;

/// Writes the terms of a segment; they must come in order.
pub(super) struct TermBlockWriter<'a> {
    connection: &'a Connection,
    segment: i64,
    data: Vec<u8>,
    first: Vec<u8>,
    last: Vec<u8>,
}

impl<'a> TermBlockWriter<'a> {
    pub(super) fn new(connection: &'a Connection, segment: i64) -> Self {
        let [data, first, last] = [Vec::new(), Vec::new(), Vec::new()];
        TermBlockWriter { connection, segment, data, first, last }
    }

    pub(super) fn push_term(&mut self, term: &[u8], list: &PostingList) -> StoreResult<()> {
        let (chunks, list) = (list.len(), list.as_bytes());
        let long = list.len() > MAX_SHARED_LIST_BYTES;
        if long || self.data.len() + term.len() + list.len() > MAX_TERM_BLOCK_BYTES {
            self.flush()?;
        }
        if self.data.is_empty() {
            self.first = term.to_vec();
            self.last.clear();
        }
        let shared = self.last.iter().zip(term).take_while(|(a, b)| a == b).count();
        push_varint(&mut self.data, shared as u32);
        push_varint(&mut self.data, (term.len() - shared) as u32);
        self.data.extend_from_slice(&term[shared..]);
        push_varint(&mut self.data, chunks);
        push_varint(&mut self.data, list.len() as u32);
        self.data.extend_from_slice(list);
        self.last.clear();
        self.last.extend_from_slice(term);
        if long { self.flush() } else { Ok(()) }
    }

    pub(super) fn flush(&mut self) -> StoreResult<()> {
        if self.data.is_empty() {
            return Ok(());
        }
        let sql = "INSERT INTO kb_terms (segment, first, data) VALUES (?1, ?2, ?3)";
        execute_cached(self.connection, sql, params![self.segment, self.first, self.data])?;
        self.data.clear();
        Ok(())
    }
}

/// Where a term stands in a segment: in how many chunks, dead ones included,
/// and its postings.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct TermList {
    pub(crate) chunks: u32,
    pub(crate) postings: Vec<u8>,
}

/// Empty if it is not there.
pub(crate) fn find_term_list(
    connection: &Connection,
    segment: i64,
    term: &str,
) -> StoreResult<TermList> {
    let sql = "SELECT data FROM kb_terms WHERE segment = ?1 AND first <= ?2
               ORDER BY first DESC LIMIT 1";
    let block: Option<Vec<u8>> =
        query_first(connection, sql, params![segment, term.as_bytes()], |row| row.get(0))?;
    let block = block.unwrap_or_default();
    let mut entries = TermBlockEntries::new(&block);
    while entries.advance()? && entries.term.as_slice() <= term.as_bytes() {
        if entries.term == term.as_bytes() {
            return Ok(TermList { chunks: entries.chunks, postings: entries.list.to_vec() });
        }
    }
    Ok(TermList::default())
}

/// Terms of a segment that begin with this one and are longer: some of them, if
/// there are many.
pub(crate) fn find_terms_with_prefix(
    connection: &Connection,
    segment: i64,
    beginning: &str,
) -> StoreResult<Vec<String>> {
    const MAX_TERM_ROWS: usize = 4;
    const MAX_PREFIX_TERMS: usize = 64;
    // No letter begins with this byte.
    let end = [beginning.as_bytes(), &[0xff]].concat();
    let sql = "SELECT data FROM kb_terms WHERE segment = ?1 AND first <= ?2
                 AND first >= coalesce((SELECT max(first) FROM kb_terms
                                        WHERE segment = ?1 AND first <= ?3), x'')
               ORDER BY first LIMIT ?4";
    let params = params![segment, end, beginning.as_bytes(), MAX_TERM_ROWS];
    let blocks: Vec<Vec<u8>> = query_all(connection, sql, params, |row| row.get(0))?;
    let mut terms = Vec::new();
    for block in &blocks {
        let mut entries = TermBlockEntries::new(block);
        while entries.advance()? {
            let longer = entries.term.len() > beginning.len();
            if longer
                && entries.term.starts_with(beginning.as_bytes())
                && terms.len() < MAX_PREFIX_TERMS
            {
                terms.extend(String::from_utf8(entries.term.clone()).ok());
            }
        }
    }
    Ok(terms)
}

/// The terms of one row.
struct TermBlockEntries<'a> {
    reader: VarintReader<'a>,
    term: Vec<u8>,
    chunks: u32,
    list: &'a [u8],
}

impl<'a> TermBlockEntries<'a> {
    fn new(block: &'a [u8]) -> Self {
        let reader = VarintReader::new(block);
        TermBlockEntries { reader, term: Vec::new(), chunks: 0, list: &[] }
    }

    fn advance(&mut self) -> StoreResult<bool> {
        if self.reader.is_empty() {
            return Ok(false);
        }
        let shared = self.reader.read_number()? as usize;
        if shared > self.term.len() {
            return Err(damaged_error("a term begins like none"));
        }
        self.term.truncate(shared);
        let rest = self.reader.read_number()?;
        self.term.extend_from_slice(self.reader.read_bytes(rest)?);
        self.chunks = self.reader.read_number()?;
        let length = self.reader.read_number()?;
        self.list = self.reader.read_bytes(length)?;
        Ok(true)
    }
}

/// Walks over all terms of a segment, row by row.
pub(super) struct TermCursor<'a> {
    connection: &'a Connection,
    segment: i64,
    /// The terms of the current row that are still to come, last first.
    ahead: Vec<(Vec<u8>, Vec<u8>)>,
    /// How the current row begins; empty before the first, as no term is.
    first: Vec<u8>,
}

impl<'a> TermCursor<'a> {
    pub(super) fn new(connection: &'a Connection, segment: i64) -> StoreResult<Self> {
        let mut cursor = TermCursor { connection, segment, ahead: Vec::new(), first: Vec::new() };
        cursor.load_next_block()?;
        Ok(cursor)
    }

    pub(super) fn term(&self) -> Option<&[u8]> {
        self.ahead.last().map(|(term, _)| term.as_slice())
    }

    /// The current list; then it goes on.
    pub(super) fn take_list(&mut self) -> StoreResult<Vec<u8>> {
        let list = self.ahead.pop().map(|(_, list)| list).unwrap_or_default();
        if self.ahead.is_empty() {
            self.load_next_block()?;
        }
        Ok(list)
    }

    fn load_next_block(&mut self) -> StoreResult<()> {
        let sql = "SELECT first, data FROM kb_terms WHERE segment = ?1 AND first > ?2
                   ORDER BY first LIMIT 1";
        let row: Option<(Vec<u8>, Vec<u8>)> =
            query_first(self.connection, sql, params![self.segment, self.first], |row| {
                row.try_into()
            })?;
        let Some((first, data)) = row else { return Ok(()) };
        let mut entries = TermBlockEntries::new(&data);
        while entries.advance()? {
            self.ahead.push((entries.term.clone(), entries.list.to_vec()));
        }
        self.ahead.reverse();
        self.first = first;
        Ok(())
    }
}

/// For tests: every place of every term, also those that died.
#[cfg(test)]
pub(crate) fn every_posting(
    connection: &Connection,
    mut each: impl FnMut(&str, u32, super::TermCounts, bool),
) -> StoreResult<()> {
    for row in super::segments::list_segments(connection)? {
        let members = super::segments::read_members(connection, row.segment)?;
        let alive = super::segments::read_alive(connection, row.segment)?;
        let mut cursor = TermCursor::new(connection, row.segment)?;
        while let Some(term) = cursor.term().map(|term| String::from_utf8_lossy(term).into_owned())
        {
            let found = find_term_list(connection, row.segment, &term)?;
            assert_eq!(found.postings, cursor.take_list()?, "{term}");
            let mut count = 0;
            super::decode_postings(&found.postings, |posting| {
                count += 1;
                let at = posting.ordinal as usize;
                each(&term, members.chunks[at], posting.counts, alive.get(at));
            })?;
            assert_eq!(count, found.chunks, "{term}");
        }
    }
    Ok(())
}
