//! `moonlark check`

use std::path::PathBuf;

use clap::Args;
use moonlark_core::{Problem, Warning};
use serde_json::{Value as Json, json};

use super::problem_lines::warning_lines;
use super::{
    CommandError, CommandResult, GlobalArgs, eprint_config_warnings, eprint_line, eprint_problem,
    eprint_unset_variables, format_count, open_project_without_values, print_json, print_line,
    problems_json, script_lookup, summarize_findings,
};
use crate::project::Project;

#[derive(Args)]
pub(crate) struct CheckArgs {
    /// Scripts, extensions and files of tests to check (otherwise everything the project has).
    paths: Vec<PathBuf>,
}

/// What was looked at, and what was found.
#[derive(Default)]
struct ProjectCheckReport {
    scripts: usize,
    /// Of the configuration.
    doubts: Vec<Problem>,
    warnings: Vec<Warning>,
    unset: Vec<Problem>,
    problems: Vec<Problem>,
}

impl CheckArgs {
    pub(crate) async fn run(self, global: &GlobalArgs) -> CommandResult {
        let report = match open_project_without_values(global).await {
            Ok(project) => self.check_project(&project).await?,
            Err(CommandError::Config(rejected)) => ProjectCheckReport {
                doubts: rejected.warnings,
                unset: rejected.unset,
                problems: rejected.errors,
                ..ProjectCheckReport::default()
            },
            Err(failure) => return Err(failure),
        };
        if global.json {
            print_json(&report.to_json());
        } else {
            report.print_report();
        }
        if report.problems.is_empty() { Ok(()) } else { Err(CommandError::Said) }
    }

    async fn check_project(&self, project: &Project) -> Result<ProjectCheckReport, CommandError> {
        let loaded = project.loaded_config().await;
        let (scripts, problems, warnings) = if self.paths.is_empty() {
            let catalog = project.gateway.catalog();
            let warnings = project.script_warnings();
            let problems = [catalog.problems(), &project.agent_script_problems()].concat();
            (project.script_count().await, problems, warnings)
        } else {
            let (problems, warnings) = self.check_paths(project).await?;
            (self.paths.len(), problems, warnings)
        };
        let (doubts, unset) = (loaded.warnings.clone(), loaded.unset.clone());
        Ok(ProjectCheckReport { scripts, doubts, warnings, unset, problems })
    }

    async fn check_paths(
        &self,
        project: &Project,
    ) -> Result<(Vec<Problem>, Vec<Warning>), CommandError> {
        let loaded = project.loaded_config().await;
        let mut problems = Vec::new();
        let mut warnings = Vec::new();
        for path in &self.paths {
            let found = script_lookup::find_script(path, None, &loaded)?;
            let checked = if script_lookup::is_test_file(path) {
                script_lookup::load_tests(&found, project).await
            } else {
                let tools = script_lookup::load_tools(&found, project).await;
                tools.map(|tools| {
                    warnings.extend(tools.into_iter().flat_map(|tool| tool.warnings));
                })
            };
            problems.extend(checked.err());
        }
        Ok((problems, warnings))
    }
}

impl ProjectCheckReport {
    fn to_json(&self) -> Json {
        let mut warnings = problems_json(&self.doubts);
        warnings.extend(self.warnings.iter().map(Warning::to_json));
        json!({
            "checked": self.scripts,
            "problems": problems_json(&self.problems),
            "warnings": warnings,
            "unset": problems_json(&self.unset),
        })
    }

    fn print_report(&self) {
        eprint_config_warnings(&self.doubts);
        eprint_unset_variables(&self.unset);
        for warning in &self.warnings {
            warning_lines(warning).into_iter().for_each(eprint_line);
            eprint_line("");
        }
        for problem in &self.problems {
            eprint_problem(problem);
            eprint_line("");
        }
        let warnings = self.doubts.len() + self.warnings.len();
        let found = summarize_findings(self.problems.len(), warnings);
        let summary = format!("{} checked, {found}", format_count(self.scripts, "script"));
        // What was asked for is whether all is well.
        if self.problems.is_empty() { print_line(summary) } else { eprint_line(summary) }
    }
}
