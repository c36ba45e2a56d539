//! Runs that end before their calls do: whatever ends them, what they started
//! is cancelled, and the server behind is told.

use std::io::Write;
use std::net::TcpStream;

use serde_json::json;

use super::upstream::{Offer, Reply, Upstream, text};
use super::world::{Era, Ran, World, server};
use crate::harness::{Project, eventually, modern, moonlark};

fn upstream() -> Upstream {
    Upstream::start(vec![
        Offer::new("never", json!({}), |_| Reply::Never),
        Offer::of("echo", text("here")),
        Offer::new("third", json!({}), |_| Reply::Together(3, text("all are here"))),
        Offer::of("fails", json!({"content": [], "isError": true})),
    ])
}

/// As many calls were made, and all were cancelled.
fn cancelled(upstream: &Upstream, calls: usize) {
    upstream.wait_until("the calls are given up", |seen| seen.given_up == calls);
    upstream.wait_until("the server is told", |seen| seen.cancelled.len() == calls);
    assert_eq!(upstream.called("never"), calls);
    assert_eq!(upstream.seen().inside, 0);
}

/// Two calls, and a third that is answered when the server has all of them.
const STARTED: &str = "local a, b = far.never(), far.never()\nsdk.far.third()\n";

#[test]
fn a_script_that_returns_before_it_awaits() {
    let upstream = upstream();
    let world = World::new(&[("far", &upstream)]);
    let ran = world.run(&format!("{STARTED} return 'enough'"));
    assert_eq!(ran.value(), json!("enough"));
    cancelled(&upstream, 2);
    // The trace says so.
    let calls = ran.about()["calls"].as_array().unwrap().iter();
    let calls: Vec<_> = calls.map(|it| (it["tool"].clone(), it["outcome"].clone())).collect();
    let count = |tool: &str, outcome: &str| {
        calls.iter().filter(|it| **it == (json!(tool), json!(outcome))).count()
    };
    assert_eq!((count("far.never", "cancelled"), count("far.third", "ok")), (2, 1), "{calls:?}");
}

#[test]
fn a_script_that_raises() {
    let upstream = upstream();
    let world = World::with("[execute]\ncheck = \"off\"", &[("far", &upstream)]);
    world.run(&format!("{STARTED} error('enough')")).fails("tool_error", &["enough"]);
    cancelled(&upstream, 2);
    // A promise is no value yet.
    world.run(&format!("{STARTED} return a.value")).fails("tool_error", &["await"]);
    cancelled(&upstream, 4);
    world.run(&format!("{STARTED} return a .. 'x'")).fails("tool_error", &["await"]);
    cancelled(&upstream, 6);
    // One that fails while the others still run.
    world.run(&format!("{STARTED} await_all({{ a, far.fails(), b }})")).0.unwrap();
    cancelled(&upstream, 8);
}

#[test]
fn calls_that_waited_for_their_turn_are_not_made_when_the_run_is_over() {
    let upstream = upstream();
    let config = "[limits]\ncalls = 2000\nparallel = 4\ntimeout = 2";
    let world = World::with(config, &[("far", &upstream)]);
    // Long enough to have a few in flight and many behind them.
    let many = "for _ = 1, 1000 do far.never() end sleep(0.3)";
    let ends = ["return 1", "error('enough')", "while true do end", "sleep(60)"];
    let before = upstream.called("never");
    let mut made = Vec::new();
    for end in ends {
        let _ = world.run(&format!("{many} {end}")).0;
        upstream.wait_until("nothing is inside", |seen| seen.inside == 0);
        made.push(upstream.called("never") - before);
    }
    // What was sent may arrive on a busy machine when the next script runs.
    assert!(made.iter().all(|made| *made <= 4 * ends.len()), "calls made so far: {made:?}");
    assert!(made[0] <= 4, "calls made: {made:?}");
}

#[test]
fn a_script_whose_time_is_over() {
    let upstream = upstream();
    let world = World::with("[limits]\ntimeout = 1", &[("far", &upstream)]);
    world.run("return sdk.far.never()").fails("timeout", &["1 second"]);
    cancelled(&upstream, 1);
    world.run("return far.never():await()").fails("timeout", &["1 second"]);
    cancelled(&upstream, 2);
    // Nor does it help to catch it, or to compute on.
    let script = "
        far.never()
        while true do pcall(function() far.never():await() end) end";
    world.run(script).fails("timeout", &[]);
    upstream.wait_until("nothing is inside", |seen| seen.inside == 0);
    world.run(&format!("{STARTED} while true do end")).fails("timeout", &[]);
    upstream.wait_until("nothing is inside", |seen| seen.inside == 0);
    assert_eq!(world.value("return sdk.far.echo()"), json!("here"));
}

