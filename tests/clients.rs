//! Official MCP clients, which nobody here wrote, against the server.
//!
//! `clients/install.sh` installs them into `target/clients`. The programs in
//! `clients/` print one line for each check that went well; here is which lines
//! there must be.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::harness::{Project, moonlark, repo};

const LEGACY: &[&str] = &["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
const ALL: &[&str] = &["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"];

/// What the programs check in each version, in order.
const CHECKS: &[&str] = &[
    "connect",
    "list_tools",
    "call",
    "validated_call",
    "refused_call",
    "content_call",
    "unknown_tool",
    "log_messages",
    "progress",
    "cancel",
    "tools_changed",
    "disconnect",
];

#[test]
#[ignore = "needs tests/clients/install.sh: run ./test"]
fn python_over_http() {
    over_http(python(), ALL);
}

#[test]
#[ignore = "needs tests/clients/install.sh: run ./test"]
fn python_over_stdio() {
    over_stdio(python(), ALL);
}

#[test]
#[ignore = "needs tests/clients/install.sh: run ./test"]
fn typescript_v1_over_http() {
    over_http(typescript("v1"), LEGACY);
}

#[test]
#[ignore = "needs tests/clients/install.sh: run ./test"]
fn typescript_v1_over_stdio() {
    over_stdio(typescript("v1"), LEGACY);
}

#[test]
#[ignore = "needs tests/clients/install.sh: run ./test"]
fn typescript_v2_over_http() {
    over_http(typescript("v2"), ALL);
}

#[test]
#[ignore = "needs tests/clients/install.sh: run ./test"]
fn typescript_v2_over_stdio() {
    over_stdio(typescript("v2"), ALL);
}

#[test]
#[ignore = "needs tests/clients/install.sh: run ./test"]
fn inspector_over_http() {
    let project = project();
    let server = project.serve();
    inspect(&project, &[&server.url("/mcp"), "--transport", "http"]);
}

#[test]
#[ignore = "needs tests/clients/install.sh: run ./test"]
fn inspector_over_stdio() {
    let project = project();
    let folder = project.path("");
    let binary = moonlark();
    let binary = binary.get_program().to_str().unwrap();
    inspect(&project, &[binary, "stdio", "--cwd", folder.to_str().unwrap()]);
}

/// The example tools, and one that takes long.
fn project() -> Project {
    Project::new(&[
        ("moonlark.toml", include_str!("clients/project/moonlark.toml")),
        ("tools/linger.lua", include_str!("clients/project/tools/linger.lua")),
        ("extensions/gallery.star", include_str!("clients/project/extensions/gallery.star")),
        ("tools/countdown.lua", include_str!("../examples/tools/countdown.lua")),
        ("tools/echo.lua", include_str!("../examples/tools/echo.lua")),
        ("tools/text_stats.lua", include_str!("../examples/tools/text_stats.lua")),
    ])
}

fn python() -> Command {
    let mut command = client(installed().join("python/bin/python"));
    command.arg(repo().join("tests/clients/check.py"));
    command
}

fn typescript(generation: &str) -> Command {
    installed();
    let mut command = client("node");
    command.arg(repo().join("tests/clients/check.mjs")).arg(generation);
    command
}

/// Where the clients are; fails when they are not.
fn installed() -> PathBuf {
    let script = repo().join("tests/clients/install.sh");
    let check = Command::new("sh").arg(script).arg("--check").output().unwrap();
    assert!(check.status.success(), "{}", both(&check));
    repo().join("target/clients")
}

/// A program in an environment without surprises.
fn client(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("HOME", "/nonexistent").env("NO_COLOR", "1").env("NO_PROXY", "127.0.0.1");
    command.env_remove("MOONLARK_LOG").env_remove("XDG_CONFIG_HOME");
    command
}

/// The client finds the server by its address.
fn over_http(mut client: Command, versions: &[&str]) {
    let project = project();
    let server = project.serve();
    client.arg("http").arg(server.url("/mcp")).arg(project.path(""));
    all_is_well(&client.output().unwrap(), versions);
}

/// The client starts the server.
fn over_stdio(mut client: Command, versions: &[&str]) {
    let project = project();
    client.arg("stdio").arg(moonlark().get_program()).arg(project.path(""));
    all_is_well(&client.output().unwrap(), versions);
}

fn all_is_well(output: &Output, versions: &[&str]) {
    let lines = |version| CHECKS.iter().map(move |check| format!("ok {version} {check}\n"));
    let expected: String = versions.iter().flat_map(lines).collect();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said == expected, "{}", both(output));
}

fn both(output: &Output) -> String {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// The Inspector's command line, in both eras of the protocol.
fn inspect(project: &Project, server: &[&str]) {
    let expected: Value = serde_json::from_str(include_str!("clients/expected.json")).unwrap();
    let program = installed().join("node_modules/.bin/mcp-inspector");
    for era in ["legacy", "modern"] {
        let run = |method: &[&str], code: i32| -> Value {
            let output = client(&program)
                .env("HOME", project.path(""))
                .arg("--cli")
                .args(server)
                .args(["--protocol-era", era, "--format", "json"])
                .args(method)
                .output()
                .unwrap();
            assert_eq!(output.status.code(), Some(code), "{}", both(&output));
            serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", both(&output)))
        };

        // `--strict` fails for schemas that some clients cannot take.
        let list = run(&["--method", "tools/list", "--strict"], 0);
        let tools = list["result"]["tools"].as_array().unwrap();
        let names: Vec<&Value> = tools.iter().map(|tool| &tool["name"]).collect();
        assert_eq!(json!(names), expected["tools"], "{era}");
        let echo = tools.iter().find(|tool| tool["name"] == "echo").unwrap();
        assert_eq!(echo["inputSchema"], expected["schema"], "{era}");

        // A result that is an error ends the Inspector with 5.
        for (call, code) in [("call", 0), ("refused_call", 5)] {
            let call = &expected[call];
            let mut method = vec!["--method", "tools/call", "--tool-name"];
            method.push(call["tool"].as_str().unwrap());
            let args: Vec<String> = call["arguments"]
                .as_object()
                .unwrap()
                .iter()
                .map(|(name, value)| match value.as_str() {
                    Some(text) => format!("{name}={text}"),
                    None => format!("{name}={value}"),
                })
                .collect();
            method.push("--tool-arg");
            method.extend(args.iter().map(String::as_str));
            let mut result = json!({
                "content": [{"type": "text", "text": call["text"]}],
                "structuredContent": call["structured"],
                "isError": call["is_error"],
            });
            // To a server that may answer with a task, the client shows what it has got.
            if era == "modern" {
                result["resultType"] = json!("complete");
            }
            assert_eq!(run(&method, code)["result"], result, "{era}");
        }
    }
}
