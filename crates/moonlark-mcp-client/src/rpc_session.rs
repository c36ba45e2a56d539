//! An RPC session, over any transport: ids, requests in flight, requests of the server,
//! whether it is closed and why.
//!
//! Bytes come in by [`RpcSession::on_message`], one message at a time, and are
//! handed on before the next: there is no queue that a server could fill.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use moonlark_child::spawn_owned;
use moonlark_core::secret::Secrets;
use moonlark_core::value::Object;
use moonlark_core::{Problem, Value};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::connection::{ConnectionInbox, McpRequestOptions};
use crate::json_rpc::{
    self, OversizedMessageHead, ProtocolViolation, RawRpcParams, RequestFailure, RpcError, RpcFrame,
};
use crate::pending_requests::{MessageRecipient, PendingRequests, RpcAnswer, own_id_from_value};
use crate::sse_events::SseEvent;
use crate::upstream_target::McpConnectionLimits;

/// Requests of a server's that are handled at once. As many again are told
/// that it is too many; what is beyond that gets no answer.
const MAX_SERVER_REQUESTS: usize = 64;

pub(super) struct RpcSession {
    name: String,
    limits: McpConnectionLimits,
    inbox: Arc<dyn ConnectionInbox>,
    /// What every request says of us, once the server is known to want it.
    meta: OnceLock<Vec<(&'static str, String)>>,
    next: AtomicU64,
    pending: Mutex<PendingRequests>,
    /// The server's requests being handled, by their ids as they came.
    asked: Mutex<HashMap<Box<str>, AbortOnDropHandle<()>>>,
    over: CancellationToken,
    why: OnceLock<Problem>,
    told: AtomicU32,
    given_up: AtomicBool,
}

/// The way back to the server, for answers.
pub(super) trait RpcReplySender: Send + Sync {
    /// Best effort: a server that does not take it does not need it.
    fn send_reply(self: Arc<Self>, message: Vec<u8>) -> BoxFuture<'static, ()>;
}

/// Tells the server when nobody waits for a request any more: by `tell`, which is given
/// the message.
pub(super) struct CancelGuard<F: FnOnce(Vec<u8>)> {
    id: u64,
    tell: Option<F>,
}

impl<F: FnOnce(Vec<u8>)> CancelGuard<F> {
    pub(super) fn new(id: u64, revocable: bool, tell: F) -> CancelGuard<F> {
        CancelGuard { id, tell: revocable.then_some(tell) }
    }

    pub(super) fn mark_answered(&mut self) {
        self.tell = None;
    }
}

impl<F: FnOnce(Vec<u8>)> Drop for CancelGuard<F> {
    fn drop(&mut self) {
        if let Some(tell) = self.tell.take() {
            tell(json_rpc::encode_cancellation(self.id));
        }
    }
}

/// A request in flight; dropping it forgets the request.
pub(super) struct InFlightRequest<'a> {
    conversation: &'a RpcSession,
    pub(super) id: u64,
    pub(super) answer: oneshot::Receiver<RpcAnswer>,
}

