//! Artifacts: results too large to hand over, and bytes that no script needs to hold,
//! kept for later scripts under a handle nobody can guess.
//!
//! What is in memory is bounded three ways: by bytes, by number, by age. What is
//! oldest goes first, of whoever has most: nobody's make room for another's. An
//! [`ArtifactArchive`] keeps them beyond this process, with bounds of its own. Whoever has
//! the handle may read, unless it was made for a caller with a name: then only that one. A
//! handle is never written to a log.
//! Nothing here knows who shows what to whom: [`preview_value`] and [`shape`] only say
//! what a large value looks like.

mod archive;
mod preview;
mod selection;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::call::Caller;
use crate::per_catalog::run_blocking;
use moonlark_core::limits::{CallLimits, format_size};
use moonlark_core::problem::{Problem, Result};
use moonlark_core::value::{Value, ValueBudget, ValuePath, shorten_text};

pub use archive::{ArchivedArtifact, ArtifactArchive};
pub use preview::preview_value;
pub use selection::{ArtifactSelection, slice_value, value_at_path};

/// All of them together, unless the operator says otherwise.
pub const DEFAULT_MAX_ARTIFACT_BYTES: usize = 256 * 1024 * 1024;
/// How many there are at most.
const MAX_ARTIFACTS: usize = 1000;
/// The part of both that is left to a caller whatever others keep: one in this many.
const ARTIFACT_CALLER_SHARES: usize = 8;
/// How long one is kept in memory.
const MAX_ARTIFACT_AGE: Duration = Duration::from_secs(60 * 60);
/// What an entry of a value counts beside its text, as in the engines' bridges.
const ENTRY_BYTES: usize = 16;
/// What an entry takes in memory beyond that.
const ENTRY_OVERHEAD_BYTES: usize = 48;
/// How resources are named that are artifacts.
const ARTIFACT_URI_SCHEME: &str = "artifact://";

pub struct ArtifactStore {
    entries: Mutex<ArtifactEntries>,
    archive: OnceLock<Arc<dyn ArtifactArchive>>,
}

struct ArtifactEntries {
    kept: HashMap<ArtifactHandle, Arc<StoredArtifact>>,
    /// Oldest first.
    order: VecDeque<ArtifactHandle>,
    /// What they take in memory, and may.
    bytes: usize,
    most: usize,
}

/// The name of an artifact, and the right to read it: `art_` and 26 letters
/// and digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ArtifactHandle(String);

/// One artifact.
#[derive(Debug)]
pub struct StoredArtifact {
    pub held: ArtifactContent,
    /// Bytes, as limits count them.
    pub size: usize,
    pub created: Instant,
    /// Where it came from: the name of a tool.
    pub of: String,
    /// Whose it is.
    pub owner: Option<Arc<str>>,
    /// Bytes of memory.
    pub weight: usize,
}

/// The tool that made an artifact, and for which caller.
pub struct ArtifactOrigin<'a>(&'a str, Option<&'a Caller>);

impl<'a> From<&'a str> for ArtifactOrigin<'a> {
    fn from(tool: &'a str) -> Self {
        ArtifactOrigin(tool, None)
    }
}

impl<'a> From<(&'a str, &'a Caller)> for ArtifactOrigin<'a> {
    fn from((tool, caller): (&'a str, &'a Caller)) -> Self {
        ArtifactOrigin(tool, Some(caller))
    }
}

#[derive(Debug)]
pub enum ArtifactContent {
    Value(Value),
    Bytes { bytes: Vec<u8>, mime: String },
}

impl Default for ArtifactStore {
    fn default() -> Self {
        let entries = Mutex::new(ArtifactEntries {
            kept: HashMap::new(),
            order: VecDeque::new(),
            bytes: 0,
            most: DEFAULT_MAX_ARTIFACT_BYTES,
        });
        ArtifactStore { entries, archive: OnceLock::new() }
    }
}

impl ArtifactStore {
    /// Change how many bytes all of them may take.
    pub fn set_max_bytes(&self, bytes: usize) {
        if let Some(archive) = self.archive.get() {
            archive.set_max_bytes(bytes);
        }
        let mut shelf = self.entries.lock();
        shelf.most = bytes;
        shelf.make_room(None, 0, Instant::now());
    }

    /// Keep them beyond this process as well, from now on.
    pub(crate) fn keep_in(&self, archive: Arc<dyn ArtifactArchive>) {
        archive.set_max_bytes(self.entries.lock().most);
        let _ = self.archive.set(archive);
    }

