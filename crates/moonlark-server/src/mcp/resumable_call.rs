//! One request of a client that calls a tool: progress and log messages on the
//! way out, questions to the client, and the answer.
//!
//! An old client is asked by a request of ours while its own waits. A modern one
//! is answered that input is required, and the call stays here, as it is, until
//! the client comes back with it.

use std::sync::Arc;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use moonlark_child::spawn_to_finish;
use moonlark_core::content::ToolAnswer;
use moonlark_core::record_id::RecordId;
use moonlark_core::value::Object;
use moonlark_core::{Problem, ProblemCode, Result, Tool, Value};
use moonlark_gateway::call::CallEventSink;
use moonlark_gateway::call_client::CallClient;
use moonlark_gateway::gateway::CallOptions;
use moonlark_gateway::{Call, CallEvent, Caller, Gateway};
use rmcp::RoleServer;
use rmcp::model::{CustomRequest, ServerRequest};
use rmcp::service::RequestContext;
use serde_json::json;
use tokio::sync::mpsc;

use super::call_notifications::{RequestedNotifications, notify_event};
use super::mcp_caller::{
    CallContinuation, McpCaller, McpClientSession, PendingClientQuestion, caller_from_request,
    is_answer_to, is_modern,
};
use super::own_tasks;
use super::suspended_calls::{self, SuspendedCall};
use super::tool_result::AnswerForm;
use crate::request_trace;

/// What is called.
pub(crate) enum McpCallee {
    Named(String),
    Door(Arc<Tool>),
}

/// A call in progress: it can be put aside and gone on with.
pub(crate) struct ResumableCall {
    running: BoxFuture<'static, Result<ToolAnswer>>,
    /// What happens, for a client that wants to be told.
    events: Option<mpsc::UnboundedReceiver<CallEvent>>,
    questions: mpsc::UnboundedReceiver<PendingClientQuestion>,
    /// What the client still has to answer.
    open: Vec<(String, PendingClientQuestion)>,
    asked: usize,
    /// What the client is to be told before anything else.
    untold: Option<UntoldNews>,
    /// To ask which run it is.
    root: Call,
}

/// How far a call came in the time that its client waits for it.
enum PatientCallEnd {
    Ended(Result<ToolAnswer>),
    /// It has questions.
    Asks(ResumableCall),
    TimeUp(ResumableCall),
}

/// What belongs to the stream of one request.
enum UntoldNews {
    Event(CallEvent),
    Question(PendingClientQuestion),
}

/// How far a call came that could tell its client nothing but the answer.
pub(crate) enum QuietCallEnd {
    Ended(Result<ToolAnswer>),
    /// Something has to be told before the answer.
    Interrupted(ResumableCall),
}

/// Call, or go on with the call that the request names.
pub(crate) async fn run_call(
    gateway: &Gateway,
    callee: McpCallee,
    args: Value,
    sequel: CallContinuation,
    context: RequestContext<RoleServer>,
    wants: RequestedNotifications,
    session: &Arc<McpClientSession>,
) -> Result<ToolAnswer> {
    let context = Arc::new(context);
    let caller = caller_from_request(&context, session);
    if let Some(id) = sequel.state.as_deref().and_then(suspended_calls::suspended_call_id) {
        let request = CallFingerprint::from_call(&callee, &args, &caller);
        let mut conversation = suspended_calls::resume_call(id, &request)?;
        conversation.deliver_responses(sequel.responses.unwrap_or_default());
        if own_tasks::knows_tasks(&context) {
            let caller = (gateway, &caller);
            return conversation.run_until_task(caller, &context, wants, request).await;
        }
        return conversation.run_until_answer(&context, wants, Some(request)).await;
    }
    let may_be_task = matches!(callee, McpCallee::Named(_))
        && is_modern(&context)
        && own_tasks::knows_tasks(&context);
    let request = is_modern(&context).then(|| CallFingerprint::from_call(&callee, &args, &caller));
    let begun =
        begin_call(gateway, (callee, args), sequel, &context, caller.clone(), &wants, session);
    let call = begun.await?;
    if let Some(request) = request.clone().filter(|_| may_be_task) {
        return call.run_until_task((gateway, &caller), &context, wants, request).await;
    }
    call.run_until_answer(&context, wants, request).await
}

