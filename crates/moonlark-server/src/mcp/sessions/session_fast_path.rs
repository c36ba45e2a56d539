//! The short way of a plain call in a session over HTTP: it runs in the task of its
//! connection, and its answer is written at once.
//!
//! It has what a call has that the SDK serves: its id is taken while it is in progress, it
//! can be cancelled by that, it ends with its session, and it goes on when its client is gone.
//! Where something has to be said before the answer, the SDK goes on with it. From
//! 2025-11-25 on, clients are told at once how to read on if their connection breaks off.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt};
use http::StatusCode;
use http::request::Parts;
use rmcp::model::{
    CancelledNotificationParam, ClientJsonRpcMessage, ClientNotification, JsonRpcRequest,
    Notification, ProtocolVersion,
};
use rmcp::service::RequestContext;
use rmcp::transport::streamable_http_server::session::{ServerSseMessage, SessionId};
use tokio::runtime::Handle;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use super::McpSessions;
use super::answer_events::{WholeAnswer, is_answer};
use super::connected_session::ConnectedSession;
use super::event_response::{stream_events, whole_events, write_event};
use super::session_table::SessionUse;
use crate::mcp::plain_call::{PlainCall, PlainCallClient, parse_plain_call};
use crate::mcp::plain_request::{
    MCP_SESSION_HEADER, PROTOCOL_VERSION_HEADER, is_plain_post, single_header,
};
use crate::mcp::session_call::SessionCallEnd;
use crate::principal::Principal;

/// How long a client waits for the head of the response, where that has nothing to tell it.
const MAX_HEAD_DELAY: Duration = Duration::from_secs(2);

/// An id that no stream of the SDK has.
const NO_STREAM: u64 = u64::MAX;

impl McpSessions {
    /// Answer a plain call of a session that is known here, or give the request back.
    pub(crate) async fn try_serve(
        self: &Arc<Self>,
        request: Request,
        most: usize,
    ) -> Result<Response, Request> {
        let Some((session, version)) = self.plain_session(&request, most) else {
            return Err(request);
        };
        let (parts, body) = request.into_parts();
        let Ok(body) = to_bytes(body, most).await else {
            // It broke off: nobody is there to read this.
            return Ok(StatusCode::BAD_REQUEST.into_response());
        };
        let call = parse_plain_call(&body).filter(|it| it.client == PlainCallClient::Session);
        let begun = call.and_then(|call| {
            let used = self.table.begin_request(&session.name, Some(call.id.clone()))?;
            Some((call, used))
        });
        // Of two requests with the same id, the SDK's way refuses one.
        let Some((call, used)) = begun else {
            return Err(Request::from_parts(parts, Body::from(body)));
        };
        self.keep_awake(&session);
        let knows_priming = version >= ProtocolVersion::V_2025_11_25;
        let events = self.begin_call(session.clone(), call, parts);
        Ok(if knows_priming {
            self.answer_with_priming(&session, events, used).await
        } else {
            self.answer_without_ids(events, used).await
        })
    }

    /// The session, by the headers alone, and its version.
    fn plain_session(
        &self,
        request: &Request,
        most: usize,
    ) -> Option<(Arc<ConnectedSession>, ProtocolVersion)> {
        let headers = request.headers();
        let id = single_header(headers, &MCP_SESSION_HEADER)?;
        let plain = is_plain_post(request, most) && names_old_version(request);
        let who = Principal::from_extensions(request.extensions());
        plain.then(|| self.table.find_connected(id, &who))?
    }

    /// The SDK ends a session that it has heard nothing of for long.
    fn keep_awake(self: &Arc<Self>, session: &Arc<ConnectedSession>) {
        session.keep_awake(|| {
            let (this, name) = (self.clone(), session.name.clone());
            async move {
                this.tell_sdk_of_use(&name).await;
            }
        });
    }

    /// Whether the SDK still has the session. To close a stream that there is not changes
    /// nothing, but the session has heard of somebody.
    async fn tell_sdk_of_use(&self, session: &SessionId) -> bool {
        let handle = self.inner.sessions.read().await.get(session).cloned();
        let Some(handle) = handle else { return false };
        handle.close_request_wise_channel(NO_STREAM).await.is_ok()
    }

    /// Have the SDK serve the request; its events from now on.
    async fn hand_over(
        &self,
        session: &SessionId,
        request: ClientJsonRpcMessage,
        cancelled: &CancellationToken,
    ) -> Option<ReceiverStream<ServerSseMessage>> {
        let ClientJsonRpcMessage::Request(JsonRpcRequest { id, .. }) = &request else {
            return None;
        };
        let cancellation = CancelledNotificationParam::new(Some(id.clone()), None);
        let handle = self.inner.sessions.read().await.get(session).cloned()?;
        let receiver = handle.establish_request_wise_channel().await.ok()?;
        handle.push_message(request, receiver.http_request_id).await.ok()?;
        if cancelled.is_cancelled() {
            // The SDK may have heard of that before it heard of the request.
            let again = ClientNotification::CancelledNotification(Notification::new(cancellation));
            handle.push_message(ClientJsonRpcMessage::notification(again), None).await.ok()?;
        }
        Some(ReceiverStream::new(receiver.inner))
    }

