//! What the HTTP server answers: REST, MCP and the checks in gate of both.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use moonlark_core::{Problem, ProblemCode};
use moonlark_gateway::Gateway;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tower::Layer;
use tower::util::BoxCloneSyncService;

use crate::auth::{self, RequestAuthenticator};
use crate::http_status::ProblemResponse;
use crate::mcp::{McpFastPath, McpServer, McpSessions, SessionVault};
use crate::origin_policy::{self, OriginPolicy};
use crate::principal::Principal;
use crate::{MOONLARK_VERSION, journal_routes, mcp, metrics, rest_routes, run_routes};

/// The server, as whoever serves connections has it.
pub type HttpApp = BoxCloneSyncService<Request, Response, Infallible>;

/// Where MCP is.
const MCP_ROUTE: &str = "/mcp";

/// What the operator decides about the server.
#[derive(Clone)]
pub struct HttpServerOptions {
    /// Host names to answer to, beside those of this machine.
    pub allowed_hosts: Vec<String>,
    /// Browser origins that may call.
    pub allowed_origins: Vec<String>,
    /// Largest request body, in bytes.
    pub request_body: usize,
    /// Who may call.
    pub callers: CallerIdentification,
    /// What is kept of sessions beyond this process.
    pub sessions: Arc<SessionVault>,
}

/// How it is found out who is calling.
#[derive(Clone)]
pub enum CallerIdentification {
    /// Everybody is nobody.
    Anybody,
    /// By the tokens that requests carry.
    Authenticated(Arc<RequestAuthenticator>),
    /// Whoever connects was found to be the operator before: the operating system
    /// said so.
    Owner,
}

/// Everything the server answers.
pub fn build_http_app(
    gateway: Gateway,
    options: HttpServerOptions,
    stop: CancellationToken,
) -> HttpApp {
    let state = rest_routes::RestState::new(gateway.clone(), options.request_body);
    metrics::note_start();
    let mcp = McpServer::new(gateway.clone(), Principal::default());
    let sessions = Arc::new(McpSessions::new(options.sessions.clone(), stop));
    let routes = Router::new()
        .route("/", get(serve_index))
        .route("/health", get(journal_routes::show_health))
        .route("/ready", get(journal_routes::show_readiness))
        .route("/tools/list", get(rest_routes::list_tools))
        .route("/tools/{name}", post(rest_routes::call_tool).get(rest_routes::call_tool_by_get))
        .route("/sources", get(rest_routes::list_sources))
        .route("/metrics", get(metrics::serve_metrics))
        .route("/runs", get(journal_routes::list_runs))
        .route("/runs/{id}", get(journal_routes::show_run))
        .route("/runs/{id}/fork", post(run_routes::fork_run))
        .route("/runs/{id}/diff/{other}", get(run_routes::diff_runs))
        .route("/runs/{id}/trace", get(run_routes::trace_run))
        .route("/approvals", get(journal_routes::list_approvals))
        .route("/approvals/{id}", get(journal_routes::show_approval))
        .route("/approvals/{id}/{decision}", post(journal_routes::decide_approval))
        .route("/openapi.json", get(rest_routes::serve_openapi))
        .with_state(state)
        .nest_service(MCP_ROUTE, sdk_routes(mcp.clone(), sessions.clone(), options.request_body))
        .fallback(no_route_response)
        .method_not_allowed_fallback(no_method_response);
    let routes = match &options.callers {
        CallerIdentification::Authenticated(auth) => {
            routes.merge(auth_discovery_routes(auth.clone()))
        }
        CallerIdentification::Anybody | CallerIdentification::Owner => routes,
    };
    let gate = RequestGate {
        access: OriginPolicy { hosts: options.allowed_hosts, origins: options.allowed_origins },
        callers: options.callers,
        fast_path: McpFastPath::new(mcp, options.request_body),
        sessions,
        request_body: options.request_body,
    };
    HttpApp::new(from_fn_with_state(Arc::new(gate), RequestGate::serve_request).layer(routes))
}

/// What every request passes before it is looked up what it is for.
struct RequestGate {
    access: OriginPolicy,
    callers: CallerIdentification,
    fast_path: McpFastPath,
    sessions: Arc<McpSessions>,
    /// Largest request body, in bytes.
    request_body: usize,
}

