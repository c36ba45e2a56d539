//! The writer's view of segments: which chunk is where, and which are deleted.

use moonlark_search::RowBitmap;
use rusqlite::{Connection, params};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::segment_members::SegmentMembers;
use crate::store::{StoreResult, damaged_error, execute_cached, query_all, query_first};

/// One row of `kb_segments`, without what is large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SegmentRow {
    pub(super) segment: i64,
    pub(super) first_chunk: u32,
    pub(super) chunks: usize,
    pub(super) dead: usize,
}

/// In the order of their chunks.
pub(super) fn list_segments(connection: &Connection) -> rusqlite::Result<Vec<SegmentRow>> {
    let sql = "SELECT segment, first_chunk, chunks, dead FROM kb_segments ORDER BY first_chunk";
    query_all(connection, sql, [], |row| {
        Ok(SegmentRow {
            segment: row.get(0)?,
            first_chunk: row.get(1)?,
            chunks: row.get(2)?,
            dead: row.get(3)?,
        })
    })
}

pub(super) fn read_members(connection: &Connection, segment: i64) -> StoreResult<SegmentMembers> {
    connection
        .prepare_cached("SELECT members, chunks FROM kb_segments WHERE segment = ?1")?
        .query_row([segment], |row| {
            Ok(SegmentMembers::from_bytes(row.get_ref(0)?.as_blob()?, row.get(1)?))
        })?
}

pub(super) fn read_alive(connection: &Connection, segment: i64) -> StoreResult<RowBitmap> {
    connection
        .prepare_cached("SELECT alive, chunks FROM kb_segments WHERE segment = ?1")?
        .query_row([segment], |row| {
            Ok(RowBitmap::from_bytes(row.get_ref(0)?.as_blob()?, row.get(1)?))
        })?
        .ok_or_else(|| damaged_error("a set of chunks has another size"))
}

/// The segment that has this chunk, dead or alive.
pub(super) fn find_segment(connection: &Connection, chunk: u32) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT segment FROM kb_segments WHERE first_chunk <= ?1
               ORDER BY first_chunk DESC LIMIT 1";
    query_first(connection, sql, [chunk], |row| row.get(0))
}

/// Marks chunks dead. Members are remembered from commit to commit, since a
/// segment never changes them; what is dead is written by [`SegmentTombstones::flush`],
/// in the transaction that found it out.
#[derive(Default)]
pub(crate) struct SegmentTombstones {
    members: HashMap<i64, SegmentMembers>,
    changed: HashMap<i64, RowBitmap>,
}

impl SegmentTombstones {
    /// The chunks of a document, which stand together.
    pub(crate) fn mark_dead(
        &mut self,
        connection: &Connection,
        first: u32,
        count: u32,
    ) -> StoreResult<()> {
        if count == 0 {
            return Ok(());
        }
        let lost = || damaged_error("a document has chunks that are not indexed");
        let segment = find_segment(connection, first)?.ok_or_else(lost)?;
        let members = match self.members.entry(segment) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(read_members(connection, segment)?),
        };
        let start = members.find_ordinal(first).ok_or_else(lost)?;
        let bits = match self.changed.entry(segment) {
            Entry::Occupied(changed) => changed.into_mut(),
            Entry::Vacant(new) => new.insert(read_alive(connection, segment)?),
        };
        (start..start + count as usize).for_each(|ordinal| {
            bits.remove(ordinal);
        });
        Ok(())
    }

    pub(crate) fn flush(&mut self, connection: &Connection) -> StoreResult<()> {
        for (segment, bits) in self.changed.drain() {
            let sql = "UPDATE kb_segments SET alive = ?2, dead = chunks - ?3 WHERE segment = ?1";
            execute_cached(connection, sql, params![segment, bits.to_bytes(), bits.count_set()])?;
        }
        Ok(())
    }

    /// Segments were merged, or a transaction was undone.
    pub(crate) fn clear(&mut self) {
        self.members.clear();
        self.changed.clear();
    }
}
