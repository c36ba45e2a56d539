//! From the start of the process to the first answer, and what it holds when it is idle.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::echo::ANSWER;
use crate::process;
use crate::report::{Row, Section, bytes, times};
use crate::scale::settle;
use crate::server::{AnnouncedOn, Server};

use super::PeerBench;
use super::process_group::{group_cpu, group_memory};
use super::programs::Peer;
use super::projects::{EchoUpstream, PeerProject};
use super::rest_rows::{CONTEXT_HARNESS_STREAM, MOONLARK_STREAM, ask_echo};
use super::script_rows::script_arguments;
use super::session_client::SessionClient;
use super::starlark_rows::call_echo;
use super::turns::{Figure, OperationCost, PeerGoal, in_peer_turns, row_without_peer};

const TOOL_COUNTS: [usize; 2] = [10, 1000];
/// Of each, at least.
const MIN_STARTS: u32 = 5;
/// Memory goes back a second after the last work.
const IDLE_TIME: Duration = Duration::from_secs(2);
const MEGABYTE: f64 = 1024.0 * 1024.0;
/// When idle, in the order of [`TOOL_COUNTS`].
const MAX_IDLE_MEGABYTES: [f64; 2] = [20.0, 30.0];

/// What a server starts with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StartKind {
    LuaTools,
    StarlarkFiles,
    Upstream,
}

const START_KINDS: [StartKind; 3] =
    [StartKind::LuaTools, StartKind::StarlarkFiles, StartKind::Upstream];

impl StartKind {
    fn peer(self) -> Peer {
        match self {
            StartKind::LuaTools => Peer::ContextHarness,
            StartKind::StarlarkFiles => Peer::StarlarkMcp,
            StartKind::Upstream => Peer::ToolScript,
        }
    }

    fn describe(self, count: usize) -> String {
        let what = match self {
            StartKind::LuaTools => "Lua tools",
            StartKind::StarlarkFiles => "Starlark files",
            StartKind::Upstream => "tools of an upstream, `execute`",
        };
        let count = if count == 1000 { "1,000".to_owned() } else { count.to_string() };
        format!("{count} {what} ({})", self.peer().name())
    }

    fn max_ratio(self) -> f64 {
        match self {
            StartKind::LuaTools => 1.0,
            StartKind::StarlarkFiles | StartKind::Upstream => 2.0,
        }
    }

    fn has_memory_goal(self) -> bool {
        self != StartKind::StarlarkFiles
    }

    fn start_reason(self) -> &'static str {
        match self {
            StartKind::LuaTools => {
                "The program is larger and opens its journal first, and every file is loaded in \
                 the sandbox, and under the limits, in which it runs later; Context Harness \
                 loads it without either."
            }
            StartKind::StarlarkFiles => {
                "Files are evaluated in worker processes, which have to start first; starlark-mcp \
                 evaluates them in its own, without limits."
            }
            StartKind::Upstream => {
                "Moonlark starts two more processes: one that ends the upstream with it and with \
                 all that it leaves behind, and one that checks scripts before they run. \
                 ToolScript does neither."
            }
        }
    }

    /// Moonlark, and the peer.
    fn projects(self, program: PathBuf, count: usize) -> Result<[PeerProject; 2]> {
        let upstream = EchoUpstream { tools: count, has_annotations: false, delay_millis: 0 };
        Ok(match self {
            StartKind::LuaTools => [
                PeerProject::moonlark_with_lua_tools(count)?,
                PeerProject::context_harness(program, count)?,
            ],
            StartKind::StarlarkFiles => [
                PeerProject::moonlark_with_starlark(count)?,
                PeerProject::starlark_mcp(program, count)?,
            ],
            StartKind::Upstream => [
                PeerProject::moonlark_over_upstream(upstream)?,
                PeerProject::toolscript(program, upstream)?,
            ],
        })
    }
}

const MEMORY_REASON: &str = "Most of it is the program file: of 23 MB with 10 Lua tools 16 MB are pages of \
     it and of libraries, which the kernel may drop and other processes share, and 6 MB are \
     private. The peers are programs of a quarter of its size.";

