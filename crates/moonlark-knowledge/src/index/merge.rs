//! Merging segments: fewer places to look, and no more dead.
//!
//! Neighbours of about one size become one, so that every chunk is written again
//! only a few times however many there are. A merge is a transaction of its own,
//! and streams: it holds one list at a time, whatever the size of the index.

use rusqlite::Connection;

use super::bits::Bits;
use super::blocks::{Blocks, Cursor};
use super::draft::insert;
use super::members::Members;
use super::postings::{List, Posting, decode};
use super::segments::{SegmentRow, alive, list, members};
use super::vectors;
use crate::store::Attempt;

/// So many neighbours of one size become one.
const FAN: usize = 8;
/// Sizes within a factor of eight count as one, from this one on.
const SMALLEST: usize = 1_024;
/// No segment grows beyond this many chunks: its vectors are one value.
const LARGEST: usize = 1 << 17;
/// More segments than this are too many to look into for every question.
const MANY: usize = 6;

/// Merge once what should be merged while a sync goes on. Says whether it did.
pub(crate) fn tidy_up(connection: &Connection) -> Attempt<bool> {
    let segments = list(connection)?;
    // Mostly dead ones are written again alone.
    if let Some(row) = segments.iter().find(|row| row.dead * 3 > row.chunks) {
        merge(connection, &[*row])?;
        return Ok(true);
    }
    let models = vectors::models_by_segment(connection)?;
    for level in 0..=level_of(LARGEST) {
        let alike = |row: &SegmentRow| level_of(row.chunks) <= level;
        if let Some(run) = run(&segments, &models, FAN, alike) {
            merge(connection, run)?;
            return Ok(true);
        }
    }
    Ok(false)
}

/// At the end of a sync: as few segments as there may be, unless there are few
/// enough. Merges once and says whether it did.
pub(crate) fn settle(connection: &Connection) -> Attempt<bool> {
    let segments = list(connection)?;
    if segments.len() <= MANY {
        return tidy_up(connection);
    }
    let models = vectors::models_by_segment(connection)?;
    match run(&segments, &models, 2, |row| row.chunks <= LARGEST / 2) {
        None => Ok(false),
        Some(run) => {
            merge(connection, run)?;
            Ok(true)
        }
    }
}

fn level_of(chunks: usize) -> u32 {
    (chunks / SMALLEST).max(1).ilog2() / 3
}

/// The first neighbours that are `alike` and have vectors of the same models, if
/// there are enough and they are not too many chunks together.
fn run<'a>(
    segments: &'a [SegmentRow],
    models: &vectors::BySegment,
    least: usize,
    alike: impl Fn(&SegmentRow) -> bool,
) -> Option<&'a [SegmentRow]> {
    let mut start = 0;
    while start < segments.len() {
        let (mut end, mut chunks) = (start, 0);
        while let Some(row) = segments.get(end)
            && alike(row)
            && chunks + row.chunks <= LARGEST
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
struct Part {
    row: SegmentRow,
    alive: Bits,
    /// The new ordinal of each chunk that is alive.
    places: Vec<u32>,
}

fn merge(connection: &Connection, rows: &[SegmentRow]) -> Attempt<()> {
    let mut merged = Members::default();
    let mut parts = Vec::with_capacity(rows.len());
    for row in rows {
        let (old, alive) = (members(connection, row.segment)?, alive(connection, row.segment)?);
        let mut places = vec![0; old.len()];
        for (ordinal, place) in places.iter_mut().enumerate().filter(|(at, _)| alive.get(*at)) {
            *place = merged.len() as u32;
            merged.push(old.chunks[ordinal], old.documents[ordinal], old.lengths[ordinal]);
        }
        parts.push(Part { row: *row, alive, places });
    }
    if let (Some(first), false) = (rows.first(), merged.len() == 0) {
        let segment = insert(connection, first.first_chunk, &merged)?;
        merge_terms(connection, segment, &parts)?;
        let old: Vec<_> = parts.iter().map(|part| (part.row.segment, &part.alive)).collect();
        vectors::merge(connection, segment, &old)?;
    }
    for row in rows {
        for delete in [
            "DELETE FROM kb_terms WHERE segment = ?1",
            "DELETE FROM kb_vectors WHERE segment = ?1",
            "DELETE FROM kb_segments WHERE segment = ?1",
        ] {
            connection.prepare_cached(delete)?.execute([row.segment])?;
        }
    }
    Ok(())
}

fn merge_terms(connection: &Connection, segment: i64, parts: &[Part]) -> Attempt<()> {
    let mut cursors = Vec::with_capacity(parts.len());
    for part in parts {
        cursors.push(Cursor::new(connection, part.row.segment)?);
    }
    let mut blocks = Blocks::new(connection, segment);
    let mut list = List::default();
    while let Some(term) = cursors.iter().filter_map(Cursor::term).min().map(<[u8]>::to_vec) {
        list.clear();
        for (cursor, part) in cursors.iter_mut().zip(parts) {
            if cursor.term() != Some(&term) {
                continue;
            }
            decode(&cursor.take()?, |Posting { ordinal, counts }| {
                let at = ordinal as usize;
                if part.alive.get(at) {
                    list.push(Posting { ordinal: part.places[at], counts });
                }
            })?;
        }
        if list.len() > 0 {
            blocks.push(&term, &list)?;
        }
    }
    blocks.flush()
}
