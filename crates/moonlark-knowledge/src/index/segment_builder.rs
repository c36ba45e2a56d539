//! The segment builder: what one commit adds.

use std::collections::HashMap;

use moonlark_search::RowBitmap;
use rusqlite::{Connection, params};

use super::postings::{ChunkPosting, PostingList};
use super::segment_members::SegmentMembers;
use super::term_blocks::TermBlockWriter;
use super::{TermCounts, vectors};
use crate::store::{StoreResult, execute_cached};

#[derive(Default)]
pub(crate) struct SegmentBuilder {
    members: SegmentMembers,
    terms: HashMap<Box<str>, PostingList>,
    /// Rows of bytes, one for each chunk; nothing when one has none.
    vectors: Option<Vec<u8>>,
}

impl SegmentBuilder {
    pub(crate) fn new() -> SegmentBuilder {
        SegmentBuilder { vectors: Some(Vec::new()), ..SegmentBuilder::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Add a chunk; numbers must grow. Gives its ordinal.
    pub(crate) fn add_chunk(
        &mut self,
        chunk: u32,
        document: u32,
        lengths: TermCounts,
        vector: Option<&[u8]>,
    ) -> u32 {
        self.members.push(chunk, document, lengths);
        match (&mut self.vectors, vector) {
            (Some(rows), Some(row)) => rows.extend_from_slice(row),
            (rows, _) => *rows = None,
        }
        self.members.len() as u32 - 1
    }

    /// Say where a term stands; its postings must come in order.
    pub(crate) fn add_posting(&mut self, term: &str, posting: ChunkPosting) {
        match self.terms.get_mut(term) {
            Some(list) => list.push(posting),
            None => self.terms.entry(term.into()).or_default().push(posting),
        }
    }

    /// Write it as a segment, in the caller's transaction.
    pub(crate) fn write_segment(
        self,
        connection: &Connection,
        model: Option<i64>,
    ) -> StoreResult<()> {
        let Some(first) = self.members.chunks.first() else { return Ok(()) };
        let segment = insert_segment(connection, *first, &self.members)?;
        let mut terms: Vec<_> = self.terms.into_iter().collect();
        terms.sort_unstable_by(|(a, _), (b, _)| a.as_bytes().cmp(b.as_bytes()));
        let mut blocks = TermBlockWriter::new(connection, segment);
        for (term, list) in &terms {
            blocks.push_term(term.as_bytes(), list)?;
        }
        blocks.flush()?;
        if let (Some(model), Some(rows)) = (model, &self.vectors) {
            vectors::write_vectors(connection, segment, model, rows)?;
        }
        Ok(())
    }
}

/// The row of a segment whose chunks are all alive.
pub(super) fn insert_segment(
    connection: &Connection,
    first: u32,
    members: &SegmentMembers,
) -> StoreResult<i64> {
    let sql = "INSERT INTO kb_segments (first_chunk, chunks, dead, alive, members)
               VALUES (?1, ?2, 0, ?3, ?4)";
    let alive = RowBitmap::all_set(members.len()).to_bytes();
    execute_cached(connection, sql, params![first, members.len(), alive, members.to_bytes()])?;
    Ok(connection.last_insert_rowid())
}
