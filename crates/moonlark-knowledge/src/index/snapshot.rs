//! The index as readers hold it: members and vectors in memory, of one commit.
//!
//! A segment never changes but for its dead, so what was read of it is kept as
//! long as it is there; after a commit only what is new is read. Lists of terms
//! stay in the file.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::Connection;

use super::bits::Bits;
use super::members::Members;
use super::vectors::{self, Model};
use super::{FIELDS, segments};
use crate::store::{Attempt, Generation, damaged, generation};

/// The last snapshot that somebody asked for.
#[derive(Default)]
pub(crate) struct Current(Mutex<Option<Arc<Snapshot>>>);

pub(crate) struct Snapshot {
    generation: Generation,
    pub(crate) segments: Vec<Loaded>,
    /// Chunks, dead ones included: where the last segment ends.
    pub(crate) places: usize,
    /// Chunks that are alive.
    pub(crate) alive: usize,
    /// Terms in each field of them, on average.
    pub(crate) average: [f32; FIELDS],
    models: Vec<Model>,
    by_segment: vectors::BySegment,
    documents: Mutex<Option<Arc<Documents>>>,
}

pub(crate) struct Loaded {
    pub(crate) segment: i64,
    /// Where its chunks begin when those of all segments are counted.
    pub(crate) base: usize,
    pub(crate) alive: Bits,
    /// How many are alive.
    pub(crate) living: usize,
    part: Arc<Part>,
}

/// What never changes about a segment.
struct Part {
    members: Members,
    /// The vectors that were asked for last.
    vectors: Mutex<Option<(i64, Arc<Vec<i8>>)>>,
}

/// What filters look at, by the number of the document.
pub(crate) type Documents = HashMap<u32, About>;

#[derive(Debug, Clone, Copy)]
pub(crate) struct About {
    pub(crate) source: i64,
    pub(crate) updated_at: Option<i64>,
}

impl Current {
    /// The index as this connection's transaction sees it.
    pub(crate) fn of(&self, connection: &Connection) -> Attempt<Arc<Snapshot>> {
        let generation = generation(connection)?;
        let mut current = self.0.lock();
        if let Some(snapshot) = current.as_ref().filter(|it| it.generation == generation) {
            return Ok(snapshot.clone());
        }
        let old = current.as_deref().filter(|it| it.generation.file == generation.file);
        let snapshot = Arc::new(Snapshot::load(connection, generation, old)?);
        // A reader that began before the last commit looks at the past alone.
        if old.is_none_or(|it| it.generation.number < generation.number) {
            *current = Some(snapshot.clone());
        }
        Ok(snapshot)
    }
}

impl Snapshot {
    fn load(
        connection: &Connection,
        generation: Generation,
        old: Option<&Snapshot>,
    ) -> Attempt<Snapshot> {
        let known: HashMap<i64, &Arc<Part>> =
            old.iter().flat_map(|it| &it.segments).map(|it| (it.segment, &it.part)).collect();
        let mut loaded = Vec::new();
        let (mut base, mut count, mut sums) = (0, 0, [0_u64; FIELDS]);
        for row in segments::list(connection)? {
            let part = match known.get(&row.segment) {
                Some(part) => Arc::clone(part),
                None => Arc::new(Part {
                    members: segments::members(connection, row.segment)?,
                    vectors: Mutex::default(),
                }),
            };
            let alive = segments::alive(connection, row.segment)?;
            for (_, lengths) in
                part.members.lengths.iter().enumerate().filter(|(at, _)| alive.get(*at))
            {
                count += 1;
                for (sum, length) in sums.iter_mut().zip(lengths) {
                    *sum += u64::from(*length);
                }
            }
            let living = alive.count();
            loaded.push(Loaded { segment: row.segment, base, alive, living, part });
            base += row.chunks;
        }
        Ok(Snapshot {
            generation,
            segments: loaded,
            places: base,
            alive: count,
            average: sums.map(|sum| sum as f32 / count.max(1) as f32),
            models: vectors::models(connection)?,
            by_segment: vectors::models_by_segment(connection)?,
            documents: Mutex::default(),
        })
    }

    /// The model of this name, and how many chunks have a vector of it.
    pub(crate) fn model(&self, name: &str) -> Option<(&Model, usize)> {
        let model = self.models.iter().find(|it| it.name == name)?;
        let has = |it: &&Loaded| {
            self.by_segment.get(&it.segment).is_some_and(|models| models.contains(&model.model))
        };
        let chunks = self.segments.iter().filter(has).map(|it| it.living).sum();
        Some((model, chunks))
    }

    /// Sources and times of all documents; read when first asked for.
    pub(crate) fn documents(&self, connection: &Connection) -> Attempt<Arc<Documents>> {
        let mut documents = self.documents.lock();
        if let Some(documents) = &*documents {
            return Ok(documents.clone());
        }
        let mut statement =
            connection.prepare_cached("SELECT document, source, updated_at FROM kb_documents")?;
        let mut rows = statement.query([])?;
        let mut read = Documents::new();
        while let Some(row) = rows.next()? {
            read.insert(row.get(0)?, About { source: row.get(1)?, updated_at: row.get(2)? });
        }
        Ok(documents.insert(Arc::new(read)).clone())
    }

    /// Which segment a place is in, and its ordinal there.
    pub(crate) fn locate(&self, place: usize) -> Option<(&Loaded, usize)> {
        let after = self.segments.partition_point(|it| it.base <= place);
        let segment = self.segments.get(after.checked_sub(1)?)?;
        Some((segment, place - segment.base))
    }
}

impl Loaded {
    pub(crate) fn members(&self) -> &Members {
        &self.part.members
    }

    /// Its rows of this model, if it has some.
    pub(crate) fn vectors(
        &self,
        connection: &Connection,
        model: &Model,
    ) -> Attempt<Option<Arc<Vec<i8>>>> {
        let mut kept = self.part.vectors.lock();
        if let Some((_, rows)) = kept.as_ref().filter(|(of, _)| *of == model.model) {
            return Ok(Some(rows.clone()));
        }
        let Some(rows) = vectors::read(connection, self.segment, model.model)? else {
            return Ok(None);
        };
        if rows.len() != self.members().len() * model.width {
            return Err(damaged("there are not as many vectors as chunks"));
        }
        let rows = Arc::new(rows.into_iter().map(|byte| byte as i8).collect::<Vec<i8>>());
        *kept = Some((model.model, rows.clone()));
        Ok(Some(rows))
    }
}
