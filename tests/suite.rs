//! The integration suite: see `README.md` beside this file.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]
// What the crate itself prints goes through its one writer; tests may print.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods)]

mod absent_values;
mod agent_scripts_cli;
mod apis;
#[cfg(target_os = "linux")]
mod approvals;
#[cfg(target_os = "linux")]
mod asking;
#[cfg(target_os = "linux")]
mod attacks;
mod bad_input;
#[cfg(target_os = "linux")]
mod callers;
#[cfg(target_os = "linux")]
mod canaries;
mod check_corpus;
mod clients;
#[cfg(target_os = "linux")]
mod code_mode;
#[cfg(unix)]
mod conformance;
#[cfg(unix)]
mod conformance_luau;
mod docs;
mod editors;
mod engines;
mod examples;
#[cfg(target_os = "linux")]
mod exec;
#[cfg(target_os = "linux")]
mod extensions;
#[cfg(unix)]
mod first_answer;
mod harness;
mod hostile;
mod hostile_server;
#[cfg(target_os = "linux")]
mod hostile_starlark;
#[cfg(target_os = "linux")]
mod import;
mod jira;
#[cfg(target_os = "linux")]
mod journal;
#[cfg(target_os = "linux")]
mod knowledge;
#[cfg(target_os = "linux")]
mod learned;
#[cfg(target_os = "linux")]
mod leaving;
mod mcp_sessions;
#[cfg(target_os = "linux")]
mod memory_total;
mod model_apis;
#[cfg(target_os = "linux")]
mod observability;
#[cfg(unix)]
mod old_clients;
mod openapi_corpus;
mod openapi_judged;
mod openapi_search;
mod operator_reports;
#[cfg(target_os = "linux")]
mod policy;
#[cfg(unix)]
mod postgres;
#[cfg(target_os = "linux")]
mod processes;
#[cfg(target_os = "linux")]
mod project_folder;
mod prompts;
mod reach;
mod reload;
#[cfg(target_os = "linux")]
mod replay;
#[cfg(target_os = "linux")]
mod run_reuse;
#[cfg(unix)]
mod running_server;
#[cfg(target_os = "linux")]
mod saved_runs;
#[cfg(target_os = "linux")]
mod saved_scripts;
mod script_tests;
mod source_settings;
#[cfg(target_os = "linux")]
mod sqlite;
#[cfg(target_os = "linux")]
mod ssrf;
mod starlark_users;
#[cfg(target_os = "linux")]
mod start_up;
mod surfaces;
#[cfg(target_os = "linux")]
mod tasks;
mod terminal;
mod tokens;
mod transcripts;
#[cfg(target_os = "linux")]
mod upstream_faults;
mod upstream_life;
#[cfg(target_os = "linux")]
mod upstreams;
mod ways_in;
