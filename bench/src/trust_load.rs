//! A server under ten times its capacity: what it accepts it does, the rest it
//! refuses at once, and it stays awake.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use moonlark_core::Value;
use moonlark_core::record_id::RecordId;
use moonlark_core::tool::CallEffects;
use moonlark_gateway::Caller;
use moonlark_gateway::journal::{CallBegan, JournalEntry, RedactionScopes};
use serde_json::json;

use super::http::{Connection, Request};
use super::report::{Row, Section, bytes};
use super::server::Server;
use super::{Effort, machine, process, trust};

/// Calls in progress, and the time of one: two hundred and fifty a second.
const RUNS: usize = 25;
const TAKES: f64 = 0.1;
/// Clients for the load it can take, and for ten times that.
const FITTING: usize = RUNS;
const MANY: usize = 500;
/// How long a client that was refused waits before it comes again.
const AGAIN: Duration = Duration::from_millis(100);

const CONFIG: &str = "\
[limits]
runs = 25
queued = 25
queue_time = \"1s\"
";

const TOOL: &str = "\
tool = { name = \"nap\", description = \"Sleeps\" }
function tool.execute()
    sleep(0.1)
    return \"slept\"
end
";

pub(super) fn run(effort: Effort) -> Result<Section> {
    eprintln!("ten times the load …");
    machine::quiet();
    let normal = load(FITTING, effort)?;
    let tenfold = load(MANY, effort)?;
    let capacity = RUNS as f64 / TAKES;
    let offered = tenfold.offered();
    let kept = |load: &Load| {
        Row::new(format!("{} clients: accepted calls that are on record", load.clients))
            .figures(format!("{} of {}", load.recorded, load.times.len()), String::new())
            .goal("all", load.recorded == load.times.len() as u64)
    };
    let answered = |load: &Load| {
        let (p50, p99) = trust::latency(load.times.clone());
        let rate = load.times.len() as f64 / load.took;
        Row::new(format!("{} clients: accepted", load.clients))
            .figures(format!("{rate:.0}/s, p50 {p50}, p99 {p99}"), format!("{capacity:.0}/s"))
    };
    let (_, refused) = trust::latency(tenfold.refusals.clone());
    let (_, health) = trust::latency(tenfold.health.clone());
    let growth = tenfold.memory as f64 - normal.memory as f64;
    Ok(Section {
        title: "Ten times the load",
        about: "A tool that sleeps for 100 ms, 25 calls in progress and 25 more in line, so 250 \
                calls a second; clients that come again 100 ms after they were refused. The floor is \
                what the limit allows.",
        rows: vec![
            answered(&normal),
            kept(&normal),
            Row::new(format!("{MANY} clients: offered"))
                .figures(
                    format!("{offered:.0}/s, {:.1} × what it can take", offered / capacity),
                    format!("{capacity:.0}/s"),
                )
                .goal("≥ 10 ×", offered >= 10.0 * capacity),
            answered(&tenfold),
            kept(&tenfold),
            Row::new(format!("{MANY} clients: refused with 429")).figures(
                format!("{:.0}/s, p99 {refused}", tenfold.refusals.len() as f64 / tenfold.took),
                String::new(),
            ),
            Row::new("`/health` meanwhile").figures(format!("p99 {health}"), String::new()),
            Row::new("memory of the server")
                .ratio(format!("+ {}", bytes(growth)))
                .figures(bytes(tenfold.memory as f64), bytes(normal.memory as f64)),
        ],
    })
}

/// What came of one load.
struct Load {
    clients: usize,
    took: f64,
    /// Of the calls that were accepted, and of those that were not.
    times: Vec<Duration>,
    refusals: Vec<Duration>,
    health: Vec<Duration>,
    recorded: u64,
    memory: u64,
}

impl Load {
    fn offered(&self) -> f64 {
        (self.times.len() + self.refusals.len()) as f64 / self.took
    }
}

fn load(clients: usize, effort: Effort) -> Result<Load> {
    let project = tempfile::tempdir()?;
    std::fs::create_dir(project.path().join("tools"))?;
    std::fs::write(project.path().join("moonlark.toml"), CONFIG)?;
    std::fs::write(project.path().join("tools/nap.lua"), TOOL)?;
    let server = Server::moonlark(project.path())?;
    let stop = Arc::new(AtomicBool::new(false));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let began = Instant::now();
    let spawned: Vec<_> =
        (0..clients).map(|_| runtime.spawn(client(server.address, stop.clone()))).collect();
    let health = runtime.spawn(healthy(server.address, stop.clone()));
    std::thread::sleep(effort.round * 2);
    let memory = process::status(server.pid())?.resident;
    stop.store(true, Ordering::Relaxed);
    let (mut times, mut refusals) = (Vec::new(), Vec::new());
    for client in spawned {
        let (accepted, refused) = runtime.block_on(client)??;
        times.extend(accepted);
        refusals.extend(refused);
    }
    let took = began.elapsed().as_secs_f64();
    let health = runtime.block_on(health)??;
    ensure!(!times.is_empty(), "nothing was accepted");
    let recorded = when_written(project.path(), times.len() as u64)?;
    Ok(Load { clients, took, times, refusals, health, recorded, memory })
}

type Heard = (Vec<Duration>, Vec<Duration>);

async fn client(address: SocketAddr, stop: Arc<AtomicBool>) -> Result<Heard> {
    let request = Request::post("/tools/nap", &[], &json!({}), "");
    let mut connection = Connection::open(address).await?;
    let (mut accepted, mut refused) = (Vec::new(), Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        match connection.status(&request).await? {
            200 => accepted.push(began.elapsed()),
            429 => {
                refused.push(began.elapsed());
                tokio::time::sleep(AGAIN).await;
            }
            other => anyhow::bail!("status {other}"),
        }
    }
    Ok((accepted, refused))
}

async fn healthy(address: SocketAddr, stop: Arc<AtomicBool>) -> Result<Vec<Duration>> {
    let request = Request::get("/health", "");
    let mut connection = Connection::open(address).await?;
    let mut times = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let began = Instant::now();
        connection.ask(&request).await?;
        times.push(began.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(times)
}

/// How many calls are on record, as soon as it is `wanted`, or after a while.
fn when_written(project: &Path, wanted: u64) -> Result<u64> {
    let file = project.join(".moonlark/journal.db");
    let began = Instant::now();
    loop {
        let recorded = ended_calls(&file)?;
        if recorded >= wanted || began.elapsed() > Duration::from_secs(5) {
            return Ok(recorded);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Calls that ended well, by the file.
pub(super) fn ended_calls(file: &Path) -> Result<u64> {
    let connection = rusqlite::Connection::open(file).context("no journal")?;
    let sql = "SELECT count(*) FROM journal_calls WHERE outcome = 'ok'";
    let count: i64 = connection.query_row(sql, [], |row| row.get(0))?;
    Ok(u64::try_from(count)?)
}

/// A call that an agent's script begins.
pub(super) fn entry() -> JournalEntry {
    JournalEntry::CallBegan(CallBegan {
        call: RecordId::new(),
        parent: None,
        run: Some(RecordId::new()),
        place: Some("0".to_owned()),
        at: SystemTime::now(),
        tool: "files.write".to_owned(),
        source: "files".to_owned(),
        effects: CallEffects::default(),
        caller: Caller::new("bench"),
        args: Value::from_fields([("path", "notes.txt".into()), ("text", "hello".into())]),
        secrets: RedactionScopes::default(),
    })
}
