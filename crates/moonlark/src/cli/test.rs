//! `moonlark test`: the tests that authors write beside their scripts.

mod run_test_outcomes;
pub(super) mod test_files;
mod test_report;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use futures::StreamExt;
use moonlark_clients::config_paths::normalize_path;
use moonlark_core::grant::Grant;
use moonlark_core::tool::CallScope;
use moonlark_core::{Problem, Result};
use moonlark_gateway::call::CallEventSink;
use moonlark_gateway::{Call, CallEvent};
use parking_lot::Mutex;

use super::{
    CommandError, CommandResult, GlobalArgs, eprint_line, open_project_without_values, print_line,
    working_dir,
};
use crate::project::Project;
use crate::reload::FolderChanges;
use crate::scripts;
use test_files::TestFile;
use test_report::TestOutcome;

/// Files whose tests run at the same time.
const MAX_PARALLEL_FILES: usize = 4;

#[derive(Args)]
pub(crate) struct TestArgs {
    /// Files of tests, or folders to look for them in (otherwise the project).
    paths: Vec<PathBuf>,
    /// Only tests whose file and name contain this, such as `git_test.star::test_log`.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Write the outcome as JUnit XML, for CI.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Run again whenever a file changes.
    #[arg(long)]
    watch: bool,
    /// Make the read-only calls of tests that were made of runs (`runs save --as-test`), and
    /// say what their servers answer otherwise than then. Nothing else is tested.
    #[arg(long, conflicts_with = "watch")]
    drift: bool,
    /// Additional grant for the tests, such as `exec:git`.
    #[arg(long, value_name = "GRANT", value_parser = parse_grant)]
    allow: Vec<Grant>,
}

fn parse_grant(text: &str) -> Result<Grant, String> {
    text.parse().map_err(|problem: Problem| problem.message)
}

impl TestArgs {
    pub(crate) async fn run(self, global: &GlobalArgs) -> CommandResult {
        if !self.watch {
            return self.run_once(global).await;
        }
        loop {
            // Before the run, so that an edit during it is not missed.
            let mut changes = FolderChanges::watch_below(&self.search_roots()?)?;
            if let Err(failure) = self.run_once(global).await {
                failure.eprint_problems();
            }
            eprint_line("");
            eprint_line("waiting for changes (Ctrl-C ends)");
            changes.next().await;
        }
    }

    fn search_roots(&self) -> Result<Vec<PathBuf>, CommandError> {
        let here = working_dir()?;
        match self.paths.as_slice() {
            [] => Ok(vec![here]),
            paths => Ok(paths.iter().map(|path| normalize_path(&here.join(path))).collect()),
        }
    }

    async fn run_once(&self, global: &GlobalArgs) -> CommandResult {
        let started = Instant::now();
        let mut outcomes = Vec::new();
        if self.drift {
            outcomes = self.check_drift(global).await?;
            if !outcomes.is_empty() && outcomes.iter().all(|outcome| outcome.skipped) {
                eprint_line("warning: no tool was called, so nothing is known of what they answer");
            }
            return self.report(outcomes, started.elapsed(), global);
        }
        let project = open_project_without_values(global).await?;
        let loaded = project.loaded_config().await;
        let (run_tests, roots) = run_test_outcomes::split_paths(self.search_roots()?);
        let files = test_files::find_test_files(&roots, &loaded)?;
        let mut running = futures::stream::iter(&files)
            .map(|file| self.run_file(file, &project, &loaded.config))
            .buffered(MAX_PARALLEL_FILES);
        while let Some((file, results)) = running.next().await {
            if !global.json && !results.is_empty() {
                test_report::print_file(file, &results);
            }
            outcomes.extend(results);
        }
        drop(running);
        for file in run_test_outcomes::find_run_tests(&run_tests, &roots) {
            outcomes.extend(self.replay_run_test(&file, &project, global).await);
        }
        self.report(outcomes, started.elapsed(), global)
    }

