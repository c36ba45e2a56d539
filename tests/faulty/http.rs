//! Streamable HTTP by hand: one request per connection, sessions, a stream of
//! what belongs to no request.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::http_faults;
use crate::server::{Reply, Server};

pub struct Site {
    pub server: Arc<Server>,
    /// Our own `http://127.0.0.1:PORT`.
    pub origin: String,
    pub sessions: Mutex<BTreeSet<String>>,
    next: AtomicUsize,
}

impl Site {
    /// Not where everything goes wrong anyway, nor in the newest version.
    fn has_sessions(&self) -> bool {
        let mode = self.server.mode.as_str();
        mode != "modern" && !self.server.faults.contains(&mode)
    }
}

pub async fn serve(server: Arc<Server>) {
    let (listener, origin) = listen("/mcp").await;
    let site =
        Arc::new(Site { server, origin, sessions: Mutex::default(), next: AtomicUsize::new(1) });
    while let Ok((stream, _)) = listener.accept().await {
        let site = site.clone();
        tokio::spawn(async move {
            let mut stream = BufReader::new(stream);
            let request = Request::read(&mut stream).await?;
            answer(&site, &mut stream, &request).await
        });
    }
}

/// A free port, printed as an address with `path`.
pub async fn listen(path: &str) -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    println!("listening on {origin}{path}");
    (listener, origin)
}

async fn answer(site: &Site, stream: &mut Stream, request: &Request) -> io::Result<()> {
    match request.method.as_str() {
        "POST" => post(site, stream, request).await,
        "GET" => match request.header("last-event-id") {
            Some(last) => http_faults::resume(site, stream, last).await,
            None => speak(site, stream).await,
        },
        "DELETE" => respond(stream, "200 OK", "", b"").await,
        _ => respond(stream, "405 Method Not Allowed", "", b"").await,
    }
}

async fn post(site: &Site, stream: &mut Stream, request: &Request) -> io::Result<()> {
    let message: Value = serde_json::from_slice(&request.body).expect("only JSON is posted");
    let (Some(method), Some(id)) = (message["method"].as_str(), message.get("id")) else {
        site.server.hear(&message);
        return respond(stream, "202 Accepted", "", b"").await;
    };
    match request.header("mcp-session-id") {
        _ if !site.has_sessions() || method == "initialize" => {}
        Some(session) if site.sessions.lock().unwrap().contains(session) => {}
        Some(_) => return respond(stream, "404 Not Found", "", b"no such session").await,
        None => return respond(stream, "400 Bad Request", "", b"initialize comes first").await,
    }
    let reply = match site.server.answer(method, &message["params"]).await {
        // This is where `redirect_same` leads to.
        Reply::Fault(_, right) if request.path == "/moved" => *right,
        Reply::Fault(fault, right) => {
            let right = site.server.message(*right, id).unwrap_or_default();
            return http_faults::misbehave(site, stream, &fault, right).await;
        }
        reply => reply,
    };
    let mut headers = "Content-Type: application/json\r\n".to_owned();
    if method == "initialize" {
        let session = format!("session-{}", site.next.fetch_add(1, Ordering::SeqCst));
        headers.push_str(&format!("Mcp-Session-Id: {session}\r\n"));
        site.sessions.lock().unwrap().insert(session);
    }
    match site.server.message(reply, id) {
        Some(message) => respond(stream, "200 OK", &headers, message.to_string().as_bytes()).await,
        None => until_closed(stream).await,
    }
}

/// The stream of what belongs to no request, for as long as somebody listens.
async fn speak(site: &Site, stream: &mut Stream) -> io::Result<()> {
    let mut says = site.server.says.subscribe();
    begin_events(stream).await?;
    loop {
        let mut end = [0];
        tokio::select! {
            message = says.recv() => {
                let Ok(message) = message else { return Ok(()) };
                event(stream, "", &message.to_string()).await?;
            }
            _ = stream.read(&mut end) => return Ok(()),
        }
    }
}

pub type Stream = BufReader<TcpStream>;

/// A whole answer; the connection ends with it.
pub async fn respond(
    stream: &mut Stream,
    status: &str,
    headers: &str,
    body: &[u8],
) -> io::Result<()> {
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    stream.shutdown().await
}

/// An answer that is a stream of events, and ends when the connection does.
pub async fn begin_events(stream: &mut Stream) -> io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: text/event-stream\r\n\r\n";
    stream.write_all(head.as_bytes()).await
}

/// `fields` are whole lines.
pub async fn event(stream: &mut Stream, fields: &str, data: &str) -> io::Result<()> {
    stream.write_all(format!("{fields}data: {data}\n\n").as_bytes()).await
}

/// Say nothing, until the other side goes away.
pub async fn until_closed(stream: &mut Stream) -> io::Result<()> {
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

pub struct Request {
    pub method: String,
    pub path: String,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    pub async fn read(stream: &mut Stream) -> io::Result<Request> {
        let mut first = String::new();
        stream.read_line(&mut first).await?;
        let mut words = first.split(' ').map(str::to_owned);
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            let Some((name, value)) = line.split_once(':') else { break };
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let mut request = Request { method, path, headers, body: Vec::new() };
        let length = request.header("content-length").map_or(0, |text| text.parse().unwrap());
        request.body = vec![0; length];
        stream.read_exact(&mut request.body).await?;
        Ok(request)
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }
}
