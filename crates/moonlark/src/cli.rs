//! The command line: one file per command.
//!
//! Data goes to stdout, everything said about it to stderr. Exit codes: 0 done,
//! 1 failed, 2 wrong usage.

mod approvals;
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
mod log_writer;
mod logging;
mod login;
mod logout;
mod model;
mod pin;
mod policy;
mod problem_lines;
mod repl;
mod run;
mod runs;
mod script_lookup;
mod search;
mod search_tools;
mod serve;
pub(crate) mod served_command;
mod source_args;
mod sources;
mod stdio;
mod sync;
mod template;
pub(crate) mod terminal;
mod test;
mod token;
mod tool;
mod tool_arguments;
mod tool_options;
mod tool_test;
mod types;

use std::convert::Infallible;
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, CommandFactory, Parser, Subcommand};
use moonlark_child::{release_thread_memory, return_memory_when_idle};
use moonlark_core::nearest::nearest_name;
use moonlark_core::tool::SourceKind;
use moonlark_core::{Catalog, Problem, SourceLocation, Tool, Value};
use moonlark_gateway::{Caller, LogLevel};
use serde_json::{Value as Json, json};
use tokio::sync::Notify;

use crate::project::{CliSources, Project};
use moonlark_config::LogFormat;
use moonlark_config::config_file::{self, LoadedConfig, RejectedConfig, ValueRequirement};
use problem_lines::{config_warning, warning_lines};

pub(crate) use problem_lines::eprint_problem;
pub(crate) use terminal::{
    StyledText, eprint_line, eprint_text, print_json, print_line, print_text,
};
pub use types::{EditorDefinitions, editor_definitions};

/// One binary between AI agents and everything they may call.
#[derive(Parser)]
#[command(name = "moonlark", version, about, max_term_width = 100)]
struct CliArgs {
    #[command(flatten)]
    global: GlobalArgs,
    #[command(subcommand)]
    command: CliCommand,
}

/// Options that every command has.
const COMMON_OPTIONS_HEADING: &str = "Common options";

#[derive(Args, Clone, Default)]
pub(crate) struct GlobalArgs {
    /// The configuration file (otherwise moonlark.toml here or in a folder above, or in the user's configuration folder).
    #[arg(long, global = true, value_name = "FILE", help_heading = COMMON_OPTIONS_HEADING)]
    config: Option<PathBuf>,
    /// Print data as JSON.
    #[arg(long, global = true, help_heading = COMMON_OPTIONS_HEADING)]
    json: bool,
    /// Log more to stderr (twice: even more).
    #[arg(long, short, global = true, action = clap::ArgAction::Count, help_heading = COMMON_OPTIONS_HEADING)]
    verbose: u8,
    /// Log only warnings and errors.
    #[arg(long, short, global = true, help_heading = COMMON_OPTIONS_HEADING)]
    quiet: bool,
    /// Do not use the project's running server: start what is needed in this process.
    #[arg(long, global = true, help_heading = COMMON_OPTIONS_HEADING)]
    standalone: bool,
    /// The format of the log on stderr.
    #[arg(long, global = true, value_name = "FORMAT", help_heading = COMMON_OPTIONS_HEADING)]
    log_format: Option<LogFormat>,
}

impl GlobalArgs {
    /// Whether a line of a script's log is shown.
    pub(crate) fn shows_log(&self, level: LogLevel) -> bool {
        match level {
            LogLevel::Debug => self.verbose > 0,
            LogLevel::Info => !self.quiet,
            LogLevel::Warn | LogLevel::Error => true,
        }
    }
}

