//! Tests made of runs: a script, the answers that it was given, and what came of it.
//!
//! Such a test is two files beside each other: the script, to be edited as any, and
//! `NAME.runtest.json` with all else. It is replayed as a fork that makes no call, so it
//! needs no server; [`drift_check`] makes the calls that only read, and compares.

pub(crate) mod drift_check;
mod offline_replay;
mod recorded_answer;
mod run_test_file;
mod secret_removal;

pub(crate) use offline_replay::{expect_replayed, replay_test};
pub(crate) use run_test_file::{RUN_TEST_SUFFIX, RunTestFile};
pub(crate) use secret_removal::SecretRemoval;
