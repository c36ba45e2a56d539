//! What is served on the project's socket: MCP for a `stdio` that attaches, commands
//! of the command line, and the same HTTP as elsewhere (`curl --unix-socket`).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use moonlark_child::spawn_owned;
use moonlark_server::{CallerIdentification, HttpApp};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::greeting::{
    ClientGreeting, ConnectionPurpose, LocalServerSummary, MAX_GREETING_BYTES,
    canonical_config_path, write_json_line,
};
use super::project_socket::{ProjectSocket, SocketClaim, is_same_user};
use crate::cli::served_command;
use crate::http_auth;
use crate::project::Project;

/// Connections at once; further ones wait.
const MAX_LOCAL_SESSIONS: usize = 512;
/// How long a client may take to say what it wants.
const CLIENT_GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// How long calls may still take when the server stops.
const CALL_DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// The same when the client that a `stdio` was started for has left: it waits for the end
/// of the process. Calls of others are rare then.
const STDIO_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// How often a server whose place is taken looks whether it is free.
const CLAIM_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The command that serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServingCommand {
    Serve,
    Stdio,
}

/// Serves the project on its socket until it is stopped.
pub(crate) struct LocalServer {
    stop: CancellationToken,
    serving: AbortOnDropHandle<()>,
    command: ServingCommand,
}

impl LocalServer {
    /// Serve whoever connects. Without a claim another process listens: its place is
    /// taken when it has ended.
    pub(crate) async fn start(
        project: Arc<Project>,
        claim: Option<SocketClaim>,
        command: ServingCommand,
        address: Option<String>,
    ) -> LocalServer {
        let stop = CancellationToken::new();
        let loaded = project.loaded_config().await;
        let callers = CallerIdentification::Owner;
        let options = http_auth::http_server_options(&project, &loaded.config, callers);
        let summary = LocalServerSummary {
            moonlark: env!("CARGO_PKG_VERSION").to_owned(),
            config: canonical_config_path(loaded.path.as_deref()),
            pid: std::process::id(),
            command: match command {
                ServingCommand::Serve => "serve",
                ServingCommand::Stdio => "stdio",
            }
            .to_owned(),
            address,
        };
        let app = moonlark_server::build_http_app(project.gateway.clone(), options, stop.clone());
        let served = Arc::new(LocalSessionContext { project, app, summary, stop: stop.clone() });
        let socket = ProjectSocket::for_project(&loaded.root);
        let serving = spawn_owned(async move {
            let claim = match claim {
                Some(claim) => Some(claim),
                None => wait_for_claim(&socket, &served.stop).await,
            };
            if let Some(claim) = claim {
                accept_sessions(claim, served).await;
            }
        });
        LocalServer { stop, serving, command }
    }

    /// Stop, and let calls in progress finish.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        // Whoever hangs on is cut off.
        let drain = match self.command {
            ServingCommand::Serve => CALL_DRAIN_TIMEOUT,
            ServingCommand::Stdio => STDIO_DRAIN_TIMEOUT,
        };
        let _ = timeout(drain, self.serving).await;
    }
}

async fn wait_for_claim(socket: &ProjectSocket, stop: &CancellationToken) -> Option<SocketClaim> {
    loop {
        tokio::select! {
            () = tokio::time::sleep(CLAIM_RETRY_INTERVAL) => {}
            () = stop.cancelled() => return None,
        }
        match socket.claim_listener() {
            Ok(None) => {}
            Ok(Some(claim)) => return Some(claim),
            Err(_) => return None,
        }
    }
}

/// What every session needs.
struct LocalSessionContext {
    project: Arc<Project>,
    app: HttpApp,
    summary: LocalServerSummary,
    stop: CancellationToken,
}

async fn accept_sessions(claim: SocketClaim, served: Arc<LocalSessionContext>) {
    let sessions = TaskTracker::new();
    let places = Arc::new(Semaphore::new(MAX_LOCAL_SESSIONS));
    loop {
        let accepted = async {
            // It is never closed.
            let place = places.clone().acquire_owned().await.ok();
            (claim.listener.accept().await, place)
        };
        let (accepted, place) = tokio::select! {
            accepted = accepted => accepted,
            () = served.stop.cancelled() => break,
        };
        match accepted {
            Ok((stream, _)) => {
                let served = served.clone();
                sessions.spawn(async move {
                    // How it ends is the client's business.
                    let _ = serve_session(stream, served).await;
                    drop(place);
                });
            }
            // Out of descriptors, most likely: others end meanwhile.
            Err(error) => {
                tracing::warn!("the project's socket: {error}");
                tokio::time::sleep(CLAIM_RETRY_INTERVAL).await;
            }
        }
    }
    // From here on nobody finds this server, and another process can take its place.
    drop(claim);
    sessions.close();
    sessions.wait().await;
}

async fn serve_session(stream: UnixStream, served: Arc<LocalSessionContext>) -> io::Result<()> {
    if !is_same_user(&stream)? {
        return Ok(());
    }
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read);
    let mut first = Vec::new();
    let line = (&mut read).take(MAX_GREETING_BYTES);
    let mut line = line;
    match timeout(CLIENT_GREETING_TIMEOUT, line.read_until(b'\n', &mut first)).await {
        Ok(read) => read?,
        Err(_) => return Ok(()),
    };
    if first.first() != Some(&b'{') {
        // HTTP, which is read again from its beginning.
        let read = io::Cursor::new(first).chain(read);
        let stream = tokio::io::join(read, write);
        moonlark_server::serve_connection(stream, served.app.clone(), served.stop.clone()).await;
        return Ok(());
    }
    let greeting: ClientGreeting = serde_json::from_slice(&first)?;
    write_json_line(&mut write, &served.summary).await?;
    match greeting.wants {
        ConnectionPurpose::Mcp => {
            let gateway = served.project.gateway.clone();
            let _ = moonlark_server::serve_lines(gateway, read, write, served.stop.clone()).await;
            Ok(())
        }
        ConnectionPurpose::Command => {
            served_command::serve_command(&served.project, &served.summary, read, write).await
        }
    }
}
