//! Response cache, and deduplication of equal calls at the same time.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::journal::ValueCosts;
use moonlark_core::content::ToolAnswer;
use moonlark_core::problem::{Problem, Result};
use moonlark_core::tool::Tool;
use moonlark_core::value::Value;

/// Bytes of all answers and of one, how many there are, and the bytes of a key.
const MAX_CACHE_BYTES: usize = 64 << 20;
const MAX_CACHED_ANSWER_BYTES: usize = 4 << 20;
const MAX_CACHED_ANSWERS: usize = 10_000;
const MAX_CACHE_KEY_BYTES: usize = 64 << 10;
/// The part of both that is left to a caller whatever others ask: one in this many.
const CACHE_CALLER_SHARES: usize = 8;

#[derive(Default)]
pub(super) struct ResponseCache {
    all: Mutex<ResponseCacheEntries>,
}

#[derive(Default)]
struct ResponseCacheEntries {
    slots: HashMap<String, ResponseCacheEntry>,
    bytes: usize,
}

struct ResponseCacheEntry {
    /// Whose answer it is; empty for one that is everybody's.
    caller: Box<str>,
    /// The very tool: one that was loaded anew may answer differently.
    tool: Weak<Tool>,
    state: ResponseCacheState,
}

enum ResponseCacheState {
    /// Somebody is asking.
    Asked(watch::Receiver<Option<Result<ToolAnswer>>>),
    Known {
        answer: ToolAnswer,
        until: Instant,
        bytes: usize,
    },
}

enum ResponseCacheLookup {
    Known(ToolAnswer),
    Asked(watch::Receiver<Option<Result<ToolAnswer>>>),
    Mine(watch::Sender<Option<Result<ToolAnswer>>>),
}

/// What answers are kept under; none if that would take too much.
pub(super) fn cache_key(tool: &Tool, caller: &str, args: &Value) -> Option<String> {
    let args =
        args.encode_json("arguments").ok().filter(|args| args.len() <= MAX_CACHE_KEY_BYTES)?;
    Some(format!("{}\0{caller}\0{args}", tool.name))
}

impl ResponseCache {
    /// The answer on hand, or that of `ask`, which whoever asks the same
    /// meanwhile gets too.
    pub(super) async fn get_or_run(
        &self,
        key: String,
        caller: &str,
        tool: &Arc<Tool>,
        good_for: Duration,
        ask: impl Future<Output = Result<ToolAnswer>>,
    ) -> Result<ToolAnswer> {
        let sender = loop {
            match self.look_up(&key, caller, tool, Instant::now()) {
                ResponseCacheLookup::Known(answer) => return Ok(answer),
                ResponseCacheLookup::Mine(sender) => break sender,
                ResponseCacheLookup::Asked(mut answered) => {
                    let answered = answered.wait_for(Option::is_some).await;
                    // Whoever asked may have gone, or have nothing to share.
                    if let Some(result) = answered.ok().and_then(|result| result.clone()) {
                        return result;
                    }
                }
            }
        };
        let asking = InFlightCallGuard { kept: self, key: &key, caller, tool, done: false };
        let result = ask.await;
        asking.store_result(&result, Instant::now() + good_for);
        if is_shareable(&result) {
            sender.send_replace(Some(result.clone()));
        }
        result
    }

    fn look_up(
        &self,
        key: &str,
        caller: &str,
        tool: &Arc<Tool>,
        now: Instant,
    ) -> ResponseCacheLookup {
        let mut all = self.all.lock();
        if let Some(slot) = all.slots.get(key).filter(|_| all.is_of_tool(key, tool)) {
            match &slot.state {
                ResponseCacheState::Known { answer, until, .. } if *until > now => {
                    return ResponseCacheLookup::Known(answer.clone());
                }
                ResponseCacheState::Asked(answered) if answered.has_changed().is_ok() => {
                    return ResponseCacheLookup::Asked(answered.clone());
                }
                ResponseCacheState::Known { .. } | ResponseCacheState::Asked(_) => {}
            }
        }
        let (sender, answered) = watch::channel(None);
        let state = ResponseCacheState::Asked(answered);
        all.insert_entry(
            key,
            ResponseCacheEntry { caller: caller.into(), tool: Arc::downgrade(tool), state },
            now,
        );
        ResponseCacheLookup::Mine(sender)
    }
}

