//! Upstream MCP servers.
//!
//! [`upstream`] is one of them, which [`supervision`] keeps connected, and
//! [`listing`] turns what it offers into tools and more; [`upstream_tool`] and [`call_request`] are what happens in a call. Below
//! them is [`connection`], one connection over raw JSON-RPC: [`handshake`] finds out
//! what the server speaks, `stdio`, `http` and `sse` carry it.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)
)]

mod call_request;
pub(crate) mod connection;
mod definition_text;
mod handshake;
mod http_endpoint;
pub(crate) mod json_rpc;
mod line_reader;
mod listing;
mod listing_cache;
mod log_relay;
mod loopback_http;
#[cfg(test)]
mod mcp_testing;
mod name_mapping;
mod outgoing_pipe;
pub(crate) mod param_headers;
mod pending_requests;
mod pins;
mod resource_subscriptions;
mod rpc_session;
mod server_messages;
mod sse_events;
mod sse_transport;
mod stdio_transport;
mod streamable_http;
mod streamable_http_events;
mod supervision;
mod upstream;
mod upstream_process;
mod upstream_settings;
mod upstream_state;
mod upstream_target;
mod upstream_tool;

pub use connection::ClosePace;
pub use listing_cache::listing_file_path;
pub use pins::PinDifference;
pub use upstream::Upstream;
pub use upstream_settings::UpstreamSettings;
pub use upstream_target::{McpConnectionLimits, McpTransportConfig, UpstreamTarget};
