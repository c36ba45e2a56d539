//! What lasts: the journal of runs and calls, and the approvals.
//!
//! One SQLite file beside the project's other state, written by one thread, read
//! by anybody. What people may see is in it as text; what only a replay needs,
//! arguments and answers as they were, is sealed with a key that is not. This
//! crate knows no script, no protocol and no configuration file.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod approvals;
mod failure;
mod id_search;
mod journal;
mod packed;
mod process;
mod queue;
mod reading;
mod retention;
mod rows;
mod schema;
mod sealing;
mod writer;

#[cfg(test)]
mod tests;

pub use approvals::{ApprovalSettings, ApprovalStore, ApprovalView};
pub use journal::{Journal, JournalHealth};
pub use reading::{
    AwaitedApprovalState, CallView, CallerView, JournalReader, JournalWatcher, RecordedState,
    RunSummary, RunView,
};
pub use schema::JournalSettings;
