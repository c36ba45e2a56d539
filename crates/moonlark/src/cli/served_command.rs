//! Commands that need the project as it runs: its running server carries them out,
//! where there is one, and otherwise this process does, with as little started as
//! the command needs.
//!
//! Both ways run the same code ([`ServedCommand::run_in`]); only where it runs and
//! where it writes differs. A server carries a command out as what it is: a call of
//! the operator's command line.

use std::io;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufRead, AsyncReadExt, AsyncWrite};
use tokio::sync::mpsc;

use super::runs::{RunsResumeArgs, RunsTraceArgs, SaveTestRequest};
use super::source_args::SourceArgs;
use super::terminal::{CommandConsole, ConsoleWrite};
use super::{CommandError, CommandResult, GlobalArgs, eprint_line, find_config_path, working_dir};
use super::{call, docs, doctor, get, policy, run, search, search_tools, sources, tool};
use crate::local_server::{
    ConnectionPurpose, LocalServerLookup, LocalServerSummary, ProjectSocket, canonical_config_path,
    connection_lost_problem, find_local_server, read_json_line, write_json_line,
};
use crate::project::Project;
use crate::source_selection::SourceSelection;
use moonlark_config::ProjectConfig;
use moonlark_config::config_file::has_project_folder;

/// A script and its arguments are in it.
const MAX_COMMAND_BYTES: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
pub(crate) enum ServedCommand {
    Call(call::CallArgs),
    Docs(docs::DocsArgs),
    Doctor,
    Explain(policy::PolicyExplainArgs),
    Get(get::GetArgs),
    Resume(RunsResumeArgs),
    Run(run::ScriptRun),
    SaveTest(SaveTestRequest),
    Search(search::SearchArgs),
    SearchTools(search_tools::SearchToolsArgs),
    Sources,
    ToolList,
    Trace(RunsTraceArgs),
}

/// A command on its way to the server.
#[derive(Serialize, Deserialize)]
struct CommandRequest {
    command: ServedCommand,
    json: bool,
    verbose: u8,
    quiet: bool,
}

/// What comes back.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CommandReply {
    Write(ConsoleWrite),
    Ended { failed: bool },
}

/// What a command finds around it.
pub(crate) struct CommandEnvironment<'a> {
    pub(crate) project: &'a Arc<Project>,
    /// The server that carries it out; none if this process is its own.
    pub(crate) server: Option<&'a LocalServerSummary>,
}

impl ServedCommand {
    /// Carry it out, in the project's server if it has one.
    pub(crate) async fn run(self, servers: SourceArgs, global: &GlobalArgs) -> CommandResult {
        if !servers.is_empty() || global.standalone {
            return self.run_in_process(servers, global).await;
        }
        match find_server(global, ConnectionPurpose::Command).await? {
            LocalServerLookup::Server(stream, _) => self.run_in_server(stream, global).await,
            LocalServerLookup::Nobody => self.run_in_process(servers, global).await,
            LocalServerLookup::Unusable(why) => {
                if !global.quiet {
                    eprint_line(format!("note: {why}; this command uses a process of its own"));
                }
                self.run_in_process(servers, global).await
            }
        }
    }

