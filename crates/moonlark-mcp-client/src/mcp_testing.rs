//! Test support for connections: a recording listener, and scripted servers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use moonlark_core::Value;
use moonlark_core::value::Object;
use parking_lot::Mutex;
use serde_json::{Value as Json, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::Notify;

use crate::connection::{ConnectionInbox, McpClientIdentity, McpRequestOptions, RequestListener};
use crate::json_rpc::RpcError;
use crate::rpc_session::RpcSession;
use crate::stdio_transport::StdioTransport;
use crate::upstream_target::McpConnectionLimits;

pub(super) fn object(json: Json) -> Object {
    match Value::from_json(json).unwrap() {
        Value::Object(fields) => fields,
        other => panic!("{other:?}"),
    }
}

pub(super) fn us() -> McpClientIdentity {
    McpClientIdentity {
        info: object(json!({"name": "moonlark"})),
        capabilities: object(json!({"roots": {}})),
    }
}

pub(super) fn limits() -> McpConnectionLimits {
    McpConnectionLimits { message: 100_000, connect: Duration::from_secs(30) }
}

/// Nothing here takes long; a test that hangs should say so.
pub(super) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(30), future).await.expect("it hangs")
}

/// Notes what it is told, and answers what it is asked.
#[derive(Default)]
pub(super) struct Ear {
    heard: Mutex<Vec<String>>,
    news: Notify,
    silent: bool,
}

impl Ear {
    pub(super) fn new() -> Arc<Ear> {
        Arc::default()
    }

    /// One that never answers.
    pub(super) fn silent() -> Arc<Ear> {
        Arc::new(Ear { silent: true, ..Ear::default() })
    }

    /// What was heard so far, and is now forgotten.
    pub(super) fn heard(&self) -> Vec<String> {
        std::mem::take(&mut self.heard.lock())
    }

    pub(super) fn count(&self) -> usize {
        self.heard.lock().len()
    }

    pub(super) async fn until(&self, count: usize) {
        soon(async {
            loop {
                let news = self.news.notified();
                if self.count() >= count {
                    return;
                }
                news.await;
            }
        })
        .await;
    }

    fn note(&self, text: String) {
        self.heard.lock().push(text);
        self.news.notify_one();
    }

    /// For a request of `owner`'s.
    pub(super) fn about(self: &Arc<Self>, owner: u64) -> McpRequestOptions {
        McpRequestOptions { listener: Some(self.clone()), owner, ..McpRequestOptions::default() }
    }
}

impl RequestListener for Ear {
    fn on_notification(&self, method: &str, params: Object) {
        self.note(format!("- {method} {}", Value::from(params).encode_json("x").unwrap()));
    }

    fn on_request(&self, method: &str, params: Object) -> BoxFuture<'_, Result<Object, RpcError>> {
        self.note(format!("? {method} {}", Value::from(params).encode_json("x").unwrap()));
        if self.silent {
            return Box::pin(std::future::pending());
        }
        let method = method.to_owned();
        Box::pin(async move { Ok(object(json!({"to": method}))) })
    }
}

impl ConnectionInbox for Ear {
    fn secrets(&self) -> moonlark_core::secret::Secrets {
        Default::default()
    }
}

/// The other end of two pipes.
pub(super) struct Fake {
    pub(super) from: BufReader<ReadHalf<DuplexStream>>,
    pub(super) to: WriteHalf<DuplexStream>,
}

/// A connection over pipes, and its other end.
pub(super) fn pair(inbox: Arc<Ear>, limits: McpConnectionLimits) -> (StdioTransport, Fake) {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let (from, to) = tokio::io::split(ours);
    let stdio = StdioTransport::over_pipes(RpcSession::new("git", limits, inbox), from, to);
    let (from, to) = tokio::io::split(theirs);
    (stdio, Fake { from: BufReader::new(from), to })
}

impl Fake {
    /// The next message, or null at the end.
    pub(super) async fn next(&mut self) -> Json {
        let mut line = String::new();
        soon(self.from.read_line(&mut line)).await.unwrap();
        if line.is_empty() { Json::Null } else { serde_json::from_str(&line).unwrap() }
    }

