//! A request to an upstream on behalf of a call, until there is an answer that
//! the caller can take.
//!
//! A modern server may answer that it needs something of the caller first. A
//! modern caller that called it directly is told so; anybody else is asked, and
//! the request is made again with what they said.

use std::sync::Arc;

use moonlark_core::client::{Client, Question};
use moonlark_core::problem::Refusal;
use moonlark_core::trace::{Fact, Trace, What};
use moonlark_core::value::Object;
use moonlark_core::{Call, Code, Problem, Result, Value};

use super::link::{About, Era, Link};
use super::listener::CallListener;
use super::shared::Shared;
use super::target::Way;
use super::wire::{Failure, Rpc};

/// How often a server may ask for more before it answers.
const ROUNDS: usize = 16;

const META: &str = "io.modelcontextprotocol/";

/// What is asked, beside its parameters.
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    /// Those that its arguments ask for.
    pub(crate) headers: Vec<(String, String)>,
    /// Whether asking twice does the same as asking once.
    pub(crate) repeatable: bool,
}

impl Request<'_> {
    /// A request that is no tool's.
    pub(crate) fn of_method(method: &str) -> Request<'_> {
        let reads = matches!(
            method,
            "resources/read" | "prompts/get" | "completion/complete" | "tasks/get"
        );
        Request { method, headers: Vec::new(), repeatable: reads || method.ends_with("/list") }
    }
}

/// Make the request.
pub(crate) async fn request(
    shared: &Shared,
    call: &Call,
    request: Request<'_>,
    mut params: Object,
) -> Result<Object> {
    let _busy = shared.busy();
    let passes_on = call.direct_client().filter(|client| speaks_modern(client));
    if let Some(client) = passes_on {
        // What the caller sends to finish an earlier request.
        let envelope = client.envelope();
        for (key, value) in [
            ("requestState", &envelope.request_state),
            ("inputResponses", &envelope.input_responses),
        ] {
            params.extend(value.clone().map(|value| (key.to_owned(), value)));
        }
    }
    for _ in 0..ROUNDS {
        let answer = send(shared, call, &request, &params).await?;
        let kind = answer.get("resultType").and_then(Value::as_str);
        if kind != Some("input_required") || passes_on.is_some() {
            return Ok(answer);
        }
        params.insert("inputResponses".to_owned(), fulfil(call, &answer).await?);
        match answer.get("requestState") {
            Some(state) => params.insert("requestState".to_owned(), state.clone()),
            None => params.swap_remove("requestState"),
        };
    }
    let name = shared.settings.name();
    Err(Problem::tool_error(format!("upstream '{name}' asked for input {ROUNDS} times in a row")))
}

/// Ask the caller for everything the server needs, all at once.
async fn fulfil(call: &Call, answer: &Object) -> Result<Value> {
    let Some(Value::Object(requests)) = answer.get("inputRequests") else {
        return Ok(Value::Object(Object::new()));
    };
    let asks = requests.iter().map(|(key, request)| async move {
        let method = request.get("method").and_then(Value::as_str).unwrap_or_default().to_owned();
        let params = request.get("params").and_then(Value::as_object).cloned().unwrap_or_default();
        Ok::<_, Problem>((key.clone(), call.ask(Question { method, params, name: None }).await?))
    });
    let answers = futures::future::try_join_all(asks).await?;
    Ok(Value::Object(answers.into_iter().collect()))
}

/// Send it, and once more if it certainly never arrived, or if that does no harm.
async fn send(
    shared: &Shared,
    call: &Call,
    request: &Request<'_>,
    params: &Object,
) -> Result<Object> {
    let link = shared.link(call.deadline()).await?;
    let failure = match attempt(shared, &link, call, request, params.clone()).await {
        Err(Failure::NotSent(problem)) if problem.retry_after.is_none() => {
            let link = shared.link_after(&link, problem, call.deadline()).await?;
            attempt(shared, &link, call, request, params.clone()).await
        }
        Err(Failure::Lost(problem)) if request.repeatable && problem.retryable() => {
            // Over HTTP it may be only this answer that broke off.
            let again = match link.is_open() {
                true => Ok(link),
                false => shared.link(call.deadline()).await,
            };
            match again {
                Ok(link) => attempt(shared, &link, call, request, params.clone()).await,
                Err(_) => Err(Failure::Lost(problem)),
            }
        }
        other => other,
    };
    failure.map_err(|failure| explain(shared, request, failure))
}

async fn attempt(
    shared: &Shared,
    link: &Link,
    call: &Call,
    request: &Request<'_>,
    params: Object,
) -> Result<Object, Failure> {
    let method = request.method;
    let mut spanning = call.spanning(|| told(shared, link, method, &params));
    let about = About {
        meta: meta(call, link.peer().era, spanning.trace()),
        listener: Some(Arc::new(CallListener(call.clone()))),
        quiet: !call.is_watched(),
        headers: request.headers.clone(),
        owner: call.owner(),
        trace: spanning.trace().cloned(),
    };
    let answer = link.request(method, params, about).await;
    if let Err(Failure::Refused(rpc)) = &answer {
        spanning.note("rpc.response.status_code", Fact::Text(rpc.code.to_string()));
    }
    spanning.end(outcome(&answer));
    answer
}

