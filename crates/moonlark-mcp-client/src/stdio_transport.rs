//! A connection over two pipes, and the process at their other end, if it is
//! ours: read, written, watched and ended.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use moonlark_child::{ProcessEnding, SupervisorHandle, spawn_owned, spawn_to_finish};
use moonlark_core::Problem;
use moonlark_core::value::Object;
use tokio::io::AsyncRead;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::connection::{ClosePace, McpRequestOptions};
use crate::json_rpc::{self, ProtocolViolation, RequestFailure};
use crate::line_reader::{self, InputLine};
use crate::outgoing_pipe::{OutgoingPipe, PipeClosed};
use crate::rpc_session::{CancelGuard, RpcReplySender, RpcSession};
use crate::upstream_process::{self, UpstreamProcess};

/// How long each step of ending a process gently may take.
const EXIT_STEP_TIMEOUT: Duration = Duration::from_secs(2);
/// The same where Moonlark itself is to be gone in a moment: its client may kill it
/// within two seconds, and waits for as long as it takes.
const QUICK_EXIT_STEP_TIMEOUT: Duration = Duration::from_millis(200);

pub(super) struct StdioTransport {
    conversation: Arc<RpcSession>,
    outgoing: Arc<OutgoingPipe>,
    /// Asks whoever keeps the process to end it.
    farewell: ExitRequest,
    /// Closed when nothing is left of it.
    gone: watch::Receiver<()>,
}

impl StdioTransport {
    /// Over a process that was just started.
    pub(super) fn over_process(
        conversation: Arc<RpcSession>,
        child: UpstreamProcess,
    ) -> StdioTransport {
        let UpstreamProcess { stdin, stdout, stderr, status, shown } = child;
        let outgoing = OutgoingPipe::new(stdin);
        let reading = read_messages(Arc::clone(&conversation), Arc::clone(&outgoing), stdout);
        let writing = Arc::clone(&outgoing).write_pending();
        let said = upstream_process::StderrTail::default();
        let name = conversation.name().to_owned();
        let listening = said.clone().log_and_remember(name, conversation.secrets(), stderr);
        let keeper = ProcessKeeper {
            conversation: Arc::clone(&conversation),
            outgoing: Arc::clone(&outgoing),
            farewell: ExitRequest::default(),
            said,
            shown,
        };
        let farewell = keeper.farewell.clone();
        let gone = spawn_with_end_signal(async move {
            // Read to its end, whatever becomes of the rest.
            let listening = spawn_owned(listening);
            keeper.keep_process(status, reading, writing, listening).await;
        });
        StdioTransport { conversation, outgoing, farewell, gone }
    }

    pub(super) fn rpc_session(&self) -> &Arc<RpcSession> {
        &self.conversation
    }

    pub(super) async fn send_request(
        &self,
        method: &str,
        params: Object,
        about: McpRequestOptions,
    ) -> Result<Object, RequestFailure> {
        let (mut flight, message) = self.conversation.begin_request(method, &params, &about)?;
        let sent = match self.outgoing.send_message(message).await {
            Ok(sent) => sent,
            Err(PipeClosed) => return Err(RequestFailure::NotSent(self.wait_close_reason().await)),
        };
        // An opening cannot be called off; a process that fails it is ended.
        let revocable = !matches!(method, "initialize" | "server/discover");
        let mut given_up = CancelGuard::new(flight.id, revocable, |message| {
            self.outgoing.send_without_waiting(message);
        });
        let answer = (&mut flight.answer).await;
        given_up.mark_answered();
        answer.unwrap_or_else(|_| {
            let why = self.conversation.close_reason();
            Err(if self.outgoing.is_fully_written(sent) {
                RequestFailure::Lost(why)
            } else {
                RequestFailure::NotSent(why)
            })
        })
    }

    pub(super) async fn send_notification(&self, method: &str) -> Result<(), RequestFailure> {
        match self.outgoing.send_message(json_rpc::encode_notification(method)).await {
            Ok(_) => Ok(()),
            Err(PipeClosed) => Err(RequestFailure::NotSent(self.wait_close_reason().await)),
        }
    }

    /// Close its input, wait, ask it to end, wait, end it.
    pub(super) async fn close_connection(&self, pace: ClosePace) {
        self.farewell.0.send_replace(Some(pace));
        // An error is what it waits for: the other side is gone.
        while self.gone.clone().changed().await.is_ok() {}
    }

    /// End it now, and return when nothing is left of it.
    pub(super) async fn kill_process(&self) {
        self.conversation.close();
        while self.gone.clone().changed().await.is_ok() {}
    }

    /// A pipe closes a moment before it is known why: at most as long as the
    /// keeper waits for last words and for the end, one after the other.
    async fn wait_close_reason(&self) -> Problem {
        match timeout(3 * EXIT_STEP_TIMEOUT, self.conversation.wait_closed()).await {
            Ok(why) => why,
            Err(_) => self.conversation.close_reason(),
        }
    }
}

