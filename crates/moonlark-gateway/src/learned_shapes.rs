//! Learned output shapes of tools that declare none.
//!
//! Where a tool declares no output schema, the gateway shows its answers to
//! `LearnedShapes`: all of the first twenty, then ever fewer. Their shapes
//! are merged into one, which documentation draws with the renderer of declared
//! schemas (`AnswerShape::to_schema`). It is never used to refuse anything: the next
//! answer may always be another.
//!
//! What one caller's answers taught is shown to no other: callers that have shown
//! who they are learn each for themselves, and all others together.
//!
//! A shape holds names of fields and kinds of values, and no value. Names that
//! look like data are not held either. Whoever keeps shapes over a restart takes
//! [`LearnedShapes::export_json`] when `LearnedShapes::changes` wakes; there is no I/O here.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tokio::sync::watch;

use crate::call::{Caller, LOCAL_CALLER};
use crate::tool_body::ToolRuntime;
use moonlark_core::answer_shape::AnswerShape;
use moonlark_core::content::ToolAnswer;
use moonlark_core::problem::{Problem, Result};
use moonlark_core::tool::{SourceKind, Tool};

/// Answers that are all looked at, before it is every power of two.
const FULLY_OBSERVED_ANSWERS: u32 = 20;
/// Bytes that all shapes together take, about.
const MAX_SHAPES_BYTES: usize = 200 * 1024;
/// Bytes that those of one caller may take while there are others.
const MAX_SHAPES_BYTES_PER_CALLER: usize = MAX_SHAPES_BYTES / 4;
/// The form of [`Learned::export_json`]. Before 2, callers were not told apart.
const SHAPES_FORMAT_VERSION: u32 = 2;

pub struct LearnedShapes {
    store: Mutex<ShapeStore>,
    changes: watch::Sender<u64>,
}

/// Whose answers a shape was learned from, and of which tool.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct ShapeKey {
    /// Empty for callers that are not told apart.
    caller: Arc<str>,
    tool: String,
}

impl ShapeKey {
    fn new(tool: &Tool, caller: &Caller) -> ShapeKey {
        // Whoever is at this machine may look at everything.
        let named = caller.name.clone().filter(|name| **name != *LOCAL_CALLER);
        ShapeKey { caller: named.unwrap_or_default(), tool: tool.name.clone() }
    }
}

#[derive(Default)]
struct ShapeStore {
    tools: HashMap<ShapeKey, ShapeEntry>,
    bytes: usize,
    /// Counts uses, to know which was used last.
    clock: u64,
}

struct ShapeEntry {
    /// Which definition of the tool the answers were of.
    definition: String,
    shape: Arc<AnswerShape>,
    bytes: usize,
    used: u64,
}

impl Default for LearnedShapes {
    fn default() -> Self {
        LearnedShapes { store: Mutex::default(), changes: watch::Sender::new(0) }
    }
}

impl LearnedShapes {
    /// Look at an answer, if it is one of those to look at. Nearly always this
    /// costs one addition.
    pub(crate) fn observe_answer(&self, tool: &Tool, caller: &Caller, answer: &ToolAnswer) {
        let learnable = matches!(
            tool.source.kind,
            SourceKind::Script | SourceKind::Extension | SourceKind::Upstream
        );
        if tool.output.is_some() || !learnable {
            return;
        }
        let count = ToolRuntime::of_tool(tool).count_answer();
        let key = ShapeKey::new(tool, caller);
        let is_early = || {
            let store = self.store.lock();
            store.tools.get(&key).is_none_or(|entry| entry.shape.calls() < FULLY_OBSERVED_ANSWERS)
        };
        // The tool counts the answers to all callers; each has early ones of its own.
        let looks = count <= FULLY_OBSERVED_ANSWERS
            || count.is_power_of_two()
            || (!key.caller.is_empty() && is_early());
        if !looks {
            return;
        }
        if let Some(shape) = AnswerShape::from_answer(answer) {
            self.store.lock().learn_shape(key, definition_hash(tool), shape);
            self.changes.send_modify(|version| *version += 1);
        }
    }

    /// What the answers of a tool to this caller looked like. Nothing if it
    /// declares that itself, or if its definition is no longer what it was.
    pub fn find_shape(&self, tool: &Tool, caller: &Caller) -> Option<Arc<AnswerShape>> {
        if tool.output.is_some() {
            return None;
        }
        let mut store = self.store.lock();
        store.clock += 1;
        let now = store.clock;
        let entry = store.tools.get_mut(&ShapeKey::new(tool, caller))?;
        if entry.definition != definition_hash(tool) {
            return None;
        }
        entry.used = now;
        Some(entry.shape.clone())
    }

    /// Wakes whenever there is something new to keep.
    pub fn subscribe_to_changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// All that is known, for the next start.
    pub fn export_json(&self) -> Json {
        let store = self.store.lock();
        let mut callers: BTreeMap<String, BTreeMap<String, SavedToolShape>> = BTreeMap::new();
        for (key, entry) in &store.tools {
            let (definition, shape) = (entry.definition.clone(), (*entry.shape).clone());
            let tools = callers.entry(key.caller.to_string()).or_default();
            tools.insert(key.tool.clone(), SavedToolShape { definition, shape });
        }
        let kept = SavedShapes { version: SHAPES_FORMAT_VERSION, callers };
        serde_json::to_value(kept).unwrap_or_default()
    }

