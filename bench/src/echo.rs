//! An echo tool through every way in, as fast as it goes.

use std::process::Command;

use anyhow::Result;
use serde_json::{Value, json};

use super::http::{self, Request};
use super::report::{Row, Section};
use super::rounds::in_turns;
use super::server::{Server, beside};
use super::{Effort, old_clients, scripts, stdio};

pub(super) const ANSWER: &str = "Echo: hello";
const VERSION: &str = "2026-07-28";

pub(super) fn run(effort: Effort) -> Result<Vec<Section>> {
    let project = scripts::project(1)?;
    let moonlark = Server::moonlark(project.path())?;
    let axum = Server::floor(&["floor-axum"])?;
    let rmcp = Server::floor(&["floor-rmcp"])?;
    let against = |floor: &Server, request: &Request, connections| {
        let load = |server: &Server| {
            http::load(server.address, server.pid(), request, connections, effort)
        };
        in_turns(effort.rounds, || load(&moonlark), || load(floor))
    };

    eprintln!("echo over REST …");
    let one = against(&axum, &rest(), 1)?;
    let many = against(&axum, &rest(), 16)?;
    let rest = Section {
        title: "Echo over REST",
        about: "`POST /tools/echo`, answered by a Lua script, against a bare axum route that \
                parses and writes the same JSON.",
        rows: vec![
            Row::new("1 client").throughput(&one),
            Row::new("16 clients").throughput(&many).goal("≥ 40 %", many.speed >= 0.40),
        ],
    };

    eprintln!("echo over MCP …");
    let over_http = against(&rmcp, &mcp(&call(1)), 16)?;
    let over_stdio = in_turns(
        effort.rounds,
        || {
            let mut command = Command::new(beside("moonlark")?);
            command.args(["stdio", "--quiet"]).current_dir(project.path());
            stdio::load(command, call, ANSWER, effort)
        },
        || {
            let mut command = Command::new(beside("moonlark-bench")?);
            command.args(["floor-rmcp", "--stdio"]);
            stdio::load(command, call, ANSWER, effort)
        },
    )?;
    let mcp = Section {
        title: "Echo over MCP",
        about: "`tools/call` of 2026-07-28, answered by a Lua script, against a bare rmcp server \
                with a native echo tool and the same settings.",
        rows: vec![
            Row::new("HTTP, 16 clients")
                .throughput(&over_http)
                .goal("≥ 70 %", over_http.speed >= 0.70),
            Row::new(format!("stdio, {} in flight", stdio::IN_FLIGHT))
                .throughput(&over_stdio)
                .goal("≥ 70 %", over_stdio.speed >= 0.70),
        ],
    };
    Ok(vec![rest, mcp, old_clients::with_script_tool(effort)?])
}

/// The echo call over REST.
pub(super) fn rest() -> Request {
    Request::post("/tools/echo", &[], &json!({"message": "hello"}), ANSWER)
}

/// A message over MCP, with the headers that 2026-07-28 asks for.
pub(super) fn mcp(message: &Value) -> Request {
    mcp_at("/mcp", message)
}

pub(super) fn mcp_at(path: &str, message: &Value) -> Request {
    let method = message["method"].as_str().unwrap_or_default();
    let mut headers = vec![
        ("Accept", "application/json, text/event-stream"),
        ("MCP-Protocol-Version", VERSION),
        ("Mcp-Method", method),
    ];
    headers.extend(message["params"]["name"].as_str().map(|name| ("Mcp-Name", name)));
    let expect = if method == "tools/call" { ANSWER } else { "\"tools\"" };
    Request::post(path, &headers, message, expect)
}

/// The echo call over MCP.
pub(super) fn call(id: usize) -> Value {
    call_of("echo", id)
}

/// The same, of a tool that is called otherwise.
pub(super) fn call_of(name: &str, id: usize) -> Value {
    tool_call(id, name, json!({"message": "hello"}))
}

pub(super) fn tool_call(id: usize, name: &str, arguments: Value) -> Value {
    request(id, "tools/call", json!({"name": name, "arguments": arguments}))
}

pub(super) fn list(id: usize) -> Value {
    request(id, "tools/list", json!({}))
}

fn request(id: usize, method: &str, mut params: Value) -> Value {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    });
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}
