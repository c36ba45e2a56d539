//! Plain HTTP to a server on this machine, by connections that the requesting task drives
//! itself.
//!
//! The general client keeps a task for every connection, and each request and
//! each answer goes from one task to the other and back. Next to a server that
//! is a pipe's length away, that is most of the time a call takes. Here the
//! task that waits for the answer is the one that reads it. Everything but this
//! machine, TLS and proxies above all, is for the general client.

use std::env;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::FutureExt;
use http::header::{HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use reqwest::ResponseBuilderExt;
use tokio::net::TcpStream;
use url::{Host, Url};

/// Connections kept for the next request.
const MAX_IDLE_CONNECTIONS: usize = 32;
/// How long one is kept.
const IDLE_CONNECTION_LIFETIME: Duration = Duration::from_secs(90);

const MOONLARK_USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("moonlark/", env!("CARGO_PKG_VERSION")));

pub(super) struct LoopbackHttpClient {
    host: String,
    port: u16,
    named: HeaderValue,
    idle: Arc<IdleConnections>,
}

type IdleConnections = Mutex<Vec<LoopbackConnection>>;

/// Why there is no answer.
pub(super) enum LoopbackHttpError {
    /// Nobody is there.
    NotConnected(std::io::Error),
    Lost(hyper::Error),
}

impl LoopbackHttpClient {
    /// For an address on this machine that is reached without any detour.
    pub(super) fn for_url(url: &Url) -> Option<LoopbackHttpClient> {
        let local = match url.host()? {
            Host::Domain(name) => name == "localhost",
            Host::Ipv4(address) => address.is_loopback(),
            Host::Ipv6(address) => address.is_loopback(),
        };
        let plain = url.scheme() == "http" && url.username().is_empty() && url.password().is_none();
        if !local || !plain || is_proxy_configured() {
            return None;
        }
        let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
        let port = url.port_or_known_default()?;
        let named =
            HeaderValue::from_str(&url[url::Position::BeforeHost..url::Position::AfterPort]);
        Some(LoopbackHttpClient { host, port, named: named.ok()?, idle: Arc::default() })
    }

    /// Ask, and return with the head of the answer. Dropping this, or the body,
    /// before its end closes the connection.
    pub(super) async fn send_request(
        &self,
        method: Method,
        url: &Url,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<reqwest::Body>, LoopbackHttpError> {
        headers.insert(HOST, self.named.clone());
        headers.entry(USER_AGENT).or_insert(MOONLARK_USER_AGENT);
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.headers_mut() = headers;
        // What a URL has there is always a path.
        let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
        *request.uri_mut() = path.parse().unwrap_or_else(|_| Uri::from_static("/"));
        loop {
            let kept = self.take_idle_connection();
            let is_kept = kept.is_some();
            let mut connection = match kept {
                Some(connection) => connection,
                None => self.open_connection().await?,
            };
            match connection.send_and_drive(request).await {
                Ok(answer) => return Ok(self.wrap_response(answer, connection, url)),
                // It was closed meanwhile, and the request never left.
                Err(mut error) => match error.take_message().filter(|_| is_kept) {
                    Some(unsent) => request = unsent,
                    None => return Err(LoopbackHttpError::Lost(error.into_error())),
                },
            }
        }
    }

    /// As the general client would have it.
    fn wrap_response(
        &self,
        answer: Response<Incoming>,
        connection: LoopbackConnection,
        url: &Url,
    ) -> Response<reqwest::Body> {
        let (head, body) = answer.into_parts();
        let idle = Arc::clone(&self.idle);
        let body = reqwest::Body::wrap(PooledBody { body, connection: Some(connection), idle });
        let mut answer = Response::new(body);
        *answer.status_mut() = head.status;
        *answer.headers_mut() = head.headers;
        // It would be made up, and parsed, for every answer.
        let located = Response::builder().url(url.clone()).body(());
        if let Ok(located) = located {
            *answer.extensions_mut() = located.into_parts().0.extensions;
        }
        answer
    }

    /// One that is still open, the one used last first.
    fn take_idle_connection(&self) -> Option<LoopbackConnection> {
        let mut idle = self.idle.lock();
        while let Some(mut connection) = idle.pop() {
            if connection.since.elapsed() > IDLE_CONNECTION_LIFETIME {
                // Those below it are older.
                idle.clear();
                return None;
            }
            if connection.drive_while_idle() {
                return Some(connection);
            }
        }
        None
    }

    async fn open_connection(&self) -> Result<LoopbackConnection, LoopbackHttpError> {
        let stream = TcpStream::connect((self.host.as_str(), self.port));
        let stream = stream.await.map_err(LoopbackHttpError::NotConnected)?;
        let _ = stream.set_nodelay(true);
        let opened = http1::handshake(TokioIo::new(stream)).await;
        let (sender, driver) = opened.map_err(LoopbackHttpError::Lost)?;
        let driver = Some(Box::pin(driver));
        Ok(LoopbackConnection { sender, driver, since: Instant::now() })
    }
}

/// What moves the bytes of a connection.
type LoopbackConnectionDriver = Pin<Box<http1::Connection<TokioIo<TcpStream>, Full<Bytes>>>>;

/// Both ends of it: nothing happens on it unless it is driven.
struct LoopbackConnection {
    sender: SendRequest<Full<Bytes>>,
    /// None when it is closed.
    driver: Option<LoopbackConnectionDriver>,
    since: Instant,
}

impl LoopbackConnection {
    async fn send_and_drive(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, hyper::client::conn::TrySendError<Request<Full<Bytes>>>> {
        let mut answer = pin!(self.sender.try_send_request(request));
        let driver = &mut self.driver;
        std::future::poll_fn(|context| {
            drive_connection(driver, context);
            // It comes by being driven, and by nothing else.
            answer.as_mut().poll(&mut noop_context())
        })
        .await
    }

    /// Look after it while nobody waits for anything: whether it can be used.
    fn drive_while_idle(&mut self) -> bool {
        drive_connection(&mut self.driver, &mut noop_context());
        self.driver.is_some() && self.sender.is_ready()
    }
}

/// Need not be woken.
fn noop_context() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// How it ended is told to whoever waits for an answer, or for more of one.
fn drive_connection<F: Future + Unpin>(driver: &mut Option<F>, context: &mut Context<'_>) {
    if let Some(running) = driver
        && running.poll_unpin(context).is_ready()
    {
        *driver = None;
    }
}

/// The body of an answer, and the connection that it comes by.
pub(super) struct PooledBody {
    body: Incoming,
    connection: Option<LoopbackConnection>,
    idle: Arc<IdleConnections>,
}

impl Body for PooledBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut part = Pin::new(&mut self.body).poll_frame(&mut noop_context());
        // More is read only once it was asked for, and by nobody else.
        if part.is_pending()
            && let Some(connection) = &mut self.connection
        {
            drive_connection(&mut connection.driver, context);
            part = Pin::new(&mut self.body).poll_frame(&mut noop_context());
        }
        if matches!(part, Poll::Ready(None)) {
            self.return_to_pool();
        }
        part
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl PooledBody {
    /// Read to the end: the connection is for whoever is next.
    fn return_to_pool(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        if !connection.drive_while_idle() {
            return;
        }
        connection.since = Instant::now();
        let mut idle = self.idle.lock();
        if idle.len() < MAX_IDLE_CONNECTIONS {
            idle.push(connection);
        }
    }
}

/// Who sets one wants to see everything go through it.
fn is_proxy_configured() -> bool {
    ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"]
        .iter()
        .any(|name| env::var_os(name).is_some_and(|value| !value.is_empty()))
}

#[cfg(test)]
mod tests;
