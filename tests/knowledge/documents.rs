//! Documents that are no plain text, read by the real binary: PDFs in a process
//! of its own, repositories by a supervised git.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use super::{counts, found, run_json};
use crate::harness::{Project, repo};

fn fixture(name: &str) -> PathBuf {
    repo().join("crates/moonlark-knowledge/tests/fixtures").join(name)
}

fn project(documents: &[&str]) -> Project {
    let config = "[connectors.filesystem.papers]\nroot = \"papers\"\nwatch = false\n";
    let project = Project::new(&[("moonlark.toml", config), ("papers/.keep", "")]);
    for name in documents {
        std::fs::copy(fixture(name), project.path("papers").join(name)).unwrap();
    }
    project
}

/// What a sync said about documents that it did not take: name and reason.
fn complaints(synced: &Value, what: &str) -> Vec<String> {
    let list = synced["sources"][0][what].clone();
    let text = list.to_string();
    let items = list.as_object().and_then(|it| it.values().find_map(Value::as_array)).cloned();
    items.unwrap_or_else(|| panic!("no list in {text}")).iter().map(Value::to_string).collect()
}

#[test]
fn pdfs_and_word_documents_are_found_by_what_they_say() {
    let project = project(&["handbook.pdf", "languages.pdf", "minutes.docx"]);
    let synced = run_json(&project, &["sync"]);
    assert_eq!(counts(&synced, "papers"), [3, 0, 0, 0, 0, 0]);
    assert_eq!(found(&project, "who flooded the basement")[0], "handbook.pdf");
    assert_eq!(found(&project, "насос клапан")[0], "languages.pdf");
    assert_eq!(found(&project, "which pump do we buy")[0], "minutes.docx");
    let synced = run_json(&project, &["sync"]);
    assert_eq!(counts(&synced, "papers"), [0, 0, 0, 3, 0, 0]);
}

#[test]
fn a_pdf_that_cannot_be_read_is_reported_and_the_others_are_read() {
    let project = project(&["handbook.pdf", "locked.pdf", "scanned.pdf"]);
    let synced = run_json(&project, &["sync"]);
    assert_eq!(counts(&synced, "papers"), [1, 0, 0, 0, 2, 0]);
    let skipped = complaints(&synced, "skipped").join("\n");
    assert!(skipped.contains("it is protected by a password"), "{skipped}");
    assert!(skipped.contains("there is no text in it, only pictures"), "{skipped}");
}

#[test]
fn a_pdf_made_to_break_its_reader_breaks_nothing_else() {
    let hostile = ["bomb.pdf", "deep.pdf", "endless_form.pdf", "own_child.pdf", "own_parent.pdf"];
    let project = project(&[&hostile[..], &["handbook.pdf"]].concat());
    let output = project.run(&["sync", "--json"]);
    let synced: Value = serde_json::from_slice(&output.stdout).unwrap();
    let [added, .., skipped, failed] = counts(&synced, "papers");
    assert_eq!((added, skipped + failed), (1, 5), "{synced}");
    let failed = complaints(&synced, "failed").join("\n");
    // The bomb, and two that never come to an end.
    assert!(failed.contains("of memory"), "{failed}");
    assert_eq!(found(&project, "basement")[0], "handbook.pdf");
}

#[test]
fn a_repository_is_synced_by_a_git_that_ends_with_us() {
    let origin = Project::new(&[("docs/pumps.md", "# Pumps\n\nThe red lever stops them.\n")]);
    let git = |args: &[&str]| {
        let done = Command::new("git")
            .args(["-c", "user.name=Ada", "-c", "user.email=ada@example.com"])
            .args(args)
            .current_dir(origin.path(""))
            .output()
            .unwrap();
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    };
    git(&["init", "--quiet", "--initial-branch=main"]);
    git(&["add", "docs"]);
    git(&["commit", "--quiet", "--message=one"]);
    let (place, url) = (origin.path(""), format!("file://{}", origin.path("").display()));
    let config = format!(
        "[connectors.git.here]\npath = {:?}\n\n[connectors.git.there]\nurl = {url:?}\nbranch = \"main\"\n",
        place.display().to_string()
    );
    let project = Project::new(&[("moonlark.toml", &config)]);
    let synced = run_json(&project, &["sync"]);
    assert_eq!(counts(&synced, "here"), [1, 0, 0, 0, 0, 0]);
    assert_eq!(counts(&synced, "there"), [1, 0, 0, 0, 0, 0]);
    assert_eq!(found(&project, "red lever"), ["docs/pumps.md", "docs/pumps.md"]);
    origin.write("docs/pumps.md", "# Pumps\n\nThe green lever stops them.\n");
    git(&["commit", "--quiet", "--all", "--message=two"]);
    let synced = run_json(&project, &["sync"]);
    assert_eq!(counts(&synced, "here"), [0, 1, 0, 0, 0, 0]);
    assert_eq!(counts(&synced, "there"), [0, 1, 0, 0, 0, 0]);
}
