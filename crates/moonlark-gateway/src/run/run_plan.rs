//! Plans, two-phase runs: what a script would change, collected; and a run that may
//! change just that.

use std::collections::HashMap;
use std::time::SystemTime;

use parking_lot::Mutex;

use super::answer_sequencer::CallSite;
use super::replay_log::diverged_problem;
use crate::journal::{RunRecord, are_same_values};
use moonlark_core::content::ToolAnswer;
use moonlark_core::problem::{Problem, Result};
use moonlark_core::tool::Tool;
use moonlark_core::value::Value;

/// A call that a plan has collected.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedCall {
    pub at: CallSite,
    pub tool: String,
    pub args: Value,
    /// Which answer of the run it was.
    pub order: u64,
}

/// What a run may change.
#[derive(Default)]
pub(super) enum RunMode {
    #[default]
    Anything,
    /// Nothing: it is collected.
    Plans(Mutex<Vec<PlannedCall>>),
    Follows(RunPlan),
}

/// What another run has collected, and what it was told on the way.
#[derive(Debug, Default)]
pub struct RunPlan {
    /// When the script's clock began.
    pub(super) began: Option<SystemTime>,
    calls: HashMap<CallSite, PlannedCall>,
    answers: HashMap<CallSite, PlanAnswer>,
}

#[derive(Debug)]
struct PlanAnswer {
    tool: String,
    args: Value,
    answer: Result<ToolAnswer>,
    order: u64,
}

impl RunPlan {
    /// The plan of a run, from its record and the calls it has collected.
    pub fn from_record(record: &RunRecord, calls: Vec<PlannedCall>) -> RunPlan {
        let answers = record.calls.iter().filter_map(|call| {
            let ended = call.ended.as_ref()?;
            let told = PlanAnswer {
                tool: call.began.tool.clone(),
                args: call.began.args.clone(),
                answer: ended.answer.clone()?,
                order: ended.order?,
            };
            Some((CallSite::from(call.began.place.as_deref()?), told))
        });
        RunPlan {
            began: Some(record.began.clock_start()),
            answers: answers.collect(),
            calls: calls.into_iter().map(|call| (call.at.clone(), call)).collect(),
        }
    }

    /// In which order answers were given when the plan was made.
    pub(super) fn answer_orders(&self) -> Vec<(u64, CallSite)> {
        let told = self.answers.iter().map(|(at, told)| (told.order, at.clone()));
        let planned = self.calls.iter().map(|(at, call)| (call.order, at.clone()));
        told.chain(planned).collect()
    }

    /// The Problem of a script that does not come to a place of the plan.
    pub(super) fn missing_site_problem(&self, at: &str) -> Problem {
        let told = self.answers.get(at).map(|told| &told.tool);
        let tool = self.calls.get(at).map(|call| &call.tool).or(told);
        let tool = tool.map_or("a tool", String::as_str);
        plan_diverged_problem(format!(
            "the script does not come to {at}, where it called {tool} for the plan"
        ))
    }

    /// What a call was answered when the plan was made: one that only reads, or that the
    /// plan was given from the record of another run.
    pub(super) fn recorded_answer(
        &self,
        at: &str,
        tool: &Tool,
        args: &Value,
    ) -> Option<Result<ToolAnswer>> {
        let told = self.answers.get(at).filter(|told| told.tool == tool.name)?;
        let filled = || tool.input.check_arguments(args.clone()).ok();
        let is_same = are_same_values(&told.args, args)
            || filled().is_some_and(|it| are_same_values(&told.args, &it));
        is_same.then(|| told.answer.clone())
    }

    /// Whether a call that changes something is in the plan, as it is.
    pub(super) fn check_call(&self, at: &str, tool: &Tool, args: &Value) -> Result<()> {
        let Some(planned) = self.calls.get(at) else {
            return Err(plan_diverged_problem(format!("{} at {at} is not in the plan", tool.name)));
        };
        if planned.tool != tool.name {
            let message = format!(
                "at {at} the plan has {}, and the script calls {}",
                planned.tool, tool.name
            );
            return Err(plan_diverged_problem(message));
        }
        if !are_same_values(&planned.args, args) {
            let message = format!("{} at {at} has other arguments than in the plan", tool.name);
            return Err(plan_diverged_problem(message));
        }
        Ok(())
    }
}

fn plan_diverged_problem(message: String) -> Problem {
    diverged_problem(message).with_hint(
        "nothing was called that is not in the plan. What was done before is in the journal: make a \
         new plan for the rest",
    )
}
