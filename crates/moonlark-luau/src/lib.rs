//! The Luau engine: sandbox, bridge, host calls, preemption, tool scripts.
//!
//! Only this crate knows Luau. It reaches tools, its own host modules included,
//! through the gateway of `moonlark-core` and in no other way.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod bridge;
mod engine;
mod errors;
mod host;
mod prelude;
mod script;
mod tool_table;
mod vm;
mod watchdog;

pub use engine::Luau;
pub use script::{MAX_SOURCE, Script};
