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
use moonlark_core::call::Events;
use moonlark_core::client::Client;
use moonlark_core::content::Answer;
use moonlark_core::value::Object;
use moonlark_core::{Caller, Code, Event, Gateway, Problem, Result, Tool, Value};
use rmcp::RoleServer;
use rmcp::model::{CustomRequest, ServerRequest};
use rmcp::service::RequestContext;
use serde_json::json;
use tokio::sync::mpsc;

use super::caller::{Asked, McpClient, Sequel, Session, answers, caller_of, is_modern};
use super::notify::{Wants, notify};
use super::parked::{self, Parked};
use crate::trace;

/// What is called.
pub(crate) enum Callee {
    Named(String),
    Door(Arc<Tool>),
}

/// A call in progress: it can be put aside and gone on with.
pub(crate) struct Conversation {
    running: BoxFuture<'static, Result<Answer>>,
    /// What happens, for a client that wants to be told.
    events: Option<mpsc::UnboundedReceiver<Event>>,
    questions: mpsc::UnboundedReceiver<Asked>,
    /// What the client still has to answer.
    open: Vec<(String, Asked)>,
    asked: usize,
}

/// Call, or go on with the call that the request names.
pub(crate) async fn call(
    gateway: &Gateway,
    callee: Callee,
    args: Value,
    sequel: Sequel,
    context: RequestContext<RoleServer>,
    wants: Wants,
    session: &Arc<Session>,
) -> Result<Answer> {
    let context = Arc::new(context);
    let caller = caller_of(&context, session);
    if let Some(id) = sequel.state.as_deref().and_then(parked::id_of) {
        let request = Request::of(&callee, &args, &caller);
        let mut conversation = parked::take(id, &request)?;
        conversation.answer(sequel.responses.unwrap_or_default());
        return conversation.go_on(&context, wants, Some(request)).await;
    }
    let request = is_modern(&context).then(|| Request::of(&callee, &args, &caller));
    let (client, questions) = McpClient::new(context.clone(), session.clone(), sequel, wants.level);
    let (listen, events) = (!wants.is_nothing()).then(told).unzip();
    let client = Some(Arc::new(client) as Arc<dyn Client>);
    let call = gateway.open_in_turn(caller, client, listen).await?;
    let call = call.continuing(trace::of_request(&context));
    let gateway = gateway.clone();
    let running = Box::pin(async move {
        match callee {
            Callee::Named(name) => gateway.ask(&call, &name, args).await,
            Callee::Door(tool) => gateway.ask_tool(&call, &tool, args).await,
        }
    });
    let conversation = Conversation { running, events, questions, open: Vec::new(), asked: 0 };
    conversation.go_on(&context, wants, request).await
}

/// Bounded by the limits on log output and by the thinning of progress.
fn told() -> (Events, mpsc::UnboundedReceiver<Event>) {
    let (sender, events) = mpsc::unbounded_channel();
    let tell = move |event| {
        let _ = sender.send(event);
    };
    (Arc::new(tell), events)
}

async fn next(events: &mut Option<mpsc::UnboundedReceiver<Event>>) -> Option<Event> {
    events.as_mut()?.recv().await
}

impl Conversation {
    async fn go_on(
        mut self,
        context: &RequestContext<RoleServer>,
        wants: Wants,
        request: Option<Request>,
    ) -> Result<Answer> {
        let peer = &context.peer;
        let mut asking = FuturesUnordered::new();
        let ended = loop {
            if !self.open.is_empty()
                && let Some(request) = &request
            {
                // What is asked in the same moment is asked together.
                tokio::task::yield_now().await;
                if let Some(ended) = futures::FutureExt::now_or_never(&mut self.running) {
                    break ended;
                }
                self.gather();
                self.tell_the_rest(peer, &wants).await;
                let request = request.clone();
                return Ok(self.put_aside(request));
            }
            tokio::select! {
                biased;
                Some(event) = next(&mut self.events) => notify(peer, event, &wants).await,
                ended = &mut self.running => break ended,
                // A modern client says what would be repeated to go on.
                Some(asked) = self.questions.recv() => match request {
                    Some(_) => self.note(asked),
                    None => asking.push(ask(peer.clone(), asked)),
                },
                Some(()) = asking.next() => {}
                // Dropping the call stops everything it started.
                () = context.ct.cancelled() => {
                    return Err(Problem::new(Code::Cancelled, "the client cancelled the call"));
                }
            }
        };
        // What was said in the last moment still comes before the answer.
        self.tell_the_rest(peer, &wants).await;
        // A server that does not say for which call it asks may have meant
        // another of this client's.
        if request.is_none() && !(asking.is_empty() && self.questions.is_empty()) {
            tokio::spawn(see_through(asking, self.questions, peer.clone()));
        }
        ended
    }

