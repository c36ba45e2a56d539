//! A load generator for HTTP/1.1: connections that stay open and send the same
//! bytes again as soon as the answer is there. It does as little as it can, so
//! that the server is what is measured.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Effort;
use super::rounds::{Look, Rate};

/// What is sent, and what must be in the answer.
#[derive(Clone)]
pub(super) struct Request {
    bytes: Arc<[u8]>,
    expect: Arc<str>,
}

impl Request {
    pub(super) fn get(path: &str, expect: &str) -> Request {
        Request {
            bytes: format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes().into(),
            expect: expect.into(),
        }
    }

    pub(super) fn post(
        path: &str,
        headers: &[(&str, &str)],
        body: &serde_json::Value,
        expect: &str,
    ) -> Request {
        let body = body.to_string();
        let headers: String =
            headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let text = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        Request { bytes: text.into_bytes().into(), expect: expect.into() }
    }
}

/// Threads that generate load; more connections than that share one.
const THREADS: usize = 2;
/// Beyond the measured time, before a run counts as stuck.
const PATIENCE: Duration = Duration::from_secs(20);

/// Load `address` over `connections` and see what it costs process `pid`.
pub(super) fn load(
    address: SocketAddr,
    pid: u32,
    request: &Request,
    connections: usize,
    effort: Effort,
) -> Result<Rate> {
    let progress = Arc::new(Progress::default());
    let threads = connections.min(THREADS);
    let generators: Vec<_> = (0..threads)
        .map(|index| {
            let share = connections / threads + usize::from(index < connections % threads);
            let (progress, request) = (progress.clone(), request.clone());
            let limit = effort.warm_up + effort.round + PATIENCE;
            std::thread::spawn(move || generate(address, request, share, progress, limit))
        })
        .collect();
    std::thread::sleep(effort.warm_up);
    let first = Look::at(pid, progress.done())?;
    std::thread::sleep(effort.round);
    let last = Look::at(pid, progress.done())?;
    progress.stop.store(true, Ordering::Relaxed);
    for generator in generators {
        match generator.join() {
            Ok(ended) => ended?,
            Err(_) => bail!("the load generator panicked"),
        }
    }
    Ok(first.rate_until(&last))
}

#[derive(Default)]
struct Progress {
    done: AtomicU64,
    stop: AtomicBool,
}

impl Progress {
    fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }
}

fn generate(
    address: SocketAddr,
    request: Request,
    connections: usize,
    progress: Arc<Progress>,
    limit: Duration,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..connections {
            let (request, progress) = (request.clone(), progress.clone());
            tasks.spawn(async move {
                let mut connection = Connection::open(address).await?;
                while !progress.stop.load(Ordering::Relaxed) {
                    connection.ask(&request).await?;
                    progress.done.fetch_add(1, Ordering::Relaxed);
                }
                anyhow::Ok(())
            });
        }
        let all = async {
            while let Some(ended) = tasks.join_next().await {
                ended??;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(limit, all).await.context("the server did not answer in time")?
    })
}

/// One connection that stays open.
pub(super) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(super) async fn open(address: SocketAddr) -> Result<Connection> {
        let stream = TcpStream::connect(address).await.context("cannot connect")?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, buffer: Vec::with_capacity(4096) })
    }

    /// Send `request`, wait for the whole answer and look whether it is right.
    /// Returns the size of its body.
    pub(super) async fn ask(&mut self, request: &Request) -> Result<usize> {
        let shape = self.exchange(request).await?;
        self.judge(&shape, request)
    }

    /// The same, whatever the answer: its status.
    pub(super) async fn status(&mut self, request: &Request) -> Result<u16> {
        self.exchange(request).await?;
        let status = self.buffer.get(9..12).and_then(|it| std::str::from_utf8(it).ok());
        status.and_then(|it| it.parse().ok()).context("no status")
    }

    /// The same, for a header of the answer.
    pub(super) async fn header(&mut self, request: &Request, name: &str) -> Result<String> {
        let shape = self.exchange(request).await?;
        let head = std::str::from_utf8(&self.buffer[..shape.head])?;
        let value = head.lines().filter_map(|line| line.split_once(':'));
        let mut value = value.filter(|(given, _)| given.eq_ignore_ascii_case(name));
        let (_, value) = value.next().with_context(|| format!("no {name} in {head}"))?;
        Ok(value.trim().to_owned())
    }

    async fn exchange(&mut self, request: &Request) -> Result<Shape> {
        self.stream.write_all(&request.bytes).await?;
        self.buffer.clear();
        let mut shape = None;
        loop {
            let read = self.stream.read_buf(&mut self.buffer).await?;
            ensure!(read > 0, "the server closed the connection");
            if shape.is_none() {
                shape = Shape::of(&self.buffer);
                if let Some(Shape { total: Some(total), .. }) = shape {
                    self.buffer.reserve(total.saturating_sub(self.buffer.len()));
                }
            }
            let Some(known) = &shape else { continue };
            let complete = match known.total {
                Some(total) => self.buffer.len() >= total,
                None => self.buffer.ends_with(b"\r\n0\r\n\r\n"),
            };
            if complete && let Some(shape) = shape.take() {
                return Ok(shape);
            }
        }
    }

    fn judge(&self, shape: &Shape, request: &Request) -> Result<usize> {
        let body = &self.buffer[shape.head..];
        let right = self.buffer.starts_with(b"HTTP/1.1 200") && contains(body, &request.expect);
        ensure!(right, "unexpected answer: {}", String::from_utf8_lossy(&self.buffer));
        Ok(body.len())
    }
}

/// Where an answer's body begins and ends.
struct Shape {
    head: usize,
    /// None when the body comes in chunks.
    total: Option<usize>,
}

impl Shape {
    fn of(answer: &[u8]) -> Option<Shape> {
        let head = answer.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        let length = answer[..head].split(|byte| *byte == b'\n').find_map(|line| {
            let (name, value) = line.split_at_checked(15)?;
            let value = std::str::from_utf8(value).ok()?.trim();
            name.eq_ignore_ascii_case(b"content-length:").then(|| value.parse::<usize>().ok())?
        });
        Some(Shape { head, total: length.map(|length| head + length) })
    }
}

/// Whether the beginning of `body` has `text`; a long listing is not searched whole.
fn contains(body: &[u8], text: &str) -> bool {
    let start = &body[..body.len().min(2048)];
    text.is_empty() || start.windows(text.len()).any(|window| window == text.as_bytes())
}
