//! The integration suite: see `README.md` beside this file.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

mod bad_input;
mod clients;
mod docs;
mod editors;
#[cfg(target_os = "linux")]
mod exec;
mod harness;
mod hostile;
mod hostile_server;
mod jira;
mod reach;
mod reload;
mod surfaces;
mod transcripts;
mod ways_in;
