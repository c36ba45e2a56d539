//! The integration suite: see `README.md` beside this file.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;
mod hostile;
mod hostile_server;