/// Errors are not kept, but who waits for a call that fails has seen it fail.
/// What belongs to one caller, or to its time, is nobody else's.
fn is_shareable(result: &Result<ToolAnswer>) -> bool {
    match result {
        Ok(answer) => !matches!(answer, ToolAnswer::Raw(_)),
        Err(problem) => !Problem::is_retryable(problem) && problem.refusal.is_none(),
    }
}

/// Dropped early, it makes way for the next who asks.
struct InFlightCallGuard<'a> {
    kept: &'a ResponseCache,
    key: &'a str,
    caller: &'a str,
    tool: &'a Arc<Tool>,
    done: bool,
}

impl InFlightCallGuard<'_> {
    fn store_result(mut self, result: &Result<ToolAnswer>, until: Instant) {
        let Ok(answer) = result else { return };
        let bytes = ValueCosts::CACHED_COSTS.answer_bytes(answer) + self.key.len();
        if !is_shareable(result) || bytes > MAX_CACHED_ANSWER_BYTES {
            return;
        }
        let state = ResponseCacheState::Known { answer: answer.clone(), until, bytes };
        let tool = Arc::downgrade(self.tool);
        let slot = ResponseCacheEntry { caller: self.caller.into(), tool, state };
        let mut all = self.kept.all.lock();
        self.done = true;
        if all.is_of_tool(self.key, self.tool) {
            all.insert_entry(self.key, slot, Instant::now());
        }
    }
}

impl Drop for InFlightCallGuard<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let mut all = self.kept.all.lock();
        if all.is_of_tool(self.key, self.tool) {
            all.remove_entry(self.key);
        }
    }
}

impl ResponseCacheEntries {
    /// Whether what is kept is of this very tool, and not of one loaded since.
    fn is_of_tool(&self, key: &str, tool: &Arc<Tool>) -> bool {
        self.slots.get(key).is_some_and(|slot| std::ptr::eq(slot.tool.as_ptr(), Arc::as_ptr(tool)))
    }

    fn insert_entry(&mut self, key: &str, slot: ResponseCacheEntry, now: Instant) {
        self.remove_entry(key);
        self.bytes += slot.cached_bytes();
        self.slots.insert(key.to_owned(), slot);
        if self.slots.len() > MAX_CACHED_ANSWERS || self.bytes > MAX_CACHE_BYTES {
            self.make_room(now);
        }
    }

    fn remove_entry(&mut self, key: &str) {
        if let Some(slot) = self.slots.remove(key) {
            self.bytes -= slot.cached_bytes();
        }
    }

    /// Down to nine tenths: first what is no longer good, then what soonest will not
    /// be, of callers that have more than their share before all others.
    fn make_room(&mut self, now: Instant) {
        let mut shares: HashMap<&str, (usize, usize)> = HashMap::new();
        for slot in self.slots.values() {
            let share = shares.entry(&slot.caller).or_default();
            *share = (share.0 + slot.cached_bytes(), share.1 + 1);
        }
        let within_share = |slot: &ResponseCacheEntry| {
            let (bytes, count) = shares.get(&*slot.caller).copied().unwrap_or_default();
            bytes <= MAX_CACHE_BYTES / CACHE_CALLER_SHARES
                && count <= MAX_CACHED_ANSWERS / CACHE_CALLER_SHARES
        };
        let known = |(key, slot): (&String, &ResponseCacheEntry)| match slot.state {
            ResponseCacheState::Known { until, .. } => {
                Some((until > now && within_share(slot), until, key.clone()))
            }
            ResponseCacheState::Asked(_) => None,
        };
        let mut known: Vec<(bool, Instant, String)> = self.slots.iter().filter_map(known).collect();
        known.sort_unstable();
        for (_, until, key) in known {
            let room = self.slots.len() <= MAX_CACHED_ANSWERS / 10 * 9
                && self.bytes <= MAX_CACHE_BYTES / 10 * 9;
            if room && until > now {
                return;
            }
            self.remove_entry(&key);
        }
    }
}

impl ResponseCacheEntry {
    fn cached_bytes(&self) -> usize {
        match self.state {
            ResponseCacheState::Known { bytes, .. } => bytes,
            ResponseCacheState::Asked(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests;