#[derive(Subcommand)]
enum CliCommand {
    /// A tour: starts a server with example tools and calls one over REST, MCP and the command line.
    Demo(demo::DemoArgs),
    /// Serve the tools over HTTP: MCP at /mcp, REST at /tools.
    Serve(serve::ServeArgs),
    /// Serve the tools to one MCP client over stdin and stdout.
    Stdio(stdio::StdioArgs),
    /// Run one agent script and show what it called.
    Run(run::RunArgs),
    /// List runs of agent scripts, and resume interrupted ones.
    Runs(runs::RunsArgs),
    /// List, approve or deny pending tool calls.
    Approvals(approvals::ApprovalsArgs),
    /// Run agent scripts line by line.
    Repl(repl::ReplArgs),
    /// Call one tool and print its result.
    Call(call::CallArgs),
    /// Search the tools that agent scripts can call.
    SearchTools(search_tools::SearchToolsArgs),
    /// Write, try and list tools.
    #[command(subcommand)]
    Tool(tool::ToolCommand),
    /// Bring the knowledge base up to date.
    Sync(sync::SyncArgs),
    /// Search the knowledge base.
    Search(search::SearchArgs),
    /// Print one document of the knowledge base.
    Get(get::GetArgs),
    /// Write, try and list connectors, which feed the knowledge base.
    #[command(subcommand)]
    Connector(connector::ConnectorCommand),
    /// Add, list and remove embedding models, which say what documents mean.
    #[command(subcommand)]
    Model(model::ModelCommand),
    /// Run the tests written beside scripts: `*_test.star`, `*_test.luau`.
    Test(test::TestArgs),
    /// Explain a module, a function or a tool.
    Docs(docs::DocsArgs),
    /// Write type definitions and settings for editors.
    Types(types::TypesArgs),
    /// Write type definitions of APIs from their OpenAPI documents.
    Generate(generate::GenerateArgs),
    /// Load scripts and configuration without running a tool.
    Check(check::CheckArgs),
    /// Check or show the configuration.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Log in to an upstream server.
    Login(login::LoginArgs),
    /// Delete the login of an upstream server.
    Logout(logout::LogoutArgs),
    /// Compare an upstream's tools with what was approved, and approve them.
    Pin(pin::PinArgs),
    /// Add, list and remove tokens of HTTP callers.
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Explain which rule of `[policy]` applies to a call.
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// List the sources of tools and documents, with their state.
    Sources(sources::SourcesArgs),
    /// Check this set-up for problems.
    Doctor,
    /// Import the MCP servers of Claude, Cursor, VS Code, Codex, Gemini CLI or another client.
    Import(import::ImportArgs),
    /// Register Moonlark with Claude, Cursor, VS Code, Codex, Gemini CLI or another client.
    Install(install::InstallArgs),
    /// Print a completion script for a shell.
    Completions(completions::CompletionsArgs),
}

/// How a command ends badly.
pub(crate) enum CommandError {
    /// Problems to print.
    Problems(Vec<Problem>),
    /// The configuration is wrong.
    Config(RejectedConfig),
    /// Everything was said already.
    Said,
}

impl CommandError {
    /// Print what was not said yet.
    pub(crate) fn eprint_problems(&self) {
        match self {
            CommandError::Problems(problems) => problems.iter().for_each(eprint_problem),
            CommandError::Config(rejected) => {
                eprint_config_warnings(&rejected.warnings);
                rejected.errors.iter().for_each(eprint_problem);
            }
            CommandError::Said => {}
        }
    }

    /// The first thing that is wrong.
    pub(crate) fn first_problem(self) -> Option<Problem> {
        match self {
            CommandError::Problems(problems) => problems.into_iter().next(),
            CommandError::Config(rejected) => rejected.errors.into_iter().next(),
            CommandError::Said => None,
        }
    }
}

impl From<Problem> for CommandError {
    fn from(problem: Problem) -> Self {
        CommandError::Problems(vec![problem])
    }
}

impl From<RejectedConfig> for CommandError {
    fn from(rejected: RejectedConfig) -> Self {
        CommandError::Config(rejected)
    }
}

impl From<std::io::Error> for CommandError {
    fn from(error: std::io::Error) -> Self {
        Problem::internal(error.to_string()).into()
    }
}

pub(crate) type CommandResult = Result<(), CommandError>;

/// All commands and options, for completions and the reference page.
pub fn clap_command() -> clap::Command {
    CliArgs::command()
}

/// Scripts call each other to a depth, and every level is polled by the one above
/// it. Only what is used is taken.
const WORKER_STACK_BYTES: usize = 16 << 20;

pub fn main() -> ExitCode {
    let line = std::env::args_os();
    let (line, options) = if tool_options::may_have_tool_options(std::env::args_os()) {
        tool_options::split_tool_options(line, clap_command())
    } else {
        (line.collect(), Vec::new())
    };
    let mut cli = CliArgs::parse_from(line);
    match &mut cli.command {
        CliCommand::Call(call) => call.take_options(options),
        CliCommand::Tool(tool::ToolCommand::Test(test)) => test.take_options(options),
        _ => {}
    }
    let log = logging::start_logging(&cli.global, &cli.command);
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    threads.thread_stack_size(WORKER_STACK_BYTES).on_thread_park(release_thread_memory);
    let runtime = match threads.enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprint_line(format!("error[internal]: cannot start: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let idle = Arc::new(Notify::new());
    return_memory_when_idle({
        let (threads, idle) = (runtime.handle().clone(), idle.clone());
        move || {
            idle.notify_one();
            wake_worker_threads(&threads);
        }
    });
    let done = runtime.block_on(async {
        tokio::select! {
            biased;
            done = run_command(cli) => done,
            never = release_memory_of_main_thread(&idle) => match never {},
        }
    });
    // What still waits (a reader of stdin, a blocked script) must not hold us.
    runtime.shutdown_timeout(std::time::Duration::from_millis(100));
    if let Some(log) = log {
        log.flush_lines();
    }
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.eprint_problems();
            ExitCode::FAILURE
        }
    }
}

