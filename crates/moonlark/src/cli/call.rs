//! `moonlark call`

use std::sync::Arc;

use clap::Args;
use moonlark_core::call::Events;
use moonlark_core::value::Object;
use moonlark_core::{Caller, Code, Event, Gateway, Level, Problem, Result, Value};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::arguments::{self, Params};
use super::served::ServedCommand;
use super::servers::Servers;
use super::terminal::Console;
use super::tool_options::ToolOption;
use super::{Done, Failure, Global, pretty, print_json, print_text, settle};
use crate::project::Project;

/// Why a name is not known where nothing is.
const NO_PROJECT: &str = "there is no moonlark.toml in this folder or above, and no tools/ folder";

#[derive(Args, Serialize, Deserialize)]
pub(crate) struct Call {
    /// The tool's name.
    tool: String,
    #[command(flatten)]
    params: Params,
    /// All parameters as one JSON object; `-` reads it from stdin.
    #[arg(long, value_name = "JSON")]
    args: Option<String>,
    #[serde(skip)]
    #[command(flatten)]
    servers: Servers,
}

impl Call {
    pub(crate) async fn run(mut self, global: &Global) -> Done {
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

    pub(crate) async fn run_in(self, project: &Arc<Project>, global: &Global) -> Done {
        // What they answer with is what all sources have.
        if ["list_functions", "search_docs", "get_function_docs"].contains(&self.tool.as_str()) {
            settle(project).await;
        }
        let result = match self.call(&project.gateway, global).await {
            Err(problem) if problem.code == Code::NotFound && problem.hint.is_none() => {
                let known = project.loaded().await.is_project();
                Err(if known { problem } else { problem.hint(NO_PROJECT) })
            }
            result => result,
        };
        if global.json {
            let answer = match &result {
                Ok(value) => json!({ "result": value.clone().into_json("result")? }),
                Err(problem) => json!({ "error": problem.to_json() }),
            };
            print_json(&answer);
            return result.map(|_| ()).map_err(|_| Failure::Said);
        }
        print_text(&pretty(&result?)?);
        Ok(())
    }

    async fn call(&self, gateway: &Gateway, global: &Global) -> Result<Value> {
        let caller = Caller::new("cli");
        let catalog = gateway.settled(&caller, &self.tool).await;
        let tool = catalog.find(&self.tool).ok().map(|tool| &**tool);
        let args = match &self.args {
            Some(text) => arguments::object(text)?,
            None => Object::new(),
        };
        let args = self.params.read(args, tool)?;
        let call = gateway.open(caller, Some(told(global)))?;
        let value = gateway.call(&call, &self.tool, Value::Object(args)).await?;
        // Found out here, so that it is reported like any other Problem.
        value.encode_json("result")?;
        Ok(value)
    }
}

/// What is said on stderr while the tool works.
fn told(global: &Global) -> Events {
    let (quiet, verbose) = (global.quiet, global.verbose > 0);
    let console = Console::current();
    Arc::new(move |event| match event {
        Event::Progress { done, total, message } if !quiet => {
            let total = total.map(|total| format!(" of {total}")).unwrap_or_default();
            let message = message.map(|message| format!(": {message}")).unwrap_or_default();
            console.say(format!("progress: {done}{total}{message}"));
        }
        Event::Log { level, message, fields } => {
            let shown = match level {
                Level::Debug => verbose,
                Level::Info => !quiet,
                Level::Warn | Level::Error => true,
            };
            if shown {
                let word = if level == Level::Info { "log" } else { level.as_str() };
                let fields = fields.map(|it| format!(" {}", it.to_json_lossy()));
                let text = format!("{word}: {message}{}", fields.unwrap_or_default());
                console.say_continued(&text);
            }
        }
        Event::Relayed { level, logger, data } if verbose => {
            let logger = logger.map(|logger| format!("{logger}: ")).unwrap_or_default();
            console.say(format!("{level}: {logger}{}", data.to_json_lossy()));
        }
        _ => {}
    })
}
