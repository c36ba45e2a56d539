//! Segment merging: fewer places to look, and no deleted chunks.
//!
//! Neighbours of about one size become one, so that every chunk is written again
//! only a few times however many there are. A merge is a transaction of its own,
//! and streams: it holds one list at a time, whatever the size of the index.

use moonlark_search::RowBitmap;
use rusqlite::Connection;

use super::postings::{ChunkPosting, PostingList, decode_postings};
use super::segment_builder::insert_segment;
use super::segment_members::SegmentMembers;
use super::segments::{SegmentRow, list_segments, read_alive, read_members};
use super::term_blocks::{TermBlockWriter, TermCursor};
use super::vectors;
use crate::store::{StoreResult, execute_cached};

/// So many neighbours of one size become one.
const MERGE_FAN_IN: usize = 8;
/// Sizes within a factor of eight count as one, from this one on.
const SMALLEST_LEVEL_CHUNKS: usize = 1_024;
/// No segment grows beyond this many chunks: its vectors are one value.
const MAX_SEGMENT_CHUNKS: usize = 1 << 17;
/// More segments than this are too many to look into for every question.
const MAX_SETTLED_SEGMENTS: usize = 6;

/// Merge once what should be merged while a sync goes on. Says whether it did.
pub(crate) fn merge_during_sync(connection: &Connection) -> StoreResult<bool> {
    let segments = list_segments(connection)?;
    // Mostly dead ones are written again alone.
    if let Some(row) = segments.iter().find(|row| row.dead * 3 > row.chunks) {
        merge_segments(connection, &[*row])?;
        return Ok(true);
    }
    let models = vectors::models_by_segment(connection)?;
    for level in 0..=size_level(MAX_SEGMENT_CHUNKS) {
        let alike = |row: &SegmentRow| size_level(row.chunks) <= level;
        if let Some(run) = find_mergeable_run(&segments, &models, MERGE_FAN_IN, alike) {
            merge_segments(connection, run)?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// At the end of a sync: as few segments as there may be, unless there are few
/// enough. Merges once and says whether it did.
pub(crate) fn merge_after_sync(connection: &Connection) -> StoreResult<bool> {
    let segments = list_segments(connection)?;
    if segments.len() <= MAX_SETTLED_SEGMENTS {
        return merge_during_sync(connection);
    }
    let models = vectors::models_by_segment(connection)?;
    let small = |row: &SegmentRow| row.chunks <= MAX_SEGMENT_CHUNKS / 2;
    let Some(run) = find_mergeable_run(&segments, &models, 2, small) else { return Ok(false) };
    merge_segments(connection, run)?;
    Ok(true)
}

fn size_level(chunks: usize) -> u32 {
    (chunks / SMALLEST_LEVEL_CHUNKS).max(1).ilog2() / 3
}

/// The first neighbours that are `alike` and have vectors of the same models, if
/// there are enough and they are not too many chunks together.
fn find_mergeable_run<'a>(
    segments: &'a [SegmentRow],
    models: &vectors::ModelsBySegment,
    least: usize,
    alike: impl Fn(&SegmentRow) -> bool,
) -> Option<&'a [SegmentRow]> {
    let mut start = 0;
    while start < segments.len() {
        let (mut end, mut chunks) = (start, 0);
        while let Some(row) = segments.get(end)
            && alike(row)
            && chunks + row.chunks <= MAX_SEGMENT_CHUNKS
            && models.get(&row.segment) == models.get(&segments[start].segment)
        {
            chunks += row.chunks;
            end += 1;
        }
        if end - start >= least {
            return Some(&segments[start..end]);
        }
        // What begins within a run that is too short is shorter still, unless
        // only its size ended it.
        start = if end > start && end < segments.len() && alike(&segments[end]) {
            start + 1
        } else {
            end.max(start + 1)
        };
    }
    None
}

/// One old segment and where its chunks go.
struct SegmentToMerge {
    row: SegmentRow,
    alive: RowBitmap,
    /// The new ordinal of each chunk that is alive.
    places: Vec<u32>,
}

fn merge_segments(connection: &Connection, rows: &[SegmentRow]) -> StoreResult<()> {
    let mut merged = SegmentMembers::default();
    let mut parts = Vec::with_capacity(rows.len());
    for row in rows {
        let (old, alive) =
            (read_members(connection, row.segment)?, read_alive(connection, row.segment)?);
        let mut places = vec![0; old.len()];
        for (ordinal, place) in places.iter_mut().enumerate().filter(|(at, _)| alive.get(*at)) {
            *place = merged.len() as u32;
            merged.push(old.chunks[ordinal], old.documents[ordinal], old.lengths[ordinal]);
        }
        parts.push(SegmentToMerge { row: *row, alive, places });
    }
    if let (Some(first), false) = (rows.first(), merged.len() == 0) {
        let segment = insert_segment(connection, first.first_chunk, &merged)?;
        merge_terms(connection, segment, &parts)?;
        let old: Vec<_> = parts.iter().map(|part| (part.row.segment, &part.alive)).collect();
        vectors::merge_vectors(connection, segment, &old)?;
    }
    for row in rows {
        for delete in [
            "DELETE FROM kb_terms WHERE segment = ?1",
            "DELETE FROM kb_vectors WHERE segment = ?1",
            "DELETE FROM kb_segments WHERE segment = ?1",
        ] {
            execute_cached(connection, delete, [row.segment])?;
        }
    }
    Ok(())
}

fn merge_terms(connection: &Connection, segment: i64, parts: &[SegmentToMerge]) -> StoreResult<()> {
    let mut cursors = Vec::with_capacity(parts.len());
    for part in parts {
        cursors.push(TermCursor::new(connection, part.row.segment)?);
    }
    let mut blocks = TermBlockWriter::new(connection, segment);
    let mut list = PostingList::default();
    while let Some(term) = cursors.iter().filter_map(TermCursor::term).min().map(<[u8]>::to_vec) {
        list.clear();
        for (cursor, part) in cursors.iter_mut().zip(parts) {
            if cursor.term() != Some(&term) {
                continue;
            }
            decode_postings(&cursor.take_list()?, |ChunkPosting { ordinal, counts }| {
                let at = ordinal as usize;
                if part.alive.get(at) {
                    list.push(ChunkPosting { ordinal: part.places[at], counts });
                }
            })?;
        }
        if list.len() > 0 {
            blocks.push_term(&term, &list)?;
        }
    }
    blocks.flush()
}
