//! Tasks that were runs of an earlier process, or are of another one: from the journal.

use std::sync::Arc;

use moonlark_core::content::ToolAnswer;
use moonlark_core::value::Object;
use moonlark_core::{Problem, ProblemCode, Result, Value};
use moonlark_gateway::journal::{RunCarrier, RunRecord};
use moonlark_gateway::{CallOutcome, Caller};
use rmcp::RoleServer;
use rmcp::service::RequestContext;
use serde_json::{Value as Json, json};

use super::super::McpServer;
use super::super::call_notifications::RequestedNotifications;
use super::super::mcp_caller::CallContinuation;
use super::super::resumable_call::{McpCallee, ResumableCall, begin_call};
use super::super::tool_result::AnswerForm;
use super::task_state::TaskOutcome;
use super::{OwnTask, TASK_KEPT_TIME, TASK_POLL_INTERVAL, run_of_task, timestamp};

/// A task that this process did not know.
pub(super) enum RecordedTask {
    /// It is over, as `tasks/get` says.
    Ended(Json),
    /// It is gone on with, here and from now on.
    Resumed(Arc<OwnTask>),
    /// It goes on where no request about the task gets at it.
    Elsewhere { state: Json, why: Problem },
}

impl RecordedTask {
    pub(super) fn into_json(self) -> Json {
        match self {
            RecordedTask::Ended(state) | RecordedTask::Elsewhere { state, .. } => state,
            RecordedTask::Resumed(task) => task.to_json(),
        }
    }
}

/// How the task stands. None if there is no such run of this caller.
pub(super) async fn find_recorded_task(
    server: &McpServer,
    caller: &Caller,
    id: &str,
    context: &RequestContext<RoleServer>,
) -> Option<RecordedTask> {
    let run = run_of_task(id)?;
    let recorder = server.gateway.recorder()?;
    // First, so that what ends meanwhile is seen to have ended.
    let carrier = recorder.find_run_carrier(run).await;
    let record = recorder.load_run(run).await.ok()?;
    if record.began.caller.name() != caller.name() {
        return None;
    }
    let form = AnswerForm::for_request(context);
    if let Some(outcome) = recorded_outcome(&record, form) {
        return Some(RecordedTask::Ended(ended(id, &record, &outcome)));
    }
    let why = match carrier {
        Ok(None) if record.began.plan => {
            let outcome = TaskOutcome::from_answer(Err(unfinished_plan_problem(&record)), form);
            return Some(RecordedTask::Ended(ended(id, &record, &outcome)));
        }
        Ok(None) => match resumed_call(server, caller, &record, context).await {
            Ok(call) => {
                let (id, created) = (id.to_owned(), record.began.at);
                let started =
                    OwnTask::start(&server.gateway, id, caller.name(), created, (call, form));
                return Some(RecordedTask::Resumed(started));
            }
            Err(problem) => problem,
        },
        Ok(Some(carrier)) => carried_problem(&record, carrier),
        Err(problem) => problem,
    };
    Some(RecordedTask::Elsewhere { state: working(id, &record), why })
}

/// How the run has ended. None if it can go on.
fn recorded_outcome(record: &RunRecord, form: AnswerForm) -> Option<TaskOutcome> {
    let ended = record.ended.as_ref()?;
    let answer = match (&ended.answer, ended.outcome) {
        (Some(Ok(ToolAnswer::Value(Value::Array(calls)))), _) if record.began.plan => {
            Ok(ToolAnswer::Value(shown_plan(record, calls)))
        }
        (Some(answer), _) => answer.clone(),
        (None, CallOutcome::Cancelled) => return Some(TaskOutcome::Cancelled),
        // It was stopped, and waits for somebody to say how it goes on.
        (None, outcome) => {
            let code = match outcome {
                CallOutcome::Failed(code) => code,
                _ => ProblemCode::MayHaveHappened,
            };
            let message = ended.message.clone().unwrap_or_else(|| outcome.as_str().to_owned());
            Err(Problem::new(code, message).with_hint(format!(
                "execute with resume = \"{}\" goes on with it",
                record.began.run
            )))
        }
    };
    Some(TaskOutcome::from_answer(answer, form))
}

/// A plan as it was answered, as far as it is on record.
fn shown_plan(record: &RunRecord, calls: &[Value]) -> Value {
    let run = record.began.run.to_string();
    let without_order = |call: &Value| {
        let mut call = call.clone();
        if let Value::Object(fields) = &mut call {
            fields.shift_remove("order");
        }
        call
    };
    let how = format!("nothing was changed; execute with resume = \"{run}\" does just this, once");
    Value::from_fields([
        ("plan", run.into()),
        ("calls", Value::Array(calls.iter().map(without_order).collect())),
        ("how", how.into()),
    ])
}

/// A plan is made at one go: what was interrupted cannot go on.
fn unfinished_plan_problem(record: &RunRecord) -> Problem {
    let run = record.began.run;
    let message =
        format!("the process ended before plan {run} was made: it has to be planned anew");
    Problem::new(ProblemCode::Cancelled, message).with_hint(match &record.began.fork {
        Some(fork) => {
            format!("nothing was changed; fork again: execute with fork = \"{}\"", fork.source)
        }
        None => "nothing was changed; execute the script again with plan = true".to_owned(),
    })
}

/// Why a task is not answered or cancelled here.
fn carried_problem(record: &RunRecord, carrier: RunCarrier) -> Problem {
    let run = record.began.run;
    if let Some(paused) = &record.paused {
        let approval = paused.approval;
        let message = format!("run {run} waits for a decision, approval {approval}");
        return Problem::bad_request(message).with_hint(format!(
            "the operator of this server decides: `moonlark approvals deny {approval}` keeps the call from being made"
        ));
    }
    let message = match carrier {
        RunCarrier::OtherProcess => {
            format!(
                "run {run} goes on in another process, where its task is answered and cancelled"
            )
        }
        RunCarrier::ThisProcess => format!("run {run} goes on apart from its task"),
    };
    Problem::bad_request(message)
        .with_hint(format!("`moonlark runs {run} --follow` shows how far it is"))
}

/// The call that goes on with an interrupted run. It can ask the client that asks for the task.
async fn resumed_call(
    server: &McpServer,
    caller: &Caller,
    record: &RunRecord,
    context: &RequestContext<RoleServer>,
) -> Result<ResumableCall> {
    let mut args = Object::new();
    args.insert("script".to_owned(), "".into());
    args.insert("resume".to_owned(), record.began.run.to_string().into());
    let called = (McpCallee::Named("execute".to_owned()), Value::Object(args));
    let wants = RequestedNotifications { progress: None, level: None };
    let (sequel, context) = (CallContinuation::default(), Arc::new(context.clone()));
    let (gateway, session) = (&server.gateway, &server.session);
    begin_call(gateway, called, sequel, &context, caller.clone(), &wants, session).await
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

fn ended(id: &str, record: &RunRecord, outcome: &TaskOutcome) -> Json {
    let mut said = describe_record(id, record);
    outcome.describe(&mut said);
    said
}

fn working(id: &str, record: &RunRecord) -> Json {
    let mut said = describe_record(id, record);
    said["status"] = "working".into();
    if let Some(paused) = &record.paused {
        let message = format!("the run waits for a decision, approval {}", paused.approval);
        said["statusMessage"] = message.into();
    }
    said
}
