//! One execution of an agent's script: what it called, what it said, how far
//! it is.
//!
//! The gateway writes into it while calls begin and end; whoever executes the
//! script reads it when the script is done. Everything is bounded by the run's
//! limits on calls and log output.
//!
//! A run can be stopped and gone on with: [`answer_sequencer`] is what makes it do the
//! same again, [`replay_log`] what is on record of it, [`replay`] what becomes of a
//! call because of that.

mod answer_sequencer;
mod child_run;
mod fork_replay;
mod forked_run;
mod recorded_host_call;
mod replay;
mod replay_log;
mod run_comparison;
mod run_plan;
mod seeded_random;
mod value_changes;

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::Instant;

use answer_sequencer::AnswerSequencer;
pub use answer_sequencer::CallSite;
pub use child_run::SavedRunRequest;
use fork_replay::ForkReplay;
pub use fork_replay::{
    ForkDifference, ForkReport, ForkedCall, NewCallFate, NewCallPolicy, ReusedCall, RunFork,
};
pub(crate) use replay::{
    ReplayDecision, check_still_allowed, decide_replay, record_given_answer, record_host_call,
};
use replay_log::ReplayLog;
pub use replay_log::{LostCallDecisions, LostCallPolicy, calls_in_doubt_problem};
pub use run_comparison::{
    ChangedAnswer, RunComparison, answer_logs, compare_runs, plain_result, shown_arguments,
};
use run_plan::RunMode;
pub use run_plan::{PlannedCall, RunPlan};
pub use value_changes::{LineChange, ValueChange, line_changes, shown_value, value_changes};

use crate::artifacts::ArtifactHandle;
use crate::call_outcome::CallOutcome;
use crate::journal::{RunBegan, RunPaused, RunRecord};
use moonlark_core::approval_ticket::ApprovalTicket;
use moonlark_core::limits::CallLimits;
use moonlark_core::problem::{Problem, Result};
use moonlark_core::record_id::RecordId;
use moonlark_core::secret::{Secrets, secrets_from_literals};
use moonlark_core::value::Value;

pub struct Run {
    id: RecordId,
    started: Instant,
    /// Everything random in it comes from here.
    seed: [u8; 32],
    /// Calls that the script makes at once; the others wait for their turn.
    turns: Semaphore,
    state: Mutex<RunState>,
    answers: AnswerSequencer,
    known: ReplayLog,
    mode: RunMode,
    /// It runs on the record of another.
    fork: Option<ForkReplay>,
    /// It is looked at and done with: nothing of it goes on record.
    is_unrecorded: bool,
    /// Some call has an answer that somebody gave, after a crash.
    assumed: AtomicBool,
    /// Why it must not go on.
    stopped: OnceLock<Problem>,
    /// What is secret in the text of the script, by the names it is given there.
    script_secrets: Secrets,
    /// The decisions it waits for, that nobody could be asked for at once.
    waits: watch::Sender<Vec<(ApprovalTicket, RunPaused)>>,
    /// The run that it is a part of, if it is.
    parent: OnceLock<Arc<Run>>,
    /// The saved script that it is of, if that says that it only reads.
    reading_script: OnceLock<Arc<str>>,
}

#[derive(Default)]
struct RunState {
    steps: Vec<RunStep>,
    said: Vec<String>,
    /// How far each unfinished call is, from 0 to 1.
    shares: Vec<f64>,
    ended: usize,
    /// The script says itself how far it is.
    own: bool,
    /// Answers that were several texts.
    several: Vec<Value>,
}

/// Answers of several texts that are remembered, and the bytes of one.
const MAX_REMEMBERED_TEXT_LISTS: usize = 100;
const MAX_REMEMBERED_TEXT_BYTES: usize = 64 * 1024;

/// The key of `_meta` under which an answer says how the run went.
pub const RUN_META_KEY: &str = "moonlark/run";

/// What stands for the place of a call where a result is put aside.
pub const RESULT_ARTIFACT_PLACE: &str = "result";

