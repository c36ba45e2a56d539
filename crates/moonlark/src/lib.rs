//! The binary's parts: project, reload, command line.

#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)
)]

#[cfg(not(unix))]
compile_error!("Moonlark needs a Unix system: Linux, or macOS, where it is not tested");

mod apis;
pub mod builtin;
pub mod cli;
mod connectors;
mod effective_policy;
pub mod extensions;
mod http_auth;
mod knowledge_base;
mod learned_shapes_file;
mod local_server;
pub mod project;
mod project_journal;
mod prompt_scripts;
pub mod reload;
mod run_tests;
mod saved_scripts;
pub mod scripts;
mod source_names;
mod source_selection;
mod tool_from_run;
mod upstreams;