    /// What to do when the server is gone in the middle of it.
    fn lost_connection_hint(&self) -> &'static str {
        match self {
            ServedCommand::Call(_) => {
                "the call may have happened: check before you make it again; `moonlark runs --calls` \
                 lists recorded calls"
            }
            ServedCommand::Resume(_) | ServedCommand::Run(_) => {
                "calls of the script may have happened: `moonlark runs` has the run, and \
                 `moonlark runs resume ID` goes on where it was"
            }
            _ => "run the command again; with --standalone it uses no running server",
        }
    }

    async fn run_in_server<S>(self, mut stream: S, global: &GlobalArgs) -> CommandResult
    where
        S: AsyncBufRead + AsyncWrite + Unpin,
    {
        let hint = self.lost_connection_hint();
        let lost = |error: io::Error| CommandError::from(connection_lost_problem(&error, hint));
        let request = CommandRequest {
            command: self,
            json: global.json,
            verbose: global.verbose,
            quiet: global.quiet,
        };
        write_json_line(&mut stream, &request).await.map_err(lost)?;
        loop {
            let reply: Option<CommandReply> =
                read_json_line(&mut stream, u64::MAX).await.map_err(lost)?;
            match reply {
                Some(CommandReply::Write(write)) => {
                    CommandConsole::OwnTerminal.dispatch_write(write)
                }
                Some(CommandReply::Ended { failed: false }) => return Ok(()),
                Some(CommandReply::Ended { failed: true }) => return Err(CommandError::Said),
                None => return Err(lost(io::ErrorKind::UnexpectedEof.into())),
            }
        }
    }

    async fn run_in_process(self, servers: SourceArgs, global: &GlobalArgs) -> CommandResult {
        let project = match servers.open_project(global).await {
            Ok(project) => project,
            Err(CommandError::Config(rejected)) if matches!(self, ServedCommand::Doctor) => {
                return doctor::report_rejected_config(rejected, global);
            }
            Err(failure) => return Err(failure),
        };
        let start = self.required_sources(&project).await;
        if start != SourceSelection::Nothing {
            project.connect_sources(&start).await;
        }
        let keeping = if self.calls_tools() {
            project.start_journal_and_telemetry().await;
            Some(project.persist_learned_shapes().await)
        } else {
            None
        };
        let done =
            self.run_in(&CommandEnvironment { project: &project, server: None }, global).await;
        if let Some(keeping) = keeping {
            keeping.stop().await;
        }
        project.disconnect_quickly().await;
        done
    }

    async fn run_in(self, around: &CommandEnvironment<'_>, global: &GlobalArgs) -> CommandResult {
        let project = around.project;
        match self {
            ServedCommand::Call(call) => call.run_in(project, global).await,
            ServedCommand::Docs(docs) => docs.run_in(project, global).await,
            ServedCommand::Doctor => doctor::run_in(around, global).await,
            ServedCommand::Explain(explain) => explain.run_in(project, global).await,
            ServedCommand::Get(get) => get.run_in(project, global).await,
            ServedCommand::Resume(resume) => resume.run_in(project, global).await,
            ServedCommand::Run(run) => run.run_in(project, global).await,
            ServedCommand::SaveTest(save) => save.run_in(project, global).await,
            ServedCommand::Search(search) => search.run_in(project, global).await,
            ServedCommand::SearchTools(search) => search.run_in(project, global).await,
            ServedCommand::Sources => sources::run_in(project, global).await,
            ServedCommand::ToolList => tool::list_tools(project, global).await,
            ServedCommand::Trace(trace) => trace.run_in(project, global).await,
        }
    }

    /// Which sources it needs.
    async fn required_sources(&self, project: &Project) -> SourceSelection {
        match self {
            ServedCommand::Call(call) => SourceSelection::for_tool(call.tool_name(), project).await,
            // They are about how sources are doing now.
            ServedCommand::Doctor | ServedCommand::Sources | ServedCommand::SaveTest(_) => {
                SourceSelection::All
            }
            ServedCommand::Get(_) | ServedCommand::Search(_) => SourceSelection::Nothing,
            ServedCommand::Docs(_)
            | ServedCommand::Explain(_)
            | ServedCommand::Resume(_)
            | ServedCommand::Run(_)
            | ServedCommand::SearchTools(_)
            | ServedCommand::ToolList
            | ServedCommand::Trace(_) => SourceSelection::WhenNeeded,
        }
    }

    /// Whether what it does is a matter of the journal.
    fn calls_tools(&self) -> bool {
        match self {
            ServedCommand::Call(_) | ServedCommand::Resume(_) | ServedCommand::Trace(_) => true,
            ServedCommand::Run(run) => !run.only_checks(),
            _ => false,
        }
    }
}

/// Look for the running server of the project that this command is about.
pub(crate) async fn find_server(
    global: &GlobalArgs,
    wants: ConnectionPurpose,
) -> Result<LocalServerLookup, CommandError> {
    let (socket, config) = project_socket(global)?;
    Ok(find_local_server(&socket, config.as_deref(), wants).await)
}

/// Where that server is found, and the configuration file it must use.
pub(crate) fn project_socket(
    global: &GlobalArgs,
) -> Result<(ProjectSocket, Option<PathBuf>), CommandError> {
    let here = working_dir()?;
    let config = find_config_path(global, &here);
    let root = config.as_deref().and_then(|path| path.parent()).unwrap_or(&here);
    Ok((ProjectSocket::for_project(root), canonical_config_path(config.as_deref())))
}

/// Whether there is a project to serve: a configuration file, a folder of scripts, or
/// what a server left here.
pub(crate) fn has_project_here(global: &GlobalArgs) -> Result<bool, CommandError> {
    let (here, defaults) = (working_dir()?, ProjectConfig::default());
    Ok(find_config_path(global, &here).is_some() || has_project_folder(&here, &defaults))
}

/// Carry out one command of another process, and end it when that process ends.
pub(crate) async fn serve_command(
    project: &Arc<Project>,
    server: &LocalServerSummary,
    mut read: impl AsyncBufRead + Unpin,
    mut write: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let Some(request) = read_json_line::<CommandRequest>(&mut read, MAX_COMMAND_BYTES).await?
    else {
        return Ok(());
    };
    let CommandRequest { command, json, verbose, quiet } = request;
    let global = GlobalArgs { json, verbose, quiet, ..GlobalArgs::default() };
    let (sender, mut written) = mpsc::unbounded_channel();
    let command = CommandConsole::Remote(sender).scope_future(async {
        project.gateway.loaded_catalog(&super::cli_caller()).await;
        let around = CommandEnvironment { project, server: Some(server) };
        let done = command.run_in(&around, &global).await;
        if let Err(failure) = &done {
            failure.eprint_problems();
        }
        done.is_err()
    });
    let mut command = pin!(command);
    let mut other_end = pin!(read.read_u8());
    let failed = loop {
        tokio::select! {
            biased;
            Some(text) = written.recv() => {
                write_json_line(&mut write, &CommandReply::Write(text)).await?;
            }
            failed = &mut command => break failed,
            // Nobody waits for it: dropping the command stops what it started.
            _ = &mut other_end => return Ok(()),
        }
    };
    while let Ok(text) = written.try_recv() {
        write_json_line(&mut write, &CommandReply::Write(text)).await?;
    }
    write_json_line(&mut write, &CommandReply::Ended { failed }).await
}
