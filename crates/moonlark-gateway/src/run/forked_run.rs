//! Runs that are forks: how they begin, and what a script's engine tells them of its calls.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::Run;
use super::answer_sequencer::CallSite;
use super::fork_replay::{ForkReplay, ForkReport, NewCallFate, NewCallPolicy, RunFork};
use super::recorded_secrets::RecordedSecrets;
use super::replay_log::{LostCallDecisions, ReplayLog};
use super::run_comparison;
use super::run_plan::RunMode;
use crate::journal::{RunBegan, RunRecord};
use moonlark_core::limits::CallLimits;
use moonlark_core::problem::Problem;
use moonlark_core::secret::{Secrets, secrets_with_literals};
use moonlark_core::tool::Tool;
use moonlark_core::value::Value;

impl Run {
    /// A run of another script, or the same, on the record of `source`.
    pub fn fork_from(
        began: &RunBegan,
        fork: &RunFork,
        source: &RunRecord,
        limits: &CallLimits,
    ) -> Arc<Run> {
        Arc::new(Self::build_fork(began, fork, source, ReplayLog::default(), limits))
    }

    /// The same to be looked at: it makes no call, and nothing of it goes on record.
    pub fn trace_of(
        began: &RunBegan,
        fork: &RunFork,
        source: &RunRecord,
        limits: &CallLimits,
    ) -> Arc<Run> {
        let fork = RunFork { new_calls: NewCallPolicy::Refuse, ..fork.clone() };
        let mut run = Self::build_fork(began, &fork, source, ReplayLog::default(), limits);
        run.is_unrecorded = true;
        run.recorded_time = source.began.timeout;
        let secrets = RecordedSecrets::from_record(source).into_values();
        run.script_secrets = secrets_with_literals(&began.script, secrets);
        Arc::new(run)
    }

    /// For one that is looked at: the time that the run on record had.
    pub fn recorded_time(&self) -> Option<Duration> {
        self.recorded_time
    }

    /// What is taken out of all that is shown of the run.
    pub fn shown_secrets(&self) -> &Secrets {
        &self.script_secrets
    }

    /// A fork that goes on.
    pub fn resume_fork(
        record: &RunRecord,
        fork: &RunFork,
        source: &RunRecord,
        decided: LostCallDecisions,
        limits: &CallLimits,
    ) -> Arc<Run> {
        let known = ReplayLog::from_record(record, decided);
        Arc::new(Self::build_fork(&record.began, fork, source, known, limits))
    }

    fn build_fork(
        began: &RunBegan,
        fork: &RunFork,
        source: &RunRecord,
        known: ReplayLog,
        limits: &CallLimits,
    ) -> Run {
        let collects = fork.new_calls.is_plan();
        let mode = if collects { RunMode::Plans(Mutex::default()) } else { RunMode::Anything };
        let mut run = Self::build_run(began, limits, known, mode);
        run.answers = run.answers.without_time_since();
        run.fork = Some(ForkReplay::new(fork, source, began));
        run
    }

    /// For a fork: what it has in common with the run that it is of.
    pub fn fork_report(&self) -> Option<ForkReport> {
        self.fork.as_ref().map(ForkReplay::report)
    }

    pub(crate) fn is_fork(&self) -> bool {
        self.fork.is_some()
    }

    /// For a fork: its script makes this call, and has made all before it.
    pub(crate) fn claim_recorded_call(&self, at: &CallSite, tool: &Tool, args: &Value) {
        if let Some(fork) = &self.fork {
            fork.claim_call(at, tool, args);
        }
    }

    /// Whoever makes the call may not make it: its recorded answer is kept from it.
    pub(crate) fn withhold_recorded_call(&self, at: &CallSite, problem: &Problem) {
        if let Some(fork) = self.fork.as_ref().filter(|fork| !fork.was_refused(at, problem)) {
            fork.note_fate(at, NewCallFate::Refused);
        }
    }

    /// The call was not begun after all.
    pub fn abandon_recorded_call(&self, at: &CallSite) {
        if let Some(fork) = &self.fork {
            fork.abandon_call(at);
        }
    }

    /// For a fork, when all of its script waits: let the next answer on record come;
    /// whether something has changed.
    pub fn release_recorded_answer(&self) -> bool {
        let Some(fork) = self.fork.as_ref().filter(|_| !self.answers.has_next()) else {
            return false;
        };
        match fork.release_first_answer() {
            Some((at, order)) => {
                self.answers.reserve_order(&at, order);
                true
            }
            None => fork.release_unanswered(),
        }
    }

    /// For a fork: how a call ended whose answer is on record and was not given yet.
    pub fn held_answer(&self, at: &CallSite) -> Option<std::result::Result<(), Problem>> {
        let answer = self.fork.as_ref()?.held_answer(at)?;
        Some(answer.as_ref().map(|_| ()).map_err(Clone::clone))
    }

    /// For a fork: what the call at this place was answered from the record, for people.
    pub fn shown_answer(&self, at: &str) -> Option<String> {
        let (_, call) = self.fork.as_ref()?.recorded_call(at)?;
        Some(run_comparison::shown_call_end(&call, &self.script_secrets))
    }
}
