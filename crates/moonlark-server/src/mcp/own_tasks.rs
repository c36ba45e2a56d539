//! Calls as tasks of MCP, for clients that declare `io.modelcontextprotocol/tasks`.
//!
//! A call that is not done after a moment becomes a task: its client is told an id and asks
//! for the state, answers questions and cancels by it. The call goes on without its client.
//! That of a script has the id of its run, so whichever process has the journal finds it
//! again: it has its answer, or goes on with what was interrupted. Any other call ends with
//! the process. Tasks of upstream servers are theirs, and not known here.
//!
//! A run that waits for a decision goes on apart from the call that began it, and one may go
//! on in another process: of those, the journal says how they stand.

mod recorded_task;
mod task_requests;
mod task_state;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use moonlark_child::spawn_owned;
use moonlark_core::content::ToolAnswer;
use moonlark_core::record_id::RecordId;
use moonlark_core::{ProblemCode, Result, Value};
use moonlark_gateway::{Caller, Gateway};
use parking_lot::Mutex;
use rmcp::RoleServer;
use rmcp::model::{ClientCapabilities, ErrorData, InputResponses};
use rmcp::service::RequestContext;
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::resumable_call::ResumableCall;
use super::tool_result::AnswerForm;
use task_state::{OwnTaskState, TaskOutcome};

/// How long a call may take before it becomes a task.
const TASK_AFTER: Duration = Duration::from_millis(400);
/// How long a task is kept after it was made, and how often clients should ask.
const TASK_KEPT_TIME: Duration = Duration::from_secs(60 * 60);
const TASK_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Tasks of one caller, and of all. A call that would be one more is none.
const MAX_TASKS_PER_CALLER: usize = 200;
const MAX_TASKS: usize = 2000;
/// What the results of all tasks take. Those of runs are on record as well.
const MAX_TASK_RESULT_BYTES: usize = 64 * 1024 * 1024;

/// How the ids of tasks begin that are runs, and of the others.
const RUN_TASK_PREFIX: &str = "run-";
const CALL_TASK_PREFIX: &str = "call-";

static OWN_TASKS: LazyLock<Mutex<HashMap<String, Arc<OwnTask>>>> = LazyLock::new(Mutex::default);

/// One task, and how it is reached while it goes on.
struct OwnTask {
    id: String,
    /// The only caller it exists for.
    owner: String,
    created: SystemTime,
    state: Mutex<OwnTaskState>,
    cancel: CancellationToken,
    responses: mpsc::UnboundedSender<InputResponses>,
    driver: Mutex<Option<AbortOnDropHandle<()>>>,
}

/// Whether the client of a request knows tasks.
pub(super) fn knows_tasks(context: &RequestContext<RoleServer>) -> bool {
    context.client_capabilities().is_some_and(|said| said.supports_tasks())
}

/// Refuse a request about tasks of a client that did not say that it knows them.
pub(super) fn check_knows_tasks(context: &RequestContext<RoleServer>) -> Result<(), ErrorData> {
    if knows_tasks(context) {
        return Ok(());
    }
    let needed = ClientCapabilities::builder().enable_tasks().build();
    Err(ErrorData::missing_required_client_capability(needed))
}

/// Whether an id is one of ours.
pub(super) fn is_own_task(id: &str) -> bool {
    id.starts_with(RUN_TASK_PREFIX) || id.starts_with(CALL_TASK_PREFIX)
}

/// Let a call go on as a task: what its client is answered. The call itself, if there are
/// too many tasks.
pub(super) async fn begin_task(
    gateway: &Gateway,
    caller: &Caller,
    call: ResumableCall,
    form: AnswerForm,
) -> Result<ToolAnswer, Box<ResumableCall>> {
    let run = call.first_run();
    let id = match run {
        Some(run) => format!("{RUN_TASK_PREFIX}{run}"),
        None => format!("{CALL_TASK_PREFIX}{}", uuid::Uuid::new_v4().simple()),
    };
    if !has_room(caller.name()) {
        return Err(Box::new(call));
    }
    // Whoever is told the id finds the task, whatever happens to this process.
    if let (Some(_), Some(recorder)) = (run, gateway.recorder()) {
        recorder.flush_caller(caller).await;
    }
    let task = OwnTask::start(gateway, id, caller.name(), SystemTime::now(), (call, form));
    let mut answer = task.to_json();
    answer["resultType"] = "task".into();
    match Value::from_json(answer) {
        Ok(Value::Object(fields)) => Ok(ToolAnswer::Raw(fields)),
        _ => Ok(ToolAnswer::Raw(moonlark_core::value::Object::new())),
    }
}

/// The task of this caller; none if it is unknown here.
fn find_task(id: &str, caller: &Caller) -> Option<Arc<OwnTask>> {
    remove_expired(&mut OWN_TASKS.lock());
    OWN_TASKS.lock().get(id).filter(|task| task.owner == caller.name()).cloned()
}

fn unknown_task_error(id: &str) -> ErrorData {
    let id = moonlark_core::value::shorten_text(id);
    ErrorData::invalid_params(format!("there is no task {id}"), None)
}

