//! Test reports: for people, as JSON, as JUnit XML.

use std::fmt::Write;
use std::time::Duration;

use moonlark_core::Problem;
use serde_json::json;

use super::super::print_line;
use super::format_test_duration;
use super::test_files::{NO_TESTS_MESSAGE, TestFile};

/// How one test went. A file that does not load, or has no test, is one without a name.
pub(super) struct TestOutcome {
    pub(super) file: String,
    pub(super) name: String,
    pub(super) took: Duration,
    /// What it printed and logged.
    pub(super) output: Vec<String>,
    pub(super) problem: Option<Problem>,
    /// Nothing was looked at.
    pub(super) skipped: bool,
}

impl TestOutcome {
    pub(super) fn new(file: &str, name: &str) -> Self {
        Self {
            file: file.to_owned(),
            name: name.to_owned(),
            took: Duration::ZERO,
            output: Vec::new(),
            problem: None,
            skipped: false,
        }
    }

    pub(super) fn with_problem(self, problem: Problem) -> Self {
        Self { problem: Some(problem), ..self }
    }
}

pub(super) fn print_file(file: &TestFile, outcomes: &[TestOutcome]) {
    print_line(file.label());
    for outcome in outcomes {
        match &outcome.problem {
            None => {
                print_line(format!("  ✓ {} ({})", outcome.name, format_test_duration(outcome.took)))
            }
            Some(problem) => failure_lines(file, outcome, problem).into_iter().for_each(print_line),
        }
    }
    print_line("");
}

/// The tests of one file that was made of a run.
pub(super) fn print_run_test(label: &str, outcomes: &[TestOutcome]) {
    print_line(label);
    for outcome in outcomes {
        let name = if outcome.name.is_empty() { "the test" } else { &outcome.name };
        match &outcome.problem {
            None if outcome.skipped => print_line(format!("  - {name}")),
            None => print_line(format!("  ✓ {name} ({})", format_test_duration(outcome.took))),
            Some(problem) => {
                print_line(format!("  ✗ {name}"));
                problem.to_string().lines().for_each(|line| print_line(format!("      {line}")));
            }
        }
        outcome.output.iter().for_each(|line| print_line(format!("      {line}")));
    }
    print_line("");
}

fn failure_lines(file: &TestFile, outcome: &TestOutcome, problem: &Problem) -> Vec<String> {
    let name = match outcome.name.as_str() {
        "" if problem.message == NO_TESTS_MESSAGE => NO_TESTS_MESSAGE,
        "" => "the file does not load",
        name => name,
    };
    let mut lines = vec![format!("  ✗ {name}")];
    // Further to the right than any line of ours, as it is.
    lines.extend(problem.to_string().lines().map(|line| format!("      {line}")));
    let place = problem.place.as_ref().filter(|place| *place.file == *file.label());
    if let Some(number) = place.and_then(|place| place.line)
        && let Some(line) = file.source_line(number)
    {
        lines.push(format!("      {number} | {line}").trim_end().to_owned());
    }
    let said = outcome.output.iter().flat_map(|said| said.lines());
    lines.extend(said.map(|line| format!("      said: {line}").trim_end().to_owned()));
    lines
}

pub(super) fn outcome_summary(outcomes: &[TestOutcome], took: Duration) -> String {
    let (passed, failed) = count_outcomes(outcomes);
    let skipped = match count_skipped(outcomes) {
        0 => String::new(),
        skipped => format!(", {skipped} not called"),
    };
    format!("{passed} passed, {failed} failed{skipped} ({})", format_test_duration(took))
}

pub(super) fn outcomes_json(outcomes: &[TestOutcome]) -> String {
    let (passed, failed) = count_outcomes(outcomes);
    let tests: Vec<_> = outcomes
        .iter()
        .map(|outcome| {
            let mut test = json!({
                "file": outcome.file,
                "name": outcome.name,
                "ok": outcome.problem.is_none(),
                "seconds": outcome.took.as_secs_f64(),
            });
            if outcome.skipped {
                test["skipped"] = true.into();
                test["output"] = outcome.output.clone().into();
            }
            if let Some(problem) = &outcome.problem {
                test["error"] = problem.to_json();
                test["output"] = outcome.output.clone().into();
            }
            test
        })
        .collect();
    let mut report = json!({ "passed": passed, "failed": failed, "tests": tests });
    let skipped = count_skipped(outcomes);
    if skipped > 0 {
        report["skipped"] = skipped.into();
    }
    report.to_string()
}

pub(super) fn junit_xml(outcomes: &[TestOutcome]) -> String {
    let (_, failed) = count_outcomes(outcomes);
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites tests=\"{}\" failures=\"{failed}\">\n",
        outcomes.len()
    );
    for file in outcomes.chunk_by(|a, b| a.file == b.file) {
        let (_, failed) = count_outcomes(file);
        let name = file.first().map(|outcome| escape_xml(&outcome.file)).unwrap_or_default();
        let _ = writeln!(
            xml,
            "  <testsuite name=\"{name}\" tests=\"{}\" failures=\"{failed}\">",
            file.len()
        );
        for outcome in file {
            let _ = write!(
                xml,
                "    <testcase classname=\"{name}\" name=\"{}\" time=\"{:.3}\"",
                escape_xml(&outcome.name),
                outcome.took.as_secs_f64()
            );
            match &outcome.problem {
                None if outcome.skipped => xml.push_str("><skipped/></testcase>\n"),
                None => xml.push_str("/>\n"),
                Some(problem) => {
                    let _ = writeln!(
                        xml,
                        ">\n      <failure message=\"{}\">{}</failure>\n    </testcase>",
                        escape_xml(&problem.message),
                        escape_xml(&problem.to_string())
                    );
                }
            }
        }
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

/// Text in XML; what XML cannot hold at all is left out.
fn escape_xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push(c),
            c if c < ' ' || matches!(c, '\u{fffe}' | '\u{ffff}') => {}
            c => escaped.push(c),
        }
    }
    escaped
}

fn count_outcomes(outcomes: &[TestOutcome]) -> (usize, usize) {
    let failed = outcomes.iter().filter(|outcome| outcome.problem.is_some()).count();
    (outcomes.len() - failed - count_skipped(outcomes), failed)
}

fn count_skipped(outcomes: &[TestOutcome]) -> usize {
    outcomes.iter().filter(|outcome| outcome.skipped && outcome.problem.is_none()).count()
}
