//! The corpus of the check before a run: scripts that are wrong, each with what
//! is found in it, and scripts as agents write them, in which nothing is.
//!
//! `UPDATE=1` writes what is found into the wrong ones.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use moonlark_core::schema::Schema;
use moonlark_core::tool::{Source, SourceKind};
use moonlark_core::{Catalog, Tool, Value};
use moonlark_gateway::tool_body::ToolBody;
use moonlark_luau::check::{self, CheckFinding};
use serde_json::Value as Json;

/// What comes before the findings in a script.
const FINDS: &str = "\n--[[ finds\n";

#[tokio::test]
async fn a_wrong_script_is_told_exactly_what_is_wrong() {
    let catalog = catalog();
    let mut differ = String::new();
    for (path, text) in scripts("wrong") {
        let (script, expected) = text.split_once(FINDS).unwrap_or((&text, ""));
        let expected = expected.strip_suffix("]]\n").unwrap_or(expected);
        let found = written(&check::find_script_mistakes(script, &catalog).await);
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, format!("{script}{FINDS}{found}]]\n")).unwrap();
        } else if found != expected || found.is_empty() {
            let _ = writeln!(differ, "{}\n  found:\n{found}  not:\n{expected}", path.display());
        }
    }
    assert!(differ.is_empty(), "{differ}");
}

#[tokio::test]
async fn nothing_is_found_in_scripts_as_agents_write_them() {
    let catalog = catalog();
    let mut refused = String::new();
    for (path, script) in scripts("right") {
        let found = written(&check::find_script_mistakes(&script, &catalog).await);
        if !found.is_empty() {
            let _ = writeln!(refused, "{}\n{found}", path.display());
        }
    }
    assert!(refused.is_empty(), "{refused}");
}

#[tokio::test]
async fn nothing_is_found_in_scripts_in_the_forms_of_the_seeds() {
    let catalog = catalog();
    let mut refused = String::new();
    for (path, script) in scripts("seeds") {
        let found = written(&check::find_script_mistakes(&script, &catalog).await);
        if !found.is_empty() {
            let _ = writeln!(refused, "{}\n{found}", path.display());
        }
    }
    assert!(refused.is_empty(), "{refused}");
}

#[tokio::test]
async fn a_worker_process_finds_the_same_as_a_check_in_this_process() {
    // The program is that of the process, with workers that live as long as this test.
    if !crate::harness::is_own_process(
        "check_corpus::a_worker_process_finds_the_same_as_a_check_in_this_process",
    ) {
        return;
    }
    let mut all: Vec<(PathBuf, String)> = scripts("wrong");
    all.extend(scripts("right"));
    let here = catalog();
    let mut expected = Vec::new();
    for (_, script) in &all {
        expected.push(written(&check::find_script_mistakes(script, &here).await));
    }
    check::set_check_program(PathBuf::from(env!("CARGO_BIN_EXE_moonlark")));
    // A catalog of its own, so that nothing is remembered.
    let there = catalog();
    let mut differ = String::new();
    for ((path, script), expected) in all.iter().zip(expected) {
        let checked = check::check_script(script, &there, "somebody").await;
        let found = written(&checked.findings);
        if found != expected || checked.unchecked.is_some() {
            let _ = writeln!(differ, "{}: {:?}\n{found}", path.display(), checked.unchecked);
        }
    }
    assert!(differ.is_empty(), "{differ}");
}

fn written(findings: &[CheckFinding]) -> String {
    let line = |it: &CheckFinding| {
        let hint = it.hint.as_ref().map(|hint| format!("    {hint}\n")).unwrap_or_default();
        format!("{}:{}: {}\n{hint}", it.line, it.column, it.message)
    };
    findings.iter().map(line).collect()
}

pub fn scripts(kind: &str) -> Vec<(PathBuf, String)> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(corpus().join(kind))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    assert!(paths.len() >= 40, "{}", paths.len());
    paths.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

pub fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/check_corpus")
}

/// Tools that nobody can call: a check calls none.
fn catalog() -> Arc<Catalog> {
    let text = std::fs::read_to_string(corpus().join("catalog.json")).unwrap();
    let sources: serde_json::Map<String, Json> = serde_json::from_str(&text).unwrap();
    let mut tools = Vec::new();
    for (name, listed) in &sources {
        let source = Arc::new(Source { kind: SourceKind::Upstream, name: name.clone() });
        for tool in listed.as_array().unwrap() {
            let schema = |key: &str| {
                let json = tool.get(key)?.as_object()?.clone();
                let (schema, problem) = Schema::from_foreign(json);
                assert!(problem.is_none(), "{problem:?}");
                Some(schema)
            };
            let full = format!("{name}.{}", tool["name"].as_str().unwrap());
            let body = ToolBody::from_fn(|_, _| Ok(Value::Null));
            let mut made = Tool::new(full, source.clone(), schema("inputSchema").unwrap(), body);
            made.description = tool["description"].as_str().unwrap().to_owned();
            made.output = schema("outputSchema");
            tools.push(Arc::new(made));
        }
    }
    Arc::new(Catalog::new(Arc::new(moonlark_host::host_modules()), tools, &[], Vec::new()))
}
