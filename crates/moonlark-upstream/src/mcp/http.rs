//! Streamable HTTP: a POST for every message. In the legacy era a session goes
//! with it, and a stream for what the server says by itself.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use moonlark_core::value::{Object, shorten};
use moonlark_core::{Code, Problem, Value};
use reqwest::Response;

use super::conversation::{Conversation, Reply};
use super::link::{About, ClosePace, Era};
use super::param_headers::header_safe;
use super::pending::Answer;
use super::site::{Site, Trouble, content_type};
use super::wire::{self, Failure, Rpc};
use crate::trace_headers;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// For what is sent without anybody waiting for it.
const PATIENCE: Duration = Duration::from_secs(2);
const QUICK_CLOSE_TIMEOUT: Duration = Duration::from_millis(200);

pub(super) struct Http {
    conversation: Arc<Conversation>,
    site: Site,
    era: Era,
    version: OnceLock<HeaderValue>,
    session: OnceLock<HeaderValue>,
}

impl Http {
    pub(super) fn new(conversation: Arc<Conversation>, site: Site, era: Era) -> Arc<Http> {
        let (version, session) = Default::default();
        Arc::new(Http { conversation, site, era, version, session })
    }

    /// The version to speak from now on.
    pub(super) fn agree(&self, version: &str) {
        if let Ok(version) = HeaderValue::from_str(version) {
            let _ = self.version.set(version);
        }
    }

    pub(super) fn conversation(&self) -> &Arc<Conversation> {
        &self.conversation
    }

    pub(super) fn era(&self) -> Era {
        self.era
    }

    pub(super) async fn request(
        self: &Arc<Self>,
        method: &str,
        params: Object,
        about: About,
    ) -> Result<Object, Failure> {
        let (mut flight, message) = self.conversation.begin(method, &params, &about)?;
        let mut headers = self.headers(method, &params, &about.headers);
        trace_headers::add(&mut headers, about.trace.as_ref());
        // Modern servers see it by the connection, and a handshake cannot be
        // called off.
        let revocable = self.era == Era::Legacy && method != "initialize";
        let mut given_up = GivenUp::new(self, flight.id, revocable);
        let exchange = self.exchange(flight.id, method, headers, message.into());
        let answer = tokio::select! {
            biased;
            answer = exchange => answer,
            // On another stream, or never.
            answer = &mut flight.answer => answer
                .unwrap_or_else(|_| Err(Failure::Lost(self.conversation.reason()))),
        };
        given_up.answered();
        answer
    }

    pub(super) async fn notify(&self, method: &str, params: Object) -> Result<(), Failure> {
        let message = wire::notification(method, &params).map_err(Failure::NotSent)?;
        let headers = self.headers(method, &params, &[]);
        self.post(None, headers, message.into()).await.map(drop)
    }

    /// Give the session back.
    pub(super) async fn close(&self, pace: ClosePace) {
        if self.session.get().is_some() && self.conversation.is_open() {
            let request = self.site.ask(Method::DELETE, self.common(), Bytes::new());
            // Servers need not know this, and it makes no difference to us.
            let patience = match pace {
                ClosePace::Gentle => PATIENCE,
                ClosePace::Quick => QUICK_CLOSE_TIMEOUT,
            };
            let _ = tokio::time::timeout(patience, request).await;
        }
        let name = self.conversation.name();
        self.conversation
            .end(Problem::unavailable(format!("the connection to upstream '{name}' was closed")));
    }

    /// A stream of the server's own: all it has to say, or the rest of what it
    /// was saying when a stream broke off.
    pub(super) async fn get(&self, last_event: Option<&str>) -> Result<Response, Trouble> {
        let mut headers = self.common();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(id) = last_event.and_then(|id| HeaderValue::from_str(id).ok()) {
            headers.insert(LAST_EVENT, id);
        }
        self.site.ask(Method::GET, headers, Bytes::new()).await
    }

