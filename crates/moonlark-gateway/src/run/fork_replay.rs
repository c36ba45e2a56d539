//! Forks: a changed script on the record of another run. A call with the tool and the
//! arguments of a recorded one is given its answer, wherever in the script it stands.
//!
//! Which recorded call answers which new one is decided when the script makes the call, in
//! the order in which it makes them. Answers are held until the script waits, and then
//! given in the order in which they were recorded: a script that was not changed sees
//! everything as it was.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::answer_sequencer::CallSite;
use super::replay_log::{is_repeatable, last_calls_by_place};
use super::run_comparison::answer_logs;
use crate::journal::{CallRecord, RunBegan, RunRecord, are_same_values};
use moonlark_core::content::ToolAnswer;
use moonlark_core::problem::{Problem, Result};
use moonlark_core::record_id::RecordId;
use moonlark_core::tool::{CallEffects, Tool};
use moonlark_core::value::Value;

/// What becomes of a call that a fork makes and that is not on the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NewCallPolicy {
    /// It is collected and not made. Nothing goes out.
    #[default]
    Plan,
    /// The same, but for calls that only read: they are made.
    Read,
    /// It is made.
    Make,
    /// It stops the run.
    Refuse,
}

impl NewCallPolicy {
    pub const ALL_POLICIES: [NewCallPolicy; 4] =
        [NewCallPolicy::Plan, NewCallPolicy::Read, NewCallPolicy::Make, NewCallPolicy::Refuse];

    pub fn as_str(self) -> &'static str {
        match self {
            NewCallPolicy::Plan => "plan",
            NewCallPolicy::Read => "read",
            NewCallPolicy::Make => "make",
            NewCallPolicy::Refuse => "error",
        }
    }

    pub fn from_word(word: &str) -> Option<NewCallPolicy> {
        Self::ALL_POLICIES.into_iter().find(|known| known.as_str() == word)
    }

    /// Whether calls are collected.
    pub fn is_plan(self) -> bool {
        matches!(self, NewCallPolicy::Plan | NewCallPolicy::Read)
    }
}

/// What makes a run a fork.
#[derive(Debug, Clone, PartialEq)]
pub struct RunFork {
    /// The run whose record it runs on.
    pub source: RecordId,
    /// When the clock of its script begins: as it did for the other.
    pub clock: SystemTime,
    pub new_calls: NewCallPolicy,
}

pub(super) struct ForkReplay {
    pub(super) policy: NewCallPolicy,
    source: RecordId,
    /// Artifacts of another caller's run keep their owner: those of the fork are its own.
    is_of_other_caller: bool,
    /// The script is the same: so is every call, at its place and nowhere else.
    is_same_script: bool,
    /// In the order they began, each at a place of its own.
    recorded: Vec<CallRecord>,
    by_place: HashMap<CallSite, usize>,
    /// What the script and its tools said then.
    recorded_logs: Vec<String>,
    state: Mutex<ForkReplayState>,
}

#[derive(Default)]
struct ForkReplayState {
    /// Recorded calls that nothing was answered with yet, by what they are.
    unused: HashMap<u64, VecDeque<usize>>,
    is_used: Vec<bool>,
    claims: HashMap<CallSite, ForkClaim>,
    /// The places of the claims, in the order they were made.
    made: Vec<CallSite>,
}

/// A call that the script of the fork has made.
struct ForkClaim {
    /// The recorded call that answers it.
    recorded: Option<usize>,
    tool: String,
    /// Of a new one: what it was called with.
    args: Value,
    fate: NewCallFate,
    is_held: bool,
    wake: Arc<Notify>,
}

/// What became of a call that is not on the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewCallFate {
    /// The script ended before.
    Pending,
    Planned,
    Made,
    Refused,
}

impl NewCallFate {
    pub fn as_str(self) -> &'static str {
        match self {
            NewCallFate::Pending => "not_made",
            NewCallFate::Planned => "planned",
            NewCallFate::Made => "made",
            NewCallFate::Refused => "refused",
        }
    }
}

