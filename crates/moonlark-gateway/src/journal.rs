//! The durable record of runs and calls: what is written, and who keeps it.
//!
//! The gateway says when a call begins and ends, `execute` when a run does; a
//! [`JournalRecorder`] keeps it. Nothing here knows where: core does no I/O. Entries
//! hold arguments and answers exactly as they were, because a run is replayed
//! from them; what people read of one is made by [`redaction`].

mod recorded_call;
pub mod redaction;
#[cfg(test)]
mod tests;
mod value_costs;

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use crate::call::{ANONYMOUS_CALLER, Caller, LOCAL_CALLER};
use crate::call_outcome::CallOutcome;
use crate::run::RunFork;
use moonlark_core::content::ToolAnswer;
use moonlark_core::problem::{Problem, Result};
use moonlark_core::record_id::RecordId;
use moonlark_core::tool::{BoxFuture, CallEffects, CallScope};
use moonlark_core::value::Value;

pub(crate) use recorded_call::{record_call, record_refused_call, wait_until_written};
pub use value_costs::ValueCosts;

/// Keeps what happens.
///
/// Every call that has begun owes one end, so ends are always taken, and calls
/// [prepare](JournalRecorder::prepare_call) before they begin: backpressure instead of
/// loss, and nothing waits where nothing can, such as when a call is dropped.
pub trait JournalRecorder: Send + Sync {
    /// Take an entry; never waits. Entries of one caller are kept in the order they came.
    fn record_entry(&self, entry: JournalEntry);

    /// Nothing if a run can begin at once, else what to wait for.
    fn wait_for_room(&self) -> Option<BoxFuture<()>>;

    /// Before a call is made: nothing if it can begin at once, else what to wait for. A
    /// Problem if its run may not put that much on record: then it must not be made.
    fn prepare_call(&self, _call: UpcomingCall<'_>) -> Result<Option<BoxFuture<()>>> {
        Ok(self.wait_for_room())
    }

    /// Before a script is given the answer to a call at a place: a Problem if its run may not
    /// put that much on record. Then that is the answer.
    fn prepare_answer(
        &self,
        _run: Option<RecordId>,
        _tool: &str,
        _answer: &Result<ToolAnswer>,
    ) -> Result<()> {
        Ok(())
    }

    /// Take a call that was refused before it began. Nobody waits for room with these: what is
    /// too much is given up, because nothing happened.
    fn record_refused_call(&self, began: CallBegan, ended: CallEnded) {
        self.record_entry(JournalEntry::CallBegan(began));
        self.record_entry(JournalEntry::CallEnded(ended));
    }

    /// Take an entry, and say when it will survive a crash, with all before it.
    /// A Problem means that it does not, so what it announces must not happen.
    fn record_durably(&self, entry: JournalEntry) -> BoxFuture<Result<()>>;

    /// Everything that was taken so far survives the end of this process, however
    /// it ends, or cannot be written at the moment.
    fn flush_entries(&self) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }

    /// The same for what was taken of one caller, without waiting for that of others.
    fn flush_caller(&self, _caller: &Caller) -> BoxFuture<()> {
        self.flush_entries()
    }

    /// A run that carries out the plan it follows, put on record, unless another
    /// has done so: then that one, and nothing is recorded. With `again` it is
    /// carried out whatever was before.
    fn claim_plan_run(&self, began: RunBegan, _again: bool) -> BoxFuture<Result<Option<RecordId>>> {
        self.record_entry(JournalEntry::RunBegan(began));
        Box::pin(std::future::ready(Ok(None)))
    }

    /// A run as it is on record, taken over by this process to be continued.
    /// A Problem if there is none, if it has ended, or if it goes on elsewhere.
    fn take_over_run(&self, run: RecordId) -> BoxFuture<Result<RunRecord>>;

    /// A run as it is on record, to be looked at.
    fn load_run(&self, run: RecordId) -> BoxFuture<Result<RunRecord>>;

    /// Which process that is alive goes on with a run, or waits with it; none if it has ended,
    /// or was left by its process.
    fn find_run_carrier(&self, _run: RecordId) -> BoxFuture<Result<Option<RunCarrier>>> {
        Box::pin(std::future::ready(Ok(None)))
    }

    /// Why nothing is recorded at the moment.
    fn current_problem(&self) -> Option<Problem> {
        None
    }

    /// How many runs of processes that are gone were interrupted, and can go on, when they
    /// were last counted. None if they could not be.
    fn count_interrupted_runs(&self) -> Option<usize> {
        Some(0)
    }

    /// How far behind it is.
    fn backlog(&self) -> JournalBacklog {
        JournalBacklog::default()
    }

    /// What people are shown of runs and calls, redacted, as JSON.
    fn run_query(&self, _: JournalQuery) -> BoxFuture<Result<serde_json::Value>> {
        let problem = Problem::unavailable("this journal cannot be queried");
        Box::pin(std::future::ready(Err(problem)))
    }
}

/// The process that goes on with a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunCarrier {
    ThisProcess,
    OtherProcess,
}

/// A call that is about to be made.
#[derive(Debug, Clone, Copy)]
pub struct UpcomingCall<'a> {
    pub caller: &'a Caller,
    pub run: Option<RecordId>,
    pub tool: &'a str,
    /// The arguments, if they are kept exactly: for calls with a place.
    pub exact_args: Option<&'a Value>,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub enum JournalEntry {
    RunBegan(RunBegan),
    /// A call, by a script or from outside.
    CallBegan(CallBegan),
    CallEnded(CallEnded),
    /// The run waits for a person. It goes on by itself, or by being resumed.
    RunPaused(RunPaused),
    /// It no longer waits.
    RunWentOn(RecordId),
    RunEnded(RunEnded),
}

