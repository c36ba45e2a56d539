//! `moonlark runs trace`: what the variables of a run held, by replay, without one call.

use clap::Args;
use moonlark_core::value::Object;
use moonlark_core::{Problem, Result, Value};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::super::run::script_execution::answer_metadata;
use super::super::served_command::ServedCommand;
use super::super::source_args::SourceArgs;
use super::super::{CommandResult, GlobalArgs, cli_caller, load_config, print_json, print_line};
use super::find_named_run;
use crate::project::Project;
use crate::project_journal;

#[derive(Args, Serialize, Deserialize)]
pub(crate) struct RunsTraceArgs {
    /// The run: its id, or the beginning or end of it; `last` is the newest.
    id: String,
    /// Show only the moment with this number.
    #[arg(long, value_name = "NUMBER")]
    at: Option<usize>,
    /// Every line that ran, not only the calls.
    #[arg(long)]
    lines: bool,
    #[serde(skip)]
    #[command(flatten)]
    servers: SourceArgs,
}

impl RunsTraceArgs {
    pub(super) async fn run(mut self, global: &GlobalArgs) -> CommandResult {
        // Before anything is started for it.
        let reader = project_journal::journal_reader(&load_config(global)?);
        self.id = find_named_run(&reader, &self.id)?.to_string();
        let servers = std::mem::take(&mut self.servers);
        ServedCommand::Trace(self).run(servers, global).await
    }

    pub(crate) async fn run_in(self, project: &Project, global: &GlobalArgs) -> CommandResult {
        let traced = self.trace(project).await?;
        if global.json {
            print_json(&traced);
        } else {
            trace_lines(&traced).iter().for_each(print_line);
        }
        Ok(())
    }

    async fn trace(&self, project: &Project) -> Result<Json> {
        let mut args = Object::new();
        args.insert("script".to_owned(), "".into());
        args.insert("fork".to_owned(), self.id.as_str().into());
        args.insert("trace".to_owned(), if self.lines { "lines" } else { "calls" }.into());
        let call = project.gateway.open_call(cli_caller())?;
        let answer = project.gateway.invoke(&call, "execute", Value::Object(args)).await;
        let trace = answer_metadata(&answer).and_then(|run| run.get("trace"));
        let Some(trace) = trace.map(Value::to_json_lossy) else {
            return Err(answer.err().unwrap_or_else(|| Problem::internal("there is no trace")));
        };
        moonlark_server::describe_trace(&self.id, trace, answer.err().as_ref(), self.at)
    }
}

fn trace_lines(traced: &Json) -> Vec<String> {
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    let mut lines = Vec::new();
    for event in traced["events"].as_array().into_iter().flatten() {
        lines.push(format!(
            "{:>5}  line {:<4} {}",
            event["at"].to_string(),
            event["line"].to_string(),
            text(&event["text"])
        ));
        for (name, value) in event["variables"].as_object().into_iter().flatten() {
            lines.push(format!("         {name} = {}", text(value)));
        }
        if let Some(call) = event.get("call") {
            let arguments = text(&call["arguments"]);
            lines.push(format!(
                "      -> {} at {} with {arguments}",
                text(&call["tool"]),
                text(&call["place"])
            ));
            let answer = call.get("answer").map_or("no answer on record".to_owned(), text);
            lines.push(format!("      <- {answer}"));
        }
    }
    if let Some(error) = traced.get("error") {
        lines.push(format!(
            "ends with error[{}]: {}",
            text(&error["code"]),
            text(&error["message"])
        ));
    }
    if traced["complete"] == false {
        lines.push("there is more: the trace was too long, or ran out of time".to_owned());
    }
    lines
}