    async fn tell_the_rest(&mut self, peer: &rmcp::Peer<RoleServer>, wants: &Wants) {
        while let Some(Ok(event)) = self.events.as_mut().map(mpsc::UnboundedReceiver::try_recv) {
            notify(peer, event, wants).await;
        }
    }

    fn note(&mut self, asked: Asked) {
        self.asked += 1;
        let is_open = |name: &String| self.open.iter().any(|(open, _)| open == name);
        let name = asked.question.name.clone().filter(|name| !is_open(name));
        let name = name.unwrap_or_else(|| format!("input_{}", self.asked));
        self.open.push((name, asked));
    }

    fn gather(&mut self) {
        while let Ok(asked) = self.questions.try_recv() {
            self.note(asked);
        }
    }

    /// Hand what the client sent to whoever asked for it. What it left out, or
    /// answered with something else than asked, stays open and is asked again.
    fn answer(&mut self, mut responses: rmcp::model::InputResponses) {
        for (key, asked) in std::mem::take(&mut self.open) {
            let response = responses.remove(&key);
            match response.filter(|response| answers(&asked.question.method, response)) {
                // Whoever asked may have gone.
                Some(response) => drop(asked.answer.send(Value::from_json(response))),
                None => self.open.push((key, asked)),
            }
        }
    }

    fn put_aside(self, request: Request) -> Answer {
        let requests: serde_json::Map<String, serde_json::Value> = self
            .open
            .iter()
            .map(|(key, Asked { question, .. })| {
                let params = Value::Object(question.params.clone()).to_json_lossy();
                (key.clone(), json!({"method": question.method, "params": params}))
            })
            .collect();
        let state = parked::put(Parked { conversation: self, request });
        let answer = json!({
            "resultType": "input_required",
            "inputRequests": requests,
            "requestState": state,
        });
        match Value::from_json(answer) {
            Ok(Value::Object(fields)) => Answer::Raw(fields),
            _ => Answer::Raw(Object::new()),
        }
    }
}

/// What a later request must repeat to go on with this one, and who must make it.
#[derive(Clone, PartialEq)]
pub(crate) struct Request {
    name: String,
    args: Value,
    caller: String,
}

impl Request {
    pub(crate) fn caller(&self) -> &str {
        &self.caller
    }

    fn of(callee: &Callee, args: &Value, caller: &Caller) -> Self {
        let name = match callee {
            Callee::Named(name) => name.clone(),
            Callee::Door(tool) => tool.name.clone(),
        };
        Self { name, args: args.clone(), caller: caller.name().to_owned() }
    }
}

/// Ask what is still to be asked, until nobody waits for an answer any more.
async fn see_through<F: Future<Output = ()>>(
    mut asking: FuturesUnordered<F>,
    mut questions: mpsc::UnboundedReceiver<Asked>,
    peer: rmcp::Peer<RoleServer>,
) {
    let mut late = FuturesUnordered::new();
    loop {
        tokio::select! {
            Some(asked) = questions.recv() => late.push(ask(peer.clone(), asked)),
            Some(()) = asking.next() => {}
            Some(()) = late.next() => {}
            else => return,
        }
    }
}

async fn ask(peer: rmcp::Peer<RoleServer>, Asked { question, mut answer }: Asked) {
    let params = Value::Object(question.params).to_json_lossy();
    let request = ServerRequest::CustomRequest(CustomRequest::new(question.method, Some(params)));
    let answered = tokio::select! {
        answered = peer.send_request(request) => answered,
        // Nobody waits for it any more; dropping the request cancels it.
        () = answer.closed() => return,
    };
    let answered = answered
        .map_err(|error| refused(&error))
        .and_then(|result| serde_json::to_value(result).map_err(|_| Problem::internal("no JSON")))
        .and_then(Value::from_json);
    let _ = answer.send(answered);
}

/// The client's own words, for a source that speaks its protocol.
fn refused(error: &rmcp::ServiceError) -> Problem {
    let mut problem = Problem::tool_error(format!("the client did not answer: {error}"));
    if let rmcp::ServiceError::McpError(said) = error {
        let data = said.data.clone().and_then(|data| Value::from_json(data).ok());
        problem.refusal = Some(Box::new(moonlark_core::problem::Refusal {
            code: said.code.0.into(),
            message: said.message.to_string(),
            data,
        }));
    }
    problem
}
