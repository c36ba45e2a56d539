//! An MCP server inside the test: what its tools do is up to the test, and it
//! remembers what it saw. Written against the wire, so that what it sends is
//! exactly what a test says.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};

use crate::harness::{PATIENCE, serve_inside};

/// A tool and what it does.
pub struct Offer {
    definition: Value,
    does: Box<dyn Fn(&Value) -> Reply + Send + Sync>,
}

/// What comes of a call.
pub enum Reply {
    /// This result.
    Now(Value),
    /// The same, after a while.
    After(Duration, Value),
    /// The same, once as many calls are inside as this says.
    Together(usize, Value),
    /// Progress on the way, out of a hundred, and then the result.
    Telling(Vec<f64>, Value),
    /// Nothing, until the call is cancelled.
    Never,
}

impl Offer {
    pub fn new(
        name: &str,
        properties: Value,
        does: impl Fn(&Value) -> Reply + Send + Sync + 'static,
    ) -> Offer {
        let definition = json!({
            "name": name,
            "description": format!("The tool {name}."),
            "inputSchema": {"type": "object", "properties": properties},
        });
        Offer { definition, does: Box::new(does) }
    }

    /// One that answers the same every time.
    pub fn of(name: &str, result: Value) -> Offer {
        Offer::new(name, json!({}), move |_| Reply::Now(result.clone()))
    }

    /// A tool that is defined in full.
    pub fn defined(
        definition: Value,
        does: impl Fn(&Value) -> Reply + Send + Sync + 'static,
    ) -> Offer {
        Offer { definition, does: Box::new(does) }
    }

    pub fn describe(mut self, text: &str) -> Offer {
        self.definition["description"] = json!(text);
        self
    }

    pub fn needs(mut self, required: &[&str]) -> Offer {
        self.definition["inputSchema"]["required"] = json!(required);
        self
    }

    pub fn gives(mut self, output: Value) -> Offer {
        self.definition["outputSchema"] = output;
        self
    }
}

/// The result of a call that is one text.
pub fn text(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}]})
}

/// The result of a call that has a structure, and says it as text too.
pub fn structured(value: Value) -> Value {
    json!({"content": [{"type": "text", "text": value.to_string()}], "structuredContent": value})
}

pub struct Upstream {
    pub url: String,
    site: Arc<Site>,
    /// Ends the server when it is dropped.
    _ends: oneshot::Sender<()>,
}

struct Site {
    offers: Vec<Offer>,
    seen: Mutex<Seen>,
    /// Whenever what was seen changes: for the test, and for calls that wait.
    changed: Condvar,
    changes: Notify,
}

#[derive(Default, Clone)]
pub struct Seen {
    /// Calls in the order they came: the tool and its arguments.
    pub calls: Vec<(String, Value)>,
    /// What each carried of a trace: in its `header`s, and in its `meta`.
    pub carried: Vec<Value>,
    /// Calls at this moment, and the most there ever were.
    pub inside: usize,
    pub peak: usize,
    /// The most since nobody was inside.
    crowd: usize,
    /// Requests that `notifications/cancelled` named.
    pub cancelled: BTreeSet<String>,
    /// Calls that are over without an answer.
    pub given_up: usize,
}

impl Upstream {
    pub fn start(offers: Vec<Offer>) -> Upstream {
        let site = Arc::new(Site {
            offers,
            seen: Mutex::default(),
            changed: Condvar::new(),
            changes: Notify::new(),
        });
        let router = Router::new().route("/mcp", post(take)).with_state(site.clone());
        let (address, ends) = serve_inside(router);
        let url = format!("http://{address}/mcp");
        Upstream { url, site, _ends: ends }
    }

    pub fn seen(&self) -> Seen {
        self.site.seen.lock().clone()
    }

    /// How often a tool was called.
    pub fn called(&self, tool: &str) -> usize {
        self.seen().calls.iter().filter(|(name, _)| name == tool).count()
    }

    /// Until it is so.
    pub fn wait_until(&self, what: &str, so: impl Fn(&Seen) -> bool) {
        let end = Instant::now() + PATIENCE;
        let mut seen = self.site.seen.lock();
        while !so(&seen) {
            let late = self.site.changed.wait_until(&mut seen, end).timed_out();
            assert!(!late, "never: {what}; {} inside, {:?}", seen.inside, seen.calls.len());
        }
    }
}

