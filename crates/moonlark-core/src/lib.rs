//! The vocabulary of Moonlark: values, schemas, tools, the catalog, grants, problems.
//!
//! It does no input or output, waits for nothing and runs nothing: `moonlark-gateway` is
//! beside it for that. Leaf crates (host modules, engines, surfaces) know this crate and
//! never each other.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod answer_shape;
pub mod approval_ticket;
pub mod catalog;
pub mod content;
pub mod foreign_text;
pub mod grant;
pub mod limits;
pub mod module;
pub mod nearest;
pub mod original_name;
pub mod portable_schema;
pub mod problem;
pub mod record_id;
pub mod schema;
pub mod script_snapshot;
pub mod sdk;
pub mod secret;
pub mod source_resources;
pub mod tool;
pub mod tool_body;
pub mod tool_config;
pub mod tool_header;
mod tool_parameters;
pub mod value;
pub mod visible_text;

pub use catalog::Catalog;
pub use module::Module;
pub use problem::{Problem, ProblemCode, Result, SourceLocation, Warning};
pub use tool::Tool;
pub use value::Value;
