//! The durable record of runs and calls: what is written, and who keeps it.
//!
//! The gateway says when a call begins and ends, `execute` when a run does; a
//! [`Recorder`] keeps it. Nothing here knows where: core does no I/O. Entries
//! hold arguments and answers exactly as they were, because a run is replayed
//! from them; what people read of one is made by [`shown`].

mod on_record;
pub mod shown;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use uuid::Uuid;

use crate::call::Caller;
use crate::content::Answer;
use crate::problem::{Code, Problem, Result};
use crate::tool::{BoxFuture, Effects, Scope};
use crate::value::Value;

pub(crate) use on_record::{on_record, refused, written};

/// Keeps what happens.
///
/// Every call that has begun owes one end, so ends are always taken, and calls
/// wait for [`room`](Recorder::room) before they begin: backpressure instead of
/// loss, and nothing waits where nothing can, such as when a call is dropped.
pub trait Recorder: Send + Sync {
    /// Take an entry; never waits. Entries are kept in the order they came.
    fn record(&self, entry: Entry);

    /// Nothing if a call can begin at once, else what to wait for.
    fn room(&self) -> Option<BoxFuture<()>>;

    /// Take an entry, and say when it will survive a crash, with all before it.
    /// A Problem means that it does not, so what it announces must not happen.
    fn durable(&self, entry: Entry) -> BoxFuture<Result<()>>;

    /// Everything that was taken so far survives the end of this process, however
    /// it ends, or cannot be written at the moment.
    fn written(&self) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }

    /// A run that carries out the plan it follows, put on record, unless another
    /// has done so: then that one, and nothing is recorded. With `again` it is
    /// carried out whatever was before.
    fn carry_out(&self, began: RunBegan, _again: bool) -> BoxFuture<Result<Option<Id>>> {
        self.record(Entry::RunBegan(began));
        Box::pin(std::future::ready(Ok(None)))
    }

    /// A run as it is on record, taken over by this process to be continued.
    /// A Problem if there is none, if it has ended, or if it goes on elsewhere.
    fn take_over(&self, run: Id) -> BoxFuture<Result<RunRecord>>;

    /// A run as it is on record, to be looked at.
    fn run(&self, run: Id) -> BoxFuture<Result<RunRecord>>;

    /// Why nothing is recorded at the moment.
    fn problem(&self) -> Option<Problem> {
        None
    }

    /// How many runs of processes that are gone were interrupted, and can go on, when they
    /// were last counted. None if they could not be.
    fn interrupted(&self) -> Option<usize> {
        Some(0)
    }

    /// How far behind it is.
    fn backlog(&self) -> Backlog {
        Backlog::default()
    }

    /// What people are shown of runs and calls, redacted, as JSON.
    fn look(&self, _: Look) -> BoxFuture<Result<serde_json::Value>> {
        let problem = Problem::unavailable("this journal cannot be looked at");
        Box::pin(std::future::ready(Err(problem)))
    }
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Entry {
    RunBegan(RunBegan),
    /// A call, by a script or from outside.
    CallBegan(CallBegan),
    CallEnded(CallEnded),
    /// The run waits for a person. It goes on by itself, or by being resumed.
    RunPaused(RunPaused),
    /// It no longer waits.
    RunWentOn(Id),
    RunEnded(RunEnded),
}

/// What identifies a run, a call, an approval: a UUID that sorts by time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(Uuid);

