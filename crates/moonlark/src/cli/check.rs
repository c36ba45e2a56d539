//! `moonlark check`

use std::path::PathBuf;

use clap::Args;
use moonlark_core::Problem;
use moonlark_luau::Luau;
use serde_json::json;

use super::{Done, Failure, Global, here, open, print, shown};
use crate::scripts::{self, Found};

#[derive(Args)]
pub(crate) struct Check {
    /// Scripts to check (otherwise everything the project has).
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

    async fn check_paths(
        &self,
        project: &crate::project::Project,
    ) -> Result<Vec<Problem>, Failure> {
        let engine = Luau::new(&moonlark_host::all())?;
        let config = project.config().await;
        let mut problems = Vec::new();
        for path in &self.paths {
            let found = Found::tool(here()?.join(path), shown(path), None);
            let loaded = match scripts::read(&found)
                .and_then(|text| scripts::prepare(&found, text, &config))
            {
                Ok(script) => engine.load(script, &project.gateway).await.map(|_| ()),
                Err(problem) => Err(problem),
            };
            problems.extend(loaded.err());
        }
        Ok(problems)
    }
}
