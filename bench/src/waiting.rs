//! Two thousand calls that wait at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::http::{Connection, Request};
use super::process::{self, Status};
use super::report::{Row, Section, bytes, millis, times};
use super::rounds::median;
use super::server::Server;
use super::{Effort, machine, scripts};

const CALLS: usize = 2000;
/// More would not fit the queue of a listening socket.
const CONNECTING: usize = 200;
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn run(effort: Effort) -> Result<Vec<Section>> {
    eprintln!("waiting calls …");
    let project = scripts::project(1)?;
    std::fs::write(project.path().join("tools").join("wait.lua"), scripts::WAIT)?;
    let (mut ours, mut floor) = (Vec::new(), Vec::new());
    for _ in 0..effort.rounds.min(3) {
        machine::quiet();
        ours.push(measure(&Server::moonlark(project.path())?, CALLS, &request())?);
        floor.push(measure(&Server::floor(&["floor-axum"])?, CALLS, &request())?);
    }
    let (ours, floor) = (Waited::median(&ours), Waited::median(&floor));
    let row = |what: &str, of: fn(&Waited) -> f64, show: fn(f64) -> String| {
        let (ours, floor) = (of(&ours), of(&floor));
        Row::new(what).ratio(times(ours / floor)).figures(show(ours), show(floor))
    };
    Ok(vec![Section {
        title: "2,000 calls that sleep for a second",
        about: "Over REST, on 2,000 connections that are open before, against a bare axum route \
                that sleeps. A new server each time, so every call needs a new VM.",
        rows: vec![
            row("all answered after", |w| w.wall, millis).goal("≤ 2.5 s", ours.wall <= 2.5),
            row("CPU per call", |w| w.cpu * 1e6, super::report::micros),
            row("threads of the server", |w| w.threads, |count| format!("{count:.0}")),
            row("memory per waiting call (peak minus idle)", |w| w.memory, bytes),
        ],
    }])
}

fn request() -> Request {
    Request::post("/tools/wait", &[], &json!({"seconds": 1}), "waited")
}

#[derive(Clone, Copy)]
pub(super) struct Waited {
    /// Seconds from the first request to the last answer.
    pub(super) wall: f64,
    /// Seconds per call.
    pub(super) cpu: f64,
    pub(super) threads: f64,
    /// Bytes per call.
    pub(super) memory: f64,
}

impl Waited {
    pub(super) fn median(all: &[Waited]) -> Waited {
        let of = |value: fn(&Waited) -> f64| median(all.iter().map(value));
        Waited {
            wall: of(|w| w.wall),
            cpu: of(|w| w.cpu),
            threads: of(|w| w.threads),
            memory: of(|w| w.memory),
        }
    }
}

/// Send `request` on that many connections at once.
pub(super) fn measure(server: &Server, calls: usize, request: &Request) -> Result<Waited> {
    measure_each(server, vec![request.clone(); calls])
}

/// Send each of `requests` on a connection of its own, at once.
pub(super) fn measure_each(server: &Server, requests: Vec<Request>) -> Result<Waited> {
    let calls = requests.len();
    let pid = server.pid();
    super::scale::settle(pid)?;
    let idle = process::status(pid)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let all = async {
        let connections = connect(server, calls).await?;
        let watching = Watching::start(pid);
        let cpu = process::cpu(pid)?;
        let began = Instant::now();
        ask(connections, requests).await?;
        let wall = began.elapsed().as_secs_f64();
        let peak = watching.end()?;
        anyhow::Ok(Waited {
            wall,
            cpu: (process::cpu(pid)? - cpu).as_secs_f64() / calls as f64,
            threads: peak.threads as f64,
            memory: peak.resident.saturating_sub(idle.resident) as f64 / calls as f64,
        })
    };
    runtime.block_on(async { tokio::time::timeout(PATIENCE, all).await.context("took too long")? })
}

async fn connect(server: &Server, calls: usize) -> Result<Vec<Connection>> {
    let (address, places) = (server.address, Arc::new(Semaphore::new(CONNECTING)));
    let mut opening = JoinSet::new();
    for _ in 0..calls {
        let places = places.clone();
        opening.spawn(async move {
            let _place = places.acquire().await?;
            Connection::open(address).await
        });
    }
    opening.join_all().await.into_iter().collect()
}

async fn ask(connections: Vec<Connection>, requests: Vec<Request>) -> Result<()> {
    let mut asking = JoinSet::new();
    for (mut connection, request) in connections.into_iter().zip(requests) {
        asking.spawn(async move { connection.ask(&request).await });
    }
    asking.join_all().await.into_iter().try_for_each(|answer| answer.map(drop))
}

/// Looks at a process until told to stop, and remembers the most it saw.
struct Watching {
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Result<Status>>,
}

impl Watching {
    fn start(pid: u32) -> Watching {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut most = process::status(pid)?;
            while !stopped.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(10));
                let now = process::status(pid)?;
                most.resident = most.resident.max(now.resident);
                most.threads = most.threads.max(now.threads);
            }
            Ok(most)
        });
        Watching { stop, thread }
    }

    fn end(self) -> Result<Status> {
        self.stop.store(true, Ordering::Relaxed);
        match self.thread.join() {
            Ok(most) => most,
            Err(_) => bail!("the watching thread panicked"),
        }
    }
}