    /// Keep a value that the tool `of` made.
    pub fn put_value<'a>(
        &self,
        value: Value,
        of: impl Into<ArtifactOrigin<'a>>,
        limits: &CallLimits,
    ) -> Result<ArtifactHandle> {
        self.put_value_as(ArtifactHandle::new_random()?, value, of, limits)
    }

    /// The same under a handle that is decided: that of a run's answer, which may
    /// come again when the run is resumed.
    pub fn put_value_as<'a>(
        &self,
        handle: ArtifactHandle,
        value: Value,
        of: impl Into<ArtifactOrigin<'a>>,
        limits: &CallLimits,
    ) -> Result<ArtifactHandle> {
        let mut measure =
            ValueMeasurer { budget: ValueBudget::new(limits.value), entries: 0, size: 0 };
        measure.measure_value(&value, &mut ValuePath::new("the value"))?;
        let (size, weight) = (measure.size, measure.size + measure.entries * ENTRY_OVERHEAD_BYTES);
        self.store_at(
            handle,
            ArtifactContent::Value(value),
            size,
            weight,
            of.into(),
            Instant::now(),
        )
    }

    /// Keep bytes of a type such as `image/png`, under a handle that is decided.
    pub fn put_bytes_as<'a>(
        &self,
        handle: ArtifactHandle,
        bytes: Vec<u8>,
        mime: &str,
        of: impl Into<ArtifactOrigin<'a>>,
        limits: &CallLimits,
    ) -> Result<ArtifactHandle> {
        let size = bytes.len();
        ValueBudget::new(limits.value).spend_bytes(size, &ValuePath::new("the value"))?;
        let held = ArtifactContent::Bytes { bytes, mime: mime.to_owned() };
        self.store_at(handle, held, size, size + ENTRY_BYTES, of.into(), Instant::now())
    }

    /// What is kept under a handle, which may also be written `artifact://…`.
    pub fn get(&self, handle: &str) -> Option<Arc<StoredArtifact>> {
        let handle = handle.strip_prefix(ARTIFACT_URI_SCHEME).unwrap_or(handle);
        self.get_at(handle, Instant::now()).or_else(|| self.load_archived(handle))
    }

    /// What an earlier process made, or what is in memory no longer.
    fn load_archived(&self, handle: &str) -> Option<Arc<StoredArtifact>> {
        let archive = self.archive.get()?;
        let handle = ArtifactHandle::from_text(handle)?;
        let loaded = run_blocking(|| archive.load_artifact(&handle))?;
        let ArchivedArtifact { held, size, weight, of, owner } = loaded;
        let now = Instant::now();
        let stored = Arc::new(StoredArtifact { held, size, created: now, of, owner, weight });
        self.entries.lock().insert(handle, stored.clone(), now);
        Some(stored)
    }

    /// The same for a caller, with the Problem of a handle that leads nowhere.
    pub fn find_for_caller(&self, handle: &str, by: &Caller) -> Result<Arc<StoredArtifact>> {
        let is_theirs =
            |it: &Arc<StoredArtifact>| it.owner.as_deref().is_none_or(|name| name == by.name());
        self.get(handle).filter(is_theirs).ok_or_else(|| {
            let message = format!("there is no artifact '{}'", shorten_text(handle));
            let hint = if handle.strip_prefix(ARTIFACT_URI_SCHEME).unwrap_or(handle).starts_with("art_") {
                    "artifacts are kept for up to a day, and the oldest make room for new ones: run what made it again"
                } else { "a handle begins with art_, as it was in the answer of an earlier script" };
            Problem::not_found(message).with_hint(hint)
        })
    }

    fn store_at(
        &self,
        handle: ArtifactHandle,
        held: ArtifactContent,
        size: usize,
        weight: usize,
        ArtifactOrigin(of, caller): ArtifactOrigin<'_>,
        now: Instant,
    ) -> Result<ArtifactHandle> {
        let owner = caller.and_then(|caller| caller.name.clone());
        let stored = StoredArtifact { held, size, created: now, of: of.to_owned(), owner, weight };
        let stored = Arc::new(stored);
        {
            let mut shelf = self.entries.lock();
            shelf.remove_entry(&handle);
            if weight > shelf.most {
                return Err(too_large_problem(shelf.most));
            }
            shelf.insert(handle.clone(), stored.clone(), now);
        }
        // Before anybody is told the handle: whoever has it finds the artifact after a crash.
        if let Some(archive) = self.archive.get() {
            run_blocking(|| archive.keep_artifact(&handle, &stored));
        }
        Ok(handle)
    }

    fn get_at(&self, handle: &str, now: Instant) -> Option<Arc<StoredArtifact>> {
        let mut shelf = self.entries.lock();
        shelf.make_room(None, 0, now);
        shelf.kept.get(handle).cloned()
    }
}

impl ArtifactEntries {
    fn insert(&mut self, handle: ArtifactHandle, stored: Arc<StoredArtifact>, now: Instant) {
        self.remove_entry(&handle);
        self.make_room(stored.owner.as_deref(), stored.weight, now);
        self.bytes += stored.weight;
        self.order.push_back(handle.clone());
        self.kept.insert(handle, stored);
    }