    fn report(
        &self,
        outcomes: Vec<TestOutcome>,
        took: Duration,
        global: &GlobalArgs,
    ) -> CommandResult {
        if outcomes.is_empty() {
            return Err(self.nothing_found_problem().into());
        }
        if let Some(path) = &self.junit {
            #[expect(clippy::disallowed_methods, reason = "it may be a pipe or a device")]
            std::fs::write(path, test_report::junit_xml(&outcomes)).map_err(|error| {
                Problem::unavailable(format!("{} cannot be written: {error}", path.display()))
            })?;
        }
        print_line(&if global.json {
            test_report::outcomes_json(&outcomes)
        } else {
            test_report::outcome_summary(&outcomes, took)
        });
        if outcomes.iter().all(|outcome| outcome.problem.is_none()) {
            Ok(())
        } else {
            Err(CommandError::Said)
        }
    }

    fn nothing_found_problem(&self) -> Problem {
        let problem = Problem::bad_request("no test was found");
        match &self.filter {
            Some(filter) => problem.with_hint(format!("no file and name of a test contains {filter:?}")),
            None => problem.with_hint(
                "tests are functions named test_… in files named *_test.star, *_test.luau or *_test.lua; \
                 `moonlark runs save ID --as-test NAME` makes one of a run",
            ),
        }
    }

    /// All tests of one file.
    async fn run_file<'a>(
        &self,
        file: &'a TestFile,
        project: &Project,
        config: &moonlark_config::ProjectConfig,
    ) -> (&'a TestFile, Vec<TestOutcome>) {
        let outcome = |name: &str| TestOutcome::new(&file.label(), name);
        let scope = match scripts::script_test_scope(&file.subject, config, &self.allow) {
            Ok(scope) => Arc::new(scope),
            Err(problem) => return (file, vec![outcome("").with_problem(problem)]),
        };
        let loading = project.gateway.open_test_call(scope.clone(), None);
        let tests = match run_until_deadline(&loading, file.load_tests(project, &loading)).await {
            Ok(tests) => tests,
            Err(problem) => return (file, vec![outcome("").with_problem(problem)]),
        };
        let is_wanted = self.filter.as_ref().is_none_or(|it| file.label().contains(it.as_str()));
        if tests.test_names().is_empty() && is_wanted {
            return (file, vec![outcome("").with_problem(file.no_tests_problem())]);
        }
        let mut outcomes = Vec::new();
        for name in tests.test_names() {
            let full = format!("{}::{name}", file.label());
            if self.filter.as_ref().is_none_or(|filter| full.contains(filter.as_str())) {
                outcomes.push(run_test(&tests, name, project, &scope, outcome(name)).await);
            }
        }
        (file, outcomes)
    }
}

/// One test, in a call of its own.
async fn run_test(
    tests: &test_files::ScriptTests,
    name: &str,
    project: &Project,
    scope: &Arc<CallScope>,
    mut outcome: TestOutcome,
) -> TestOutcome {
    let said = Arc::new(Mutex::new(Vec::new()));
    let hear = said.clone();
    let events: CallEventSink = Arc::new(move |event| {
        if let CallEvent::Log { message, .. } = event {
            hear.lock().push(message);
        }
    });
    let call = project.gateway.open_test_call(scope.clone(), Some(events));
    let started = Instant::now();
    let ended = run_until_deadline(&call, tests.run_test(name, &call)).await;
    outcome.took = started.elapsed();
    outcome.output = std::mem::take(&mut *said.lock());
    match ended {
        Ok(()) => outcome,
        Err(problem) => outcome.with_problem(problem),
    }
}

async fn run_until_deadline<T>(call: &Call, work: impl Future<Output = Result<T>>) -> Result<T> {
    let timeout = call.limits().timeout;
    tokio::time::timeout_at(call.deadline(), work).await.unwrap_or_else(|_| {
        let seconds = moonlark_core::limits::format_seconds(timeout);
        let message = format!("the test timed out after {seconds}");
        Err(Problem::new(moonlark_core::ProblemCode::Timeout, message))
    })
}

/// For a person: milliseconds, or seconds when there are some.
fn format_test_duration(took: Duration) -> String {
    match took.as_secs_f64() {
        seconds if seconds >= 1.0 => format!("{seconds:.1} s"),
        seconds => format!("{:.0} ms", seconds * 1000.0),
    }
}