/// The request as traces have it: what is asked of whom, and nothing of what it
/// is asked with.
fn told(shared: &Shared, link: &Link, method: &str, params: &Object) -> What {
    let text = |text: &str| Fact::Text(text.to_owned());
    let name = params.get("name").and_then(Value::as_str);
    let mut facts = vec![
        ("mcp.method.name", text(method)),
        ("mcp.protocol.version", text(&link.peer().version)),
        ("moonlark.source", text(shared.settings.name())),
    ];
    let target = match (method, name) {
        ("tools/call", Some(name)) => {
            facts.push(("gen_ai.operation.name", text("execute_tool")));
            facts.push(("gen_ai.tool.name", text(name)));
            Some(name)
        }
        ("prompts/get", Some(name)) => {
            facts.push(("gen_ai.prompt.name", text(name)));
            Some(name)
        }
        _ => None,
    };
    match &shared.settings.target.way {
        Way::Stdio { .. } => facts.push(("network.transport", text("pipe"))),
        Way::Http { url, .. } | Way::Sse { url, .. } => {
            facts.push(("network.transport", text("tcp")));
            facts.extend(url.host_str().map(|host| ("server.address", text(host))));
            let port = url.port_or_known_default();
            facts.extend(port.map(|port| ("server.port", Fact::Number(port.into()))));
        }
    }
    let name = target.map_or_else(|| method.to_owned(), |target| format!("{method} {target}"));
    What::Request { name, facts }
}

fn outcome(answer: &Result<Object, Failure>) -> &'static str {
    let code = match answer {
        Ok(answer) if answer.get("isError") != Some(&Value::Bool(true)) => return "ok",
        Ok(_) | Err(Failure::Refused(_)) => Code::ToolError,
        Err(
            Failure::NotSent(problem) | Failure::Unauthorized(problem) | Failure::Lost(problem),
        ) => problem.code,
    };
    code.as_str()
}

/// What goes with the request: where it is in a trace, the caller's own words,
/// and for a server that keeps nothing about us, what the caller can do.
fn meta(call: &Call, era: Era, trace: Option<&Trace>) -> Object {
    let mut meta = Object::new();
    if let Some(trace) = trace {
        meta.insert("traceparent".to_owned(), trace.parent().into());
        meta.extend(trace.state().map(|state| ("tracestate".to_owned(), state.into())));
    }
    let Some(client) = call.client() else { return meta };
    let envelope = client.envelope();
    // Their place in a trace is above ours, or was none.
    let ours = |key: &str| matches!(key, "progressToken" | "traceparent" | "tracestate");
    let theirs = envelope.meta.iter().filter(|(key, _)| !ours(key) && !key.starts_with(META));
    meta.extend(theirs.map(|(key, value)| (key.clone(), value.clone())));
    if era == Era::Legacy {
        return meta;
    }
    let mut capabilities = envelope.capabilities.clone();
    if !call.direct_client().is_some_and(speaks_modern) {
        // Whatever extensions change about answers, only it could take.
        capabilities.swap_remove("extensions");
    }
    meta.insert(format!("{META}clientCapabilities"), Value::Object(capabilities));
    for (key, value) in [("clientInfo", &envelope.info), ("logLevel", &envelope.log_level)] {
        meta.extend(value.clone().map(|value| (format!("{META}{key}"), value)));
    }
    meta
}

fn speaks_modern(client: &Arc<dyn Client>) -> bool {
    client.envelope().modern
}

/// A failure as a Problem of the call.
fn explain(shared: &Shared, request: &Request<'_>, failure: Failure) -> Problem {
    let name = shared.settings.name();
    match failure {
        Failure::Refused(rpc) => refused(shared, rpc),
        Failure::NotSent(problem) | Failure::Unauthorized(problem) => problem,
        Failure::Lost(mut problem) => {
            // A list or a document can be asked for again by anybody.
            if request.repeatable {
                problem.message = format!("{}; it was tried twice", problem.message);
            } else if request.method == "tools/call" {
                problem.message = format!(
                    "{}; the call may have happened, and was not repeated",
                    problem.message
                );
                problem = problem.retryable_if(false);
            }
            let hint = format!("see `moonlark doctor` for the state of '{name}'");
            problem.hint.get_or_insert(hint);
            problem
        }
    }
}

pub(crate) fn refused(shared: &Shared, Rpc { code, message, mut data }: Rpc) -> Problem {
    shared.names.error_out(&mut data);
    let kind = match code {
        -32602 | -32600 => Code::BadRequest,
        -32601 | -32002 => Code::NotFound,
        _ => Code::ToolError,
    };
    let name = shared.settings.name();
    let mut problem =
        Problem::new(kind, format!("upstream '{name}': {}", moonlark_core::problem::cut(&message)));
    problem.refusal = Some(Box::new(Refusal { code, message, data }));
    problem
}
