//! Load generators that keep the time of every call: over HTTP, where each client
//! has a connection, and over one pipe with many calls in flight.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, ChildStdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::http::{Connection, Request};
use super::{Effort, process, stdio};

/// What one round showed. Times in microseconds, CPU for one call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) per_second: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) client: f64,
    pub(super) gateway: f64,
    pub(super) server: f64,
}

/// Whose CPU time is looked at; the client is this process.
pub(super) struct Processes {
    pub(super) gateway: Vec<u32>,
    pub(super) server: Vec<u32>,
}

/// Threads that generate load; more connections than that share one.
const THREADS: usize = 2;
/// Beyond the measured time, before a round counts as stuck.
const PATIENCE: Duration = Duration::from_secs(20);
/// Times that one client keeps in a round.
const MOST: usize = 1_000_000;

/// Load `address` over as many connections as there are clients, which take turns with the
/// requests.
pub(super) fn over_http(
    address: SocketAddr,
    requests: &[Request],
    clients: usize,
    processes: &Processes,
    effort: Effort,
) -> Result<Sample> {
    let phase = Arc::new(Phase::default());
    let threads = clients.min(THREADS);
    let limit = effort.warm_up + effort.round + PATIENCE;
    let generators: Vec<_> = (0..threads)
        .map(|index| {
            let share = (index..clients).step_by(threads);
            let share = share.map(|client| requests[client % requests.len()].clone()).collect();
            let phase = phase.clone();
            std::thread::spawn(move || connections(address, share, phase, limit))
        })
        .collect();
    let window = Window::watch(&phase, processes, effort)?;
    let mut times = Vec::new();
    for generator in generators {
        times.extend(joined(generator)?);
    }
    window.sample(times)
}

fn connections(
    address: SocketAddr,
    requests: Vec<Request>,
    phase: Arc<Phase>,
    limit: Duration,
) -> Result<Vec<Duration>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let one = |request: Request, phase: Arc<Phase>| async move {
        let mut connection = Connection::open(address).await?;
        let mut times = Vec::new();
        while !phase.is(Phase::OVER) {
            let began = Instant::now();
            connection.ask(&request).await?;
            phase.keep(&mut times, began);
        }
        anyhow::Ok(times)
    };
    runtime.block_on(async {
        let mut tasks = tokio::task::JoinSet::new();
        for request in requests {
            tasks.spawn(one(request, phase.clone()));
        }
        let all = async {
            let mut times = Vec::new();
            while let Some(ended) = tasks.join_next().await {
                times.extend(ended??);
            }
            anyhow::Ok(times)
        };
        tokio::time::timeout(limit, all).await.context("a server did not answer in time")?
    })
}

/// A child process that speaks MCP over its pipes.
pub(super) struct Pipe {
    pub(super) child: Child,
    /// With the generator while it runs.
    ends: Option<(ChildStdin, ChildStdout)>,
}

impl Pipe {
    pub(super) fn new(mut child: Child) -> Pipe {
        let ends = child.stdin.take().zip(child.stdout.take());
        Pipe { child, ends }
    }

    /// Send `requests` and wait for their answers, with patience.
    pub(super) fn call_once(&mut self, requests: &[String], expect: &str) -> Result<()> {
        let ends = self.ends.take().context("no pipes")?;
        let over = Phase::default();
        over.set(Phase::OVER);
        let (ends, _) = in_flight(ends, requests, expect, &over)?;
        self.ends = Some(ends);
        Ok(())
    }

