//! REST: `GET /tools/list`, `POST /tools/{name}`, `GET /openapi.json`.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State as Extract};
use axum::response::sse::{Event as Sse, KeepAlive};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use http::{HeaderMap, HeaderValue, header};
use moonlark_child::spawn_owned;
use moonlark_core::limits::format_size;
use moonlark_core::secret::SecretText;
use moonlark_core::source_resources::SourceHealth;
use moonlark_core::tool::SourceKind;
use moonlark_core::{Problem, ProblemCode, Result, Tool, Value};
use moonlark_gateway::call::{CallEventSink, LogLevel};
use moonlark_gateway::gateway::CallOptions;
use moonlark_gateway::per_catalog::PerCatalog;
use moonlark_gateway::trace::TraceContext;
use moonlark_gateway::{CallEvent, Caller, Gateway};
use serde_json::{Value as Json, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

use crate::http_status::ProblemResponse;
use crate::principal::Principal;
use crate::{http_status, journal_routes, request_trace, server_openapi};

#[derive(Clone)]
pub(crate) struct RestState(Arc<RestStateInner>);

struct RestStateInner {
    gateway: Gateway,
    request_body: usize,
    /// The answers to `/tools/list`.
    listings: PerCatalog<Bytes>,
    /// Every source has been tried once. What is added later makes nobody wait.
    ready: AtomicBool,
}

impl RestState {
    pub(crate) fn gateway(&self) -> &Gateway {
        &self.0.gateway
    }

    pub(crate) fn new(gateway: Gateway, request_body: usize) -> Self {
        let (listings, ready) = Default::default();
        Self(Arc::new(RestStateInner { gateway, request_body, listings, ready }))
    }

    /// What a server that has just started still waits for; none from when it had
    /// everything for the first time.
    pub(crate) fn start_progress(&self) -> Option<StartProgress> {
        if self.0.ready.load(Ordering::Relaxed) {
            return None;
        }
        let catalog = self.0.gateway.catalog();
        let awaits = StartProgress {
            loading: catalog.is_loading(),
            connecting: catalog.connecting_sources().len(),
        };
        if !awaits.loading && awaits.connecting == 0 {
            self.0.ready.store(true, Ordering::Relaxed);
            return None;
        }
        Some(awaits)
    }
}

/// What is not there yet.
pub(crate) struct StartProgress {
    /// Scripts are being loaded.
    pub(crate) loading: bool,
    /// How many servers and APIs have not been reached, or failed, yet.
    pub(crate) connecting: usize,
}

pub(crate) async fn list_tools(
    Extract(RestState(shared)): Extract<RestState>,
    who: Principal,
) -> Response {
    let catalog = shared.gateway.settled_catalog(&who.to_caller("rest")).await;
    let body = shared.listings.get_or_make(&catalog, || {
        let tools: Vec<Json> = catalog.tools_for_agents().map(|tool| describe_tool(tool)).collect();
        Bytes::from(json!({ "tools": tools }).to_string())
    });
    json_response(Bytes::clone(&body))
}

fn describe_tool(tool: &Tool) -> Json {
    let mut described = json!({
        "name": tool.name,
        "description": tool.description,
        "builtin": tool.source.kind == SourceKind::Builtin,
        "parameters": **tool.input.json(),
    });
    if let Some(title) = &tool.title {
        described["title"] = title.as_str().into();
    }
    described
}

pub(crate) async fn serve_openapi(
    Extract(RestState(shared)): Extract<RestState>,
    who: Principal,
) -> Response {
    let catalog = shared.gateway.settled_catalog(&who.to_caller("rest")).await;
    axum::Json(server_openapi::build_openapi_document(&catalog)).into_response()
}

pub(crate) async fn call_tool(
    Extract(RestState(shared)): Extract<RestState>,
    Path(name): Path<String>,
    who: Principal,
    request: Request,
) -> Result<Response, ProblemResponse> {
    let (parts, body) = request.into_parts();
    let args = read_body(&shared, &parts.headers, body).await?;
    answer_call(&shared, name, args, who, &parts.headers).await
}

/// Reading by GET, for tools that only read and need no parameters.
pub(crate) async fn call_tool_by_get(
    Extract(RestState(shared)): Extract<RestState>,
    Path(name): Path<String>,
    who: Principal,
    headers: HeaderMap,
) -> Result<Response, ProblemResponse> {
    let catalog = shared.gateway.loaded_catalog(&who.to_caller("rest")).await;
    let tool = catalog.find_tool_for_agents(&name)?;
    if !tool.effects.read_only || tool.input.json().contains_key("required") {
        let message = format!("the tool {name} is called with POST");
        return Err(Problem::new(ProblemCode::MethodNotAllowed, message)
            .with_hint("send its parameters as a JSON object")
            .into());
    }
    answer_call(&shared, name, Value::Object(Default::default()), who, &headers).await
}

async fn read_body(shared: &RestStateInner, headers: &HeaderMap, body: Body) -> Result<Value> {
    // How slowly it may arrive is limited by `body_timeout`.
    let body = axum::body::to_bytes(body, shared.request_body).await;
    let body = body.map_err(|error| {
        // axum tells a broken connection from a body over the limit only by
        // the source of the error.
        let over = std::error::Error::source(&error)
            .is_some_and(|source| source.is::<http_body_util::LengthLimitError>());
        if over {
            let most = format_size(shared.request_body);
            let message = format!("the request body is larger than {most}");
            Problem::new(ProblemCode::TooLarge, message)
                .with_hint("send less, or raise limits.request_body")
        } else {
            Problem::bad_request("the request body did not arrive whole")
        }
    })?;
    if body.is_empty() {
        return Ok(Value::Object(Default::default()));
    }
    let kind =
        headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let is_json = kind.eq_ignore_ascii_case("application/json")
        || (kind.to_ascii_lowercase().starts_with("application/")
            && kind.to_ascii_lowercase().ends_with("+json"));
    if !is_json {
        let message = if kind.is_empty() {
            "the request body must be JSON; no Content-Type was sent".to_owned()
        } else {
            format!("the request body must be JSON, not {kind}")
        };
        return Err(Problem::new(ProblemCode::UnsupportedMediaType, message)
            .with_hint("send the header Content-Type: application/json"));
    }
    let args = Value::parse_json(&body).map_err(|mut problem| {
        // Too deep is the caller's mistake here, not a limit of a script.
        problem.code = ProblemCode::BadRequest;
        problem
    })?;
    match args {
        Value::Object(_) => Ok(args),
        other => Err(Problem::bad_request(format!(
            "the request body must be a JSON object, got {}",
            other.kind()
        ))),
    }
}

async fn answer_call(
    shared: &RestStateInner,
    name: String,
    args: Value,
    who: Principal,
    headers: &HeaderMap,
) -> Result<Response, ProblemResponse> {
    let streams = headers
        .get(header::ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.contains("text/event-stream"));
    let agent = headers.get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
    let caller = Caller { client: agent.map(str::to_owned), ..who.to_caller("rest") };
    let asker = RestCaller {
        caller,
        tokens: journal_routes::approval_tokens(headers),
        trace: request_trace::trace_from_headers(headers),
    };
    if streams {
        return Ok(stream_call(shared.gateway.clone(), asker, name, args));
    }
    let body = run_tool(&shared.gateway, asker, None, &name, args).await?;
    Ok(json_response(body.into()))
}

/// Who asks, and what came with that.
struct RestCaller {
    caller: Caller,
    /// Of approvals.
    tokens: Vec<SecretText>,
    trace: Option<TraceContext>,
}

/// Call and encode: `{"result": …}`.
async fn run_tool(
    gateway: &Gateway,
    asker: RestCaller,
    events: Option<CallEventSink>,
    name: &str,
    args: Value,
) -> Result<String> {
    let options = CallOptions::from(asker.caller).with_events(events);
    let call = gateway.open_call_when_admitted(options).await?.with_trace(asker.trace);
    if !asker.tokens.is_empty() {
        call.present_approval_tokens(asker.tokens);
    }
    let result = gateway.call(&call, name, args).await?;
    Ok(format!("{{\"result\":{}}}", result.encode_json("result")?))
}

/// The same as server-sent events: `log`, `progress`, and `result` at the end.
fn stream_call(gateway: Gateway, asker: RestCaller, name: String, args: Value) -> Response {
    // Unbounded but for the limits: log output is capped per call and progress
    // is thinned out.
    let (sender, receiver) = mpsc::unbounded_channel();
    let events = sender.clone();
    let events: CallEventSink = Arc::new(move |event| {
        let _ = events.send(describe_event(event));
    });
    // The client going away drops the stream, and with it the call.
    let task = spawn_owned(async move {
        let last = match run_tool(&gateway, asker, Some(events), &name, args).await {
            Ok(body) => body,
            Err(problem) => http_status::problem_body(&problem).to_string(),
        };
        let _ = sender.send(("result", last));
    });
    let stream = UnboundedReceiverStream::new(receiver).map(move |(kind, data)| {
        let _ = &task;
        Ok::<_, Infallible>(Sse::default().event(kind).data(data))
    });
    axum::response::Sse::new(stream).keep_alive(KeepAlive::default()).into_response()
}

/// How the servers behind this one are doing.
pub(crate) async fn list_sources(
    Extract(RestState(shared)): Extract<RestState>,
    who: Principal,
) -> Response {
    let catalog = shared.gateway.loaded_catalog(&who.to_caller("rest")).await;
    let upstreams: Vec<Json> = catalog.health().iter().map(source_health_json).collect();
    axum::Json(json!({ "upstreams": upstreams })).into_response()
}

/// One of them, for REST and the command line alike.
pub fn source_health_json(health: &SourceHealth) -> Json {
    json!({
        "name": health.source,
        "state": health.state.as_str(),
        "server": health.server,
        "protocol": health.protocol,
        "tools": health.tools,
        "resources": health.resources,
        "prompts": health.prompts,
        "remembered": health.is_remembered,
        "error": health.problem.as_ref().map(Problem::to_json),
        "flaws": health.flaws.iter().map(Problem::to_json).collect::<Vec<_>>(),
    })
}

fn describe_event(event: CallEvent) -> (&'static str, String) {
    match event {
        CallEvent::Log { level, message, fields } => {
            let mut log = json!({"level": LogLevel::as_str(level), "message": message});
            if let Some(fields) = fields {
                log["fields"] = fields.to_json_lossy();
            }
            ("log", log.to_string())
        }
        CallEvent::Relayed { level, logger, data } => {
            let data = data.to_json_lossy();
            ("log", json!({"level": level, "logger": logger, "data": data}).to_string())
        }
        CallEvent::Step(step) => {
            let millis = |time: std::time::Duration| time.as_secs_f64() * 1000.0;
            let took = step.took.map(millis);
            let call = json!({"tool": step.tool, "at_ms": millis(step.at), "took_ms": took, "outcome": step.outcome.as_str()});
            ("call", call.to_string())
        }
        CallEvent::Progress { done, total, message } => {
            ("progress", json!({"done": done, "total": total, "message": message}).to_string())
        }
    }
}

fn json_response(body: Bytes) -> Response {
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    ([kind], body).into_response()
}
