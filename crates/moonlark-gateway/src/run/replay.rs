//! Replay of a run: what comes before a call of its script, from the record and the plan.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::answer_sequencer::CallSite;
use super::fork_replay::{
    ForkAnswer, ForkReplay, NewCallFate, NewCallPolicy, may_be_made_again, not_recorded_problem,
};
use super::recorded_host_call::check_host_grant;
use super::replay_log::{LostCallPolicy, ReplayLookup, describe_call, lost_answers_problem};
use super::run_plan::{PlannedCall, RunMode};
use super::{Run, StepGuard};
use crate::call::Call;
use crate::call_outcome::CallOutcome;
use crate::gateway::invocation;
use crate::journal::{record_call, record_refused_call};
use moonlark_core::content::ToolAnswer;
use moonlark_core::problem::Result;
use moonlark_core::tool::{SourceKind, Tool};
use moonlark_core::value::Value;
use parking_lot::Mutex;

/// What to do about a call.
pub(crate) enum ReplayDecision {
    Make,
    /// Nothing: this is its answer, and it is on record or need not be.
    Answered(Result<ToolAnswer>),
    /// Nothing but to put it on record, with these arguments and this answer.
    Given(Value, Result<ToolAnswer>),
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
        if let Some(fork) = &run.fork {
            fork.release_call(at);
        }
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
    match &run.fork {
        Some(fork) => decide_by_fork(parent, run, fork, at, tool, args).await,
        None => decide_by_plan(parent, run, at, tool, args),
    }
}

/// A call of a fork: answered from the record if it is there, and otherwise what was asked
/// for such calls.
async fn decide_by_fork(
    parent: &Call,
    run: &Arc<Run>,
    fork: &ForkReplay,
    at: &CallSite,
    tool: &Tool,
    args: &Value,
) -> ReplayDecision {
    fork.claim_call(at, tool, args);
    // What the caller may not call now, it is not told of either.
    if let Err(problem) = check_still_allowed(parent, tool, args)
        && !fork.was_refused(at, &problem)
    {
        fork.note_fate(at, NewCallFate::Refused);
        run.answers.reserve_order(at, 0);
        record_refused_call(parent, tool, args, &problem);
        return ReplayDecision::Answered(Err(problem));
    }
    fork.wait_until_released(at).await;
    if let Some(problem) = run.stop_problem() {
        return ReplayDecision::Answered(Err(problem.clone()));
    }
    let is_in_doubt = match fork.find_answer(at) {
        ForkAnswer::Recorded(args, answer) => return ReplayDecision::Given(args, answer),
        ForkAnswer::Unanswered(then) => !may_be_made_again(then, tool.effects),
        ForkAnswer::New => false,
    };
    if let Err(problem) = run.check_only_reads(tool) {
        fork.note_fate(at, NewCallFate::Refused);
        run.answers.reserve_order(at, 0);
        record_refused_call(parent, tool, args, &problem);
        return ReplayDecision::Answered(Err(problem));
    }
    let is_made = match fork.policy {
        NewCallPolicy::Make => true,
        NewCallPolicy::Read => tool.effects.read_only || stays_inside(tool),
        NewCallPolicy::Plan => stays_inside(tool),
        NewCallPolicy::Refuse => {
            fork.note_fate(at, NewCallFate::Refused);
            let call = describe_call(&tool.name, at, args);
            let problem = not_recorded_problem(fork.source(), &call);
            return ReplayDecision::Answered(Err(run.stop_with(problem)));
        }
    };
    if is_made && is_in_doubt {
        fork.note_fate(at, NewCallFate::Refused);
        let call = describe_call(&tool.name, at, args);
        let problem = lost_answers_problem(fork.source(), &[call]);
        return ReplayDecision::Answered(Err(run.stop_with(problem)));
    }
    if is_made {
        fork.note_fate(at, NewCallFate::Made);
        return ReplayDecision::Make;
    }
    match &run.mode {
        RunMode::Plans(calls) => {
            fork.note_fate(at, NewCallFate::Planned);
            plan_call(calls, at, tool, args, run.answers.reserve_order(at, 0))
        }
        _ => ReplayDecision::Make,
    }
}

/// Whether the caller may make this call now, whoever made it when it was recorded.
pub(crate) fn check_still_allowed(parent: &Call, tool: &Tool, args: &Value) -> Result<()> {
    if tool.source.kind == SourceKind::Host {
        check_host_grant(parent.grants(), tool, args)
    } else {
        invocation::check_may_call(parent, tool)
    }
}

/// Whether a host function reaches nothing but this run.
pub(super) fn stays_inside(tool: &Tool) -> bool {
    tool.source.kind == SourceKind::Host
        && matches!(tool.source.name.as_str(), "sleep" | "artifact")
}

fn plan_call(
    calls: &Mutex<Vec<PlannedCall>>,
    at: &CallSite,
    tool: &Tool,
    args: &Value,
    order: u64,
) -> ReplayDecision {
    let args = match tool.input.check_arguments(args.clone()) {
        Ok(args) => args,
        // As it would be refused.
        Err(problem) => return ReplayDecision::Answered(Err(problem)),
    };
    let (at, tool) = (at.clone(), tool.name.clone());
    calls.lock().push(PlannedCall { at, tool, args, order });
    ReplayDecision::Answered(Ok(ToolAnswer::Value(Value::Null)))
}

fn decide_by_plan(
    parent: &Call,
    run: &Arc<Run>,
    at: &CallSite,
    tool: &Tool,
    args: &Value,
) -> ReplayDecision {
    if let Err(problem) = run.check_only_reads(tool) {
        record_refused_call(parent, tool, args, &problem);
        return ReplayDecision::Answered(Err(problem));
    }
    match &run.mode {
        RunMode::Anything => ReplayDecision::Make,
        RunMode::Plans(_) if tool.effects.read_only => ReplayDecision::Make,
        RunMode::Plans(calls) => plan_call(calls, at, tool, args, run.answers.order_of(at)),
        RunMode::Follows(plan) => {
            if let Some(answer) = plan.recorded_answer(at, tool, args) {
                return ReplayDecision::Given(args.clone(), answer);
            }
            if tool.effects.read_only {
                return ReplayDecision::Make;
            }
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
    // A host function is on record, and no step of the run.
    let mut stepping = if tool.source.kind == SourceKind::Host && run.fork.is_some() {
        run.begin_host_call(at.clone())
    } else {
        run.begin_step(&tool.name, Some(at.clone()))
    };
    (stepping.assumed, stepping.given) = (assumed, !assumed);
    if run.is_unrecorded {
        stepping.end_as_replayed(outcome);
        return answer;
    }
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
