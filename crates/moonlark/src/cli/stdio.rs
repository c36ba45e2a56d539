//! `moonlark stdio`: attached to the project's running server, or a server itself.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use moonlark_child::{spawn_owned, wait_for_finishing_tasks};
use moonlark_core::Problem;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::serve::{FINISHING_TASKS_TIMEOUT, shutdown_signal};
use super::served_command::{find_server, has_project_here, project_socket};
use super::source_args::SourceArgs;
use super::{CommandError, CommandResult, GlobalArgs, require_tools};
use crate::learned_shapes_file::LearnedShapesWriter;
use crate::local_server::{
    BridgeBackend, ConnectionPurpose, LocalServer, LocalServerLookup, ServingCommand, SocketClaim,
    bridge_stdio,
};
use crate::project::Project;
use crate::reload;

/// What a backend of our own is spoken to through.
const PIPE_BYTES: usize = 64 * 1024;
/// How long a server that is about to listen may take to do so.
const FIND_SERVER_TIMEOUT: Duration = Duration::from_secs(10);
const FIND_SERVER_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Args)]
pub(crate) struct StdioArgs {
    /// APIs: name and OpenAPI document (file or URL), as for --api.
    #[arg(value_name = "NAME=SPEC", value_parser = super::parse_key_value)]
    specs: Vec<(String, String)>,
    #[command(flatten)]
    servers: SourceArgs,
}

impl StdioArgs {
    pub(crate) async fn run(self, global: &GlobalArgs) -> CommandResult {
        // With sources of its own it is a server of its own, which nobody else uses.
        let shared = self.servers.is_empty()
            && self.specs.is_empty()
            && !global.standalone
            && has_project_here(global)?;
        let place = if shared { find_serving_place(global).await? } else { ServingPlace::Alone };
        let claim = match place {
            ServingPlace::Attached(backend) => return serve_attached(backend, global).await,
            ServingPlace::Shared(claim) => Some(claim),
            ServingPlace::Alone => None,
        };
        let project = self.servers.prepare_project(global, self.specs)?;
        let server = OwnServer::start(project, claim).await?;
        let done = tokio::select! {
            done = moonlark_server::serve_stdio(server.project.gateway.clone()) => done,
            () = shutdown_signal() => Ok(()),
        };
        server.stop().await;
        Ok(done?)
    }
}

/// Where the client of a `stdio` is served.
enum ServingPlace {
    /// By a server that runs.
    Attached(BridgeBackend),
    /// By this process, which others find and use.
    Shared(SocketClaim),
    /// By this process, which nobody finds.
    Alone,
}

async fn find_serving_place(global: &GlobalArgs) -> Result<ServingPlace, CommandError> {
    let given_up = tokio::time::Instant::now() + FIND_SERVER_TIMEOUT;
    while tokio::time::Instant::now() < given_up {
        match find_server(global, ConnectionPurpose::Mcp).await? {
            LocalServerLookup::Server(stream, server) => {
                tracing::info!(
                    "attached to the running server (moonlark {}, process {})",
                    server.command,
                    server.pid
                );
                let (read, write) = tokio::io::split(stream);
                return Ok(ServingPlace::Attached(BridgeBackend::new(read, write)));
            }
            LocalServerLookup::Unusable(why) => {
                tracing::info!("{why}; this process is a server of its own");
                return Ok(ServingPlace::Alone);
            }
            LocalServerLookup::Nobody => {}
        }
        // Whoever comes second connects to the socket of this claim, and waits there
        // until this process has loaded the project.
        match project_socket(global)?.0.claim_listener() {
            Ok(Some(claim)) => return Ok(ServingPlace::Shared(claim)),
            // Another one was faster and listens in a moment, or it ends just now.
            Ok(None) => tokio::time::sleep(FIND_SERVER_INTERVAL).await,
            Err(error) => {
                tracing::debug!("other processes will not find this one: {error}");
                return Ok(ServingPlace::Alone);
            }
        }
    }
    Ok(ServingPlace::Alone)
}

/// Serve the client by a server that runs, and by the next one if that ends.
async fn serve_attached(first: BridgeBackend, global: &GlobalArgs) -> CommandResult {
    let mut own = None;
    let next = async || {
        tracing::info!("the server has ended");
        next_backend(global, &mut own).await.map_err(|failure| {
            let gone = || Problem::unavailable("the server has ended");
            failure.first_problem().unwrap_or_else(gone)
        })
    };
    let done = tokio::select! {
        done = bridge_stdio(first, next) => done,
        () = shutdown_signal() => Ok(()),
    };
    if let Some((server, _)) = own.take() {
        OwnServer::stop(server).await;
    }
    Ok(done?)
}

type OwnBackend = (OwnServer, AbortOnDropHandle<()>);

/// Another server that has taken over, or else this process becomes it.
async fn next_backend(
    global: &GlobalArgs,
    own: &mut Option<OwnBackend>,
) -> Result<BridgeBackend, CommandError> {
    let claim = match find_serving_place(global).await? {
        ServingPlace::Attached(backend) => return Ok(backend),
        ServingPlace::Shared(claim) => Some(claim),
        ServingPlace::Alone => None,
    };
    let project = SourceArgs::default().prepare_project(global, Vec::new())?;
    let server = OwnServer::start(project, claim).await?;
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    let (read, write) = tokio::io::split(theirs);
    let gateway = server.project.gateway.clone();
    let serving = spawn_owned(async move {
        // It ends with the client, whose session this is.
        let stop = CancellationToken::new();
        let _ = moonlark_server::serve_lines(gateway, read, write, stop).await;
    });
    *own = Some((server, serving));
    let (read, write) = tokio::io::split(ours);
    Ok(BridgeBackend::new(read, write))
}

/// The project as this process serves it.
struct OwnServer {
    project: Arc<Project>,
    keeping: LearnedShapesWriter,
    /// What goes on beside calls, until it is dropped.
    beside: Box<dyn std::any::Any + Send>,
    local: Option<LocalServer>,
}

impl OwnServer {
    async fn start(
        project: Arc<Project>,
        claim: Option<SocketClaim>,
    ) -> Result<Self, CommandError> {
        project.prepare_engines();
        require_tools(&project).await?;
        super::log_config_warnings(&project.loaded_config().await);
        let keeping = project.persist_learned_shapes().await;
        project.start_journal_and_telemetry().await;
        project.connect_all_sources().await;
        let loaded = |project: &Project| {
            for problem in project.own_problems() {
                tracing::warn!("{problem}");
            }
        };
        let watching = spawn_owned(reload::load_and_watch(project.clone(), loaded));
        let runs = project.resume_waiting_runs().await;
        let following = project.sync_knowledge_in_background();
        let local = match claim {
            Some(claim) => {
                let command = ServingCommand::Stdio;
                Some(LocalServer::start(project.clone(), Some(claim), command, None).await)
            }
            None => None,
        };
        Ok(OwnServer { project, keeping, beside: Box::new((runs, following, watching)), local })
    }

    async fn stop(self) {
        if let Some(local) = self.local {
            local.stop().await;
        }
        drop(self.beside);
        self.keeping.stop().await;
        self.project.disconnect_quickly().await;
        wait_for_finishing_tasks(FINISHING_TASKS_TIMEOUT).await;
    }
}
