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
    Auth, AuthSettings, Expected, Fetch, Hash, Held, IssuerSettings, TokenFile, check_name, is_safe,
};
pub use http::{App, Callers, Options, router};
pub use mcp::SessionVault;
pub use metrics::figures;
pub use rest::health;
pub use serving::{serve, serve_connection};
pub use status::status;
pub use stdio::{ClientPresence, ClosedInput, serve_lines, serve_stdio};
pub use who::Who;

/// What every surface calls itself.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
