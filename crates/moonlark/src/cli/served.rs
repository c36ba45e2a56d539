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

use super::servers::Servers;
use super::terminal::{Console, ConsoleWrite};
use super::{Done, Failure, Global, here, say};
use super::{call, docs, doctor, get, policy, run, search, search_tools, sources, tool};
use crate::config::Config;
use crate::config_file;
use crate::local_server::{
    ProjectSocket, Purpose, Reached, ServerSummary, canonical_config, connection_lost, reach,
    read_line, write_line,
};
use crate::project::Project;
use crate::source_start::SourceStart;
use crate::state_folder::state_folder;

/// A script and its arguments are in it.
const MAX_COMMAND_BYTES: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
pub(crate) enum ServedCommand {
    Call(call::Call),
    Docs(docs::Docs),
    Doctor,
    Explain(policy::Explain),
    Get(get::Get),
    Run(run::ScriptRun),
    Search(search::Search),
    SearchTools(search_tools::SearchTools),
    Sources,
    ToolList,
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
pub(crate) struct Surroundings<'a> {
    pub(crate) project: &'a Arc<Project>,
    /// The server that carries it out; none if this process is its own.
    pub(crate) server: Option<&'a ServerSummary>,
}

impl ServedCommand {
    /// Carry it out, in the project's server if it has one.
    pub(crate) async fn run(self, servers: Servers, global: &Global) -> Done {
        if !servers.is_empty() || global.standalone {
            return self.run_here(servers, global).await;
        }
        match find_server(global, Purpose::Command).await? {
            Reached::Server(stream, _) => self.run_there(stream, global).await,
            Reached::Nobody => self.run_here(servers, global).await,
            Reached::Unusable(why) => {
                if !global.quiet {
                    say(format!("note: {why}; this command uses a process of its own"));
                }
                self.run_here(servers, global).await
            }
        }
    }

    /// What to do when the server is gone in the middle of it.
    fn hint_when_lost(&self) -> &'static str {
        match self {
            ServedCommand::Call(_) => {
                "the call may have happened: look before you make it again; `moonlark runs --calls` \
                 shows what is on record"
            }
            ServedCommand::Run(_) => {
                "calls of the script may have happened: `moonlark runs` has the run, and \
                 `moonlark runs resume ID` goes on where it was"
            }
            _ => "run the command again; with --standalone it uses no running server",
        }
    }

    async fn run_there<S>(self, mut stream: S, global: &Global) -> Done
    where
        S: AsyncBufRead + AsyncWrite + Unpin,
    {
        let hint = self.hint_when_lost();
        let lost = |error: io::Error| Failure::from(connection_lost(&error, hint));
        let request = CommandRequest {
            command: self,
            json: global.json,
            verbose: global.verbose,
            quiet: global.quiet,
        };
        write_line(&mut stream, &request).await.map_err(lost)?;
        loop {
            let reply: Option<CommandReply> =
                read_line(&mut stream, u64::MAX).await.map_err(lost)?;
            match reply {
                Some(CommandReply::Write(write)) => Console::OwnTerminal.write(write),
                Some(CommandReply::Ended { failed: false }) => return Ok(()),
                Some(CommandReply::Ended { failed: true }) => return Err(Failure::Said),
                None => return Err(lost(io::ErrorKind::UnexpectedEof.into())),
            }
        }
    }

    async fn run_here(self, servers: Servers, global: &Global) -> Done {
        let project = match servers.open(global).await {
            Ok(project) => project,
            Err(Failure::Config(rejected)) if matches!(self, ServedCommand::Doctor) => {
                return doctor::tell_rejected(rejected, global);
            }
            Err(failure) => return Err(failure),
        };
        let start = self.start(&project).await;
        if start != SourceStart::Nothing {
            project.connect_to(&start).await;
        }
        let keeping = match self.calls_tools() {
            true => {
                project.keep_journal().await;
                Some(project.keep_learned().await)
            }
            false => None,
        };
        let done = self.run_in(&Surroundings { project: &project, server: None }, global).await;
        if let Some(keeping) = keeping {
            keeping.stop().await;
        }
        project.disconnect().await;
        done
    }

    async fn run_in(self, around: &Surroundings<'_>, global: &Global) -> Done {
        let project = around.project;
        match self {
            ServedCommand::Call(call) => call.run_in(project, global).await,
            ServedCommand::Docs(docs) => docs.run_in(project, global).await,
            ServedCommand::Doctor => doctor::run_in(around, global).await,
            ServedCommand::Explain(explain) => explain.run_in(project, global).await,
            ServedCommand::Get(get) => get.run_in(project, global).await,
            ServedCommand::Run(run) => run.run_in(project, global).await,
            ServedCommand::Search(search) => search.run_in(project, global).await,
            ServedCommand::SearchTools(search) => search.run_in(project, global).await,
            ServedCommand::Sources => sources::run_in(project, global).await,
            ServedCommand::ToolList => tool::list_in(project, global).await,
        }
    }

    /// Which sources it needs.
    async fn start(&self, project: &Project) -> SourceStart {
        match self {
            ServedCommand::Call(call) => SourceStart::for_tool(call.tool_name(), project).await,
            // They are about how sources are doing now.
            ServedCommand::Doctor | ServedCommand::Sources => SourceStart::All,
            ServedCommand::Get(_) | ServedCommand::Search(_) => SourceStart::Nothing,
            ServedCommand::Docs(_)
            | ServedCommand::Explain(_)
            | ServedCommand::Run(_)
            | ServedCommand::SearchTools(_)
            | ServedCommand::ToolList => SourceStart::WhenNeeded,
        }
    }

    /// Whether what it does is a matter of the journal.
    fn calls_tools(&self) -> bool {
        match self {
            ServedCommand::Call(_) => true,
            ServedCommand::Run(run) => !run.only_checks(),
            _ => false,
        }
    }
}

