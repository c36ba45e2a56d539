//! `moonlark get`: one document of the knowledge base.

use clap::Args;
use moonlark_core::{Caller, Value};
use serde_json::json;

use super::{Done, Failure, Global, open, print};

#[derive(Args)]
pub(crate) struct Get {
    /// The document's ID, as `moonlark search` shows it.
    id: String,
}

impl Get {
    pub(crate) async fn run(self, global: &Global) -> Done {
        let project = open(global).await?;
        let call = project.gateway.open(Caller::new("cli"), None)?;
        let args = Value::object([("id", self.id.into())]);
        let got = project.gateway.call(&call, "get_document", args).await;
        if global.json {
            let answer = match &got {
                Ok(value) => json!({ "result": value.clone().into_json("result")? }),
                Err(problem) => json!({ "error": problem.to_json() }),
            };
            print(&answer.to_string());
            return got.map(drop).map_err(|_| Failure::Said);
        }
        let document = got?;
        let text = |key: &str| document.get(key).and_then(Value::as_str).unwrap_or_default();
        // What is about the document goes beside it, so that the text can be piped.
        if !global.quiet {
            eprintln!("{}", text("title"));
            for key in ["source", "source_id", "source_url", "author", "updated_at"] {
                if !text(key).is_empty() {
                    eprintln!("{key}: {}", text(key));
                }
            }
            eprintln!();
        }
        print(text("body").trim_end());
        Ok(())
    }
}
