//! A Lua tool over REST, beside Context Harness.

use std::process::Command;

use anyhow::Result;

use crate::echo;
use crate::http::Connection;
use crate::old_clients::block_on;
use crate::report::{Row, Section};
use crate::server::{AnnouncedOn, Server};
use crate::upstream_load::{Processes, over_http};
use crate::upstream_path::processes;

use super::PeerBench;
use super::instructions::{compare_instructions, count_over_http};
use super::programs::Peer;
use super::projects::PeerProject;
use super::turns::{Figure, OperationCost, in_peer_turns, row_without_peer};

const CLIENTS: [usize; 2] = [1, 16];
/// Requests that callgrind counts.
const COUNTED_REQUESTS: u64 = 500;

/// Where each says that it listens.
pub(super) const MOONLARK_STREAM: AnnouncedOn = AnnouncedOn::Stderr;
pub(super) const CONTEXT_HARNESS_STREAM: AnnouncedOn = AnnouncedOn::Stdout;

pub(super) fn measure(bench: &PeerBench) -> Result<Vec<Section>> {
    Ok(vec![Section {
        title: "A Lua tool over REST, beside Context Harness",
        about: "`POST /tools/echo`, answered by the same Lua script of the same text. The first \
                column is CPU. Moonlark validates the arguments, limits time and memory of the \
                script and records the call.",
        rows: rows(bench)?,
    }])
}

fn rows(bench: &PeerBench) -> Result<Vec<Row>> {
    let what = |clients: usize| match clients {
        1 => "1 client".to_owned(),
        _ => format!("{clients} clients"),
    };
    let Some(program) = bench.programs.find(Peer::ContextHarness) else {
        let row = |clients| row_without_peer(what(clients), Peer::ContextHarness, None);
        return Ok(CLIENTS.into_iter().map(row).collect());
    };
    let moonlark = PeerProject::moonlark_with_lua_tools(1)?;
    let peer = PeerProject::context_harness(program, 1)?;
    let ours = RestServer::start(moonlark.command(), MOONLARK_STREAM)?;
    let theirs = RestServer::start(peer.command(), CONTEXT_HARNESS_STREAM)?;
    let mut rows = Vec::new();
    for clients in CLIENTS {
        eprintln!("a Lua tool over REST, {} …", what(clients));
        let load = |server: &RestServer| server.load(clients, bench);
        let rounds = in_peer_turns(bench.effort.rounds, || load(&ours), || load(&theirs))?;
        let mut beside = rounds.beside(Figure::Wall);
        if bench.with_instructions && clients == 1 {
            let count = |project: &PeerProject, stream| {
                count_over_http(project, stream, COUNTED_REQUESTS, ask_echo)
            };
            let (ours, theirs) =
                (count(&moonlark, MOONLARK_STREAM)?, count(&peer, CONTEXT_HARNESS_STREAM)?);
            beside = format!("{beside}; {}", compare_instructions(ours, theirs));
        }
        rows.push(rounds.row(what(clients), Figure::Cpu, None).cpu(beside));
    }
    Ok(rows)
}

struct RestServer {
    server: Server,
    processes: Processes,
}

impl RestServer {
    fn start(command: Command, stream: AnnouncedOn) -> Result<RestServer> {
        let server = Server::start_announced(command, stream)?;
        ask_echo(&server)?;
        let processes = processes(server.pid())?;
        Ok(RestServer { server, processes })
    }

    fn load(&self, clients: usize, bench: &PeerBench) -> Result<OperationCost> {
        let (address, requests) = (self.server.address, [echo::rest()]);
        let sample = over_http(address, &requests, clients, &self.processes, bench.effort)?;
        Ok(OperationCost { cpu: sample.gateway / 1e6, wall: sample.p50 / 1e6 })
    }
}

/// One call of the tool.
pub(super) fn ask_echo(server: &Server) -> Result<()> {
    block_on(async {
        Connection::open(server.address).await?.ask(&echo::rest()).await?;
        Ok(())
    })
}
