//! `cargo x tidy`: what a machine can check of ARCHITECTURE.md and the house
//! rules.
//!
//! Each check looks at the files and says what it found, where, and what to do
//! about it. None of them changes anything.

mod code_map;
mod documented;
mod ignored_tests;
mod links;
mod names;
mod source;
mod star;
mod unused_dependencies;

use anyhow::{Result, bail};

use crate::repo::{self, File};

/// Something that is not as it should be.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Finding {
    path: String,
    /// 0 for the file as a whole.
    line: usize,
    what: String,
    /// The next action.
    fix: String,
}

impl Finding {
    fn new(path: &str, line: usize, what: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding { path: path.to_owned(), line, what: what.into(), fix: fix.into() }
    }

    fn shown(&self) -> String {
        let Finding { path, line, what, fix } = self;
        match line {
            0 => format!("{path}: {what}\n    {fix}"),
            line => format!("{path}:{line}: {what}\n    {fix}"),
        }
    }
}

type Check = fn(&[File]) -> Vec<Finding>;

const CHECKS: [Check; 17] = [
    code_map::page_is_whole_and_short,
    code_map::files_say_what_they_are,
    code_map::names_exist,
    names::type_names_are_unique,
    names::constants_say_what_they_are,
    star::core_runs_nothing,
    star::dependencies,
    source::length,
    source::panics,
    source::unsafe_code,
    source::type_names,
    source::unfinished,
    documented::example_scripts,
    documented::hostile_scripts,
    ignored_tests::reasons_name_what_is_missing,
    links::resolve,
    unused_dependencies::names_occur_in_sources,
];

pub(crate) fn run() -> Result<()> {
    let files = repo::files()?;
    let mut findings: Vec<Finding> = CHECKS.iter().flat_map(|check| check(&files)).collect();
    findings.sort();
    if findings.is_empty() {
        return Ok(());
    }
    let shown: Vec<String> = findings.iter().map(Finding::shown).collect();
    bail!("{}\n\nnot tidy: {}", shown.join("\n"), findings.len())
}
