//! Connections: accepted, served until they end, and finished on a stop.
//!
//! How many there are and how long one may take to say what it wants is bounded here:
//! clients that open connections and send little, or nothing, keep nobody else out for
//! long.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::serve::Listener;
use http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use crate::at_once::at_once;

/// What a server takes of its clients.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// Connections at once. Further ones wait with the system until one ends.
    connections: usize,
    /// The time to send the head of a request, and to be idle before the next.
    head: Duration,
}

/// More than all calls that may be in progress and wait, and little memory if idle.
const MOST_CONNECTIONS: usize = 16_384;
/// As long as reverse proxies keep idle connections to us.
const HEAD: Duration = Duration::from_secs(75);

impl Default for Patience {
    /// Connections leave a quarter of the descriptors there are to everything else.
    fn default() -> Self {
        Self { connections: MOST_CONNECTIONS.min(descriptors() / 4 * 3).max(16), head: HEAD }
    }
}

#[cfg(unix)]
fn descriptors() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

#[cfg(not(unix))]
fn descriptors() -> usize {
    usize::MAX
}

/// Serve until `stop` is cancelled, then let requests in progress finish.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    stop: CancellationToken,
) -> std::io::Result<()> {
    serve_with(listener, router, stop, Patience::default()).await
}

async fn serve_with(
    mut listener: TcpListener,
    router: Router,
    stop: CancellationToken,
    patience: Patience,
) -> std::io::Result<()> {
    let connections = TaskTracker::new();
    let places = Arc::new(Semaphore::new(patience.connections));
    loop {
        let accepted = async {
            // It is never closed.
            let place = places.clone().acquire_owned().await.ok();
            (Listener::accept(&mut listener).await.0, place)
        };
        let (stream, place) = tokio::select! {
            accepted = accepted => accepted,
            () = stop.cancelled() => break,
        };
        // Without this, small answers wait for the client's acknowledgement.
        let _ = stream.set_nodelay(true);
        let (router, stop) = (router.clone(), stop.clone());
        connections.spawn(at_once(async move {
            connection(stream, router, stop, patience.head).await;
            drop(place);
        }));
    }
    drop(listener);
    connections.close();
    connections.wait().await;
    Ok(())
}

/// How it ends is the client's business.
async fn connection(stream: TcpStream, router: Router, stop: CancellationToken, head: Duration) {
    tokio::select! {
        begun = timeout(head, begun(&stream)) => if begun.is_err() { return },
        () = stop.cancelled() => return,
    }
    let service = router.map_request(|request: Request<Incoming>| request.map(Body::new));
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(head);
    // Who does not answer a ping within that time is gone.
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(head).keep_alive_timeout(head);
    let service = TowerToHyperService::new(service);
    let serving = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        _ = serving.as_mut() => return,
        () = stop.cancelled() => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}

/// What a client of HTTP/2 says first.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Until it is clear which version of HTTP a client speaks. Whoever serves it waits for
/// that without end.
async fn begun(stream: &TcpStream) {
    let mut start = [0; PREFACE.len()];
    // An error, or the end, is for whoever reads next to find.
    while let Ok(count @ 1..) = stream.peek(&mut start).await {
        if count == PREFACE.len() || !PREFACE.starts_with(&start[..count]) {
            return;
        }
        // Seldom: the first few letters came alone, and nobody tells when there are more.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn server(patience: Patience) -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/", get(|| async { "here" }));
        tokio::spawn(serve_with(listener, router, CancellationToken::new(), patience));
        address
    }

    const WHOLE: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

    async fn answer(stream: &mut TcpStream) -> String {
        let mut answer = String::new();
        let _ = timeout(Duration::from_secs(60), stream.read_to_string(&mut answer)).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn who_does_not_say_what_it_wants_is_let_go() {
        let patience = Patience { connections: 100, head: Duration::from_millis(200) };
        let address = server(patience).await;
        for first in [&b""[..], b"P", b"PRI * HTTP/2.0\r\n", b"GET / HTTP/1.1\r\nHost: a\r\n"] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(first).await.unwrap();
            let answer = answer(&mut stream).await;
            assert!(!answer.contains("200 OK"), "{answer}");
        }
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(WHOLE).await.unwrap();
        assert!(answer(&mut stream).await.ends_with("here"));
    }

    #[tokio::test]
    async fn a_request_that_comes_letter_by_letter_is_served() {
        let address = server(Patience { connections: 100, head: Duration::from_secs(60) }).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        for letter in WHOLE {
            stream.write_all(&[*letter]).await.unwrap();
            tokio::task::yield_now().await;
        }
        assert!(answer(&mut stream).await.ends_with("here"));
    }

    #[tokio::test]
    async fn those_who_keep_every_place_are_let_go_and_others_get_in() {
        let patience = Patience { connections: 4, head: Duration::from_millis(300) };
        let address = server(patience).await;
        let mut silent = Vec::new();
        for _ in 0..4 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
            silent.push(stream);
        }
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(WHOLE).await.unwrap();
        assert!(answer(&mut stream).await.ends_with("here"));
        for mut stream in silent {
            assert!(!answer(&mut stream).await.contains("200 OK"));
        }
    }
}
