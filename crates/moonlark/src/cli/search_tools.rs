//! `moonlark search-tools`: the catalog, searched as agents search it.

use std::sync::Arc;

use clap::Args;
use moonlark_core::value::Object;
use moonlark_core::{Result, Value};
use moonlark_discovery::DescribedFunction;
use moonlark_gateway::Gateway;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::served_command::ServedCommand;
use super::source_args::SourceArgs;
use super::{
    CommandError, CommandResult, GlobalArgs, cli_caller, pretty_json, print_json, print_text,
    wait_for_sources,
};
use crate::project::Project;

/// Functions in an answer if nothing is said.
const DEFAULT_RESULT_COUNT: usize = 5;

#[derive(Args, Serialize, Deserialize)]
pub(crate) struct SearchToolsArgs {
    /// What to look for, in your own words; without it, the sources, or the functions of one.
    query: Vec<String>,
    /// Only this source.
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// How many to show at most.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i64).range(1..=50))]
    limit: Option<i64>,
    #[serde(skip)]
    #[command(flatten)]
    servers: SourceArgs,
}

impl SearchToolsArgs {
    pub(crate) async fn run(mut self, global: &GlobalArgs) -> CommandResult {
        let servers = std::mem::take(&mut self.servers);
        ServedCommand::SearchTools(self).run(servers, global).await
    }

    pub(crate) async fn run_in(self, project: &Arc<Project>, global: &GlobalArgs) -> CommandResult {
        wait_for_sources(project).await;
        if global.json {
            let found = self.find_functions(&project.gateway).await;
            print_json(&match &found {
                Ok(functions) => {
                    let functions: Vec<_> =
                        functions.iter().map(DescribedFunction::to_json).collect();
                    json!({ "result": functions })
                }
                Err(problem) => json!({ "error": problem.to_json() }),
            });
            return found.map(drop).map_err(|_| CommandError::Said);
        }
        match self.search_functions(&project.gateway).await? {
            Value::Str(text) => print_text(text.trim_end()),
            other => print_text(&pretty_json(&other)?),
        }
        Ok(())
    }

    /// The same as data: one object for each function.
    async fn find_functions(self, gateway: &Gateway) -> Result<Vec<DescribedFunction>> {
        let call = gateway.open_call(cli_caller())?;
        let query = self.query.join(" ");
        let usual = if query.trim().is_empty() { usize::MAX } else { DEFAULT_RESULT_COUNT };
        let limit = self.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usual);
        moonlark_discovery::find_functions(&call, &query, self.source.as_deref(), limit).await
    }

    /// By the tools that agents have for it.
    async fn search_functions(self, gateway: &Gateway) -> Result<Value> {
        let query = self.query.join(" ");
        let mut args = Object::new();
        let tool = if query.is_empty() { "list_functions" } else { "search_docs" };
        if !query.is_empty() {
            args.insert("query".to_owned(), Value::from(query));
            args.extend(self.limit.map(|limit| ("limit".to_owned(), Value::Int(limit))));
        }
        args.extend(self.source.map(|source| ("source".to_owned(), Value::from(source))));
        let call = gateway.open_call(cli_caller())?;
        gateway.call(&call, tool, Value::Object(args)).await
    }
}
