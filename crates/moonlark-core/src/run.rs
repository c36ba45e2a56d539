//! One execution of an agent's script: what it called, what it said, how far
//! it is.
//!
//! The gateway writes into it while calls begin and end; whoever executes the
//! script reads it when the script is done. Everything is bounded by the run's
//! limits on calls and log output.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::limits::Limits;
use crate::problem::{Problem, Result};
use crate::value::Value;

pub struct Run {
    started: Instant,
    /// Calls that the script makes at once; the others wait for their turn.
    turns: Semaphore,
    state: Mutex<State>,
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
}

impl Run {
    pub fn new(limits: &Limits) -> Arc<Run> {
        Arc::new(Run {
            started: Instant::now(),
            turns: Semaphore::new(limits.parallel.max(1) as usize),
            state: Mutex::default(),
        })
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

    pub(crate) fn say(&self, line: String) {
        self.state.lock().said.push(line);
    }

    /// Wait until fewer calls are in flight than may be.
    pub(crate) async fn turn(&self) -> Result<SemaphorePermit<'_>> {
        self.turns.acquire().await.map_err(|_| Problem::internal("the run is over"))
    }

    pub(crate) fn begin(self: &Arc<Self>, tool: &str) -> Stepping {
        let mut state = self.state.lock();
        state.steps.push(Step {
            tool: tool.to_owned(),
            at: self.started.elapsed(),
            took: None,
            outcome: "",
        });
        state.shares.push(0.0);
        Stepping { run: self.clone(), index: state.steps.len() - 1, ended: false }
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
    pub(crate) index: usize,
    ended: bool,
}

impl Stepping {
    /// The step as it is on record, and how far the run is.
    pub(crate) fn end(mut self, outcome: &'static str) -> (Step, Option<(f64, f64)>) {
        self.finish(outcome);
        let state = self.run.state.lock();
        (state.steps[self.index].clone(), state.overall())
    }

    fn finish(&mut self, outcome: &'static str) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let mut state = self.run.state.lock();
        let now = self.run.started.elapsed();
        let step = &mut state.steps[self.index];
        step.took = Some(now.saturating_sub(step.at));
        step.outcome = outcome;
        state.shares[self.index] = 0.0;
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

    #[test]
    fn the_progress_of_calls_is_one_that_only_grows() {
        let run = Run::new(&Limits::default());
        let (a, b) = (run.begin("a"), run.begin("b"));
        assert_eq!(run.advance(a.index, 0.5), Some((0.5, 2.0)));
        assert_eq!(run.advance(b.index, 0.25), Some((0.75, 2.0)));
        assert_eq!(run.advance(a.index, 0.1), Some((0.75, 2.0)));
        assert_eq!(a.end("ok").1, Some((1.25, 2.0)));
        let c = run.begin("c");
        drop(b);
        assert_eq!(c.end("denied").1, Some((3.0, 3.0)));
        let outcomes: Vec<_> = run.steps().iter().map(|step| step.outcome).collect();
        assert_eq!(outcomes, ["ok", "cancelled", "denied"]);
    }

    #[test]
    fn a_script_that_reports_itself_is_not_talked_over() {
        let run = Run::new(&Limits::default());
        let call = run.begin("a");
        run.reports_itself();
        assert_eq!(run.advance(call.index, 0.5), None);
        assert_eq!(call.end("ok").1, None);
    }
}
