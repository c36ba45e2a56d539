//! `moonlark check`

use std::path::PathBuf;

use clap::Args;
use moonlark_core::{Problem, Warning};
use serde_json::{Value as Json, json};

use super::problem_lines::warning_lines;
use super::{
    Done, Failure, Global, counted, counted_findings, named, open_without_values, print,
    print_json, say, say_doubts, say_problem, say_unset,
};
use crate::project::Project;

#[derive(Args)]
pub(crate) struct Check {
    /// Scripts, extensions and files of tests to check (otherwise everything the project has).
    paths: Vec<PathBuf>,
}

/// What was looked at, and what was found.
#[derive(Default)]
struct CheckReport {
    scripts: usize,
    /// Of the configuration.
    doubts: Vec<Problem>,
    warnings: Vec<Warning>,
    unset: Vec<Problem>,
    problems: Vec<Problem>,
}

impl Check {
    pub(crate) async fn run(self, global: &Global) -> Done {
        let report = match open_without_values(global).await {
            Ok(project) => self.check(&project).await?,
            Err(Failure::Config(rejected)) => CheckReport {
                doubts: rejected.warnings,
                unset: rejected.unset,
                problems: rejected.errors,
                ..CheckReport::default()
            },
            Err(failure) => return Err(failure),
        };
        if global.json {
            print_json(&report.to_json());
        } else {
            report.say();
        }
        if report.problems.is_empty() { Ok(()) } else { Err(Failure::Said) }
    }

    async fn check(&self, project: &Project) -> Result<CheckReport, Failure> {
        let loaded = project.loaded().await;
        let (scripts, problems, warnings) = if self.paths.is_empty() {
            let catalog = project.gateway.catalog();
            let warnings = catalog.warnings().cloned().collect();
            (project.script_count().await, catalog.problems().to_vec(), warnings)
        } else {
            let (problems, warnings) = self.check_paths(project).await?;
            (self.paths.len(), problems, warnings)
        };
        let (doubts, unset) = (loaded.warnings.clone(), loaded.unset.clone());
        Ok(CheckReport { scripts, doubts, warnings, unset, problems })
    }

    async fn check_paths(
        &self,
        project: &Project,
    ) -> Result<(Vec<Problem>, Vec<Warning>), Failure> {
        let loaded = project.loaded().await;
        let mut problems = Vec::new();
        let mut warnings = Vec::new();
        for path in &self.paths {
            let found = named::script(path, None, &loaded)?;
            let checked = if named::is_tests(path) {
                named::tests(&found, project).await
            } else {
                let tools = named::tools(&found, project).await;
                tools.map(|tools| {
                    warnings.extend(tools.into_iter().flat_map(|tool| tool.warnings));
                })
            };
            problems.extend(checked.err());
        }
        Ok((problems, warnings))
    }
}

impl CheckReport {
    fn to_json(&self) -> Json {
        let to_json = |all: &[Problem]| all.iter().map(Problem::to_json).collect::<Vec<_>>();
        let mut warnings = to_json(&self.doubts);
        warnings.extend(self.warnings.iter().map(Warning::to_json));
        json!({
            "checked": self.scripts,
            "problems": to_json(&self.problems),
            "warnings": warnings,
            "unset": to_json(&self.unset),
        })
    }

    fn say(&self) {
        say_doubts(&self.doubts);
        say_unset(&self.unset);
        for warning in &self.warnings {
            warning_lines(warning).into_iter().for_each(say);
            say("");
        }
        for problem in &self.problems {
            say_problem(problem);
            say("");
        }
        let warnings = self.doubts.len() + self.warnings.len();
        let found = counted_findings(self.problems.len(), warnings);
        let summary = format!("{} checked, {found}", counted(self.scripts, "script"));
        // What was asked for is whether all is well.
        if self.problems.is_empty() { print(summary) } else { say(summary) }
    }
}