    /// What [`export_json`](Self::export_json) gave, here or in another process: of each
    /// tool, the shape that was learned from more answers stays.
    pub fn import_json(&self, text: &[u8]) -> Result<()> {
        let wrong = |why: String| Problem::bad_config(format!("no learned shapes: {why}"));
        let kept: SavedShapes =
            serde_json::from_slice(text).map_err(|error| wrong(error.to_string()))?;
        if kept.version != SHAPES_FORMAT_VERSION {
            return Err(wrong(format!("version {} is not {SHAPES_FORMAT_VERSION}", kept.version)));
        }
        let mut store = self.store.lock();
        for (caller, tools) in kept.callers {
            let caller: Arc<str> = caller.into();
            for (tool, SavedToolShape { definition, shape }) in tools {
                let key = ShapeKey { caller: caller.clone(), tool };
                store.adopt_shape(key, definition, shape.into_bounded());
            }
        }
        Ok(())
    }
}

impl ShapeStore {
    fn learn_shape(&mut self, key: ShapeKey, definition: String, seen: AnswerShape) {
        let shape = match self.remove_entry(&key) {
            Some(mut entry) if entry.definition == definition => {
                Arc::make_mut(&mut entry.shape).merge(seen);
                entry.shape
            }
            _ => Arc::new(seen),
        };
        self.insert_entry(key, definition, shape);
    }

    /// Take over what somebody else learned, unless more is known here.
    fn adopt_shape(&mut self, key: ShapeKey, definition: String, theirs: AnswerShape) {
        let better = self.tools.get(&key).is_none_or(|mine| {
            mine.definition == definition && mine.shape.calls() < theirs.calls()
        });
        if better {
            self.remove_entry(&key);
            self.insert_entry(key, definition, Arc::new(theirs));
        }
    }

    fn insert_entry(&mut self, key: ShapeKey, definition: String, shape: Arc<AnswerShape>) {
        let bytes = key.caller.len() + key.tool.len() + definition.len() + shape.approx_bytes();
        self.make_room(&key.caller, bytes);
        self.bytes += bytes;
        self.clock += 1;
        let used = self.clock;
        self.tools.insert(key, ShapeEntry { definition, shape, bytes, used });
    }

    fn remove_entry(&mut self, key: &ShapeKey) -> Option<ShapeEntry> {
        let entry = self.tools.remove(key)?;
        self.bytes -= entry.bytes;
        Some(entry)
    }

    /// Forget what was not asked for or seen for longest: of the caller itself if it
    /// has more than its share, of whoever has most otherwise.
    fn make_room(&mut self, caller: &Arc<str>, bytes: usize) {
        while self.bytes + bytes > MAX_SHAPES_BYTES {
            let mut shares: HashMap<Arc<str>, usize> = HashMap::new();
            for (key, entry) in &self.tools {
                *shares.entry(key.caller.clone()).or_default() += entry.bytes;
            }
            let own = shares.get(caller).copied().unwrap_or_default();
            let largest = shares.into_iter().max_by_key(|(_, bytes)| *bytes);
            let Some((largest, _)) = largest else { return };
            let from = if own + bytes > MAX_SHAPES_BYTES_PER_CALLER { caller } else { &largest };
            let theirs = self.tools.iter().filter(|(key, _)| key.caller == *from);
            let oldest = theirs.min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { return };
            self.remove_entry(&oldest);
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedShapes {
    version: u32,
    /// By caller, then by tool.
    callers: BTreeMap<String, BTreeMap<String, SavedToolShape>>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedToolShape {
    definition: String,
    shape: AnswerShape,
}

/// Tells one definition of a tool from another. Fields in another order are
/// the same definition: some servers write them as they come.
fn definition_hash(tool: &Tool) -> String {
    let fields = tool.input.json().iter();
    let input = fields.map(|(key, value)| fnv1a_hash(key.as_bytes(), hash_json(value, 0)));
    let input = input.fold(0, u64::wrapping_add);
    format!("{:016x}", fnv1a_hash(tool.description.as_bytes(), input))
}

fn hash_json(json: &Json, depth: usize) -> u64 {
    // Schemas are held to a depth when they are compiled; this is beyond it.
    if depth > moonlark_core::value::MAX_VALUE_DEPTH {
        return 0;
    }
    match json {
        Json::Array(items) => items
            .iter()
            .fold(1, |sum, item| fnv1a_hash(&hash_json(item, depth + 1).to_le_bytes(), sum)),
        Json::Object(fields) => fields
            .iter()
            .map(|(key, value)| fnv1a_hash(key.as_bytes(), hash_json(value, depth + 1)))
            .fold(2, u64::wrapping_add),
        plain => fnv1a_hash(plain.to_string().as_bytes(), 3),
    }
}

/// FNV-1a: it is written to disk, so it must stay what it is.
fn fnv1a_hash(bytes: &[u8], seed: u64) -> u64 {
    let start = 0xcbf2_9ce4_8422_2325 ^ seed;
    bytes
        .iter()
        .fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}
