//! `moonlark call`

use std::sync::Arc;

use clap::Args;
use moonlark_core::value::Object;
use moonlark_core::{Problem, ProblemCode, Result, Value};
use moonlark_gateway::call::CallEventSink;
use moonlark_gateway::gateway::CallOptions;
use moonlark_gateway::{CallEvent, Gateway};
use serde::{Deserialize, Serialize};

use super::run::script_execution::{log_text, log_word};
use super::served_command::ServedCommand;
use super::source_args::SourceArgs;
use super::terminal::CommandConsole;
use super::tool_arguments::{self, ToolParameterArgs};
use super::tool_options::ToolOption;
use super::{
    CommandResult, GlobalArgs, cli_caller, pretty_json, print_json_answer, print_text,
    wait_for_sources,
};
use crate::project::Project;

/// Why a name is not known where nothing is.
const NO_PROJECT_HINT: &str =
    "there is no moonlark.toml in this folder or above, and no tools/ folder";

#[derive(Args, Serialize, Deserialize)]
pub(crate) struct CallArgs {
    /// The tool's name.
    tool: String,
    #[command(flatten)]
    params: ToolParameterArgs,
    /// All parameters as one JSON object; `-` reads it from stdin.
    #[arg(long, value_name = "JSON")]
    args: Option<String>,
    #[serde(skip)]
    #[command(flatten)]
    servers: SourceArgs,
}

impl CallArgs {
    pub(crate) async fn run(mut self, global: &GlobalArgs) -> CommandResult {
        if self.args.as_deref() == Some("-") {
            self.args =
                Some(std::io::read_to_string(std::io::stdin()).map_err(|error| {
                    Problem::bad_request(format!("stdin cannot be read: {error}"))
                })?);
        }
        let servers = std::mem::take(&mut self.servers);
        ServedCommand::Call(self).run(servers, global).await
    }

    pub(crate) fn take_options(&mut self, options: Vec<ToolOption>) {
        self.params.take_options(options);
    }

    pub(crate) fn tool_name(&self) -> &str {
        &self.tool
    }

    pub(crate) async fn run_in(self, project: &Arc<Project>, global: &GlobalArgs) -> CommandResult {
        // What they answer with is what all sources have.
        if ["list_functions", "search_docs", "get_function_docs"].contains(&self.tool.as_str()) {
            wait_for_sources(project).await;
        }
        let result = match self.call_tool(&project.gateway, global).await {
            Err(problem) if problem.code == ProblemCode::NotFound && problem.hint.is_none() => {
                let known = project.loaded_config().await.is_project();
                Err(if known { problem } else { problem.with_hint(NO_PROJECT_HINT) })
            }
            result => result,
        };
        if global.json {
            return print_json_answer(result);
        }
        print_text(&pretty_json(&result?)?);
        Ok(())
    }

    async fn call_tool(&self, gateway: &Gateway, global: &GlobalArgs) -> Result<Value> {
        let caller = cli_caller();
        let catalog = gateway.wait_for_source(&caller, &self.tool).await;
        let tool = catalog.find_tool(&self.tool).ok().map(|tool| &**tool);
        let args = match &self.args {
            Some(text) => tool_arguments::parse_argument_object(text)?,
            None => Object::new(),
        };
        let args = self.params.read_arguments(args, tool)?;
        let call = gateway
            .open_call(CallOptions::from(caller).with_events(Some(event_printer(global))))?;
        let value = gateway.call(&call, &self.tool, Value::Object(args)).await?;
        // Found out here, so that it is reported like any other Problem.
        value.encode_json("result")?;
        Ok(value)
    }
}

/// What is said on stderr while the tool works.
fn event_printer(global: &GlobalArgs) -> CallEventSink {
    let global = global.clone();
    let console = CommandConsole::current();
    Arc::new(move |event| match event {
        CallEvent::Progress { done, total, message } if !global.quiet => {
            let total = total.map(|total| format!(" of {total}")).unwrap_or_default();
            let message = message.map(|message| format!(": {message}")).unwrap_or_default();
            console.eprint_line(format!("progress: {done}{total}{message}"));
        }
        CallEvent::Log { level, message, fields } if global.shows_log(level) => {
            let text = log_text(&message, fields.as_ref());
            console.eprint_continued(&format!("{}: {text}", log_word(level)));
        }
        CallEvent::Relayed { level, logger, data } if global.verbose > 0 => {
            let logger = logger.map(|logger| format!("{logger}: ")).unwrap_or_default();
            console.eprint_line(format!("{level}: {logger}{}", data.to_json_lossy()));
        }
        _ => {}
    })
}