/// A call that the script made.
#[derive(Debug, Clone, PartialEq)]
pub struct RunStep {
    pub tool: String,
    /// When it began, counted from the beginning of the run.
    pub at: Duration,
    /// How long it took; none while it runs.
    pub took: Option<Duration>,
    pub outcome: CallOutcome,
    /// Where in the script it was made.
    pub place: Option<CallSite>,
    /// It was not made now but before, and its answer was on record.
    pub replayed: bool,
}

impl Run {
    /// A run that begins.
    pub fn new(began: &RunBegan, limits: &CallLimits) -> Arc<Run> {
        let mode = if began.plan { RunMode::Plans(Mutex::default()) } else { RunMode::Anything };
        Arc::new(Self::build_run(began, limits, ReplayLog::default(), mode))
    }

    /// A run that goes on: what is on record is not done again. One that follows
    /// a plan needs that again.
    pub fn resume_from(
        record: &RunRecord,
        decided: LostCallDecisions,
        plan: Option<RunPlan>,
        limits: &CallLimits,
    ) -> Arc<Run> {
        let known = ReplayLog::from_record(record, decided);
        let mode = plan.map_or(RunMode::Anything, RunMode::Follows);
        Arc::new(Self::build_run(&record.began, limits, known, mode))
    }

    /// A run that may change what is in a plan, and nothing else.
    pub fn follow_plan(began: &RunBegan, plan: RunPlan, limits: &CallLimits) -> Arc<Run> {
        let run = Self::build_run(began, limits, ReplayLog::default(), RunMode::Follows(plan));
        Arc::new(run)
    }

    fn build_run(began: &RunBegan, limits: &CallLimits, known: ReplayLog, mode: RunMode) -> Run {
        let (clock, planned) = match &mode {
            RunMode::Follows(plan) => (plan.began.unwrap_or(began.at), plan.answer_orders()),
            _ => (began.clock_start(), Vec::new()),
        };
        let answers = AnswerSequencer::new(clock, known.answered_sites(), planned);
        let assumed = AtomicBool::new(known.has_assumed_answers());
        Run {
            id: began.run,
            started: Instant::now(),
            seed: began.seed,
            turns: Semaphore::new(limits.parallel.max(1) as usize),
            state: Mutex::default(),
            answers,
            known,
            mode,
            fork: None,
            is_unrecorded: false,
            assumed,
            stopped: OnceLock::new(),
            script_secrets: secrets_from_literals(&began.script),
            waits: watch::Sender::default(),
            parent: OnceLock::new(),
            reading_script: OnceLock::new(),
        }
    }

    /// What the journal knows it by.
    pub fn id(&self) -> RecordId {
        self.id
    }

    /// Where the answer belongs that the script is given next, if one is there
    /// or will be in a moment.
    pub fn next_answer(&self) -> Option<CallSite> {
        self.answers.next_site()
    }

    /// The script is given that answer.
    pub fn hand_over_answer(&self) {
        self.answers.hand_over_next();
    }

    /// The script has ended. Whatever ends from now on was not answered, so that what is on
    /// record is what the script has seen.
    pub fn close_answers(&self) {
        self.answers.close();
    }

    /// Whether the call at this place was answered, and the script was not given that.
    pub fn is_answered(&self, at: &CallSite) -> bool {
        self.answers.has_order(at) || self.held_answer(at).is_some()
    }

    /// A call at this place was answered, by whomever: its turn will come.
    pub fn answer_order(&self, at: &CallSite) -> u64 {
        self.answers.order_of(at)
    }

    /// The same, unless its script has ended before.
    pub fn answer_order_if_open(&self, at: &CallSite) -> Option<u64> {
        self.answers.order_before_close(at)
    }

    /// Whether there are answers on record that were not handed over yet.
    pub fn is_replaying(&self) -> bool {
        self.answers.is_replaying()
    }

    /// The Problem of a script that does not come to a place that is on record.
    pub fn missing_site_problem(&self, place: &str) -> Problem {
        match &self.mode {
            RunMode::Follows(plan) => plan.missing_site_problem(place),
            _ => self.known.missing_site_problem(place),
        }
    }