/// Look for the running server of the project that this command is about.
pub(crate) async fn find_server(global: &Global, wants: Purpose) -> Result<Reached, Failure> {
    let (socket, config) = project_socket(global)?;
    Ok(reach(&socket, config.as_deref(), wants).await)
}

/// Where that server is found, and the configuration file it must use.
pub(crate) fn project_socket(global: &Global) -> Result<(ProjectSocket, Option<PathBuf>), Failure> {
    let here = here()?;
    let env = |name: &str| std::env::var(name).ok();
    let config = config_file::in_effect(global.config.as_deref(), &here, &env);
    let root = config.as_deref().and_then(|path| path.parent()).unwrap_or(&here);
    Ok((ProjectSocket::of(root), canonical_config(config.as_deref())))
}

/// Whether there is a project to serve: a configuration file, a folder of scripts, or
/// what a server left here.
pub(crate) fn is_project_here(global: &Global) -> Result<bool, Failure> {
    let (here, defaults) = (here()?, Config::default());
    let env = |name: &str| std::env::var(name).ok();
    let folders = [
        &defaults.tools.dir,
        &defaults.extensions.dir,
        &defaults.connectors.dir,
        &defaults.agents.dir,
    ];
    Ok(config_file::in_effect(global.config.as_deref(), &here, &env).is_some()
        || folders.into_iter().any(|folder| here.join(folder).is_dir())
        || state_folder(&here).is_dir())
}

/// Carry out one command of another process, and end it when that process ends.
pub(crate) async fn carry_out(
    project: &Arc<Project>,
    server: &ServerSummary,
    mut read: impl AsyncBufRead + Unpin,
    mut write: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let Some(request) = read_line::<CommandRequest>(&mut read, MAX_COMMAND_BYTES).await? else {
        return Ok(());
    };
    let CommandRequest { command, json, verbose, quiet } = request;
    let global = Global { json, verbose, quiet, ..Global::default() };
    let (sender, mut written) = mpsc::unbounded_channel();
    let command = Console::Remote(sender).during(async {
        project.gateway.loaded(&super::caller()).await;
        let around = Surroundings { project, server: Some(server) };
        let done = command.run_in(&around, &global).await;
        if let Err(failure) = &done {
            failure.say();
        }
        done.is_err()
    });
    let mut command = pin!(command);
    let mut other_end = pin!(read.read_u8());
    let failed = loop {
        tokio::select! {
            biased;
            Some(text) = written.recv() => {
                write_line(&mut write, &CommandReply::Write(text)).await?;
            }
            failed = &mut command => break failed,
            // Nobody waits for it: dropping the command stops what it started.
            _ = &mut other_end => return Ok(()),
        }
    };
    while let Ok(text) = written.try_recv() {
        write_line(&mut write, &CommandReply::Write(text)).await?;
    }
    write_line(&mut write, &CommandReply::Ended { failed }).await
}
