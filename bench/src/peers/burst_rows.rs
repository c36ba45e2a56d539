//! Memory of 1,000 runs at once, beside my-cool-proxy.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::http::{Connection, Request};
use crate::machine;
use crate::old_clients::{block_on, requests_in_session};
use crate::report::{Row, Section, bytes, micros, millis, times};
use crate::server::{AnnouncedOn, Server};
use crate::waiting::{self, Waited};

use super::PeerBench;
use super::programs::Peer;
use super::projects::{EchoUpstream, PeerProject, free_port};
use super::session_client::SESSION_VERSION;
use super::turns::row_without_peer;

const RUNS_AT_ONCE: usize = 1000;
const MAX_ROUNDS: u32 = 3;
const UPSTREAM: EchoUpstream =
    EchoUpstream { tools: 10, has_annotations: false, delay_millis: 200 };
const MAX_RUN_MEGABYTES: f64 = 0.12;
const MEGABYTE: f64 = 1024.0 * 1024.0;
/// Until the first script finds its upstream.
const READY_TIMEOUT: Duration = Duration::from_secs(60);
const READY_POLL_INTERVAL: Duration = Duration::from_millis(50);

const MEMORY_NAME: &str = "memory per run (peak minus idle)";
const MEMORY_REASON: &str = "Each run has a VM of its own, with the modules that scripts see and a memory \
     limit of its own, beside the request that it answers and the entries of its calls.";

pub(super) fn measure(bench: &PeerBench) -> Result<Vec<Section>> {
    Ok(vec![Section {
        title: "1,000 runs at once, beside my-cool-proxy",
        about: "Each awaits one call of an upstream that takes 200 ms. Over MCP on HTTP, on \
                connections that are open before and share a session, in a server that has just \
                started. Memory is resident memory of the gateway's process.",
        rows: rows(bench)?,
    }])
}

fn rows(bench: &PeerBench) -> Result<Vec<Row>> {
    let goal_text = format!("≤ {MAX_RUN_MEGABYTES} MB");
    let Some(program) = bench.programs.find(Peer::MyCoolProxy) else {
        let row = row_without_peer(MEMORY_NAME, Peer::MyCoolProxy, None);
        return Ok(vec![row.not_measured(Some(goal_text))]);
    };
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 1..=bench.effort.rounds.min(MAX_ROUNDS) {
        eprintln!("{RUNS_AT_ONCE} runs at once, round {round} …");
        machine::quiet();
        ours.push(burst_of_moonlark()?);
        machine::quiet();
        theirs.push(burst_of_peer(program.clone())?);
    }
    let (ours, theirs) = (Waited::median(&ours), Waited::median(&theirs));
    let row = |what: &str, of: fn(&Waited) -> f64, show: fn(f64) -> String| {
        let (ours, theirs) = (of(&ours), of(&theirs));
        Row::new(what).ratio(times(ours / theirs)).figures(show(ours), show(theirs))
    };
    Ok(vec![
        row(MEMORY_NAME, |it| it.memory, bytes)
            .goal(goal_text, ours.memory <= MAX_RUN_MEGABYTES * MEGABYTE)
            .reason(MEMORY_REASON),
        row("all answered after", |it| it.wall, millis),
        row("CPU per run", |it| it.cpu * 1e6, micros),
    ])
}

fn burst_of_moonlark() -> Result<Waited> {
    let project = PeerProject::moonlark_over_upstream(UPSTREAM)?.over_http();
    let server = Server::start_announced(project.command(), AnnouncedOn::Stderr)?;
    burst(&server, None, "return sdk.echo.echo({ message = \"hello\" })")
}

fn burst_of_peer(program: PathBuf) -> Result<Waited> {
    let port = free_port()?;
    let project = PeerProject::my_cool_proxy(program, UPSTREAM, port)?;
    let server = Server::start_at(project.command(), ([127, 0, 0, 1], port).into())?;
    // A session may call what it has asked about.
    let inspect = json!({
        "name": "tool-details",
        "arguments": {"luaServerName": "echo", "luaToolName": "echo"},
    });
    burst(&server, Some(inspect), "result(echo.echo({ message = \"hello\" }):await())")
}

/// `before` is called once in the session.
fn burst(server: &Server, before: Option<Value>, script: &str) -> Result<Waited> {
    // No two requests in progress of a session may have the same id.
    let call = |id: usize, params: &Value| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
    let execute = json!({"name": "execute", "arguments": {"script": script}});
    let first = call(RUNS_AT_ONCE + 1, before.as_ref().unwrap_or(&execute));
    let runs = (1..=RUNS_AT_ONCE).map(|id| call(id, &execute));
    let calls: Vec<Value> = std::iter::once(first).chain(runs).collect();
    let mut requests = requests_in_session(server, SESSION_VERSION, &calls)?;
    let first = requests.remove(0);
    wait_for_upstream(server, &first, &requests[0])?;
    waiting::measure_each(server, requests)
}

/// Some answer scripts before they have connected to what is behind them.
fn wait_for_upstream(server: &Server, first: &Request, run: &Request) -> Result<()> {
    let began = Instant::now();
    loop {
        let asked = block_on(async {
            let mut connection = Connection::open(server.address).await?;
            connection.status(first).await?;
            connection.ask(run).await
        });
        match asked {
            Ok(_) => return Ok(()),
            Err(error) if began.elapsed() > READY_TIMEOUT => {
                return Err(error).context("no script found its upstream in time");
            }
            Err(_) => std::thread::sleep(READY_POLL_INTERVAL),
        }
    }
}
