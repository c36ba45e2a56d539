//! `cargo x bench soak`: a steady load of everything for minutes, and what the process holds
//! after each of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use parking_lot::Mutex;
use serde_json::json;
use tempfile::TempDir;

use super::echo;
use super::http::{Connection, Request};
use super::old_clients::requests_in_session;
use super::process;
use super::rounds::median;
use super::server::{Server, beside};
use super::{machine, scripts};

/// Connections that share the load.
const CONNECTIONS: usize = 16;
/// So many scripts of agents differ.
const DISTINCT_SCRIPTS: usize = 97;
/// A client of today: its calls belong to a session.
const SESSION_VERSION: &str = "2025-06-18";
const MINUTE: Duration = Duration::from_secs(60);
/// After the load, before the last look.
const REST: Duration = Duration::from_secs(15);
/// What the memory of the last minute may be, as a multiple of that at half time.
const MAX_GROWTH: f64 = 1.1;

#[derive(Args)]
pub(super) struct Soak {
    /// Minutes of load.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=600))]
    minutes: u32,
    /// Requests each second.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rate: u32,
    /// Write the report to this file as well
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Soak {
    pub(super) fn run(self) -> Result<()> {
        let project = mixed_project()?;
        let server = Server::moonlark(project.path())?;
        let mix = Arc::new(RequestMix::new(&server)?);
        mix.wait_for_upstream(&server)?;
        let mut looks = vec![ProcessLook::take(0, server.pid(), project.path())?];
        let minutes = self.minutes as usize;
        let answered: Arc<Vec<Mutex<Vec<f64>>>> =
            Arc::new((0..=minutes).map(|_| Mutex::default()).collect());
        let load = {
            let (mix, answered, address) = (mix.clone(), answered.clone(), server.address);
            let rate = self.rate;
            std::thread::spawn(move || generate_load(address, &mix, rate, minutes, &answered))
        };
        for minute in 1..=minutes {
            let until = Instant::now() + MINUTE;
            // A load that ended before its time has failed.
            while Instant::now() < until && (minute == minutes || !load.is_finished()) {
                std::thread::sleep(Duration::from_millis(100));
            }
            if minute < minutes && load.is_finished() {
                break;
            }
            looks.push(ProcessLook::take(minute, server.pid(), project.path())?);
            eprintln!("minute {minute} of {minutes}: {}", looks[minute].row(&[]));
        }
        match load.join() {
            Ok(ended) => ended?,
            Err(_) => bail!("the load generator panicked"),
        }
        std::thread::sleep(REST);
        let rested = ProcessLook::take(minutes, server.pid(), project.path())?;
        let report = self.render(&looks, &rested, &answered)?;
        println!("{report}");
        if let Some(out) = &self.out {
            std::fs::write(out, &report)
                .with_context(|| format!("cannot write {}", out.display()))?;
        }
        let (half, last) = (&looks[minutes.div_ceil(2)], &looks[minutes]);
        let growth = last.resident as f64 / half.resident as f64;
        ensure!(
            minutes < 4 || growth <= MAX_GROWTH,
            "memory grew by {growth:.2} from half time to the end"
        );
        Ok(())
    }

    fn render(
        &self,
        looks: &[ProcessLook],
        rested: &ProcessLook,
        answered: &[Mutex<Vec<f64>>],
    ) -> Result<String> {
        let mut rows = String::new();
        for look in looks {
            let of_minute =
                look.minute.checked_sub(1).map(|minute| answered[minute].lock().clone());
            rows += &format!("| {} | {}\n", look.minute, look.row(&of_minute.unwrap_or_default()));
        }
        rows += &format!("| +{} s idle | {}\n", REST.as_secs(), rested.row(&[]));
        let total: usize = answered.iter().map(|minute| minute.lock().len()).sum();
        Ok(format!(
            "# Benchmarks: soak\n\nWritten by `cargo x bench soak`. {machine}\n\n\
             {rate} requests a second for {minutes} minutes over {CONNECTIONS} connections: half of \
             them a Lua tool over REST, three tenths a tool of an upstream server over MCP in a \
             session of {SESSION_VERSION}, and two tenths `execute` with two promises of that tool, \
             {DISTINCT_SCRIPTS} different scripts in turn. The journal and the type check are on, as \
             by default. {total} requests were answered, every one of them right: any other answer \
             ends the benchmark. Times are those from when a request was due.\n\n\
             | minute | resident | anonymous | open files | threads | `.moonlark/` | CPU | p50 | p99 |\n\
             |---|---|---|---|---|---|---|---|---|\n{rows}",
            machine = machine::describe()?,
            rate = self.rate,
            minutes = self.minutes,
        ))
    }
}

/// Ten Lua tools, and an upstream whose tools are listed and in scripts.
fn mixed_project() -> Result<TempDir> {
    let project = scripts::project(10)?;
    let program = beside("moonlark-bench")?;
    let config = format!(
        "[mcp_servers.up]\ncommand = {program:?}\nargs = [\"floor-rmcp\", \"--stdio\"]\nexpose = \"both\"\n"
    );
    std::fs::write(project.path().join("moonlark.toml"), config)?;
    Ok(project)
}

/// The requests, by their turn.
struct RequestMix {
    script_tool: Request,
    /// In a session for each connection.
    upstream_tool: Vec<Request>,
    scripts: Vec<Request>,
}

impl RequestMix {
    fn new(server: &Server) -> Result<RequestMix> {
        let params = json!({"name": "up__echo", "arguments": {"message": "hello"}});
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
        let in_session = |_| {
            let mut all =
                requests_in_session(server, SESSION_VERSION, std::slice::from_ref(&call))?;
            all.pop().context("no request")
        };
        let script = |number: usize| {
            let script = format!(
                "local number = {number} local a, b = up.echo{{ message = \"hello\" }}, up.echo{{ message = \"hello\" }} \
                 local all = await_all{{ a, b }} return {{ number, all }}"
            );
            Request::post("/tools/execute", &[], &json!({"script": script}), echo::ANSWER)
        };
        Ok(RequestMix {
            script_tool: echo::rest(),
            upstream_tool: (0..CONNECTIONS).map(in_session).collect::<Result<_>>()?,
            scripts: (0..DISTINCT_SCRIPTS).map(script).collect(),
        })
    }

