//! `moonlark get`: one document of the knowledge base.

use std::sync::Arc;

use clap::Args;
use moonlark_core::Value;
use moonlark_core::value::Object;
use serde::{Deserialize, Serialize};

use super::served_command::ServedCommand;
use super::source_args::SourceArgs;
use super::{CommandResult, GlobalArgs, cli_caller, eprint_line, print_json_answer, print_text};
use crate::project::Project;

#[derive(Args, Serialize, Deserialize)]
pub(crate) struct GetArgs {
    /// The document's ID, as `moonlark search` shows it.
    id: String,
    /// Only the section under this heading.
    #[arg(long, value_name = "HEADING")]
    section: Option<String>,
    /// Characters to leave out at the beginning.
    #[arg(long, value_name = "CHARACTERS")]
    offset: Option<u32>,
    /// Characters to print at most.
    #[arg(long, value_name = "CHARACTERS", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
}

impl GetArgs {
    pub(crate) async fn run(self, global: &GlobalArgs) -> CommandResult {
        ServedCommand::Get(self).run(SourceArgs::default(), global).await
    }

    pub(crate) async fn run_in(self, project: &Arc<Project>, global: &GlobalArgs) -> CommandResult {
        let call = project.gateway.open_call(cli_caller())?;
        let mut args = Object::new();
        args.insert("id".to_owned(), self.id.into());
        args.extend(self.section.map(|section| ("section".to_owned(), Value::from(section))));
        for (name, count) in [("offset", self.offset), ("limit", self.limit)] {
            args.extend(count.map(|count| (name.to_owned(), Value::Int(count.into()))));
        }
        let got = project.gateway.call(&call, "get_document", Value::Object(args)).await;
        if global.json {
            return print_json_answer(got);
        }
        let document = got?;
        let text = |key: &str| document.get(key).and_then(Value::as_str).unwrap_or_default();
        // What is about the document goes beside it, so that the text can be piped.
        if !global.quiet {
            eprint_line(text("title"));
            for key in ["source", "source_id", "source_url", "author", "updated_at"] {
                if !text(key).is_empty() {
                    eprint_line(format!("{key}: {}", text(key)));
                }
            }
            eprint_line("");
        }
        print_text(text("body").trim_end());
        if !text("rest").is_empty() {
            eprint_line(text("rest"));
        }
        Ok(())
    }
}
