//! Results too large to hand over, and bytes that no script needs to hold: kept
//! for later scripts under a handle nobody can guess.
//!
//! In memory, and bounded three ways: by bytes, by number, by age. What is
//! oldest goes first, of whoever has most: nobody's make room for another's. Whoever has the handle may read, unless it was made for a
//! caller with a name: then only that one. A handle is never written to a log.
//! Nothing here knows who shows what to whom: [`preview`] and [`shape`] only say
//! what a large value looks like.

mod preview;
mod reading;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::call::Caller;
use crate::limits::{Limits, size};
use crate::problem::{Code, Problem, Result};
use crate::value::{Budget, Path, Value, shorten};

pub use preview::{preview, shape};
pub use reading::{Wanted, part, slice};

/// All of them together, unless the operator says otherwise.
pub const BYTES: usize = 256 * 1024 * 1024;
/// How many there are at most.
const MOST: usize = 1000;
/// The part of both that is left to a caller whatever others keep: one in this many.
const CALLER_SHARES: usize = 8;
/// How long one is kept at most.
const AGE: Duration = Duration::from_secs(60 * 60);
/// What an entry of a value counts beside its text, as in the engines' bridges.
const ENTRY: usize = 16;
/// What an entry takes in memory beyond that.
const HELD: usize = 48;
/// How resources are named that are artifacts.
const SCHEME: &str = "artifact://";

pub struct Artifacts(Mutex<Shelf>);

struct Shelf {
    kept: HashMap<Handle, Arc<Stored>>,
    /// Oldest first.
    order: VecDeque<Handle>,
    /// What they take in memory, and may.
    bytes: usize,
    most: usize,
}

/// The name of an artifact, and the right to read it: `art_` and 26 letters
/// and digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Handle(String);

/// One artifact.
#[derive(Debug)]
pub struct Stored {
    pub held: Held,
    /// Bytes, as limits count them.
    pub size: usize,
    pub created: Instant,
    /// Where it came from: the name of a tool.
    pub of: String,
    /// Whose it is.
    owner: Option<Arc<str>>,
    /// Bytes of memory.
    weight: usize,
}

/// The tool that made an artifact, and for which caller.
pub struct Maker<'a>(&'a str, Option<&'a Caller>);

impl<'a> From<&'a str> for Maker<'a> {
    fn from(tool: &'a str) -> Self {
        Maker(tool, None)
    }
}

impl<'a> From<(&'a str, &'a Caller)> for Maker<'a> {
    fn from((tool, caller): (&'a str, &'a Caller)) -> Self {
        Maker(tool, Some(caller))
    }
}

#[derive(Debug)]
pub enum Held {
    Value(Value),
    Bytes { bytes: Vec<u8>, mime: String },
}

impl Default for Artifacts {
    fn default() -> Self {
        Artifacts(Mutex::new(Shelf {
            kept: HashMap::new(),
            order: VecDeque::new(),
            bytes: 0,
            most: BYTES,
        }))
    }
}

impl Artifacts {
    /// Change how many bytes all of them may take.
    pub fn set_bytes(&self, bytes: usize) {
        let mut shelf = self.0.lock();
        shelf.most = bytes;
        shelf.make_room(None, 0, Instant::now());
    }

    /// Keep a value that the tool `of` made.
    pub fn put<'a>(
        &self,
        value: Value,
        of: impl Into<Maker<'a>>,
        limits: &Limits,
    ) -> Result<Handle> {
        self.put_as(Handle::random()?, value, of, limits)
    }

    /// The same under a handle that is decided: that of a run's answer, which may
    /// come again when the run is resumed.
    pub fn put_as<'a>(
        &self,
        handle: Handle,
        value: Value,
        of: impl Into<Maker<'a>>,
        limits: &Limits,
    ) -> Result<Handle> {
        let mut measure = Measure { budget: Budget::new(limits.value), entries: 0, size: 0 };
        measure.value(&value, &mut Path::new("the value"))?;
        let (size, weight) = (measure.size, measure.size + measure.entries * HELD);
        self.keep(handle, Held::Value(value), size, weight, of.into(), Instant::now())
    }

    /// Keep bytes of a type such as `image/png`.
    pub fn put_bytes<'a>(
        &self,
        bytes: Vec<u8>,
        mime: &str,
        of: impl Into<Maker<'a>>,
        limits: &Limits,
    ) -> Result<Handle> {
        self.put_bytes_as(Handle::random()?, bytes, mime, of, limits)
    }

    /// The same under a handle that is decided.
    pub fn put_bytes_as<'a>(
        &self,
        handle: Handle,
        bytes: Vec<u8>,
        mime: &str,
        of: impl Into<Maker<'a>>,
        limits: &Limits,
    ) -> Result<Handle> {
        let size = bytes.len();
        Budget::new(limits.value).spend(size, &Path::new("the value"))?;
        let held = Held::Bytes { bytes, mime: mime.to_owned() };
        self.keep(handle, held, size, size + ENTRY, of.into(), Instant::now())
    }

    /// What is kept under a handle, which may also be written `artifact://…`.
    pub fn get(&self, handle: &str) -> Option<Arc<Stored>> {
        self.get_at(handle, Instant::now())
    }

    /// The same for a caller, with the Problem of a handle that leads nowhere.
    pub fn find(&self, handle: &str, by: &Caller) -> Result<Arc<Stored>> {
        let is_theirs = |it: &Arc<Stored>| it.owner.as_deref().is_none_or(|name| name == by.name());
        self.get(handle).filter(is_theirs).ok_or_else(|| {
            let message = format!("there is no artifact '{}'", shorten(handle));
            let hint = match handle.strip_prefix(SCHEME).unwrap_or(handle).starts_with("art_") {
                true => {
                    "artifacts are kept for up to an hour, and the oldest make room for new ones: run what made it again"
                }
                false => "a handle begins with art_, as it was in the answer of an earlier script",
            };
            Problem::new(Code::NotFound, message).hint(hint)
        })
    }

    fn keep(
        &self,
        handle: Handle,
        held: Held,
        size: usize,
        weight: usize,
        Maker(of, caller): Maker<'_>,
        now: Instant,
    ) -> Result<Handle> {
        let mut shelf = self.0.lock();
        shelf.forget(&handle);
        if weight > shelf.most {
            return Err(too_large(shelf.most));
        }
        let owner = caller.and_then(|caller| caller.name.clone());
        shelf.make_room(owner.as_deref(), weight, now);
        let stored = Stored { held, size, created: now, of: of.to_owned(), owner, weight };
        shelf.bytes += weight;
        shelf.order.push_back(handle.clone());
        shelf.kept.insert(handle.clone(), Arc::new(stored));
        Ok(handle)
    }

    fn get_at(&self, handle: &str, now: Instant) -> Option<Arc<Stored>> {
        let handle = handle.strip_prefix(SCHEME).unwrap_or(handle);
        let mut shelf = self.0.lock();
        shelf.make_room(None, 0, now);
        shelf.kept.get(handle).cloned()
    }
}