#[derive(Debug, Clone, PartialEq)]
pub struct RunBegan {
    pub run: Id,
    /// The call of `execute`.
    pub call: Option<Id>,
    pub caller: Caller,
    pub at: SystemTime,
    pub script: String,
    /// The time it asked for.
    pub timeout: Option<Duration>,
    /// Everything random in the script comes from it.
    pub seed: [u8; 32],
    /// It only collects what it would do.
    pub plan: bool,
    /// The run that collected what this one may do.
    pub follows: Option<Id>,
    pub secrets: Secrecy,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CallBegan {
    pub call: Id,
    /// The call that made this one.
    pub parent: Option<Id>,
    pub run: Option<Id>,
    /// Where in the run's script it was made; none for what tools call in turn.
    pub place: Option<String>,
    pub at: SystemTime,
    pub tool: String,
    /// The source of the tool, by name.
    pub source: String,
    pub effects: Effects,
    pub caller: Caller,
    /// As they were given to the tool. Kept, sealed, for calls with a place.
    pub args: Value,
    pub secrets: Secrecy,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CallEnded {
    pub call: Id,
    pub took: Duration,
    /// `ok`, the code of the Problem, or `cancelled`.
    pub outcome: &'static str,
    /// What went wrong, redacted, for people.
    pub message: Option<String>,
    /// For calls with a place: exactly what the script was given.
    pub answer: Option<Result<Answer>>,
    /// For calls with a place: what answers of the run are handed over by, the
    /// least first.
    pub order: Option<u64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct RunPaused {
    pub run: Id,
    /// The approval it waits for.
    pub approval: Id,
    /// Where in the script.
    pub place: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct RunEnded {
    pub run: Id,
    pub took: Duration,
    pub outcome: &'static str,
    pub message: Option<String>,
    pub answer: Option<Result<Answer>>,
}

/// How far a journal is behind, in entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    pub waiting: u64,
    /// What those take in memory.
    pub bytes: u64,
    /// Since the start.
    pub written: u64,
    /// Given up, since the start.
    pub lost: u64,
}

/// What somebody wants to see of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Look {
    pub what: Looked,
    /// Only what this caller has made.
    pub of: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Looked {
    /// The newest runs, from before this one.
    Runs { most: usize, before: Option<Id> },
    /// The newest calls from outside, from before this one.
    Calls { most: usize, before: Option<Id> },
    /// One run with its calls.
    Run(Id),
}

/// What must not be shown of an entry: the secrets of whoever made the call and
/// of the tool.
#[derive(Clone, Default)]
pub struct Secrecy(pub [Arc<Scope>; 2]);

/// A run as it is on record, secrets and all: for replay, not for people.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRecord {
    pub began: RunBegan,
    /// Those with a place, in the order they began. A place may be there twice,
    /// after a call whose answer was lost was made again: the last one counts.
    pub calls: Vec<CallRecord>,
    pub paused: Option<RunPaused>,
    pub ended: Option<RunEnded>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CallRecord {
    pub began: CallBegan,
    /// Without an end, it may have happened.
    pub ended: Option<CallEnded>,
}

impl Entry {
    /// About how many bytes it takes while it waits to be written.
    pub fn weight(&self) -> usize {
        let answer = |answer: &Option<Result<Answer>>| match answer {
            Some(Ok(answer)) => shown::weight_of_answer(answer),
            Some(Err(problem)) => 256 + problem.message.len(),
            None => 0,
        };
        match self {
            Entry::RunBegan(began) => 512 + began.script.len(),
            Entry::CallBegan(began) => 512 + shown::weight(&began.args),
            Entry::CallEnded(ended) => 256 + answer(&ended.answer),
            Entry::RunEnded(ended) => 256 + answer(&ended.answer),
            Entry::RunPaused(_) | Entry::RunWentOn(_) => 128,
        }
    }
}

impl Id {
    /// A new one; later ones sort behind.
    pub fn new() -> Self {
        Self(Uuid::now_v7())
    }

    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    pub fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl Default for Id {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_hyphenated().fmt(f)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Id {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self> {
        Uuid::parse_str(text).map(Id).map_err(|_| {
            let text = crate::value::shorten(text);
            Problem::new(Code::BadRequest, format!("'{text}' is no id")).hint(
                "ids look like 0199c0de-0000-7000-8000-000000000000: `moonlark runs` lists them",
            )
        })
    }
}

impl fmt::Debug for Secrecy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secrets]")
    }
}

/// Which secrets there are does not make two entries differ.
impl PartialEq for Secrecy {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Whether two values are the same to a tool: NaN is itself, and the order of
/// fields does not matter.
pub fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Float(one), Value::Float(other)) => {
            one == other || (one.is_nan() && other.is_nan())
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, one)| other.get(key).is_some_and(|it| same(one, it)))
        }
        _ => one == other,
    }
}
