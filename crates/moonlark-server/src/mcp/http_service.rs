//! MCP over Streamable HTTP as the SDK serves it: all that no fast path takes.

use std::sync::Arc;

use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use super::{McpServer, McpSessions};

/// The service behind `/mcp`.
pub(crate) fn http_service(
    mcp: McpServer,
    sessions: Arc<McpSessions>,
    request_body: usize,
) -> StreamableHttpService<McpServer, McpSessions> {
    let mut config = StreamableHttpServerConfig::default()
        .with_json_response(true)
        // Whether a stream begins with an event without data depends on the version
        // that the session speaks.
        .with_sse_retry(None)
        .with_max_request_body_bytes(request_body)
        // It would end the streams of answers too, with calls in progress.
        .with_cancellation_token(CancellationToken::new())
        // Host and Origin are checked in front of every route; see `access`.
        .disable_allowed_hosts()
        .disable_allowed_origins();
    config.session_store = Some(sessions.session_store());
    StreamableHttpService::new(move || Ok(mcp.for_client()), sessions, config)
}
