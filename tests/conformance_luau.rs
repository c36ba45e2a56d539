//! The official conformance suite, against tools that are Luau scripts.
//!
//! `conformance/luau` is the part of the fixture that a tool can be, written as a
//! user would write it and served as a user would serve it. What the suite looks
//! for and a tool script does not make stands in [`NOT_A_TOOLS`].

use std::path::Path;

use crate::conformance::report::{self, Report};
use crate::harness::{Project, repo};

/// Scenarios, or single checks of one, that no tool script can pass, and why.
/// One that passes does not belong here.
const NOT_A_TOOLS: &[(&str, &str)] = &[
    ("resources-read-text", RESOURCES),
    ("resources-read-binary", RESOURCES),
    ("resources-templates-read", RESOURCES),
    ("resources-subscribe", RESOURCES),
    ("resources-unsubscribe", RESOURCES),
    ("prompts-get-simple", PROMPTS),
    ("prompts-get-with-args", PROMPTS),
    ("prompts-get-embedded-resource", PROMPTS),
    ("prompts-get-with-image", PROMPTS),
    ("input-required-result-non-tool-request", PROMPTS),
    ("server-stateless: sep-2575-server-declares-prompts-in-discover", PROMPTS),
    (
        "server-stateless: sep-2575-server-sends-tools-list-changed-on-subscription",
        "a script writes data, never code: it cannot make a tool come or go",
    ),
    (
        "tasks-lifecycle: sep-2663-tasks-get-status-failed",
        "a script that fails is a result with isError; it has no errors of the protocol",
    ),
    (
        "tasks-required-task-error",
        "no script needs a task: a client that knows none waits for the answer",
    ),
];

const RESOURCES: &str = "a tool script offers no resources";
const PROMPTS: &str = "a tool script offers no prompts";

#[test]
#[ignore = "needs tests/conformance/install.sh: run ./test"]
fn scripts_are_tools_as_2025_11_25_wants_them() {
    let report = suite("2025-11-25");
    only_what_is_no_tools_fails(&report);
    // The tools of it: those that ask, log and report progress among them.
    for scenario in [
        "tools-call-sampling",
        "tools-call-elicitation",
        "elicitation-sep1034-defaults",
        "elicitation-sep1330-enums",
        "tools-call-with-logging",
        "tools-call-with-progress",
        "tools-call-error",
        "tools-call-mixed-content",
        "json-schema-2020-12",
    ] {
        assert!(report.scenarios().contains(&scenario), "{scenario} was not run");
    }
}

#[test]
#[ignore = "needs tests/conformance/install.sh: run ./test"]
fn scripts_are_tools_as_2026_07_28_wants_them() {
    let report = suite("2026-07-28");
    only_what_is_no_tools_fails(&report);
    let asking = report.scenarios().into_iter().filter(|it| it.starts_with("input-required-"));
    assert_eq!(asking.count(), 14);
    let tasks = report.scenarios().into_iter().filter(|it| it.starts_with("tasks-"));
    assert!(tasks.count() >= 9, "{:?}", report.scenarios());
    for scenario in ["server-stateless", "http-custom-header-server-validation"] {
        assert!(report.scenarios().contains(&scenario), "{scenario} was not run");
    }
}

fn suite(revision: &str) -> Report {
    // The suite looks for words of JSON Schema that not every model takes.
    let project = Project::new(&[("moonlark.toml", "[server]\nschemas = \"exact\"\n")]);
    copy(&repo().join("tests/conformance/luau/tools"), &project.path("tools"));
    let check = project.run(&["check"]);
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    let server = project.serve();
    report::server(&server.url("/mcp"), revision)
}

fn only_what_is_no_tools_fails(report: &Report) {
    let failed = report.failed(|_| true);
    let is_about = |failure: &str, what: &str| {
        // A check is followed by its name, a scenario by its check.
        let rest = failure.strip_prefix(what);
        rest.is_some_and(|rest| rest.starts_with(": ") || rest.starts_with(" ("))
    };
    let excused = |failure: &&String| NOT_A_TOOLS.iter().any(|(it, _)| is_about(failure, it));
    let lost: Vec<&String> = failed.iter().filter(|failure| !excused(failure)).collect();
    assert!(lost.is_empty(), "{} checks failed: {lost:#?}", lost.len());
    for (what, why) in NOT_A_TOOLS {
        let scenario = what.split(": ").next().unwrap_or_default();
        let run = report.scenarios().contains(&scenario);
        let fails = failed.iter().any(|failure| is_about(failure, what));
        assert!(fails || !run, "{what} passes, though: {why}");
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}
