//! What the HTTP server answers: REST, MCP and the checks in front of both.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use moonlark_core::{Code, Gateway, Problem};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::access::{self, Access};
use crate::mcp::{Mcp, Straight};
use crate::who::Who;
use crate::{VERSION, mcp, record, rest, status};

/// What the operator decides about the server.
#[derive(Debug, Clone)]
pub struct Options {
    /// Host names to answer to, beside those of this machine.
    pub allowed_hosts: Vec<String>,
    /// Browser origins that may call.
    pub allowed_origins: Vec<String>,
    /// Largest request body, in bytes.
    pub request_body: usize,
}

/// Everything the server answers.
pub fn router(gateway: Gateway, options: Options, stop: CancellationToken) -> Router {
    let access =
        Arc::new(Access { hosts: options.allowed_hosts, origins: options.allowed_origins });
    let state = rest::State::new(gateway.clone(), options.request_body);
    Router::new()
        .route("/", get(index))
        .route("/health", get(record::health))
        .route("/ready", get(record::health))
        .route("/tools/list", get(rest::list))
        .route("/tools/{name}", post(rest::call).get(rest::call_by_get))
        .route("/sources", get(rest::sources))
        .route("/runs", get(record::runs))
        .route("/runs/{id}", get(record::run))
        .route("/approvals", get(record::approvals))
        .route("/approvals/{id}", get(record::approval))
        .route("/approvals/{id}/{decision}", post(record::decide))
        .route("/openapi.json", get(rest::openapi))
        .with_state(state)
        .nest_service("/mcp", mcp(gateway, options.request_body, stop))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .layer(axum::middleware::from_fn_with_state(access, access::check))
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
    let first = async |State(straight): State<Arc<Straight>>, request: Request, next: Next| {
        let who = Who::of(request.extensions());
        who.during(straight.serve(request, next)).await
    };
    Router::new()
        .fallback_service(mcp::http_service(mcp, request_body, stop))
        .layer(axum::middleware::from_fn(ended))
        .layer(axum::middleware::from_fn_with_state(straight, first))
}

async fn index() -> Response {
    axum::Json(json!({
        "name": "moonlark",
        "version": VERSION,
        "mcp": "/mcp",
        "rest": ["GET /tools/list", "POST /tools/{name}", "GET /sources", "GET /runs", "GET /approvals", "GET /health", "GET /openapi.json"],
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
