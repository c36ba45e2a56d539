//! The journal step of the gateway: a call goes on record before its body runs, and its
//! end after, however it ends.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::redaction::redact_text;
use super::{
    CallBegan, CallEnded, JournalEntry, JournalRecorder, RecordId, RedactionScopes, UpcomingCall,
    caller_key,
};
use crate::call::Call;
use crate::call_outcome::CallOutcome;
use crate::run::StepGuard;
use moonlark_core::content::ToolAnswer;
use moonlark_core::problem::{Problem, Result};
use moonlark_core::tool::{CallEffects, Tool};
use moonlark_core::value::Value;

/// How long an answer waits at most for its call to be written.
const JOURNAL_WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Run `body` with the call on record. `step` is there if a run's script made
/// the call: then what it changes must not happen unrecorded, and the answer is
/// kept for replay.
pub(crate) async fn record_call<F>(
    call: &Call,
    tool: &Arc<Tool>,
    args: Value,
    step: Option<&StepGuard>,
    body: impl FnOnce(Value) -> F,
) -> Result<ToolAnswer>
where
    F: Future<Output = Result<ToolAnswer>>,
{
    let Some((recorder, id)) = call.gateway().recorder().zip(call.id()) else {
        return body(args).await;
    };
    let place = step.and_then(StepGuard::place);
    let is_kept_exactly = place.is_some();
    let upcoming = UpcomingCall {
        caller: call.caller(),
        run: call.run().map(|run| run.id()),
        tool: &tool.name,
        exact_args: is_kept_exactly.then_some(&args),
    };
    match recorder.prepare_call(upcoming) {
        Ok(None) => {}
        Ok(Some(room)) => room.await,
        Err(problem) => return Err(stop_run(call, problem)),
    }
    let began = CallBegan { place, args: args.clone(), ..new_call_began(call, tool, id) };
    let began = JournalEntry::CallBegan(began);
    let secrets = redaction_scopes(call, tool);
    let since = Instant::now();
    let mut open =
        RecordedCall { recorder, call, id, secrets, since, step, made: false, ended: false };
    if step.is_some_and(|step| !step.given) && is_effectful(tool.effects) {
        if let Err(problem) = recorder.record_durably(began).await {
            // It may be on record all the same, and was not made. A script that goes on
            // must be refused again when it is resumed.
            let refused = Err(problem);
            open.end_with_result(&refused);
            return refused;
        }
    } else {
        recorder.record_entry(began);
    }
    (open.since, open.made) = (Instant::now(), true);
    let mut result = body(args).await;
    if is_kept_exactly
        && let Err(problem) =
            recorder.prepare_answer(call.run().map(|run| run.id()), &tool.name, &result)
    {
        result = Err(problem);
    }
    // It goes on by itself: its call is made again when the run is resumed.
    let is_stopped = || call.run().is_some_and(|run| run.stop_problem().is_some());
    if !(tool.continues_itself && step.is_some() && is_stopped()) {
        open.end_with_result(&result);
    }
    result
}

/// The call is not on record, so a script that went on could not be resumed: it would make
/// the call then.
fn stop_run(call: &Call, problem: Problem) -> Problem {
    match call.run() {
        Some(run) => run.stop_with(problem),
        None => problem,
    }
}

/// Put a call on record that was refused before it began.
pub(crate) fn record_refused_call(parent: &Call, tool: &Tool, args: &Value, problem: &Problem) {
    let Some(recorder) = parent.gateway().recorder() else { return };
    let id = RecordId::new();
    let spot = parent.call_site();
    let place = spot.map(|(_, at)| at.to_string());
    if let Some((run, _)) = spot {
        let upcoming = UpcomingCall {
            caller: parent.caller(),
            run: Some(run.id()),
            tool: &tool.name,
            exact_args: Some(args),
        };
        // Nothing waits here, so only whether there may be more of it matters.
        if let Err(problem) = recorder.prepare_call(upcoming) {
            run.stop_with(problem);
            return;
        }
    }
    let args = args.clone();
    let began = CallBegan { parent: parent.id(), place, args, ..new_call_began(parent, tool, id) };
    let ended = CallEnded {
        call: id,
        caller: caller_key(parent.caller()),
        took: Duration::ZERO,
        outcome: problem.code.into(),
        message: Some(redact_text(&problem.message, &redaction_scopes(parent, tool))),
        // A script that goes on must be refused again when it is resumed.
        answer: spot.map(|_| Err(problem.clone())),
        order: spot.map(|(run, at)| run.answer_order(at)),
    };
    recorder.record_refused_call(began, ended);
}

/// Wait until what is on record of a call from outside survives the end of this
/// process, so that no answer leaves without it. A journal that cannot be written
/// holds nobody up: that is known elsewhere.
pub(crate) async fn wait_until_written(call: &Call) {
    if let Some(recorder) = call.gateway().recorder() {
        let _ =
            tokio::time::timeout(JOURNAL_WRITE_TIMEOUT, recorder.flush_caller(call.caller())).await;
    }
}

/// Whether making the call twice may do something twice.
fn is_effectful(effects: CallEffects) -> bool {
    !effects.read_only && !effects.idempotent
}

fn new_call_began(call: &Call, tool: &Tool, id: RecordId) -> CallBegan {
    CallBegan {
        call: id,
        parent: call.parent_id(),
        run: call.run().map(|run| run.id()),
        place: None,
        at: SystemTime::now(),
        tool: tool.name.clone(),
        source: tool.source.name.clone(),
        effects: tool.effects_on_record(),
        caller: call.caller().clone(),
        args: Value::Null,
        secrets: redaction_scopes(call, tool),
    }
}

fn redaction_scopes(call: &Call, tool: &Tool) -> RedactionScopes {
    RedactionScopes([tool.scope.clone(), call.caller_scope().clone()])
}

/// A call that is on record, or is being put there; one that is dropped was cancelled.
struct RecordedCall<'a> {
    recorder: &'a Arc<dyn JournalRecorder>,
    call: &'a Call,
    id: RecordId,
    secrets: RedactionScopes,
    since: Instant,
    step: Option<&'a StepGuard>,
    /// Whether its body was begun.
    made: bool,
    ended: bool,
}

impl RecordedCall<'_> {
    fn end_with_result(&mut self, result: &Result<ToolAnswer>) {
        let outcome = match result {
            Ok(_) if self.step.is_some_and(|step| step.assumed) => CallOutcome::Assumed,
            result => CallOutcome::from_result(result),
        };
        let message =
            result.as_ref().err().map(|problem| redact_text(&problem.message, &self.secrets));
        self.record_end(outcome, message, self.step.map(|_| result.clone()));
    }

    fn record_end(
        &mut self,
        outcome: CallOutcome,
        message: Option<String>,
        answer: Option<Result<ToolAnswer>>,
    ) {
        self.ended = true;
        let order = answer.as_ref().and(self.step).and_then(StepGuard::answer_order);
        // A script that has ended was not told of it.
        let answer = answer.filter(|_| order.is_some());
        self.recorder.record_entry(JournalEntry::CallEnded(CallEnded {
            call: self.id,
            caller: caller_key(self.call.caller()),
            took: self.since.elapsed(),
            outcome,
            message,
            order,
            answer,
        }));
    }
}

impl Drop for RecordedCall<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let outcome = if self.made { CallOutcome::Cancelled } else { CallOutcome::Withdrawn };
            self.record_end(outcome, None, None);
        }
    }
}
