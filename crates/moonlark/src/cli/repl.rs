//! `moonlark repl`: agent scripts line by line.
//!
//! Every entry is a script of its own in a sandbox of its own, run as an agent's
//! would be; what it gave is `last` (and `_`) in the next one, and what it defined is
//! there again ([`session_variables`]).
//!
//! The prompt is rustyline, in the version that the Starlark crate links anyway:
//! it costs nothing and edits several lines.

mod completion;
mod prompt;
mod session_variables;

use std::io::IsTerminal;

use clap::Args;
use moonlark_core::limits::CallLimits;
use moonlark_core::value::Object;
use moonlark_core::{Problem, Result, SourceLocation, Value};
use moonlark_gateway::Gateway;
use moonlark_luau::SyntaxStatus;
use serde_json::json;

use self::prompt::ReplPrompt;
use self::session_variables::SessionVariables;
use super::run::script_execution::{self, AgentScriptReport, AgentScriptRequest};
use super::run::{NamedScript, timeline};
use super::source_args::SourceArgs;
use super::{
    CommandResult, GlobalArgs, cli_caller, eprint_line, eprint_text, print_json, print_text,
};

#[derive(Args)]
pub(crate) struct ReplArgs {
    #[command(flatten)]
    servers: SourceArgs,
}

const REPL_GREETING: &str = "\
Each entry is a script: sdk.SOURCE.FUNCTION{…}. Variables stay, and `last` is what the entry before gave.
Tab completes. ?NAME explains a function, ? WORDS searches, help says more. Ctrl-C stops a script, Ctrl-D leaves.";

const REPL_HELP: &str = "\
sdk.SOURCE.FUNCTION{…}   calls a function and shows its value
local x = …, x = …       stays for the entries after it; functions too
last, _                  what the entry before gave
?                        the sources; ?NAME explains a function, ? WORDS searches
help, exit, quit         this page; leave (or Ctrl-D)
An entry that is not complete goes on in the next line; Ctrl-C gives it up, or stops a script.";

impl ReplArgs {
    pub(crate) async fn run(self, global: &GlobalArgs) -> CommandResult {
        let project = self.servers.open_project(global).await?;
        project.connect_all_sources().await;
        if std::io::stdin().is_terminal() && !global.quiet {
            eprint_text(REPL_GREETING);
        }
        let history = project.loaded_config().await.state.join("history");
        let variables = SessionVariables::default();
        let mut session = ReplSession { gateway: project.gateway.clone(), last: None, variables };
        let mut prompt = ReplPrompt::start(project.gateway.clone(), history)?;
        let keeping = project.persist_learned_shapes().await;
        project.start_journal_and_telemetry().await;
        while let Some(entry) = prompt.next_entry().await? {
            match entry.trim() {
                "exit" | "quit" | "exit()" | "quit()" => break,
                "help" | "help()" | "?help" => print_text(REPL_HELP),
                entry => session.handle_entry(entry, global).await,
            }
        }
        keeping.stop().await;
        project.disconnect_quickly().await;
        Ok(())
    }
}

struct ReplSession {
    gateway: Gateway,
    /// What the last entry gave.
    last: Option<Value>,
    /// What the entries so far have defined.
    variables: SessionVariables,
}

impl ReplSession {
    /// Do what an entry says, and say what came of it.
    async fn handle_entry(&mut self, entry: &str, global: &GlobalArgs) {
        if entry.is_empty() {
            return;
        }
        let done = match entry.strip_prefix('?') {
            Some(words) => {
                explain_words(&self.gateway, words).await.map(|text| print_text(text.trim_end()))
            }
            None => self.run_entry(entry, global).await,
        };
        if let Err(problem) = done {
            if global.json {
                print_json(&json!({ "error": problem.to_json() }))
            } else {
                let named =
                    NamedScript { file: script_execution::UNNAMED_SCRIPT.to_owned(), text: entry };
                named.problem_lines(&problem).into_iter().for_each(eprint_line);
            }
        }
    }

