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

pub use connector::{CompletedScan, ConnectorScript, ScanItemSender};
pub use engine::LuauEngine;
pub use moonlark_core::files::ScriptFileReader;
pub use prompt_script::{PromptArgument, PromptHeader, PromptScript};
pub use run::{ExecuteSettings, LuauCheckMode};
pub use script::ScriptFile;
pub use session_entry::{ParsedReplEntry, ReplDefinition};
pub use syntax::{SyntaxStatus, check_compiles, syntax_status};
pub use tests_in_scripts::LuauTestFile;
pub use unit::MAX_LUAU_SOURCE_BYTES;
