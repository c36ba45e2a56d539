//! The replay log of a run: recorded answers by their places, and calls that were begun
//! and never answered.
//!
//! Pure: it says what a call must be, never makes one.

use std::collections::HashMap;
use std::sync::Arc;

use crate::call_outcome::CallOutcome;
use crate::journal::{CallRecord, RedactionScopes, RunRecord, are_same_values, redaction};
use moonlark_core::content::ToolAnswer;
use moonlark_core::problem::{Problem, ProblemCode, Result};
use moonlark_core::record_id::RecordId;
use moonlark_core::tool::{CallEffects, Tool};
use moonlark_core::value::Value;

/// Letters of arguments in the message about a call that may have happened.
const MAX_SHOWN_CHARS: usize = 300;

#[derive(Default)]
pub(super) struct ReplayLog {
    calls: HashMap<Arc<str>, CallRecord>,
    decided: LostCallDecisions,
}

/// What to do about a call that was begun and never answered, if it changes
/// something: it may have happened.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum LostCallPolicy {
    /// Stop there, and let somebody say.
    #[default]
    Ask,
    /// It has not happened: make it.
    Retry,
    /// It has happened: go on with nothing as its answer.
    AssumeDone,
    /// It has happened, and somebody knows the answer.
    AnsweredWith(Value),
}

/// What was decided about calls that may have happened: about each at its place,
/// and about all others.
#[derive(Debug, Clone, Default)]
pub struct LostCallDecisions {
    pub others: LostCallPolicy,
    pub places: HashMap<String, LostCallPolicy>,
}

impl LostCallDecisions {
    pub(super) fn policy_for(&self, place: &str) -> LostCallPolicy {
        self.places.get(place).unwrap_or(&self.others).clone()
    }
}

/// What the record says about a call that is about to be made.
pub(super) enum ReplayLookup {
    Nothing,
    /// It was answered, and with what.
    Answered(Result<ToolAnswer>),
    /// It was begun, may be made again, and nobody is worse off.
    Unanswered,
    /// It was begun and may have happened.
    Doubtful,
}

impl ReplayLog {
    pub(super) fn from_record(record: &RunRecord, decided: LostCallDecisions) -> ReplayLog {
        let mut calls = last_calls_by_place(record);
        // What was assumed before, somebody may say anew: by its place, or by a word for
        // all where no other call is meant.
        let any_open = calls.values().any(is_in_doubt);
        let for_all = !any_open && decided.others != LostCallPolicy::Ask;
        for (place, call) in &mut calls {
            if is_assumed(call) && (for_all || decided.places.contains_key(&**place)) {
                call.ended = None;
            }
        }
        ReplayLog { calls, decided }
    }

    /// What to do about a call at this place that may have happened.
    pub(super) fn lost_call_policy(&self, place: &str) -> LostCallPolicy {
        self.decided.policy_for(place)
    }

    /// Whether some answer is one that somebody gave.
    pub(super) fn has_assumed_answers(&self) -> bool {
        self.calls.values().any(is_assumed)
    }

    /// The places that were answered, in the order of the answers.
    pub(super) fn answered_sites(&self) -> Vec<(u64, Arc<str>)> {
        let answered = self.calls.iter().filter_map(|(place, call)| {
            let ended = call.ended.as_ref().filter(|ended| ended.answer.is_some())?;
            Some((ended.order?, place.clone()))
        });
        let mut answered: Vec<_> = answered.collect();
        answered.sort_unstable();
        answered
    }

    /// What the record says about the call of `tool` at `place`, or the Problem
    /// of one that was another call then.
    pub(super) fn look_up_call(
        &self,
        place: &str,
        tool: &Tool,
        args: &Value,
    ) -> Result<ReplayLookup> {
        let Some(call) = self.calls.get(place) else { return Ok(ReplayLookup::Nothing) };
        let began = &call.began;
        if began.tool != tool.name {
            let message = format!(
                "at {place} the script now calls {}, but the journal has {}",
                tool.name, began.tool
            );
            return Err(diverged_problem(message));
        }
        let answer = call.ended.as_ref().filter(|ended| ended.order.is_some());
        let answer = answer.and_then(|ended| ended.answer.clone());
        // A call that was refused had no arguments on record in version 0.1.
        let refused = began.args == Value::Null && matches!(answer, Some(Err(_)));
        if !refused && !are_same_arguments(tool, args, &began.args) {
            let message = format!(
                "at {place} the script calls {} with other arguments than in the journal",
                tool.name
            );
            return Err(diverged_problem(message));
        }
        Ok(match answer {
            Some(answer) => ReplayLookup::Answered(answer),
            None if is_repeatable(began.effects) && is_repeatable(tool.effects_on_record()) => {
                ReplayLookup::Unanswered
            }
            None => ReplayLookup::Doubtful,
        })
    }

