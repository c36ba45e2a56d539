//! What a connection is, whatever carries it: ids, requests in flight, what
//! the server asks of us, whether it is over and why.
//!
//! Bytes come in by [`Conversation::hear`], one message at a time, and are
//! handed on before the next: there is no queue that a server could fill.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use futures::future::BoxFuture;
use moonlark_core::secret::Secrets;
use moonlark_core::value::Object;
use moonlark_core::{Problem, Value};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use super::link::{About, Inbox};
use super::pending::{Answer, Pending, Whom, id_of};
use super::target::LinkLimits;
use super::wire::{self, Failure, Frame, Head, Odd, Params, Rpc};

/// Requests of a server's that are handled at once. As many again are told
/// that it is too many; what is beyond that gets no answer.
const MOST_ASKED: usize = 64;

pub(super) struct Conversation {
    name: String,
    limits: LinkLimits,
    inbox: Arc<dyn Inbox>,
    /// What every request says of us, once the server is known to want it.
    meta: OnceLock<Vec<(&'static str, String)>>,
    next: AtomicU64,
    pending: Mutex<Pending>,
    /// The server's requests being handled, by their ids as they came.
    asked: Mutex<HashMap<Box<str>, AbortHandle>>,
    over: CancellationToken,
    why: OnceLock<Problem>,
    told: AtomicU32,
    given_up: AtomicBool,
}

/// The way back to the server, for answers.
pub(super) trait Reply: Send + Sync {
    /// Best effort: a server that does not take it does not need it.
    fn reply(self: Arc<Self>, message: Vec<u8>) -> BoxFuture<'static, ()>;
}

/// A request in flight; dropping it forgets the request.
pub(super) struct Flight<'a> {
    conversation: &'a Conversation,
    pub(super) id: u64,
    pub(super) answer: oneshot::Receiver<Answer>,
}

