//! The same call by a client of an old version of MCP, which has a session, and by one of
//! 2026-07-28: of the same process, in turns.

use std::cell::RefCell;
use std::path::Path as Folder;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::echo::{self, ANSWER};
use super::http::{Connection, Request};
use super::report::{self, Row, Section};
use super::rounds::{Pair, Rate, in_turns, median};
use super::server::{Server, beside};
use super::upstream_load::{Pipe, Processes, Sample, over_http};
use super::upstream_path::{Path, Transport, pipe, processes};
use super::{Effort, machine, scripts};

/// Most clients of today.
const OLD_VERSIONS: [&str; 2] = ["2025-06-18", "2025-11-25"];
/// What a session may cost more than none.
const MAX_CPU_RATIO: f64 = 1.15;
/// What Moonlark may add to a call over pipes, in microseconds.
const MAX_ADDED_MICROS: f64 = 35.0;

/// Each client has its own.
const MAX_SESSIONS: usize = 16;

/// A tool of a Lua script.
pub(super) fn with_script_tool(effort: Effort) -> Result<Section> {
    let project = scripts::project(1)?;
    Ok(Section {
        title: "Old clients, echo",
        about: "`tools/call` of a client that has a session, answered by a Lua script; the floor is \
                the same call of a client of 2026-07-28, which has none, at the same process. The \
                first column is CPU.",
        rows: rows(project.path(), [1, 16], effort)?,
    })
}

/// A tool of a server behind Moonlark, over pipes.
pub(super) fn with_upstream_tool(effort: Effort) -> Result<[Section; 2]> {
    let project = upstream_project()?;
    let against_modern = Section {
        title: "Old clients, upstream over stdio",
        about: "The same for a tool of a native echo server that Moonlark calls over pipes.",
        rows: rows(project.path(), [1, 8], effort)?,
    };
    let against_direct = Section {
        title: "Old clients over stdio, against no gateway",
        about: "What Moonlark adds to the median time of a call of a client that has a session, \
                one call at a time, against the same call at the server itself.",
        rows: vec![added_over_pipes(project.path(), effort)?],
    };
    Ok([against_modern, against_direct])
}

fn upstream_project() -> Result<TempDir> {
    let project = tempfile::Builder::new().prefix("bench-").tempdir()?;
    let command = beside("moonlark-bench")?;
    let config = format!(
        "[mcp_servers.echo]\ncommand = {command:?}\nargs = [\"floor-rmcp\", \"--stdio\"]\n\
         expose = \"direct\"\nprefix = \"\"\n"
    );
    std::fs::write(project.path().join("moonlark.toml"), config)?;
    std::fs::create_dir(project.path().join("tools"))?;
    Ok(project)
}

fn rows(project: &Folder, clients: [usize; 2], effort: Effort) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for version in OLD_VERSIONS {
        for transport in [Transport::Http, Transport::Stdio] {
            let gateway = RefCell::new(SessionGateway::start(transport, project, version)?);
            for clients in clients {
                let what = format!("{version}, {}, {clients} at once", transport.name());
                eprintln!("{what} …");
                let measure = |lifecycle| -> Result<Rate> {
                    let sample = gateway.borrow_mut().measure(lifecycle, clients, effort)?;
                    Ok(Rate { per_second: sample.per_second, cpu: sample.gateway })
                };
                let old = || measure(CallLifecycle::Session);
                let pair: Pair = in_turns(effort.rounds, old, || measure(CallLifecycle::Requests))?;
                let goal = format!("≤ {}", report::times(MAX_CPU_RATIO));
                rows.push(Row::new(what).cost(&pair).goal(goal, pair.cpu <= MAX_CPU_RATIO));
            }
        }
    }
    Ok(rows)
}

fn added_over_pipes(project: &Folder, effort: Effort) -> Result<Row> {
    let version = OLD_VERSIONS[0];
    let mut gateway = SessionGateway::start(Transport::Stdio, project, version)?;
    let mut direct = Path::direct(Transport::Stdio)?;
    let mut rounds = Vec::new();
    for round in 0..effort.rounds {
        machine::quiet();
        let mut ours = || gateway.measure(CallLifecycle::Session, 1, effort);
        rounds.push(if round % 2 == 0 {
            let first = ours()?;
            (first, direct.measure(1, effort)?)
        } else {
            let first = direct.measure(1, effort)?;
            (ours()?, first)
        });
    }
    let added = median(rounds.iter().map(|(ours, direct)| ours.p50 - direct.p50));
    let p50 = |of: fn(&(Sample, Sample)) -> f64| report::micros(median(rounds.iter().map(of)));
    Ok(Row::new(format!("{version}, 1 at once"))
        .ratio(format!("{added:+.0} µs"))
        .figures(p50(|it| it.0.p50), p50(|it| it.1.p50))
        .goal(format!("≤ {MAX_ADDED_MICROS:.0} µs"), added <= MAX_ADDED_MICROS))
}

