//! `moonlark search`: the knowledge base, searched as tools search it.

use std::sync::Arc;

use clap::Args;
use moonlark_core::value::Object;
use moonlark_core::{Result, Value};
use moonlark_gateway::Gateway;
use serde::{Deserialize, Serialize};

use super::served_command::ServedCommand;
use super::source_args::SourceArgs;
use super::terminal::{StyledText, TextStyle};
use super::{
    CommandResult, GlobalArgs, cli_caller, eprint_line, parse_key_value, print_json_answer,
    print_line,
};
use crate::project::Project;

#[derive(Args, Serialize, Deserialize)]
pub(crate) struct SearchArgs {
    /// What to look for, in your own words.
    #[arg(required = true)]
    query: Vec<String>,
    /// Search mode: by words, by meaning, or both.
    #[arg(long, value_parser = ["keyword", "semantic", "hybrid"])]
    mode: Option<String>,
    /// Only documents of this source; may be given several times.
    #[arg(long, value_name = "NAME")]
    source: Vec<String>,
    /// Only documents updated then or later, such as 2026-01-31.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only documents updated then or earlier.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only documents with this value in their metadata; several for one key mean any of them.
    #[arg(long = "meta", value_name = "KEY=VALUE", value_parser = parse_key_value)]
    metadata: Vec<(String, String)>,
    /// How many documents to show at most.
    #[arg(long, value_name = "COUNT")]
    limit: Option<i64>,
    /// Explain each score.
    #[arg(long)]
    explain: bool,
}

impl SearchArgs {
    pub(crate) async fn run(self, global: &GlobalArgs) -> CommandResult {
        ServedCommand::Search(self).run(SourceArgs::default(), global).await
    }

    pub(crate) async fn run_in(self, project: &Arc<Project>, global: &GlobalArgs) -> CommandResult {
        let found = self.search_knowledge(&project.gateway).await;
        if global.json {
            return print_json_answer(found);
        }
        let found = found?;
        let list = |name: &str| match found.get(name) {
            Some(Value::Array(items)) => items.as_slice(),
            _ => &[],
        };
        let results = match &found {
            // A script of the project may stand in, and answer with a list.
            Value::Array(items) => items.as_slice(),
            _ => list("results"),
        };
        for note in list("notes").iter().filter_map(Value::as_str) {
            eprint_line(format!("note: {note}"));
        }
        for (index, hit) in results.iter().enumerate() {
            if index > 0 {
                print_line("");
            }
            hit_lines(index + 1, hit).into_iter().for_each(print_line);
        }
        if results.is_empty() {
            eprint_line("Nothing found.");
        }
        Ok(())
    }

    async fn search_knowledge(self, gateway: &Gateway) -> Result<Value> {
        let mut args = Object::new();
        let mut set = |key: &str, value: Value| {
            if value != Value::Null {
                args.insert(key.to_owned(), value);
            }
        };
        set("query", self.query.join(" ").into());
        set("mode", self.mode.into());
        set("since", self.since.into());
        set("until", self.until.into());
        set("limit", self.limit.into());
        match self.source.len() {
            0 => {}
            1 => set("source", self.source.into_iter().next().into()),
            _ => set("source", self.source.into()),
        }
        if !self.metadata.is_empty() {
            set("metadata", metadata_filter(self.metadata));
        }
        if self.explain {
            set("explain", true.into());
        }
        let call = gateway.open_call(cli_caller())?;
        gateway.call(&call, "search", Value::Object(args)).await
    }
}

/// Values that read as JSON are meant as such, but text is what most are: both
/// will do.
fn metadata_filter(pairs: Vec<(String, String)>) -> Value {
    let mut fields = Object::new();
    for (key, text) in pairs {
        let parsed = Value::parse_json(text.as_bytes()).ok();
        let plain = parsed.filter(|it| !matches!(it, Value::Object(_) | Value::Array(_)));
        let either = [Some(Value::Str(text)), plain].into_iter().flatten();
        let values = fields.entry(key).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(values) = values {
            values.extend(either);
        }
    }
    Value::Object(fields)
}

fn hit_lines(number: usize, hit: &Value) -> Vec<StyledText> {
    let text = |key: &str| hit.get(key).and_then(Value::as_str).unwrap_or_default();
    let score = match hit.get("score") {
        Some(Value::Float(score)) => format!("  {score:.2}"),
        _ => String::new(),
    };
    let place = [text("source"), text("source_id"), text("heading")];
    let place = place.into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join(" · ");
    let address = [text("source_url"), text("id")].into_iter().find(|it| !it.is_empty());
    let below = [place].into_iter().map(StyledText::from);
    let below = below.chain(text("snippet").lines().map(highlight_matches));
    let below =
        below.chain(address.map(StyledText::from)).chain(score_explanation(hit).map(Into::into));
    let title = StyledText::from(format!("{number}. ")).with_part(TextStyle::Bold, text("title"));
    let below = below.filter(|line| !line.to_plain_text().is_empty());
    let below = below.map(|line| StyledText::from("   ").append_text(line));
    std::iter::once(title.with_part(TextStyle::Plain, score)).chain(below).collect()
}

/// `keyword 0.81, semantic 0.64, weight 0.50; terms: deploi, stage`
fn score_explanation(hit: &Value) -> Option<String> {
    let explain = hit.get("explain")?;
    let part = |key: &str| match explain.get(key) {
        Some(Value::Float(part)) => Some(format!("{key} {part:.2}")),
        _ => None,
    };
    let parts: Vec<String> =
        ["keyword", "semantic", "weight"].into_iter().filter_map(part).collect();
    let terms = match explain.get("terms") {
        Some(Value::Array(terms)) => terms.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let terms =
        if terms.is_empty() { String::new() } else { format!("; terms: {}", terms.join(", ")) };
    Some(format!("{}{terms}", parts.join(", ")))
}

/// The words that were found, as a terminal shows them.
fn highlight_matches(line: &str) -> StyledText {
    let parts = line.split("**").enumerate();
    parts.fold(StyledText::default(), |text, (index, part)| match index % 2 {
        1 => text.with_part(TextStyle::Found, part),
        _ => text.with_part(TextStyle::Plain, part),
    })
}
