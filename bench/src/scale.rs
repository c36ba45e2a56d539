//! One tool, a hundred, five thousand: start-up, memory, listings, calls.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::echo;
use super::http::{self, Connection, Request};
use super::process;
use super::report::{Row, Section, bytes, millis, times};
use super::rounds::{in_turns, median};
use super::server::Server;
use super::{Effort, scripts};

const COUNTS: [usize; 3] = [1, 100, 5000];
/// Starts of each server; the median counts.
const STARTS: usize = 5;
const CONNECTIONS: usize = 4;

pub(super) fn run(effort: Effort) -> Result<Vec<Section>> {
    // Half the time: there are many of these and the ratios are coarse.
    let effort = Effort {
        rounds: effort.rounds.min(3),
        round: effort.round / 2,
        warm_up: effort.warm_up / 2,
    };
    let axum = Start::floor()?;
    let project = scripts::project(1)?;
    let alone = Server::moonlark(project.path())?;
    let mut rows = Vec::new();
    for count in COUNTS {
        eprintln!("{count} tools …");
        rows.extend(with_tools(count, &axum, &alone, effort)?);
    }
    Ok(vec![Section {
        title: "Many tools",
        about: "Start-up (process start to the first answer of `/health`) and idle memory \
                against a bare axum server. `GET /tools/list` against bare axum sending as many \
                bytes from memory, MCP `tools/list` (a page of at most 1,000) against bare rmcp \
                with the same tools, the echo call over REST against the same with one tool: \
                ratios of CPU.",
        rows,
    }])
}

fn with_tools(count: usize, axum: &Start, alone: &Server, effort: Effort) -> Result<Vec<Row>> {
    let project = scripts::project(count)?;
    let start = Start::of(|| Server::moonlark(project.path()))?;
    let server = &start.server;
    let named = count.to_string();
    let rmcp = Server::floor(&["floor-rmcp", "--tools", &named])?;
    let against = |floor: &Server, ours: &Request, theirs: &Request| {
        in_turns(
            effort.rounds,
            || http::load(server.address, server.pid(), ours, CONNECTIONS, effort),
            || http::load(floor.address, floor.pid(), theirs, CONNECTIONS, effort),
        )
    };
    let rest_list = Request::get("/tools/list", "\"tools\"");
    let size = size_of(server, &rest_list)?;
    let same_size = Request::get(&format!("/bytes/{size}"), "");
    let rest = against(&axum.server, &rest_list, &same_size)?;
    let mcp_list = echo::mcp(&echo::list(1));
    let mcp = against(&rmcp, &mcp_list, &mcp_list)?;
    let call = against(alone, &echo::rest(), &echo::rest())?;
    let what = |what: &str| {
        let tools = if count == 1 { "1 tool".to_owned() } else { format!("{count} tools") };
        format!("{tools}: {what}")
    };
    Ok(vec![
        Row::new(what("start-up"))
            .ratio(times(start.seconds / axum.seconds))
            .figures(millis(start.seconds), millis(axum.seconds)),
        Row::new(what("idle memory"))
            .ratio(times(start.resident / axum.resident))
            .figures(bytes(start.resident), bytes(axum.resident)),
        Row::new(what(&format!("`GET /tools/list` ({})", bytes(size as f64)))).cost(&rest),
        Row::new(what("MCP `tools/list`")).cost(&mcp),
        Row::new(what("echo over REST")).cost(&call),
    ])
}

/// A server, how long it takes to start and what it holds when idle.
struct Start {
    server: Server,
    seconds: f64,
    resident: f64,
}

impl Start {
    fn floor() -> Result<Start> {
        Start::of(|| Server::floor(&["floor-axum"]))
    }

    fn of(start: impl Fn() -> Result<Server>) -> Result<Start> {
        let mut server = start()?;
        let mut seconds = vec![server.started_in.as_secs_f64()];
        for _ in 1..STARTS {
            // The one before is ended first, so as not to run beside it.
            drop(server);
            server = start()?;
            seconds.push(server.started_in.as_secs_f64());
        }
        settle(server.pid())?;
        let resident = process::status(server.pid())?.resident as f64;
        Ok(Start { server, seconds: median(seconds), resident })
    }
}

/// Wait until a process has had nothing to do for a moment.
pub(super) fn settle(pid: u32) -> Result<()> {
    let patience = Instant::now() + Duration::from_secs(30);
    let mut before = process::cpu(pid)?;
    while Instant::now() < patience {
        std::thread::sleep(Duration::from_millis(300));
        let now = process::cpu(pid)?;
        if now == before {
            return Ok(());
        }
        before = now;
    }
    Ok(())
}

fn size_of(server: &Server, request: &Request) -> Result<usize> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { Connection::open(server.address).await?.ask(request).await })
}
