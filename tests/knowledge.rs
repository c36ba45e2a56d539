//! The knowledge base as users meet it: connectors, `sync`, and every way to
//! search.

mod connectors;
mod documents;
mod faults;
mod following;
mod jira;
mod languages;
mod models;
mod offered;
mod queries;
mod questions;
mod types;
mod ways;

use std::process::Output;

use serde_json::Value;

use crate::harness::Project;

/// A handbook of four pages, about different things.
pub const HANDBOOK: [(&str, &str); 4] = [
    (
        "handbook/deploys.md",
        "# Deploys\n\nEvery merge to main is built and waits for a person.\n\n## Rolling back\n\nRun `ship undo` within an hour of a release. The database is not touched.\n\n## Staging\n\nStaging is rebuilt every night from production data without names.\n",
    ),
    (
        "handbook/tokens.md",
        "# Log-in and tokens\n\n## Refresh tokens\n\nAn auth token expires after ten minutes. The refresh token is exchanged for a new one; if that fails, the person has to log in again.\n",
    ),
    (
        "handbook/holidays.md",
        "# Holidays\n\nEverybody has thirty days a year. Ask your team first, then enter them in the calendar.\n",
    ),
    (
        "handbook/kaffee.md",
        "# Kaffeemaschine\n\nDie Bohnen sind im Schrank neben der Spüle. Entkalkt wird jeden Freitag.\n",
    ),
];

pub const HANDBOOK_CONFIG: &str = "[connectors.filesystem.handbook]\nroot = \"handbook\"\nurl = \"https://handbook.example.com\"\nwatch = false\n";

/// A project with the handbook, and what else a test needs.
pub fn handbook(more: &[(&str, &str)]) -> Project {
    let mut files = HANDBOOK.to_vec();
    if !more.iter().any(|(name, _)| *name == "moonlark.toml") {
        files.push(("moonlark.toml", HANDBOOK_CONFIG));
    }
    files.extend_from_slice(more);
    Project::new(&files)
}

/// A command that has to go well: what it prints.
#[track_caller]
pub fn run(project: &Project, args: &[&str]) -> String {
    let output = project.run(args);
    assert!(output.status.success(), "{args:?}\n{}{}", text(&output), said(&output));
    text(&output)
}

/// The same with `--json`.
#[track_caller]
pub fn run_json(project: &Project, args: &[&str]) -> Value {
    let printed = run(project, &[args, &["--json"]].concat());
    serde_json::from_str(&printed).unwrap_or_else(|_| panic!("not JSON: {printed}"))
}

pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The counts of one source's sync: added, changed, removed, unchanged, skipped,
/// failed.
#[track_caller]
pub fn counts(synced: &Value, name: &str) -> [u64; 6] {
    let sources = synced["sources"].as_array().unwrap();
    let source = sources.iter().find(|it| it["name"] == name);
    let source = source.unwrap_or_else(|| panic!("no {name} in {synced}"));
    let count = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{source}"));
    [
        count(&source["added"]),
        count(&source["changed"]),
        count(&source["removed"]),
        count(&source["unchanged"]),
        count(&source["skipped"]["count"]),
        count(&source["failed"]["count"]),
    ]
}

/// What a search on the command line finds: the names of documents, best first.
#[track_caller]
pub fn found(project: &Project, query: &str) -> Vec<String> {
    names(&run_json(project, &["search", query])["result"])
}

/// The documents that have one of these words.
#[track_caller]
pub fn with_word(project: &Project, words: &str) -> Vec<String> {
    names(&run_json(project, &["search", words, "--mode", "keyword"])["result"])
}

pub fn names(result: &Value) -> Vec<String> {
    let hits = result["results"].as_array().unwrap_or_else(|| panic!("no results in {result}"));
    hits.iter().map(|hit| hit["source_id"].as_str().unwrap().to_owned()).collect()
}
