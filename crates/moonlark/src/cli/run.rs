//! `moonlark run`: one agent script from the terminal, with its call timeline.
//!
//! The script goes through the tool `execute`, as an agent's would: the same
//! check, sandbox, grants and limits. Only what it returns goes to stdout.

pub(super) mod script_execution;
pub(super) mod timeline;

use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use moonlark_core::{Catalog, Problem, Result, SourceLocation};
use moonlark_gateway::call::LOCAL_CALLER;
use moonlark_luau::check::CheckFinding;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use self::script_execution::{AgentScriptReport, AgentScriptRequest};
use super::problem_lines::error_lines_with_source;
use super::served_command::ServedCommand;
use super::source_args::SourceArgs;
use super::{
    CommandError, CommandResult, GlobalArgs, StyledText, cli_caller, display_path, eprint_line,
    print_json, print_line, print_text, wait_for_sources,
};
use crate::project::Project;

#[derive(Args)]
pub(crate) struct RunArgs {
    /// The script; `-` reads it from stdin.
    file: PathBuf,
    /// Timeout of the script in seconds, up to execute.max_timeout.
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    timeout: Option<f64>,
    /// Dry run: make read-only calls only, and print the others. `runs resume` with the
    /// plan's id makes them.
    #[arg(long)]
    plan: bool,
    /// Look for mistakes and run nothing.
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    servers: SourceArgs,
}

impl RunArgs {
    pub(crate) async fn run(self, global: &GlobalArgs) -> CommandResult {
        let script = ScriptRun {
            file: script_label(&self.file),
            text: read_script(&self.file)?,
            timeout: self.timeout,
            plan: self.plan,
            check: self.check,
            fork: None,
        };
        ServedCommand::Run(script).run(self.servers, global).await
    }
}

/// A script that was read, and what is to be done with it.
#[derive(Serialize, Deserialize)]
pub(crate) struct ScriptRun {
    file: String,
    text: String,
    timeout: Option<f64>,
    plan: bool,
    check: bool,
    #[serde(default)]
    fork: Option<ScriptFork>,
}

/// The run on whose record a script runs.
#[derive(Serialize, Deserialize)]
pub(crate) struct ScriptFork {
    pub(crate) run: String,
    /// What becomes of calls that are not there.
    pub(crate) new_calls: String,
}

impl ScriptRun {
    pub(crate) fn of_fork(
        file: String,
        text: String,
        timeout: Option<f64>,
        fork: ScriptFork,
    ) -> ScriptRun {
        ScriptRun { file, text, timeout, plan: false, check: false, fork: Some(fork) }
    }

    /// Whether it calls nothing.
    pub(crate) fn only_checks(&self) -> bool {
        self.check
    }

    pub(crate) async fn run_in(self, project: &Arc<Project>, global: &GlobalArgs) -> CommandResult {
        let named = NamedScript { file: self.file, text: &self.text };
        if self.check {
            wait_for_sources(project).await;
            let found =
                find_script_problems(&self.text, &project.gateway.catalog_for(&cli_caller())).await;
            return print_check_report(found, &named, global);
        }
        let given = AgentScriptRequest {
            script: &self.text,
            timeout: self.timeout,
            plan: self.plan,
            fork: self.fork.as_ref(),
        };
        print_run_report(
            script_execution::run_script(&project.gateway, given, global).await,
            &named,
            global,
        )
    }
}

/// A script as whoever started it knows it.
pub(super) struct NamedScript<'a> {
    pub(super) file: String,
    pub(super) text: &'a str,
}

pub(super) fn script_label(file: &std::path::Path) -> String {
    if file.as_os_str() == "-" { "stdin".to_owned() } else { display_path(file) }
}

/// The result to stdout, the timeline and what is wrong to stderr.
fn print_run_report(
    ran: AgentScriptReport,
    named: &NamedScript<'_>,
    global: &GlobalArgs,
) -> CommandResult {
    if !global.quiet && !global.json {
        timeline::draw_steps(&ran.steps, ran.took).into_iter().for_each(eprint_line);
        ran.fork_lines().into_iter().for_each(eprint_line);
    }
    let calls = script_execution::calls_json(&ran.steps);
    let ms = u64::try_from(ran.took.as_millis()).unwrap_or(u64::MAX);
    match ran.outcome {
        Ok(outcome) if global.json => {
            let result = outcome.into_plain_value().into_json("result")?;
            let mut report =
                json!({ "result": result, "logs": ran.logs, "calls": calls, "ms": ms });
            add_fork(&mut report, ran.fork);
            print_json(&report);
            Ok(())
        }
        Ok(outcome) => {
            outcome.display_texts()?.iter().for_each(print_text);
            Ok(())
        }
        Err(problem) => {
            let problem = named.with_script_name(problem);
            if global.json {
                let error = problem.to_json();
                let mut report =
                    json!({ "error": error, "logs": ran.logs, "calls": calls, "ms": ms });
                add_fork(&mut report, ran.fork);
                print_json(&report);
            } else {
                named.problem_lines(&problem).into_iter().for_each(eprint_line);
            }
            Err(CommandError::Said)
        }
    }
}