/// How a client makes its calls.
#[derive(Clone, Copy)]
enum CallLifecycle {
    Session,
    /// Each stands by itself.
    Requests,
}

/// Moonlark, and a session with it.
struct SessionGateway {
    entry: GatewayEntry,
    processes: Processes,
}

enum GatewayEntry {
    /// With a call of each session.
    Http {
        server: Server,
        calls: Vec<Request>,
    },
    Pipe(Pipe),
}

impl SessionGateway {
    fn start(transport: Transport, project: &Folder, version: &str) -> Result<SessionGateway> {
        let mut entry = match transport {
            Transport::Http => {
                let server = Server::moonlark(project)?;
                let session = |_| begin_over_http(&server, version);
                let calls = (0..MAX_SESSIONS).map(session).collect::<Result<_>>()?;
                GatewayEntry::Http { server, calls }
            }
            Transport::Stdio => {
                let mut pipe = pipe("moonlark", &["stdio", "--quiet"], project)?;
                let begin = format!("{}\n{}\n", initialize(version), initialized());
                pipe.call_once(&[begin], version)?;
                GatewayEntry::Pipe(pipe)
            }
        };
        // So that the server behind it is there.
        let pid = match &mut entry {
            GatewayEntry::Http { server, calls } => {
                block_on(async { Connection::open(server.address).await?.ask(&calls[0]).await })?;
                server.pid()
            }
            GatewayEntry::Pipe(pipe) => {
                pipe.call_once(&requests(CallLifecycle::Session, 1), ANSWER)?;
                pipe.child.id()
            }
        };
        Ok(SessionGateway { entry, processes: processes(pid)? })
    }

    fn measure(
        &mut self,
        lifecycle: CallLifecycle,
        clients: usize,
        effort: Effort,
    ) -> Result<Sample> {
        match &mut self.entry {
            GatewayEntry::Http { server, calls } => {
                let modern = [echo::mcp(&echo::call(1))];
                let requests = match lifecycle {
                    CallLifecycle::Session => calls.as_slice(),
                    CallLifecycle::Requests => &modern,
                };
                over_http(server.address, requests, clients, &self.processes, effort)
            }
            GatewayEntry::Pipe(pipe) => {
                pipe.load(requests(lifecycle, clients), ANSWER, &self.processes, effort)
            }
        }
    }
}

/// The call in a new session.
fn begin_over_http(server: &Server, version: &str) -> Result<Request> {
    let mut requests = requests_in_session(server, version, &[session_call(1)])?;
    requests.pop().context("no request")
}

/// Messages in a new session, all of which call `echo` in some way.
pub(super) fn requests_in_session(
    server: &Server,
    version: &str,
    messages: &[Value],
) -> Result<Vec<Request>> {
    let accept = ("Accept", "application/json, text/event-stream");
    let begin = Request::post("/mcp", &[accept], &initialize(version), "");
    let session = block_on(async {
        let mut connection = Connection::open(server.address).await?;
        let session = connection.header(&begin, "mcp-session-id").await?;
        let headers = [accept, ("Mcp-Session-Id", session.as_str())];
        connection.status(&Request::post("/mcp", &headers, &initialized(), "")).await?;
        Ok(session)
    });
    let session = session.context("no session over HTTP")?;
    let headers = [accept, ("Mcp-Session-Id", session.as_str()), ("MCP-Protocol-Version", version)];
    let request = |message| Request::post("/mcp", &headers, message, ANSWER);
    Ok(messages.iter().map(request).collect())
}

pub(super) fn block_on<T>(what: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(what)
}

fn initialize(version: &str) -> Value {
    let params = json!({
        "protocolVersion": version,
        // As most clients have them.
        "capabilities": {"roots": {}, "sampling": {}, "elicitation": {}},
        "clientInfo": {"name": "bench", "version": "1"},
    });
    json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
}

pub(super) fn initialized() -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
}

fn session_call(id: usize) -> Value {
    let params = json!({"name": "echo", "arguments": {"message": "hello"}});
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

fn requests(lifecycle: CallLifecycle, count: usize) -> Vec<String> {
    let call = |id| match lifecycle {
        CallLifecycle::Session => session_call(id),
        CallLifecycle::Requests => echo::call(id),
    };
    (0..count).map(|id| format!("{}\n", call(id))).collect()
}
