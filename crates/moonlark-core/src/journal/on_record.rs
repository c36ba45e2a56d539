//! The gateway's step: a call goes on record before its body runs, and its end
//! after, however it ends.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::shown::text;
use super::{CallBegan, CallEnded, Entry, Id, Recorder, Secrecy};
use crate::call::Call;
use crate::content::Answer;
use crate::problem::{Problem, Result};
use crate::run::{ASSUMED, Stepping};
use crate::tool::{Effects, Tool};
use crate::value::Value;

/// How long an answer waits at most for its call to be written.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// Run `body` with the call on record. `step` is there if a run's script made
/// the call: then what it changes must not happen unrecorded, and the answer is
/// kept for replay.
pub(crate) async fn on_record<F>(
    call: &Call,
    tool: &Arc<Tool>,
    args: Value,
    step: Option<&Stepping>,
    body: impl FnOnce(Value) -> F,
) -> Result<Answer>
where
    F: Future<Output = Result<Answer>>,
{
    let Some((recorder, id)) = call.gateway().recorder().zip(call.id()) else {
        return body(args).await;
    };
    if let Some(room) = recorder.room() {
        room.await;
    }
    let began = CallBegan {
        place: step.and_then(Stepping::place),
        args: args.clone(),
        ..began(call, tool, id)
    };
    let began = Entry::CallBegan(began);
    if step.is_some() && is_effectful(tool.effects) {
        recorder.durable(began).await?;
    } else {
        recorder.record(began);
    }
    let secrets = secrets(call, tool);
    let mut open = Open { recorder, call: id, secrets, since: Instant::now(), step, ended: false };
    let result = body(args).await;
    open.end(&result);
    result
}

/// Put a call on record that was refused before it began.
pub(crate) fn refused(parent: &Call, tool: &Tool, args: &Value, problem: &Problem) {
    let Some(recorder) = parent.gateway().recorder() else { return };
    let id = Id::new();
    let spot = parent.spot();
    let place = spot.map(|(_, at)| at.to_string());
    let args = args.clone();
    let began = CallBegan { parent: parent.id(), place, args, ..began(parent, tool, id) };
    recorder.record(Entry::CallBegan(began));
    recorder.record(Entry::CallEnded(CallEnded {
        call: id,
        took: Duration::ZERO,
        outcome: problem.code.as_str(),
        message: Some(text(&problem.message, &secrets(parent, tool))),
        // A script that goes on must be refused again when it is resumed.
        answer: spot.map(|_| Err(problem.clone())),
        order: spot.map(|(run, at)| run.answered(at)),
    }));
}

/// Wait until what is on record of a call from outside survives the end of this
/// process, so that no answer leaves without it. A journal that cannot be written
/// holds nobody up: that is known elsewhere.
pub(crate) async fn written(call: &Call) {
    if let Some(recorder) = call.gateway().recorder() {
        let _ = tokio::time::timeout(WRITE_TIMEOUT, recorder.written()).await;
    }
}

/// Whether making the call twice may do something twice.
fn is_effectful(effects: Effects) -> bool {
    !effects.read_only && !effects.idempotent
}

fn began(call: &Call, tool: &Tool, id: Id) -> CallBegan {
    CallBegan {
        call: id,
        parent: call.parent(),
        run: call.run().map(|run| run.id()),
        place: None,
        at: SystemTime::now(),
        tool: tool.name.clone(),
        source: tool.source.name.clone(),
        effects: tool.effects,
        caller: call.caller().clone(),
        args: Value::Null,
        secrets: secrets(call, tool),
    }
}

fn secrets(call: &Call, tool: &Tool) -> Secrecy {
    Secrecy([tool.scope.clone(), call.caller_scope().clone()])
}

/// A call that is on record; one that is dropped was cancelled.
struct Open<'a> {
    recorder: &'a Arc<dyn Recorder>,
    call: Id,
    secrets: Secrecy,
    since: Instant,
    step: Option<&'a Stepping>,
    ended: bool,
}

impl Open<'_> {
    fn end(&mut self, result: &Result<Answer>) {
        let outcome = match result {
            Ok(_) if self.step.is_some_and(|step| step.assumed) => ASSUMED,
            Ok(_) => "ok",
            Err(problem) => problem.code.as_str(),
        };
        let message = result.as_ref().err().map(|problem| text(&problem.message, &self.secrets));
        self.finish(outcome, message, self.step.map(|_| result.clone()));
    }

    fn finish(
        &mut self,
        outcome: &'static str,
        message: Option<String>,
        answer: Option<Result<Answer>>,
    ) {
        self.ended = true;
        self.recorder.record(Entry::CallEnded(CallEnded {
            call: self.call,
            took: self.since.elapsed(),
            outcome,
            message,
            order: answer.as_ref().and(self.step).and_then(Stepping::order),
            answer,
        }));
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.finish("cancelled", None, None);
        }
    }
}
