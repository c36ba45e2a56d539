//! `moonlark check`

use std::path::PathBuf;

use clap::Args;
use moonlark_core::Problem;
use serde_json::json;

use super::{Done, Failure, Global, named, open, print};
use crate::project::Project;

#[derive(Args)]
pub(crate) struct Check {
    /// Scripts, extensions and files of tests to check (otherwise everything the project has).
    paths: Vec<PathBuf>,
}

impl Check {
    pub(crate) async fn run(self, global: &Global) -> Done {
        let (checked, problems) = match open(global).await {
            Ok(project) if self.paths.is_empty() => {
                (project.script_count().await, project.gateway.catalog().problems().to_vec())
            }
            Ok(project) => (self.paths.len(), self.check_paths(&project).await?),
            Err(Failure::Problems(problems)) => (0, problems),
            Err(said) => return Err(said),
        };
        if global.json {
            let problems: Vec<_> = problems.iter().map(Problem::to_json).collect();
            print(&json!({ "checked": checked, "problems": problems }).to_string());
        } else {
            for problem in &problems {
                eprintln!("{problem}\n");
            }
            let scripts = if checked == 1 { "script" } else { "scripts" };
            match problems.len() {
                0 => print(&format!("{checked} {scripts} checked, nothing wrong")),
                1 => eprintln!("{checked} {scripts} checked, 1 problem"),
                count => eprintln!("{checked} {scripts} checked, {count} problems"),
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(Failure::Said) }
    }

    async fn check_paths(&self, project: &Project) -> Result<Vec<Problem>, Failure> {
        let loaded = project.loaded().await;
        let mut problems = Vec::new();
        for path in &self.paths {
            let found = named::script(path, None, &loaded)?;
            let checked = match named::is_tests(path) {
                true => named::tests(&found, project).await,
                false => named::tools(&found, project).await.map(drop),
            };
            problems.extend(checked.err());
        }
        Ok(problems)
    }
}
