//! `moonlark serve`

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use moonlark_child::{spawn_owned, wait_for_finishing_tasks};
use moonlark_core::{Problem, SourceLocation};
use moonlark_mcp_client::ClosePace;
use moonlark_server::{CallerIdentification, RequestAuthenticator};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::inventory::ProjectInventory;
use super::served_command::has_project_here;
use super::source_args::SourceArgs;
use super::{CommandError, CommandResult, GlobalArgs, require_tools, served_command};
use crate::http_auth;
use crate::local_server::{LocalServer, ServingCommand, SocketClaim};
use crate::project::{Project, StateRetention};
use crate::reload;

/// What is told to others in the last moment may take this long.
pub(super) const FINISHING_TASKS_TIMEOUT: Duration = Duration::from_secs(2);

/// Problems that are in the log at the start.
const MAX_ANNOUNCED_PROBLEMS: usize = 50;

#[derive(Args)]
pub(crate) struct ServeArgs {
    /// The address to listen on (overrides server.host).
    #[arg(long)]
    host: Option<String>,
    /// The port to listen on (overrides server.port); 0 takes a free one.
    #[arg(long)]
    port: Option<u16>,
    /// APIs: name and OpenAPI document (file or URL), as for --api.
    #[arg(value_name = "NAME=SPEC", value_parser = super::parse_key_value)]
    specs: Vec<(String, String)>,
    #[command(flatten)]
    servers: SourceArgs,
}

impl ServeArgs {
    pub(crate) async fn run(self, global: &GlobalArgs) -> CommandResult {
        // Before anything is loaded, so that who starts meanwhile waits for this server.
        let has_sources = !self.servers.is_empty() || !self.specs.is_empty();
        let claim = if has_sources || has_project_here(global)? {
            claim_socket(global)?
        } else {
            // It ends in a moment, for there is nothing to serve.
            None
        };
        let mut servers = self.servers;
        servers.state_kept = StateRetention::InFolder;
        let project = servers.prepare_project(global, self.specs)?;
        project.prepare_engines();
        let config = project.config().await;
        let host = self.host.unwrap_or(config.server.host);
        let port = self.port.unwrap_or(config.server.port);
        let listener = bind_listener(&host, port, &project.auth).await?;
        require_tools(&project).await?;
        let (stop, asked_to_stop) = (CancellationToken::new(), shutdown_signal());
        let address = listener.local_addr()?;
        tracing::info!("listening on http://{address} (MCP at /mcp, REST at /tools)");
        super::log_config_warnings(&project.loaded_config().await);
        let keeping = project.persist_learned_shapes().await;
        project.start_journal_and_telemetry().await;
        let runs = project.resume_waiting_runs().await;
        // From here on requests are answered. Those about scripts wait for them.
        let server = spawn_owned(serve_project(project.clone(), listener, stop.clone()).await);
        project.connect_all_sources().await;
        let watcher = spawn_owned(reload::load_and_watch(project.clone(), log_inventory));
        let following = project.sync_knowledge_in_background();
        let address = Some(address.to_string());
        let local =
            LocalServer::start(project.clone(), claim, ServingCommand::Serve, address).await;
        asked_to_stop.await;
        tracing::info!("stopping");
        stop.cancel();
        // Calls in progress get a moment; whoever hangs on is cut off.
        let served = tokio::time::timeout(Duration::from_secs(5), server);
        let _ = tokio::join!(served, local.stop());
        drop((watcher, following, runs));
        keeping.stop().await;
        project.disconnect_at_pace(ClosePace::Gentle).await;
        wait_for_finishing_tasks(FINISHING_TASKS_TIMEOUT).await;
        Ok(())
    }
}

/// The right to be found by other processes of this project; none if one has it.
/// Without it everything works, but for being found.
pub(super) fn claim_socket(global: &GlobalArgs) -> Result<Option<SocketClaim>, CommandError> {
    match served_command::project_socket(global)?.0.claim_listener() {
        Ok(Some(claim)) => Ok(Some(claim)),
        Ok(None) => {
            tracing::info!(
                "another process serves this project: commands use that one until it has ended"
            );
            Ok(None)
        }
        Err(error) => {
            tracing::warn!("commands will not find this server: {error}");
            Ok(None)
        }
    }
}

/// The server as a future, ready to be spawned.
pub(super) async fn serve_project(
    project: Arc<Project>,
    listener: TcpListener,
    stop: CancellationToken,
) -> impl Future<Output = std::io::Result<()>> + Send + 'static {
    let callers = CallerIdentification::Authenticated(project.auth.clone());
    let options = http_auth::http_server_options(&project, &project.config().await, callers);
    let router = moonlark_server::build_http_app(project.gateway.clone(), options, stop.clone());
    moonlark_server::serve_listener(listener, router, stop)
}

/// Listen on this machine only, unless callers have to show who they are: any other
/// address would hand every tool to the whole network.
pub(super) async fn bind_listener(
    host: &str,
    port: u16,
    auth: &RequestAuthenticator,
) -> Result<TcpListener, CommandError> {
    let local = host.eq_ignore_ascii_case("localhost")
        || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    if !local && !auth.is_required() {
        return Err(Problem::bad_config(format!("refusing to listen on {host} without authentication: every machine that can reach it could call every tool"))
            .at_location(SourceLocation::in_file("server.host"))
            .with_hint("make a token with `moonlark token add NAME`, or set server.auth.issuer to your identity provider, or listen on 127.0.0.1")
            .into());
    }
    if !local {
        // What is reachable from elsewhere does not open up when a token goes.
        auth.require_token();
    }
    TcpListener::bind((host.trim_matches(['[', ']']), port)).await.map_err(|error| {
        let problem = Problem::unavailable(format!("cannot listen on {host}:{port}: {error}"));
        match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                problem.with_hint("choose another with --port, or 0 for a free one")
            }
            _ => problem,
        }
        .into()
    })
}

/// Say what is served, once all scripts are loaded, and what is wrong with it.
fn log_inventory(project: &Project) {
    tracing::info!("serving {}", ProjectInventory::from_project(project).describe_sources());
    let problems = project.own_problems();
    for problem in problems.iter().take(MAX_ANNOUNCED_PROBLEMS) {
        tracing::warn!("{problem}");
    }
    let more = problems.len().saturating_sub(MAX_ANNOUNCED_PROBLEMS);
    if more > 0 {
        tracing::warn!("{more} more problems: `moonlark doctor` has all of them");
    }
    let warnings = project.script_warnings();
    for warning in warnings.iter().take(MAX_ANNOUNCED_PROBLEMS) {
        tracing::info!("{warning}");
    }
    let more = warnings.len().saturating_sub(MAX_ANNOUNCED_PROBLEMS);
    if more > 0 {
        tracing::info!("{more} more warnings: `moonlark doctor` has all of them");
    }
}

/// Ctrl-C, or SIGTERM from whoever runs us. Both count from here on, not from when
/// they are waited for: whoever sees us answer may ask us to stop at once.
pub(super) fn shutdown_signal() -> impl Future<Output = ()> {
    use tokio::signal::unix::{SignalKind, signal};
    let asked = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    async move {
        let (Ok(mut terminate), Ok(mut interrupt)) = asked else {
            let _ = tokio::signal::ctrl_c().await;
            return;
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
}
