//! Streamable HTTP: a POST for every message. In the legacy era a session goes
//! with it, and a stream for what the server says by itself.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use moonlark_child::try_spawn_to_finish;
use moonlark_core::value::{Object, shorten_text};
use moonlark_core::{Problem, ProblemCode, Value};
use reqwest::Response;

use crate::connection::{ClosePace, McpRequestOptions, ProtocolEra};
use crate::http_endpoint::{HttpEndpoint, HttpFailure, content_type};
use crate::json_rpc::{self, RequestFailure, RpcError};
use crate::param_headers::encode_header_text;
use crate::pending_requests::RpcAnswer;
use crate::rpc_session::{CancelGuard, RpcReplySender, RpcSession};
use moonlark_http::add_trace_headers;

const SESSION_ID_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
const PROTOCOL_VERSION_HEADER: HeaderName = HeaderName::from_static("mcp-protocol-version");
const MCP_METHOD_HEADER: HeaderName = HeaderName::from_static("mcp-method");
const MCP_NAME_HEADER: HeaderName = HeaderName::from_static("mcp-name");
const LAST_EVENT_ID_HEADER: HeaderName = HeaderName::from_static("last-event-id");

/// For what is sent without anybody waiting for it.
const BACKGROUND_SEND_TIMEOUT: Duration = Duration::from_secs(2);
const QUICK_CLOSE_TIMEOUT: Duration = Duration::from_millis(200);

pub(super) struct StreamableHttpTransport {
    conversation: Arc<RpcSession>,
    site: HttpEndpoint,
    era: ProtocolEra,
    version: OnceLock<HeaderValue>,
    session: OnceLock<HeaderValue>,
}

impl StreamableHttpTransport {
    pub(super) fn new(
        conversation: Arc<RpcSession>,
        site: HttpEndpoint,
        era: ProtocolEra,
    ) -> Arc<StreamableHttpTransport> {
        let (version, session) = Default::default();
        Arc::new(StreamableHttpTransport { conversation, site, era, version, session })
    }

    /// The version to speak from now on.
    pub(super) fn set_protocol_version(&self, version: &str) {
        if let Ok(version) = HeaderValue::from_str(version) {
            let _ = self.version.set(version);
        }
    }

    pub(super) fn rpc_session(&self) -> &Arc<RpcSession> {
        &self.conversation
    }

    pub(super) fn era(&self) -> ProtocolEra {
        self.era
    }

    pub(super) async fn send_request(
        self: &Arc<Self>,
        method: &str,
        params: Object,
        about: McpRequestOptions,
    ) -> Result<Object, RequestFailure> {
        let (mut flight, message) = self.conversation.begin_request(method, &params, &about)?;
        let mut headers = self.message_headers(method, &params, &about.headers);
        if let Some(trace) = &about.trace {
            add_trace_headers(&mut headers, &trace.to_traceparent(), trace.tracestate());
        }
        // Modern servers see it by the connection, and a handshake cannot be
        // called off.
        let revocable = self.era == ProtocolEra::Legacy && method != "initialize";
        let mut given_up = CancelGuard::new(flight.id, revocable, send_in_background(self));
        let exchange = self.exchange_message(flight.id, method, headers, message.into());
        let answer = tokio::select! {
            biased;
            answer = exchange => answer,
            // On another stream, or never.
            answer = &mut flight.answer => answer
                .unwrap_or_else(|_| Err(RequestFailure::Lost(self.conversation.close_reason()))),
        };
        given_up.mark_answered();
        answer
    }

    pub(super) async fn send_notification(&self, method: &str) -> Result<(), RequestFailure> {
        let message = json_rpc::encode_notification(method);
        let headers = self.message_headers(method, &Object::new(), &[]);
        self.post_message(None, headers, message.into()).await.map(drop)
    }

    /// Give the session back.
    pub(super) async fn close_connection(&self, pace: ClosePace) {
        if self.session.get().is_some() && self.conversation.is_open() {
            let request =
                self.site.send_request(Method::DELETE, self.common_headers(), Bytes::new());
            // Servers need not know this, and it makes no difference to us.
            let patience = match pace {
                ClosePace::Gentle => BACKGROUND_SEND_TIMEOUT,
                ClosePace::Quick => QUICK_CLOSE_TIMEOUT,
            };
            let _ = tokio::time::timeout(patience, request).await;
        }
        self.conversation.close();
    }

    /// A stream of the server's own: all it has to say, or the rest of what it
    /// was saying when a stream broke off.
    pub(super) async fn open_event_stream(
        &self,
        last_event: Option<&str>,
    ) -> Result<Response, HttpFailure> {
        let mut headers = self.common_headers();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(id) = last_event.and_then(|id| HeaderValue::from_str(id).ok()) {
            headers.insert(LAST_EVENT_ID_HEADER, id);
        }
        self.site.send_request(Method::GET, headers, Bytes::new()).await
    }

