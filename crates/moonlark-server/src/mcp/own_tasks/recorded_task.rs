//! Tasks that were runs of an earlier process, or of another one: from the journal.

use moonlark_core::value::Object;
use moonlark_core::{Problem, ProblemCode, Result, Value};
use moonlark_gateway::CallOutcome;
use moonlark_gateway::gateway::CallOptions;
use moonlark_gateway::journal::RunRecord;
use moonlark_gateway::{Caller, Gateway};
use serde_json::{Value as Json, json};

use super::super::resumable_call::ResumableCall;
use super::super::tool_result::AnswerForm;
use super::task_state::TaskOutcome;
use super::{OwnTask, TASK_KEPT_TIME, TASK_POLL_INTERVAL, run_of_task, timestamp};

/// The state of a task that this process does not know: its run has ended, or is gone on
/// with from now on. None if there is no such run of this caller.
pub(super) async fn find_recorded_task(
    gateway: &Gateway,
    caller: &Caller,
    id: &str,
    form: AnswerForm,
) -> Option<Json> {
    let run = run_of_task(id)?;
    let recorder = gateway.recorder()?;
    let record = recorder.load_run(run).await.ok()?;
    if record.began.caller.name() != caller.name() || record.began.plan {
        return None;
    }
    if let Some(outcome) = recorded_outcome(&record, form) {
        let mut said = describe_record(id, &record);
        outcome.describe(&mut said);
        return Some(said);
    }
    let created = record.began.at;
    let call = match resumed_call(gateway, caller, id).await {
        Ok(call) => call,
        Err(_) => return Some(working(id, &record)),
    };
    let task = OwnTask::start(id.to_owned(), caller.name(), created, call, form);
    Some(task.to_json())
}

/// How the run has ended. None if it can go on.
fn recorded_outcome(record: &RunRecord, form: AnswerForm) -> Option<TaskOutcome> {
    let ended = record.ended.as_ref()?;
    match (&ended.answer, ended.outcome) {
        (Some(answer), _) => Some(TaskOutcome::from_answer(answer.clone(), form)),
        (None, CallOutcome::Cancelled) => Some(TaskOutcome::Cancelled),
        // It was stopped, and waits for somebody to say how it goes on.
        (None, outcome) => {
            let message = ended.message.clone().unwrap_or_else(|| outcome.as_str().to_owned());
            let problem = Problem::new(ProblemCode::MayHaveHappened, message).with_hint(format!(
                "execute with resume = \"{}\" goes on with it",
                record.began.run
            ));
            Some(TaskOutcome::from_problem(&problem))
        }
    }
}

/// The call that goes on with an interrupted run.
async fn resumed_call(gateway: &Gateway, caller: &Caller, id: &str) -> Result<ResumableCall> {
    let run = run_of_task(id).ok_or_else(|| Problem::not_found("there is no such run"))?;
    let call = gateway.open_call_when_admitted(CallOptions::from(caller.clone())).await?;
    let mut args = Object::new();
    args.insert("script".to_owned(), "".into());
    args.insert("resume".to_owned(), run.to_string().into());
    Ok(ResumableCall::without_client(gateway.clone(), call, "execute", Value::Object(args)))
}

fn describe_record(id: &str, record: &RunRecord) -> Json {
    let ended = record.ended.as_ref().map(|ended| record.began.at + ended.took);
    json!({
        "taskId": id,
        "createdAt": timestamp(record.began.at),
        "lastUpdatedAt": timestamp(ended.unwrap_or(record.began.at)),
        "ttlMs": TASK_KEPT_TIME.as_millis() as u64,
        "pollIntervalMs": TASK_POLL_INTERVAL.as_millis() as u64,
    })
}

fn working(id: &str, record: &RunRecord) -> Json {
    let mut said = describe_record(id, record);
    said["status"] = "working".into();
    said
}
