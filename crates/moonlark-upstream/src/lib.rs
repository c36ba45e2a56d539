//! Upstreams: servers that Moonlark is a client of.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod auth;
pub mod mcp;
pub mod openapi;
mod trace_headers;
