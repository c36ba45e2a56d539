//! Replay of a run: what comes before a call of its script, from the record and the plan.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::answer_sequencer::CallSite;
use super::replay_log::{LostCallPolicy, ReplayLookup, describe_call, lost_answers_problem};
use super::run_plan::{PlannedCall, RunMode};
use super::{Run, StepGuard};
use crate::call::Call;
use crate::call_outcome::CallOutcome;
use crate::journal::record_call;
use moonlark_core::content::ToolAnswer;
use moonlark_core::problem::Result;
use moonlark_core::tool::Tool;
use moonlark_core::value::Value;

/// What to do about a call.
pub(crate) enum ReplayDecision {
    Make,
    /// Nothing: this is its answer, and it is on record or need not be.
    Answered(Result<ToolAnswer>),
    /// Nothing but to put it on record, with this answer.
    Given(Result<ToolAnswer>),
    /// The same, with an answer that somebody gave who says that it has happened.
    Assumed(ToolAnswer),
}

/// Whatever is not on record waits until all that is was handed to the script,
/// so that a script which goes another way is stopped before it calls anything.
pub(crate) async fn decide_replay(parent: &Call, tool: &Tool, args: &Value) -> ReplayDecision {
    let Some((run, at)) = parent.call_site() else { return ReplayDecision::Make };
    let word = match run.known.look_up_call(at, tool, args) {
        Ok(word) => word,
        Err(problem) => return ReplayDecision::Answered(Err(run.stop_with(problem))),
    };
    if let ReplayLookup::Answered(answer) = word {
        run.add_replayed_step(at, tool, &answer);
        return ReplayDecision::Answered(answer);
    }
    if run.is_replaying() {
        run.answers.wait_until_live().await;
    }
    if let Some(problem) = run.stop_problem() {
        return ReplayDecision::Answered(Err(problem.clone()));
    }
    if let ReplayLookup::Doubtful = word {
        match run.known.lost_call_policy(at) {
            LostCallPolicy::Ask => {
                let call = describe_call(&tool.name, at, args);
                return ReplayDecision::Answered(Err(
                    run.stop_with(lost_answers_problem(run.id, &[call]))
                ));
            }
            LostCallPolicy::Retry => {}
            LostCallPolicy::AssumeDone => {
                return ReplayDecision::Assumed(ToolAnswer::Value(Value::Null));
            }
            LostCallPolicy::AnsweredWith(answer) => {
                return ReplayDecision::Assumed(ToolAnswer::Value(answer));
            }
        }
    }
    decide_by_plan(run, at, tool, args)
}

fn decide_by_plan(run: &Arc<Run>, at: &CallSite, tool: &Tool, args: &Value) -> ReplayDecision {
    match &run.mode {
        RunMode::Anything => ReplayDecision::Make,
        RunMode::Plans(_) if tool.effects.read_only => ReplayDecision::Make,
        RunMode::Plans(calls) => {
            let args = match tool.input.check_arguments(args.clone()) {
                Ok(args) => args,
                // As it would be refused.
                Err(problem) => return ReplayDecision::Answered(Err(problem)),
            };
            let order = run.answers.order_of(at);
            let (at, tool) = (at.clone(), tool.name.clone());
            calls.lock().push(PlannedCall { at, tool, args, order });
            ReplayDecision::Answered(Ok(ToolAnswer::Value(Value::Null)))
        }
        RunMode::Follows(plan) if tool.effects.read_only => {
            plan.recorded_answer(at, tool, args).map_or(ReplayDecision::Make, ReplayDecision::Given)
        }
        RunMode::Follows(plan) => {
            let filled = tool.input.check_arguments(args.clone());
            match plan.check_call(at, tool, filled.as_ref().unwrap_or(args)) {
                Ok(()) => ReplayDecision::Make,
                Err(problem) => ReplayDecision::Answered(Err(run.stop_with(problem))),
            }
        }
    }
}

/// A call that is not made and goes on record with its answer all the same.
pub(crate) async fn record_given_answer(
    parent: &Call,
    tool: &Arc<Tool>,
    args: Value,
    answer: Result<ToolAnswer>,
    assumed: bool,
) -> Result<ToolAnswer> {
    let Some((run, at)) = parent.call_site() else { return answer };
    let outcome = match &answer {
        Ok(_) if assumed => CallOutcome::Assumed,
        answer => CallOutcome::from_result(answer),
    };
    let mut stepping = run.begin_step(&tool.name, Some(at.clone()));
    stepping.assumed = assumed;
    run.assumed.fetch_or(assumed, Ordering::Relaxed);
    let call = parent.as_host_call(tool);
    let answer = record_call(&call, tool, args, Some(&stepping), |_| async { answer }).await;
    stepping.answer_order();
    stepping.end_as_replayed(outcome);
    answer
}

/// A call of a host function: on record, and no step of the run.
pub(crate) async fn record_host_call<F>(
    parent: &Call,
    tool: &Arc<Tool>,
    args: Value,
    body: impl FnOnce(Value) -> F,
) -> Result<ToolAnswer>
where
    F: Future<Output = Result<ToolAnswer>>,
{
    let Some((run, at)) = parent.call_site() else { return body(args).await };
    let (call, stepping) = (parent.as_host_call(tool), run.begin_host_call(at.clone()));
    let answer = record_call(&call, tool, args, Some(&stepping), body).await;
    stepping.answer_order();
    answer
}

impl Run {
    /// A step that was made before.
    fn add_replayed_step(
        self: &Arc<Self>,
        at: &CallSite,
        tool: &Tool,
        answer: &Result<ToolAnswer>,
    ) {
        let stepping: StepGuard = self.begin_step(&tool.name, Some(at.clone()));
        stepping.end_as_replayed(CallOutcome::from_result(answer));
    }
}
