//! A request to an upstream on behalf of a call, until there is an answer that
//! the caller can take.
//!
//! A modern server may answer that it needs something of the caller first. A
//! modern caller that called it directly is told so; anybody else is asked, and
//! the request is made again with what they said.

use std::sync::Arc;

use moonlark_core::problem::ProtocolError;
use moonlark_core::value::Object;
use moonlark_core::{Problem, ProblemCode, Result, Value};
use moonlark_gateway::call_client::{CallClient, ClientQuestion};
use moonlark_gateway::trace::{SpanAttribute, SpanKind, TraceContext};
use moonlark_gateway::{Call, CallOutcome};

use crate::connection::{McpConnection, McpRequestOptions, ProtocolEra};
use crate::json_rpc::{RequestFailure, RpcError};
use crate::server_messages::CallListener;
use crate::upstream_state::UpstreamState;
use crate::upstream_target::McpTransportConfig;

/// How often a server may ask for more before it answers.
const MAX_INPUT_ROUNDS: usize = 16;

const MCP_META_KEY_PREFIX: &str = "io.modelcontextprotocol/";

/// What is asked, beside its parameters.
pub(crate) struct UpstreamRequest<'a> {
    pub(crate) method: &'a str,
    /// Those that its arguments ask for.
    pub(crate) headers: Vec<(String, String)>,
    /// Whether asking twice does the same as asking once.
    pub(crate) repeatable: bool,
}

impl UpstreamRequest<'_> {
    /// A request that is no tool's.
    pub(crate) fn for_method(method: &str) -> UpstreamRequest<'_> {
        let reads = matches!(
            method,
            "resources/read" | "prompts/get" | "completion/complete" | "tasks/get"
        );
        UpstreamRequest {
            method,
            headers: Vec::new(),
            repeatable: reads || method.ends_with("/list"),
        }
    }
}

/// Make the request.
pub(crate) async fn request_for_call(
    shared: &UpstreamState,
    call: &Call,
    request: UpstreamRequest<'_>,
    mut params: Object,
) -> Result<Object> {
    let _busy = shared.mark_busy();
    let passes_on = call.direct_client().filter(|client| is_modern_client(client));
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
    for _ in 0..MAX_INPUT_ROUNDS {
        let answer = send_with_retry(shared, call, &request, &params).await?;
        let kind = answer.get("resultType").and_then(Value::as_str);
        if kind != Some("input_required") || passes_on.is_some() {
            return Ok(answer);
        }
        params.insert("inputResponses".to_owned(), ask_caller_for_inputs(call, &answer).await?);
        match answer.get("requestState") {
            Some(state) => params.insert("requestState".to_owned(), state.clone()),
            None => params.swap_remove("requestState"),
        };
    }
    let name = shared.settings.name();
    Err(Problem::tool_error(format!(
        "upstream '{name}' asked for input {MAX_INPUT_ROUNDS} times in a row"
    )))
}

/// Ask the caller for everything the server needs, all at once.
async fn ask_caller_for_inputs(call: &Call, answer: &Object) -> Result<Value> {
    let Some(Value::Object(requests)) = answer.get("inputRequests") else {
        return Ok(Value::Object(Object::new()));
    };
    let asks = requests.iter().map(|(key, request)| async move {
        let method = request.get("method").and_then(Value::as_str).unwrap_or_default().to_owned();
        let params = request.get("params").and_then(Value::as_object).cloned().unwrap_or_default();
        Ok::<_, Problem>((
            key.clone(),
            call.ask_caller(ClientQuestion { method, params, name: None }).await?,
        ))
    });
    let answers = futures::future::try_join_all(asks).await?;
    Ok(Value::Object(answers.into_iter().collect()))
}

/// Send it, and once more if it certainly never arrived, or if that does no harm.
async fn send_with_retry(
    shared: &UpstreamState,
    call: &Call,
    request: &UpstreamRequest<'_>,
    params: &Object,
) -> Result<Object> {
    let link = shared.wait_for_connection(call.deadline()).await?;
    let failure = match attempt_request(shared, &link, call, request, params.clone()).await {
        // One that is there refused it for some other reason.
        Err(RequestFailure::NotSent(problem))
            if problem.retry_after.is_none() && !link.is_open() =>
        {
            let link = shared.wait_for_connection(call.deadline()).await?;
            attempt_request(shared, &link, call, request, params.clone()).await
        }
        Err(RequestFailure::Lost(problem)) if request.repeatable && problem.is_retryable() => {
            // Over HTTP it may be only this answer that broke off.
            let again = if link.is_open() {
                Ok(link)
            } else {
                shared.wait_for_connection(call.deadline()).await
            };
            match again {
                Ok(link) => attempt_request(shared, &link, call, request, params.clone()).await,
                Err(_) => Err(RequestFailure::Lost(problem)),
            }
        }
        other => other,
    };
    failure.map_err(|failure| problem_from_failure(shared, request, failure))
}

async fn attempt_request(
    shared: &UpstreamState,
    link: &McpConnection,
    call: &Call,
    request: &UpstreamRequest<'_>,
    params: Object,
) -> Result<Object, RequestFailure> {
    let method = request.method;
    let mut spanning = call.start_span(|| describe_span(shared, link, method, &params));
    let about = McpRequestOptions {
        meta: request_meta(call, link.peer().era, spanning.trace()),
        listener: Some(Arc::new(CallListener(call.clone()))),
        quiet: !call.is_watched(),
        headers: request.headers.clone(),
        owner: call.owner_id(),
        trace: spanning.trace().cloned(),
    };
    let answer = link.send_request(method, params, about).await;
    if let Err(RequestFailure::Refused(rpc)) = &answer {
        spanning
            .set_attribute("rpc.response.status_code", SpanAttribute::Text(rpc.code.to_string()));
    }
    spanning.end_with(request_outcome(&answer));
    answer
}

