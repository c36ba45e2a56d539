//! One call of a tool through each way in, as a client would make it.

use std::path::Path;
use std::process::Stdio;

use moonlark_core::{Problem, Result};
use serde_json::{Value as Json, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

fn call_failure(way: &str) -> impl Fn(std::io::Error) -> Problem + '_ {
    move |error| Problem::unavailable(format!("the call over {way} failed: {error}"))
}

pub(super) async fn call_over_rest(address: &str, tool: &str, args: &Json) -> Result<Json> {
    post_json(address, &format!("/tools/{tool}"), &[], args).await.map_err(call_failure("REST"))
}

pub(super) async fn call_over_mcp_http(address: &str, tool: &str, args: &Json) -> Result<Json> {
    let headers = [
        ("Accept", "application/json, text/event-stream"),
        ("MCP-Protocol-Version", MCP_PROTOCOL_VERSION),
        ("Mcp-Method", "tools/call"),
        ("Mcp-Name", tool),
    ];
    post_json(address, "/mcp", &headers, &tools_call_request(tool, args))
        .await
        .map_err(call_failure("MCP"))
}

const MAX_ANSWER_BYTES: u64 = 1024 * 1024;
const MCP_PROTOCOL_VERSION: &str = "2026-07-28";

/// One call that needs nothing before it.
fn tools_call_request(tool: &str, args: &Json) -> Json {
    json!({
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {
            "name": tool,
            "arguments": args,
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": MCP_PROTOCOL_VERSION,
                "io.modelcontextprotocol/clientCapabilities": {},
                "io.modelcontextprotocol/clientInfo": {"name": "moonlark demo", "version": "1"},
            },
        },
    })
}

/// A request, and no more of its answer than that.
pub(in super::super) async fn request_json(
    address: &str,
    request: &str,
    max_bytes: u64,
) -> std::io::Result<Json> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(max_bytes).read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).map_err(std::io::Error::other)
}

/// One HTTP request on a connection of its own.
async fn post_json(
    address: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &Json,
) -> std::io::Result<Json> {
    let body = body.to_string();
    let extra: String =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n{extra}Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    request_json(address, &request, MAX_ANSWER_BYTES).await
}

pub(super) async fn call_over_mcp_stdio(folder: &Path, tool: &str, args: &Json) -> Result<Json> {
    let talk = async {
        let mut child = moonlark_command(folder)?
            .args(["stdio", "--quiet"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(std::io::Error::other("no pipes"));
        };
        stdin.write_all(format!("{}\n", tools_call_request(tool, args)).as_bytes()).await?;
        let line = BufReader::new(stdout).lines().next_line().await?.unwrap_or_default();
        drop(stdin);
        child.wait().await?;
        serde_json::from_str(&line).map_err(std::io::Error::other)
    };
    talk.await.map_err(call_failure("stdio"))
}

pub(super) async fn call_over_cli(folder: &Path, tool: &str, args: &Json) -> Result<Json> {
    let talk = async {
        let output = moonlark_command(folder)?
            .args(["call", tool, "--json", "--quiet", "--args", &args.to_string()])
            .output()
            .await?;
        serde_json::from_slice(&output.stdout).map_err(std::io::Error::other)
    };
    talk.await.map_err(call_failure("the command line"))
}

fn moonlark_command(folder: &Path) -> std::io::Result<tokio::process::Command> {
    let mut command = tokio::process::Command::new(std::env::current_exe()?);
    command.current_dir(folder);
    Ok(command)
}
