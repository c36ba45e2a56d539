//! Answers that are good for a while, and calls that are made once for all who
//! ask the same at the same time.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::content::Answer;
use crate::problem::{Problem, Result};
use crate::tool::Tool;
use crate::value::Value;

/// Bytes of all answers and of one, how many there are, and the bytes of a key.
const BYTES: usize = 64 << 20;
const LARGEST: usize = 4 << 20;
const MOST: usize = 10_000;
const LONGEST: usize = 64 << 10;
/// The part of both that is left to a caller whatever others ask: one in this many.
const CALLER_SHARES: usize = 8;

#[derive(Default)]
pub(super) struct Kept {
    all: Mutex<All>,
}

#[derive(Default)]
struct All {
    slots: HashMap<String, Slot>,
    bytes: usize,
}

struct Slot {
    /// Whose answer it is; empty for one that is everybody's.
    caller: Box<str>,
    /// The very tool: one that was loaded anew may answer differently.
    tool: Weak<Tool>,
    state: State,
}

enum State {
    /// Somebody is asking.
    Asked(watch::Receiver<Option<Result<Answer>>>),
    Known {
        answer: Answer,
        until: Instant,
        bytes: usize,
    },
}

enum Look {
    Known(Answer),
    Asked(watch::Receiver<Option<Result<Answer>>>),
    Mine(watch::Sender<Option<Result<Answer>>>),
}

/// What answers are kept under; none if that would take too much.
pub(super) fn key(tool: &Tool, caller: &str, args: &Value) -> Option<String> {
    let args = args.encode_json("arguments").ok().filter(|args| args.len() <= LONGEST)?;
    Some(format!("{}\0{caller}\0{args}", tool.name))
}

impl Kept {
    /// The answer on hand, or that of `ask`, which whoever asks the same
    /// meanwhile gets too.
    pub(super) async fn answer(
        &self,
        key: String,
        caller: &str,
        tool: &Arc<Tool>,
        good_for: Duration,
        ask: impl Future<Output = Result<Answer>>,
    ) -> Result<Answer> {
        let sender = loop {
            match self.look(&key, caller, tool, Instant::now()) {
                Look::Known(answer) => return Ok(answer),
                Look::Mine(sender) => break sender,
                Look::Asked(mut answered) => {
                    let answered = answered.wait_for(Option::is_some).await;
                    // Whoever asked may have gone, or have nothing to share.
                    if let Some(result) = answered.ok().and_then(|result| result.clone()) {
                        return result;
                    }
                }
            }
        };
        let asking = Asking { kept: self, key: &key, caller, done: false };
        let result = ask.await;
        asking.done(tool, &result, Instant::now() + good_for);
        if is_for_all(&result) {
            sender.send_replace(Some(result.clone()));
        }
        result
    }

    fn look(&self, key: &str, caller: &str, tool: &Arc<Tool>, now: Instant) -> Look {
        let mut all = self.all.lock();
        if let Some(slot) = all.slots.get(key)
            && std::ptr::eq(slot.tool.as_ptr(), Arc::as_ptr(tool))
        {
            match &slot.state {
                State::Known { answer, until, .. } if *until > now => {
                    return Look::Known(answer.clone());
                }
                State::Asked(answered) if answered.has_changed().is_ok() => {
                    return Look::Asked(answered.clone());
                }
                State::Known { .. } | State::Asked(_) => {}
            }
        }
        let (sender, answered) = watch::channel(None);
        let state = State::Asked(answered);
        all.put(key, Slot { caller: caller.into(), tool: Arc::downgrade(tool), state }, now);
        Look::Mine(sender)
    }
}

/// Errors are not kept, but who waits for a call that fails has seen it fail.
/// What belongs to one caller, or to its time, is nobody else's.
fn is_for_all(result: &Result<Answer>) -> bool {
    match result {
        Ok(answer) => !matches!(answer, Answer::Raw(_)),
        Err(problem) => !Problem::retryable(problem) && problem.refusal.is_none(),
    }
}

/// Dropped early, it makes way for the next who asks.
struct Asking<'a> {
    kept: &'a Kept,
    key: &'a str,
    caller: &'a str,
    done: bool,
}

impl Asking<'_> {
    fn done(mut self, tool: &Arc<Tool>, result: &Result<Answer>, until: Instant) {
        let Ok(answer) = result else { return };
        let bytes = size(answer) + self.key.len();
        if !is_for_all(result) || bytes > LARGEST {
            return;
        }
        let state = State::Known { answer: answer.clone(), until, bytes };
        let slot = Slot { caller: self.caller.into(), tool: Arc::downgrade(tool), state };
        self.kept.all.lock().put(self.key, slot, Instant::now());
        self.done = true;
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.kept.all.lock().remove(self.key);
        }
    }
}

impl All {
    fn put(&mut self, key: &str, slot: Slot, now: Instant) {
        self.remove(key);
        self.bytes += slot.bytes();
        self.slots.insert(key.to_owned(), slot);
        if self.slots.len() > MOST || self.bytes > BYTES {
            self.make_room(now);
        }
    }

    fn remove(&mut self, key: &str) {
        if let Some(slot) = self.slots.remove(key) {
            self.bytes -= slot.bytes();
        }
    }

    /// Down to nine tenths: first what is no longer good, then what soonest will not
    /// be, of callers that have more than their share before all others.
    fn make_room(&mut self, now: Instant) {
        let mut shares: HashMap<&str, (usize, usize)> = HashMap::new();
        for slot in self.slots.values() {
            let share = shares.entry(&slot.caller).or_default();
            *share = (share.0 + slot.bytes(), share.1 + 1);
        }
        let within_share = |slot: &Slot| {
            let (bytes, count) = shares.get(&*slot.caller).copied().unwrap_or_default();
            bytes <= BYTES / CALLER_SHARES && count <= MOST / CALLER_SHARES
        };
        let known = |(key, slot): (&String, &Slot)| match slot.state {
            State::Known { until, .. } => {
                Some((until > now && within_share(slot), until, key.clone()))
            }
            State::Asked(_) => None,
        };
        let mut known: Vec<(bool, Instant, String)> = self.slots.iter().filter_map(known).collect();
        known.sort_unstable();
        for (_, until, key) in known {
            let room = self.slots.len() <= MOST / 10 * 9 && self.bytes <= BYTES / 10 * 9;
            if room && until > now {
                return;
            }
            self.remove(&key);
        }
    }
}

impl Slot {
    fn bytes(&self) -> usize {
        match self.state {
            State::Known { bytes, .. } => bytes,
            State::Asked(_) => 0,
        }
    }
}

/// About how many bytes an answer takes.
fn size(answer: &Answer) -> usize {
    fn of(value: &Value) -> usize {
        const SELF: usize = size_of::<Value>();
        SELF + match value {
            Value::Str(text) => text.len(),
            Value::Bytes(bytes) => bytes.len(),
            // No deeper than values are.
            Value::Array(items) => items.iter().map(of).sum(),
            Value::Object(fields) => fields.iter().map(|(key, it)| SELF + key.len() + of(it)).sum(),
            _ => 0,
        }
    }
    match answer {
        Answer::Value(value) => of(value),
        Answer::Content(content) => {
            let extra: usize = content.extra.values().map(of).sum();
            extra + content.blocks.iter().chain(&content.structured).map(of).sum::<usize>()
        }
        Answer::Raw(fields) => fields.values().map(of).sum(),
    }
}

#[cfg(test)]
mod tests;
