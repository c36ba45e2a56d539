//! The command line: one file per command.
//!
//! Data goes to stdout, everything said about it to stderr. Exit codes: 0 done,
//! 1 failed, 2 wrong usage.

mod approvals;
mod arguments;
mod call;
mod check;
mod completions;
mod config;
mod connector;
mod demo;
mod docs;
mod doctor;
mod generate;
mod get;
mod import;
mod install;
mod inventory;
mod log;
mod login;
mod logout;
mod named;
mod pin;
mod policy;
mod problem_lines;
mod repl;
mod run;
mod runs;
mod search;
mod search_tools;
mod serve;
pub(crate) mod served;
mod servers;
mod sources;
mod stdio;
mod sync;
mod template;
pub(crate) mod terminal;
mod test;
mod token;
mod tool;
mod tool_options;
mod tool_test;
mod types;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, CommandFactory, Parser, Subcommand};
use moonlark_core::tool::SourceKind;
use moonlark_core::{Caller, Catalog, Problem, Tool, Value};

use crate::config::LogFormat;
use crate::config_file::{Loaded, RejectedConfig, ValuesNeeded};
use crate::project::{More, Project};
use problem_lines::doubt_lines;

pub(crate) use problem_lines::say_problem;
pub(crate) use terminal::{StyledText, print, print_json, print_text, say, say_text};
pub use types::{Definitions, definitions};

/// One binary between AI agents and everything they may call.
#[derive(Parser)]
#[command(name = "moonlark", version, about, max_term_width = 100)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Options that every command has.
const COMMON: &str = "Common options";

#[derive(Args, Clone, Default)]
pub(crate) struct Global {
    /// The configuration file (otherwise moonlark.toml here or in a folder above, or in the user's configuration folder).
    #[arg(long, global = true, value_name = "FILE", help_heading = COMMON)]
    config: Option<PathBuf>,
    /// Print data as JSON.
    #[arg(long, global = true, help_heading = COMMON)]
    json: bool,
    /// Say more on stderr (twice: even more).
    #[arg(long, short, global = true, action = clap::ArgAction::Count, help_heading = COMMON)]
    verbose: u8,
    /// Say only what is wrong.
    #[arg(long, short, global = true, help_heading = COMMON)]
    quiet: bool,
    /// Do not use the project's running server: start what is needed in this process.
    #[arg(long, global = true, help_heading = COMMON)]
    standalone: bool,
    /// How the log on stderr is written: for people, or as JSON for programs.
    #[arg(long, global = true, value_name = "FORMAT", help_heading = COMMON)]
    log_format: Option<LogFormat>,
}

#[derive(Subcommand)]
enum Command {
    /// A tour: starts a server with example tools and calls one through every way in.
    Demo(demo::Demo),
    /// Serve the tools over HTTP: MCP at /mcp, REST at /tools.
    Serve(serve::Serve),
    /// Serve the tools to one MCP client over stdin and stdout.
    Stdio(stdio::Stdio),
    /// Run one agent script and show what it called.
    Run(run::Run),
    /// Show what agent scripts did, and go on with those that were interrupted.
    Runs(runs::Runs),
    /// List, approve or deny pending tool calls.
    Approvals(approvals::Approvals),
    /// Run agent scripts line by line.
    Repl(repl::Repl),
    /// Call one tool and print its result.
    Call(call::Call),
    /// Search the tools that agent scripts can call.
    SearchTools(search_tools::SearchTools),
    /// Write, try and list tools.
    #[command(subcommand)]
    Tool(tool::Tool),
    /// Bring the knowledge base up to date.
    Sync(sync::Sync),
    /// Search the knowledge base.
    Search(search::Search),
    /// Print one document of the knowledge base.
    Get(get::Get),
    /// Write, try and list connectors, which feed the knowledge base.
    #[command(subcommand)]
    Connector(connector::Connector),
    /// Run the tests written beside scripts: `*_test.star`, `*_test.luau`.
    Test(test::Test),
    /// Explain a module, a function or a tool.
    Docs(docs::Docs),
    /// Write type definitions and settings for editors.
    Types(types::Types),
    /// Write type definitions of APIs from their OpenAPI documents.
    Generate(generate::Generate),
    /// Load scripts and configuration without running a tool.
    Check(check::Check),
    /// Look at the configuration.
    #[command(subcommand)]
    Config(config::Config),
    /// Log in to an upstream server.
    Login(login::Login),
    /// Forget a login.
    Logout(logout::Logout),
    /// Compare an upstream's tools with what was approved, and approve them.
    Pin(pin::Pin),
    /// Hand out tokens to callers over HTTP, and take them back.
    #[command(subcommand)]
    Token(token::Token),
    /// Say what the rules of `[policy]` make of a call.
    #[command(subcommand)]
    Policy(policy::Policy),
    /// List where tools and documents come from, and how those sources are doing.
    Sources(sources::Sources),
    /// Look for what is wrong with this set-up.
    Doctor,
    /// Take over the MCP servers of Claude, Cursor, VS Code, Codex, Gemini CLI or another client.
    Import(import::Import),
    /// Register Moonlark with Claude, Cursor, VS Code, Codex, Gemini CLI or another client.
    Install(install::Install),
    /// Print a completion script for a shell.
    Completions(completions::Completions),
}