    /// The Problem of a script that does not come to a place that is on record.
    pub(super) fn missing_site_problem(&self, place: &str) -> Problem {
        let tool = self.calls.get(place).map_or("a tool", |call| call.began.tool.as_str());
        diverged_problem(format!("the script no longer comes to {place}, where it called {tool}"))
    }

    /// A place on record that `seen` does not know, if there is one.
    pub(super) fn find_unvisited(&self, seen: impl Fn(&str) -> bool) -> Option<&str> {
        self.calls.keys().map(|place| &**place).filter(|place| !seen(place)).min()
    }
}

/// The calls of a run by their places: where one was made again, the last.
pub(super) fn last_calls_by_place(record: &RunRecord) -> HashMap<Arc<str>, CallRecord> {
    // What was withdrawn did not happen, and hides nothing that was before it.
    let made = record.calls.iter().filter(|call| !is_withdrawn(call));
    let by_place = made.filter_map(|call| {
        let place: Arc<str> = call.began.place.as_deref()?.into();
        Some((place, call.clone()))
    });
    by_place.collect()
}

/// Whether making it twice does no more than making it once.
pub(super) fn is_repeatable(effects: CallEffects) -> bool {
    effects.read_only || effects.idempotent
}

/// As the script gives them now, or with the tool's defaults filled in.
fn are_same_arguments(tool: &Tool, now: &Value, then: &Value) -> bool {
    let filled = || {
        let mut filled = now.clone();
        // What was refused then is refused now: it is on record as it was given.
        let _ = tool.input.check_arguments_in_place(&mut filled);
        filled
    };
    are_same_values(now, then) || are_same_values(&filled(), then)
}

pub(super) fn diverged_problem(message: String) -> Problem {
    Problem::new(ProblemCode::Diverged, message).with_hint(
        "no unrecorded call was made. A run can be resumed only as long as its tools \
         are what they were: start the script anew, and look at `moonlark runs` for what was done",
    )
}

/// Whether the answer is one that somebody gave.
fn is_assumed(call: &CallRecord) -> bool {
    call.ended.as_ref().is_some_and(|ended| ended.outcome == CallOutcome::Assumed)
}

/// Whether a call went on record and was not made.
fn is_withdrawn(call: &CallRecord) -> bool {
    call.ended.as_ref().is_some_and(|ended| ended.outcome == CallOutcome::Withdrawn)
}

/// Whether a call was begun, never answered, and may have happened.
fn is_in_doubt(call: &CallRecord) -> bool {
    let answered = call.ended.as_ref().is_some_and(|ended| ended.answer.is_some());
    !answered && !is_repeatable(call.began.effects)
}

/// The Problem of a run with calls that were begun and never answered, may have
/// happened, and nobody has decided on, if there are any.
pub fn calls_in_doubt_problem(record: &RunRecord, decided: &LostCallDecisions) -> Option<Problem> {
    let known = ReplayLog::from_record(record, decided.clone());
    let lost = |call: &&CallRecord| {
        let place = call.began.place.as_deref().unwrap_or_default();
        is_in_doubt(call) && decided.policy_for(place) == LostCallPolicy::Ask
    };
    let mut calls: Vec<&CallRecord> = known.calls.values().filter(lost).collect();
    calls.sort_by_key(|call| call.began.call);
    let calls: Vec<String> = calls
        .iter()
        .map(|call| {
            let place = call.began.place.as_deref().unwrap_or_default();
            describe_call(&call.began.tool, place, &call.began.args)
        })
        .collect();
    (!calls.is_empty()).then(|| lost_answers_problem(record.began.run, &calls))
}

/// A call with enough of its arguments to know where to look.
pub(super) fn describe_call(tool: &str, place: &str, args: &Value) -> String {
    let args = redaction::redact_arguments(args, &RedactionScopes::default());
    let cut = match args.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", &args[..end]),
        None => args,
    };
    format!("{tool} at {place} with {cut}")
}

/// The Problem of calls that were begun and never answered.
pub(super) fn lost_answers_problem(run: RecordId, calls: &[String]) -> Problem {
    let message = match calls {
        [one] => format!("{one} was called and its answer was lost: it may have happened"),
        all => format!(
            "{} were called and their answers were lost: they may have happened",
            all.join(", ")
        ),
    };
    Problem::new(ProblemCode::MayHaveHappened, message).with_hint(format!(
        "check whether the call took effect. If it has not: `moonlark runs resume {run} --retry`. If it \
         has: --answer PLACE=JSON gives the script its answer, and --assume-done goes on without one; \
         --retry=PLACE and --assume-done=PLACE are for one of several"
    ))
}
