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
mod log;
mod login;
mod logout;
mod named;
mod pin;
mod policy;
mod repl;
mod run;
mod runs;
mod search;
mod search_tools;
mod serve;
mod servers;
mod sources;
mod stdio;
mod sync;
mod template;
mod test;
mod token;
mod tool;
mod tool_test;
mod types;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, CommandFactory, Parser, Subcommand};
use moonlark_core::tool::SourceKind;
use moonlark_core::{Caller, Catalog, Problem, Tool, Value};

use crate::config::LogFormat;
use crate::project::Project;

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

#[derive(Args, Clone)]
pub(crate) struct Global {
    /// The configuration file (otherwise moonlark.toml here, or in the user's configuration folder).
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print data as JSON.
    #[arg(long, global = true)]
    json: bool,
    /// Say more on stderr (twice: even more).
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Say only what is wrong.
    #[arg(long, short, global = true)]
    quiet: bool,
    /// How the log on stderr is written: for people, or as JSON for programs.
    #[arg(long, global = true, value_name = "FORMAT")]
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
    /// Decide on calls that a rule lets nobody make without that.
    #[command(subcommand)]
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
    /// Take over the MCP servers of Claude Desktop, Cursor, VS Code, Zed or Claude Code.
    Import(import::Import),
    /// Register Moonlark with Claude Desktop, Cursor, VS Code, Zed or Claude Code.
    Install(install::Install),
    /// Print a completion script for a shell.
    Completions(completions::Completions),
}

/// How a command ends badly.
pub(crate) enum Failure {
    /// Problems to print.
    Problems(Vec<Problem>),
    /// Everything was said already.
    Said,
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Failure::Problems(vec![problem])
    }
}

impl From<Vec<Problem>> for Failure {
    fn from(problems: Vec<Problem>) -> Self {
        Failure::Problems(problems)
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
    let cli = Cli::parse();
    log::start(&cli.global, &cli.command);
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    let runtime = match threads.thread_stack_size(STACK).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error[internal]: cannot start: {error}");
            return ExitCode::FAILURE;
        }
    };
    let done = runtime.block_on(run(cli));
    // What still waits (a reader of stdin, a blocked script) must not hold us.
    runtime.shutdown_timeout(std::time::Duration::from_millis(100));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Said) => ExitCode::FAILURE,
        Err(Failure::Problems(problems)) => {
            for problem in problems {
                eprintln!("{}", painted(&problem));
            }
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
        Command::Token(token) => token.run(&global),
        Command::Policy(policy) => policy.run(&global).await,
        Command::Sources(sources) => sources.run(&global).await,
        Command::Doctor => doctor::run(&global).await,
        Command::Import(import) => import.run(&global),
        Command::Install(install) => install.run(&global),
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

/// The same, with what its upstream servers offer. They are gone again when
/// this returns: what is known of them stays in the catalog.
pub(crate) async fn open_with_upstreams(
    global: &Global,
) -> Result<(Arc<Project>, Arc<Catalog>), Failure> {
    let project = Arc::new(open(global).await?);
    project.connect().await;
    project.settled().await;
    project.refresh().await;
    let catalog = project.gateway.catalog_for(&caller());
    project.disconnect().await;
    Ok((project, catalog))
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
    if project.script_count().await > 0 || sources {
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

/// Colours for what is printed as a result.
pub(crate) fn colours_of_stdout() -> bool {
    colours() && std::io::stdout().is_terminal()
}

/// Colours only for people.
pub(crate) fn colours() -> bool {
    std::io::stderr().is_terminal()
        && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

fn painted(problem: &Problem) -> String {
    paint(&problem.to_string())
}

/// The text of a Problem, in colours where there are any.
pub(crate) fn paint(text: &str) -> String {
    if !colours() {
        return text.to_owned();
    }
    text.replacen("error[", "\x1b[1;31merror[", 1)
        .replacen("]:", "]\x1b[0m:", 1)
        .replace("\nhint:", "\n\x1b[1;36mhint\x1b[0m:")
}

/// Tool parameters from the command line.
#[derive(Args)]
pub(crate) struct Params {
    /// One parameter; values that are not text are written as JSON.
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = key_value)]
    params: Vec<(String, String)>,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write it as NAME=VALUE".to_owned()),
    }
}

impl Params {
    /// Put the parameters into `args`, each read as its schema says.
    fn add_to(&self, args: &mut moonlark_core::value::Object, tool: Option<&Tool>) {
        for (name, text) in &self.params {
            let wanted = tool.and_then(|tool| {
                tool.input.json().get("properties")?.get(name)?.get("type")?.as_str()
            });
            let value = match wanted {
                Some("string") | None => Value::Str(text.clone()),
                // Left as text when it is not JSON, so that the schema complains
                // in its own words.
                Some(_) => {
                    Value::parse_json(text.as_bytes()).unwrap_or_else(|_| Value::Str(text.clone()))
                }
            };
            args.insert(name.clone(), value);
        }
    }
}

/// `3 tools`
pub(crate) fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// JSON as people read it.
pub(crate) fn pretty(value: &Value) -> Result<String, Problem> {
    let json = value.clone().into_json("result")?;
    serde_json::to_string_pretty(&json).map_err(|error| Problem::internal(error.to_string()))
}

/// Print and never panic when the reader has gone (`| head`).
pub(crate) fn print(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{text}");
}

pub(crate) fn shown(path: &Path) -> String {
    path.display().to_string()
}