impl Site {
    fn change(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.lock());
        self.changed.notify_all();
        self.changes.notify_waiters();
    }

    /// Until it is so; whoever waits may be dropped.
    async fn until(&self, so: impl Fn(&Seen) -> bool) {
        loop {
            let mut changed = std::pin::pin!(self.changes.notified());
            changed.as_mut().enable();
            if so(&self.seen.lock()) {
                return;
            }
            changed.await;
        }
    }
}

/// A call that is inside.
struct Inside<'a> {
    site: &'a Site,
    answered: bool,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let given_up = usize::from(!self.answered);
        self.site.change(|seen| {
            seen.inside -= 1;
            seen.given_up += given_up;
            if seen.inside == 0 {
                seen.crowd = 0;
            }
        });
    }
}

async fn take(State(site): State<Arc<Site>>, headers: HeaderMap, body: Bytes) -> Response {
    let message: Value = serde_json::from_slice(&body).unwrap();
    let params = &message["params"];
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => Ok(json!({
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "upstream", "version": "1"},
        })),
        "ping" => Ok(json!({})),
        "tools/list" => {
            let tools: Vec<&Value> = site.offers.iter().map(|offer| &offer.definition).collect();
            Ok(json!({ "tools": tools }))
        }
        "tools/call" => {
            let carried = carried(&headers, &params["_meta"]);
            site.change(|seen| seen.carried.push(carried));
            return call(&site, &message).await;
        }
        "notifications/cancelled" => {
            site.change(|seen| {
                seen.cancelled.insert(params["requestId"].to_string());
            });
            return StatusCode::ACCEPTED.into_response();
        }
        _ if message.get("id").is_none() => return StatusCode::ACCEPTED.into_response(),
        other => Err(json!({"code": -32601, "message": format!("no method {other}")})),
    };
    let mut answer = json!({"jsonrpc": "2.0", "id": message["id"]});
    match result {
        Ok(result) => answer["result"] = result,
        Err(error) => answer["error"] = error,
    }
    axum::Json(answer).into_response()
}

/// Where a call says that it is in a trace.
fn carried(headers: &HeaderMap, meta: &Value) -> Value {
    let keys = ["traceparent", "tracestate"];
    let header = |key: &str| Some(json!(headers.get(key)?.to_str().unwrap()));
    let only = |value: &dyn Fn(&str) -> Option<Value>| -> Value {
        let there = keys.iter().filter_map(|key| Some(((*key).to_owned(), value(key)?)));
        Value::Object(there.collect())
    };
    json!({"header": only(&header), "meta": only(&|key| meta.get(key).cloned())})
}

async fn call(site: &Site, message: &Value) -> Response {
    let params = &message["params"];
    let name = params["name"].as_str().unwrap_or_default().to_owned();
    let offer = site.offers.iter().find(|offer| offer.definition["name"] == *name);
    let offer = offer.unwrap_or_else(|| panic!("nobody offers {name}"));
    site.change(|seen| {
        seen.calls.push((name, params["arguments"].clone()));
        seen.inside += 1;
        seen.crowd = seen.crowd.max(seen.inside);
        seen.peak = seen.peak.max(seen.inside);
    });
    let mut inside = Inside { site, answered: false };
    let mut told = Vec::new();
    let result = match (offer.does)(&params["arguments"]) {
        Reply::Now(result) => Some(result),
        Reply::After(time, result) => {
            tokio::time::sleep(time).await;
            Some(result)
        }
        Reply::Together(count, result) => {
            site.until(|seen| seen.crowd >= count).await;
            Some(result)
        }
        Reply::Telling(progress, result) => {
            told = progress;
            Some(result)
        }
        Reply::Never => {
            let id = message["id"].to_string();
            site.until(|seen| seen.cancelled.contains(&id)).await;
            None
        }
    };
    // Nobody waits for an answer to what was cancelled.
    let Some(result) = result else { return StatusCode::ACCEPTED.into_response() };
    inside.answered = true;
    let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
    let token = &params["_meta"]["progressToken"];
    if told.is_empty() || token.is_null() {
        return axum::Json(answer).into_response();
    }
    let progress = told.iter().map(|progress| {
        let params = json!({"progressToken": token, "progress": progress, "total": 100});
        json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
    });
    let events: String =
        progress.chain([answer]).map(|it| format!("event: message\ndata: {it}\n\n")).collect();
    ([(header::CONTENT_TYPE, "text/event-stream")], events).into_response()
}
