//! The gateway that every call goes through: rules, approvals, limits, journal, replay,
//! metrics and traces.
//!
//! It does no input or output of its own: who keeps the journal, decides on approvals or
//! takes traces is handed to the [`Gateway`]. Leaf crates know this crate and
//! `moonlark-core`, and never each other.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)
)]

pub mod admission;
pub mod answer_drift;
pub mod approval;
pub mod artifacts;
pub mod call;
pub mod call_client;
pub mod call_outcome;
pub mod gateway;
pub mod journal;
pub mod learned_shapes;
pub mod metrics;
pub mod mock;
pub mod per_catalog;
pub mod policy;
pub mod run;
pub mod server_identity;
mod timer_heartbeat;
pub mod tool_body;
pub mod trace;

pub use call::{Call, CallEvent, Caller, LogLevel};
pub use call_outcome::CallOutcome;
pub use gateway::Gateway;
pub use run::Run;
