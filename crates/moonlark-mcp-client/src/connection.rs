//! One connection to an upstream server, whatever carries it: requests out,
//! answers back, and what the server says by itself.
//!
//! It keeps JSON as values and has no opinion on what a method means, so a
//! server's fields arrive as they were sent. It never connects again: that is
//! for whoever holds it.

use std::sync::Arc;

use futures::future::BoxFuture;
use moonlark_core::Problem;
use moonlark_core::secret::Secrets;
use moonlark_core::value::Object;
use moonlark_gateway::trace::TraceContext;

use crate::handshake;
use crate::json_rpc::{RequestFailure, RpcError};
use crate::rpc_session::RpcSession;
use crate::sse_transport::SseTransport;
use crate::stdio_transport::StdioTransport;
use crate::streamable_http::StreamableHttpTransport;
use crate::upstream_target::UpstreamTarget;
use moonlark_http::RequestAuthorizer;

/// An open connection. Cheap to clone; dropping the last clone ends it for
/// certain, without waiting for anything.
#[derive(Clone)]
pub(crate) struct McpConnection(Arc<McpConnectionInner>);

/// Held by nothing that runs in the background, so that dropping it means
/// that nobody is left to ask.
struct McpConnectionInner {
    carrier: McpTransport,
    server: McpPeer,
}

/// How much time a connection has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosePace {
    /// As the other side likes it.
    Gentle,
    /// Moonlark itself is to be gone in a moment.
    Quick,
}

/// What carries the messages.
pub(super) enum McpTransport {
    Stdio(StdioTransport),
    Http(Arc<StreamableHttpTransport>),
    Sse(Arc<SseTransport>),
}

/// Which of the two protocols a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProtocolEra {
    /// From 2026-07-28 on: every request stands for itself.
    Modern,
    /// Up to 2025-11-25: a handshake first.
    Legacy,
}

/// How the server introduced itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct McpPeer {
    pub era: ProtocolEra,
    pub version: String,
    pub capabilities: Object,
    pub info: Object,
    pub instructions: Option<String>,
}

/// What we tell servers about ourselves.
#[derive(Debug, Clone, Default)]
pub(crate) struct McpClientIdentity {
    /// `clientInfo`
    pub info: Object,
    /// `clientCapabilities`, unless a request's own `_meta` says otherwise.
    pub capabilities: Object,
}

/// What goes with one request.
#[derive(Default)]
pub(crate) struct McpRequestOptions {
    /// Merged into `params._meta`, over what is there; only the progress token
    /// is never anybody's but ours.
    pub meta: Object,
    /// Told of notifications, and asked the requests, that belong to this one.
    pub listener: Option<Arc<dyn RequestListener>>,
    /// Nobody looks at progress: the server need not report it.
    pub quiet: bool,
    /// `Mcp-Param-*`, for HTTP.
    pub headers: Vec<(String, String)>,
    /// Where it is in a trace: for HTTP, beside what `meta` says of it.
    pub trace: Option<TraceContext>,
    /// Who it is for. What a server says without naming a request is passed on
    /// only while all requests with a listener are for the same one.
    pub owner: u64,
}

/// What the server says. Called by whoever reads the connection: it must not block.
pub(crate) trait RequestListener: Send + Sync {
    fn on_notification(&self, method: &str, params: Object);
    fn on_request(&self, method: &str, params: Object) -> BoxFuture<'_, Result<Object, RpcError>>;
}

/// Is told what the server says that belongs to no request of ours.
pub(crate) trait ConnectionInbox: RequestListener {
    /// What must not be in the log of what the server says.
    fn secrets(&self) -> Secrets;
}

impl McpConnection {
    /// Start or reach the server, find out its era, shake hands. `era` is what
    /// an earlier opening learned.
    pub(crate) async fn open_connection(
        target: &UpstreamTarget,
        era: Option<ProtocolEra>,
        auth: Option<Arc<dyn RequestAuthorizer>>,
        inbox: Arc<dyn ConnectionInbox>,
        us: &McpClientIdentity,
    ) -> Result<McpConnection, Problem> {
        let (carrier, server) = handshake::connect_transport(target, era, auth, inbox, us).await?;
        Ok(McpConnection(Arc::new(McpConnectionInner { carrier, server })))
    }

    pub(crate) fn peer(&self) -> &McpPeer {
        &self.0.server
    }

    /// Send a request and wait for its answer. Dropping the future cancels it.
    pub(crate) async fn send_request(
        &self,
        method: &str,
        params: Object,
        about: McpRequestOptions,
    ) -> Result<Object, RequestFailure> {
        self.0.carrier.send_request(method, params, about).await
    }

    /// Resolves when the connection is gone, with why.
    pub(crate) async fn wait_closed(&self) -> Problem {
        self.0.carrier.rpc_session().wait_closed().await
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.carrier.rpc_session().is_open()
    }

    /// End it in the way the transport has for that, and then for certain.
    pub(crate) async fn close_connection(&self, pace: ClosePace) {
        self.0.carrier.close_connection(pace).await;
    }
}

impl McpTransport {
    pub(super) async fn send_request(
        &self,
        method: &str,
        params: Object,
        about: McpRequestOptions,
    ) -> Result<Object, RequestFailure> {
        match self {
            McpTransport::Stdio(stdio) => stdio.send_request(method, params, about).await,
            McpTransport::Http(http) => http.send_request(method, params, about).await,
            McpTransport::Sse(sse) => sse.send_request(method, params, about).await,
        }
    }

    /// A notification without parameters.
    pub(super) async fn send_notification(&self, method: &str) -> Result<(), RequestFailure> {
        match self {
            McpTransport::Stdio(stdio) => stdio.send_notification(method).await,
            McpTransport::Http(http) => http.send_notification(method).await,
            McpTransport::Sse(sse) => sse.send_notification(method).await,
        }
    }

    pub(super) async fn close_connection(&self, pace: ClosePace) {
        match self {
            McpTransport::Stdio(stdio) => stdio.close_connection(pace).await,
            McpTransport::Http(http) => http.close_connection(pace).await,
            // Without its stream the server knows that we are gone.
            McpTransport::Sse(sse) => sse.rpc_session().close(),
        }
    }

    pub(super) fn rpc_session(&self) -> &Arc<RpcSession> {
        match self {
            McpTransport::Stdio(stdio) => stdio.rpc_session(),
            McpTransport::Http(http) => http.rpc_session(),
            McpTransport::Sse(sse) => sse.rpc_session(),
        }
    }
}

/// Whatever runs in the background ends with the conversation.
impl Drop for McpTransport {
    fn drop(&mut self) {
        let name = self.rpc_session().name();
        self.rpc_session().close_with(Problem::unavailable(format!(
            "the connection to upstream '{name}' was dropped"
        )));
    }
}
