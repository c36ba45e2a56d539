//! Whole files in, whole configurations or whole lists of problems out.

mod absent_values;
mod finding_the_file;
mod keeping_secrets;
mod one_round;
mod reading_values;
mod reporting_problems;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use tempfile::TempDir;

use super::*;
use crate::{ConfigSecret, ScriptToolConfig, ServerConfig};

fn env(name: &str) -> Option<String> {
    let value = match name {
        "JIRA_API_TOKEN" => "s3cret-token",
        "HOST_NAME" => "jira.example.com",
        "A" => "${B}",
        "B" => "bee",
        "EMPTY" => "",
        "MEMORY" => "32MB",
        _ => return None,
    };
    Some(value.to_owned())
}

fn load_bytes(content: &[u8]) -> Result<LoadedConfig, Vec<Problem>> {
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join(CONFIG_FILE_NAME), content).unwrap();
    load_config(None, dir.path(), &env).map_err(|rejected| rejected.errors)
}

fn config(content: &str) -> ProjectConfig {
    load_bytes(content.as_bytes()).unwrap_or_else(|problems| panic!("{problems:#?}")).config
}

fn script(content: &str) -> ScriptToolConfig {
    config(content).tools.script.remove("jira").unwrap()
}

/// The problems of a file, as the terminal would show them.
#[track_caller]
fn check(content: &str, expected: &[&str]) {
    check_bytes(content.as_bytes(), expected);
}

#[track_caller]
fn check_bytes(content: &[u8], expected: &[&str]) {
    let problems = load_bytes(content).map(|loaded| loaded.config).unwrap_err();
    let shown: Vec<String> = problems.iter().map(Problem::to_string).collect();
    assert_eq!(shown.join("\n"), expected.join("\n"));
}
