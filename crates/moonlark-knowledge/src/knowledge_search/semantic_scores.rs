//! Semantic scores: how near the vectors of chunks are to that of a question.

use std::collections::HashSet;
use std::sync::Arc;

use moonlark_search::{CosineStats, cosine_similarity, top_k};
use rusqlite::Connection;

use super::ChunkPosition;
use super::search_filter::SegmentMasks;
use crate::index::{EmbeddingModel, IndexSnapshot};
use crate::store::StoreResult;

#[derive(Default)]
pub(super) struct SemanticScores {
    /// The nearest chunks, with their cosines.
    pub(super) best: Vec<(ChunkPosition, f32)>,
    pub(super) cosines: CosineStats,
    question: Vec<i8>,
    /// The rows of each segment that has some.
    rows: Vec<Option<Arc<Vec<i8>>>>,
}

impl SemanticScores {
    pub(super) fn score_chunks(
        connection: &Connection,
        snapshot: &IndexSnapshot,
        masks: &SegmentMasks,
        model: &EmbeddingModel,
        question: &[u8],
        most: usize,
    ) -> StoreResult<SemanticScores> {
        let question: Vec<i8> = question.iter().map(|byte| *byte as i8).collect();
        let read = |it: &crate::index::LoadedSegment| it.load_vectors(connection, model);
        let rows = snapshot.segments.iter().map(read).collect::<StoreResult<Vec<_>>>()?;
        let mut nearness = SemanticScores { question, rows, ..SemanticScores::default() };
        // A long document may have all of the nearest chunks.
        let mut wanted = most;
        loop {
            let looked_at = nearness.find_nearest(snapshot, masks, wanted);
            let documents: HashSet<u32> = nearness
                .best
                .iter()
                .filter_map(|(place, _)| snapshot.locate_chunk(*place as usize))
                .map(|(segment, at)| segment.members().documents[at])
                .collect();
            if documents.len() >= most / 4 || nearness.best.len() >= looked_at || wanted > most * 64
            {
                return Ok(nearness);
            }
            wanted *= 8;
        }
    }

    /// Gives how many rows there were.
    fn find_nearest(
        &mut self,
        snapshot: &IndexSnapshot,
        masks: &SegmentMasks,
        most: usize,
    ) -> usize {
        self.best.clear();
        let (mut count, mut sum, mut squares) = (0_usize, 0.0_f64, 0.0_f64);
        for ((segment, mask), rows) in snapshot.segments.iter().zip(masks).zip(&self.rows) {
            let Some(rows) = rows else { continue };
            let found = top_k(rows, &self.question, most, mask.as_ref());
            let CosineStats { rows, mean, deviation } = found.cosines;
            count += rows;
            let (rows, mean, deviation) = (rows as f64, f64::from(mean), f64::from(deviation));
            sum += mean * rows;
            squares += (deviation * deviation + mean * mean) * rows;
            let place = |row: u32| segment.base as ChunkPosition + row;
            self.best.extend(found.best.into_iter().map(|(row, near)| (place(row), near)));
        }
        self.best.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        self.best.truncate(most);
        let all = count.max(1) as f64;
        let mean = sum / all;
        let deviation = (squares / all - mean * mean).max(0.0).sqrt();
        self.cosines = CosineStats { rows: count, mean: mean as f32, deviation: deviation as f32 };
        count
    }

    /// How near one chunk is, if it has a vector.
    pub(super) fn cosine_at(&self, snapshot: &IndexSnapshot, place: ChunkPosition) -> Option<f32> {
        let place = place as usize;
        let after = snapshot.segments.partition_point(|it| it.base <= place);
        let number = after.checked_sub(1)?;
        let rows = self.rows.get(number)?.as_ref()?;
        let (width, at) = (self.question.len(), place - snapshot.segments[number].base);
        Some(cosine_similarity(rows.get(at * width..(at + 1) * width)?, &self.question))
    }
}