#[derive(Debug, Clone, PartialEq)]
pub struct RunBegan {
    pub run: RecordId,
    /// The call of `execute`.
    pub call: Option<RecordId>,
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
    pub follows: Option<RecordId>,
    /// The run whose record this one runs on.
    pub fork: Option<RunFork>,
    pub secrets: RedactionScopes,
}

impl RunBegan {
    /// When the clock of its script begins.
    pub fn clock_start(&self) -> SystemTime {
        self.fork.as_ref().map_or(self.at, |fork| fork.clock)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct CallBegan {
    pub call: RecordId,
    /// The call that made this one.
    pub parent: Option<RecordId>,
    pub run: Option<RecordId>,
    /// Where in the run's script it was made; none for what tools call in turn.
    pub place: Option<String>,
    pub at: SystemTime,
    pub tool: String,
    /// The source of the tool, by name.
    pub source: String,
    pub effects: CallEffects,
    pub caller: Caller,
    /// As they were given to the tool. Kept, sealed, for calls with a place.
    pub args: Value,
    pub secrets: RedactionScopes,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CallEnded {
    pub call: RecordId,
    /// Who made it, by [`caller_key`].
    pub caller: Arc<str>,
    pub took: Duration,
    pub outcome: CallOutcome,
    /// What went wrong, redacted, for people.
    pub message: Option<String>,
    /// For calls with a place: exactly what the script was given.
    pub answer: Option<Result<ToolAnswer>>,
    /// For calls with a place: what answers of the run are handed over by, the
    /// least first.
    pub order: Option<u64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct RunPaused {
    pub run: RecordId,
    /// The approval it waits for.
    pub approval: RecordId,
    /// Where in the script.
    pub place: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct RunEnded {
    pub run: RecordId,
    pub took: Duration,
    pub outcome: CallOutcome,
    pub message: Option<String>,
    pub answer: Option<Result<ToolAnswer>>,
}

/// How far a journal is behind, in entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JournalBacklog {
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
pub struct JournalQuery {
    pub what: JournalQueryKind,
    /// Only what this caller has made.
    pub of: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JournalQueryKind {
    /// The newest runs, from before this one.
    Runs { most: usize, before: Option<RecordId> },
    /// The newest calls from outside, from before this one.
    Calls { most: usize, before: Option<RecordId> },
    /// One run with its calls.
    Run(RecordId),
    /// What differs between two.
    Diff { before: RecordId, after: RecordId },
}

/// What must not be shown of an entry: the secrets of whoever made the call and
/// of the tool.
#[derive(Clone, Default)]
pub struct RedactionScopes(pub [Arc<CallScope>; 2]);

/// A run as it is on record, secrets and all: for replay, not for people.
#[derive(Debug, Clone, PartialEq)]
pub struct RunRecord {
    pub began: RunBegan,
    /// Those with a place, in the order they began. A place may be there twice,
    /// after a call whose answer was lost was made again: the last one counts.
    pub calls: Vec<CallRecord>,
    pub paused: Option<RunPaused>,
    pub ended: Option<RunEnded>,
    /// Calls whose arguments and answers were removed to make room.
    pub removed_calls: usize,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CallRecord {
    pub began: CallBegan,
    /// Without an end, it may have happened.
    pub ended: Option<CallEnded>,
}

impl JournalEntry {
    /// About how many bytes it takes while it waits to be written.
    pub fn approx_bytes(&self) -> usize {
        let answer = |answer: &Option<Result<ToolAnswer>>| {
            answer.as_ref().map_or(0, |it| ValueCosts::QUEUED_COSTS.result_bytes(it))
        };
        match self {
            JournalEntry::RunBegan(began) => 512 + began.script.len(),
            JournalEntry::CallBegan(began) => {
                512 + ValueCosts::QUEUED_COSTS.value_bytes(&began.args)
            }
            JournalEntry::CallEnded(ended) => 256 + answer(&ended.answer),
            JournalEntry::RunEnded(ended) => 256 + answer(&ended.answer),
            JournalEntry::RunPaused(_) | JournalEntry::RunWentOn(_) => 128,
        }
    }
}

/// The name that a caller's entries are kept under: [`Caller::name`], cheap to clone.
pub fn caller_key(caller: &Caller) -> Arc<str> {
    static LOCAL_KEY: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(LOCAL_CALLER));
    static ANONYMOUS_KEY: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(ANONYMOUS_CALLER));
    match &caller.name {
        Some(name) => name.clone(),
        None if caller.name() == LOCAL_CALLER => LOCAL_KEY.clone(),
        None => ANONYMOUS_KEY.clone(),
    }
}

impl fmt::Debug for RedactionScopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secrets]")
    }
}

/// Which secrets there are does not make two entries differ.
impl PartialEq for RedactionScopes {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Whether two values are the same to a tool: NaN is itself, and the order of
/// fields does not matter.
pub fn are_same_values(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Float(one), Value::Float(other)) => {
            one == other || (one.is_nan() && other.is_nan())
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| are_same_values(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(key, one)| other.get(key).is_some_and(|it| are_same_values(one, it)))
        }
        _ => one == other,
    }
}
