//! `moonlark check`

use std::path::PathBuf;

use clap::Args;
use moonlark_core::{Problem, Warning};
use serde_json::json;

use super::{Done, Failure, Global, named, open_without_values, print, print_json, say, say_about};
use crate::project::Project;

#[derive(Args)]
pub(crate) struct Check {
    /// Scripts, extensions and files of tests to check (otherwise everything the project has).
    paths: Vec<PathBuf>,
}

impl Check {
    pub(crate) async fn run(self, global: &Global) -> Done {
        let mut loaded = None;
        let (checked, problems, warnings) = match open_without_values(global).await {
            Ok(project) if self.paths.is_empty() => {
                loaded = Some(project.loaded().await);
                let catalog = project.gateway.catalog();
                let warnings = catalog.warnings().cloned().collect();
                (project.script_count().await, catalog.problems().to_vec(), warnings)
            }
            Ok(project) => {
                loaded = Some(project.loaded().await);
                let (problems, warnings) = self.check_paths(&project).await?;
                (self.paths.len(), problems, warnings)
            }
            Err(Failure::Problems(problems)) => (0, problems, Vec::new()),
            Err(said) => return Err(said),
        };
        if global.json {
            let to_json = |all: &[Problem]| all.iter().map(Problem::to_json).collect::<Vec<_>>();
            let mut said: Vec<_> = warnings.iter().map(Warning::to_json).collect();
            let mut report = json!({ "checked": checked, "problems": to_json(&problems) });
            if let Some(loaded) = &loaded {
                said.splice(..0, to_json(&loaded.warnings));
                report["warnings"] = json!(said);
                report["unset"] = json!(to_json(&loaded.unset));
            }
            print_json(&report);
        } else {
            loaded.iter().for_each(say_about);
            for warning in &warnings {
                say(format!("{warning}\n"));
            }
            for problem in &problems {
                say(format!("{problem}\n"));
            }
            let scripts = if checked == 1 { "script" } else { "scripts" };
            match problems.len() {
                0 if warnings.len() == 1 => {
                    print(format!("{checked} {scripts} checked, nothing wrong, 1 warning"));
                }
                0 if !warnings.is_empty() => print(format!(
                    "{checked} {scripts} checked, nothing wrong, {} warnings",
                    warnings.len()
                )),
                0 => print(format!("{checked} {scripts} checked, nothing wrong")),
                1 => say(format!("{checked} {scripts} checked, 1 problem")),
                count => say(format!("{checked} {scripts} checked, {count} problems")),
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(Failure::Said) }
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
