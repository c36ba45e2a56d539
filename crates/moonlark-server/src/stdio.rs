//! MCP over stdin and stdout, until the client closes them.

use moonlark_core::{Gateway, Problem};
use rmcp::model::{ClientRequest, GetMeta, JsonRpcMessage};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::io::{StdioReader, StdioWriter};
use rmcp::transport::{Transport, stdio_pipes};
use rmcp::{RoleServer, ServiceExt};
use tokio_util::sync::CancellationToken;

use crate::mcp::Mcp;

pub async fn serve_stdio(gateway: Gateway) -> Result<(), Problem> {
    let stopped = |error: &dyn std::fmt::Display| {
        Problem::unavailable(format!("the MCP client went away: {error}"))
    };
    let (input, output) = stdio_pipes();
    let mcp = Mcp::new(gateway);
    let inner = AsyncRwTransport::new(input, output);
    let transport = Patient { inner, begun: false, gone: mcp.gone.clone() };
    let running = match mcp.serve(transport).await {
        Ok(running) => running,
        // A client that closes before it asked anything has done nothing wrong.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(stopped(&error)),
    };
    running.waiting().await.map_err(|error| stopped(&error))?;
    Ok(())
}

/// The SDK gives up on a client whose first words are not a request. A stray
/// notification, say of a request cancelled before a restart, harms nobody: it
/// is passed over.
struct Patient {
    inner: AsyncRwTransport<RoleServer, StdioReader, StdioWriter>,
    /// A session has begun, or a request that stands by itself was made.
    begun: bool,
    /// Set at the end of the input. Calls in progress are still answered, but an
    /// open subscription has nobody to tell, and would hold up the end.
    gone: CancellationToken,
}

impl Transport<RoleServer> for Patient {
    type Error = std::io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            let Some(message) = self.inner.receive().await else {
                self.gone.cancel();
                return None;
            };
            let JsonRpcMessage::Request(asked) = &message else {
                if self.begun {
                    return Some(message);
                }
                continue;
            };
            self.begun |= matches!(asked.request, ClientRequest::InitializeRequest(_))
                || asked.request.get_meta().protocol_version().is_some();
            return Some(message);
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.inner.close().await
    }
}
