//! The short way of plain tool calls over pipes: they are taken out of the input
//! before the SDK sees it, answered by its handler, and written to the output.
//!
//! The SDK reads a message in several steps, starts a task for it, and sends
//! the answer through its own loop. A call needs none of that: what a client with a session
//! is told besides the answer goes by the SDK's peer, and other clients are told nothing else
//! where they did not ask for it. Everything else goes on as it came.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use parking_lot::Mutex;
use rmcp::RoleServer;
use rmcp::model::{ErrorCode, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio_util::task::TaskTracker;

use super::shared_output::SharedOutput;
use crate::mcp::{
    McpFastPath, McpServer, PlainCall, PlainCallClient, explain_unread_body, parse_plain_call,
};

/// Longer lines are the SDK's.
const MAX_PLAIN_LINE_BYTES: usize = 64 * 1024;
/// Read at a time.
const READ_CHUNK_BYTES: usize = 8 * 1024;

/// How long calls may still take when the client has closed its end, as the SDK
/// has it.
const FINAL_CALLS_TIMEOUT: Duration = Duration::from_secs(5);

/// Refusals that wait for the client to read. Behind them the SDK refuses, and reads nothing
/// meanwhile.
const MAX_PENDING_REFUSALS: usize = 64;

/// Calls that were taken out, until they are answered.
pub(super) struct StdioFastPath<W> {
    mcp: McpServer,
    fast_path: McpFastPath,
    output: SharedOutput<W>,
    /// The SDK knows what kind of client this is.
    pub(super) open: AtomicBool,
    /// The client has a session, and has been told so.
    pub(super) has_session: AtomicBool,
    running: Mutex<HashMap<RequestId, AbortHandle>>,
    tasks: TaskTracker,
    refusals: Arc<Semaphore>,
}

impl<W: AsyncWrite + Send + Unpin + 'static> StdioFastPath<W> {
    pub(super) fn new(mcp: McpServer, output: SharedOutput<W>) -> Arc<Self> {
        let (open, has_session, running, tasks) = Default::default();
        let fast_path = McpFastPath::new(mcp.clone(), MAX_PLAIN_LINE_BYTES);
        let refusals = Arc::new(Semaphore::new(MAX_PENDING_REFUSALS));
        Arc::new(Self { mcp, fast_path, output, open, has_session, running, tasks, refusals })
    }

    /// All calls are answered, or have had their time, which is none if the client has
    /// left.
    pub(super) async fn wait_finished(&self) {
        self.tasks.close();
        if self.output.presence().has_left() {
            // Dropping a call stops everything it started.
            self.running.lock().drain().for_each(|(_, task)| task.abort());
            return;
        }
        let _ = tokio::time::timeout(FINAL_CALLS_TIMEOUT, self.tasks.wait()).await;
    }

    /// Whether the line is for us; then it is on its way.
    fn take_line(self: &Arc<Self>, line: &[u8]) -> bool {
        (self.open.load(Ordering::Acquire) && self.take_call(line)) || self.refuse_line(line)
    }

    fn take_call(self: &Arc<Self>, line: &[u8]) -> bool {
        match parse_plain_call(line) {
            // Nobody could be reached yet with what is said before the answer.
            Some(call)
                if call.client == PlainCallClient::Session
                    && !self.has_session.load(Ordering::Acquire) =>
            {
                false
            }
            Some(call) => {
                self.start_call(call);
                true
            }
            None => self.cancel_call(line),
        }
    }

    fn start_call(self: &Arc<Self>, call: PlainCall) {
        let (this, id) = (self.clone(), call.id.clone());
        // It takes itself out of the table, which is locked until it is in.
        let mut running = self.running.lock();
        let task = self.tasks.spawn(async move {
            let id = call.id.clone();
            // Boxed here, it is not copied with the task.
            let answer = Box::pin(this.answer_call(call)).await;
            // What is written is written whole: from here on, nobody ends it.
            if this.running.lock().remove(&id).is_some()
                && let Some(answer) = answer
            {
                // A client that is gone needs no answer.
                let _ = this.output.send_line(answer).await;
            }
        });
        running.insert(id, task.abort_handle());
    }

    async fn answer_call(&self, call: PlainCall) -> Option<Vec<u8>> {
        match call.client {
            PlainCallClient::Session => self.mcp.answer_session_call(call).await,
            PlainCallClient::Modern { knows_tasks } => {
                self.fast_path.answer_call(&self.mcp, call, knows_tasks).await.1
            }
        }
    }

    /// Whether the line calls off a call of ours.
    fn cancel_call(&self, line: &[u8]) -> bool {
        let mut running = self.running.lock();
        if running.is_empty() {
            return false;
        }
        let called_off = serde_json::from_slice::<CancelledMessage>(line).ok();
        let called_off = called_off.filter(|it| it.method == "notifications/cancelled");
        match called_off.and_then(|it| running.remove(&it.params.request_id)) {
            // Dropping the call stops everything it started.
            Some(task) => {
                task.abort();
                true
            }
            None => false,
        }
    }

    /// Whether the line is JSON and no message: then its sender is told why. What is no JSON
    /// the SDK passes over, since an answer may be echoed.
    fn refuse_line(self: &Arc<Self>, line: &[u8]) -> bool {
        let Some((id, error)) = explain_unread_body(line) else { return false };
        let is_read = || serde_json::from_slice::<RxJsonRpcMessage<RoleServer>>(line).is_ok();
        if error.code == ErrorCode::PARSE_ERROR || is_read() {
            return false;
        }
        let refusal = TxJsonRpcMessage::<RoleServer>::error(error, id);
        let Ok(refusal) = serde_json::to_vec(&refusal) else { return false };
        let Ok(place) = self.refusals.clone().try_acquire_owned() else { return false };
        let this = self.clone();
        self.tasks.spawn(async move {
            // A client that is gone needs no answer.
            let _ = this.output.send_line(refusal).await;
            drop(place);
        });
        true
    }
}

