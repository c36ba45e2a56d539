//! Plain HTTP to a server on this machine, by connections that whoever asks
//! drives itself.
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
const MOST_IDLE: usize = 32;
/// How long one is kept.
const IDLE: Duration = Duration::from_secs(90);

const US: HeaderValue = HeaderValue::from_static(concat!("moonlark/", env!("CARGO_PKG_VERSION")));

pub(super) struct Direct {
    host: String,
    port: u16,
    named: HeaderValue,
    idle: Arc<Idle>,
}

type Idle = Mutex<Vec<Connection>>;

/// Why there is no answer.
pub(super) enum Broken {
    /// Nobody is there.
    NotConnected(std::io::Error),
    Lost(hyper::Error),
}

impl Direct {
    /// For an address on this machine that is reached without any detour.
    pub(super) fn to(url: &Url) -> Option<Direct> {
        let local = match url.host()? {
            Host::Domain(name) => name == "localhost",
            Host::Ipv4(address) => address.is_loopback(),
            Host::Ipv6(address) => address.is_loopback(),
        };
        let plain = url.scheme() == "http" && url.username().is_empty() && url.password().is_none();
        if !local || !plain || has_proxy() {
            return None;
        }
        let host = url.host_str()?.trim_matches(['[', ']']).to_owned();
        let port = url.port_or_known_default()?;
        let named =
            HeaderValue::from_str(&url[url::Position::BeforeHost..url::Position::AfterPort]);
        Some(Direct { host, port, named: named.ok()?, idle: Arc::default() })
    }

    /// Ask, and return with the head of the answer. Dropping this, or the body,
    /// before its end closes the connection.
    pub(super) async fn ask(
        &self,
        method: Method,
        url: &Url,
        mut headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<reqwest::Body>, Broken> {
        headers.insert(HOST, self.named.clone());
        headers.entry(USER_AGENT).or_insert(US);
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.headers_mut() = headers;
        // What a URL has there is always a path.
        let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
        *request.uri_mut() = path.parse().unwrap_or_else(|_| Uri::from_static("/"));
        loop {
            let kept = self.kept();
            let is_kept = kept.is_some();
            let mut connection = match kept {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            match connection.ask(request).await {
                Ok(answer) => return Ok(self.reading(answer, connection, url)),
                // It was closed meanwhile, and the request never left.
                Err(mut error) => match error.take_message().filter(|_| is_kept) {
                    Some(unsent) => request = unsent,
                    None => return Err(Broken::Lost(error.into_error())),
                },
            }
        }
    }

    /// As the general client would have it.
    fn reading(
        &self,
        answer: Response<Incoming>,
        connection: Connection,
        url: &Url,
    ) -> Response<reqwest::Body> {
        let (head, body) = answer.into_parts();
        let idle = Arc::clone(&self.idle);
        let body = reqwest::Body::wrap(Reading { body, connection: Some(connection), idle });
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
    fn kept(&self) -> Option<Connection> {
        let mut idle = self.idle.lock();
        while let Some(mut connection) = idle.pop() {
            if connection.since.elapsed() > IDLE {
                // Those below it are older.
                idle.clear();
                return None;
            }
            if connection.rest() {
                return Some(connection);
            }
        }
        None
    }

    async fn connect(&self) -> Result<Connection, Broken> {
        let stream = TcpStream::connect((self.host.as_str(), self.port));
        let stream = stream.await.map_err(Broken::NotConnected)?;
        let _ = stream.set_nodelay(true);
        let opened = http1::handshake(TokioIo::new(stream)).await;
        let (sender, driver) = opened.map_err(Broken::Lost)?;
        let driver = Some(Box::pin(driver));
        Ok(Connection { sender, driver, since: Instant::now() })
    }
}

/// What moves the bytes of a connection.
type Driver = Pin<Box<http1::Connection<TokioIo<TcpStream>, Full<Bytes>>>>;

/// Both ends of it: nothing happens on it unless it is driven.
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    /// None when it is closed.
    driver: Option<Driver>,
    since: Instant,
}

impl Connection {
    async fn ask(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, hyper::client::conn::TrySendError<Request<Full<Bytes>>>> {
        let mut answer = pin!(self.sender.try_send_request(request));
        let driver = &mut self.driver;
        std::future::poll_fn(|context| {
            drive(driver, context);
            // It comes by being driven, and by nothing else.
            answer.as_mut().poll(&mut nobody())
        })
        .await
    }

    /// Look after it while nobody waits for anything: whether it can be used.
    fn rest(&mut self) -> bool {
        drive(&mut self.driver, &mut nobody());
        self.driver.is_some() && self.sender.is_ready()
    }
}

/// Need not be woken.
fn nobody() -> Context<'static> {
    Context::from_waker(Waker::noop())
}

/// How it ended is told to whoever waits for an answer, or for more of one.
fn drive<F: Future + Unpin>(driver: &mut Option<F>, context: &mut Context<'_>) {
    if let Some(running) = driver
        && running.poll_unpin(context).is_ready()
    {
        *driver = None;
    }
}

/// The body of an answer, and the connection that it comes by.
pub(super) struct Reading {
    body: Incoming,
    connection: Option<Connection>,
    idle: Arc<Idle>,
}

impl Body for Reading {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut part = Pin::new(&mut self.body).poll_frame(&mut nobody());
        // More is read only once it was asked for, and by nobody else.
        if part.is_pending()
            && let Some(connection) = &mut self.connection
        {
            drive(&mut connection.driver, context);
            part = Pin::new(&mut self.body).poll_frame(&mut nobody());
        }
        if matches!(part, Poll::Ready(None)) {
            self.keep();
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

impl Reading {
    /// Read to the end: the connection is for whoever is next.
    fn keep(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        if !connection.rest() {
            return;
        }
        connection.since = Instant::now();
        let mut idle = self.idle.lock();
        if idle.len() < MOST_IDLE {
            idle.push(connection);
        }
    }
}

/// Who sets one wants to see everything go through it.
fn has_proxy() -> bool {
    ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"]
        .iter()
        .any(|name| env::var_os(name).is_some_and(|value| !value.is_empty()))
}

#[cfg(test)]
mod tests;
