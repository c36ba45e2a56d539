//! What stands before a call of an agent's script: the record of the run, if it
//! is resumed, and its plan.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::answers::At;
use super::known::{ASSUMED, Lost, Word, doubtful, named};
use super::plan::{Mode, Planned};
use super::{Run, Stepping};
use crate::call::Call;
use crate::content::Answer;
use crate::journal::on_record;
use crate::problem::Result;
use crate::tool::Tool;
use crate::value::Value;

/// What to do about a call.
pub(crate) enum Before {
    Make,
    /// Nothing: this is its answer, and it is on record or need not be.
    Answered(Result<Answer>),
    /// Nothing but to put it on record, with this answer.
    Given(Result<Answer>),
    /// The same, with an answer that somebody gave who says that it has happened.
    Assumed(Answer),
}

/// Whatever is not on record waits until all that is was handed to the script,
/// so that a script which goes another way is stopped before it calls anything.
pub(crate) async fn before(parent: &Call, tool: &Tool, args: &Value) -> Before {
    let Some((run, at)) = parent.spot() else { return Before::Make };
    let word = match run.known.look_up(at, tool, args) {
        Ok(word) => word,
        Err(problem) => return Before::Answered(Err(run.stop(problem))),
    };
    if let Word::Answered(answer) = word {
        run.note_replayed(at, tool, &answer);
        return Before::Answered(answer);
    }
    if run.is_replaying() {
        run.answers.live().await;
    }
    if let Some(problem) = run.stopped() {
        return Before::Answered(Err(problem.clone()));
    }
    if let Word::Doubtful = word {
        match run.known.decided(at) {
            Lost::Ask => {
                let call = named(&tool.name, at, args);
                return Before::Answered(Err(run.stop(doubtful(run.id, &[call]))));
            }
            Lost::Retry => {}
            Lost::AssumeDone => return Before::Assumed(Answer::Value(Value::Null)),
            Lost::AnsweredWith(answer) => return Before::Assumed(Answer::Value(answer)),
        }
    }
    by_plan(run, at, tool, args)
}

fn by_plan(run: &Arc<Run>, at: &At, tool: &Tool, args: &Value) -> Before {
    match &run.mode {
        Mode::Anything => Before::Make,
        Mode::Plans(_) if tool.effects.read_only => Before::Make,
        Mode::Plans(calls) => {
            let args = match tool.input.check(args.clone()) {
                Ok(args) => args,
                // As it would be refused.
                Err(problem) => return Before::Answered(Err(problem)),
            };
            let order = run.answers.order(at);
            let (at, tool) = (at.clone(), tool.name.clone());
            calls.lock().push(Planned { at, tool, args, order });
            Before::Answered(Ok(Answer::Value(Value::Null)))
        }
        Mode::Follows(plan) if tool.effects.read_only => {
            plan.answer(at, tool, args).map_or(Before::Make, Before::Given)
        }
        Mode::Follows(plan) => {
            let filled = tool.input.check(args.clone());
            match plan.allows(at, tool, filled.as_ref().unwrap_or(args)) {
                Ok(()) => Before::Make,
                Err(problem) => Before::Answered(Err(run.stop(problem))),
            }
        }
    }
}

/// A call that is not made and goes on record with its answer all the same.
pub(crate) async fn given(
    parent: &Call,
    tool: &Arc<Tool>,
    args: Value,
    answer: Result<Answer>,
    assumed: bool,
) -> Result<Answer> {
    let Some((run, at)) = parent.spot() else { return answer };
    let outcome = match &answer {
        Ok(_) if assumed => ASSUMED,
        Ok(_) => "ok",
        Err(problem) => problem.code.as_str(),
    };
    let mut stepping = run.begin(&tool.name, Some(at.clone()));
    stepping.assumed = assumed;
    run.assumed.fetch_or(assumed, Ordering::Relaxed);
    let call = parent.noted(tool);
    let answer = on_record(&call, tool, args, Some(&stepping), |_| async { answer }).await;
    stepping.order();
    stepping.end_as_replayed(outcome);
    answer
}

/// A call of a host function: on record, and no step of the run.
pub(crate) async fn aside<F>(
    parent: &Call,
    tool: &Arc<Tool>,
    args: Value,
    body: impl FnOnce(Value) -> F,
) -> Result<Answer>
where
    F: Future<Output = Result<Answer>>,
{
    let Some((run, at)) = parent.spot() else { return body(args).await };
    let (call, stepping) = (parent.noted(tool), run.aside(at.clone()));
    let answer = on_record(&call, tool, args, Some(&stepping), body).await;
    stepping.order();
    answer
}

impl Run {
    /// A step that was made before.
    fn note_replayed(self: &Arc<Self>, at: &At, tool: &Tool, answer: &Result<Answer>) {
        let outcome = answer.as_ref().map_or_else(|problem| problem.code.as_str(), |_| "ok");
        let stepping: Stepping = self.begin(&tool.name, Some(at.clone()));
        stepping.end_as_replayed(outcome);
    }
}
