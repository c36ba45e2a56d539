//! One execution of an agent's script: what it called, what it said, how far
//! it is.
//!
//! The gateway writes into it while calls begin and end; whoever executes the
//! script reads it when the script is done. Everything is bounded by the run's
//! limits on calls and log output.
//!
//! A run can be stopped and gone on with: [`answers`] is what makes it do the
//! same again, [`known`] what is on record of it, [`before`] what becomes of a
//! call because of that.

mod answers;
mod before;
mod chance;
mod known;
mod plan;

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::Instant;

use answers::Answers;
pub use answers::At;
pub(crate) use before::{Before, aside, before, given};
pub(crate) use known::ASSUMED;
use known::Known;
pub use known::{Decisions, Lost, in_doubt};
use plan::Mode;
pub use plan::{Plan, Planned};

use crate::approval::Ticket;
use crate::artifacts::Handle;
use crate::call::Caller;
use crate::journal::{Id, RunBegan, RunPaused, RunRecord, Secrecy};
use crate::limits::Limits;
use crate::problem::{Problem, Result};
use crate::secret::{Secrets, literals};
use crate::value::Value;

pub struct Run {
    id: Id,
    started: Instant,
    /// Everything random in it comes from here.
    seed: [u8; 32],
    /// Calls that the script makes at once; the others wait for their turn.
    turns: Semaphore,
    state: Mutex<State>,
    answers: Answers,
    known: Known,
    mode: Mode,
    /// Some call has an answer that somebody gave, after a crash.
    assumed: AtomicBool,
    /// Why it must not go on.
    stopped: OnceLock<Problem>,
    /// What is secret in the text of the script, by the names it is given there.
    script_secrets: Secrets,
    /// The decisions it waits for, that nobody could be asked for at once.
    waits: watch::Sender<Vec<(Ticket, RunPaused)>>,
}

#[derive(Default)]
struct State {
    steps: Vec<Step>,
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
const SEVERAL: usize = 100;
const LONGEST: usize = 64 * 1024;

/// A call that the script made.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    pub tool: String,
    /// When it began, counted from the beginning of the run.
    pub at: Duration,
    /// How long it took; none while it runs.
    pub took: Option<Duration>,
    /// `ok`, the code of its Problem, or `cancelled`; empty while it runs.
    pub outcome: &'static str,
    /// Where in the script it was made.
    pub place: Option<At>,
    /// It was not made now but before, and its answer was on record.
    pub replayed: bool,
}

impl Run {
    /// A run that begins.
    pub fn of(began: &RunBegan, limits: &Limits) -> Arc<Run> {
        let mode = if began.plan { Mode::Plans(Mutex::default()) } else { Mode::Anything };
        Arc::new(Self::build(began, limits, Known::default(), mode))
    }

    /// A run that goes on: what is on record is not done again. One that follows
    /// a plan needs that again.
    pub fn again(
        record: &RunRecord,
        decided: Decisions,
        plan: Option<Plan>,
        limits: &Limits,
    ) -> Arc<Run> {
        let known = Known::of(record, decided);
        let mode = plan.map_or(Mode::Anything, Mode::Follows);
        Arc::new(Self::build(&record.began, limits, known, mode))
    }

    /// A run that may change what is in a plan, and nothing else.
    pub fn following(began: &RunBegan, plan: Plan, limits: &Limits) -> Arc<Run> {
        let run = Self::build(began, limits, Known::default(), Mode::Follows(plan));
        Arc::new(run)
    }

    fn build(began: &RunBegan, limits: &Limits, known: Known, mode: Mode) -> Run {
        let (clock, planned) = match &mode {
            Mode::Follows(plan) => (plan.began.unwrap_or(began.at), plan.orders()),
            _ => (began.at, Vec::new()),
        };
        let answers = Answers::new(clock, known.answered(), planned);
        let assumed = AtomicBool::new(known.has_assumed());
        Run {
            id: began.run,
            started: Instant::now(),
            seed: began.seed,
            turns: Semaphore::new(limits.parallel.max(1) as usize),
            state: Mutex::default(),
            answers,
            known,
            mode,
            assumed,
            stopped: OnceLock::new(),
            script_secrets: literals(&began.script),
            waits: watch::Sender::default(),
        }
    }

    /// What the journal knows it by.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Where the answer belongs that the script is given next, if one is there
    /// or will be in a moment.
    pub fn next_answer(&self) -> Option<At> {
        self.answers.next()
    }

    /// The script is given that answer.
    pub fn hand_over(&self) {
        self.answers.hand_over();
    }

    /// A call at this place was answered, by whomever: its turn will come.
    pub fn answered(&self, at: &At) -> u64 {
        self.answers.order(at)
    }

    /// Whether there are answers on record that were not handed over yet.
    pub fn is_replaying(&self) -> bool {
        self.answers.is_replaying()
    }