    async fn exchange_message(
        self: &Arc<Self>,
        id: u64,
        method: &str,
        headers: HeaderMap,
        body: Bytes,
    ) -> RpcAnswer {
        let response = self.post_message(Some(id), headers, body).await?;
        if method == "initialize"
            && let Some(session) = response.headers().get(SESSION_ID_HEADER)
        {
            let _ = self.session.set(session.clone());
        }
        match content_type(&response) {
            "text/event-stream" => self.read_answer_stream(id, response).await,
            "application/json" => {
                let most = self.conversation.limits().message;
                let text = self.site.read_body(response, most).await?;
                let answer = self.conversation.on_message(&text, Some(id), self);
                answer.unwrap_or_else(|| Err(self.unexpected_content_failure("something else")))
            }
            "" => Err(self.unexpected_content_failure("nothing")),
            other => Err(self.unexpected_content_failure(&shorten_text(other))),
        }
    }

    async fn post_message(
        &self,
        id: Option<u64>,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, RequestFailure> {
        self.site.send_request(Method::POST, headers, body).await.map_err(|trouble| match trouble {
            HttpFailure::Failed(failure) => {
                // Nobody is there: whoever keeps this connected is to know.
                if let RequestFailure::NotSent(problem) = &failure
                    && problem.is_retryable()
                    && problem.code == ProblemCode::Unavailable
                    && problem.retry_after.is_none()
                {
                    self.conversation.close_with(problem.clone());
                }
                failure
            }
            HttpFailure::Status(status, page) => self.failure_from_status(id, status, &page),
        })
    }

    fn failure_from_status(
        &self,
        id: Option<u64>,
        status: StatusCode,
        page: &[u8],
    ) -> RequestFailure {
        let error = json_rpc::find_rpc_error(page);
        if self.end_session_if_gone(id, status, error.as_ref()) {
            return RequestFailure::NotSent(self.conversation.close_reason());
        }
        match error {
            Some((_, rpc)) => RequestFailure::Refused(rpc),
            None => RequestFailure::Lost(self.site.status_problem(status, page)),
        }
    }

    /// Whether a status says that the session is no more, and then so is this.
    pub(super) fn end_session_if_gone(
        &self,
        id: Option<u64>,
        status: StatusCode,
        error: Option<&(Option<u64>, RpcError)>,
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
            self.conversation
                .close_with(problem.with_hint("it was probably restarted; connect again"));
        }
        ended
    }

    fn unexpected_content_failure(&self, what: &str) -> RequestFailure {
        let name = self.conversation.name();
        let message = format!("upstream '{name}' answered with {what} where JSON or events belong");
        RequestFailure::Lost(
            Problem::unavailable(message).with_retryable(false).with_hint(format!(
                "see whether url of mcp_servers.{name} is that of an MCP server"
            )),
        )
    }

    fn message_headers(
        &self,
        method: &str,
        params: &Object,
        more: &[(String, String)],
    ) -> HeaderMap {
        let mut headers = self.common_headers();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        if self.era == ProtocolEra::Legacy {
            return headers;
        }
        let mut insert = |name: HeaderName, value: &str| {
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        if !method.is_empty() {
            insert(MCP_METHOD_HEADER, method);
        }
        if let Some(name) = routing_name(method, params) {
            insert(MCP_NAME_HEADER, &encode_header_text(name));
        }
        for (name, value) in more {
            if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
                insert(name, value);
            }
        }
        headers
    }

    /// What goes with everything.
    fn common_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(16);
        if let Some(version) = self.version.get() {
            headers.insert(PROTOCOL_VERSION_HEADER, version.clone());
        }
        if let Some(session) = self.session.get() {
            headers.insert(SESSION_ID_HEADER, session.clone());
        }
        headers
    }
}

/// What a request is about, for whoever routes it without reading it.
fn routing_name<'a>(method: &str, params: &'a Object) -> Option<&'a str> {
    let key = match method {
        "tools/call" | "prompts/get" => "name",
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => "uri",
        _ if method.starts_with("tasks/") => "taskId",
        _ => return None,
    };
    params.get(key).and_then(Value::as_str)
}

impl RpcReplySender for StreamableHttpTransport {
    fn send_reply(self: Arc<Self>, message: Vec<u8>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let headers = self.message_headers("", &Object::new(), &[]);
            let _ = self.post_message(None, headers, message.into()).await;
        })
    }
}

/// Sends a message that nobody waits for.
pub(super) fn send_in_background<T: RpcReplySender + 'static>(
    back: &Arc<T>,
) -> impl FnOnce(Vec<u8>) + use<T> {
    let back = Arc::clone(back);
    move |message| {
        let sent = back.send_reply(message);
        // Without a runtime there is no connection either.
        try_spawn_to_finish(async move {
            drop(tokio::time::timeout(BACKGROUND_SEND_TIMEOUT, sent).await);
        });
    }
}

#[cfg(test)]
mod tests;
