//! HTTP+SSE, the transport of 2024-11-05: one stream for everything the server
//! says, whose first event names the address that messages are posted to. With
//! the stream, the connection ends.

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use moonlark_core::Problem;
use moonlark_core::value::Object;
use moonlark_gateway::trace::TraceContext;
use url::Url;

use crate::connection::McpRequestOptions;
use crate::http_endpoint::{HttpEndpoint, HttpFailure, content_type, url_origin};
use crate::json_rpc::{self, RequestFailure};
use crate::pending_requests::RpcAnswer;
use crate::rpc_session::{CancelGuard, RpcReplySender, RpcSession};
use crate::sse_events::{SseEvent, SseEventStream};
use crate::streamable_http::send_in_background;
use moonlark_http::add_trace_headers;

pub(super) struct SseTransport {
    conversation: Arc<RpcSession>,
    /// Where messages are posted to.
    site: HttpEndpoint,
}

impl SseTransport {
    /// Open the stream and wait for the address.
    pub(super) async fn open_stream(
        conversation: Arc<RpcSession>,
        site: HttpEndpoint,
    ) -> Result<Arc<SseTransport>, RequestFailure> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let response = site
            .send_request(Method::GET, headers, Bytes::new())
            .await
            .map_err(|trouble| failure_from_http(&site, trouble))?;
        let name = conversation.name();
        if content_type(&response) != "text/event-stream" {
            return Err(not_sse_failure(name, "answered with no stream of events"));
        }
        let mut events = SseEventStream::new(response, conversation.limits().message);
        let address = loop {
            match events.next().await {
                Some(SseEvent::Message { kind: Some(kind), data }) if kind == "endpoint" => {
                    break data;
                }
                Some(_) => {}
                None => return Err(not_sse_failure(name, "does not say where to send messages")),
            }
        };
        let url = resolve_message_url(site.url(), &address)
            .map_err(|why| not_sse_failure(name, &format!("wants messages at {why}")))?;
        let site = site.with_url(url);
        let sse = Arc::new(SseTransport { conversation, site });
        #[expect(clippy::disallowed_methods, reason = "it ends with the server's stream")]
        tokio::spawn(Arc::clone(&sse).read_events(events));
        Ok(sse)
    }

    pub(super) fn rpc_session(&self) -> &Arc<RpcSession> {
        &self.conversation
    }

    pub(super) async fn send_request(
        self: &Arc<Self>,
        method: &str,
        params: Object,
        about: McpRequestOptions,
    ) -> Result<Object, RequestFailure> {
        let (mut flight, message) = self.conversation.begin_request(method, &params, &about)?;
        let revocable = method != "initialize";
        let mut given_up = CancelGuard::new(flight.id, revocable, send_in_background(self));
        let lost = |_| Err(RequestFailure::Lost(self.conversation.close_reason()));
        let answer: RpcAnswer = tokio::select! {
            biased;
            // It may well come before the server is done with the message.
            answer = &mut flight.answer => answer.unwrap_or_else(lost),
            posted = self.post_message(message, about.trace.as_ref()) => match posted {
                Ok(()) => (&mut flight.answer).await.unwrap_or_else(lost),
                Err(failure) => Err(failure),
            },
        };
        given_up.mark_answered();
        answer
    }

    pub(super) async fn send_notification(&self, method: &str) -> Result<(), RequestFailure> {
        self.post_message(json_rpc::encode_notification(method), None).await
    }

    async fn read_events(self: Arc<Self>, mut events: SseEventStream) {
        let conversation = &self.conversation;
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                _ = conversation.wait_closed() => return,
            };
            match event {
                Some(event) => _ = conversation.on_event(event, None, &self),
                None => break,
            }
        }
        let name = conversation.name();
        conversation
            .close_with(Problem::unavailable(format!("upstream '{name}' ended its stream")));
    }

    async fn post_message(
        &self,
        message: Vec<u8>,
        trace: Option<&TraceContext>,
    ) -> Result<(), RequestFailure> {
        let mut headers = HeaderMap::new();
        if let Some(trace) = trace {
            add_trace_headers(&mut headers, &trace.to_traceparent(), trace.tracestate());
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let posted = self.site.send_request(Method::POST, headers, message.into()).await;
        posted.map(drop).map_err(|trouble| failure_from_http(&self.site, trouble))
    }
}

impl RpcReplySender for SseTransport {
    fn send_reply(self: Arc<Self>, message: Vec<u8>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let _ = self.post_message(message, None).await;
        })
    }
}

fn failure_from_http(site: &HttpEndpoint, trouble: HttpFailure) -> RequestFailure {
    match trouble {
        HttpFailure::Failed(failure) => failure,
        HttpFailure::Status(status, page) => match json_rpc::find_rpc_error(&page) {
            Some((_, rpc)) => RequestFailure::Refused(rpc),
            None => RequestFailure::Lost(site.status_problem(status, &page)),
        },
    }
}

fn not_sse_failure(name: &str, what: &str) -> RequestFailure {
    let hint = format!("if it speaks Streamable HTTP, remove transport of mcp_servers.{name}");
    let problem = Problem::unavailable(format!("upstream '{name}' {what}"));
    RequestFailure::Lost(problem.with_retryable(false).with_hint(hint))
}

/// Messages, and the token that goes with them, are for that server only.
fn resolve_message_url(base: &Url, address: &[u8]) -> Result<Url, String> {
    let text = std::str::from_utf8(address).map(str::trim).map_err(|_| "no address".to_owned())?;
    let url = base.join(text).map_err(|_| "no address".to_owned())?;
    if url.origin() == base.origin() && url.scheme().starts_with("http") {
        Ok(url)
    } else {
        Err(format!("{}, which is another server", url_origin(&url)))
    }
}

#[cfg(test)]
mod tests;