/// How a command ends badly.
pub(crate) enum Failure {
    /// Problems to print.
    Problems(Vec<Problem>),
    /// The configuration is wrong.
    Config(RejectedConfig),
    /// Everything was said already.
    Said,
}

impl Failure {
    /// Print what was not said yet.
    pub(crate) fn say(&self) {
        match self {
            Failure::Problems(problems) => problems.iter().for_each(say_problem),
            Failure::Config(rejected) => {
                say_doubts(&rejected.warnings);
                rejected.errors.iter().for_each(say_problem);
            }
            Failure::Said => {}
        }
    }

    /// The first thing that is wrong.
    pub(crate) fn first_problem(self) -> Option<Problem> {
        match self {
            Failure::Problems(problems) => problems.into_iter().next(),
            Failure::Config(rejected) => rejected.errors.into_iter().next(),
            Failure::Said => None,
        }
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Failure::Problems(vec![problem])
    }
}

impl From<RejectedConfig> for Failure {
    fn from(rejected: RejectedConfig) -> Self {
        Failure::Config(rejected)
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Problem::internal(error.to_string()).into()
    }
}

pub(crate) type Done = Result<(), Failure>;

/// All commands and options, for completions and the reference page.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Scripts call each other to a depth, and every level is polled by the one above
/// it. Only what is used is taken.
const STACK: usize = 16 << 20;

