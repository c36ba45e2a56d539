//! The vocabulary of Moonlark: values, tools, the catalog, the gateway.
//!
//! It does no input or output. Leaf crates (host
//! modules, engines, surfaces) know this crate and never each other.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod admission;
pub mod approval;
pub mod artifacts;
pub mod call;
pub mod call_client;
pub mod catalog;
pub mod content;
pub mod gateway;
pub mod grant;
pub mod journal;
pub mod learned_shapes;
pub mod limits;
pub mod metrics;
pub mod mock;
pub mod module;
pub mod nearest;
pub mod policy;
pub mod portable_schema;
pub mod problem;
pub mod run;
pub mod schema;
pub mod script_functions;
pub mod script_snapshot;
pub mod sdk;
pub mod secret;
pub mod server_identity;
pub mod source_resources;
mod timer_heartbeat;
pub mod tool;
pub mod tool_header;
mod tool_parameters;
pub mod trace;
pub mod value;
pub mod visible_text;

pub use call::{Call, CallEvent, Caller, LogLevel};
pub use catalog::Catalog;
pub use gateway::Gateway;
pub use module::Module;
pub use problem::{Problem, ProblemCode, Result, SourceLocation, Warning};
pub use run::Run;
pub use tool::Tool;
pub use value::Value;
