//! The journal of runs and calls, and the approvals.
//!
//! One SQLite file beside the project's other state, written by one thread, read
//! by anybody. What people may see is in it as text; what only a replay needs,
//! arguments and answers as they were, is sealed with a key that is not. This
//! crate knows no script, no protocol and no configuration file.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)
)]

mod approval_store;
mod artifact_files;
mod entry_codec;
mod entry_log;
mod id_search;
mod journal;
mod journal_queue;
mod journal_reader;
mod journal_rows;
mod journal_schema;
mod journal_writer;
mod process_lock;
mod retention;
mod sealing;
mod usage;
mod value_packing;

#[cfg(test)]
mod tests;

pub use approval_store::{ApprovalSettings, ApprovalStore, ApprovalView};
pub use artifact_files::ArtifactFiles;
pub use journal::{Journal, JournalHealth};
pub use journal_reader::{
    AwaitedApprovalState, CallView, CallerView, JournalReader, JournalWatcher, RecordedState,
    RunSummary, RunView,
};
pub use journal_schema::JournalSettings;
