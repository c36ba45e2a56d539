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
use moonlark_core::trace::Trace;
use moonlark_core::value::Object;

use super::authorize::Authorize;
use super::conversation::Conversation;
use super::http::Http;
use super::opening;
use super::sse::Sse;
use super::stdio::Stdio;
use super::target::Target;
use super::wire::{Failure, Rpc};

/// An open connection. Cheap to clone; dropping the last clone ends it for
/// certain, without waiting for anything.
#[derive(Clone)]
pub(crate) struct Link(Arc<Ends>);

/// Held by nothing that runs in the background, so that dropping it means
/// that nobody is left to ask.
struct Ends {
    carrier: Carrier,
    server: Server,
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
pub(super) enum Carrier {
    Stdio(Stdio),
    Http(Arc<Http>),
    Sse(Arc<Sse>),
}

/// Which of the two protocols a server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Era {
    /// From 2026-07-28 on: every request stands for itself.
    Modern,
    /// Up to 2025-11-25: a handshake first.
    Legacy,
}

/// How the server introduced itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Server {
    pub era: Era,
    pub version: String,
    pub capabilities: Object,
    pub info: Object,
    pub instructions: Option<String>,
}

/// What we tell servers about ourselves.
#[derive(Debug, Clone, Default)]
pub(crate) struct Us {
    /// `clientInfo`
    pub info: Object,
    /// `clientCapabilities`, unless a request's own `_meta` says otherwise.
    pub capabilities: Object,
}

/// What goes with one request.
#[derive(Default)]
pub(crate) struct About {
    /// Merged into `params._meta`, over what is there; only the progress token
    /// is never anybody's but ours.
    pub meta: Object,
    /// Told of notifications, and asked the requests, that belong to this one.
    pub listener: Option<Arc<dyn Listener>>,
    /// Nobody looks at progress: the server need not report it.
    pub quiet: bool,
    /// `Mcp-Param-*`, for HTTP.
    pub headers: Vec<(String, String)>,
    /// Where it is in a trace: for HTTP, beside what `meta` says of it.
    pub trace: Option<Trace>,
    /// Who it is for. What a server says without naming a request is passed on
    /// only while all requests with a listener are for the same one.
    pub owner: u64,
}

/// What the server says that belongs to one request of ours. Called by
/// whoever reads the connection: it must not block.
pub(crate) trait Listener: Send + Sync {
    fn notification(&self, method: &str, params: Object);
    fn request(&self, method: &str, params: Object) -> BoxFuture<'_, Result<Object, Rpc>>;
}

/// What the server says that belongs to no request of ours. Called by whoever
/// reads the connection: it must not block.
pub(crate) trait Inbox: Send + Sync {
    fn notification(&self, method: &str, params: Object);
    fn request(&self, method: &str, params: Object) -> BoxFuture<'_, Result<Object, Rpc>>;
    /// What must not be in the log of what the server says.
    fn secrets(&self) -> Secrets;
}

impl Link {
    /// Start or reach the server, find out its era, shake hands. `era` is what
    /// an earlier opening learned.
    pub(crate) async fn open(
        target: &Target,
        era: Option<Era>,
        auth: Option<Arc<dyn Authorize>>,
        inbox: Arc<dyn Inbox>,
        us: &Us,
    ) -> Result<Link, Problem> {
        let (carrier, server) = opening::open(target, era, auth, inbox, us).await?;
        Ok(Link(Arc::new(Ends { carrier, server })))
    }

    pub(crate) fn peer(&self) -> &Server {
        &self.0.server
    }

    /// Send a request and wait for its answer. Dropping the future cancels it.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: Object,
        about: About,
    ) -> Result<Object, Failure> {
        self.0.carrier.request(method, params, about).await
    }

    /// Resolves when the connection is gone, with why.
    pub(crate) async fn closed(&self) -> Problem {
        self.0.carrier.conversation().closed().await
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.carrier.conversation().is_open()
    }

    /// End it in the way the transport has for that, and then for certain.
    pub(crate) async fn close(&self, pace: ClosePace) {
        self.0.carrier.close(pace).await;
    }
}

impl Carrier {
    pub(super) async fn request(
        &self,
        method: &str,
        params: Object,
        about: About,
    ) -> Result<Object, Failure> {
        match self {
            Carrier::Stdio(stdio) => stdio.request(method, params, about).await,
            Carrier::Http(http) => http.request(method, params, about).await,
            Carrier::Sse(sse) => sse.request(method, params, about).await,
        }
    }

    pub(super) async fn notify(&self, method: &str, params: Object) -> Result<(), Failure> {
        match self {
            Carrier::Stdio(stdio) => stdio.notify(method, params).await,
            Carrier::Http(http) => http.notify(method, params).await,
            Carrier::Sse(sse) => sse.notify(method, params).await,
        }
    }

    pub(super) async fn close(&self, pace: ClosePace) {
        match self {
            Carrier::Stdio(stdio) => stdio.close(pace).await,
            Carrier::Http(http) => http.close(pace).await,
            Carrier::Sse(sse) => sse.close(),
        }
    }

    pub(super) fn conversation(&self) -> &Arc<Conversation> {
        match self {
            Carrier::Stdio(stdio) => stdio.conversation(),
            Carrier::Http(http) => http.conversation(),
            Carrier::Sse(sse) => sse.conversation(),
        }
    }
}

/// Whatever runs in the background ends with the conversation.
impl Drop for Carrier {
    fn drop(&mut self) {
        let name = self.conversation().name();
        self.conversation()
            .end(Problem::unavailable(format!("the connection to upstream '{name}' was dropped")));
    }
}