#[test]
fn a_script_that_is_asked_to_be_quick() {
    let upstream = upstream();
    let world = World::new(&[("far", &upstream)]);
    let args = json!({"script": "return sdk.far.never()", "timeout": 0.5});
    let ran = Ran(world.call(Era::New, "execute", args));
    ran.fails("timeout", &["0.5 seconds"]);
    cancelled(&upstream, 1);
}

#[test]
fn a_caller_that_goes_away() {
    let upstream = upstream();
    let world = World::new(&[("far", &upstream)]);
    let script = "far.never() far.never() return sdk.far.never()";
    for path in ["/tools/execute", "/mcp"] {
        let before = upstream.called("never");
        let body = match path {
            "/mcp" => {
                modern(1, "tools/call", json!({"name": "execute", "arguments": {"script": script}}))
            }
            _ => json!({ "script": script }),
        };
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
             Mcp-Method: tools/call\r\nMcp-Name: execute\r\nContent-Length: {}\r\n\r\n",
            world.server.address,
            body.len()
        );
        let mut stream = TcpStream::connect(&world.server.address).unwrap();
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        upstream.wait_until("the calls arrive", |seen| seen.calls.len() == before + 3);
        drop(stream);
        cancelled(&upstream, before + 3);
    }
}

#[test]
fn a_client_that_cancels_over_stdio() {
    let upstream = upstream();
    let project = Project::new(&[]);
    project.write("moonlark.toml", &server("far", &upstream, ""));
    let mut client = project.stdio();
    // It waits until the server is there.
    let params = json!({"name": "execute", "arguments": {"script": "return sdk.far.echo()"}});
    let answer = client.request("tools/call", params);
    assert_eq!(answer["result"]["content"][0]["text"], "here", "{answer}");
    let script = "far.never() return sdk.far.never()";
    let params = json!({"name": "execute", "arguments": {"script": script}});
    let request = modern(77, "tools/call", params);
    client.send_raw(format!("{request}\n").as_bytes());
    upstream.wait_until("the calls arrive", |seen| seen.calls.len() == 3);
    let cancel = json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77},
    });
    client.send_raw(format!("{cancel}\n").as_bytes());
    cancelled(&upstream, 2);
    let params = json!({"name": "execute", "arguments": {"script": "return sdk.far.echo()"}});
    assert_eq!(client.request("tools/call", params)["result"]["content"][0]["text"], "here");
    assert_eq!(client.close(), 0);
}

#[test]
fn a_command_line_that_is_interrupted() {
    let upstream = upstream();
    let project = Project::new(&[]);
    project.write("moonlark.toml", &server("far", &upstream, ""));
    let mut child = moonlark()
        .args(["call", "execute", "--param", "script=far.never() return sdk.far.never()"])
        .current_dir(project.path(""))
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    upstream.wait_until("the calls arrive", |seen| seen.calls.len() == 2);
    // SAFETY: the process is our child and was not waited for.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    assert!(!child.wait().unwrap().success());
    upstream.wait_until("the calls are given up", |seen| seen.given_up == 2);
}

#[test]
fn a_server_on_standard_input_is_told_too() {
    let project = Project::new(&[]);
    let tests = std::env::current_exe().unwrap();
    let faulty = tests.parent().unwrap().parent().unwrap().join("examples/faulty");
    assert!(faulty.exists(), "run: cargo build -p moonlark --example faulty");
    let count = project.path("count");
    let config = format!(
        "[mcp_servers.far]\ncommand = {faulty:?}\nargs = [\"healthy\"]\nenv = {{ COUNT_FILE = {count:?} }}\n"
    );
    let world = World::of(project, &config, &[]);
    let lines = |line: &str| {
        let text = std::fs::read_to_string(&count).unwrap_or_default();
        text.lines().filter(|it| *it == line).count()
    };
    let script = "local a, b = far.hang(), far.hang() return { sdk.far.slow() }";
    assert_eq!(world.value(script), json!(["done"]));
    assert_eq!(lines("call hang"), 2);
    eventually("both are cancelled", || match lines("cancelled") {
        2 => Ok(()),
        other => Err(other.to_string()),
    });
}
