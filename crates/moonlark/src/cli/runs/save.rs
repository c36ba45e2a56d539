//! `moonlark runs save`: a run made into a test or into a tool.

use clap::Args;

use super::super::source_args::SourceArgs;
use super::super::{CommandResult, GlobalArgs, load_config};
use super::find_named_run;
use super::save_test::SaveTestRequest;
use super::save_tool::SaveToolRequest;
use crate::project_journal;

#[derive(Args)]
pub(crate) struct RunsSaveArgs {
    /// The run: its id, or the beginning or end of it; `last` is the newest.
    id: String,
    /// Write the test tests/NAME.runtest.json and its script tests/NAME.luau, which
    /// `moonlark test` replays without a server.
    #[arg(long, value_name = "NAME", required_unless_present = "as_tool")]
    as_test: Option<String>,
    /// Write over a test that is there.
    #[arg(long, requires = "as_test")]
    replace: bool,
    /// Write a Luau tool of this name, with a test beside it.
    #[arg(long, value_name = "NAME", conflicts_with = "as_test")]
    as_tool: Option<String>,
    /// A literal of the script that becomes a parameter, such as '"Bonn"=city'; with its
    /// line before it, such as 3:12=left, only the one there.
    #[arg(long, value_name = "[LINE:]LITERAL=NAME", requires = "as_tool")]
    param: Vec<String>,
    /// A tool without parameters.
    #[arg(long, conflicts_with = "param", requires = "as_tool")]
    no_params: bool,
    #[command(flatten)]
    servers: SourceArgs,
}

impl RunsSaveArgs {
    pub(super) async fn run(self, global: &GlobalArgs) -> CommandResult {
        let loaded = load_config(global)?;
        let reader = project_journal::journal_reader(&loaded);
        let id = find_named_run(&reader, &self.id)?;
        if let Some(as_test) = self.as_test {
            let request = SaveTestRequest { id: id.to_string(), as_test, replace: self.replace };
            return request.run(self.servers, global).await;
        }
        let as_tool = self.as_tool.unwrap_or_default();
        let (param, no_params) = (self.param, self.no_params);
        SaveToolRequest { id, as_tool, param, no_params }.run(&loaded, global).await
    }
}