impl Conversation {
    pub(super) fn new(name: &str, limits: LinkLimits, inbox: Arc<dyn Inbox>) -> Arc<Conversation> {
        Arc::new(Conversation {
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

    pub(super) fn limits(&self) -> LinkLimits {
        self.limits
    }

    /// From now on, every request carries this in its `_meta`.
    pub(super) fn introduce(&self, meta: Vec<(&'static str, String)>) {
        // Once per connection; the first word stands.
        let _ = self.meta.set(meta);
    }

    // --- our requests -------------------------------------------------------

    /// A request and its bytes, known here from now on so that nothing that
    /// comes back can be too early.
    pub(super) fn begin(
        &self,
        method: &str,
        params: &Object,
        about: &About,
    ) -> Result<(Flight<'_>, Vec<u8>), Failure> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let ours = self.meta.get().map_or(&[][..], Vec::as_slice);
        let progress = about.listener.is_some() && !about.quiet;
        let message = wire::request(id, method, params, &about.meta, ours, progress)
            .map_err(Failure::NotSent)?;
        let mut pending = self.pending.lock();
        // Under the lock: `end` lets go of all that are in it.
        if !self.is_open() {
            return Err(Failure::NotSent(self.reason()));
        }
        let answer = pending.add(id, method, about);
        Ok((Flight { conversation: self, id, answer }, message))
    }

    #[cfg(test)]
    pub(super) fn in_flight(&self) -> usize {
        self.pending.lock().len()
    }

    // --- what comes in ------------------------------------------------------

    /// A message, or a batch. `stream` is the request on whose own stream it
    /// came, if any; the answer to that one is returned.
    pub(super) fn hear(
        self: &Arc<Self>,
        text: &[u8],
        stream: Option<u64>,
        back: &Arc<impl Reply + 'static>,
    ) -> Option<Answer> {
        let mut own = None;
        wire::read(text, |frame| match frame {
            Ok(Frame::Answer { id: Some(id), outcome }) if stream == Some(id) => {
                self.pending.lock().remove(id);
                own = Some(wire::outcome(&self.name, outcome));
            }
            Ok(Frame::Answer { id, outcome }) => self.answered(id, outcome),
            Ok(Frame::Notification { method, params }) => self.notified(&method, params, stream),
            Ok(Frame::Request { id, method, params }) => {
                let back = Arc::clone(back) as Arc<dyn Reply>;
                self.ask(id.get(), &method, params, stream, back);
            }
            Err(odd) => self.odd(odd),
        });
        own
    }

    /// A message that was skipped for its length, by its first bytes. True if
    /// it can only have been the answer that the stream is for.
    pub(super) fn skipped(&self, head: &[u8], stream: Option<u64>) -> bool {
        self.odd(Odd::TooLong);
        let id = match wire::look_at(head) {
            Head::Answer(id) => Some(id),
            Head::Unclear => stream,
            Head::NoAnswer => None,
        };
        if let Some(answer) = id.and_then(|id| self.pending.lock().take(id)) {
            let _ = answer.send(Err(Failure::Lost(self.too_long())));
        }
        id.is_some() && id == stream
    }

    pub(super) fn too_long(&self) -> Problem {
        wire::too_long(&self.name, self.limits.message)
    }

    fn answered(&self, id: Option<u64>, outcome: wire::Outcome<'_>) {
        let waiting = id.and_then(|id| self.pending.lock().take(id));
        if let Some(answer) = waiting {
            // Whoever asked may have gone away just now.
            let _ = answer.send(wire::outcome(&self.name, outcome));
            return;
        }
        match id {
            Some(id) if id < self.next.load(Ordering::Relaxed) => {
                if !self.given_up.load(Ordering::Relaxed) {
                    self.odd(Odd::AnsweredBefore);
                }
            }
            _ => self.odd(Odd::NeverAsked),
        }
    }

    fn notified(&self, method: &str, params: Params<'_>, stream: Option<u64>) {
        let Some(params) = params.read() else { return self.odd(Odd::NotRpc) };
        if method == "notifications/cancelled" {
            return self.called_off(&params);
        }
        let whom = self.pending.lock().notified(method, &params, stream);
        match whom {
            Whom::Listener(listener) => listener.notification(method, params),
            Whom::Inbox | Whom::Unclear => self.inbox.notification(method, params),
        }
    }

    /// The server no longer wants an answer, or will not give one.
    fn called_off(&self, params: &Object) {
        let Some(id) = params.get("requestId") else { return };
        if let Ok(raw) = id.encode_json("requestId")
            && let Some(handle) = self.asked.lock().remove(raw.as_str())
        {
            return handle.abort();
        }
        let own = id_of(id).and_then(|id| self.pending.lock().take(id));
        if let Some(answer) = own {
            let name = &self.name;
            let reason =
                params.get("reason").and_then(Value::as_str).unwrap_or("it gave no reason");
            let message = format!("upstream '{name}' ended the request by itself: {reason}");
            let _ = answer.send(Err(Failure::Lost(Problem::unavailable(message))));
        }
    }

    fn ask(
        self: &Arc<Self>,
        id: &str,
        method: &str,
        params: Params<'_>,
        stream: Option<u64>,
        back: Arc<dyn Reply>,
    ) {
        let mut asked = self.asked.lock();
        if asked.contains_key(id) {
            return self.odd(Odd::SameId);
        }
        if asked.len() >= 2 * MOST_ASKED || !self.is_open() {
            return self.odd(Odd::TooMany);
        }
        let task = self.respond(asked.len(), method, params, stream);
        let (this, id): (_, Box<str>) = (Arc::clone(self), id.into());
        let key = id.clone();
        // The task takes itself out of the table, which is locked until it is in.
        let running = tokio::spawn(async move {
            let handled = Handled { conversation: this, id };
            let outcome = task.await;
            back.reply(wire::answer(&handled.id, outcome.as_ref())).await;
        });
        asked.insert(key, running.abort_handle());
    }

    fn respond(
        &self,
        others: usize,
        method: &str,
        params: Params<'_>,
        stream: Option<u64>,
    ) -> BoxFuture<'static, Result<Object, Rpc>> {
        let refuse = |code, why: &str| -> BoxFuture<'static, Result<Object, Rpc>> {
            let rpc = Rpc::new(code, why);
            Box::pin(async move { Err(rpc) })
        };
        if others >= MOST_ASKED {
            self.odd(Odd::TooMany);
            return refuse(Rpc::INTERNAL, "too many requests at once");
        }
        if method == "ping" {
            return Box::pin(async { Ok(Object::new()) });
        }
        let Some(params) = params.read() else {
            return refuse(Rpc::INVALID_PARAMS, "params must be an object");
        };
        let method = method.to_owned();
        let whom = self.pending.lock().asked(stream);
        match whom {
            Whom::Listener(listener) => {
                Box::pin(async move { listener.request(&method, params).await })
            }
            Whom::Inbox => {
                let inbox = Arc::clone(&self.inbox);
                Box::pin(async move { inbox.request(&method, params).await })
            }
            Whom::Unclear => refuse(Rpc::INTERNAL, "cannot tell which call this belongs to"),
        }
    }

    /// Each kind once: a server that does it does it all the time.
    pub(super) fn odd(&self, odd: Odd) {
        let bit = 1 << odd as u32;
        if self.told.fetch_or(bit, Ordering::Relaxed) & bit == 0 {
            let (name, what) = (&self.name, odd.describe());
            tracing::warn!(target: "upstream", "{name} {what}; this is ignored, and not told again");
        }
    }

    // --- the end ------------------------------------------------------------

    /// Over, for everybody in it. The first reason stands.
    pub(super) fn end(&self, why: Problem) {
        let _ = self.why.set(why);
        self.over.cancel();
        // Whoever waits finds that nobody will answer, and looks for the reason.
        let waiting = std::mem::take(&mut *self.pending.lock());
        drop(waiting);
        for (_, running) in self.asked.lock().drain() {
            running.abort();
        }
    }

    pub(super) fn is_open(&self) -> bool {
        !self.over.is_cancelled()
    }

    pub(super) async fn closed(&self) -> Problem {
        self.over.cancelled().await;
        self.reason()
    }

    /// Why it is over.
    pub(super) fn reason(&self) -> Problem {
        self.why.get().cloned().unwrap_or_else(|| {
            Problem::unavailable(format!("the connection to upstream '{}' is closed", self.name))
        })
    }
}

/// A request of the server's; dropping it makes room for another.
struct Handled {
    conversation: Arc<Conversation>,
    id: Box<str>,
}

impl Drop for Handled {
    fn drop(&mut self) {
        self.conversation.asked.lock().remove(&self.id);
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        // Given up: its answer may still come, and is no surprise then.
        if self.conversation.pending.lock().remove(self.id) {
            self.conversation.given_up.store(true, Ordering::Relaxed);
        }
    }
}
