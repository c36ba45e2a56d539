//! `moonlark test`: the tests that authors write beside their scripts.

mod find;
mod report;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use futures::StreamExt;
use moonlark_core::call::Events;
use moonlark_core::grant::Grant;
use moonlark_core::tool::Scope;
use moonlark_core::{Call, Event, Problem, Result};
use parking_lot::Mutex;

use super::{Done, Failure, Global, here, open_without_values, print, say};
use crate::project::Project;
use crate::reload::Changes;
use crate::scripts;
use find::TestFile;
use report::Outcome;

/// Files whose tests run at the same time.
const AT_ONCE: usize = 4;

#[derive(Args)]
pub(crate) struct Test {
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
    /// Let tests do this beside what their script may, such as `exec:git`.
    #[arg(long, value_name = "GRANT", value_parser = grant)]
    allow: Vec<Grant>,
}

fn grant(text: &str) -> Result<Grant, String> {
    text.parse().map_err(|problem: Problem| problem.message)
}

impl Test {
    pub(crate) async fn run(self, global: &Global) -> Done {
        if !self.watch {
            return self.once(global).await;
        }
        loop {
            // Before the run, so that an edit during it is not missed.
            let mut changes = Changes::below(&self.roots()?)?;
            if let Err(failure) = self.once(global).await {
                failure.say();
            }
            say("");
            say("waiting for changes (Ctrl-C ends)");
            changes.next().await;
        }
    }

    fn roots(&self) -> Result<Vec<PathBuf>, Failure> {
        let here = here()?;
        match self.paths.as_slice() {
            [] => Ok(vec![here]),
            paths => Ok(paths.iter().map(|path| here.join(path)).collect()),
        }
    }

    async fn once(&self, global: &Global) -> Done {
        let project = open_without_values(global).await?;
        let loaded = project.loaded().await;
        let files = find::find(&self.roots()?, &loaded)?;
        let started = Instant::now();
        let mut running = futures::stream::iter(&files)
            .map(|file| self.file(file, &project, &loaded.config))
            .buffered(AT_ONCE);
        let mut outcomes = Vec::new();
        while let Some((file, results)) = running.next().await {
            if !global.json && !results.is_empty() {
                report::print_file(file, &results);
            }
            outcomes.extend(results);
        }
        if outcomes.is_empty() {
            return Err(self.nothing_found().into());
        }
        if let Some(path) = &self.junit {
            std::fs::write(path, report::junit(&outcomes)).map_err(|error| {
                Problem::unavailable(format!("{} cannot be written: {error}", path.display()))
            })?;
        }
        let took = started.elapsed();
        print(&if global.json {
            report::json(&outcomes)
        } else {
            report::summary(&outcomes, took)
        });
        if outcomes.iter().all(|outcome| outcome.problem.is_none()) {
            Ok(())
        } else {
            Err(Failure::Said)
        }
    }

    fn nothing_found(&self) -> Problem {
        let problem = Problem::bad_request("no test was found");
        match &self.filter {
            Some(filter) => problem.hint(format!("no file and name of a test contains {filter:?}")),
            None => problem.hint(
                "tests are functions named test_… in files named *_test.star, *_test.luau or *_test.lua",
            ),
        }
    }

    /// All tests of one file.
    async fn file<'a>(
        &self,
        file: &'a TestFile,
        project: &Project,
        config: &crate::config::Config,
    ) -> (&'a TestFile, Vec<Outcome>) {
        let outcome = |name: &str| Outcome::new(&file.label(), name);
        let scope = match scripts::test_scope(&file.subject, config, &self.allow) {
            Ok(scope) => Arc::new(scope),
            Err(problem) => return (file, vec![outcome("").failed(problem)]),
        };
        let loading = project.gateway.test(scope.clone(), None);
        let tests = match in_time(&loading, file.load(project, &loading)).await {
            Ok(tests) => tests,
            Err(problem) => return (file, vec![outcome("").failed(problem)]),
        };
        let mut outcomes = Vec::new();
        for name in tests.names() {
            let full = format!("{}::{name}", file.label());
            if self.filter.as_ref().is_none_or(|filter| full.contains(filter.as_str())) {
                outcomes.push(one(&tests, name, project, &scope, outcome(name)).await);
            }
        }
        (file, outcomes)
    }
}

/// One test, in a call of its own.
async fn one(
    tests: &find::Tests,
    name: &str,
    project: &Project,
    scope: &Arc<Scope>,
    mut outcome: Outcome,
) -> Outcome {
    let said = Arc::new(Mutex::new(Vec::new()));
    let hear = said.clone();
    let events: Events = Arc::new(move |event| {
        if let Event::Log { message, .. } = event {
            hear.lock().push(message);
        }
    });
    let call = project.gateway.test(scope.clone(), Some(events));
    let started = Instant::now();
    let ended = in_time(&call, tests.run(name, &call)).await;
    outcome.took = started.elapsed();
    outcome.output = std::mem::take(&mut *said.lock());
    match ended {
        Ok(()) => outcome,
        Err(problem) => outcome.failed(problem),
    }
}

async fn in_time<T>(call: &Call, work: impl Future<Output = Result<T>>) -> Result<T> {
    let timeout = call.limits().timeout;
    tokio::time::timeout_at(call.deadline(), work).await.unwrap_or_else(|_| {
        let seconds = moonlark_core::limits::seconds(timeout);
        let message = format!("the test timed out after {seconds}");
        Err(Problem::new(moonlark_core::Code::Timeout, message))
    })
}

/// For a person: milliseconds, or seconds when there are some.
fn duration(took: Duration) -> String {
    match took.as_secs_f64() {
        seconds if seconds >= 1.0 => format!("{seconds:.1} s"),
        seconds => format!("{:.0} ms", seconds * 1000.0),
    }
}
