//! A Starlark tool over stdio, and how soon an edited one is in use, beside starlark-mcp.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::echo::ANSWER;
use crate::report::{Row, Section};

use super::PeerBench;
use super::instructions::{compare_instructions, count_over_stdio};
use super::programs::Peer;
use super::projects::{PeerProject, edit_starlark_echo};
use super::session_client::SessionClient;
use super::turns::{
    Figure, OperationCost, PeerGoal, in_peer_turns, repeat_operation, row_without_peer,
};

const MAX_CALL_SECONDS: f64 = 50e-6;
const MAX_EDIT_SECONDS: f64 = 5e-3;
/// Edits of each, one after the other.
const EDIT_COUNT: u32 = 20;
/// How often it is asked whether the new version is there.
const EDIT_POLL_INTERVAL: Duration = Duration::from_micros(300);
const EDIT_TIMEOUT: Duration = Duration::from_secs(20);
/// Calls that callgrind counts.
const COUNTED_CALLS: u64 = 300;

const CALL_NAME: &str = "a call, workers counted";
const EDIT_NAME: &str = "from an edit to the first answer of the new version";

pub(super) fn measure(bench: &PeerBench) -> Result<Vec<Section>> {
    Ok(vec![Section {
        title: "A Starlark tool over stdio, beside starlark-mcp",
        about: "The same file in both. The call: CPU, one at a time. Moonlark evaluates Starlark \
                in worker processes, because only a process can be held to a memory limit; \
                starlark-mcp evaluates in its own and has no limits. The edit: wall time from \
                writing the file in place, with the new version asked for over and over, each \
                after a quiet moment.",
        rows: rows(bench)?,
    }])
}

fn rows(bench: &PeerBench) -> Result<Vec<Row>> {
    let (call_goal, edit_goal) =
        (Some(PeerGoal::Seconds(MAX_CALL_SECONDS)), Some(PeerGoal::Seconds(MAX_EDIT_SECONDS)));
    let Some(program) = bench.programs.find(Peer::StarlarkMcp) else {
        let row = |what, goal| row_without_peer(what, Peer::StarlarkMcp, goal);
        return Ok(vec![row(CALL_NAME, call_goal), row(EDIT_NAME, edit_goal)]);
    };
    let moonlark = PeerProject::moonlark_with_starlark(1)?;
    let peer = PeerProject::starlark_mcp(program, 1)?;
    let ours = RefCell::new(SessionClient::start(moonlark.command())?);
    let theirs = RefCell::new(SessionClient::start(peer.command())?);

    eprintln!("{CALL_NAME} …");
    let call = |client: &RefCell<SessionClient>| {
        let mut client = client.borrow_mut();
        repeat_operation(client.pid(), bench.effort, || call_echo(&mut client, ANSWER))
    };
    let calls = in_peer_turns(bench.effort.rounds, || call(&ours), || call(&theirs))?;
    let mut beside = calls.beside(Figure::Wall);
    if bench.with_instructions {
        let count = |project: &PeerProject| {
            count_over_stdio(project, COUNTED_CALLS, |client, _| {
                call_echo(client, ANSWER).map(drop)
            })
        };
        let (ours, theirs) = (count(&moonlark)?, count(&peer)?);
        beside = format!("{beside}; {}", compare_instructions(ours, theirs));
    }

    eprintln!("{EDIT_NAME} …");
    let mut version = 0;
    let versions = RefCell::new(&mut version);
    let edit = |project: &PeerProject, client: &RefCell<SessionClient>| {
        let mut version = versions.borrow_mut();
        **version += 1;
        edit_echo(project, &mut client.borrow_mut(), **version)
    };
    let edits = in_peer_turns(EDIT_COUNT, || edit(&moonlark, &ours), || edit(&peer, &theirs))?;
    Ok(vec![
        calls.row(CALL_NAME, Figure::Cpu, call_goal).cpu(beside).reason(CALL_REASON),
        edits.row(EDIT_NAME, Figure::Wall, edit_goal).reason(EDIT_REASON),
    ])
}

const CALL_REASON: &str = "The call goes to a worker process and back: the price of a memory limit that \
     holds.";
const EDIT_REASON: &str = "The file is evaluated in a worker process, and all tools are published at once, \
     so that no call sees half of a change.";

/// Until the new version answers. Its CPU is that of the questions, and is not used.
fn edit_echo(
    project: &PeerProject,
    client: &mut SessionClient,
    version: u32,
) -> Result<OperationCost> {
    let prefix = format!("Version {version}: ");
    let began = Instant::now();
    edit_starlark_echo(project, &prefix)?;
    while call_echo(client, &format!("{prefix}hello")).is_err() {
        ensure!(began.elapsed() < EDIT_TIMEOUT, "the new version was never in use");
        std::thread::sleep(EDIT_POLL_INTERVAL);
    }
    Ok(OperationCost { cpu: 0.0, wall: began.elapsed().as_secs_f64() })
}

pub(super) fn call_echo(client: &mut SessionClient, expect: &str) -> Result<Duration> {
    client.call("echo", &echo_arguments(), expect)
}

fn echo_arguments() -> Value {
    json!({"message": "hello"})
}
