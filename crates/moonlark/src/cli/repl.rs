//! `moonlark repl`: agent scripts line by line.
//!
//! Every entry is a script of its own in a sandbox of its own, run as an agent's
//! would be; what it gave is `last` (and `_`) in the next one.
//!
//! The prompt is rustyline, in the version that the Starlark crate links anyway:
//! it costs nothing and edits several lines.

mod complete;
mod prompt;

use std::io::IsTerminal;
use std::path::PathBuf;

use clap::Args;
use moonlark_core::limits::Limits;
use moonlark_core::value::Object;
use moonlark_core::{Caller, Gateway, Place, Problem, Result, Value};
use moonlark_luau::Syntax;
use serde_json::json;

use self::prompt::Prompt;
use super::run::script::{self, Given, Ran};
use super::run::{Named, timeline};
use super::servers::Servers;
use super::{Done, Global, caller, colours, paint, print};
use crate::upstreams::state_of;

#[derive(Args)]
pub(crate) struct Repl {
    #[command(flatten)]
    servers: Servers,
}

const GREETING: &str = "\
Each entry is a script: sdk.SOURCE.FUNCTION{…}, and `last` is what the one before gave.
Tab completes. ?NAME explains a function, ? WORDS searches. Ctrl-C stops a script, Ctrl-D leaves.";

impl Repl {
    pub(crate) async fn run(self, global: &Global) -> Done {
        let project = self.servers.open(global).await?;
        project.connect().await;
        if std::io::stdin().is_terminal() && !global.quiet {
            eprintln!("{GREETING}");
        }
        let history = state_of(&project.loaded().await.root).join("history");
        let mut session = Session { gateway: project.gateway.clone(), last: None };
        let mut prompt = Prompt::start(project.gateway.clone(), history)?;
        let keeping = project.keep_learned().await;
        project.keep_journal().await;
        while let Some(entry) = prompt.next().await? {
            session.enter(entry.trim(), global).await;
        }
        keeping.stop().await;
        project.disconnect().await;
        Ok(())
    }
}

struct Session {
    gateway: Gateway,
    /// The handle of what the last entry gave.
    last: Option<String>,
}

impl Session {
    /// Do what an entry says, and say what came of it.
    async fn enter(&mut self, entry: &str, global: &Global) {
        if entry.is_empty() {
            return;
        }
        let done = match entry.strip_prefix('?') {
            Some(words) => explain(&self.gateway, words).await.map(|text| print(text.trim_end())),
            None => self.run(entry, global).await,
        };
        if let Err(problem) = done {
            match global.json {
                true => print(&json!({ "error": problem.to_json() }).to_string()),
                false => {
                    let named = Named { file: script::NAME.to_owned(), text: entry };
                    eprintln!("{}", paint(&named.explain(&problem)));
                }
            }
        }
    }

    async fn run(&mut self, entry: &str, global: &Global) -> Result<()> {
        let (before, body) = (self.before(entry), body(entry));
        let script = format!("{before}{body}");
        let given = Given { script: &script, timeout: None, plan: false };
        let Ran { outcome, steps, took, .. } = script::run(&self.gateway, given, global).await;
        if !global.quiet && !global.json {
            timeline::draw(&steps, took, colours()).iter().for_each(|line| eprintln!("{line}"));
        }
        // What stands before the entry on its first line is ours.
        let ours = before.len() + body.find(entry).unwrap_or_default();
        let outcome = outcome.map_err(|problem| moved(problem, ours))?;
        let lines = outcome.lines()?;
        let value = outcome.plain();
        let nothing = value == Value::Null;
        if global.json {
            let result = value.clone().into_json("result")?;
            print(&json!({ "result": result }).to_string());
        } else if !nothing {
            lines.iter().for_each(|line| print(line));
        }
        if !nothing {
            let limits = Limits::default();
            let kept = self.gateway.artifacts().put(value, "execute", &limits)?;
            self.last = Some(kept.to_string());
        }
        Ok(())
    }

    /// What the entry needs to know the last result, on one line.
    fn before(&self, entry: &str) -> String {
        match &self.last {
            Some(handle) if mentions(entry, "last") || mentions(entry, "_") => {
                format!("local last = artifact({handle:?}) local _ = last ")
            }
            _ => String::new(),
        }
    }
}

/// The entry as a script that returns something: its value if it is an
/// expression, nothing if it is statements that return nothing themselves.
fn body(entry: &str) -> String {
    let right = |text: &str| matches!(moonlark_luau::syntax(text), Syntax::Right);
    let expression = format!("return {entry}");
    if right(&expression) {
        return expression;
    }
    let statements = format!("{entry}\nreturn json.null");
    match mentions(entry, "result") || !right(&statements) {
        true => entry.to_owned(),
        false => statements,
    }
}

/// Whether a word is in the text as a name of its own.
fn mentions(text: &str, word: &str) -> bool {
    let part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    text.split(|letter| !part(letter)).any(|it| it == word)
}

/// The Problem with its column counted from the beginning of the entry.
fn moved(mut problem: Problem, ours: usize) -> Problem {
    if let Some(Place { line: Some(1), column: Some(column), .. }) = &mut problem.place {
        *column = column.saturating_sub(u32::try_from(ours).unwrap_or(u32::MAX)).max(1);
    }
    problem
}

/// By the tools that agents have for it.
async fn explain(gateway: &Gateway, words: &str) -> Result<String> {
    let words = words.trim();
    let is_name = !words.is_empty() && gateway.catalog_for(&caller()).sdk().find(words).is_ok();
    let (tool, name, value) = match is_name {
        true => ("get_function_docs", "names", Value::Array(vec![words.into()])),
        false if words.is_empty() => ("list_functions", "", Value::Null),
        false => ("search_docs", "query", Value::from(words.to_owned())),
    };
    let mut args = Object::new();
    if !name.is_empty() {
        args.insert(name.to_owned(), value);
    }
    let call = gateway.open(Caller::new("cli"), None)?;
    match gateway.call(&call, tool, Value::Object(args)).await? {
        Value::Str(text) => Ok(text),
        other => super::pretty(&other),
    }
}

/// Where entries are kept from one time to the next.
type History = PathBuf;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_becomes_a_script_that_returns_something() {
        for (entry, script) in [
            ("1 + 1", "return 1 + 1"),
            ("sdk.a.b{ c = 1 }", "return sdk.a.b{ c = 1 }"),
            ("local a = 1", "local a = 1\nreturn json.null"),
            ("print(1) print(2)", "print(1) print(2)\nreturn json.null"),
            ("local a = 1 return a", "local a = 1 return a"),
            ("local a = 1 result(a)", "local a = 1 result(a)"),
            ("end", "end"),
        ] {
            assert_eq!(body(entry), script, "{entry}");
        }
    }

    #[test]
    fn the_last_result_is_there_when_it_is_named() {
        assert!(mentions("#last.items", "last"));
        assert!(mentions("f(_)", "_"));
        assert!(!mentions("lastly", "last"));
        assert!(!mentions("a_b", "_"));
    }

    #[test]
    fn columns_are_those_of_the_entry() {
        let at = |line, column| Problem::tool_error("x").at(Place::column("script", line, column));
        let column = |problem: Problem| problem.place.and_then(|place| place.column);
        assert_eq!(column(moved(at(1, 12), 7)), Some(5));
        assert_eq!(column(moved(at(2, 12), 7)), Some(12));
    }
}
