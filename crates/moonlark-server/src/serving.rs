//! Connections: accepted, served until they end, and finished on a stop.

use axum::Router;
use axum::body::Body;
use axum::serve::Listener;
use http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::at_once::at_once;

/// Serve until `stop` is cancelled, then let requests in progress finish.
pub async fn serve(
    mut listener: TcpListener,
    router: Router,
    stop: CancellationToken,
) -> std::io::Result<()> {
    let connections = TaskTracker::new();
    loop {
        let (stream, _) = tokio::select! {
            accepted = Listener::accept(&mut listener) => accepted,
            () = stop.cancelled() => break,
        };
        // Without this, small answers wait for the client's acknowledgement.
        let _ = stream.set_nodelay(true);
        connections.spawn(at_once(connection(stream, router.clone(), stop.clone())));
    }
    drop(listener);
    connections.close();
    connections.wait().await;
    Ok(())
}

/// How it ends is the client's business.
async fn connection(stream: TcpStream, router: Router, stop: CancellationToken) {
    let service = router.map_request(|request: Request<Incoming>| request.map(Body::new));
    let builder = Builder::new(TokioExecutor::new());
    let service = TowerToHyperService::new(service);
    let serving = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        _ = serving.as_mut() => return,
        () = stop.cancelled() => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}
