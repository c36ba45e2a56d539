//! The binary's parts: configuration, project, reload, command line.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod apis;
pub mod builtin;
pub mod cli;
mod clients;
pub mod config;
pub mod config_file;
mod connectors;
pub mod extensions;
mod journal;
mod knowledge;
mod learned;
mod policy;
pub mod project;
pub mod reload;
pub mod scripts;
mod telemetry;
mod upstreams;
mod who;