pub(super) fn measure(bench: &PeerBench) -> Result<Vec<Section>> {
    let (mut starts, mut memory) = (Vec::new(), Vec::new());
    for kind in START_KINDS {
        for (count, max_megabytes) in TOOL_COUNTS.into_iter().zip(MAX_IDLE_MEGABYTES) {
            let what = kind.describe(count);
            let max_megabytes = kind.has_memory_goal().then_some(max_megabytes);
            match bench.programs.find(kind.peer()) {
                Some(program) => {
                    eprintln!("start with {what} …");
                    let projects = kind.projects(program, count)?;
                    starts.extend(start_rows(kind, &what, &projects, bench)?);
                    memory.push(memory_row(kind, what, max_megabytes, &projects)?);
                }
                None => {
                    let goal = Some(PeerGoal::Ratio(kind.max_ratio()));
                    let names = [what.clone(), cpu_name(&what)];
                    starts.extend(names.map(|name| row_without_peer(name, kind.peer(), goal)));
                    let row = row_without_peer(what, kind.peer(), None);
                    memory.push(row.not_measured(max_megabytes.map(memory_goal)));
                }
            }
        }
    }
    Ok(vec![
        Section {
            title: "Start to the first answer",
            about: "From the start of the process to the first right answer of a tool, wall time \
                    and CPU. Lua tools are asked over REST, the others over stdio. Moonlark has \
                    never seen the folder before its first start, and finds there at the later \
                    ones what it wrote.",
            rows: starts,
        },
        Section {
            title: "Idle memory",
            about: "Resident memory of the gateway's process when it has answered one call and \
                    has nothing more to do. Beside it, that of all its processes, with pages that \
                    they share counted once.",
            rows: memory,
        },
    ])
}

fn start_rows(
    kind: StartKind,
    what: &str,
    [ours, theirs]: &[PeerProject; 2],
    bench: &PeerBench,
) -> Result<Vec<Row>> {
    let first_answer = |project, is_peer| Ok(StartedServer::start(kind, project, is_peer)?.1);
    let rounds = in_peer_turns(
        bench.effort.rounds.max(MIN_STARTS),
        || first_answer(ours, false),
        || first_answer(theirs, true),
    )?;
    let goal = Some(PeerGoal::Ratio(kind.max_ratio()));
    let row = |name: String, figure| rounds.row(name, figure, goal).reason(kind.start_reason());
    Ok(vec![row(what.to_owned(), Figure::Wall), row(cpu_name(what), Figure::Cpu)])
}

fn cpu_name(what: &str) -> String {
    format!("{what}: CPU")
}

fn memory_row(
    kind: StartKind,
    what: String,
    max_megabytes: Option<f64>,
    [ours, theirs]: &[PeerProject; 2],
) -> Result<Row> {
    let (ours, _) = StartedServer::start(kind, ours, false)?;
    let (theirs, _) = StartedServer::start(kind, theirs, true)?;
    let ([our_process, our_group], [their_process, their_group]) =
        (ours.idle_memory()?, theirs.idle_memory()?);
    let row = Row::new(what)
        .ratio(times(our_process / their_process))
        .figures(bytes(our_process), bytes(their_process))
        .cpu(format!("all processes {} : {}", bytes(our_group), bytes(their_group)))
        .reason(MEMORY_REASON);
    Ok(match max_megabytes {
        Some(most) => row.goal(memory_goal(most), our_process <= most * MEGABYTE),
        None => row,
    })
}

fn memory_goal(most: f64) -> String {
    format!("≤ {most:.0} MB")
}

/// A server that has answered.
enum StartedServer {
    Http(Server),
    Pipe(SessionClient),
}

impl StartedServer {
    /// Returns what it took until its first answer, too.
    fn start(
        kind: StartKind,
        project: &PeerProject,
        is_peer: bool,
    ) -> Result<(StartedServer, OperationCost)> {
        let began = Instant::now();
        let server = match kind {
            StartKind::LuaTools => {
                let stream: AnnouncedOn =
                    if is_peer { CONTEXT_HARNESS_STREAM } else { MOONLARK_STREAM };
                let server = Server::start_announced(project.command(), stream)?;
                ask_echo(&server)?;
                StartedServer::Http(server)
            }
            StartKind::StarlarkFiles => {
                let mut client = SessionClient::start(project.command())?;
                call_echo(&mut client, ANSWER)?;
                StartedServer::Pipe(client)
            }
            StartKind::Upstream => {
                let mut client = SessionClient::start(project.command())?;
                let tool = if is_peer { "execute_script" } else { "execute" };
                let script = "return sdk.echo.echo({ message = \"hello\" }).echo";
                client.call(tool, &script_arguments(script), ANSWER)?;
                StartedServer::Pipe(client)
            }
        };
        let wall = began.elapsed().as_secs_f64();
        let cpu = group_cpu(server.pid())?.as_secs_f64();
        Ok((server, OperationCost { cpu, wall }))
    }

    fn pid(&self) -> u32 {
        match self {
            StartedServer::Http(server) => server.pid(),
            StartedServer::Pipe(client) => client.pid(),
        }
    }

    /// Of its process, and of all it started, in bytes.
    fn idle_memory(&self) -> Result<[f64; 2]> {
        settle(self.pid())?;
        std::thread::sleep(IDLE_TIME);
        let process = process::status(self.pid())?.resident;
        Ok([process as f64, group_memory(self.pid())? as f64])
    }
}
