//! What its tools do, whatever the transport.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use crate::server::{Reply, Server, recorded};

/// Beside the faults of the transport.
pub const TOOLS: &[&str] = &[
    "both",
    "change",
    "deep_result",
    "die",
    "die_once",
    "echo",
    "empty_result",
    "hang",
    "list_result",
    "no_result",
    "null_result",
    "odd_content",
    "odd_error",
    "peak",
    "pid",
    "read_and_die",
    "read_and_die_once",
    "slow",
    "text_for_content",
    "wrong_output",
];

pub async fn answer(server: &Server, name: &str, args: &Value) -> Reply {
    if server.faults.contains(&name) {
        return Reply::Fault(name.to_owned(), Box::new(text(name)));
    }
    match name {
        "echo" => text(args["text"].as_str().unwrap_or("echo")),
        "pid" => text(&std::process::id().to_string()),
        "slow" => slow(server).await,
        "peak" => text(&server.peak.load(Ordering::SeqCst).to_string()),
        "die" | "read_and_die" => std::process::exit(9),
        "die_once" | "read_and_die_once" if recorded(&format!("call {name}")) == 1 => {
            std::process::exit(9)
        }
        "hang" => Reply::Silence,
        "change" => change(server, args),
        "odd_content" => Reply::Result(json!({
            "content": [{"type": "hologram", "beam": 1}, {"type": "text", "text": "beside it"}],
        })),
        "text_for_content" => Reply::Result(json!({"content": "a text instead of a list"})),
        "list_result" => Reply::Result(json!([1, 2])),
        "null_result" => Reply::Result(json!(null)),
        "empty_result" => Reply::Result(json!({})),
        "deep_result" => {
            Reply::Result(json!({"content": [], "structuredContent": {"a": nested(1000)}}))
        }
        "wrong_output" => Reply::Result(json!({
            "content": [{"type": "text", "text": "{\"n\":\"one\"}"}],
            "structuredContent": {"n": "one"},
        })),
        "no_result" => Reply::Message(json!({})),
        "odd_error" => Reply::Message(json!({"error": "a text instead of an object"})),
        "both" => Reply::Message(json!({
            "result": {"content": [{"type": "text", "text": "fine"}]},
            "error": {"code": -32000, "message": "not fine"},
        })),
        // What only some modes list.
        other => text(other),
    }
}

pub fn text(text: &str) -> Reply {
    Reply::Result(json!({"content": [{"type": "text", "text": text}]}))
}

/// A line for the caller's log.
pub fn said(text: &str) -> Value {
    let params = json!({"level": "info", "data": text});
    json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
}

/// A second of real time, as a call to the world outside would take.
async fn slow(server: &Server) -> Reply {
    let inside = server.inside.fetch_add(1, Ordering::SeqCst) + 1;
    server.peak.fetch_max(inside, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_secs(1)).await;
    server.inside.fetch_sub(1, Ordering::SeqCst);
    text("done")
}

/// One tool more, and the one named `remove` less.
fn change(server: &Server, args: &Value) -> Reply {
    server.added.fetch_add(1, Ordering::SeqCst);
    if let Some(name) = args["remove"].as_str() {
        server.removed.lock().unwrap().insert(name.to_owned());
    }
    let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
    // Nobody needs to listen.
    let _ = server.says.send(changed);
    text("changed")
}

pub fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, _| Value::Array(vec![inner]))
}