    /// The events of a call, which is run by whoever reads them.
    fn begin_call(
        self: &Arc<Self>,
        session: Arc<ConnectedSession>,
        call: PlainCall,
        parts: Parts,
    ) -> CallEvents {
        let this = self.clone();
        let PlainCall { id, name, args, meta, .. } = call;
        let mut context = RequestContext::new(id.clone(), session.peer.clone());
        context.meta = meta;
        context.extensions.insert(parts);
        let cancelled = context.ct.clone();
        let ticket = session.begin_call(id, cancelled.clone());
        let events = async move {
            let ended = session.server.run_session_call(name, args, context).await;
            let (answer, rest) = match ended {
                // Its client has been told that there is none, or wants none.
                _ if cancelled.is_cancelled() => (None, None),
                SessionCallEnd::Answer(answer) => (Some(answer), None),
                SessionCallEnd::Interrupted(request) => {
                    (None, this.hand_over(&session.name, request, &cancelled).await)
                }
            };
            drop(ticket);
            let answer = stream::iter(answer.map(ServerSseMessage::from_message));
            answer.chain(stream::iter(rest).flatten())
        };
        CallEvents(Some(Box::pin(stream::once(events).flatten())))
    }

    /// The answer for a client that reads on after the last event it got.
    async fn answer_with_priming(
        &self,
        session: &ConnectedSession,
        mut events: CallEvents,
        used: SessionUse,
    ) -> Response {
        let first = match futures::poll!(events.next()) {
            Poll::Ready(Some(event)) if is_answer(&event) => {
                return self.whole_answer_with_priming(session, event);
            }
            Poll::Ready(first) => first,
            Poll::Pending => None,
        };
        let events = stream::iter(first).chain(events);
        let followed = self.answers.follow_answer(session.name.clone(), events, used);
        stream_events(followed)
    }

    fn whole_answer_with_priming(
        &self,
        session: &ConnectedSession,
        answer: ServerSseMessage,
    ) -> Response {
        let mut body = Vec::new();
        let whole = WholeAnswer::new(answer);
        write_event(&mut body, &whole.first);
        let bytes = write_event(&mut body, &whole.answer);
        self.answers.keep_whole_answer(session.name.clone(), whole, bytes);
        whole_events(body)
    }

    /// The answer for a client that reads nothing twice.
    async fn answer_without_ids(&self, mut events: CallEvents, used: SessionUse) -> Response {
        let first = match tokio::time::timeout(MAX_HEAD_DELAY, events.next()).await {
            Ok(Some(event)) if is_answer(&event) => {
                let mut body = Vec::new();
                write_event(&mut body, &event);
                return whole_events(body);
            }
            Ok(first) => first,
            Err(_elapsed) => None,
        };
        let events = stream::iter(first).chain(events).map(move |mut event| {
            let _ = &used;
            event.event_id = None;
            event
        });
        stream_events(events)
    }
}

/// Whether a request says no version, or one of a client that has a session.
fn names_old_version(request: &Request) -> bool {
    let headers = request.headers();
    if !headers.contains_key(PROTOCOL_VERSION_HEADER) {
        return true;
    }
    single_header(headers, &PROTOCOL_VERSION_HEADER).is_some_and(|named| {
        let known = ProtocolVersion::KNOWN_VERSIONS.iter().find(|it| it.as_str() == named);
        known.is_some_and(ProtocolVersion::has_initialize)
    })
}

/// The events of a call. If they are dropped before the answer, the call goes on.
struct CallEvents(Option<BoxStream<'static, ServerSseMessage>>);

impl Stream for CallEvents {
    type Item = ServerSseMessage;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(events) = &mut self.0 else { return Poll::Ready(None) };
        let event = ready!(events.as_mut().poll_next(context));
        if event.as_ref().is_none_or(is_answer) {
            self.0 = None;
        }
        Poll::Ready(event)
    }
}

impl Drop for CallEvents {
    fn drop(&mut self) {
        // Without a runtime, the process is about to end.
        if let Some(rest) = self.0.take()
            && let Ok(runtime) = Handle::try_current()
        {
            #[expect(clippy::disallowed_methods, reason = "it ends with the call, or its session")]
            runtime.spawn(rest.for_each(|_| std::future::ready(())));
        }
    }
}

#[cfg(test)]
mod tests;