#[derive(Deserialize)]
struct CancelledMessage {
    method: String,
    params: CancelledMessageParams,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CancelledMessageParams {
    request_id: RequestId,
}

/// An input without what goes the short way.
pub(super) struct PlainCallFilter<R, W> {
    from: R,
    short: Arc<StdioFastPath<W>>,
    buffer: BytesMut,
    chunk: Box<[u8]>,
    /// How much of the buffer goes on.
    passed: usize,
    /// In the middle of a line whose beginning has gone on.
    inside: bool,
}

impl<R, W> PlainCallFilter<R, W> {
    pub(super) fn new(from: R, short: Arc<StdioFastPath<W>>) -> Self {
        let (buffer, chunk) = (BytesMut::new(), vec![0; READ_CHUNK_BYTES].into());
        Self { from, short, buffer, chunk, passed: 0, inside: false }
    }
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Send + Unpin + 'static> AsyncRead
    for PlainCallFilter<R, W>
{
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if this.passed > 0 {
                let count = this.passed.min(out.remaining());
                out.put_slice(&this.buffer[..count]);
                this.buffer.advance(count);
                this.passed -= count;
                return Poll::Ready(Ok(()));
            }
            if let Some(end) = this.buffer.iter().position(|byte| *byte == b'\n') {
                if !this.inside && this.short.take_line(&this.buffer[..end]) {
                    this.buffer.advance(end + 1);
                } else {
                    this.passed = end + 1;
                    this.inside = false;
                }
                continue;
            }
            if this.buffer.len() >= MAX_PLAIN_LINE_BYTES || (this.inside && !this.buffer.is_empty())
            {
                this.passed = this.buffer.len();
                this.inside = true;
                continue;
            }
            let mut more = ReadBuf::new(&mut this.chunk);
            ready!(Pin::new(&mut this.from).poll_read(context, &mut more))?;
            if more.filled().is_empty() {
                // What is left when it ends is half a line.
                this.passed = this.buffer.len();
                if this.passed == 0 {
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            this.short.output.presence().note_input(more.filled());
            this.buffer.extend_from_slice(more.filled());
        }
    }
}

#[cfg(test)]
mod tests;
