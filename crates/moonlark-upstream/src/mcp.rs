//! Upstream MCP servers.
//!
//! [`upstream`] keeps one connected and [`listing`] turns what it offers into
//! tools and more; [`tool`] and [`calling`] are what happens in a call. Below
//! them is [`link`], one connection over raw JSON-RPC: [`opening`] finds out
//! what the server speaks, `stdio`, `http` and `sse` carry it.

mod authorize;
mod child;
mod watching;
mod upstream;
mod tool;
mod settings;
mod pins;
mod names;
mod listing;
mod listener;
mod kept;
mod calling;
mod conversation;
mod events;
mod http;
mod http_stream;
mod lines;
pub(crate) mod link;
mod opening;
mod outgoing;
pub(crate) mod param_headers;
mod pending;
mod site;
mod sse;
mod stdio;
mod target;
#[cfg(test)]
mod testing;
pub(crate) mod wire;

pub use authorize::Authorize;
pub use pins::Difference;
pub use settings::Settings;
pub use upstream::Upstream;
pub use target::{LinkLimits, SecretText, Target, Way};