/// The request as traces have it: what is asked of whom, and nothing of what it
/// is asked with.
fn describe_span(
    shared: &UpstreamState,
    link: &McpConnection,
    method: &str,
    params: &Object,
) -> SpanKind {
    let text = |text: &str| SpanAttribute::Text(text.to_owned());
    let name = params.get("name").and_then(Value::as_str);
    let mut facts = vec![
        ("mcp.method.name", text(method)),
        ("mcp.protocol.version", text(&link.peer().version)),
        ("moonlark.source", text(shared.settings.name())),
    ];
    let target = name.filter(|_| matches!(method, "tools/call" | "prompts/get"));
    match (method, target) {
        ("tools/call", Some(name)) => {
            facts.push(("gen_ai.operation.name", text("execute_tool")));
            facts.push(("gen_ai.tool.name", text(name)));
        }
        (_, Some(name)) => facts.push(("gen_ai.prompt.name", text(name))),
        (_, None) => {}
    }
    match &shared.settings.target.transport {
        McpTransportConfig::Stdio { .. } => facts.push(("network.transport", text("pipe"))),
        McpTransportConfig::Http { url, .. } | McpTransportConfig::Sse { url, .. } => {
            facts.push(("network.transport", text("tcp")));
            facts.extend(url.host_str().map(|host| ("server.address", text(host))));
            let port = url.port_or_known_default();
            facts.extend(port.map(|port| ("server.port", SpanAttribute::Number(port.into()))));
        }
    }
    let name = target.map_or_else(|| method.to_owned(), |target| format!("{method} {target}"));
    SpanKind::Request { name, facts }
}

fn request_outcome(answer: &Result<Object, RequestFailure>) -> CallOutcome {
    let code = match answer {
        Ok(answer) if answer.get("isError") != Some(&Value::Bool(true)) => return CallOutcome::Ok,
        Ok(_) | Err(RequestFailure::Refused(_)) => ProblemCode::ToolError,
        Err(
            RequestFailure::NotSent(problem)
            | RequestFailure::Unauthorized(problem)
            | RequestFailure::Lost(problem),
        ) => problem.code,
    };
    code.into()
}

/// What goes with the request: where it is in a trace, the caller's own words,
/// and for a server that keeps nothing about us, what the caller can do.
fn request_meta(call: &Call, era: ProtocolEra, trace: Option<&TraceContext>) -> Object {
    let mut meta = Object::new();
    if let Some(trace) = trace {
        meta.insert("traceparent".to_owned(), trace.to_traceparent().into());
        meta.extend(trace.tracestate().map(|state| ("tracestate".to_owned(), state.into())));
    }
    let Some(client) = call.client() else { return meta };
    let envelope = client.envelope();
    // Their place in a trace is above ours, or was none.
    let ours = |key: &str| matches!(key, "progressToken" | "traceparent" | "tracestate");
    let theirs =
        envelope.meta.iter().filter(|(key, _)| !ours(key) && !key.starts_with(MCP_META_KEY_PREFIX));
    meta.extend(theirs.map(|(key, value)| (key.clone(), value.clone())));
    if era == ProtocolEra::Legacy {
        return meta;
    }
    let mut capabilities = envelope.capabilities.clone();
    if !call.direct_client().is_some_and(is_modern_client) {
        // Whatever extensions change about answers, only it could take.
        capabilities.swap_remove("extensions");
    }
    meta.insert(format!("{MCP_META_KEY_PREFIX}clientCapabilities"), Value::Object(capabilities));
    for (key, value) in [("clientInfo", &envelope.info), ("logLevel", &envelope.log_level)] {
        meta.extend(value.clone().map(|value| (format!("{MCP_META_KEY_PREFIX}{key}"), value)));
    }
    meta
}

fn is_modern_client(client: &Arc<dyn CallClient>) -> bool {
    client.envelope().modern
}

/// A failure as a Problem of the call.
fn problem_from_failure(
    shared: &UpstreamState,
    request: &UpstreamRequest<'_>,
    failure: RequestFailure,
) -> Problem {
    let name = shared.settings.name();
    match failure {
        RequestFailure::Refused(rpc) => problem_from_rpc_error(shared, rpc),
        RequestFailure::NotSent(problem) | RequestFailure::Unauthorized(problem) => problem,
        RequestFailure::Lost(mut problem) => {
            // A list or a document can be asked for again by anybody.
            if request.repeatable {
                problem.message = format!("{}; it was tried twice", problem.message);
            } else if request.method == "tools/call" {
                problem.message = format!(
                    "{}; the call may have happened, and was not repeated",
                    problem.message
                );
                problem = problem.with_retryable(false);
            }
            let hint = format!("see `moonlark doctor` for the state of '{name}'");
            problem.hint.get_or_insert(hint);
            problem
        }
    }
}

pub(crate) fn problem_from_rpc_error(
    shared: &UpstreamState,
    RpcError { code, message, mut data }: RpcError,
) -> Problem {
    shared.names.error_data_to_caller(&mut data);
    let kind = match code {
        -32602 | -32600 => ProblemCode::BadRequest,
        -32601 | -32002 => ProblemCode::NotFound,
        _ => ProblemCode::ToolError,
    };
    let name = shared.settings.name();
    let mut problem = Problem::new(
        kind,
        format!("upstream '{name}': {}", moonlark_core::problem::cut_message(&message)),
    );
    problem.refusal = Some(Box::new(ProtocolError { code, message, data }));
    problem
}