    fn request(&self, connection: usize, turn: usize) -> &Request {
        match turn % 10 {
            0..5 => &self.script_tool,
            5..8 => &self.upstream_tool[connection],
            _ => &self.scripts[turn % self.scripts.len()],
        }
    }

    /// The first answer of each kind, so that the table begins with everything there.
    fn wait_for_upstream(&self, server: &Server) -> Result<()> {
        super::old_clients::block_on(async {
            let mut connection = Connection::open(server.address).await?;
            for turn in [0, 5, 8] {
                connection.ask(self.request(0, turn)).await?;
            }
            Ok(())
        })
    }
}

/// Ask for everything when it is due, and note how long each answer took.
fn generate_load(
    address: std::net::SocketAddr,
    mix: &Arc<RequestMix>,
    rate: u32,
    minutes: usize,
    answered: &Arc<Vec<Mutex<Vec<f64>>>>,
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let began = tokio::time::Instant::now();
        let total = rate as usize * 60 * minutes;
        let mut tasks = tokio::task::JoinSet::new();
        for first in 0..CONNECTIONS {
            let (mix, answered) = (mix.clone(), answered.clone());
            tasks.spawn(async move {
                let mut connection = Connection::open(address).await?;
                for turn in (first..total).step_by(CONNECTIONS) {
                    let due = began + Duration::from_secs_f64(turn as f64 / f64::from(rate));
                    tokio::time::sleep_until(due).await;
                    // Shifted by the number of connections, so that each asks for everything.
                    connection.ask(mix.request(first, turn + turn / CONNECTIONS)).await?;
                    let minute = (due - began).as_secs() as usize / 60;
                    answered[minute].lock().push(due.elapsed().as_secs_f64());
                }
                anyhow::Ok(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(())
    })
}

/// What the process holds at a moment.
struct ProcessLook {
    minute: usize,
    resident: u64,
    anonymous: u64,
    open_files: usize,
    threads: u64,
    state_bytes: u64,
    cpu: Duration,
}

impl ProcessLook {
    fn take(minute: usize, pid: u32, project: &Path) -> Result<ProcessLook> {
        let status = process::status(pid)?;
        Ok(ProcessLook {
            minute,
            resident: status.resident,
            anonymous: process::anonymous_memory(pid)?,
            open_files: std::fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
            threads: status.threads,
            state_bytes: folder_bytes(&project.join(".moonlark"))?,
            cpu: process::cpu(pid)?,
        })
    }

    fn row(&self, seconds: &[f64]) -> String {
        let megabytes = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
        let mut sorted = seconds.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        let p99 = sorted.get(sorted.len().saturating_sub(1) * 99 / 100);
        let millis = |seconds: f64| format!("{:.1} ms", seconds * 1000.0);
        let times = p99.map_or("| |".to_owned(), |p99| {
            format!("{} | {} |", millis(median(sorted.iter().copied())), millis(*p99))
        });
        format!(
            "{} | {} | {} | {} | {} | {:.1} s | {times}",
            megabytes(self.resident),
            megabytes(self.anonymous),
            self.open_files,
            self.threads,
            megabytes(self.state_bytes),
            self.cpu.as_secs_f64(),
        )
    }
}

fn folder_bytes(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        // A file may be gone again.
        let Ok(metadata) = entry.metadata() else { continue };
        bytes += if metadata.is_dir() { folder_bytes(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}