/// That the process is to be ended, once somebody has asked for it.
#[derive(Clone, Default)]
struct ExitRequest(Arc<watch::Sender<Option<ClosePace>>>);

impl ExitRequest {
    /// How long each step of ending it may take, as soon as it is to be ended.
    async fn wait_step_timeout(&self) -> Duration {
        let mut asked = self.0.subscribe();
        // The sender is here, so it is not closed.
        let pace = asked.wait_for(Option::is_some).await.ok().and_then(|pace| *pace);
        match pace {
            Some(ClosePace::Quick) => QUICK_EXIT_STEP_TIMEOUT,
            Some(ClosePace::Gentle) | None => EXIT_STEP_TIMEOUT,
        }
    }
}

impl RpcReplySender for OutgoingPipe {
    fn send_reply(self: Arc<Self>, message: Vec<u8>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let _ = self.send_message(message).await;
        })
    }
}

/// Run it, and tell by closing the channel when it is done or dropped.
fn spawn_with_end_signal(task: impl Future<Output = ()> + Send + 'static) -> watch::Receiver<()> {
    let (alive, gone) = watch::channel(());
    spawn_to_finish(async move {
        task.await;
        drop(alive);
    });
    gone
}

async fn read_messages(
    conversation: Arc<RpcSession>,
    back: Arc<OutgoingPipe>,
    from: impl AsyncRead + Send + Unpin,
) {
    let most = conversation.limits().message;
    // An error is an end like any other: nothing more will come.
    let _ = line_reader::read_lines(from, most, |line| match line {
        InputLine::Whole(text) => drop(conversation.on_message(text, None, &back)),
        InputLine::TooLong(head) => drop(conversation.on_oversized_message(head, None)),
        // Some servers leave out the end of their last line.
        InputLine::Half(text) => {
            if json_rpc::is_complete_json(text) {
                drop(conversation.on_message(text, None, &back))
            } else {
                conversation.log_violation_once(ProtocolViolation::HalfLine)
            }
        }
    })
    .await;
}

/// Either end of the conversation is closed. What was written before is heard.
async fn wait_hung_up(reading: impl Future<Output = ()>, writing: impl Future<Output = ()>) {
    let mut reading = pin!(reading);
    tokio::select! {
        () = &mut reading => {}
        // It may have more to say, but not for long.
        () = writing => drop(timeout(EXIT_STEP_TIMEOUT, reading).await),
    }
}

/// Who holds the process: with this, it ends.
struct ProcessKeeper {
    conversation: Arc<RpcSession>,
    outgoing: Arc<OutgoingPipe>,
    farewell: ExitRequest,
    said: upstream_process::StderrTail,
    shown: String,
}

impl ProcessKeeper {
    async fn keep_process(
        self,
        mut status: SupervisorHandle,
        reading: impl Future<Output = ()>,
        writing: impl Future<Output = ()>,
        mut listening: AbortOnDropHandle<()>,
    ) {
        let ending = self.watch_process(&mut status, reading, writing).await;
        self.outgoing.close_pipe();
        if self.conversation.is_open() {
            // Its error output ends with it, but for what it gave away.
            let _ = timeout(EXIT_STEP_TIMEOUT / 4, &mut listening).await;
        }
        drop(listening);
        let name = self.conversation.name();
        self.conversation.close_with(upstream_process::process_ended_problem(
            name,
            &self.shown,
            ending,
            &self.said,
        ));
        status.kill().await;
    }

    /// Until it is over, for whatever reason; how the process ended, if it did.
    async fn watch_process(
        &self,
        status: &mut SupervisorHandle,
        reading: impl Future<Output = ()>,
        writing: impl Future<Output = ()>,
    ) -> Option<io::Result<ProcessEnding>> {
        let mut reading = pin!(reading);
        // Asked once only: half a report that was read is not read again.
        let mut ended = Box::pin(status.wait_for_end());
        tokio::select! {
            () = wait_hung_up(reading.as_mut(), writing) => timeout(EXIT_STEP_TIMEOUT, ended).await.ok(),
            ending = &mut ended => {
                // What it said before is heard.
                let _ = timeout(EXIT_STEP_TIMEOUT, reading).await;
                Some(ending)
            }
            patience = self.farewell.wait_step_timeout() => {
                self.outgoing.close_pipe();
                // Its answers are still read, so that it is not stuck in one.
                let reading = pin!(async {
                    reading.await;
                    std::future::pending::<()>().await;
                });
                let gently = futures::future::select(reading, ended);
                if timeout(patience, gently).await.is_err() {
                    status.terminate();
                    let _ = timeout(patience, status.wait_for_end()).await;
                }
                self.conversation.close();
                None
            }
            _ = self.conversation.wait_closed() => None,
        }
    }
}

#[cfg(test)]
mod tests;
