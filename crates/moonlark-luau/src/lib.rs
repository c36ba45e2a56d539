//! The Luau engine: sandbox, bridge, host calls, preemption, tool scripts.
//!
//! Only this crate knows Luau. It reaches tools, its own host modules included,
//! through the gateway of `moonlark-gateway` and in no other way.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)
)]

mod answer_tree;
pub mod check;
mod connector_script;
mod declared_fields;
mod engine;
mod execute_tool;
mod field_reads;
mod header_table;
mod luau_bridge;
mod luau_errors;
mod luau_test_file;
#[cfg(test)]
mod luau_testing;
mod machine_memory;
mod markdown_fences;
mod missing_values;
mod other_languages;
mod prelude;
mod print_format;
mod promises;
mod prompt_script;
mod repl_entry;
mod require_paths;
mod result_fields;
mod result_flow;
mod result_uses;
mod run_trace;
mod saved_script;
mod script_loading;
mod script_memory;
mod script_tokens;
mod script_unit;
mod sdk_functions;
mod syntax_status;
mod tool_script;
mod tool_table;
mod vm;
mod vm_host;
mod vm_pool;
mod watchdog;

pub use connector_script::{CompletedScan, ConnectorScript, ScanItemSender};
pub use engine::{ExpectedScripts, LuauEngine};
pub use execute_tool::{ExecuteSettings, LuauCheckMode};
pub use luau_test_file::LuauTestFile;
pub use moonlark_core::script_snapshot::ScriptFileReader;
pub use prompt_script::{PromptArgument, PromptHeader, PromptScript};
pub use repl_entry::{ParsedReplEntry, ReplDefinition};
pub use saved_script::{MAX_SCRIPT_NAME_BYTES, SavedScript};
pub use script_tokens::{ScriptToken, ScriptTokenKind, tokenize_script};
pub use script_unit::MAX_LUAU_SOURCE_BYTES;
pub use syntax_status::{SyntaxStatus, check_compiles, syntax_status};
pub use tool_script::ScriptFile;