    /// The Problem of a script that does not come to a place that is on record.
    pub fn misses(&self, place: &str) -> Problem {
        match &self.mode {
            Mode::Follows(plan) => plan.missing(place),
            _ => self.known.missing(place),
        }
    }

    /// The same, for one that has ended without having `seen` every place.
    pub fn left_out(&self, seen: impl Fn(&str) -> bool) -> Option<Problem> {
        self.known.unseen(seen).map(|place| self.known.missing(place))
    }

    /// Whether it went on with an answer that somebody gave. What comes of that is
    /// not final: another answer may be given.
    pub fn has_assumed(&self) -> bool {
        self.assumed.load(Ordering::Relaxed)
    }

    /// The run must not go on, because of this.
    pub fn stop(&self, problem: Problem) -> Problem {
        self.stopped.get_or_init(|| problem).clone()
    }

    pub fn stopped(&self) -> Option<&Problem> {
        self.stopped.get()
    }

    /// What it waits for, as soon as it waits for a decision that nobody could
    /// be asked for at once.
    pub async fn waits(&self) -> Ticket {
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

    pub(crate) fn wait_for(&self, ticket: Ticket, paused: RunPaused) {
        self.waits.send_modify(|waits| waits.push((ticket, paused)));
    }

    /// It no longer waits for this one: what it still waits for.
    pub(crate) fn waited_for(&self, id: Id) -> Option<RunPaused> {
        let mut other = None;
        self.waits.send_modify(|waits| {
            waits.retain(|(ticket, _)| ticket.id != id);
            other = waits.first().map(|(_, paused)| paused.clone());
        });
        other
    }

    /// Whether it only collects what it would change.
    pub fn is_plan(&self) -> bool {
        matches!(self.mode, Mode::Plans(_))
    }

    /// What it would change, in the order it came to that.
    pub fn planned(&self) -> Vec<Planned> {
        match &self.mode {
            Mode::Plans(calls) => calls.lock().clone(),
            _ => Vec::new(),
        }
    }

    /// The tool of a call that was planned at this place, if one was.
    pub fn planned_at(&self, at: &str) -> Option<String> {
        let Mode::Plans(calls) = &self.mode else { return None };
        let calls = calls.lock();
        calls.iter().find(|call| &*call.at == at).map(|call| call.tool.clone())
    }

    /// The time, as the script sees it: it moves when an answer is handed over.
    pub fn now(&self) -> SystemTime {
        self.answers.began() + self.answers.clock()
    }

    /// The same, since the run began.
    pub fn clock(&self) -> Duration {
        self.answers.clock()
    }

    /// Random bytes for the script, the same when the run is resumed.
    pub fn random(&self, bytes: &mut [u8]) {
        chance::fill(&self.seed, "bytes", self.answers.draw(), bytes);
    }

    /// A seed for random numbers of the script's language.
    pub fn seed(&self) -> u32 {
        let mut bytes = [0; 4];
        chance::fill(&self.seed, "seed", 0, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    /// The handle of what is put aside of an answer: nobody can guess it, and it
    /// is the same when the run is resumed.
    pub fn handle(&self, place: &str, number: u64) -> Handle {
        let mut bytes = [0; 26];
        chance::fill(&self.seed, &format!("artifact {place}"), number, &mut bytes);
        Handle::of(bytes)
    }

    /// The calls so far, in the order they began.
    pub fn steps(&self) -> Vec<Step> {
        self.state.lock().steps.clone()
    }

    /// What was logged, a line each.
    pub fn said(&self) -> Vec<String> {
        self.state.lock().said.clone()
    }

    /// A call was answered with several texts, which the script sees as a list
    /// like any other. Returned as it is, it is to be several texts again.
    pub fn gave_several(&self, list: &Value) {
        let Value::Array(items) = list else { return };
        let bytes: usize = items.iter().filter_map(Value::as_str).map(str::len).sum();
        let mut state = self.state.lock();
        if bytes <= LONGEST && state.several.len() < SEVERAL {
            state.several.push(list.clone());
        }
    }

    /// Whether a call was answered with these texts.
    pub fn was_several(&self, list: &Value) -> bool {
        self.state.lock().several.contains(list)
    }

    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// A line for the operator's log, which is for other eyes than the script's caller.
    pub(crate) fn redact_for_operator<'a>(&self, line: &'a str) -> Cow<'a, str> {
        self.script_secrets.redact(line)
    }

    pub(crate) fn say(&self, line: String) {
        self.state.lock().said.push(line);
    }

    /// Wait until fewer calls are in flight than may be.
    pub(crate) async fn turn(&self) -> Result<SemaphorePermit<'_>> {
        self.turns.acquire().await.map_err(|_| Problem::internal("the run is over"))
    }

