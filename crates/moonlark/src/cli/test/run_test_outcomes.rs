//! The tests of `moonlark test` that were made of runs: found, replayed, and checked for
//! drift.

use std::path::{Path, PathBuf};
use std::time::Instant;

use moonlark_core::{Problem, Result};

use super::super::source_args::SourceArgs;
use super::super::{CommandError, GlobalArgs, display_path, wait_for_sources};
use super::test_report::{self, TestOutcome};
use super::{TestArgs, test_files};
use crate::project::Project;
use crate::run_tests::drift_check::{DriftOutcome, check_drift};
use crate::run_tests::{RUN_TEST_SUFFIX, RunTestFile, replay_test};
use crate::source_selection::SourceSelection;

/// Largest file of a test.
const MAX_RUN_TEST_BYTES: u64 = 64 << 20;

/// Files that are such tests, and the other paths.
pub(super) fn split_paths(paths: Vec<PathBuf>) -> (Vec<PathBuf>, Vec<PathBuf>) {
    paths.into_iter().partition(|path| is_run_test(path) && !path.is_dir())
}

/// Those, and what is below the folders among `roots`.
pub(super) fn find_run_tests(files: &[PathBuf], roots: &[PathBuf]) -> Vec<PathBuf> {
    let folders = roots.iter().filter(|path| path.is_dir());
    let mut found: Vec<PathBuf> =
        folders.flat_map(|root| test_files::find_files(root, is_run_test)).collect();
    found.extend(files.iter().cloned());
    found.sort();
    found.dedup();
    found
}

fn is_run_test(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(RUN_TEST_SUFFIX))
}

/// The test, and its script, which is beside it.
fn read_run_test(path: &Path) -> Result<(RunTestFile, String)> {
    let unreadable = |file: &Path, why: String| {
        Problem::bad_script(format!("{} cannot be read: {why}", display_path(file)))
            .with_hint("`moonlark runs save ID --as-test NAME` writes a test and its script")
    };
    let size = path.metadata().map_or(0, |about| about.len());
    if size > MAX_RUN_TEST_BYTES {
        return Err(unreadable(path, format!("it has {size} bytes")));
    }
    let read = |file: &Path| {
        std::fs::read_to_string(file).map_err(|error| unreadable(file, error.to_string()))
    };
    let file = RunTestFile::parse(&read(path)?, &display_path(path))?;
    let script = read(&path.with_file_name(&file.script))?;
    Ok((file, script))
}

impl TestArgs {
    fn is_wanted(&self, label: &str) -> bool {
        self.filter.as_ref().is_none_or(|filter| label.contains(filter.as_str()))
    }

    /// Replay one test; none if it is not wanted.
    pub(super) async fn replay_run_test(
        &self,
        path: &Path,
        project: &Project,
        global: &GlobalArgs,
    ) -> Option<TestOutcome> {
        let label = display_path(path);
        if !self.is_wanted(&label) {
            return None;
        }
        let started = Instant::now();
        let replayed = match read_run_test(path) {
            Ok((file, script)) => replay_test(&file, &script, project).await,
            Err(problem) => Err(problem),
        };
        let mut outcome = TestOutcome::new(&label, "replay");
        outcome.took = started.elapsed();
        outcome.problem = replayed.err();
        if !global.json {
            test_report::print_run_test(&label, std::slice::from_ref(&outcome));
        }
        Some(outcome)
    }

    /// Make the read-only calls of all such tests, and compare.
    pub(super) async fn check_drift(
        &self,
        global: &GlobalArgs,
    ) -> Result<Vec<TestOutcome>, CommandError> {
        let (files, roots) = split_paths(self.search_roots()?);
        let wanted = find_run_tests(&files, &roots);
        let wanted: Vec<PathBuf> =
            wanted.into_iter().filter(|path| self.is_wanted(&display_path(path))).collect();
        if wanted.is_empty() {
            return Err(Problem::bad_request("no test was made of a run")
                .with_hint("`moonlark runs save ID --as-test NAME` makes one")
                .into());
        }
        let project = SourceArgs::default().open_project(global).await?;
        project.connect_sources(&SourceSelection::All).await;
        wait_for_sources(&project).await;
        project.start_journal_and_telemetry().await;
        let mut outcomes = Vec::new();
        for path in &wanted {
            let of_file = drift_outcomes(path, &project).await;
            if !global.json {
                test_report::print_run_test(&display_path(path), &of_file);
            }
            outcomes.extend(of_file);
        }
        project.disconnect_quickly().await;
        Ok(outcomes)
    }
}

/// One for each call of a test.
async fn drift_outcomes(path: &Path, project: &Project) -> Vec<TestOutcome> {
    let label = display_path(path);
    let failed = |problem: Problem| vec![TestOutcome::new(&label, "drift").with_problem(problem)];
    let file = match read_run_test(path) {
        Ok((file, _)) => file,
        Err(problem) => return failed(problem),
    };
    let started = Instant::now();
    let drifts = match check_drift(&file, &project.gateway).await {
        Ok(drifts) => drifts,
        Err(problem) => return failed(problem),
    };
    let outcomes = drifts.into_iter().map(|drift| {
        let mut outcome = TestOutcome::new(&label, &format!("{} at {}", drift.tool, drift.place));
        outcome.took = started.elapsed();
        if let DriftOutcome::Skipped(why) = drift.found {
            outcome.output.push(format!("not called: {why}"));
            outcome.skipped = true;
        }
        outcome.problem = drift.found.problem();
        outcome
    });
    outcomes.collect()
}
