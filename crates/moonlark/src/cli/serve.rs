//! `moonlark serve`

use std::net::IpAddr;
use std::sync::Arc;

use clap::Args;
use moonlark_core::{Place, Problem};
use moonlark_server::{Auth, Options};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::servers::Servers;
use super::{Done, Failure, Global, authored, require_tools};
use crate::project::Project;
use crate::reload;

#[derive(Args)]
pub(crate) struct Serve {
    /// The address to listen on (overrides server.host).
    #[arg(long)]
    host: Option<String>,
    /// The port to listen on (overrides server.port); 0 takes a free one.
    #[arg(long)]
    port: Option<u16>,
    /// APIs: their OpenAPI documents, files or addresses.
    #[arg(value_name = "NAME=SPEC", value_parser = super::key_value)]
    specs: Vec<(String, String)>,
    #[command(flatten)]
    servers: Servers,
}

impl Serve {
    pub(crate) async fn run(self, global: &Global) -> Done {
        let project = self.servers.open_with(global, self.specs).await?;
        require_tools(&project).await?;
        let config = project.config().await;
        let host = self.host.unwrap_or(config.server.host);
        let port = self.port.unwrap_or(config.server.port);
        let listener = listen(&host, port, &project.auth).await?;
        let (stop, asked_to_stop) = (CancellationToken::new(), until_asked_to_stop());
        announce(&project, &listener)?;
        project.connect().await;
        let keeping = project.keep_learned().await;
        project.keep_journal().await;
        let runs = project.take_up_runs().await;
        let following = project.knowledge.follow(&project.gateway);
        let watcher = tokio::spawn(reload::watch(project.clone()));
        let server = tokio::spawn(serve(project.clone(), listener, stop.clone()).await);
        asked_to_stop.await;
        tracing::info!("stopping");
        stop.cancel();
        // Calls in progress get a moment; whoever hangs on is cut off.
        let _ = tokio::time::timeout(std::time::Duration::from_secs(5), server).await;
        watcher.abort();
        drop((following, runs));
        keeping.stop().await;
        project.disconnect().await;
        Ok(())
    }
}

/// The server as a future, ready to be spawned.
pub(super) async fn serve(
    project: Arc<Project>,
    listener: TcpListener,
    stop: CancellationToken,
) -> impl Future<Output = std::io::Result<()>> + Send + 'static {
    let config = project.config().await;
    let options = Options {
        allowed_hosts: config.server.allowed_hosts,
        allowed_origins: config.server.allowed_origins,
        request_body: usize::try_from(config.limits.request_body.bytes()).unwrap_or(usize::MAX),
        auth: Some(project.auth.clone()),
    };
    let router = moonlark_server::router(project.gateway.clone(), options, stop.clone());
    moonlark_server::serve(listener, router, stop)
}

/// Listen on this machine only, unless callers have to show who they are: any other
/// address would hand every tool to the whole network.
pub(super) async fn listen(host: &str, port: u16, auth: &Auth) -> Result<TcpListener, Failure> {
    let local = host.eq_ignore_ascii_case("localhost")
        || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    if !local && !auth.is_required() {
        return Err(Problem::bad_config(format!("{host} can be reached from other machines, and nobody would have to show who they are"))
            .at(Place::file("server.host"))
            .hint("hand out a token with `moonlark token add NAME`, or set server.auth.issuer to your identity provider; or listen on 127.0.0.1")
            .into());
    }
    if !local {
        // What is reachable from elsewhere does not open up when a token goes.
        auth.require();
    }
    TcpListener::bind((host.trim_matches(['[', ']']), port)).await.map_err(|error| {
        let problem = Problem::unavailable(format!("cannot listen on {host}:{port}: {error}"));
        match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                problem.hint("choose another with --port, or 0 for a free one")
            }
            _ => problem,
        }
        .into()
    })
}

fn announce(project: &Project, listener: &TcpListener) -> Done {
    let address = listener.local_addr()?;
    let catalog = project.gateway.catalog();
    let tools: Vec<&str> = authored(&catalog).map(|tool| tool.name.as_str()).collect();
    tracing::info!("{} tools: {}", tools.len(), abridged(&tools));
    for problem in catalog.problems() {
        tracing::warn!("{problem}");
    }
    tracing::info!("listening on http://{address} (MCP at /mcp, REST at /tools)");
    Ok(())
}

fn abridged(names: &[&str]) -> String {
    match names {
        [] => "none that works".to_owned(),
        names if names.len() <= 12 => names.join(", "),
        names => format!("{}, …", names[..12].join(", ")),
    }
}

/// Ctrl-C, or SIGTERM from whoever runs us. Both count from here on, not from when
/// they are waited for: whoever sees us answer may ask us to stop at once.
pub(super) fn until_asked_to_stop() -> impl Future<Output = ()> {
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
