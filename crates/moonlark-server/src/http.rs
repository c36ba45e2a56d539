//! What the HTTP server answers: REST, MCP and the checks in front of both.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use moonlark_core::{Code, Gateway, Problem};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::access::{self, Access};
use crate::auth::{self, Auth};
use crate::mcp::{Mcp, Sessions, Straight};
use crate::who::Who;
use crate::{VERSION, mcp, metrics, record, rest, status};

/// What the operator decides about the server.
#[derive(Clone)]
pub struct Options {
    /// Host names to answer to, beside those of this machine.
    pub allowed_hosts: Vec<String>,
    /// Browser origins that may call.
    pub allowed_origins: Vec<String>,
    /// Largest request body, in bytes.
    pub request_body: usize,
    /// Who finds out who is calling; without, everybody is nobody.
    pub auth: Option<Arc<Auth>>,
}

/// Everything the server answers.
pub fn router(gateway: Gateway, options: Options, stop: CancellationToken) -> Router {
    let access =
        Arc::new(Access { hosts: options.allowed_hosts, origins: options.allowed_origins });
    let state = rest::State::new(gateway.clone(), options.request_body);
    metrics::note_start();
    let open = Router::new()
        .route("/health", get(record::health))
        .route("/ready", get(record::health))
        .with_state(state.clone());
    let closed = Router::new()
        .route("/", get(index))
        .route("/tools/list", get(rest::list))
        .route("/tools/{name}", post(rest::call).get(rest::call_by_get))
        .route("/sources", get(rest::sources))
        .route("/metrics", get(metrics::metrics))
        .route("/runs", get(record::runs))
        .route("/runs/{id}", get(record::run))
        .route("/approvals", get(record::approvals))
        .route("/approvals/{id}", get(record::approval))
        .route("/approvals/{id}/{decision}", post(record::decide))
        .route("/openapi.json", get(rest::openapi))
        .with_state(state)
        .nest_service("/mcp", mcp(gateway, options.request_body, stop))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method);
    let all = match options.auth {
        Some(auth) => closed
            .layer(from_fn_with_state(auth.clone(), auth::check))
            .merge(open)
            .merge(well_known(auth)),
        None => closed.merge(open),
    };
    all.layer(from_fn_with_state(access, access::check))
}

/// What clients read to find out where to get a token.
fn well_known(auth: Arc<Auth>) -> Router {
    Router::new()
        .route(auth::WELL_KNOWN, get(auth::metadata))
        .route(&format!("{}/mcp", auth::WELL_KNOWN), get(auth::metadata))
        .with_state(auth)
}

/// The SDK says that it took the end of a session in hand, of which clients then
/// warn; but it is over by then.
fn mcp(gateway: Gateway, request_body: usize, stop: CancellationToken) -> Router {
    let ended = async |request: Request, next: Next| {
        let is_end = request.method() == http::Method::DELETE;
        let mut response = next.run(request).await;
        if is_end && response.status() == http::StatusCode::ACCEPTED {
            *response.status_mut() = http::StatusCode::NO_CONTENT;
        }
        response
    };
    let mcp = Mcp::new(gateway, Who::default());
    let straight = Arc::new(Straight::new(mcp.clone(), request_body));
    let sessions = Arc::new(Sessions::new());
    let first = async |State((straight, sessions)): State<(Arc<Straight>, Arc<Sessions>)>,
                       request: Request,
                       next: Next| {
        let who = Who::of(request.extensions());
        let session = request.headers().get("mcp-session-id").and_then(|id| id.to_str().ok());
        if session.is_some_and(|id| sessions.is_of_another(id, &who)) {
            // As the SDK says it of one that is not there.
            return (http::StatusCode::NOT_FOUND, "Not Found: Session not found").into_response();
        }
        who.during(straight.serve(request, next)).await
    };
    let both = (straight, sessions.clone());
    Router::new()
        .fallback_service(mcp::http_service(mcp, sessions, request_body, stop))
        .layer(axum::middleware::from_fn(ended))
        .layer(from_fn_with_state(both, first))
}

async fn index() -> Response {
    axum::Json(json!({
        "name": "moonlark",
        "version": VERSION,
        "mcp": "/mcp",
        "rest": ["GET /tools/list", "POST /tools/{name}", "GET /sources", "GET /runs", "GET /approvals", "GET /health", "GET /metrics", "GET /openapi.json"],
    }))
    .into_response()
}

async fn no_route(uri: http::Uri) -> Response {
    status::problem(
        &Problem::new(Code::NotFound, format!("nothing is at {}", uri.path()))
            .hint("GET / lists what is here"),
    )
}

async fn no_method(method: http::Method, uri: http::Uri) -> Response {
    status::problem(&Problem::new(
        Code::MethodNotAllowed,
        format!("{} does not answer to {method}", uri.path()),
    ))
}
