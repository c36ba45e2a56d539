//! `moonlark call`

use std::sync::Arc;

use clap::Args;
use moonlark_core::call::Events;
use moonlark_core::value::Object;
use moonlark_core::{Caller, Event, Problem, Result, Value};
use serde_json::json;

use super::servers::Servers;
use super::{Done, Failure, Global, Params, pretty, print};

#[derive(Args)]
pub(crate) struct Call {
    /// The tool's name.
    tool: String,
    #[command(flatten)]
    params: Params,
    /// All parameters as one JSON object; `-` reads it from stdin.
    #[arg(long, value_name = "JSON")]
    args: Option<String>,
    #[command(flatten)]
    servers: Servers,
}

impl Call {
    pub(crate) async fn run(mut self, global: &Global) -> Done {
        let project = std::mem::take(&mut self.servers).open(global).await?;
        // A script's own tools may call those of a server, so it cannot be
        // known which are needed.
        project.connect().await;
        project.keep_journal().await;
        let result = self.call(&project.gateway, global).await;
        project.disconnect().await;
        if global.json {
            let answer = match &result {
                Ok(value) => json!({ "result": value.clone().into_json("result")? }),
                Err(problem) => json!({ "error": problem.to_json() }),
            };
            print(&answer.to_string());
            return result.map(|_| ()).map_err(|_| Failure::Said);
        }
        print(&pretty(&result?)?);
        Ok(())
    }

    async fn call(&self, gateway: &moonlark_core::Gateway, global: &Global) -> Result<Value> {
        let mut args = self.read_args()?;
        let caller = Caller::new("cli");
        let catalog = gateway.settled(&caller, &self.tool).await;
        self.params.add_to(&mut args, catalog.find(&self.tool).ok().map(|tool| &**tool));
        let quiet = global.quiet;
        let events: Events = Arc::new(move |event| {
            // Log messages are on stderr already.
            if let Event::Progress { done, total, message } = event
                && !quiet
            {
                let total = total.map(|total| format!(" of {total}")).unwrap_or_default();
                let message = message.map(|message| format!(": {message}")).unwrap_or_default();
                eprintln!("progress: {done}{total}{message}");
            }
        });
        let call = gateway.open(caller, Some(events))?;
        let value = gateway.call(&call, &self.tool, Value::Object(args)).await?;
        // Found out here, so that it is reported like any other Problem.
        value.encode_json("result")?;
        Ok(value)
    }

    fn read_args(&self) -> Result<Object> {
        let text = match self.args.as_deref() {
            None => return Ok(Object::new()),
            Some("-") => std::io::read_to_string(std::io::stdin())
                .map_err(|error| Problem::bad_request(format!("stdin cannot be read: {error}")))?,
            Some(text) => text.to_owned(),
        };
        match Value::parse_json(text.as_bytes())? {
            Value::Object(args) => Ok(args),
            other => Err(Problem::bad_request(format!(
                "--args must be a JSON object, got {}",
                other.kind()
            ))),
        }
    }
}
