//! Connections: accepted, served until they end, and finished on a stop.
//!
//! How many there are and how long one may take to say what it wants is bounded here:
//! clients that open connections and send little, or nothing, keep nobody else out for
//! long. Answers take as long as they take.

mod body_timeout;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::router::HttpApp;
use crate::self_wake::coalesce_self_wakes;
use body_timeout::BodyProgressLimit;

/// What a server takes of its clients.
#[derive(Debug, Clone, Copy)]
struct ConnectionLimits {
    /// Connections at once. Further ones wait with the system until one ends.
    connections: usize,
    /// The time to send the head of a request, and to be idle before the next.
    head: Duration,
    /// How the body of a request has to come.
    body: BodyProgressLimit,
}

/// More than all calls that may be in progress and wait, and little memory if idle.
const MAX_CONNECTIONS: usize = 16_384;
/// As long as reverse proxies keep idle connections to us.
const REQUEST_HEAD_TIMEOUT: Duration = Duration::from_secs(75);

impl Default for ConnectionLimits {
    /// Connections leave a quarter of the descriptors there are to everything else.
    fn default() -> Self {
        let connections = MAX_CONNECTIONS.min(max_open_files() / 4 * 3).max(16);
        Self { connections, head: REQUEST_HEAD_TIMEOUT, body: BodyProgressLimit::default() }
    }
}
fn max_open_files() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Serve until `stop` is cancelled, then let requests in progress finish.
pub async fn serve_listener(
    listener: TcpListener,
    app: HttpApp,
    stop: CancellationToken,
) -> std::io::Result<()> {
    serve_with_limits(listener, app, stop, ConnectionLimits::default()).await
}

async fn serve_with_limits(
    mut listener: TcpListener,
    app: HttpApp,
    stop: CancellationToken,
    patience: ConnectionLimits,
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
        let (app, stop) = (app.clone(), stop.clone());
        connections.spawn(coalesce_self_wakes(async move {
            serve_tcp_connection(stream, app, stop, patience).await;
            drop(place);
        }));
    }
    drop(listener);
    connections.close();
    connections.wait().await;
    Ok(())
}

/// How it ends is the client's business.
async fn serve_tcp_connection(
    stream: TcpStream,
    app: HttpApp,
    stop: CancellationToken,
    patience: ConnectionLimits,
) {
    tokio::select! {
        begun = timeout(patience.head, wait_for_first_bytes(&stream)) => if begun.is_err() { return },
        () = stop.cancelled() => return,
    }
    serve_stream(stream, app, stop, patience).await;
}

/// Serve one connection that has begun to send a request, whatever carries it, until
/// it ends or `stop` is cancelled.
pub async fn serve_connection<S>(stream: S, app: HttpApp, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    serve_stream(stream, app, stop, ConnectionLimits::default()).await;
}

async fn serve_stream<S>(
    stream: S,
    app: HttpApp,
    stop: CancellationToken,
    patience: ConnectionLimits,
) where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let head = patience.head;
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = body_timeout::answer_request(app.clone(), request, patience.body);
        async { Ok::<_, Infallible>(answer.await) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(head);
    // Who does not answer a ping within that time is gone.
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(head).keep_alive_timeout(head);
    let serving = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        _ = serving.as_mut() => return,
        () = stop.cancelled() => serving.as_mut().graceful_shutdown(),
    }
    let _ = serving.await;
}