/// Begin a call when there is room for it.
pub(super) async fn begin_call(
    gateway: &Gateway,
    (callee, args): (McpCallee, Value),
    sequel: CallContinuation,
    context: &Arc<RequestContext<RoleServer>>,
    caller: Caller,
    wants: &RequestedNotifications,
    session: &Arc<McpClientSession>,
) -> Result<ResumableCall> {
    let (client, questions) = McpCaller::new(context.clone(), session.clone(), sequel, wants.level);
    // A modern client may ask for progress when it goes on with the call.
    let tells_progress = wants.progress.is_some() || is_modern(context);
    let (listen, events) = (!wants.is_empty()).then(|| event_channel(tells_progress)).unzip();
    let client = Some(Arc::new(client) as Arc<dyn CallClient>);
    let options = CallOptions::from(caller).with_client(client).with_events(listen);
    let call = gateway.open_call_when_admitted(options).await?;
    let call = call.with_trace(request_trace::trace_from_request(context));
    let (gateway, root) = (gateway.clone(), call.clone());
    let running = Box::pin(async move {
        match callee {
            McpCallee::Named(name) => gateway.invoke(&call, &name, args).await,
            McpCallee::Door(tool) => gateway.invoke(&call, &tool, args).await,
        }
    });
    let (open, untold) = (Vec::new(), None);
    Ok(ResumableCall { running, events, questions, open, asked: 0, untold, root })
}

/// Bounded by the limits on log output and by the thinning of progress. What no client is
/// told does not get here: each event wakes the task that makes the call.
fn event_channel(tells_progress: bool) -> (CallEventSink, mpsc::UnboundedReceiver<CallEvent>) {
    let (sender, events) = mpsc::unbounded_channel();
    let tell = move |event| {
        let is_told = match &event {
            CallEvent::Log { .. } | CallEvent::Relayed { .. } => true,
            CallEvent::Progress { .. } => tells_progress,
            CallEvent::Step(_) => false,
        };
        if is_told {
            let _ = sender.send(event);
        }
    };
    (Arc::new(tell), events)
}

async fn next_event(events: &mut Option<mpsc::UnboundedReceiver<CallEvent>>) -> Option<CallEvent> {
    events.as_mut()?.recv().await
}

impl ResumableCall {
    /// Run for as long as nothing has to be told on the stream of the request, and no
    /// question is asked. Log messages do not belong to a request.
    pub(super) async fn run_quietly(
        mut self,
        context: &RequestContext<RoleServer>,
        wants: &RequestedNotifications,
    ) -> QuietCallEnd {
        loop {
            let news = tokio::select! {
                biased;
                Some(event) = next_event(&mut self.events) => UntoldNews::Event(event),
                ended = &mut self.running => return self.end_quietly(ended, context, wants).await,
                Some(asked) = self.questions.recv() => UntoldNews::Question(asked),
                // Dropping the call stops everything it started.
                () = context.ct.cancelled() => return QuietCallEnd::Ended(Err(cancelled_problem())),
            };
            if let Some(untold) = tell_message(news, context, wants).await {
                return self.interrupt(untold);
            }
        }
    }

    /// What was said in the last moment still comes before the answer.
    async fn end_quietly(
        mut self,
        ended: Result<ToolAnswer>,
        context: &RequestContext<RoleServer>,
        wants: &RequestedNotifications,
    ) -> QuietCallEnd {
        while let Some(Ok(event)) = self.events.as_mut().map(mpsc::UnboundedReceiver::try_recv) {
            let news = UntoldNews::Event(event);
            if let Some(untold) = tell_message(news, context, wants).await {
                self.running = Box::pin(std::future::ready(ended));
                return self.interrupt(untold);
            }
        }
        if !self.questions.is_empty() {
            let asking = FuturesUnordered::<BoxFuture<'static, ()>>::new();
            spawn_to_finish(finish_questions(asking, self.questions, context.peer.clone()));
        }
        QuietCallEnd::Ended(ended)
    }

    fn interrupt(mut self, untold: UntoldNews) -> QuietCallEnd {
        self.untold = Some(untold);
        QuietCallEnd::Interrupted(self)
    }