/// What a fork has in common with the run that it is of, and what not.
#[derive(Debug, Clone, PartialEq)]
pub struct ForkReport {
    pub source: RecordId,
    pub policy: NewCallPolicy,
    /// Calls that were answered from the record, in the order they were made.
    pub reused: Vec<ReusedCall>,
    /// Calls that are not on the record.
    pub new: Vec<ForkedCall>,
    /// Calls that are not on the record and that the script did not wait for.
    pub unmade: Vec<ForkedCall>,
    /// Calls on the record that were not made any more.
    pub dropped: Vec<ForkedCall>,
    pub first_difference: Option<ForkDifference>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ReusedCall {
    pub tool: String,
    pub place: CallSite,
    /// Where it was made then.
    pub recorded_place: CallSite,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ForkedCall {
    pub tool: String,
    pub place: CallSite,
    pub args: Value,
    /// None for one that was dropped.
    pub fate: Option<NewCallFate>,
}

/// The first call that differs, as it was and as it is.
#[derive(Debug, Clone, PartialEq)]
pub struct ForkDifference {
    pub place: CallSite,
    pub was: Option<ForkedCall>,
    pub now: Option<ForkedCall>,
}

impl ForkReport {
    /// Whether all calls are those of the record, each at its place.
    pub fn is_unchanged(&self) -> bool {
        self.first_difference.is_none()
    }
}

/// What the record has for a call of a fork.
pub(super) enum ForkAnswer {
    /// The arguments on record, and the answer.
    Recorded(Value, Result<ToolAnswer>),
    /// It was begun and never answered.
    Unanswered(CallEffects),
    New,
}

impl ForkReplay {
    pub(super) fn new(fork: &RunFork, source: &RunRecord, began: &RunBegan) -> ForkReplay {
        let is_of_other_caller = began.caller.name() != source.began.caller.name();
        let mut recorded: Vec<CallRecord> = last_calls_by_place(source).into_values().collect();
        recorded.sort_by_key(|call| call.began.call);
        let place = |call: &CallRecord| CallSite::from(call.began.place.as_deref().unwrap_or(""));
        let by_place = recorded.iter().enumerate().map(|(index, call)| (place(call), index));
        let by_place = by_place.collect();
        let mut state =
            ForkReplayState { is_used: vec![false; recorded.len()], ..Default::default() };
        for (index, call) in recorded.iter().enumerate() {
            let key = call_hash(&call.began.tool, &call.began.args);
            state.unused.entry(key).or_default().push_back(index);
        }
        let answer = source.ended.as_ref().and_then(|ended| ended.answer.as_ref());
        let recorded_logs = answer.map(answer_logs);
        ForkReplay {
            policy: fork.new_calls,
            source: fork.source,
            is_of_other_caller,
            is_same_script: began.script == source.began.script,
            recorded,
            by_place,
            recorded_logs: recorded_logs.unwrap_or_default(),
            state: Mutex::new(state),
        }
    }

    pub(super) fn source(&self) -> RecordId {
        self.source
    }

    pub(super) fn is_of_other_caller(&self) -> bool {
        self.is_of_other_caller
    }

    /// The script makes a call: which recorded one is it? The same every time it is asked.
    pub(super) fn claim_call(&self, at: &CallSite, tool: &Tool, args: &Value) {
        if self.state.lock().claims.contains_key(at) {
            return;
        }
        let mut filled = args.clone();
        // What was refused then is refused now: it is on record as it was given.
        let _ = tool.input.check_arguments_in_place(&mut filled);
        self.claim_one_of(at, &tool.name, [&filled, args]);
    }

    /// The same for a call of another run, which is on record as it was made.
    pub(super) fn claim_same_call(&self, at: &CallSite, tool: &str, args: &Value) {
        self.claim_one_of(at, tool, [args, args]);
    }

    /// The recorded call with these arguments, with the defaults of the tool filled in or
    /// not.
    fn claim_one_of(&self, at: &CallSite, tool: &str, variants: [&Value; 2]) {
        let mut state = self.state.lock();
        let is_it = |call: &CallRecord| {
            let then = &call.began.args;
            call.began.tool == tool && variants.iter().any(|args| are_same_values(args, then))
        };
        let here = self.by_place.get(at).copied();
        let here = here.filter(|index| !state.is_used[*index] && is_it(&self.recorded[*index]));
        let elsewhere = || {
            variants.into_iter().find_map(|args| {
                let waiting = state.unused.get(&call_hash(tool, args))?;
                let fits = |index: &usize| !state.is_used[*index] && is_it(&self.recorded[*index]);
                waiting.iter().copied().find(fits)
            })
        };
        let recorded = here.or_else(|| if self.is_same_script { None } else { elsewhere() });
        if let Some(index) = recorded {
            state.is_used[index] = true;
            let key = call_hash(tool, &self.recorded[index].began.args);
            // Those in front that were taken at their places are of no use any more.
            if let Some(mut waiting) = state.unused.remove(&key) {
                while waiting.front().is_some_and(|first| state.is_used[*first]) {
                    waiting.pop_front();
                }
                state.unused.insert(key, waiting);
            }
        }
        let [_, args] = variants;
        let claim = ForkClaim {
            recorded,
            tool: tool.to_owned(),
            args: if recorded.is_some() { Value::Null } else { args.clone() },
            fate: NewCallFate::Pending,
            is_held: true,
            wake: Arc::default(),
        };
        state.claims.insert(at.clone(), claim);
        state.made.push(at.clone());
    }

    /// The recorded call that answers the one at this place, and where that was made.
    pub(super) fn recorded_call(&self, at: &str) -> Option<(CallSite, CallRecord)> {
        let index = self.state.lock().claims.get(at)?.recorded?;
        Some((self.place_of(index), self.recorded[index].clone()))
    }

    /// The call was not begun after all.
    pub(super) fn abandon_call(&self, at: &CallSite) {
        let mut state = self.state.lock();
        let Some(claim) = state.claims.remove(at) else { return };
        state.made.retain(|made| made != at);
        if let Some(index) = claim.recorded {
            state.is_used[index] = false;
            let began = &self.recorded[index].began;
            let key = call_hash(&began.tool, &began.args);
            state.unused.entry(key).or_default().push_front(index);
        }
    }

    /// The next of those that are held, now that all of the script waits: the one that was
    /// answered first then, with the number of that answer. It is held no longer.
    pub(super) fn release_first_answer(&self) -> Option<(CallSite, u64)> {
        let mut state = self.state.lock();
        let held = state.claims.iter().filter(|(_, claim)| claim.is_held);
        let orders = held.filter_map(|(at, claim)| {
            Some((recorded_order(&self.recorded[claim.recorded?])?, at.clone()))
        });
        let (order, at) = orders.min()?;
        let claim = state.claims.get_mut(&at)?;
        claim.is_held = false;
        claim.wake.notify_one();
        Some((at, order))
    }

    /// Those that are held and have no answer on record; whether there were any. A script that
    /// was not changed ends before it waits for one of them.
    pub(super) fn release_unanswered(&self) -> bool {
        let mut state = self.state.lock();
        let mut any = false;
        for claim in state.claims.values_mut().filter(|claim| claim.is_held) {
            (claim.is_held, any) = (false, true);
            claim.wake.notify_one();
        }
        any
    }

    /// It was answered before the fork itself was resumed.
    pub(super) fn release_call(&self, at: &CallSite) {
        if let Some(claim) = self.state.lock().claims.get_mut(at) {
            claim.is_held = false;
        }
    }

    /// Until the answer may be given.
    pub(super) async fn wait_until_released(&self, at: &CallSite) {
        loop {
            let wake = match self.state.lock().claims.get(at) {
                Some(claim) if claim.is_held => claim.wake.clone(),
                _ => return,
            };
            wake.notified().await;
        }
    }

    /// What the record has for the call at this place.
    pub(super) fn find_answer(&self, at: &CallSite) -> ForkAnswer {
        let recorded = self.state.lock().claims.get(at).and_then(|claim| claim.recorded);
        let Some(call) = recorded.map(|index| &self.recorded[index]) else {
            return ForkAnswer::New;
        };
        match recorded_answer(call) {
            Some(answer) => ForkAnswer::Recorded(call.began.args.clone(), answer.clone()),
            None => ForkAnswer::Unanswered(call.began.effects),
        }
    }

    /// Whether the record has it that the call was refused, in these words.
    pub(super) fn was_refused(&self, at: &CallSite, problem: &Problem) -> bool {
        let then = match self.find_answer(at) {
            ForkAnswer::Recorded(_, Err(then)) => then,
            _ => return false,
        };
        then.code == problem.code && then.message == problem.message
    }

    pub(super) fn note_fate(&self, at: &CallSite, fate: NewCallFate) {
        if let Some(claim) = self.state.lock().claims.get_mut(at) {
            (claim.fate, claim.is_held) = (fate, false);
        }
    }

    /// The answer on record for a call that the script has made and not been given yet.
    pub(super) fn held_answer(&self, at: &CallSite) -> Option<&Result<ToolAnswer>> {
        let state = self.state.lock();
        let claim = state.claims.get(at).filter(|claim| claim.is_held)?;
        recorded_answer(&self.recorded[claim.recorded?])
    }

    /// Where the call at this place was made then. None for a new one.
    pub(super) fn recorded_place(&self, at: &str) -> Option<CallSite> {
        let state = self.state.lock();
        let index = state.claims.get(at)?.recorded?;
        self.recorded[index].began.place.as_deref().map(CallSite::from)
    }

    /// What the script has said, with what its tools said when they were called: if it is the
    /// same script, and has said the same.
    pub(super) fn add_recorded_logs(&self, said: Vec<String>) -> Vec<String> {
        if !self.is_same_script || !self.report().is_unchanged() {
            return said;
        }
        let mut own = said.iter().peekable();
        for line in &self.recorded_logs {
            if own.next_if(|next| *next == line).is_none() && !is_of_tool(line) {
                return said;
            }
        }
        let is_complete = own.next().is_none();
        if is_complete { self.recorded_logs.clone() } else { said }
    }

    pub(super) fn report(&self) -> ForkReport {
        let state = self.state.lock();
        let (mut reused, mut new, mut unmade) = (Vec::new(), Vec::new(), Vec::new());
        for at in &state.made {
            let Some(claim) = state.claims.get(at) else { continue };
            // One that was never answered, and was needed, is made or planned anew.
            match claim.recorded {
                Some(index) if claim.fate == NewCallFate::Pending => reused.push(ReusedCall {
                    tool: claim.tool.clone(),
                    place: at.clone(),
                    recorded_place: self.place_of(index),
                }),
                None if claim.fate == NewCallFate::Pending => {
                    unmade.push(self.forked_call(at, claim));
                }
                _ => new.push(self.forked_call(at, claim)),
            }
        }
        let unused = (0..self.recorded.len()).filter(|index| !state.is_used[*index]);
        let dropped = unused.map(|index| self.dropped_call(index)).collect();
        let first_difference = self.first_difference(&state);
        ForkReport {
            source: self.source,
            policy: self.policy,
            reused,
            new,
            unmade,
            dropped,
            first_difference,
        }
    }

    /// The call that differs earliest, counted in the order of either run.
    fn first_difference(&self, state: &ForkReplayState) -> Option<ForkDifference> {
        let is_same = |at: &CallSite| {
            let here = self.by_place.get(at);
            let claim = state.claims.get(at);
            here.is_some()
                && claim.is_some_and(|claim| {
                    claim.recorded == here.copied() && claim.fate == NewCallFate::Pending
                })
        };
        let is_unmade = |at: &CallSite| {
            let claim = state.claims.get(at);
            claim.is_some_and(|it| it.recorded.is_none() && it.fate == NewCallFate::Pending)
        };
        let now = state.made.iter().position(|at| !is_same(at) && !is_unmade(at));
        let was = (0..self.recorded.len()).find(|index| !is_same(&self.place_of(*index)));
        let place = match (now, was) {
            (None, None) => return None,
            (Some(now), Some(was)) if was < now => self.place_of(was),
            (Some(now), _) => state.made[now].clone(),
            (None, Some(was)) => self.place_of(was),
        };
        let was = self.by_place.get(&place).map(|index| self.dropped_call(*index));
        let now = state.claims.get(&place).map(|claim| self.forked_call(&place, claim));
        Some(ForkDifference { place, was, now })
    }

    fn forked_call(&self, at: &CallSite, claim: &ForkClaim) -> ForkedCall {
        let args = match claim.recorded {
            Some(index) => self.recorded[index].began.args.clone(),
            None => claim.args.clone(),
        };
        let fate = Some(claim.fate);
        ForkedCall { tool: claim.tool.clone(), place: at.clone(), args, fate }
    }

    fn dropped_call(&self, index: usize) -> ForkedCall {
        let began = &self.recorded[index].began;
        let (tool, args) = (began.tool.clone(), began.args.clone());
        ForkedCall { tool, place: self.place_of(index), args, fate: None }
    }

    fn place_of(&self, index: usize) -> CallSite {
        self.recorded[index].began.place.as_deref().unwrap_or_default().into()
    }
}

/// Whether a line begins with the name of the tool that logged it.
fn is_of_tool(line: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | ':' | '/');
    line.split_once(": ").is_some_and(|(tool, _)| !tool.is_empty() && tool.chars().all(is_name))
}

/// What the script was given for a call, if it was answered.
fn recorded_answer(call: &CallRecord) -> Option<&Result<ToolAnswer>> {
    let ended = call.ended.as_ref().filter(|ended| ended.order.is_some())?;
    ended.answer.as_ref()
}

fn recorded_order(call: &CallRecord) -> Option<u64> {
    recorded_answer(call)?;
    call.ended.as_ref()?.order
}

/// Whether a call that was begun and never answered may be made once more.
pub(super) fn may_be_made_again(then: CallEffects, now: CallEffects) -> bool {
    is_repeatable(then) && is_repeatable(now)
}

/// The Problem of a call that is not on the record of a run that takes no others.
pub(super) fn not_recorded_problem(source: RecordId, call: &str) -> Problem {
    let message = format!("{call} is not on the record of run {source}");
    Problem::new(moonlark_core::problem::ProblemCode::Diverged, message).with_hint(
        "it was not made. new_calls = \"plan\" collects such calls, and \"make\" makes them",
    )
}

/// A number that is the same for the same calls: the order of fields does not matter.
fn call_hash(tool: &str, args: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    tool.hash(&mut hasher);
    hash_value(args).hash(&mut hasher);
    hasher.finish()
}

fn hash_value(value: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    match value {
        Value::Float(number) if number.is_nan() => "nan".hash(&mut hasher),
        // Zero is the same with either sign.
        Value::Float(number) => (number + 0.0).to_bits().hash(&mut hasher),
        Value::Array(items) => {
            items.iter().for_each(|item| hash_value(item).hash(&mut hasher));
        }
        Value::Object(fields) => {
            let field = |(name, field): (&String, &Value)| {
                let mut hasher = DefaultHasher::new();
                (name, hash_value(field)).hash(&mut hasher);
                hasher.finish()
            };
            let sum = fields.iter().map(field).fold(0, u64::wrapping_add);
            (fields.len(), sum).hash(&mut hasher);
        }
        Value::Null => 0.hash(&mut hasher),
        Value::Bool(truth) => truth.hash(&mut hasher),
        Value::Int(number) => number.hash(&mut hasher),
        Value::Str(text) => text.hash(&mut hasher),
        Value::Bytes(bytes) => bytes.hash(&mut hasher),
    }
    hasher.finish()
}
