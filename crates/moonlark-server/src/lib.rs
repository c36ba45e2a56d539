//! The ways in: MCP over stdio and Streamable HTTP, and REST.
//!
//! A surface decodes a request, calls the gateway and encodes the answer. What
//! is allowed, checked, limited and recorded happens behind the gateway, so the
//! ways in cannot differ.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod access;
mod at_once;
mod auth;
mod http;
mod mcp;
mod metrics;
mod openapi;
mod record;
mod rest;
mod serving;
mod status;
mod stdio;
mod trace;
mod who;

pub use auth::{
    AuthSettings, ExpectedClaims, FetchUrl, IssuerSettings, RequestAuthenticator, StoredToken,
    TokenFile, TokenHash, check_token_name, is_secure_url,
};
pub use http::{CallerIdentification, HttpApp, HttpServerOptions, build_http_app};
pub use mcp::SessionVault;
pub use metrics::collect_metrics;
pub use rest::source_health_json;
pub use serving::{serve_connection, serve_listener};
pub use status::status_for_code;
pub use stdio::{ClientPresence, ClosedInput, serve_lines, serve_stdio};
pub use who::Principal;

/// What every surface calls itself.
pub const MOONLARK_VERSION: &str = env!("CARGO_PKG_VERSION");
