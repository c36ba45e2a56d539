//! The integration suite: see `README.md` beside this file.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod harness;
mod ways_in;