/// This thread reads the configuration and the command line, and then mostly waits.
async fn release_memory_of_main_thread(idle: &Notify) -> Infallible {
    loop {
        idle.notified().await;
        release_thread_memory();
    }
}

/// Have the threads that wait for work look whether there is some.
fn wake_worker_threads(threads: &tokio::runtime::Handle) {
    for _ in 0..threads.metrics().num_workers() {
        #[expect(clippy::disallowed_methods, reason = "it ends at once")]
        threads.spawn(tokio::task::yield_now());
    }
}

async fn run_command(cli: CliArgs) -> CommandResult {
    let global = cli.global;
    match cli.command {
        CliCommand::Demo(demo) => demo.run(&global).await,
        CliCommand::Serve(serve) => serve.run(&global).await,
        CliCommand::Stdio(stdio) => stdio.run(&global).await,
        CliCommand::Run(run) => run.run(&global).await,
        CliCommand::Runs(runs) => runs.run(&global).await,
        CliCommand::Approvals(approvals) => approvals.run(&global),
        CliCommand::Repl(repl) => repl.run(&global).await,
        CliCommand::Call(call) => call.run(&global).await,
        CliCommand::SearchTools(search) => search.run(&global).await,
        CliCommand::Tool(tool) => tool.run(&global).await,
        CliCommand::Sync(sync) => sync.run(&global).await,
        CliCommand::Search(search) => search.run(&global).await,
        CliCommand::Get(get) => get.run(&global).await,
        CliCommand::Connector(connector) => connector.run(&global).await,
        CliCommand::Model(model) => model.run(&global).await,
        CliCommand::Test(test) => test.run(&global).await,
        CliCommand::Docs(docs) => docs.run(&global).await,
        CliCommand::Types(types) => types.run(&global),
        CliCommand::Generate(generate) => generate.run(&global).await,
        CliCommand::Check(check) => check.run(&global).await,
        CliCommand::Config(config) => config.run(&global),
        CliCommand::Login(login) => login.run(&global).await,
        CliCommand::Logout(logout) => logout.run(&global).await,
        CliCommand::Pin(pin) => pin.run(&global).await,
        CliCommand::Token(token) => token.run(&global).await,
        CliCommand::Policy(policy) => policy.run(&global).await,
        CliCommand::Sources(sources) => sources.run(&global).await,
        CliCommand::Doctor => doctor::run(&global).await,
        CliCommand::Import(import) => import.run(&global),
        CliCommand::Install(install) => install.run(&global).await,
        CliCommand::Completions(completions) => {
            completions.run(&mut clap_command());
            Ok(())
        }
    }
}

/// The project of the working directory.
pub(crate) async fn open_project(global: &GlobalArgs) -> Result<Project, CommandError> {
    Ok(Project::open(global.config.as_deref(), &working_dir()?).await?)
}

/// The same for commands that call nothing, and so need no value of any secret.
pub(crate) async fn open_project_without_values(
    global: &GlobalArgs,
) -> Result<Project, CommandError> {
    let more = CliSources { values_needed: ValueRequirement::Never, ..CliSources::default() };
    Ok(Project::open_with_sources(global.config.as_deref(), &working_dir()?, more).await?)
}

/// The configuration of the working directory, for commands that load nothing else.
pub(crate) fn load_config(global: &GlobalArgs) -> Result<LoadedConfig, CommandError> {
    Ok(config_file::load_config(global.config.as_deref(), &working_dir()?, &env_variable)?)
}

/// The file that a command in the folder `here` would read.
pub(crate) fn find_config_path(global: &GlobalArgs, here: &Path) -> Option<PathBuf> {
    config_file::find_config_path(global.config.as_deref(), here, &env_variable)
}

pub(crate) fn env_variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// What the configuration says oddly, and which variables it would need to run.
pub(crate) fn eprint_config_findings(loaded: &LoadedConfig) {
    eprint_config_warnings(&loaded.warnings);
    eprint_unset_variables(&loaded.unset);
}

/// Variables and files that are not there, where none is needed.
pub(crate) fn eprint_unset_variables(unset: &[Problem]) {
    unset.iter().for_each(|problem| eprint_line(format!("note: {}", problem.to_line())));
}