    /// The same, for one that has ended without having `seen` every place.
    pub fn unvisited_site_problem(&self, seen: impl Fn(&str) -> bool) -> Option<Problem> {
        self.known.find_unvisited(seen).map(|place| self.known.missing_site_problem(place))
    }

    /// Whether it went on with an answer that somebody gave. What comes of that is
    /// not final: another answer may be given.
    pub fn has_assumed_answers(&self) -> bool {
        self.assumed.load(Ordering::Relaxed)
    }

    /// The run must not go on, because of this.
    pub fn stop_with(&self, problem: Problem) -> Problem {
        self.stopped.get_or_init(|| problem).clone()
    }

    pub fn stop_problem(&self) -> Option<&Problem> {
        self.stopped.get()
    }

    /// What it waits for, as soon as it waits for a decision that nobody could
    /// be asked for at once.
    pub async fn next_pending_ticket(&self) -> ApprovalTicket {
        let mut waits = self.waits.subscribe();
        loop {
            if let Some((ticket, _)) = waits.borrow_and_update().first() {
                return ticket.clone();
            }
            // Never: it is held here.
            if waits.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    pub(crate) fn add_pending_ticket(&self, ticket: ApprovalTicket, paused: RunPaused) {
        if let Some(parent) = self.parent.get() {
            parent.add_pending_ticket(ticket.clone(), paused.clone());
        }
        self.waits.send_modify(|waits| waits.push((ticket, paused)));
    }

    /// It no longer waits for this one: what it still waits for.
    pub(crate) fn remove_pending_ticket(&self, id: RecordId) -> Option<RunPaused> {
        if let Some(parent) = self.parent.get() {
            parent.remove_pending_ticket(id);
        }
        let mut other = None;
        self.waits.send_modify(|waits| {
            waits.retain(|(ticket, _)| ticket.id != id);
            other = waits.first().map(|(_, paused)| paused.clone());
        });
        other
    }

    /// Whether it only collects what it would change.
    pub fn is_plan(&self) -> bool {
        matches!(self.mode, RunMode::Plans(_))
    }

    /// Whether what its script returns is not known, because calls were not made.
    pub fn is_result_unknown(&self) -> bool {
        self.is_plan() && (self.fork.is_none() || !self.planned_calls().is_empty())
    }

    /// What it would change, in the order it came to that.
    pub fn planned_calls(&self) -> Vec<PlannedCall> {
        match &self.mode {
            RunMode::Plans(calls) => calls.lock().clone(),
            _ => Vec::new(),
        }
    }

    /// The tool of a call that was planned at this place, if one was.
    pub fn planned_tool_at(&self, at: &str) -> Option<String> {
        let RunMode::Plans(calls) = &self.mode else { return None };
        let calls = calls.lock();
        calls.iter().find(|call| &*call.at == at).map(|call| call.tool.clone())
    }

    /// The time, as the script sees it: it moves when an answer is handed over.
    pub fn current_time(&self) -> SystemTime {
        self.answers.began_at() + self.answers.read_clock()
    }

    /// The same, since the run began.
    pub fn script_clock(&self) -> Duration {
        self.answers.read_clock()
    }

    /// Random bytes for the script, the same when the run is resumed.
    pub fn fill_random(&self, bytes: &mut [u8]) {
        seeded_random::fill_seeded(&self.seed, "bytes", self.answers.next_draw(), bytes);
    }

    /// A seed for random numbers of the script's language.
    pub fn language_seed(&self) -> u32 {
        let mut bytes = [0; 4];
        seeded_random::fill_seeded(&self.seed, "seed", 0, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    /// The handle of what is put aside of an answer: nobody can guess it, and it
    /// is the same when the run is resumed.
    pub fn artifact_handle(&self, place: &str, number: u64) -> ArtifactHandle {
        let mut bytes = [0; 26];
        let what = match &self.fork {
            // What a fork puts aside of a recorded answer has the handle that it had, and
            // nothing else has.
            Some(fork) if fork.is_of_other_caller() => format!("artifact {} {place}", self.id),
            Some(fork) => match fork.recorded_place(place) {
                Some(then) => format!("artifact {then}"),
                None if place == RESULT_ARTIFACT_PLACE => format!("artifact {place}"),
                None => format!("artifact {} {place}", self.id),
            },
            None => format!("artifact {place}"),
        };
        seeded_random::fill_seeded(&self.seed, &what, number, &mut bytes);
        ArtifactHandle::from_random_bytes(bytes)
    }

    /// The calls so far, in the order they began.
    pub fn steps(&self) -> Vec<RunStep> {
        self.state.lock().steps.clone()
    }

    /// What was logged, a line each.
    pub fn log_lines(&self) -> Vec<String> {
        let said = self.state.lock().said.clone();
        match &self.fork {
            Some(fork) => fork.add_recorded_logs(said),
            None => said,
        }
    }

    /// A call was answered with several texts, which the script sees as a list
    /// like any other. Returned as it is, it is to be several texts again.
    pub fn remember_text_list(&self, list: &Value) {
        let Value::Array(items) = list else { return };
        let bytes: usize = items.iter().filter_map(Value::as_str).map(str::len).sum();
        let mut state = self.state.lock();
        if bytes <= MAX_REMEMBERED_TEXT_BYTES && state.several.len() < MAX_REMEMBERED_TEXT_LISTS {
            state.several.push(list.clone());
        }
    }

    /// Whether a call was answered with these texts.
    pub fn is_remembered_text_list(&self, list: &Value) -> bool {
        self.state.lock().several.contains(list)
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// A line for the operator's log, which is for other eyes than the script's caller.
    pub(crate) fn redact_for_operator<'a>(&self, line: &'a str) -> Cow<'a, str> {
        self.script_secrets.redact_text(line)
    }

    pub(crate) fn add_log_line(&self, line: String) {
        self.state.lock().said.push(line);
    }

    /// Wait until fewer calls are in flight than may be.
    pub(crate) async fn acquire_turn(&self) -> Result<SemaphorePermit<'_>> {
        self.turns.acquire().await.map_err(|_| Problem::internal("the run is over"))
    }

    pub(crate) fn begin_step(self: &Arc<Self>, tool: &str, place: Option<CallSite>) -> StepGuard {
        let mut state = self.state.lock();
        state.steps.push(RunStep {
            tool: tool.to_owned(),
            at: self.started.elapsed(),
            took: None,
            outcome: CallOutcome::Running,
            place: place.clone(),
            replayed: false,
        });
        state.shares.push(0.0);
        let index = Some(state.steps.len() - 1);
        StepGuard { run: self.clone(), place, index, assumed: false, given: false, ended: false }
    }

    /// A call that is on record and no step: one of a host function.
    pub(crate) fn begin_host_call(self: &Arc<Self>, place: CallSite) -> StepGuard {
        let place = Some(place);
        let (index, assumed, given) = (None, false, false);
        StepGuard { run: self.clone(), place, index, assumed, given, ended: false }
    }

    /// The script reports by itself, so its calls no longer do.
    pub(crate) fn use_own_progress(&self) {
        self.state.lock().own = true;
    }

    /// One call is this far: how far the run is, and out of what.
    pub(crate) fn advance_step(&self, index: usize, share: f64) -> Option<(f64, f64)> {
        let mut state = self.state.lock();
        let known = state.shares.get_mut(index)?;
        *known = share.clamp(0.0, 1.0).max(*known);
        state.overall_progress()
    }
}

impl RunState {
    fn overall_progress(&self) -> Option<(f64, f64)> {
        if self.own {
            return None;
        }
        let running: f64 = self.shares.iter().sum();
        Some((self.ended as f64 + running, self.steps.len() as f64))
    }
}

/// A call being made; one that is dropped was cancelled.
pub(crate) struct StepGuard {
    run: Arc<Run>,
    place: Option<CallSite>,
    /// Among the steps, if it is one.
    pub(crate) index: Option<usize>,
    /// Its answer is one that somebody gave.
    pub(crate) assumed: bool,
    /// Its answer is given from a record: nothing happens now.
    pub(crate) given: bool,
    ended: bool,
}

impl StepGuard {
    /// Where in the script the call was made.
    pub(crate) fn place(&self) -> Option<String> {
        self.place.as_deref().map(str::to_owned)
    }

    pub(crate) fn site(&self) -> Option<&CallSite> {
        self.place.as_ref()
    }

    /// Which answer of the run this one is, now that there is one.
    pub(crate) fn answer_order(&self) -> Option<u64> {
        self.run.answers.order_before_close(self.place.as_ref()?)
    }

    /// The step as it is on record, and how far the run is.
    pub(crate) fn end_step(
        mut self,
        outcome: CallOutcome,
    ) -> Option<(RunStep, Option<(f64, f64)>)> {
        self.answer_order();
        self.finish_step(outcome);
        let state = self.run.state.lock();
        Some((state.steps.get(self.index?)?.clone(), state.overall_progress()))
    }

    pub(crate) fn end_as_replayed(mut self, outcome: CallOutcome) {
        self.finish_step(outcome);
        let mut state = self.run.state.lock();
        if let Some(step) = self.index.and_then(|index| state.steps.get_mut(index)) {
            step.replayed = true;
        }
    }

    fn finish_step(&mut self, outcome: CallOutcome) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let Some(index) = self.index else { return };
        let mut state = self.run.state.lock();
        let now = self.run.started.elapsed();
        let step = &mut state.steps[index];
        step.took = Some(now.saturating_sub(step.at));
        step.outcome = outcome;
        state.shares[index] = 0.0;
        state.ended += 1;
    }
}

impl Drop for StepGuard {
    fn drop(&mut self) {
        self.finish_step(CallOutcome::Cancelled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Caller;
    use crate::journal::RedactionScopes;

    impl RunBegan {
        /// A script that begins now, on behalf of nobody.
        pub(crate) fn for_script(script: &str, seed: [u8; 32]) -> RunBegan {
            RunBegan {
                run: RecordId::new(),
                call: None,
                caller: Caller::new("cli"),
                at: SystemTime::now(),
                script: script.to_owned(),
                timeout: None,
                seed,
                plan: false,
                follows: None,
                fork: None,
                secrets: RedactionScopes::default(),
            }
        }
    }

    fn fresh() -> Arc<Run> {
        Run::new(&RunBegan::for_script("", [0; 32]), &CallLimits::default())
    }

    #[test]
    fn the_progress_of_calls_is_one_that_only_grows() {
        let run = fresh();
        let begin = |tool: &str| run.begin_step(tool, None);
        let (a, b) = (begin("a"), begin("b"));
        let at = |stepping: &StepGuard| stepping.index.unwrap();
        assert_eq!(run.advance_step(at(&a), 0.5), Some((0.5, 2.0)));
        assert_eq!(run.advance_step(at(&b), 0.25), Some((0.75, 2.0)));
        assert_eq!(run.advance_step(at(&a), 0.1), Some((0.75, 2.0)));
        assert_eq!(a.end_step(CallOutcome::Ok).unwrap().1, Some((1.25, 2.0)));
        let c = begin("c");
        let denied = CallOutcome::from(moonlark_core::ProblemCode::Denied);
        drop(b);
        assert_eq!(c.end_step(denied).unwrap().1, Some((3.0, 3.0)));
        let outcomes: Vec<_> = run.steps().iter().map(|step| step.outcome).collect();
        assert_eq!(outcomes, [CallOutcome::Ok, CallOutcome::Cancelled, denied]);
    }

    #[test]
    fn a_script_that_reports_itself_is_not_talked_over() {
        let run = fresh();
        let call = run.begin_step("a", None);
        run.use_own_progress();
        assert_eq!(run.advance_step(call.index.unwrap(), 0.5), None);
        assert_eq!(call.end_step(CallOutcome::Ok).unwrap().1, None);
    }
}
