//! The Luau engine: sandbox, bridge, host calls, preemption, tool scripts.
//!
//! Only this crate knows Luau. It reaches tools, its own host modules included,
//! through the gateway of `moonlark-core` and in no other way.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod bridge;
pub mod check;
mod connector;
mod engine;
mod errors;
mod fences;
mod field_reads;
mod foreign;
mod host;
mod paths;
mod prelude;
mod printed;
mod promises;
mod prompt_script;
mod result_fields;
mod result_flow;
mod result_uses;
mod run;
mod script;
mod sdk;
mod session_entry;
mod syntax;
#[cfg(test)]
mod testing;
mod tests_in_scripts;
mod tool_table;
mod unit;
mod vm;
mod watchdog;

pub use connector::{Connector, Items, Scanned};
pub use engine::Luau;
pub use moonlark_core::files::Files;
pub use prompt_script::{PromptArgument, PromptHeader, PromptScript};
pub use run::{Check, ExecuteSettings};
pub use script::Script;
pub use session_entry::{DefinedName, SessionEntry};
pub use syntax::{Syntax, compiles, syntax};
pub use tests_in_scripts::Tests;
pub use unit::MAX_SOURCE;