/// What a client of HTTP/2 says first.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Until it is clear which version of HTTP a client speaks. Whoever serves it waits for
/// that without end.
async fn wait_for_first_bytes(stream: &TcpStream) {
    let mut start = [0; HTTP2_PREFACE.len()];
    // An error, or the end, is for whoever reads next to find.
    while let Ok(count @ 1..) = stream.peek(&mut start).await {
        if count == HTTP2_PREFACE.len() || !HTTP2_PREFACE.starts_with(&start[..count]) {
            return;
        }
        // Seldom: the first few letters came alone, and nobody tells when there are more.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::routing::get;
    use moonlark_core::schema::Schema;
    use moonlark_core::tool::{Source, SourceKind};
    use moonlark_core::{Catalog, Tool};
    use moonlark_gateway::Gateway;
    use moonlark_gateway::tool_body::ToolBody;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::router::{CallerIdentification, HttpServerOptions};

    async fn server(patience: ConnectionLimits) -> std::net::SocketAddr {
        serving(HttpApp::new(Router::new().route("/", get(|| async { "here" }))), patience).await
    }

    async fn serving(app: HttpApp, patience: ConnectionLimits) -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve_with_limits(listener, app, CancellationToken::new(), patience));
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
        let patience =
            ConnectionLimits { head: Duration::from_millis(200), ..ConnectionLimits::default() };
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
        let address = server(ConnectionLimits {
            head: Duration::from_secs(60),
            ..ConnectionLimits::default()
        })
        .await;
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
        let patience = ConnectionLimits {
            connections: 4,
            head: Duration::from_millis(300),
            ..ConnectionLimits::default()
        };
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

    /// Everything that a server has, with this time for bodies.
    async fn whole_server(pause: Duration, rate: u32) -> std::net::SocketAddr {
        let source = Arc::new(Source { kind: SourceKind::Script, name: "a".to_owned() });
        let body = ToolBody::from_fn(|_, args| Ok(args));
        let tool = Tool::new("same", source, Schema::description_only(Default::default()), body);
        let catalog = Catalog::new(Arc::default(), vec![Arc::new(tool)], &[], vec![]);
        let (allowed_hosts, allowed_origins) = (vec!["a".to_owned()], vec![]);
        let options = HttpServerOptions {
            allowed_hosts,
            allowed_origins,
            request_body: 1 << 30,
            callers: CallerIdentification::Anybody,
            sessions: crate::SessionVault::in_memory(),
        };
        let app =
            crate::build_http_app(Gateway::new(catalog, 10), options, CancellationToken::new());
        let body = BodyProgressLimit { pause, rate };
        serving(app, ConnectionLimits { body, ..ConnectionLimits::default() }).await
    }

    /// The head of a request with a body of this length.
    fn head(path: &str, more: &str, length: usize) -> Vec<u8> {
        format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n{more}Content-Length: {length}\r\n\r\n"
        )
        .into_bytes()
    }

    /// As a modern client says it in headers, for the short way.
    const CALL: &str =
        "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: same\r\n";
    /// Every way that reads a body.
    const WAYS: [(&str, &str); 3] = [("/tools/same", ""), ("/mcp", ""), ("/mcp", CALL)];

    #[track_caller]
    fn is_too_late(answer: &str) {
        assert!(answer.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{answer}");
        assert!(answer.contains("connection: close\r\n"), "{answer}");
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["error"]["code"], "timeout", "{body}");
        assert_eq!(body["error"]["message"], "the request body did not arrive in time");
    }

    #[tokio::test]
    async fn a_body_that_stops_is_given_up_on_every_route() {
        let address = whole_server(Duration::from_millis(200), 1).await;
        for (path, more) in WAYS {
            for first in [&b""[..], b"{\"n\":"] {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(&[&head(path, more, 100), first].concat()).await.unwrap();
                is_too_late(&answer(&mut stream).await);
            }
        }
    }

    #[tokio::test]
    async fn a_body_that_trickles_without_a_pause_is_given_up_as_well() {
        let address = whole_server(Duration::from_millis(200), u32::MAX).await;
        for (path, more) in WAYS {
            let stream = TcpStream::connect(address).await.unwrap();
            stream.set_nodelay(true).unwrap();
            let (mut read, mut write) = stream.into_split();
            write.write_all(&head(path, more, 1 << 29)).await.unwrap();
            // Until nobody listens any more.
            let trickling = tokio::spawn(async move {
                while write.write_all(b" ").await.is_ok() {
                    tokio::task::yield_now().await;
                }
            });
            let mut answer = vec![0; 4096];
            let count = timeout(Duration::from_secs(60), read.read(&mut answer)).await.unwrap();
            is_too_late(&String::from_utf8_lossy(&answer[..count.unwrap()]));
            drop(read);
            timeout(Duration::from_secs(60), trickling).await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn a_body_that_comes_letter_by_letter_is_read() {
        let address = whole_server(Duration::from_secs(60), 1).await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let body = b"{\"n\": \"here\"}";
        let head = head("/tools/same", "Connection: close\r\n", body.len());
        let head = String::from_utf8(head).unwrap().replace(", text/event-stream", "");
        for letter in head.as_bytes().iter().chain(body) {
            stream.write_all(&[*letter]).await.unwrap();
            tokio::task::yield_now().await;
        }
        let answer = answer(&mut stream).await;
        assert!(answer.ends_with("{\"result\":{\"n\":\"here\"}}"), "{answer}");
    }
}
