//! What can be wrong with an answer over HTTP.

use std::io;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::calls;
use crate::http::{Site, Stream, begin_events, event, respond, until_closed};

pub const FAULTS: &[&str] = &[
    "accepted",
    "broken",
    "busy",
    "dropped_stream",
    "endless_body",
    "endless_event",
    "flood",
    "forbidden",
    "forget",
    "half_body",
    "html",
    "huge",
    "huge_header",
    "hung_up",
    "never_resumed",
    "no_json",
    "redirect_loop",
    "redirect_other",
    "redirect_same",
    "resumed_stream",
    "silent_head",
    "slow_body",
    "unauthorized",
    "wrong_id",
];

const JSON: &str = "Content-Type: application/json\r\n";

/// `right` is what the answer should have been.
pub async fn misbehave(
    site: &Site,
    stream: &mut Stream,
    fault: &str,
    mut right: Value,
) -> io::Result<()> {
    match fault {
        "unauthorized" => {
            let headers = "WWW-Authenticate: Bearer realm=\"faulty\"\r\n";
            respond(stream, "401 Unauthorized", headers, b"who are you?").await
        }
        "forbidden" => respond(stream, "403 Forbidden", "", b"not you").await,
        "busy" => {
            respond(stream, "429 Too Many Requests", "Retry-After: 7\r\n", b"later, please").await
        }
        "broken" => respond(stream, "500 Internal Server Error", "", b"a stack trace").await,
        "accepted" => respond(stream, "202 Accepted", "", b"").await,
        "html" => respond(stream, "200 OK", "Content-Type: text/html\r\n", b"<h1>Hello</h1>").await,
        "no_json" => respond(stream, "200 OK", JSON, b"Hello").await,
        "wrong_id" => {
            right["id"] = json!(4_000_000_000_u32);
            respond(stream, "200 OK", JSON, right.to_string().as_bytes()).await
        }
        "forget" => {
            site.sessions.lock().unwrap().clear();
            respond(stream, "200 OK", JSON, right.to_string().as_bytes()).await
        }
        // The connection ends without a word.
        "hung_up" => Ok(()),
        "silent_head" => until_closed(stream).await,
        "huge_header" => {
            let headers = format!("{JSON}X-Huge: {}\r\n", "x".repeat(10_000_000));
            respond(stream, "200 OK", &headers, right.to_string().as_bytes()).await
        }
        "half_body" => {
            let text = right.to_string();
            let head = format!("HTTP/1.1 200 OK\r\n{JSON}Content-Length: {}\r\n\r\n", text.len());
            stream.write_all(head.as_bytes()).await?;
            stream.write_all(&text.as_bytes()[..text.len() / 2]).await?;
            stream.shutdown().await
        }
        "slow_body" => {
            stream.write_all(format!("HTTP/1.1 200 OK\r\n{JSON}\r\n").as_bytes()).await?;
            loop {
                stream.write_all(b" ").await?;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        "endless_body" => {
            stream.write_all(format!("HTTP/1.1 200 OK\r\n{JSON}\r\n").as_bytes()).await?;
            loop {
                stream.write_all(&[b' '; 65536]).await?;
            }
        }
        "endless_event" => {
            begin_events(stream).await?;
            stream.write_all(b"data: ").await?;
            loop {
                stream.write_all(&[b' '; 65536]).await?;
            }
        }
        "huge" => huge(stream, &right["id"]).await,
        "flood" => {
            begin_events(stream).await?;
            let many = format!(
                "data: {}

",
                calls::said("flood")
            )
            .repeat(1000);
            for _ in 0..1000 {
                stream.write_all(many.as_bytes()).await?;
            }
            event(stream, "", &right.to_string()).await?;
            stream.shutdown().await
        }
        "dropped_stream" => {
            begin_events(stream).await?;
            event(stream, "", &calls::said("a moment").to_string()).await?;
            stream.shutdown().await
        }
        "resumed_stream" | "never_resumed" => {
            begin_events(stream).await?;
            event(stream, &format!("id: {fault}/{}\nretry: 10\n", right["id"]), "").await?;
            stream.shutdown().await
        }
        "redirect_same" => redirect(stream, &format!("{}/moved", site.origin)).await,
        "redirect_loop" => redirect(stream, &format!("{}/mcp", site.origin)).await,
        "redirect_other" => {
            redirect(stream, &std::env::var("REMOTE").expect("REMOTE is an address")).await
        }
        other => panic!("no fault {other}"),
    }
}

/// Somebody wants the rest of a stream that we dropped.
pub async fn resume(site: &Site, stream: &mut Stream, last: &str) -> io::Result<()> {
    begin_events(stream).await?;
    let (fault, id) = last.split_once('/').expect("one of our event ids");
    if fault == "resumed_stream" {
        let id: Value = serde_json::from_str(id).unwrap();
        let message = site.server.message(calls::text(fault), &id).unwrap();
        event(stream, "", &message.to_string()).await?;
    }
    stream.shutdown().await
}

async fn redirect(stream: &mut Stream, to: &str) -> io::Result<()> {
    respond(stream, "307 Temporary Redirect", &format!("Location: {to}\r\n"), b"").await
}

/// An answer of a hundred megabytes.
async fn huge(stream: &mut Stream, id: &Value) -> io::Result<()> {
    let start = format!(
        "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\""
    );
    stream.write_all(format!("HTTP/1.1 200 OK\r\n{JSON}\r\n{start}").as_bytes()).await?;
    for _ in 0..1000 {
        stream.write_all(&[b'x'; 100_000]).await?;
    }
    stream.write_all(b"\"}]}}").await?;
    stream.shutdown().await
}
