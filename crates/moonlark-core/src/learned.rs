//! What tools answer that do not say so: learned from their answers.
//!
//! Where a tool declares no output schema, the gateway shows its answers to
//! [`Learned::observe`]: all of the first twenty, then ever fewer. Their shapes
//! are merged into one, which documentation draws with the renderer of declared
//! schemas ([`Shape::to_schema`]). It is never used to refuse anything: the next
//! answer may always be another.
//!
//! A shape holds names of fields and kinds of values, and no value. Names that
//! look like data are not held either. Whoever keeps shapes over a restart takes
//! [`Learned::export`] when [`Learned::changes`] wakes; there is no I/O here.

mod form;
mod shape;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tokio::sync::watch;

use crate::content::Answer;
use crate::problem::{Problem, Result};
use crate::tool::{SourceKind, Tool};

pub use shape::Shape;

/// Answers that are all looked at, before it is every power of two.
const FIRST: u32 = 20;
/// Bytes that all shapes together take, about.
const BYTES: usize = 200 * 1024;
/// The form of [`Learned::export`].
const VERSION: u32 = 1;

pub struct Learned {
    store: Mutex<Store>,
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct Store {
    tools: HashMap<String, Entry>,
    bytes: usize,
    /// Counts uses, to know which was used last.
    clock: u64,
}

struct Entry {
    /// Which definition of the tool the answers were of.
    definition: String,
    shape: Arc<Shape>,
    bytes: usize,
    used: u64,
}

impl Default for Learned {
    fn default() -> Self {
        Learned { store: Mutex::default(), changes: watch::Sender::new(0) }
    }
}

impl Learned {
    /// Look at an answer, if it is one of those to look at. Nearly always this
    /// costs one addition.
    pub(crate) fn observe(&self, tool: &Tool, answer: &Answer) {
        let learnable = matches!(
            tool.source.kind,
            SourceKind::Script | SourceKind::Extension | SourceKind::Upstream
        );
        if tool.output.is_some() || !learnable {
            return;
        }
        // Wraps around after some billions, and is then curious again.
        let count = tool.answered.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        if count > FIRST && !count.is_power_of_two() {
            return;
        }
        if let Some(shape) = Shape::of_answer(answer) {
            self.store.lock().learn(&tool.name, definition(tool), shape);
            self.changes.send_modify(|version| *version += 1);
        }
    }

    /// What the answers of a tool looked like. Nothing if it declares that
    /// itself, or if its definition is no longer what it was.
    pub fn of(&self, tool: &Tool) -> Option<Arc<Shape>> {
        if tool.output.is_some() {
            return None;
        }
        let mut store = self.store.lock();
        store.clock += 1;
        let now = store.clock;
        let entry = store.tools.get_mut(&tool.name)?;
        if entry.definition != definition(tool) {
            return None;
        }
        entry.used = now;
        Some(entry.shape.clone())
    }

    /// Wakes whenever there is something new to keep.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// All that is known, for the next start.
    pub fn export(&self) -> Json {
        let store = self.store.lock();
        let tools = store.tools.iter().map(|(name, entry)| {
            let (definition, shape) = (entry.definition.clone(), (*entry.shape).clone());
            (name.clone(), KeptTool { definition, shape })
        });
        let kept = Kept { version: VERSION, tools: tools.collect() };
        serde_json::to_value(kept).unwrap_or_default()
    }

    /// What [`export`](Self::export) gave, here or in another process: of each
    /// tool, the shape that was learned from more answers stays.
    pub fn import(&self, text: &[u8]) -> Result<()> {
        let wrong = |why: String| Problem::bad_config(format!("no learned shapes: {why}"));
        let kept: Kept = serde_json::from_slice(text).map_err(|error| wrong(error.to_string()))?;
        if kept.version != VERSION {
            return Err(wrong(format!("version {} is not {VERSION}", kept.version)));
        }
        let mut store = self.store.lock();
        for (name, KeptTool { definition, shape }) in kept.tools {
            store.adopt(&name, definition, shape.bounded());
        }
        Ok(())
    }
}

impl Store {
    fn learn(&mut self, name: &str, definition: String, seen: Shape) {
        let shape = match self.take(name) {
            Some(mut entry) if entry.definition == definition => {
                Arc::make_mut(&mut entry.shape).merge(seen);
                entry.shape
            }
            _ => Arc::new(seen),
        };
        self.put(name, definition, shape);
    }

    /// Take over what somebody else learned, unless more is known here.
    fn adopt(&mut self, name: &str, definition: String, theirs: Shape) {
        let better = self.tools.get(name).is_none_or(|mine| {
            mine.definition == definition && mine.shape.calls() < theirs.calls()
        });
        if better {
            self.take(name);
            self.put(name, definition, Arc::new(theirs));
        }
    }

    fn put(&mut self, name: &str, definition: String, shape: Arc<Shape>) {
        let bytes = name.len() + definition.len() + shape.bytes();
        self.make_room(bytes);
        self.bytes += bytes;
        self.clock += 1;
        let used = self.clock;
        self.tools.insert(name.to_owned(), Entry { definition, shape, bytes, used });
    }

    fn take(&mut self, name: &str) -> Option<Entry> {
        let entry = self.tools.remove(name)?;
        self.bytes -= entry.bytes;
        Some(entry)
    }

    /// Forget what was not asked for or seen for longest.
    fn make_room(&mut self, bytes: usize) {
        while self.bytes + bytes > BYTES {
            let oldest = self.tools.iter().min_by_key(|(_, entry)| entry.used);
            let Some(name) = oldest.map(|(name, _)| name.clone()) else { return };
            self.take(&name);
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    version: u32,
    tools: BTreeMap<String, KeptTool>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptTool {
    definition: String,
    shape: Shape,
}

/// Tells one definition of a tool from another. Fields in another order are
/// the same definition: some servers write them as they come.
fn definition(tool: &Tool) -> String {
    let fields = tool.input.json().iter();
    let input = fields.map(|(key, value)| hash(key.as_bytes(), hash_json(value, 0)));
    let input = input.fold(0, u64::wrapping_add);
    format!("{:016x}", hash(tool.description.as_bytes(), input))
}

fn hash_json(json: &Json, depth: usize) -> u64 {
    // Schemas are held to a depth when they are compiled; this is beyond it.
    if depth > crate::value::MAX_DEPTH {
        return 0;
    }
    match json {
        Json::Array(items) => {
            items.iter().fold(1, |sum, item| hash(&hash_json(item, depth + 1).to_le_bytes(), sum))
        }
        Json::Object(fields) => fields
            .iter()
            .map(|(key, value)| hash(key.as_bytes(), hash_json(value, depth + 1)))
            .fold(2, u64::wrapping_add),
        plain => hash(plain.to_string().as_bytes(), 3),
    }
}

/// FNV-1a: it is written to disk, so it must stay what it is.
fn hash(bytes: &[u8], seed: u64) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed;
    bytes
        .iter()
        .fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}