    pub(super) async fn run_until_answer(
        mut self,
        context: &RequestContext<RoleServer>,
        wants: RequestedNotifications,
        request: Option<CallFingerprint>,
    ) -> Result<ToolAnswer> {
        let peer = &context.peer;
        let mut asking = FuturesUnordered::new();
        match self.untold.take() {
            Some(UntoldNews::Event(event)) => notify_event(peer, event, &wants).await,
            Some(UntoldNews::Question(asked)) => asking.push(ask_client(peer.clone(), asked)),
            None => {}
        }
        let ended = loop {
            if !self.open.is_empty()
                && let Some(request) = &request
            {
                // What is asked in the same moment is asked together.
                tokio::task::yield_now().await;
                if let Some(ended) = futures::FutureExt::now_or_never(&mut self.running) {
                    break ended;
                }
                self.gather_questions();
                self.notify_remaining(peer, &wants).await;
                let request = request.clone();
                return Ok(self.suspend_for_input(request));
            }
            tokio::select! {
                biased;
                Some(event) = next_event(&mut self.events) => notify_event(peer, event, &wants).await,
                ended = &mut self.running => break ended,
                // A modern client says what would be repeated to go on.
                Some(asked) = self.questions.recv() => match request {
                    Some(_) => self.add_question(asked),
                    None => asking.push(ask_client(peer.clone(), asked)),
                },
                Some(()) = asking.next() => {}
                // Dropping the call stops everything it started.
                () = context.ct.cancelled() => return Err(cancelled_problem()),
            }
        };
        // What was said in the last moment still comes before the answer.
        self.notify_remaining(peer, &wants).await;
        // A server that does not say for which call it asks may have meant
        // another of this client's.
        if request.is_none() && !(asking.is_empty() && self.questions.is_empty()) {
            spawn_to_finish(finish_questions(asking, self.questions, peer.clone()));
        }
        ended
    }

    async fn notify_remaining(
        &mut self,
        peer: &rmcp::Peer<RoleServer>,
        wants: &RequestedNotifications,
    ) {
        while let Some(Ok(event)) = self.events.as_mut().map(mpsc::UnboundedReceiver::try_recv) {
            notify_event(peer, event, wants).await;
        }
    }

    /// The run that it is on record as, once it is one.
    pub(super) fn first_run(&self) -> Option<RecordId> {
        self.root.first_run()
    }

    /// Run for a client that knows tasks: until there is an answer or a question, but for no
    /// longer than it likes to wait. Then the call goes on as a task.
    async fn run_until_task(
        self,
        (gateway, caller): (&Gateway, &Caller),
        context: &RequestContext<RoleServer>,
        wants: RequestedNotifications,
        request: CallFingerprint,
    ) -> Result<ToolAnswer> {
        match self.run_patiently(context, &wants).await {
            PatientCallEnd::Ended(ended) => ended,
            PatientCallEnd::Asks(call) => Ok(call.suspend_for_input(request)),
            PatientCallEnd::TimeUp(call) => {
                let form = AnswerForm::for_request(context);
                match own_tasks::begin_task(gateway, caller, call, form).await {
                    Ok(answer) => Ok(answer),
                    Err(call) => call.run_until_answer(context, wants, Some(request)).await,
                }
            }
        }
    }

    async fn run_patiently(
        mut self,
        context: &RequestContext<RoleServer>,
        wants: &RequestedNotifications,
    ) -> PatientCallEnd {
        let until = own_tasks::task_deadline();
        loop {
            if !self.open.is_empty() {
                // What is asked in the same moment is asked together.
                tokio::task::yield_now().await;
                if let Some(ended) = futures::FutureExt::now_or_never(&mut self.running) {
                    return PatientCallEnd::Ended(ended);
                }
                self.gather_questions();
                self.notify_remaining(&context.peer, wants).await;
                return PatientCallEnd::Asks(self);
            }
            tokio::select! {
                biased;
                Some(event) = next_event(&mut self.events) => {
                    notify_event(&context.peer, event, wants).await;
                }
                ended = &mut self.running => {
                    self.notify_remaining(&context.peer, wants).await;
                    return PatientCallEnd::Ended(ended);
                }
                Some(asked) = self.questions.recv() => self.add_question(asked),
                // Dropping the call stops everything it started.
                () = context.ct.cancelled() => {
                    return PatientCallEnd::Ended(Err(cancelled_problem()));
                }
                () = tokio::time::sleep_until(until) => return PatientCallEnd::TimeUp(self),
            }
        }
    }

    /// Run until it ends, or until something is asked.
    pub(super) async fn next_turn(&mut self) -> Option<Result<ToolAnswer>> {
        loop {
            tokio::select! {
                biased;
                // There is no stream any more that it could be told on.
                Some(_) = next_event(&mut self.events) => {}
                ended = &mut self.running => return Some(ended),
                Some(asked) = self.questions.recv() => {
                    self.add_question(asked);
                    return None;
                }
            }
        }
    }

    /// What the client still has to answer, as it is asked.
    pub(super) fn open_questions(&self) -> serde_json::Map<String, serde_json::Value> {
        let question = |(key, PendingClientQuestion { question, .. }): &(String, _)| {
            let params = Value::Object(question.params.clone()).to_json_lossy();
            (key.clone(), json!({"method": question.method, "params": params}))
        };
        self.open.iter().map(question).collect()
    }

