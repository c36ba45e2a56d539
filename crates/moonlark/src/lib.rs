//! The binary's parts: the configuration, and what is wired together from it.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

pub mod config;
pub mod config_file;
