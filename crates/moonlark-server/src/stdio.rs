//! MCP as lines: over stdin and stdout, or over any other pair of streams, until
//! the client closes them.
//!
//! A client that closes its end has left: calls in progress are cancelled, and nothing
//! more is written ([`client_presence`] has who counts as a client). A server that stops lets
//! them finish.

mod client_presence;
mod shared_output;
mod stdio_fast_path;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use moonlark_core::Problem;
use moonlark_gateway::Gateway;
use rmcp::model::{ClientRequest, GetMeta, JsonRpcMessage, ServerResult};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::{Transport, stdio_pipes};
use rmcp::{RoleServer, ServiceExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::mcp::{McpServer, check_read_message, explain_unread_initialize};
use crate::principal::Principal;
use shared_output::{SharedOutput, SharedOutputWriter};

pub use client_presence::{ClientPresence, ClosedInput};
use stdio_fast_path::{PlainCallFilter, StdioFastPath};

pub async fn serve_stdio(gateway: Gateway) -> Result<(), Problem> {
    let (input, output) = stdio_pipes();
    serve_lines(gateway, input, output, CancellationToken::new()).await
}

/// Serve one client that is at this machine, message by message in lines, until it
/// leaves or `stop` is cancelled.
pub async fn serve_lines<R, W>(
    gateway: Gateway,
    input: R,
    output: W,
    stop: CancellationToken,
) -> Result<(), Problem>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let stopped = |error: &dyn std::fmt::Display| {
        Problem::unavailable(format!("the MCP client went away: {error}"))
    };
    let mcp = McpServer::new(gateway, Principal::local());
    let (gone, left) = (mcp.gone.clone(), mcp.left.clone());
    let presence = Arc::<ClientPresence>::default();
    let output = SharedOutput::new(output, presence.clone());
    let writer = output.new_writer();
    let short = StdioFastPath::new(mcp.clone(), output);
    let inner = AsyncRwTransport::new(PlainCallFilter::new(input, short.clone()), writer);
    let transport = StdioClientTransport {
        inner,
        short: short.clone(),
        presence: presence.clone(),
        lifecycle: None,
        stop,
        gone,
        left: left.clone(),
    };
    let _leaving = LeaveOnDrop { presence: presence.clone(), left: left.clone() };
    let ended = match mcp.serve(transport).await {
        Ok(running) => tokio::select! {
            ended = running.waiting() => ended.map(drop).map_err(|error| stopped(&error)),
            // The SDK would wait for what is in progress, which nobody wants any more.
            () = left.cancelled() => Ok(()),
        },
        // A client that closes before it asked anything has done nothing wrong.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(error) => Err(stopped(&error)),
    };
    short.wait_finished().await;
    ended
}

/// Whoever gives up serving a client says nothing more to it: the SDK would still answer
/// the calls that end with that.
struct LeaveOnDrop {
    presence: Arc<ClientPresence>,
    left: CancellationToken,
}

impl Drop for LeaveOnDrop {
    fn drop(&mut self) {
        self.presence.mark_left();
        self.left.cancel();
    }
}

/// The SDK gives up on a client whose first words are not a request. A stray
/// notification, say of a request cancelled before a restart, harms nobody: it
/// is passed over.
struct StdioClientTransport<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    inner: AsyncRwTransport<RoleServer, PlainCallFilter<R, W>, SharedOutputWriter<W>>,
    /// Open once a session has begun, or a request that stands by itself was made.
    short: Arc<StdioFastPath<W>>,
    presence: Arc<ClientPresence>,
    /// Decided by the first request that is more than a look.
    lifecycle: Option<ClientLifecycle>,
    /// The server is to stop: what was asked before is answered.
    stop: CancellationToken,
    /// Set at the end of the input. An open subscription has nobody to tell, and would
    /// hold up the end.
    gone: CancellationToken,
    /// The client has left, and waits for nothing.
    left: CancellationToken,
}

/// Whether a client has a session, or makes requests that stand by themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ClientLifecycle {
    Session,
    Requests,
}

impl ClientLifecycle {
    fn of_first_request(begins_session: bool, stands_alone: bool) -> Option<ClientLifecycle> {
        if begins_session {
            Some(ClientLifecycle::Session)
        } else {
            stands_alone.then_some(ClientLifecycle::Requests)
        }
    }
}

/// Whether a message tells a client that it has a session.
fn is_introduction(message: &TxJsonRpcMessage<RoleServer>) -> bool {
    matches!(message, JsonRpcMessage::Response(response)
        if matches!(response.result, ServerResult::InitializeResult(_)))
}

impl<R, W> Transport<RoleServer> for StdioClientTransport<R, W>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = std::io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let begins_session =
            self.lifecycle == Some(ClientLifecycle::Session) && is_introduction(&item);
        let sending = self.inner.send(item);
        let short = begins_session.then(|| self.short.clone());
        async move {
            sending.await?;
            if let Some(short) = short {
                short.has_session.store(true, Ordering::Release);
            }
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let received = tokio::select! {
                received = self.inner.receive() => received,
                () = self.stop.cancelled() => {
                    self.gone.cancel();
                    return None;
                }
            };
            let Some(message) = received else {
                if self.presence.close_input() == ClosedInput::Left {
                    self.left.cancel();
                }
                self.gone.cancel();
                return None;
            };
            if let Err(refusal) = check_read_message(&message) {
                let _ = self.inner.send(*refusal).await;
                continue;
            }
            let JsonRpcMessage::Request(asked) = &message else {
                if self.short.open.load(Ordering::Acquire) {
                    return Some(message);
                }
                continue;
            };
            if let ClientRequest::CustomRequest(custom) = &asked.request
                && let Some(error) = explain_unread_initialize(custom)
            {
                let refusal = JsonRpcMessage::error(error, Some(asked.id.clone()));
                let _ = self.inner.send(refusal).await;
                continue;
            }
            let stands_alone = asked.request.get_meta().protocol_version().is_some();
            let begins_session = matches!(asked.request, ClientRequest::InitializeRequest(_));
            // Whoever looks what there is has not decided yet.
            if !matches!(asked.request, ClientRequest::DiscoverRequest(_)) {
                let way = ClientLifecycle::of_first_request(begins_session, stands_alone);
                self.lifecycle = self.lifecycle.or(way);
            }
            if begins_session || stands_alone {
                self.short.open.store(true, Ordering::Release);
            }
            return Some(message);
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