impl Shelf {
    /// Make room for the same thing again.
    fn forget(&mut self, handle: &Handle) {
        if let Some(stored) = self.kept.remove(handle) {
            self.bytes -= stored.weight;
            self.order.retain(|other| other != handle);
        }
    }

    /// Take away what is too old, and then the oldest until there is room: of those
    /// of `owner` if it has its share, of whoever has most otherwise.
    fn make_room(&mut self, owner: Option<&str>, bytes: usize, now: Instant) {
        while let Some(oldest) = self.order.front().cloned() {
            let age = |it: &Arc<Stored>| now.saturating_duration_since(it.created);
            if self.kept.get(&oldest).is_some_and(|it| age(it) < AGE) {
                break;
            }
            self.forget(&oldest);
        }
        let crowded = |shelf: &Shelf| {
            shelf.bytes.saturating_add(bytes) > shelf.most
                || (bytes > 0 && shelf.kept.len() >= MOST)
        };
        while crowded(self) {
            let Some(oldest) = self.oldest_to_go(owner, bytes) else { return };
            self.forget(&oldest);
        }
    }

    fn oldest_to_go(&self, owner: Option<&str>, bytes: usize) -> Option<Handle> {
        let mut shares: HashMap<Option<&str>, (usize, usize)> = HashMap::new();
        for stored in self.kept.values() {
            let share = shares.entry(stored.owner.as_deref()).or_default();
            *share = (share.0 + stored.weight, share.1 + 1);
        }
        let (own_bytes, own_count) = shares.get(&owner).copied().unwrap_or_default();
        let has_share = own_bytes.saturating_add(bytes) > self.most / CALLER_SHARES
            || own_count >= MOST / CALLER_SHARES;
        let part = |(bytes, count): (usize, usize)| {
            (bytes as f64 / self.most.max(1) as f64).max(count as f64 / MOST as f64)
        };
        let largest = shares.iter().max_by(|a, b| part(*a.1).total_cmp(&part(*b.1)));
        let from = if has_share && own_count > 0 { owner } else { *largest?.0 };
        let is_theirs = |handle: &&Handle| {
            self.kept.get(*handle).is_some_and(|stored| stored.owner.as_deref() == from)
        };
        self.order.iter().find(is_theirs).cloned()
    }
}

impl Handle {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As the address of a resource.
    pub fn uri(&self) -> String {
        format!("{SCHEME}{}", self.0)
    }

    pub(crate) fn random() -> Result<Handle> {
        let mut bytes = [0; 26];
        getrandom::fill(&mut bytes).map_err(|error| {
            Problem::unavailable(format!("the system has no random numbers: {error}"))
        })?;
        Ok(Handle::of(bytes))
    }

    /// Of bytes that nobody can guess.
    pub(crate) fn of(bytes: [u8; 26]) -> Handle {
        const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
        let letters = bytes.iter().map(|byte| LETTERS[usize::from(byte % 32)] as char);
        Handle("art_".chars().chain(letters).collect())
    }
}

impl std::borrow::Borrow<str> for Handle {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn too_large(most: usize) -> Problem {
    Problem::limit(format!("the value does not fit {}, which all artifacts may take", size(most)))
        .hint("return less, or raise limits.artifacts")
}

/// How large a value is, held against the limit on the way.
struct Measure {
    budget: Budget,
    entries: usize,
    size: usize,
}

impl Measure {
    fn value(&mut self, value: &Value, path: &mut Path) -> Result<()> {
        self.entries += 1;
        let own = match value {
            Value::Str(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            _ => 0,
        };
        self.spend(ENTRY + own, path)?;
        match value {
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    path.push_index(index)?;
                    self.value(item, path)?;
                    path.pop();
                }
            }
            Value::Object(fields) => {
                for (key, field) in fields {
                    path.push_key(key)?;
                    self.spend(key.len(), path)?;
                    self.value(field, path)?;
                    path.pop();
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn spend(&mut self, bytes: usize, path: &Path) -> Result<()> {
        self.size += bytes;
        self.budget.spend(bytes, path)
    }
}
