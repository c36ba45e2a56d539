//! `moonlark search-tools`: the catalog, searched as agents search it.

use clap::Args;
use moonlark_core::value::Object;
use moonlark_core::{Caller, Gateway, Result, Value};
use serde_json::json;

use super::servers::Servers;
use super::{Done, Failure, Global, pretty, print};

#[derive(Args)]
pub(crate) struct SearchTools {
    /// What to look for, in your own words; without it, the sources, or the functions of one.
    query: Vec<String>,
    /// Only this source.
    #[arg(long, value_name = "NAME")]
    source: Option<String>,
    /// How many to show at most.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(i64).range(1..=100))]
    limit: Option<i64>,
    #[command(flatten)]
    servers: Servers,
}

impl SearchTools {
    pub(crate) async fn run(mut self, global: &Global) -> Done {
        let project = std::mem::take(&mut self.servers).open(global).await?;
        project.connect().await;
        project.settled().await;
        project.refresh().await;
        let found = self.search(&project.gateway).await;
        project.disconnect().await;
        if global.json {
            let answer = match &found {
                Ok(value) => json!({ "result": value.clone().into_json("result")? }),
                Err(problem) => json!({ "error": problem.to_json() }),
            };
            print(&answer.to_string());
            return found.map(drop).map_err(|_| Failure::Said);
        }
        match found? {
            Value::Str(text) => print(text.trim_end()),
            other => print(&pretty(&other)?),
        }
        Ok(())
    }

    /// By the tools that agents have for it.
    async fn search(self, gateway: &Gateway) -> Result<Value> {
        let query = self.query.join(" ");
        let mut args = Object::new();
        let tool = if query.is_empty() { "list_functions" } else { "search_docs" };
        if !query.is_empty() {
            args.insert("query".to_owned(), Value::from(query));
            args.extend(self.limit.map(|limit| ("limit".to_owned(), Value::Int(limit))));
        }
        args.extend(self.source.map(|source| ("source".to_owned(), Value::from(source))));
        let call = gateway.open(Caller::new("cli"), None)?;
        gateway.call(&call, tool, Value::Object(args)).await
    }
}