    async fn exchange(
        self: &Arc<Self>,
        id: u64,
        method: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> Answer {
        let response = self.post(Some(id), headers, body).await?;
        if method == "initialize"
            && let Some(session) = response.headers().get(SESSION)
        {
            let _ = self.session.set(session.clone());
        }
        match content_type(&response) {
            "text/event-stream" => self.follow(id, response).await,
            "application/json" => {
                let most = self.conversation.limits().message;
                let text = self.site.read(response, most).await?;
                let answer = self.conversation.hear(&text, Some(id), self);
                answer.unwrap_or_else(|| Err(self.no_answer("something else")))
            }
            "" => Err(self.no_answer("nothing")),
            other => Err(self.no_answer(&shorten(other))),
        }
    }

    async fn post(
        &self,
        id: Option<u64>,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, Failure> {
        self.site.ask(Method::POST, headers, body).await.map_err(|trouble| match trouble {
            Trouble::Failed(failure) => {
                // Nobody is there: whoever keeps this connected is to know.
                if let Failure::NotSent(problem) = &failure
                    && problem.retryable()
                    && problem.code == Code::Unavailable
                    && problem.retry_after.is_none()
                {
                    self.conversation.end(problem.clone());
                }
                failure
            }
            Trouble::Status(status, page) => self.refused(id, status, &page),
        })
    }

    fn refused(&self, id: Option<u64>, status: StatusCode, page: &[u8]) -> Failure {
        let error = wire::error_in(page);
        if self.session_ended(id, status, error.as_ref()) {
            return Failure::NotSent(self.conversation.reason());
        }
        match error {
            Some((_, rpc)) => Failure::Refused(rpc),
            None => Failure::Lost(self.site.refused(status, page)),
        }
    }

    /// Whether a status says that the session is no more, and then so is this.
    pub(super) fn session_ended(
        &self,
        id: Option<u64>,
        status: StatusCode,
        error: Option<&(Option<u64>, Rpc)>,
    ) -> bool {
        let ours = error.is_some_and(|(whose, _)| whose.is_some() && *whose == id);
        let ended = match status {
            _ if self.session.get().is_none() || ours => false,
            StatusCode::NOT_FOUND => true,
            // Servers built after the example of the official SDK. Nothing but
            // the text tells it from other bad requests.
            StatusCode::BAD_REQUEST => error.is_some_and(|(_, rpc)| {
                let text = rpc.message.to_ascii_lowercase();
                text.contains("session") || text.contains("not initialized")
            }),
            _ => false,
        };
        if ended {
            let name = self.conversation.name();
            let problem = Problem::unavailable(format!("upstream '{name}' ended the session"));
            self.conversation.end(problem.hint("it was probably restarted; connect again"));
        }
        ended
    }

    fn no_answer(&self, what: &str) -> Failure {
        let name = self.conversation.name();
        let message = format!("upstream '{name}' answered with {what} where JSON or events belong");
        Failure::Lost(
            Problem::unavailable(message)
                .retryable_if(false)
                .hint(format!("see whether url of mcp_servers.{name} is that of an MCP server")),
        )
    }

    fn headers(&self, method: &str, params: &Object, more: &[(String, String)]) -> HeaderMap {
        let mut headers = self.common();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        if self.era == Era::Legacy {
            return headers;
        }
        let mut insert = |name: HeaderName, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        if !method.is_empty() {
            insert(METHOD, method);
        }
        if let Some(name) = name_in(method, params) {
            insert(NAME, &header_safe(name));
        }
        for (name, value) in more {
            if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
                insert(name, value);
            }
        }
        headers
    }

    /// What goes with everything.
    fn common(&self) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(16);
        if let Some(version) = self.version.get() {
            headers.insert(VERSION, version.clone());
        }
        if let Some(session) = self.session.get() {
            headers.insert(SESSION, session.clone());
        }
        headers
    }
}

/// What a request is about, for whoever routes it without reading it.
fn name_in<'a>(method: &str, params: &'a Object) -> Option<&'a str> {
    let key = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => "uri",
        _ if method.starts_with("tasks/") => "taskId",
        _ => return None,
    };
    params.get(key).and_then(Value::as_str)
}

impl Reply for Http {
    fn reply(self: Arc<Self>, message: Vec<u8>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let headers = self.headers("", &Object::new(), &[]);
            let _ = self.post(None, headers, message.into()).await;
        })
    }
}

/// Tells the server when nobody waits for a request any more.
pub(super) struct GivenUp<T: Reply + 'static> {
    back: Option<Arc<T>>,
    id: u64,
}

impl<T: Reply + 'static> GivenUp<T> {
    pub(super) fn new(back: &Arc<T>, id: u64, revocable: bool) -> GivenUp<T> {
        GivenUp { back: revocable.then(|| Arc::clone(back)), id }
    }

    pub(super) fn answered(&mut self) {
        self.back = None;
    }
}

impl<T: Reply + 'static> Drop for GivenUp<T> {
    fn drop(&mut self) {
        // Without a runtime there is no connection either.
        if let Some(back) = self.back.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let told = back.reply(wire::cancelled(self.id));
            runtime.spawn(async move { drop(tokio::time::timeout(PATIENCE, told).await) });
        }
    }
}

#[cfg(test)]
mod tests;