    /// Keep `requests`, whose ids are their places, in flight.
    pub(super) fn load(
        &mut self,
        requests: Vec<String>,
        expect: &'static str,
        processes: &Processes,
        effort: Effort,
    ) -> Result<Sample> {
        let ends = self.ends.take().context("no pipes")?;
        let phase = Arc::new(Phase::default());
        let phase_of_generator = phase.clone();
        let generator =
            std::thread::spawn(move || in_flight(ends, &requests, expect, &phase_of_generator));
        let window = Window::watch(&phase, processes, effort);
        // Its reader waits for answers that may not come.
        let over = Instant::now();
        while !generator.is_finished() {
            if over.elapsed() > PATIENCE {
                self.child.kill()?;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let (ends, times) = joined(generator)?;
        self.ends = Some(ends);
        window?.sample(times)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // Both end with their input, and what they started ends with them.
        drop(self.ends.take());
        let began = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

type Ends = (ChildStdin, ChildStdout);

fn in_flight(
    (mut stdin, mut stdout): Ends,
    requests: &[String],
    expect: &str,
    phase: &Phase,
) -> Result<(Ends, Vec<Duration>)> {
    let mut began = vec![Instant::now(); requests.len()];
    let (mut times, mut waiting) = (Vec::new(), requests.len());
    let mut buffer = Vec::with_capacity(64 * 1024);
    let mut chunk = vec![0; 64 * 1024];
    stdin.write_all(requests.concat().as_bytes())?;
    while waiting > 0 {
        let read = stdout.read(&mut chunk)?;
        ensure!(read > 0, "the MCP server closed its output");
        buffer.extend_from_slice(&chunk[..read]);
        let Some(end) = buffer.iter().rposition(|byte| *byte == b'\n') else { continue };
        let mut next = String::new();
        for line in std::str::from_utf8(&buffer[..end])?.lines() {
            // It may tell of tools that came meanwhile.
            let Some(id) = stdio::id_of(line) else { continue };
            ensure!(line.contains(expect), "unexpected answer: {line}");
            let request = requests.get(id).with_context(|| format!("unknown id in {line}"))?;
            phase.keep(&mut times, began[id]);
            if phase.is(Phase::OVER) {
                waiting -= 1;
            } else {
                began[id] = Instant::now();
                next.push_str(request);
            }
        }
        buffer.drain(..=end);
        stdin.write_all(next.as_bytes())?;
    }
    Ok(((stdin, stdout), times))
}

fn joined<T>(generator: JoinHandle<Result<T>>) -> Result<T> {
    match generator.join() {
        Ok(ended) => ended,
        Err(_) => bail!("the load generator panicked"),
    }
}

/// Where a round is.
#[derive(Default)]
struct Phase(AtomicU8);

impl Phase {
    const MEASURED: u8 = 1;
    const OVER: u8 = 2;

    fn is(&self, phase: u8) -> bool {
        self.0.load(Ordering::Relaxed) == phase
    }

    fn set(&self, phase: u8) {
        self.0.store(phase, Ordering::Relaxed);
    }

    fn keep(&self, times: &mut Vec<Duration>, began: Instant) {
        if self.is(Phase::MEASURED) && times.len() < MOST {
            times.push(began.elapsed());
        }
    }
}

/// The measured part of a round.
struct Window {
    lasted: Duration,
    /// CPU time of client, gateway and server.
    cpu: [Duration; 3],
}

impl Window {
    /// Let the round pass while others generate the load.
    fn watch(phase: &Phase, processes: &Processes, effort: Effort) -> Result<Window> {
        let watched = || {
            std::thread::sleep(effort.warm_up);
            let (began, first) = (Instant::now(), processes.cpu()?);
            phase.set(Phase::MEASURED);
            std::thread::sleep(effort.round);
            phase.set(Phase::OVER);
            let (lasted, last) = (began.elapsed(), processes.cpu()?);
            let cpu = [0, 1, 2].map(|index| last[index].saturating_sub(first[index]));
            Ok(Window { lasted, cpu })
        };
        let window = watched();
        phase.set(Phase::OVER);
        window
    }

    fn sample(self, mut times: Vec<Duration>) -> Result<Sample> {
        ensure!(!times.is_empty(), "no call was answered in the time of a round");
        times.sort_unstable();
        let at = |share: f64| {
            let index = (times.len() as f64 * share) as usize;
            times[index.min(times.len() - 1)].as_secs_f64() * 1e6
        };
        let done = times.len() as f64;
        let [client, gateway, server] = self.cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / done);
        let per_second = done / self.lasted.as_secs_f64();
        Ok(Sample { per_second, p50: at(0.50), p99: at(0.99), client, gateway, server })
    }
}

impl Processes {
    fn cpu(&self) -> Result<[Duration; 3]> {
        let sum = |pids: &[u32]| pids.iter().map(|pid| process::cpu(*pid)).sum::<Result<_>>();
        Ok([process::own_cpu(), sum(&self.gateway)?, sum(&self.server)?])
    }
}
