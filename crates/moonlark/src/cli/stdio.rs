//! `moonlark stdio`: attached to the project's running server, or a server itself.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use moonlark_core::Problem;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::serve::until_asked_to_stop;
use super::served::{find_server, is_project_here, project_socket};
use super::servers::Servers;
use super::{Done, Failure, Global, require_tools};
use crate::learned::Keeping;
use crate::local_server::{
    Backend, LocalServer, Purpose, Reached, ServingCommand, SocketClaim, bridge_stdio,
};
use crate::project::Project;
use crate::reload;

/// What a backend of our own is spoken to through.
const PIPE_BYTES: usize = 64 * 1024;
/// How long a server that is about to listen may take to do so.
const FINDING_TIMEOUT: Duration = Duration::from_secs(10);
const FINDING_PAUSE: Duration = Duration::from_millis(20);

#[derive(Args)]
pub(crate) struct Stdio {
    /// APIs: their OpenAPI documents, files or addresses.
    #[arg(value_name = "NAME=SPEC", value_parser = super::key_value)]
    specs: Vec<(String, String)>,
    #[command(flatten)]
    servers: Servers,
}

impl Stdio {
    pub(crate) async fn run(self, global: &Global) -> Done {
        // With sources of its own it is a server of its own, which nobody else uses.
        let shared = self.servers.is_empty()
            && self.specs.is_empty()
            && !global.standalone
            && is_project_here(global)?;
        let place = match shared {
            true => find_place(global).await?,
            false => ServingPlace::Alone,
        };
        let claim = match place {
            ServingPlace::Attached(backend) => return attached(backend, global).await,
            ServingPlace::Shared(claim) => Some(claim),
            ServingPlace::Alone => None,
        };
        let project = self.servers.prepare(global, self.specs)?;
        let server = OwnServer::start(project, claim).await?;
        let done = tokio::select! {
            done = moonlark_server::serve_stdio(server.project.gateway.clone()) => done,
            () = until_asked_to_stop() => Ok(()),
        };
        server.stop().await;
        Ok(done?)
    }
}

/// Where the client of a `stdio` is served.
enum ServingPlace {
    /// By a server that runs.
    Attached(Backend),
    /// By this process, which others find and use.
    Shared(SocketClaim),
    /// By this process, which nobody finds.
    Alone,
}

async fn find_place(global: &Global) -> Result<ServingPlace, Failure> {
    let given_up = tokio::time::Instant::now() + FINDING_TIMEOUT;
    while tokio::time::Instant::now() < given_up {
        match find_server(global, Purpose::Mcp).await? {
            Reached::Server(stream, server) => {
                tracing::info!(
                    "attached to the running server (moonlark {}, process {})",
                    server.command,
                    server.pid
                );
                let (read, write) = tokio::io::split(stream);
                return Ok(ServingPlace::Attached(Backend::new(read, write)));
            }
            Reached::Unusable(why) => {
                tracing::info!("{why}; this process is a server of its own");
                return Ok(ServingPlace::Alone);
            }
            Reached::Nobody => {}
        }
        // Whoever comes second connects to the socket of this claim, and waits there
        // until this process has loaded the project.
        match project_socket(global)?.0.claim() {
            Ok(Some(claim)) => return Ok(ServingPlace::Shared(claim)),
            // Another one was faster and listens in a moment, or it ends just now.
            Ok(None) => tokio::time::sleep(FINDING_PAUSE).await,
            Err(error) => {
                tracing::debug!("other processes will not find this one: {error}");
                return Ok(ServingPlace::Alone);
            }
        }
    }
    Ok(ServingPlace::Alone)
}

/// Serve the client by a server that runs, and by the next one if that ends.
async fn attached(first: Backend, global: &Global) -> Done {
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
        () = until_asked_to_stop() => Ok(()),
    };
    if let Some((server, _)) = own.take() {
        OwnServer::stop(server).await;
    }
    Ok(done?)
}

type OwnBackend = (OwnServer, AbortOnDropHandle<()>);

/// Another server that has taken over, or else this process becomes it.
async fn next_backend(global: &Global, own: &mut Option<OwnBackend>) -> Result<Backend, Failure> {
    let claim = match find_place(global).await? {
        ServingPlace::Attached(backend) => return Ok(backend),
        ServingPlace::Shared(claim) => Some(claim),
        ServingPlace::Alone => None,
    };
    let project = Servers::default().prepare(global, Vec::new())?;
    let server = OwnServer::start(project, claim).await?;
    let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
    let (read, write) = tokio::io::split(theirs);
    let gateway = server.project.gateway.clone();
    let serving = tokio::spawn(async move {
        // It ends with the client, whose session this is.
        let stop = CancellationToken::new();
        let _ = moonlark_server::serve_lines(gateway, read, write, stop).await;
    });
    *own = Some((server, AbortOnDropHandle::new(serving)));
    let (read, write) = tokio::io::split(ours);
    Ok(Backend::new(read, write))
}

/// The project as this process serves it.
struct OwnServer {
    project: Arc<Project>,
    keeping: Keeping,
    /// What goes on beside calls, until it is dropped.
    beside: Box<dyn std::any::Any + Send>,
    local: Option<LocalServer>,
}

impl OwnServer {
    async fn start(project: Arc<Project>, claim: Option<SocketClaim>) -> Result<Self, Failure> {
        require_tools(&project).await?;
        super::log_doubts(&project.loaded().await);
        let keeping = project.keep_learned().await;
        project.keep_journal().await;
        project.connect().await;
        let loaded = |project: &Project| {
            for problem in project.problems_of_its_own() {
                tracing::warn!("{problem}");
            }
        };
        let watching = tokio::spawn(reload::load_and_watch(project.clone(), loaded));
        let watching = AbortOnDropHandle::new(watching);
        let runs = project.take_up_runs().await;
        let following = project.follow_knowledge();
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
        self.project.disconnect().await;
    }
}
