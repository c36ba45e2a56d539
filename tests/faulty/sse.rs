//! The older way over HTTP: requests are posted, answers come on one stream.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;

use crate::http::{Request, Stream, begin_events, event, listen, respond, until_closed};
use crate::server::{Reply, Server};

pub const FAULTS: &[&str] = &["broken", "dropped_stream", "silent_head"];

struct Site {
    server: Arc<Server>,
    /// Where the answers of each session go; dropped, its stream ends.
    streams: Mutex<BTreeMap<String, mpsc::UnboundedSender<String>>>,
    next: AtomicUsize,
}

pub async fn serve(server: Arc<Server>) {
    let (listener, _) = listen("/sse").await;
    let site = Arc::new(Site { server, streams: Mutex::default(), next: AtomicUsize::new(1) });
    while let Ok((stream, _)) = listener.accept().await {
        let site = site.clone();
        tokio::spawn(async move {
            let mut stream = BufReader::new(stream);
            let request = Request::read(&mut stream).await?;
            match request.method.as_str() {
                "GET" => speak(&site, &mut stream).await,
                "POST" => post(&site, &mut stream, &request).await,
                _ => respond(&mut stream, "405 Method Not Allowed", "", b"").await,
            }
        });
    }
}

async fn speak(site: &Site, stream: &mut Stream) -> io::Result<()> {
    begin_events(stream).await?;
    let session = site.next.fetch_add(1, Ordering::SeqCst).to_string();
    let endpoint = match site.server.mode.as_str() {
        "no_endpoint" => return until_closed(stream).await,
        "other_endpoint" => std::env::var("REMOTE").expect("REMOTE is an address"),
        _ => format!("/message?session={session}"),
    };
    let (sender, mut messages) = mpsc::unbounded_channel();
    site.streams.lock().unwrap().insert(session, sender);
    event(stream, "event: endpoint\n", &endpoint).await?;
    let mut says = site.server.says.subscribe();
    loop {
        let mut end = [0];
        let message = tokio::select! {
            message = messages.recv() => message,
            message = says.recv() => message.ok().map(|message| message.to_string()),
            _ = stream.read(&mut end) => None,
        };
        let Some(message) = message else { return stream.shutdown().await };
        event(stream, "event: message\n", &message).await?;
    }
}

async fn post(site: &Site, stream: &mut Stream, request: &Request) -> io::Result<()> {
    let message: Value = serde_json::from_slice(&request.body).expect("only JSON is posted");
    let session = request.path.rsplit('=').next().unwrap_or_default();
    let Some(answers) = site.streams.lock().unwrap().get(session).cloned() else {
        return respond(stream, "404 Not Found", "", b"no such session").await;
    };
    let (Some(method), Some(id)) = (message["method"].as_str(), message.get("id")) else {
        site.server.hear(&message);
        return respond(stream, "202 Accepted", "", b"").await;
    };
    match site.server.answer(method, &message["params"]).await {
        Reply::Fault(fault, _) if fault == "broken" => {
            respond(stream, "500 Internal Server Error", "", b"a stack trace").await
        }
        Reply::Fault(fault, _) if fault == "silent_head" => until_closed(stream).await,
        Reply::Fault(..) => {
            respond(stream, "202 Accepted", "", b"").await?;
            site.streams.lock().unwrap().remove(session);
            Ok(())
        }
        reply => {
            // First accepted, then answered.
            respond(stream, "202 Accepted", "", b"").await?;
            if let Some(message) = site.server.message(reply, id) {
                let _ = answers.send(message.to_string());
            }
            Ok(())
        }
    }
}