impl RequestGate {
    async fn serve_request(
        State(gate): State<Arc<RequestGate>>,
        request: Request,
        next: Next,
    ) -> Response {
        let allowed = async |request| gate.identify_caller(request, next).await;
        origin_policy::check_origin(&gate.access, request, allowed).await
    }

    async fn identify_caller(&self, mut request: Request, next: Next) -> Response {
        match &self.callers {
            CallerIdentification::Owner => {
                request.extensions_mut().insert(Principal::local().with_operator(true));
                self.route_request(request, next).await
            }
            CallerIdentification::Authenticated(auth) if !is_public_path(request.uri().path()) => {
                auth::authenticate_request(auth, request, async |request| {
                    self.route_request(request, next).await
                })
                .await
            }
            _ => self.route_request(request, next).await,
        }
    }

    async fn route_request(&self, request: Request, next: Next) -> Response {
        let path = request.uri().path();
        // The SDK takes everything below its own path for MCP.
        if path.starts_with("/mcp/.well-known/") {
            return no_route_response(request.uri().clone()).await.into_response();
        }
        if path != MCP_ROUTE {
            return next.run(request).await;
        }
        // The future of every request has room for what is awaited here, and is moved several
        // times before it runs: what is large is behind a pointer.
        let served = match Box::pin(self.fast_path.try_serve(request)).await {
            Err(request) => Box::pin(self.sessions.try_serve(request, self.request_body)).await,
            served => served,
        };
        match served {
            Ok(response) => response,
            Err(request) => next.run(request).await,
        }
    }
}

/// Whether anybody may ask for it. Clients without a token look for an authorization
/// server below `.well-known`; that there is none is no secret.
fn is_public_path(path: &str) -> bool {
    let below = |folder: &str| path.strip_prefix(folder).is_some_and(|it| it.starts_with('/'));
    below("/.well-known")
        || below("/mcp/.well-known")
        || auth::LOGIN_PATHS.contains(&path)
        || matches!(path, "/health" | "/ready")
}

/// What clients read, and where they ask, to find out how to get a token.
fn auth_discovery_routes(auth: Arc<RequestAuthenticator>) -> Router {
    let mut routes = Router::new()
        .route(auth::RESOURCE_METADATA_PATH, get(auth::serve_resource_metadata))
        .route(
            &format!("{}{MCP_ROUTE}", auth::RESOURCE_METADATA_PATH),
            get(auth::serve_resource_metadata),
        );
    for path in auth::LOGIN_PATHS {
        routes = routes.route(path, any(auth::explain_tokens));
    }
    routes.with_state(auth)
}

/// MCP as the SDK serves it. It says that it took the end of a session in hand,
/// of which clients then warn; but it is over by then.
fn sdk_routes(mcp: McpServer, sessions: Arc<McpSessions>, request_body: usize) -> Router {
    let ended = async |request: Request, next: Next| {
        let is_end = request.method() == http::Method::DELETE;
        let mut response = next.run(request).await;
        if is_end && response.status() == http::StatusCode::ACCEPTED {
            *response.status_mut() = http::StatusCode::NO_CONTENT;
        }
        response
    };
    let own = async |State(sessions): State<Arc<McpSessions>>, request: Request, next: Next| {
        sessions.serve_request(request, |request| next.run(request)).await
    };
    let service = mcp::http_service(mcp, sessions.clone(), request_body);
    Router::new()
        .fallback_service(service)
        .layer(axum::middleware::from_fn(ended))
        .layer(from_fn_with_state(sessions, own))
}

async fn serve_index() -> Response {
    axum::Json(json!({
        "name": "moonlark",
        "version": MOONLARK_VERSION,
        "mcp": "/mcp",
        "rest": ["GET /tools/list", "POST /tools/{name}", "GET /sources", "GET /runs", "GET /approvals", "GET /health", "GET /ready", "GET /metrics", "GET /openapi.json"],
    }))
    .into_response()
}

async fn no_route_response(uri: http::Uri) -> ProblemResponse {
    let problem = Problem::not_found(format!("no route {}", uri.path()));
    problem.with_hint("GET / lists what is here").into()
}

async fn no_method_response(method: http::Method, uri: http::Uri) -> ProblemResponse {
    let message = format!("{} does not answer to {method}", uri.path());
    Problem::new(ProblemCode::MethodNotAllowed, message).into()
}