/// `nothing wrong`, `nothing wrong, 1 warning`, `2 errors, 1 warning`
pub(crate) fn summarize_findings(errors: usize, warnings: usize) -> String {
    let errors =
        if errors == 0 { "nothing wrong".to_owned() } else { format_count(errors, "error") };
    if warnings == 0 { errors } else { format!("{errors}, {}", format_count(warnings, "warning")) }
}

/// What the configuration says that is hardly meant.
pub(crate) fn eprint_config_warnings(doubts: &[Problem]) {
    for problem in doubts {
        warning_lines(&config_warning(problem)).into_iter().for_each(eprint_line);
        eprint_line("");
    }
}

/// The same, in the log of a command that serves.
pub(crate) fn log_config_warnings(loaded: &LoadedConfig) {
    for problem in &loaded.warnings {
        let lines = warning_lines(&config_warning(problem));
        let lines = lines.iter().map(StyledText::to_plain_text).collect::<Vec<_>>();
        tracing::warn!("{}", lines.join("\n").trim_start_matches("warning: "));
    }
}

/// Wait until every source has said what it offers, or has failed to.
pub(crate) async fn wait_for_sources(project: &Project) {
    project.wait_for_sources().await;
    project.refresh_catalog().await;
}

/// Whoever uses the command line.
pub(crate) fn cli_caller() -> Caller {
    Caller::new("cli")
}

pub(crate) fn working_dir() -> Result<PathBuf, CommandError> {
    std::env::current_dir().map_err(|error| {
        Problem::unavailable(format!("the working directory cannot be used: {error}")).into()
    })
}

/// An empty project serves nobody: say what to do.
pub(crate) async fn require_tools(project: &Project) -> CommandResult {
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
    .with_hint("run `moonlark tool init hello` to write one, `moonlark serve --mcp NAME=COMMAND` to use a server's, `moonlark serve NAME=openapi.yaml` for an API's, or `moonlark demo` for a tour")
    .into())
}

/// The tools that scripts of either language make.
pub(crate) fn script_tools(catalog: &Catalog) -> impl Iterator<Item = &Arc<Tool>> {
    let by_script =
        |tool: &&Arc<Tool>| matches!(tool.source.kind, SourceKind::Script | SourceKind::Extension);
    catalog.tools().iter().filter(by_script)
}

pub(crate) fn parse_key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write it as NAME=VALUE".to_owned()),
    }
}

/// `3 tools`
pub(crate) fn format_count(count: impl TryInto<usize>, what: &str) -> String {
    let count = count.try_into().unwrap_or(usize::MAX);
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// What a tool answered, or why it did not, for `--json`.
pub(crate) fn print_json_answer(answer: Result<Value, Problem>) -> CommandResult {
    print_json(&match &answer {
        Ok(value) => json!({ "result": value.clone().into_json("result")? }),
        Err(problem) => json!({ "error": problem.to_json() }),
    });
    answer.map(drop).map_err(|_| CommandError::Said)
}

/// What to do about a name that nothing has, if one of `known` is near.
pub(crate) fn near_hint<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<String> {
    nearest_name(name, known).map(|near| format!("did you mean {near}?"))
}

pub(crate) fn problems_json(problems: &[Problem]) -> Vec<Json> {
    problems.iter().map(Problem::to_json).collect()
}

/// JSON as people read it.
pub(crate) fn pretty_json(value: &Value) -> Result<String, Problem> {
    let json = value.clone().into_json("result")?;
    let text = serde_json::to_string_pretty(&json);
    let text = text.map_err(|error| Problem::internal(error.to_string()))?;
    Ok(moonlark_core::visible_text::visible_json(&text).into_owned())
}

pub(crate) fn display_path(path: &Path) -> String {
    path.display().to_string()
}

/// The path as people in the folder `base` know it.
pub(crate) fn path_label(path: &Path, base: &Path) -> String {
    display_path(path.strip_prefix(base).unwrap_or(path))
}

/// A file that cannot be read or written: `what` could not be done.
pub(crate) fn io_problem(what: &str, label: &str, error: &std::io::Error) -> Problem {
    Problem::unavailable(format!("cannot {what} it: {error}"))
        .at_location(SourceLocation::in_file(label))
}

/// `path` as it is written in the folder `here`, with `..` where it is not below.
pub(crate) fn path_from(here: &Path, path: &Path) -> PathBuf {
    let common = here.components().zip(path.components()).take_while(|(a, b)| a == b).count();
    // Nothing in common but the root: the whole path says more.
    if common < 2 {
        return path.to_owned();
    }
    let up = here.components().skip(common).map(|_| Component::ParentDir);
    up.chain(path.components().skip(common)).collect()
}
