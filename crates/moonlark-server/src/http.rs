//! What the HTTP server answers: REST, MCP and the checks in front of both.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use moonlark_core::{Code, Gateway, Problem};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tower::Layer;
use tower::util::BoxCloneSyncService;

use crate::access::{self, Access};
use crate::auth::{self, Auth};
use crate::mcp::{Mcp, SessionVault, Sessions, Straight};
use crate::who::Who;
use crate::{VERSION, mcp, metrics, record, rest, status};

/// The server, as whoever serves connections has it.
pub type App = BoxCloneSyncService<Request, Response, Infallible>;

/// Where MCP is.
const MCP: &str = "/mcp";

/// What the operator decides about the server.
#[derive(Clone)]
pub struct Options {
    /// Host names to answer to, beside those of this machine.
    pub allowed_hosts: Vec<String>,
    /// Browser origins that may call.
    pub allowed_origins: Vec<String>,
    /// Largest request body, in bytes.
    pub request_body: usize,
    /// Who may call.
    pub callers: Callers,
    /// What is kept of sessions beyond this process.
    pub sessions: Arc<SessionVault>,
}

/// How it is found out who is calling.
#[derive(Clone)]
pub enum Callers {
    /// Everybody is nobody.
    Anybody,
    /// By the tokens that requests carry.
    Authenticated(Arc<Auth>),
    /// Whoever connects was found to be the operator before: the operating system
    /// said so.
    Owner,
}

/// Everything the server answers.
pub fn router(gateway: Gateway, options: Options, stop: CancellationToken) -> App {
    let state = rest::State::new(gateway.clone(), options.request_body);
    metrics::note_start();
    let mcp = Mcp::new(gateway.clone(), Who::default());
    let routes = Router::new()
        .route("/", get(index))
        .route("/health", get(record::health))
        .route("/ready", get(record::ready))
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
        .nest_service(MCP, by_sdk(mcp.clone(), &options, stop))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method);
    let routes = match &options.callers {
        Callers::Authenticated(auth) => routes.merge(well_known(auth.clone())),
        Callers::Anybody | Callers::Owner => routes,
    };
    let front = Front {
        access: Access { hosts: options.allowed_hosts, origins: options.allowed_origins },
        callers: options.callers,
        straight: Straight::new(mcp, options.request_body),
    };
    App::new(from_fn_with_state(Arc::new(front), Front::serve).layer(routes))
}

/// What every request passes before it is looked up what it is for.
struct Front {
    access: Access,
    callers: Callers,
    straight: Straight,
}

impl Front {
    async fn serve(State(front): State<Arc<Front>>, request: Request, next: Next) -> Response {
        let allowed = async |request| front.identify(request, next).await;
        access::check(&front.access, request, allowed).await
    }

    async fn identify(&self, mut request: Request, next: Next) -> Response {
        match &self.callers {
            Callers::Owner => {
                request.extensions_mut().insert(Who::local().operating(true));
                self.answer(request, next).await
            }
            Callers::Authenticated(auth) if !is_open(request.uri().path()) => {
                auth::check(auth, request, async |request| self.answer(request, next).await).await
            }
            _ => self.answer(request, next).await,
        }
    }

    async fn answer(&self, request: Request, next: Next) -> Response {
        let path = request.uri().path();
        // The SDK takes everything below its own path for MCP.
        if path.starts_with("/mcp/.well-known/") {
            return no_route(request.uri().clone()).await;
        }
        if path != MCP {
            return next.run(request).await;
        }
        match self.straight.serve(request).await {
            Ok(response) => response,
            Err(request) => next.run(request).await,
        }
    }
}

/// Whether anybody may ask for it. Clients without a token look for an authorization
/// server below `.well-known`; that there is none is no secret.
fn is_open(path: &str) -> bool {
    let below = |folder: &str| path.strip_prefix(folder).is_some_and(|it| it.starts_with('/'));
    below("/.well-known")
        || below("/mcp/.well-known")
        || auth::LOGIN_PATHS.contains(&path)
        || matches!(path, "/health" | "/ready")
}

/// What clients read, and where they ask, to find out how to get a token.
fn well_known(auth: Arc<Auth>) -> Router {
    let mut routes = Router::new()
        .route(auth::WELL_KNOWN, get(auth::metadata))
        .route(&format!("{}{MCP}", auth::WELL_KNOWN), get(auth::metadata));
    for path in auth::LOGIN_PATHS {
        routes = routes.route(path, any(auth::explain_tokens));
    }
    routes.with_state(auth)
}

/// MCP as the SDK serves it. It says that it took the end of a session in hand,
/// of which clients then warn; but it is over by then.
fn by_sdk(mcp: Mcp, options: &Options, stop: CancellationToken) -> Router {
    let ended = async |request: Request, next: Next| {
        let is_end = request.method() == http::Method::DELETE;
        let mut response = next.run(request).await;
        if is_end && response.status() == http::StatusCode::ACCEPTED {
            *response.status_mut() = http::StatusCode::NO_CONTENT;
        }
        response
    };
    let sessions = Arc::new(Sessions::new(options.sessions.clone()));
    let own = async |State(sessions): State<Arc<Sessions>>, request: Request, next: Next| {
        sessions.serve(request, |request| next.run(request)).await
    };
    let service = mcp::http_service(mcp, sessions.clone(), options.request_body, stop);
    Router::new()
        .fallback_service(service)
        .layer(axum::middleware::from_fn(ended))
        .layer(from_fn_with_state(sessions, own))
}

async fn index() -> Response {
    axum::Json(json!({
        "name": "moonlark",
        "version": VERSION,
        "mcp": "/mcp",
        "rest": ["GET /tools/list", "POST /tools/{name}", "GET /sources", "GET /runs", "GET /approvals", "GET /health", "GET /ready", "GET /metrics", "GET /openapi.json"],
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
