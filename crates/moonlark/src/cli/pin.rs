//! `moonlark pin`: what an upstream's tools were when they were approved, and are
//! now.

use std::sync::Arc;

use clap::Args;
use moonlark_core::{Code, Problem};
use moonlark_upstream::mcp::Difference;
use serde_json::{Value as Json, json};

use super::{Done, Failure, Global, counted, open, print, print_json, print_text};
use crate::clients::diff;

#[derive(Args)]
pub(crate) struct Pin {
    /// The upstream server.
    name: String,
    /// Approve its tools as they are now.
    #[arg(long)]
    approve: bool,
}

impl Pin {
    pub(crate) async fn run(self, global: &Global) -> Done {
        let project = Arc::new(open(global).await?);
        project.connect().await;
        project.settled().await;
        let outcome = project.upstreams.pinned(&self.name, self.approve);
        project.disconnect().await;
        let Some(outcome) = outcome else {
            let message = format!("no upstream server is named {}", self.name);
            let problem = Problem::new(Code::NotFound, message);
            return Err(problem.hint("`moonlark sources` lists them").into());
        };
        let differences = outcome?;
        if global.json {
            let list: Vec<Json> = differences.iter().map(json_of).collect();
            print_json(&json!({ "differences": list, "approved": self.approve }));
        } else {
            for difference in &differences {
                print_text(text_of(difference));
            }
            let tools = counted(differences.len(), "tool");
            match (differences.is_empty(), self.approve) {
                (true, _) => print(format!("{}: every tool is as it was approved", self.name)),
                (false, true) => print(format!("{}: {tools} approved", self.name)),
                (false, false) => {
                    print(format!(
                        "{tools} held back; approve: moonlark pin {} --approve",
                        self.name
                    ));
                }
            }
        }
        match differences.is_empty() || self.approve {
            true => Ok(()),
            false => Err(Failure::Said),
        }
    }
}

fn json_of(difference: &Difference) -> Json {
    json!({ "tool": difference.tool, "approved": difference.approved, "now": difference.now })
}

/// The lines that differ, as a diff.
fn text_of(difference: &Difference) -> String {
    let Difference { tool, approved, now } = difference;
    let lines = |json: &Json| serde_json::to_string_pretty(json).unwrap_or_default();
    let was = approved.as_ref().map(lines);
    let diff = diff::unified(was.as_deref(), Some(&lines(now)), tool, 3);
    diff.unwrap_or_else(|| tool.clone())
}
