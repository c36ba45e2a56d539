//! Upstream MCP servers.
//!
//! [`upstream`] is one of them, which [`supervision`] keeps connected, and
//! [`listing`] turns what it offers into tools and more; [`tool`] and [`calling`] are what happens in a call. Below
//! them is [`link`], one connection over raw JSON-RPC: [`opening`] finds out
//! what the server speaks, `stdio`, `http` and `sse` carry it.

mod authorize;
mod calling;
mod child;
mod conversation;
mod direct;
mod events;
mod http;
mod http_stream;
mod kept;
mod lines;
pub(crate) mod link;
mod listener;
mod listing;
mod names;
mod opening;
mod outgoing;
pub(crate) mod param_headers;
mod pending;
mod pins;
mod saying;
mod settings;
mod shared;
mod site;
mod sse;
mod stdio;
mod supervision;
mod target;
#[cfg(test)]
mod testing;
mod tool;
mod upstream;
mod watching;
pub(crate) mod wire;

pub use authorize::RequestAuthorizer;
pub use kept::listing_file_path;
pub(crate) use kept::write_private_file;
pub use link::ClosePace;
pub use pins::PinDifference;
pub use settings::UpstreamSettings;
pub use target::{McpConnectionLimits, McpTransportConfig, SecretText, UpstreamTarget};
pub use upstream::Upstream;