    pub(crate) fn begin(self: &Arc<Self>, tool: &str, place: Option<At>) -> Stepping {
        let mut state = self.state.lock();
        state.steps.push(Step {
            tool: tool.to_owned(),
            at: self.started.elapsed(),
            took: None,
            outcome: "",
            place: place.clone(),
            replayed: false,
        });
        state.shares.push(0.0);
        let index = Some(state.steps.len() - 1);
        Stepping { run: self.clone(), place, index, assumed: false, ended: false }
    }

    /// A call that is on record and no step: one of a host function.
    pub(crate) fn aside(self: &Arc<Self>, place: At) -> Stepping {
        let place = Some(place);
        Stepping { run: self.clone(), place, index: None, assumed: false, ended: false }
    }

    /// The script reports by itself, so its calls no longer do.
    pub(crate) fn reports_itself(&self) {
        self.state.lock().own = true;
    }

    /// One call is this far: how far the run is, and out of what.
    pub(crate) fn advance(&self, index: usize, share: f64) -> Option<(f64, f64)> {
        let mut state = self.state.lock();
        let known = state.shares.get_mut(index)?;
        *known = share.clamp(0.0, 1.0).max(*known);
        state.overall()
    }
}

impl RunBegan {
    /// A script that begins now, on behalf of nobody.
    pub fn of_script(script: &str, seed: [u8; 32]) -> RunBegan {
        RunBegan {
            run: Id::new(),
            call: None,
            caller: Caller::new("cli"),
            at: SystemTime::now(),
            script: script.to_owned(),
            timeout: None,
            seed,
            plan: false,
            follows: None,
            secrets: Secrecy::default(),
        }
    }
}

impl State {
    fn overall(&self) -> Option<(f64, f64)> {
        if self.own {
            return None;
        }
        let running: f64 = self.shares.iter().sum();
        Some((self.ended as f64 + running, self.steps.len() as f64))
    }
}

/// A call being made; one that is dropped was cancelled.
pub(crate) struct Stepping {
    run: Arc<Run>,
    place: Option<At>,
    /// Among the steps, if it is one.
    pub(crate) index: Option<usize>,
    /// Its answer is one that somebody gave.
    pub(crate) assumed: bool,
    ended: bool,
}

impl Stepping {
    /// Where in the script the call was made.
    pub(crate) fn place(&self) -> Option<String> {
        self.place.as_deref().map(str::to_owned)
    }

    /// Which answer of the run this one is, now that there is one.
    pub(crate) fn order(&self) -> Option<u64> {
        self.place.as_ref().map(|at| self.run.answers.order(at))
    }

    /// The step as it is on record, and how far the run is.
    pub(crate) fn end(mut self, outcome: &'static str) -> Option<(Step, Option<(f64, f64)>)> {
        self.order();
        self.finish(outcome);
        let state = self.run.state.lock();
        Some((state.steps.get(self.index?)?.clone(), state.overall()))
    }

    pub(crate) fn end_as_replayed(mut self, outcome: &'static str) {
        self.finish(outcome);
        let mut state = self.run.state.lock();
        if let Some(step) = self.index.and_then(|index| state.steps.get_mut(index)) {
            step.replayed = true;
        }
    }

    fn finish(&mut self, outcome: &'static str) {
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

impl Drop for Stepping {
    fn drop(&mut self) {
        self.finish("cancelled");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> Arc<Run> {
        Run::of(&RunBegan::of_script("", [0; 32]), &Limits::default())
    }

    #[test]
    fn the_progress_of_calls_is_one_that_only_grows() {
        let run = fresh();
        let begin = |tool: &str| run.begin(tool, None);
        let (a, b) = (begin("a"), begin("b"));
        let at = |stepping: &Stepping| stepping.index.unwrap();
        assert_eq!(run.advance(at(&a), 0.5), Some((0.5, 2.0)));
        assert_eq!(run.advance(at(&b), 0.25), Some((0.75, 2.0)));
        assert_eq!(run.advance(at(&a), 0.1), Some((0.75, 2.0)));
        assert_eq!(a.end("ok").unwrap().1, Some((1.25, 2.0)));
        let c = begin("c");
        drop(b);
        assert_eq!(c.end("denied").unwrap().1, Some((3.0, 3.0)));
        let outcomes: Vec<_> = run.steps().iter().map(|step| step.outcome).collect();
        assert_eq!(outcomes, ["ok", "cancelled", "denied"]);
    }

    #[test]
    fn a_script_that_reports_itself_is_not_talked_over() {
        let run = fresh();
        let call = run.begin("a", None);
        run.reports_itself();
        assert_eq!(run.advance(call.index.unwrap(), 0.5), None);
        assert_eq!(call.end("ok").unwrap().1, None);
    }
}