    pub(super) async fn say(&mut self, line: &str) {
        let line = format!("{line}\n");
        soon(self.to.write_all(line.as_bytes())).await.unwrap();
    }

    pub(super) async fn answer(&mut self, request: &Json, result: Json) {
        let answer = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
        self.say(&answer.to_string()).await;
    }

    pub(super) async fn refuse(&mut self, request: &Json, error: Json) {
        let answer = json!({"jsonrpc": "2.0", "id": request["id"], "error": error});
        self.say(&answer.to_string()).await;
    }
}

// --- over HTTP ----------------------------------------------------------------

/// One request, as an HTTP server sees it.
#[derive(Clone)]
pub(super) struct Asked {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Json,
}

impl Asked {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// `POST tools/call`
    pub(super) fn line(&self) -> String {
        format!("{} {}", self.method, self.body["method"].as_str().unwrap_or(""))
    }

    /// A JSON answer to it.
    pub(super) fn result(&self, result: Json) -> axum::response::Response {
        reply(200, &[], &json!({"jsonrpc": "2.0", "id": self.body["id"], "result": result}))
    }

    pub(super) fn error(&self, status: u16, error: Json) -> axum::response::Response {
        reply(status, &[], &json!({"jsonrpc": "2.0", "id": self.body["id"], "error": error}))
    }
}

pub(super) fn reply(
    status: u16,
    headers: &[(&str, &str)],
    body: &Json,
) -> axum::response::Response {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let mut response = axum::response::Response::builder().status(status);
    if !body.is_null() {
        response = response.header("content-type", "application/json");
    }
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(text.into()).unwrap()
}

pub(super) type Body = axum::body::Body;

/// A stream of events that is written to as long as the sender is kept.
pub(super) fn stream(events: tokio::sync::mpsc::Receiver<String>) -> axum::response::Response {
    let events = futures::stream::unfold(events, |mut events| async move {
        let next = events.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(next), events))
    });
    let response = axum::response::Response::builder().header("content-type", "text/event-stream");
    response.body(Body::from_stream(events)).unwrap()
}

/// A stream of these events, and its end.
pub(super) fn events(events: &[&str]) -> axum::response::Response {
    let response = axum::response::Response::builder().header("content-type", "text/event-stream");
    response.body(events.concat().into()).unwrap()
}

pub(super) fn event(message: &Json) -> String {
    format!("data: {message}\n\n")
}

/// An HTTP server that does what `answer` says. It ends with the test.
pub(super) struct Server {
    pub(super) url: url::Url,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    pub(super) async fn start<F, R>(answer: F) -> Server
    where
        F: Fn(Asked) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = axum::response::Response> + Send,
    {
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let notes = asked.clone();
        let handler = move |request: axum::extract::Request| {
            let (answer, notes) = (answer.clone(), notes.clone());
            async move {
                let (head, body) = request.into_parts();
                let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
                let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
                    (name.to_string(), value.to_str().unwrap().to_owned())
                };
                let asked = Asked {
                    method: head.method.to_string(),
                    path: head.uri.path().to_owned(),
                    headers: head.headers.iter().map(header).collect(),
                    body: serde_json::from_slice(&body).unwrap_or(Json::Null),
                };
                notes.lock().push(asked.clone());
                answer(asked).await
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap()).parse().unwrap();
        let app = axum::Router::new().fallback(handler);
        tokio::spawn(async move { axum::serve(listener, app).await });
        Server { url, asked }
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().clone()
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.asked.lock().iter().map(Asked::line).collect()
    }

    /// Wait until it was asked something that `wanted` is true for.
    pub(super) async fn until(&self, wanted: impl Fn(&Asked) -> bool) -> Asked {
        soon(async {
            loop {
                let found = self.asked.lock().iter().find(|asked| wanted(asked)).cloned();
                match found {
                    Some(asked) => return asked,
                    None => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        })
        .await
    }
}
