//! Host modules and tools as text: definitions for editors, the reference
//! page, one function for the terminal.
//!
//! Everything here is drawn from descriptors and schemas, so that it cannot
//! say anything else than what is there. Nothing here runs, reads or writes.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod function_doc;
mod function_parts;
pub mod luau;
mod modules_page;
pub mod script_functions;
pub mod starlark;
#[cfg(test)]
mod tests;

pub use function_doc::{ExampleText, FunctionDoc, FunctionDocRow, spell_example_call};
pub use modules_page::modules_page;