fn add_fork(report: &mut Json, fork: Option<(Json, Json)>) {
    if let Some((id, fork)) = fork {
        (report["id"], report["fork"]) = (id, fork);
    }
}

/// What `execute` would look for before it runs a script, and no more.
async fn find_script_problems(text: &str, catalog: &Arc<Catalog>) -> Vec<Problem> {
    if let Err(problem) = moonlark_luau::check_compiles(text) {
        return vec![problem];
    }
    let checked = moonlark_luau::check::check_script(text, catalog, LOCAL_CALLER).await;
    if let Some(why) = checked.unchecked {
        return vec![Problem::unavailable(format!("the script was not fully checked: {why}"))];
    }
    let problem = |it: CheckFinding| {
        let place = SourceLocation::at_column(script_execution::UNNAMED_SCRIPT, it.line, it.column);
        Problem::bad_script(it.message).at_location(place).with_optional_hint(it.hint)
    };
    checked.findings.into_iter().map(problem).collect()
}

fn print_check_report(
    found: Vec<Problem>,
    named: &NamedScript<'_>,
    global: &GlobalArgs,
) -> CommandResult {
    let found: Vec<Problem> =
        found.into_iter().map(|problem| named.with_script_name(problem)).collect();
    if global.json {
        let problems: Vec<_> = found.iter().map(Problem::to_json).collect();
        print_json(&json!({ "problems": problems }));
    } else {
        for problem in &found {
            named.problem_lines(problem).into_iter().for_each(eprint_line);
        }
        if found.is_empty() && !global.quiet {
            print_line("nothing wrong");
        }
    }
    if found.is_empty() { Ok(()) } else { Err(CommandError::Said) }
}

impl NamedScript<'_> {
    /// The engine calls every agent's script `script`; here it has a name.
    pub(super) fn with_script_name(&self, mut problem: Problem) -> Problem {
        if let Some(place) =
            problem.place.as_mut().filter(|it| *it.file == *script_execution::UNNAMED_SCRIPT)
        {
            place.file = self.file.as_str().into();
        }
        problem
    }

    /// The Problem as every command prints it, with the line it is about.
    pub(super) fn problem_lines(&self, problem: &Problem) -> Vec<StyledText> {
        let is_here = problem.place.as_ref().is_some_and(|place| *place.file == *self.file);
        error_lines_with_source(problem, is_here.then_some(self.text))
    }
}

pub(super) fn read_script(file: &std::path::Path) -> Result<String> {
    const MAX_SCRIPT_BYTES: usize = moonlark_luau::MAX_LUAU_SOURCE_BYTES;
    let name = script_label(file);
    let failed =
        |error: std::io::Error| Problem::bad_request(format!("{name} cannot be read: {error}"));
    let mut bytes = Vec::new();
    // One more than may be, to see that it is too many.
    let most = MAX_SCRIPT_BYTES as u64 + 1;
    if file.as_os_str() == "-" {
        std::io::stdin().take(most).read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|open| open.take(most).read_to_end(&mut bytes))
    }
    .map_err(failed)?;
    if bytes.len() > MAX_SCRIPT_BYTES {
        return Err(Problem::bad_script(format!(
            "the script is larger than {} KB",
            MAX_SCRIPT_BYTES / 1024
        ))
        .at_location(SourceLocation::in_file(name)));
    }
    let text = String::from_utf8(bytes).map_err(|_| {
        Problem::bad_script("the script is not UTF-8").at_location(SourceLocation::in_file(&name))
    })?;
    // A script that starts itself: `#!/usr/bin/env -S moonlark run`.
    Ok(if text.starts_with("#!") { format!("--{text}") } else { text })
}

pub(super) fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 86_400.0 => Ok(seconds),
        _ => Err("give seconds, from just over 0 to 86400".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_shows_the_line_it_is_about() {
        let named =
            NamedScript { file: "a.luau".to_owned(), text: "local a = 1\nreturn a.b.c  \n" };
        let raised = Problem::tool_error("attempt to index nil")
            .at_location(SourceLocation::at_line("script", 2));
        let problem = named.with_script_name(raised.with_hint("look"));
        let explain = |problem: &Problem| {
            let lines = named.problem_lines(problem);
            lines.iter().map(StyledText::to_plain_text).collect::<Vec<_>>().join("\n")
        };
        assert_eq!(
            explain(&problem),
            "error[tool_error]: attempt to index nil\n  --> a.luau:2\n   2 | return a.b.c\nhint: look"
        );
        let elsewhere = named.with_script_name(
            Problem::tool_error("no").at_location(SourceLocation::at_line("tools/x.lua", 2)),
        );
        assert_eq!(explain(&elsewhere), "error[tool_error]: no\n  --> tools/x.lua:2");
    }
}
