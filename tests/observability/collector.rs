//! A collector of OTLP inside the test: it keeps what it is sent, and takes it,
//! refuses it, or says nothing, as the test wants. And what judges it.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::harness::{PATIENCE, repo, serve_inside};

/// What it does with what it gets.
#[derive(Clone, Copy, PartialEq)]
pub enum Manner {
    Takes,
    /// Never answers.
    Silent,
    Answers(StatusCode),
}

pub struct Collector {
    pub url: String,
    kept: Arc<Kept>,
    /// Ends the server when it is dropped.
    _ends: oneshot::Sender<()>,
}

struct Kept {
    manner: Mutex<Manner>,
    arrived: Mutex<Vec<Arrived>>,
    changed: Condvar,
}

#[derive(Debug, Clone)]
pub struct Arrived {
    pub path: String,
    pub headers: HeaderMap,
    pub body: String,
}

/// One span, as the official parser has read it.
#[derive(Debug, Clone)]
pub struct Span(pub Value);

impl Collector {
    pub fn start(manner: Manner) -> Collector {
        let kept = Arc::new(Kept {
            manner: Mutex::new(manner),
            arrived: Mutex::default(),
            changed: Condvar::new(),
        });
        let router = Router::new().fallback(take).with_state(kept.clone());
        let (address, ends) = serve_inside(router);
        let url = format!("http://{address}");
        Collector { url, kept, _ends: ends }
    }

    pub fn set(&self, manner: Manner) {
        *self.kept.manner.lock() = manner;
    }

    /// Everything that came to `path`.
    pub fn arrived(&self, path: &str) -> Vec<Arrived> {
        let arrived = self.kept.arrived.lock();
        arrived.iter().filter(|it| it.path == path).cloned().collect()
    }

    /// Wait for as many spans.
    pub fn spans(&self, count: usize) -> Vec<Span> {
        let started = Instant::now();
        loop {
            let bodies = self.arrived("/v1/traces");
            let spans: Vec<Span> = (bodies.iter())
                .flat_map(|arrived| match judged("traces", &arrived.body) {
                    Value::Array(spans) => spans,
                    other => panic!("no list: {other}"),
                })
                .map(Span)
                .collect();
            if spans.len() >= count {
                return spans;
            }
            assert!(started.elapsed() < PATIENCE, "{} of {count} spans", spans.len());
            self.wait_for("/v1/traces", bodies.len() + 1);
        }
    }

    /// Wait until as many messages came to `path`.
    pub fn wait_for(&self, path: &str, count: usize) {
        let end = Instant::now() + PATIENCE;
        let mut arrived = self.kept.arrived.lock();
        while arrived.iter().filter(|it| it.path == path).count() < count {
            let late = self.kept.changed.wait_until(&mut arrived, end).timed_out();
            assert!(!late, "never {count} messages at {path}: {arrived:?}");
        }
    }
}

async fn take(
    State(kept): State<Arc<Kept>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let body = String::from_utf8(body.to_vec()).unwrap();
    kept.arrived.lock().push(Arrived { path: uri.path().to_owned(), headers, body });
    kept.changed.notify_all();
    let manner = *kept.manner.lock();
    match manner {
        Manner::Takes => axum::Json(json!({})).into_response(),
        Manner::Answers(status) => status.into_response(),
        Manner::Silent => std::future::pending().await,
    }
}

impl Span {
    pub fn text(&self, key: &str) -> &str {
        self.0[key].as_str().unwrap()
    }

    pub fn attribute(&self, key: &str) -> &Value {
        &self.0["attributes"][key]
    }
}

/// The spans of one trace as a tree, a line each, those of one parent by name.
pub fn tree(spans: &[Span], root: &str) -> Vec<String> {
    fn below(spans: &[Span], parent: &str, depth: usize, lines: &mut Vec<String>) {
        let mut children: Vec<&Span> =
            spans.iter().filter(|span| span.text("parent") == parent).collect();
        children.sort_by_key(|span| span.text("name").to_owned());
        for span in children {
            let failed = if span.0["failed"] == true { " failed" } else { "" };
            let (name, kind) = (span.text("name"), span.text("kind"));
            lines.push(format!("{}{name} ({kind}){failed}", "  ".repeat(depth)));
            below(spans, span.text("id"), depth + 1, lines);
        }
    }
    let mut lines = Vec::new();
    below(spans, root, 0, &mut lines);
    lines
}

/// What an official parser has read; fails if it finds fault with it.
pub fn judged(what: &str, text: &str) -> Value {
    let mut judge = Command::new(installed().join("python/bin/python"))
        .arg(repo().join("tests/observability/judge.py"))
        .arg(what)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    judge.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = judge.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}\n{text}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn installed() -> PathBuf {
    let script = repo().join("tests/observability/install.sh");
    let check = Command::new("sh").arg(script).arg("--check").output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    repo().join("target/observability")
}
