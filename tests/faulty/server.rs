//! The part that no transport matters to: how it opens, what it answers.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;

use serde_json::{Value, json};
use tokio::sync::{Notify, broadcast};

use crate::{calls, listing};

pub struct Server {
    pub mode: String,
    /// What the transport can do wrong.
    pub faults: &'static [&'static str],
    /// Calls of `slow` at the moment, and the most there ever were.
    pub inside: AtomicUsize,
    pub peak: AtomicUsize,
    /// How many tools were added since the start, and which were taken away.
    pub added: AtomicUsize,
    pub removed: Mutex<BTreeSet<String>>,
    /// Answers to our own requests.
    pub heard: AtomicUsize,
    pub hears: Notify,
    /// Notifications that belong to no request.
    pub says: broadcast::Sender<Value>,
}

/// What comes of a request.
pub enum Reply {
    Result(Value),
    Refused(i64, String),
    /// The whole message but its id.
    Message(Value),
    Silence,
    /// The transport knows what to do; and what would have been right.
    Fault(String, Box<Reply>),
}

impl Server {
    pub fn new(mode: String, faults: &'static [&'static str]) -> Server {
        Server {
            mode,
            faults,
            inside: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            added: AtomicUsize::new(0),
            removed: Mutex::default(),
            heard: AtomicUsize::new(0),
            hears: Notify::new(),
            says: broadcast::channel(16).0,
        }
    }

    pub async fn answer(&self, method: &str, params: &Value) -> Reply {
        if self.mode == "silent" {
            return Reply::Silence;
        }
        let right = self.right(method, params).await;
        if self.faults.contains(&self.mode.as_str()) {
            Reply::Fault(self.mode.clone(), Box::new(right))
        } else {
            right
        }
    }

    /// But for the faults of single calls.
    async fn right(&self, method: &str, params: &Value) -> Reply {
        match method {
            "server/discover" => self.discover(),
            "initialize" => self.initialize(params),
            "ping" => Reply::Result(json!({})),
            "tools/list" => listing::page(self, params["cursor"].as_str()),
            "tools/call" => {
                let name = params["name"].as_str().unwrap_or_default();
                record(&format!("call {name}"));
                calls::answer(self, name, &params["arguments"]).await
            }
            _ => self.unknown(method),
        }
    }

    fn discover(&self) -> Reply {
        match self.mode.as_str() {
            "modern" => Reply::Result(json!({
                "resultType": "complete",
                "supportedVersions": ["2026-07-28"],
                "capabilities": self.capabilities(),
                "ttlMs": 0,
                "cacheScope": "private",
                "_meta": {"io.modelcontextprotocol/serverInfo": info()},
            })),
            "exits_on_discover" => {
                eprintln!("faulty: unhandled request server/discover");
                std::process::exit(4)
            }
            _ => self.unknown("server/discover"),
        }
    }

    fn initialize(&self, params: &Value) -> Reply {
        let version = match self.mode.as_str() {
            "modern" | "silent_initialize" => return Reply::Silence,
            "refuses_initialize" => return Reply::Refused(-32603, "no licence found".to_owned()),
            "unheard_of_version" => json!("1999-12-31"),
            "versionless" => json!(null),
            _ => params["protocolVersion"].clone(),
        };
        Reply::Result(json!({
            "protocolVersion": version,
            "capabilities": self.capabilities(),
            "serverInfo": info(),
        }))
    }

    fn capabilities(&self) -> Value {
        match self.mode.as_str() {
            "lies" => json!({"tools": {}, "resources": {}, "prompts": {}, "completions": {}}),
            _ => json!({"tools": {"listChanged": true}, "logging": {}}),
        }
    }

    fn unknown(&self, method: &str) -> Reply {
        match self.mode.as_str() {
            "silent_unknown" => Reply::Silence,
            _ => Reply::Refused(-32601, format!("unknown method {method}")),
        }
    }

    /// A message that is no request.
    pub fn hear(&self, message: &Value) {
        match message["method"].as_str() {
            Some("notifications/cancelled") => record("cancelled"),
            Some(_) => {}
            None => {
                self.heard.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                self.hears.notify_one();
            }
        }
    }

    /// Modern results say what they are; nobody else minds.
    pub fn message(&self, reply: Reply, id: &Value) -> Option<Value> {
        let mut message = match reply {
            Reply::Result(mut result) => {
                if let (Some(result), "modern") = (result.as_object_mut(), self.mode.as_str()) {
                    result.entry("resultType").or_insert_with(|| json!("complete"));
                }
                json!({"result": result})
            }
            Reply::Refused(code, message) => json!({"error": {"code": code, "message": message}}),
            Reply::Message(message) => message,
            Reply::Silence | Reply::Fault(..) => return None,
        };
        message["jsonrpc"] = json!("2.0");
        message["id"] = id.clone();
        Some(message)
    }
}

fn info() -> Value {
    json!({"name": "faulty", "version": "1.0.0"})
}

/// How often a line is in the file that counts, by this process and those before it.
pub fn recorded(line: &str) -> usize {
    let path = std::env::var_os("COUNT_FILE").expect("COUNT_FILE names a file");
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().filter(|found| *found == line).count()
}

/// A line in the file that counts.
pub fn record(line: &str) {
    let Some(path) = std::env::var_os("COUNT_FILE") else { return };
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
    // In one piece: several processes write here.
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}
