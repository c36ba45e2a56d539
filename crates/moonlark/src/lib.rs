//! The binary's parts: configuration, project, reload, command line.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::expect_used, clippy::panic))]

mod agents;
mod apis;
pub mod builtin;
pub mod cli;
mod clients;
pub mod config;
pub mod config_file;
mod connectors;
mod env_text;
pub mod extensions;
mod journal;
mod knowledge;
mod learned;
mod local_server;
mod policy;
pub mod project;
pub mod reload;
pub mod scripts;
mod secrets_file;
mod source_names;
mod source_start;
mod state_folder;
mod telemetry;
mod upstreams;
mod who;