    async fn run_entry(&mut self, entry: &str, global: &GlobalArgs) -> Result<()> {
        let (before, body) =
            (self.preamble_for(entry)?, self.variables.script_with_variables(entry));
        let script = format!("{before}{body}");
        let given = AgentScriptRequest { script: &script, timeout: None, plan: false, fork: None };
        let AgentScriptReport { outcome, steps, took, .. } =
            script_execution::run_script(&self.gateway, given, global).await;
        if !global.quiet && !global.json {
            timeline::draw_steps(&steps, took).into_iter().for_each(eprint_line);
        }
        // What stands before the entry is ours.
        let lines = before.matches('\n').count();
        let columns = body.find(entry.lines().next().unwrap_or_default()).unwrap_or_default();
        let outcome = outcome.map_err(|problem| shift_problem_place(problem, lines, columns))?;
        let (value, lines) = if self.variables.keeps_variables(entry) {
            let value = self.variables.take_variables(outcome.into_plain_value());
            for name in self.variables.lost_names() {
                eprint_line(format!("{name} does not stay: it is neither a value nor a function"));
            }
            let line = match &value {
                Value::Str(text) => text.clone(),
                value => super::pretty_json(value)?,
            };
            (value, vec![line])
        } else {
            let lines = outcome.display_texts()?;
            (outcome.into_plain_value(), lines)
        };
        let nothing = value == Value::Null;
        if global.json {
            let result = value.clone().into_json("result")?;
            print_json(&json!({ "result": result }));
        } else if !nothing {
            lines.iter().for_each(print_text);
        }
        if !nothing {
            self.last = Some(value);
        }
        Ok(())
    }

    /// What the entry needs to know what was before it, in lines of its own.
    fn preamble_for(&self, entry: &str) -> Result<String> {
        let keep = |value: &Value| {
            let limits = CallLimits::default();
            self.gateway.artifacts().put_value(value.clone(), "execute", &limits)
        };
        let mut before = self.variables.definitions_for(entry, keep)?;
        if let Some(last) = &self.last
            && (mentions_name(entry, "last") || mentions_name(entry, "_"))
        {
            let handle = keep(last)?.to_string();
            before.push_str(&format!("local last = artifact({handle:?}) local _ = last\n"));
        }
        Ok(before)
    }
}

/// The entry as a script that returns something: its value if it is an
/// expression, nothing if it is statements that return nothing themselves.
fn script_for_entry(entry: &str) -> String {
    let right = |text: &str| matches!(moonlark_luau::syntax_status(text), SyntaxStatus::Right);
    let expression = format!("return {entry}");
    if right(&expression) {
        return expression;
    }
    let statements = format!("{entry}\nreturn json.null");
    if mentions_name(entry, "result") || !right(&statements) {
        entry.to_owned()
    } else {
        statements
    }
}

/// Whether a word is in the text as a name of its own.
fn mentions_name(text: &str, word: &str) -> bool {
    let part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    text.split(|letter| !part(letter)).any(|it| it == word)
}

/// The Problem with its place counted from the beginning of the entry, which has
/// `lines` of ours before it and `columns` on its first line.
fn shift_problem_place(mut problem: Problem, lines: usize, columns: usize) -> Problem {
    let short = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    if let Some(SourceLocation { line: Some(line), column, .. }) = &mut problem.place {
        *line = line.saturating_sub(short(lines)).max(1);
        if let Some(column) = column.as_mut().filter(|_| *line == 1) {
            *column = column.saturating_sub(short(columns)).max(1);
        }
    }
    problem
}

/// By the tools that agents have for it.
async fn explain_words(gateway: &Gateway, words: &str) -> Result<String> {
    let words = words.trim();
    let is_name =
        !words.is_empty() && gateway.catalog_for(&cli_caller()).sdk().find_function(words).is_ok();
    let (tool, name, value) = if is_name {
        ("get_function_docs", "names", Value::Array(vec![words.into()]))
    } else if words.is_empty() {
        ("list_functions", "", Value::Null)
    } else {
        ("search_docs", "query", Value::from(words.to_owned()))
    };
    let mut args = Object::new();
    if !name.is_empty() {
        args.insert(name.to_owned(), value);
    }
    let call = gateway.open_call(cli_caller())?;
    match gateway.call(&call, tool, Value::Object(args)).await? {
        Value::Str(text) => Ok(text),
        other => super::pretty_json(&other),
    }
}

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
            assert_eq!(script_for_entry(entry), script, "{entry}");
        }
    }

    #[test]
    fn the_last_result_is_there_when_it_is_named() {
        assert!(mentions_name("#last.items", "last"));
        assert!(mentions_name("f(_)", "_"));
        assert!(!mentions_name("lastly", "last"));
        assert!(!mentions_name("a_b", "_"));
    }

    #[test]
    fn columns_are_those_of_the_entry() {
        let at = |line, column| {
            Problem::tool_error("x").at_location(SourceLocation::at_column("script", line, column))
        };
        let column = |problem: Problem| problem.place.and_then(|place| place.column);
        assert_eq!(column(shift_problem_place(at(1, 12), 0, 7)), Some(5));
        assert_eq!(column(shift_problem_place(at(2, 12), 0, 7)), Some(12));
        let third = shift_problem_place(at(5, 12), 2, 7);
        assert_eq!(third.place.and_then(|place| place.line), Some(3));
    }
}
