//! The ways in: MCP over stdio and Streamable HTTP, and REST.
//!
//! A surface decodes a request, calls the gateway and encodes the answer. What
//! is allowed, checked, limited and recorded happens behind the gateway, so the
//! ways in cannot differ.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod access;
mod http;
mod mcp;
mod openapi;
mod rest;
mod status;
mod stdio;

pub use http::{Options, router, serve};
pub use rest::health;
pub use status::status;
pub use stdio::serve_stdio;

/// What every surface calls itself.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