    fn add_question(&mut self, asked: PendingClientQuestion) {
        self.asked += 1;
        let is_open = |name: &String| self.open.iter().any(|(open, _)| open == name);
        let name = asked.question.name.clone().filter(|name| !is_open(name));
        let name = name.unwrap_or_else(|| format!("input_{}", self.asked));
        self.open.push((name, asked));
    }

    fn gather_questions(&mut self) {
        while let Ok(asked) = self.questions.try_recv() {
            self.add_question(asked);
        }
    }

    /// Hand what the client sent to whoever asked for it. What it left out, or
    /// answered with something else than asked, stays open and is asked again.
    pub(super) fn deliver_responses(&mut self, mut responses: rmcp::model::InputResponses) {
        for (key, asked) in std::mem::take(&mut self.open) {
            let response = responses.remove(&key);
            match response.filter(|response| is_answer_to(&asked.question.method, response)) {
                // Whoever asked may have gone.
                Some(response) => drop(asked.answer.send(Value::from_json(response))),
                None => self.open.push((key, asked)),
            }
        }
    }

    fn suspend_for_input(self, request: CallFingerprint) -> ToolAnswer {
        let requests = self.open_questions();
        let state = suspended_calls::suspend_call(SuspendedCall { conversation: self, request });
        let answer = json!({
            "resultType": "input_required",
            "inputRequests": requests,
            "requestState": state,
        });
        match Value::from_json(answer) {
            Ok(Value::Object(fields)) => ToolAnswer::Raw(fields),
            _ => ToolAnswer::Raw(Object::new()),
        }
    }
}

/// Tell what does not belong to the request; what does comes back.
async fn tell_message(
    news: UntoldNews,
    context: &RequestContext<RoleServer>,
    wants: &RequestedNotifications,
) -> Option<UntoldNews> {
    match news {
        UntoldNews::Event(CallEvent::Progress { .. }) if wants.progress.is_some() => Some(news),
        UntoldNews::Event(event) => {
            notify_event(&context.peer, event, wants).await;
            None
        }
        UntoldNews::Question(_) => Some(news),
    }
}

fn cancelled_problem() -> Problem {
    Problem::new(ProblemCode::Cancelled, "the client cancelled the call")
}

/// What a later request must repeat to go on with this one, and who must make it.
#[derive(Clone, PartialEq)]
pub(crate) struct CallFingerprint {
    name: String,
    args: Value,
    caller: String,
}

impl CallFingerprint {
    pub(crate) fn caller(&self) -> &str {
        &self.caller
    }

    fn from_call(callee: &McpCallee, args: &Value, caller: &Caller) -> Self {
        let name = match callee {
            McpCallee::Named(name) => name.clone(),
            McpCallee::Door(tool) => tool.name.clone(),
        };
        Self { name, args: args.clone(), caller: caller.name().to_owned() }
    }
}

/// Ask what is still to be asked, until nobody waits for an answer any more.
async fn finish_questions<F: Future<Output = ()>>(
    mut asking: FuturesUnordered<F>,
    mut questions: mpsc::UnboundedReceiver<PendingClientQuestion>,
    peer: rmcp::Peer<RoleServer>,
) {
    let mut late = FuturesUnordered::new();
    loop {
        tokio::select! {
            Some(asked) = questions.recv() => late.push(ask_client(peer.clone(), asked)),
            Some(()) = asking.next() => {}
            Some(()) = late.next() => {}
            else => return,
        }
    }
}

async fn ask_client(
    peer: rmcp::Peer<RoleServer>,
    PendingClientQuestion { question, mut answer }: PendingClientQuestion,
) {
    let params = Value::Object(question.params).to_json_lossy();
    let request = ServerRequest::CustomRequest(CustomRequest::new(question.method, Some(params)));
    let answered = tokio::select! {
        answered = peer.send_request(request) => answered,
        // Nobody waits for it any more; dropping the request cancels it.
        () = answer.closed() => return,
    };
    let answered = answered
        .map_err(|error| client_error_problem(&error))
        .and_then(|result| serde_json::to_value(result).map_err(|_| Problem::internal("no JSON")))
        .and_then(Value::from_json);
    let _ = answer.send(answered);
}

/// The client's own words, for a source that speaks its protocol.
fn client_error_problem(error: &rmcp::ServiceError) -> Problem {
    let mut problem = Problem::tool_error(format!("the client did not answer: {error}"));
    if let rmcp::ServiceError::McpError(said) = error {
        let data = said.data.clone().and_then(|data| Value::from_json(data).ok());
        problem.refusal = Some(Box::new(moonlark_core::problem::ProtocolError {
            code: said.code.0.into(),
            message: said.message.to_string(),
            data,
        }));
    }
    problem
}
