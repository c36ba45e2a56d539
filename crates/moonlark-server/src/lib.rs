//! The ways in: MCP over stdio and Streamable HTTP, and REST.
//!
//! A surface decodes a request, calls the gateway and encodes the answer. What
//! is allowed, checked, limited and recorded happens behind the gateway, so the
//! ways in cannot differ.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)
)]

mod auth;
mod connections;
mod http_status;
mod journal_routes;
mod mcp;
mod metrics;
mod origin_policy;
mod principal;
mod request_trace;
mod rest_routes;
mod router;
mod run_routes;
mod self_wake;
mod server_openapi;
mod stdio;

pub use auth::{
    AuthSettings, ExpectedClaims, FetchUrl, IssuerSettings, RequestAuthenticator, StoredToken,
    TokenFile, TokenHash, check_token_name, is_secure_url,
};
pub use connections::{serve_connection, serve_listener};
pub use http_status::status_for_code;
pub use mcp::SessionVault;
pub use metrics::collect_metrics;
pub use principal::Principal;
pub use rest_routes::source_health_json;
pub use router::{CallerIdentification, HttpApp, HttpServerOptions, build_http_app};
pub use run_routes::describe_trace;
pub use stdio::{ClientPresence, ClosedInput, serve_lines, serve_stdio};

/// What every surface calls itself.
pub const MOONLARK_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Since 1970.
fn unix_time() -> std::time::Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}
