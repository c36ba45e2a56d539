//! The segments as the writer knows them: which chunk is where, and who is dead.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};

use super::bits::Bits;
use super::members::Members;
use crate::store::{Attempt, damaged};

/// One row of `kb_segments`, without what is large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentRow {
    pub(super) segment: i64,
    pub(super) first_chunk: u32,
    pub(super) chunks: usize,
    pub(super) dead: usize,
}

/// In the order of their chunks.
pub(super) fn list(connection: &Connection) -> Attempt<Vec<SegmentRow>> {
    let mut statement = connection.prepare_cached(
        "SELECT segment, first_chunk, chunks, dead FROM kb_segments ORDER BY first_chunk",
    )?;
    let rows = statement.query_map([], |row| {
        Ok(SegmentRow {
            segment: row.get(0)?,
            first_chunk: row.get(1)?,
            chunks: row.get(2)?,
            dead: row.get(3)?,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

pub(super) fn members(connection: &Connection, segment: i64) -> Attempt<Members> {
    connection
        .prepare_cached("SELECT members, chunks FROM kb_segments WHERE segment = ?1")?
        .query_row([segment], |row| {
            Ok(Members::from_bytes(row.get_ref(0)?.as_blob()?, row.get(1)?))
        })?
}

pub(super) fn alive(connection: &Connection, segment: i64) -> Attempt<Bits> {
    connection
        .prepare_cached("SELECT alive, chunks FROM kb_segments WHERE segment = ?1")?
        .query_row([segment], |row| Ok(Bits::from_bytes(row.get_ref(0)?.as_blob()?, row.get(1)?)))?
}

/// The segment that has this chunk, dead or alive.
pub(super) fn segment_of(connection: &Connection, chunk: u32) -> Attempt<Option<i64>> {
    let found = connection
        .prepare_cached(
            "SELECT segment FROM kb_segments WHERE first_chunk <= ?1
             ORDER BY first_chunk DESC LIMIT 1",
        )?
        .query_row([chunk], |row| row.get(0))
        .optional()?;
    Ok(found)
}

/// Marks chunks dead. Members are remembered from commit to commit, since a
/// segment never changes them; what is dead is written by [`Segments::flush`],
/// in the transaction that found it out.
#[derive(Default)]
pub(crate) struct Segments {
    members: HashMap<i64, Arc<Members>>,
    changed: HashMap<i64, Bits>,
}

impl Segments {
    /// The chunks of a document, which stand together.
    pub(crate) fn kill(&mut self, connection: &Connection, first: u32, count: u32) -> Attempt<()> {
        if count == 0 {
            return Ok(());
        }
        let lost = || damaged("a document has chunks that are not indexed");
        let segment = segment_of(connection, first)?.ok_or_else(lost)?;
        let members = match self.members.get(&segment) {
            Some(members) => members.clone(),
            None => {
                let members = Arc::new(members(connection, segment)?);
                self.members.insert(segment, members.clone());
                members
            }
        };
        let start = members.ordinal(first).ok_or_else(lost)?;
        let bits = match self.changed.entry(segment) {
            Entry::Occupied(changed) => changed.into_mut(),
            Entry::Vacant(new) => new.insert(alive(connection, segment)?),
        };
        (start..start + count as usize).for_each(|ordinal| {
            bits.remove(ordinal);
        });
        Ok(())
    }

    pub(crate) fn flush(&mut self, connection: &Connection) -> Attempt<()> {
        for (segment, bits) in self.changed.drain() {
            connection
                .prepare_cached(
                    "UPDATE kb_segments SET alive = ?2, dead = chunks - ?3 WHERE segment = ?1",
                )?
                .execute(params![segment, bits.to_bytes(), bits.count()])?;
        }
        Ok(())
    }

    /// Segments were merged, or a transaction was undone.
    pub(crate) fn clear(&mut self) {
        self.members.clear();
        self.changed.clear();
    }
}