pub fn main() -> ExitCode {
    let (line, options) = tool_options::split_tool_options(std::env::args_os(), command());
    let mut cli = Cli::parse_from(line);
    match &mut cli.command {
        Command::Call(call) => call.take_options(options),
        Command::Tool(tool::Tool::Test(test)) => test.take_options(options),
        _ => {}
    }
    log::start(&cli.global, &cli.command);
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let runtime = match threads.thread_stack_size(STACK).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            say(format!("error[internal]: cannot start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let done = runtime.block_on(run(cli));
    // What still waits (a reader of stdin, a blocked script) must not hold us.
    runtime.shutdown_timeout(std::time::Duration::from_millis(100));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.say();
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> Done {
    let global = cli.global;
    match cli.command {
        Command::Demo(demo) => demo.run(&global).await,
        Command::Serve(serve) => serve.run(&global).await,
        Command::Stdio(stdio) => stdio.run(&global).await,
        Command::Run(run) => run.run(&global).await,
        Command::Runs(runs) => runs.run(&global).await,
        Command::Approvals(approvals) => approvals.run(&global),
        Command::Repl(repl) => repl.run(&global).await,
        Command::Call(call) => call.run(&global).await,
        Command::SearchTools(search) => search.run(&global).await,
        Command::Tool(tool) => tool.run(&global).await,
        Command::Sync(sync) => sync.run(&global).await,
        Command::Search(search) => search.run(&global).await,
        Command::Get(get) => get.run(&global).await,
        Command::Connector(connector) => connector.run(&global).await,
        Command::Test(test) => test.run(&global).await,
        Command::Docs(docs) => docs.run(&global).await,
        Command::Types(types) => types.run(&global),
        Command::Generate(generate) => generate.run(&global).await,
        Command::Check(check) => check.run(&global).await,
        Command::Config(config) => config.run(&global),
        Command::Login(login) => login.run(&global).await,
        Command::Logout(logout) => logout.run(&global).await,
        Command::Pin(pin) => pin.run(&global).await,
        Command::Token(token) => token.run(&global).await,
        Command::Policy(policy) => policy.run(&global).await,
        Command::Sources(sources) => sources.run(&global).await,
        Command::Doctor => doctor::run(&global).await,
        Command::Import(import) => import.run(&global),
        Command::Install(install) => install.run(&global).await,
        Command::Completions(completions) => {
            completions.run(&mut command());
            Ok(())
        }
    }
}

/// The project of the working directory.
pub(crate) async fn open(global: &Global) -> Result<Project, Failure> {
    Ok(Project::open(global.config.as_deref(), &here()?).await?)
}

/// The same for commands that call nothing, and so need no value of any secret.
pub(crate) async fn open_without_values(global: &Global) -> Result<Project, Failure> {
    let more = More { values_needed: ValuesNeeded::Never, ..More::default() };
    Ok(Project::open_with(global.config.as_deref(), &here()?, more).await?)
}

/// What the configuration says oddly, and which variables it would need to run.
pub(crate) fn say_about(loaded: &Loaded) {
    say_doubts(&loaded.warnings);
    say_unset(&loaded.unset);
}

/// Variables and files that are not there, where none is needed.
pub(crate) fn say_unset(unset: &[Problem]) {
    unset.iter().for_each(|problem| say(format!("note: {}", problem.line())));
}

/// `nothing wrong`, `nothing wrong, 1 warning`, `2 errors, 1 warning`
pub(crate) fn counted_findings(errors: usize, warnings: usize) -> String {
    let errors = if errors == 0 { "nothing wrong".to_owned() } else { counted(errors, "error") };
    if warnings == 0 { errors } else { format!("{errors}, {}", counted(warnings, "warning")) }
}

/// What the configuration says that is hardly meant.
pub(crate) fn say_doubts(doubts: &[Problem]) {
    for problem in doubts {
        doubt_lines(problem).into_iter().for_each(say);
        say("");
    }
}

/// The same, in the log of a command that serves.
pub(crate) fn log_doubts(loaded: &Loaded) {
    for problem in &loaded.warnings {
        let lines = doubt_lines(problem).iter().map(StyledText::plain).collect::<Vec<_>>();
        tracing::warn!("{}", lines.join("\n").trim_start_matches("warning: "));
    }
}

/// Wait until every source has said what it offers, or has failed to.
pub(crate) async fn settle(project: &Project) {
    project.settled().await;
    project.refresh().await;
}

/// Whoever uses the command line.
pub(crate) fn caller() -> Caller {
    Caller::new("cli")
}

pub(crate) fn here() -> Result<PathBuf, Failure> {
    std::env::current_dir().map_err(|error| {
        Problem::unavailable(format!("the working directory cannot be used: {error}")).into()
    })
}

/// An empty project serves nobody: say what to do.
pub(crate) async fn require_tools(project: &Project) -> Done {
    let config = project.config().await;
    let sources = !config.mcp_servers.is_empty()
        || !config.apis.is_empty()
        || project.knowledge.is_configured();
    if sources || project.has_scripts() {
        return Ok(());
    }
    Err(Problem::bad_config(format!(
        "there are no tools: the folder {}/ has no .lua or .luau file, {}/ no .star file, and no upstream server or API is configured",
        config.tools.dir, config.extensions.dir
    ))
    .hint("run `moonlark tool init hello` to write one, `moonlark serve --mcp NAME=COMMAND` to use a server's, `moonlark serve NAME=openapi.yaml` for an API's, or `moonlark demo` for a tour")
    .into())
}

/// The tools that scripts of either language make.
pub(crate) fn authored(catalog: &Catalog) -> impl Iterator<Item = &Arc<Tool>> {
    let by_script =
        |tool: &&Arc<Tool>| matches!(tool.source.kind, SourceKind::Script | SourceKind::Extension);
    catalog.tools().iter().filter(by_script)
}

pub(crate) fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write it as NAME=VALUE".to_owned()),
    }
}

/// `3 tools`
pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// JSON as people read it.
pub(crate) fn pretty(value: &Value) -> Result<String, Problem> {
    let json = value.clone().into_json("result")?;
    let text = serde_json::to_string_pretty(&json);
    let text = text.map_err(|error| Problem::internal(error.to_string()))?;
    Ok(moonlark_core::visible_text::visible_json(&text).into_owned())
}

pub(crate) fn shown(path: &Path) -> String {
    path.display().to_string()
}