impl RpcSession {
    pub(super) fn new(
        name: &str,
        limits: McpConnectionLimits,
        inbox: Arc<dyn ConnectionInbox>,
    ) -> Arc<RpcSession> {
        Arc::new(RpcSession {
            name: name.to_owned(),
            limits,
            inbox,
            meta: OnceLock::new(),
            next: AtomicU64::new(1),
            pending: Mutex::default(),
            asked: Mutex::default(),
            over: CancellationToken::new(),
            why: OnceLock::new(),
            told: AtomicU32::new(0),
            given_up: AtomicBool::new(false),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn secrets(&self) -> Secrets {
        self.inbox.secrets()
    }

    pub(super) fn limits(&self) -> McpConnectionLimits {
        self.limits
    }

    /// From now on, every request carries this in its `_meta`.
    pub(super) fn set_client_meta(&self, meta: Vec<(&'static str, String)>) {
        // Once per connection; the first word stands.
        let _ = self.meta.set(meta);
    }

    // --- our requests -------------------------------------------------------

    /// A request and its bytes, known here from now on so that nothing that
    /// comes back can be too early.
    pub(super) fn begin_request(
        &self,
        method: &str,
        params: &Object,
        about: &McpRequestOptions,
    ) -> Result<(InFlightRequest<'_>, Vec<u8>), RequestFailure> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let ours = self.meta.get().map_or(&[][..], Vec::as_slice);
        let progress = about.listener.is_some() && !about.quiet;
        let message = json_rpc::encode_request(id, method, params, &about.meta, ours, progress)
            .map_err(RequestFailure::NotSent)?;
        let mut pending = self.pending.lock();
        // Under the lock: `end` lets go of all that are in it.
        if !self.is_open() {
            return Err(RequestFailure::NotSent(self.close_reason()));
        }
        let answer = pending.add_request(id, method, about);
        Ok((InFlightRequest { conversation: self, id, answer }, message))
    }

    #[cfg(test)]
    pub(super) fn in_flight_count(&self) -> usize {
        self.pending.lock().len()
    }

    // --- what comes in ------------------------------------------------------

    /// A message, or a batch. `stream` is the request on whose own stream it
    /// came, if any; the answer to that one is returned.
    pub(super) fn on_message(
        self: &Arc<Self>,
        text: &[u8],
        stream: Option<u64>,
        back: &Arc<impl RpcReplySender + 'static>,
    ) -> Option<RpcAnswer> {
        let mut own = None;
        json_rpc::read_frames(text, |frame| match frame {
            Ok(RpcFrame::Answer { id: Some(id), outcome }) if stream == Some(id) => {
                self.pending.lock().remove_request(id);
                own = Some(json_rpc::parse_outcome(&self.name, outcome));
            }
            Ok(RpcFrame::Answer { id, outcome }) => self.on_answer(id, outcome),
            Ok(RpcFrame::Notification { method, params }) => {
                self.on_notification(&method, params, stream)
            }
            Ok(RpcFrame::Request { id, method, params }) => {
                let back = Arc::clone(back) as Arc<dyn RpcReplySender>;
                self.on_server_request(id.get(), &method, params, stream, back);
            }
            Err(odd) => self.log_violation_once(odd),
        });
        own
    }

    /// The same for an event.
    pub(super) fn on_event(
        self: &Arc<Self>,
        event: SseEvent,
        stream: Option<u64>,
        back: &Arc<impl RpcReplySender + 'static>,
    ) -> Option<RpcAnswer> {
        match event {
            SseEvent::Message { data, .. } => self.on_message(&data, stream, back),
            SseEvent::TooLong(head) => {
                let is_own = self.on_oversized_message(&head, stream);
                is_own.then(|| Err(self.oversized_message_failure()))
            }
        }
    }

    /// A message that was skipped for its length, by its first bytes. True if
    /// it can only have been the answer that the stream is for.
    pub(super) fn on_oversized_message(&self, head: &[u8], stream: Option<u64>) -> bool {
        self.log_violation_once(ProtocolViolation::TooLong);
        let id = match json_rpc::inspect_head(head) {
            OversizedMessageHead::Answer(id) => Some(id),
            OversizedMessageHead::Unclear => stream,
            OversizedMessageHead::NoAnswer => None,
        };
        if let Some(answer) = id.and_then(|id| self.pending.lock().take_answer_sender(id)) {
            let _ = answer.send(Err(self.oversized_message_failure()));
        }
        id.is_some() && id == stream
    }

    fn oversized_message_failure(&self) -> RequestFailure {
        let most = self.limits.message;
        RequestFailure::Lost(json_rpc::answer_too_long_problem(&self.name, most))
    }

    fn on_answer(&self, id: Option<u64>, outcome: json_rpc::RawRpcOutcome<'_>) {
        let waiting = id.and_then(|id| self.pending.lock().take_answer_sender(id));
        if let Some(answer) = waiting {
            // Whoever asked may have gone away just now.
            let _ = answer.send(json_rpc::parse_outcome(&self.name, outcome));
            return;
        }
        match id {
            Some(id) if id < self.next.load(Ordering::Relaxed) => {
                if !self.given_up.load(Ordering::Relaxed) {
                    self.log_violation_once(ProtocolViolation::AnsweredBefore);
                }
            }
            _ => self.log_violation_once(ProtocolViolation::NeverAsked),
        }
    }

    fn on_notification(&self, method: &str, params: RawRpcParams<'_>, stream: Option<u64>) {
        let Some(params) = params.parse_object() else {
            return self.log_violation_once(ProtocolViolation::NotRpc);
        };
        if method == "notifications/cancelled" {
            return self.on_cancelled(&params);
        }
        let whom = self.pending.lock().notification_recipient(method, &params, stream);
        match whom {
            MessageRecipient::Listener(listener) => listener.on_notification(method, params),
            MessageRecipient::Inbox | MessageRecipient::Unclear => {
                self.inbox.on_notification(method, params)
            }
        }
    }

    /// The server no longer wants an answer, or will not give one.
    fn on_cancelled(&self, params: &Object) {
        let Some(id) = params.get("requestId") else { return };
        if let Ok(raw) = id.encode_json("requestId")
            && let Some(handle) = self.asked.lock().remove(raw.as_str())
        {
            return handle.abort();
        }
        let own = own_id_from_value(id).and_then(|id| self.pending.lock().take_answer_sender(id));
        if let Some(answer) = own {
            let name = &self.name;
            let reason =
                params.get("reason").and_then(Value::as_str).unwrap_or("it gave no reason");
            let message = format!("upstream '{name}' ended the request by itself: {reason}");
            let _ = answer.send(Err(RequestFailure::Lost(Problem::unavailable(message))));
        }
    }

    fn on_server_request(
        self: &Arc<Self>,
        id: &str,
        method: &str,
        params: RawRpcParams<'_>,
        stream: Option<u64>,
        back: Arc<dyn RpcReplySender>,
    ) {
        let mut asked = self.asked.lock();
        if asked.contains_key(id) {
            return self.log_violation_once(ProtocolViolation::SameId);
        }
        if asked.len() >= 2 * MAX_SERVER_REQUESTS || !self.is_open() {
            return self.log_violation_once(ProtocolViolation::TooMany);
        }
        let task = self.dispatch_server_request(asked.len(), method, params, stream);
        let (this, id): (_, Box<str>) = (Arc::clone(self), id.into());
        let key = id.clone();
        // The task takes itself out of the table, which is locked until it is in.
        let running = spawn_owned(async move {
            let handled = ServerRequestGuard { conversation: this, id };
            let outcome = task.await;
            back.send_reply(json_rpc::encode_answer(&handled.id, outcome.as_ref())).await;
        });
        asked.insert(key, running);
    }

    fn dispatch_server_request(
        &self,
        others: usize,
        method: &str,
        params: RawRpcParams<'_>,
        stream: Option<u64>,
    ) -> BoxFuture<'static, Result<Object, RpcError>> {
        let refuse = |code, why: &str| -> BoxFuture<'static, Result<Object, RpcError>> {
            let rpc = RpcError::new(code, why);
            Box::pin(async move { Err(rpc) })
        };
        if others >= MAX_SERVER_REQUESTS {
            self.log_violation_once(ProtocolViolation::TooMany);
            return refuse(RpcError::INTERNAL_ERROR, "too many requests at once");
        }
        if method == "ping" {
            return Box::pin(async { Ok(Object::new()) });
        }
        let Some(params) = params.parse_object() else {
            return refuse(RpcError::INVALID_PARAMS, "params must be an object");
        };
        let method = method.to_owned();
        let whom = self.pending.lock().request_recipient(stream);
        let listener = match whom {
            MessageRecipient::Listener(listener) => listener,
            MessageRecipient::Inbox => self.inbox.clone(),
            MessageRecipient::Unclear => {
                let why = "cannot tell which call this belongs to";
                return refuse(RpcError::INTERNAL_ERROR, why);
            }
        };
        Box::pin(async move { listener.on_request(&method, params).await })
    }

    /// Each kind once: a server that does it does it all the time.
    pub(super) fn log_violation_once(&self, odd: ProtocolViolation) {
        let bit = 1 << odd as u32;
        if self.told.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            let (name, what) = (&self.name, odd.describe());
            tracing::warn!(target: "upstream", "{name} {what}; this is ignored, and not told again");
        }
    }

    // --- the end ------------------------------------------------------------

    /// Over, for everybody in it. The first reason stands.
    pub(super) fn close_with(&self, why: Problem) {
        let _ = self.why.set(why);
        self.over.cancel();
        // Whoever waits finds that nobody will answer, and looks for the reason.
        let waiting = std::mem::take(&mut *self.pending.lock());
        drop(waiting);
        for (_, running) in self.asked.lock().drain() {
            running.abort();
        }
    }

    /// Over because nobody wants it any more.
    pub(super) fn close(&self) {
        let message = format!("the connection to upstream '{}' was closed", self.name);
        self.close_with(Problem::unavailable(message));
    }

    pub(super) fn is_open(&self) -> bool {
        !self.over.is_cancelled()
    }

    pub(super) async fn wait_closed(&self) -> Problem {
        self.over.cancelled().await;
        self.close_reason()
    }

    /// Why it is over.
    pub(super) fn close_reason(&self) -> Problem {
        self.why.get().cloned().unwrap_or_else(|| {
            Problem::unavailable(format!("the connection to upstream '{}' is closed", self.name))
        })
    }
}

/// A request of the server's; dropping it makes room for another.
struct ServerRequestGuard {
    conversation: Arc<RpcSession>,
    id: Box<str>,
}

impl Drop for ServerRequestGuard {
    fn drop(&mut self) {
        self.conversation.asked.lock().remove(&self.id);
    }
}

impl Drop for InFlightRequest<'_> {
    fn drop(&mut self) {
        // Given up: its answer may still come, and is no surprise then.
        if self.conversation.pending.lock().remove_request(self.id) {
            self.conversation.given_up.store(true, Ordering::Relaxed);
        }
    }
}