    /// Make room for the same thing again.
    fn remove_entry(&mut self, handle: &ArtifactHandle) {
        if let Some(stored) = self.kept.remove(handle) {
            self.bytes -= stored.weight;
            self.order.retain(|other| other != handle);
        }
    }

    /// Take away what is too old, and then the oldest until there is room: of those
    /// of `owner` if it has its share, of whoever has most otherwise.
    fn make_room(&mut self, owner: Option<&str>, bytes: usize, now: Instant) {
        while let Some(oldest) = self.order.front().cloned() {
            let age = |it: &Arc<StoredArtifact>| now.saturating_duration_since(it.created);
            if self.kept.get(&oldest).is_some_and(|it| age(it) < MAX_ARTIFACT_AGE) {
                break;
            }
            self.remove_entry(&oldest);
        }
        let crowded = |shelf: &ArtifactEntries| {
            shelf.bytes.saturating_add(bytes) > shelf.most
                || (bytes > 0 && shelf.kept.len() >= MAX_ARTIFACTS)
        };
        while crowded(self) {
            let Some(oldest) = self.find_entry_to_evict(owner, bytes) else { return };
            self.remove_entry(&oldest);
        }
    }

    fn find_entry_to_evict(&self, owner: Option<&str>, bytes: usize) -> Option<ArtifactHandle> {
        let mut shares: HashMap<Option<&str>, (usize, usize)> = HashMap::new();
        for stored in self.kept.values() {
            let share = shares.entry(stored.owner.as_deref()).or_default();
            *share = (share.0 + stored.weight, share.1 + 1);
        }
        let (own_bytes, own_count) = shares.get(&owner).copied().unwrap_or_default();
        let has_share = own_bytes.saturating_add(bytes) > self.most / ARTIFACT_CALLER_SHARES
            || own_count >= MAX_ARTIFACTS / ARTIFACT_CALLER_SHARES;
        let part = |(bytes, count): (usize, usize)| {
            (bytes as f64 / self.most.max(1) as f64).max(count as f64 / MAX_ARTIFACTS as f64)
        };
        let largest = shares.iter().max_by(|a, b| part(*a.1).total_cmp(&part(*b.1)));
        let from = if has_share && own_count > 0 { owner } else { *largest?.0 };
        let is_theirs = |handle: &&ArtifactHandle| {
            self.kept.get(*handle).is_some_and(|stored| stored.owner.as_deref() == from)
        };
        self.order.iter().find(is_theirs).cloned()
    }
}

impl ArtifactHandle {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// A handle that somebody wrote, if it looks like one.
    fn from_text(text: &str) -> Option<ArtifactHandle> {
        let letters = text.strip_prefix("art_")?;
        let is_letter = |it: u8| it.is_ascii_lowercase() || (b'2'..=b'7').contains(&it);
        (letters.len() == 26 && letters.bytes().all(is_letter))
            .then(|| ArtifactHandle(text.to_owned()))
    }

    pub fn new_random() -> Result<ArtifactHandle> {
        let mut bytes = [0; 26];
        getrandom::fill(&mut bytes).map_err(|error| {
            Problem::unavailable(format!("the system has no random numbers: {error}"))
        })?;
        Ok(ArtifactHandle::from_random_bytes(bytes))
    }

    /// Of bytes that nobody can guess.
    pub(crate) fn from_random_bytes(bytes: [u8; 26]) -> ArtifactHandle {
        const HANDLE_ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
        let letters = bytes.iter().map(|byte| HANDLE_ALPHABET[usize::from(byte % 32)] as char);
        ArtifactHandle("art_".chars().chain(letters).collect())
    }
}

impl std::borrow::Borrow<str> for ArtifactHandle {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ArtifactHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn too_large_problem(most: usize) -> Problem {
    Problem::limit_exceeded(format!(
        "the value does not fit {}, which all artifacts may take",
        format_size(most)
    ))
    .with_hint("return less, or raise limits.artifacts")
}

/// How large a value is, held against the limit on the way.
struct ValueMeasurer {
    budget: ValueBudget,
    entries: usize,
    size: usize,
}

impl ValueMeasurer {
    fn measure_value(&mut self, value: &Value, path: &mut ValuePath) -> Result<()> {
        self.entries += 1;
        let own = match value {
            Value::Str(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            _ => 0,
        };
        self.count_bytes(ENTRY_BYTES + own, path)?;
        match value {
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    path.push_index(index)?;
                    self.measure_value(item, path)?;
                    path.pop();
                }
            }
            Value::Object(fields) => {
                for (key, field) in fields {
                    path.push_key(key)?;
                    self.count_bytes(key.len(), path)?;
                    self.measure_value(field, path)?;
                    path.pop();
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn count_bytes(&mut self, bytes: usize, path: &ValuePath) -> Result<()> {
        self.size += bytes;
        self.budget.spend_bytes(bytes, path)
    }
}
