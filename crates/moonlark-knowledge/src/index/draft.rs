//! A segment in the making: what one commit adds.

use std::collections::HashMap;

use rusqlite::{Connection, params};

use super::bits::Bits;
use super::blocks::Blocks;
use super::members::Members;
use super::postings::{List, Posting};
use super::{Counts, vectors};
use crate::store::Attempt;

#[derive(Default)]
pub(crate) struct Draft {
    members: Members,
    terms: HashMap<Box<str>, List>,
    /// Rows of bytes, one for each chunk; nothing when one has none.
    vectors: Option<Vec<u8>>,
}

impl Draft {
    pub(crate) fn new() -> Draft {
        Draft { vectors: Some(Vec::new()), ..Draft::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Add a chunk; numbers must grow. Gives its ordinal.
    pub(crate) fn add(
        &mut self,
        chunk: u32,
        document: u32,
        lengths: Counts,
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
    pub(crate) fn count(&mut self, term: &str, posting: Posting) {
        match self.terms.get_mut(term) {
            Some(list) => list.push(posting),
            None => self.terms.entry(term.into()).or_default().push(posting),
        }
    }

    /// Write it as a segment, in the caller's transaction.
    pub(crate) fn write(self, connection: &Connection, model: Option<i64>) -> Attempt<()> {
        let Some(first) = self.members.chunks.first() else { return Ok(()) };
        let segment = insert(connection, *first, &self.members)?;
        let mut terms: Vec<_> = self.terms.into_iter().collect();
        terms.sort_unstable_by(|(a, _), (b, _)| a.as_bytes().cmp(b.as_bytes()));
        let mut blocks = Blocks::new(connection, segment);
        for (term, list) in &terms {
            blocks.push(term.as_bytes(), list)?;
        }
        blocks.flush()?;
        if let (Some(model), Some(rows)) = (model, &self.vectors) {
            vectors::write_vectors(connection, segment, model, rows)?;
        }
        Ok(())
    }
}

/// The row of a segment whose chunks are all alive.
pub(super) fn insert(connection: &Connection, first: u32, members: &Members) -> Attempt<i64> {
    connection
        .prepare_cached(
            "INSERT INTO kb_segments (first_chunk, chunks, dead, alive, members)
             VALUES (?1, ?2, 0, ?3, ?4)",
        )?
        .execute(params![
            first,
            members.len(),
            Bits::all(members.len()).to_bytes(),
            members.to_bytes()
        ])?;
    Ok(connection.last_insert_rowid())
}
