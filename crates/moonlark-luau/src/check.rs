//! The check of an agent's script before it runs: names, arguments and fields
//! that are surely wrong are said at once, and nothing has been called.
//!
//! Luau's type checker tells what type every expression has. What it finds
//! itself is not repeated: it minds much that runs well. Instead the script is
//! held to the schemas of the tools it names, and only where no doubt is left.
//!
//! All of it is native work on text that a stranger wrote, so it is done in
//! [`check_server`] processes that the kernel bounds. A script that one cannot follow is
//! said to be just that.

mod argument_checker;
mod check_cache;
mod check_clock;
mod check_pool;
mod check_protocol;
mod check_server;
mod check_worker;
mod described_catalog;
mod in_process;
mod local_scopes;
mod preamble;
mod script_checker;
pub(crate) mod script_facts;
mod script_globals;
mod sdk_names;
mod string_templates;
mod syntax_kinds;
pub(crate) mod tested_values;
#[cfg(test)]
mod tests;
mod text_fields;
mod traced_fields;
mod type_checker;
mod typed_fields;
mod unknown_names;
mod value_kinds;

use std::sync::Arc;

use check_pool::PooledCheck;
use check_worker::CheckFailure;
use moonlark_core::{Catalog, Problem, SourceLocation};

pub use check_server::{check_scripts_if_asked, set_check_program};
#[cfg(test)]
pub(crate) use script_globals::all_libraries;

/// Something that is surely wrong.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct CheckFinding {
    /// Both from one.
    pub line: u32,
    pub column: u32,
    /// One line.
    pub message: String,
    /// How it would be right: the signature, as a rule.
    pub hint: Option<String>,
}

/// What a check came to.
#[derive(Debug, Clone, Default)]
pub struct CheckedScript {
    pub findings: Vec<CheckFinding>,
    /// What runs, and most likely does something else than is meant.
    pub advice: Vec<CheckFinding>,
    /// Why the script, or its types, could not be checked. That is no fault of
    /// the script; one that cannot be followed is a finding.
    pub unchecked: Option<String>,
}

/// Start a process for checks, so that the first does not wait until it is there and has
/// read what all checks have in common.
pub(crate) fn start_check_worker() {
    if let Some(program) = check_server::check_program() {
        check_pool::start_first_worker(program);
    }
}

/// What is surely wrong with a script that is to use the tools of `catalog`.
pub async fn find_script_mistakes(script: &str, catalog: &Arc<Catalog>) -> Vec<CheckFinding> {
    check_script(script, catalog, "").await.findings
}

/// The same, with what could not be checked. Callers have their turns.
pub async fn check_script(script: &str, catalog: &Arc<Catalog>, caller: &str) -> CheckedScript {
    if script.len() > crate::script_unit::MAX_LUAU_SOURCE_BYTES {
        return CheckedScript::default();
    }
    if let Some(known) = check_cache::find_cached_check(script, catalog) {
        return known;
    }
    let checked = match check_server::check_program() {
        Some(program) => check_pool::check_in_worker(program, script, catalog, caller).await,
        None => in_process::check_in_process(script, catalog)
            .await
            .ok_or_else(|| CheckFailure::Lost("the check failed".to_owned())),
    };
    let (checked, repeatable) = match checked {
        Ok(PooledCheck { report, repeatable }) => {
            let mut findings = report.findings;
            findings.iter_mut().for_each(|finding| finding.suggest_tool_path(catalog));
            let unchecked = report.untyped.then(|| {
                let beside = if repeatable { "" } else { " while others wait" };
                format!("its types take too much to check{beside}")
            });
            (CheckedScript { findings, advice: report.advice, unchecked }, repeatable)
        }
        Err(CheckFailure::Stopped(why)) => {
            let findings = vec![CheckFinding::uncheckable_script(&why)];
            (CheckedScript { findings, ..CheckedScript::default() }, true)
        }
        Err(CheckFailure::Lost(why) | CheckFailure::OutOfTime(why)) => {
            (CheckedScript { unchecked: Some(why), ..CheckedScript::default() }, false)
        }
    };
    // Also kept where it took too long, which it would again.
    if repeatable {
        check_cache::cache_check(script, catalog, &checked);
    }
    checked
}

/// The findings as one Problem, in the file that the script goes by. Signatures
/// are its hint, each once.
pub fn problem_from_findings(findings: &[CheckFinding], file: &str) -> Option<Problem> {
    let first = findings.first()?;
    let line = |it: &CheckFinding| format!("{}:{}: {}", it.line, it.column, it.message);
    let mut message = match findings {
        [only] => only.message.clone(),
        many => many.iter().map(line).collect::<Vec<_>>().join("\n"),
    };
    let mut hints: Vec<&str> = Vec::new();
    for hint in findings.iter().filter_map(|it| it.hint.as_deref()) {
        if !hints.contains(&hint) {
            hints.push(hint);
        }
    }
    let place = SourceLocation::at_column(file, first.line, first.column);
    if hints.is_empty() {
        // That alone is no hint.
        message.push_str(if findings.len() > 1 {
            "\nnothing was called"
        } else {
            "; nothing was called"
        });
        return Some(Problem::bad_script(message).at_location(place));
    }
    hints.push("nothing was called");
    Some(Problem::bad_script(message).at_location(place).with_hint(hints.join("\n")))
}

/// How a finding about an unknown name begins.
const UNKNOWN_NAME_PREFIX: &str = "there is nothing called ";

impl CheckFinding {
    /// Say where scripts find the tool that an unknown name is, if it is one. Whoever
    /// checks knows only the sources that the script names.
    fn suggest_tool_path(&mut self, catalog: &Catalog) {
        let is_guess = self.hint.as_ref().is_none_or(|hint| hint.starts_with("did you mean "));
        let Some(name) = self.message.strip_prefix(UNKNOWN_NAME_PREFIX).filter(|_| is_guess) else {
            return;
        };
        if let Some(path) = script_globals::find_tool_path(catalog, name) {
            self.hint = Some(format!("did you mean {path}?"));
        }
    }

    /// Of a script that the check was stopped for.
    fn uncheckable_script(why: &str) -> CheckFinding {
        CheckFinding {
            line: 1,
            column: 1,
            message: format!("the script cannot be checked: {why}"),
            hint: Some("leave out large or deeply nested types, tables and expressions".to_owned()),
        }
    }

    fn new(place: luau_syntax::location::Location, message: impl Into<String>) -> CheckFinding {
        // The script begins on the line after the first, and lines count from 0.
        let (line, column) = (place.begin.line, place.begin.column + 1);
        CheckFinding { line, column, message: message.into(), hint: None }
    }

    fn with_hint(self, hint: impl Into<String>) -> CheckFinding {
        self.with_optional_hint(Some(hint))
    }

    fn with_optional_hint(mut self, hint: Option<impl Into<String>>) -> CheckFinding {
        self.hint = hint.map(Into::into);
        self
    }
}
