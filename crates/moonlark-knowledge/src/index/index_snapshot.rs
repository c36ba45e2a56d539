//! The index as readers hold it: members and vectors in memory, of one commit.
//!
//! A segment never changes but for its dead, so what was read of it is kept as
//! long as it is there; after a commit only what is new is read. Lists of terms
//! stay in the file.

use std::collections::HashMap;
use std::sync::Arc;

use moonlark_search::{RowBitmap, TextLanguage};
use parking_lot::Mutex;
use rusqlite::Connection;

use super::segment_members::SegmentMembers;
use super::vectors::{self, EmbeddingModel};
use super::{FIELD_COUNT, segments};
use crate::store::{
    IndexGeneration, StoreResult, damaged_error, query_all, read_generation, read_languages,
};

/// The last snapshot that somebody asked for.
#[derive(Default)]
pub(crate) struct CurrentIndexSnapshot(Mutex<Option<Arc<IndexSnapshot>>>);

pub(crate) struct IndexSnapshot {
    generation: IndexGeneration,
    pub(crate) segments: Vec<LoadedSegment>,
    /// Chunks, dead ones included: where the last segment ends.
    pub(crate) places: usize,
    /// Chunks that are alive.
    pub(crate) alive: usize,
    /// Terms in each field of them, on average.
    pub(crate) average: [f32; FIELD_COUNT],
    /// The languages of documents, the most frequent first.
    pub(crate) languages: Vec<TextLanguage>,
    models: Vec<EmbeddingModel>,
    by_segment: vectors::ModelsBySegment,
    documents: Mutex<Option<Arc<FilterFieldsByDocument>>>,
}

pub(crate) struct LoadedSegment {
    pub(crate) segment: i64,
    /// Where its chunks begin when those of all segments are counted.
    pub(crate) base: usize,
    pub(crate) alive: RowBitmap,
    /// How many are alive.
    pub(crate) living: usize,
    part: Arc<SegmentContent>,
}

/// What never changes about a segment.
struct SegmentContent {
    members: SegmentMembers,
    /// The vectors that were asked for last.
    vectors: Mutex<Option<(i64, Arc<Vec<i8>>)>>,
}

/// What filters look at, by the number of the document.
pub(crate) type FilterFieldsByDocument = HashMap<u32, DocumentFilterFields>;

#[derive(Debug, Clone, Copy)]
pub(crate) struct DocumentFilterFields {
    pub(crate) source: i64,
    pub(crate) updated_at: Option<i64>,
}

impl CurrentIndexSnapshot {
    /// The index as this connection's transaction sees it.
    pub(crate) fn snapshot_for(&self, connection: &Connection) -> StoreResult<Arc<IndexSnapshot>> {
        let generation = read_generation(connection)?;
        let mut current = self.0.lock();
        if let Some(snapshot) = current.as_ref().filter(|it| it.generation == generation) {
            return Ok(snapshot.clone());
        }
        let old = current.as_deref().filter(|it| it.generation.file == generation.file);
        let snapshot = Arc::new(IndexSnapshot::load(connection, generation, old)?);
        // A reader that began before the last commit looks at the past alone.
        if old.is_none_or(|it| it.generation.number < generation.number) {
            *current = Some(snapshot.clone());
        }
        Ok(snapshot)
    }
}

impl IndexSnapshot {
    fn load(
        connection: &Connection,
        generation: IndexGeneration,
        old: Option<&IndexSnapshot>,
    ) -> StoreResult<IndexSnapshot> {
        let known: HashMap<i64, &Arc<SegmentContent>> =
            old.iter().flat_map(|it| &it.segments).map(|it| (it.segment, &it.part)).collect();
        let mut loaded = Vec::new();
        let (mut base, mut count, mut sums) = (0, 0, [0_u64; FIELD_COUNT]);
        for row in segments::list_segments(connection)? {
            let part = match known.get(&row.segment) {
                Some(part) => Arc::clone(part),
                None => Arc::new(SegmentContent {
                    members: segments::read_members(connection, row.segment)?,
                    vectors: Mutex::default(),
                }),
            };
            let alive = segments::read_alive(connection, row.segment)?;
            for at in (0..part.members.len()).filter(|at| alive.get(*at)) {
                for (sum, length) in sums.iter_mut().zip(part.members.lengths[at]) {
                    *sum += u64::from(length);
                }
            }
            let living = alive.count_set();
            count += living;
            loaded.push(LoadedSegment { segment: row.segment, base, alive, living, part });
            base += row.chunks;
        }
        Ok(IndexSnapshot {
            generation,
            segments: loaded,
            places: base,
            alive: count,
            average: sums.map(|sum| sum as f32 / count.max(1) as f32),
            languages: read_languages(connection)?,
            models: vectors::list_models(connection)?,
            by_segment: vectors::models_by_segment(connection)?,
            documents: Mutex::default(),
        })
    }

    /// The model of this name, and how many chunks have a vector of it.
    pub(crate) fn find_model(&self, name: &str) -> Option<(&EmbeddingModel, usize)> {
        let model = self.models.iter().find(|it| it.name == name)?;
        let has = |it: &&LoadedSegment| {
            self.by_segment.get(&it.segment).is_some_and(|models| models.contains(&model.model))
        };
        let chunks = self.segments.iter().filter(has).map(|it| it.living).sum();
        Some((model, chunks))
    }

    /// Sources and times of all documents; read when first asked for.
    pub(crate) fn filter_fields(
        &self,
        connection: &Connection,
    ) -> StoreResult<Arc<FilterFieldsByDocument>> {
        let mut documents = self.documents.lock();
        if let Some(documents) = &*documents {
            return Ok(documents.clone());
        }
        let sql = "SELECT document, source, updated_at FROM kb_documents";
        let read = query_all(connection, sql, [], |row| {
            let fields = DocumentFilterFields { source: row.get(1)?, updated_at: row.get(2)? };
            Ok((row.get(0)?, fields))
        })?;
        Ok(documents.insert(Arc::new(read.into_iter().collect())).clone())
    }

    /// Which segment a place is in, and its ordinal there.
    pub(crate) fn locate_chunk(&self, place: usize) -> Option<(&LoadedSegment, usize)> {
        let after = self.segments.partition_point(|it| it.base <= place);
        let segment = self.segments.get(after.checked_sub(1)?)?;
        Some((segment, place - segment.base))
    }
}

impl LoadedSegment {
    pub(crate) fn members(&self) -> &SegmentMembers {
        &self.part.members
    }

    /// Its rows of this model, if it has some.
    pub(crate) fn load_vectors(
        &self,
        connection: &Connection,
        model: &EmbeddingModel,
    ) -> StoreResult<Option<Arc<Vec<i8>>>> {
        let mut kept = self.part.vectors.lock();
        if let Some((_, rows)) = kept.as_ref().filter(|(of, _)| *of == model.model) {
            return Ok(Some(rows.clone()));
        }
        let Some(rows) = vectors::read_vectors(connection, self.segment, model.model)? else {
            return Ok(None);
        };
        if rows.len() != self.members().len() * model.width {
            return Err(damaged_error("there are not as many vectors as chunks"));
        }
        let rows = Arc::new(rows.into_iter().map(|byte| byte as i8).collect::<Vec<i8>>());
        *kept = Some((model.model, rows.clone()));
        Ok(Some(rows))
    }
}
