//! `moonlark pin`: approved definitions of an upstream's tools, and what changed.

use std::sync::Arc;

use clap::Args;
use moonlark_core::{Problem, ProblemCode};
use moonlark_mcp_client::PinDifference;
use serde_json::{Value as Json, json};

use super::{
    CommandError, CommandResult, GlobalArgs, format_count, open_project, print_json, print_line,
    print_text,
};
use moonlark_clients::diff;

#[derive(Args)]
pub(crate) struct PinArgs {
    /// The upstream server.
    name: String,
    /// Approve its tools as they are now.
    #[arg(long)]
    approve: bool,
}

impl PinArgs {
    pub(crate) async fn run(self, global: &GlobalArgs) -> CommandResult {
        let project = Arc::new(open_project(global).await?);
        project.connect_all_sources().await;
        project.wait_for_sources().await;
        let outcome = project.upstreams.check_pinned_tools(&self.name, self.approve);
        project.disconnect_quickly().await;
        let Some(outcome) = outcome else {
            let message = format!("no upstream server is named {}", self.name);
            let problem = Problem::new(ProblemCode::NotFound, message);
            return Err(problem.with_hint("`moonlark sources` lists them").into());
        };
        let differences = outcome?;
        if global.json {
            let list: Vec<Json> = differences.iter().map(difference_json).collect();
            print_json(&json!({ "differences": list, "approved": self.approve }));
        } else {
            for difference in &differences {
                print_text(difference_text(difference));
            }
            let tools = format_count(differences.len(), "tool");
            match (differences.is_empty(), self.approve) {
                (true, _) => print_line(format!("{}: every tool is as it was approved", self.name)),
                (false, true) => print_line(format!("{}: {tools} approved", self.name)),
                (false, false) => {
                    print_line(format!(
                        "{tools} held back; approve: moonlark pin {} --approve",
                        self.name
                    ));
                }
            }
        }
        if differences.is_empty() || self.approve { Ok(()) } else { Err(CommandError::Said) }
    }
}

fn difference_json(difference: &PinDifference) -> Json {
    json!({ "tool": difference.tool, "approved": difference.approved, "now": difference.now })
}

/// The lines that differ, as a diff.
fn difference_text(difference: &PinDifference) -> String {
    let PinDifference { tool, approved, now } = difference;
    let lines = |json: &Json| serde_json::to_string_pretty(json).unwrap_or_default();
    let was = approved.as_ref().map(lines);
    let diff = diff::unified_diff(was.as_deref(), Some(&lines(now)), tool, 3);
    diff.unwrap_or_else(|| tool.clone())
}
