//! Upstreams: servers that Moonlark is a client of.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod auth;
mod foreign_text;
pub mod mcp;
pub mod openapi;
mod tool_config;
mod trace_headers;

pub use tool_config::{EffectsConfig, ToolConfig, ToolPattern};