fn has_room(caller: &str) -> bool {
    let mut tasks = OWN_TASKS.lock();
    remove_expired(&mut tasks);
    let own = tasks.values().filter(|task| task.owner == caller).count();
    own < MAX_TASKS_PER_CALLER && tasks.len() < MAX_TASKS
}

/// Tasks that have ended and were kept for long enough.
fn remove_expired(tasks: &mut HashMap<String, Arc<OwnTask>>) {
    tasks.retain(|_, task| {
        let is_old = task.created.elapsed().is_ok_and(|age| age > TASK_KEPT_TIME);
        !(is_old && task.state.lock().has_ended())
    });
}

impl OwnTask {
    /// Let a call go on by itself, known as `id`. If that goes on already, it is left at that.
    fn start(
        gateway: &Gateway,
        id: String,
        owner: &str,
        created: SystemTime,
        (call, form): (ResumableCall, AnswerForm),
    ) -> Arc<OwnTask> {
        let (responses, inbox) = mpsc::unbounded_channel();
        let task = Arc::new(OwnTask {
            id: id.clone(),
            owner: owner.to_owned(),
            created,
            state: Mutex::new(OwnTaskState::new()),
            cancel: CancellationToken::new(),
            responses,
            driver: Mutex::default(),
        });
        match OWN_TASKS.lock().entry(id) {
            Entry::Occupied(known) => return known.get().clone(),
            Entry::Vacant(free) => free.insert(task.clone()),
        };
        let driver = spawn_owned(drive_task(task.clone(), gateway.clone(), call, inbox, form));
        *task.driver.lock() = Some(driver);
        task
    }

    /// What `tasks/get` answers, but for the kind of the result.
    fn to_json(&self) -> Json {
        let mut said = json!({
            "taskId": self.id,
            "createdAt": timestamp(self.created),
            "ttlMs": TASK_KEPT_TIME.as_millis() as u64,
            "pollIntervalMs": TASK_POLL_INTERVAL.as_millis() as u64,
        });
        self.state.lock().describe(&mut said);
        said
    }

    /// The client answers what it was asked.
    fn deliver(&self, responses: InputResponses) {
        let mut state = self.state.lock();
        state.note_answered(&responses);
        // A task that has ended asks nothing.
        let _ = self.responses.send(responses);
    }

    /// The client wants it to end; one that has ended stays as it is.
    fn cancel(&self) {
        self.cancel.cancel();
    }

    /// From now on, the journal says how it stands.
    fn leave_to_journal(self: &Arc<Self>) {
        let mut tasks = OWN_TASKS.lock();
        if tasks.get(&self.id).is_some_and(|known| Arc::ptr_eq(known, self)) {
            tasks.remove(&self.id);
        }
    }

    fn end_with(&self, outcome: TaskOutcome) {
        let bytes = outcome.approx_bytes();
        let others: usize = {
            let tasks = OWN_TASKS.lock();
            tasks.values().map(|task| task.state.lock().result_bytes()).sum()
        };
        let outcome =
            if others + bytes > MAX_TASK_RESULT_BYTES { TaskOutcome::too_large() } else { outcome };
        self.state.lock().end_with(outcome);
    }
}

/// Whether an answer is not the end of a task: its run waits for a decision, or somebody else
/// goes on with it, or has brought it to its end.
async fn has_run_elsewhere(gateway: &Gateway, id: &str, ended: &Result<ToolAnswer>) -> bool {
    let (Some(run), Some(recorder), Err(problem)) = (run_of_task(id), gateway.recorder(), ended)
    else {
        return false;
    };
    match problem.code {
        ProblemCode::ApprovalRequired => true,
        ProblemCode::BadRequest => {
            if matches!(recorder.find_run_carrier(run).await, Ok(Some(_))) {
                return true;
            }
            let ended = recorder.load_run(run).await.ok().and_then(|record| record.ended);
            ended.is_some_and(|ended| ended.answer.is_some())
        }
        _ => false,
    }
}

async fn drive_task(
    task: Arc<OwnTask>,
    gateway: Gateway,
    mut call: ResumableCall,
    mut inbox: mpsc::UnboundedReceiver<InputResponses>,
    form: AnswerForm,
) {
    loop {
        task.state.lock().set_questions(call.open_questions());
        tokio::select! {
            biased;
            // Dropping the call stops everything it started.
            () = task.cancel.cancelled() => {
                drop(call);
                return task.end_with(TaskOutcome::Cancelled);
            }
            ended = call.next_turn() => match ended {
                Some(ended) if has_run_elsewhere(&gateway, &task.id, &ended).await => {
                    return task.leave_to_journal();
                }
                Some(ended) => return task.end_with(TaskOutcome::from_answer(ended, form)),
                None => continue,
            },
            Some(responses) = inbox.recv() => call.deliver_responses(responses),
        }
    }
}

fn timestamp(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time).map_or_else(|_| String::new(), |time| time.to_string())
}

/// When a call that began now becomes a task.
pub(super) fn task_deadline() -> Instant {
    Instant::now() + TASK_AFTER
}

/// The run that an id is of.
fn run_of_task(id: &str) -> Option<RecordId> {
    id.strip_prefix(RUN_TASK_PREFIX)?.parse().ok()
}
