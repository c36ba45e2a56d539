//! Old versions of the official SDKs, as they are in use: what they connect to, list and
//! call works, they go on after a restart, and nothing makes them log an error.
//!
//! `old_clients/install.sh` installs them into `target/old_clients`. The programs in
//! `old_clients/` print one line for each step, and whatever their SDK logs; here is which
//! lines there must be.

use std::io::Write;
use std::process::{Child, Command, Stdio};

use crate::harness::{Log, Project, Server, moonlark, repo};

const ECHO: &str = include_str!("old_clients/project/echo.lua");

/// Kinds of content of a version of the protocol.
const BEFORE_LINKS: &str = "content text image resource text";
const WITH_LINKS: &str = "content text image resource resource_link";

/// What a version of an SDK does.
struct OldSdk {
    /// How it says that it is connected.
    connected: &'static str,
    failed: &'static str,
    content: &'static str,
    sound: &'static str,
}

const PYTHON_1_9: OldSdk = OldSdk {
    connected: "connected 2025-03-26",
    failed: "failed True",
    content: BEFORE_LINKS,
    // Its own fault: the version that it speaks has audio, and its types have not.
    sound: "sound ValidationError",
};
const PYTHON_1_12: OldSdk = OldSdk {
    connected: "connected 2025-06-18",
    failed: "failed True",
    content: WITH_LINKS,
    sound: "sound audio",
};
const PYTHON_1_26: OldSdk = OldSdk { connected: "connected 2025-11-25", ..PYTHON_1_12 };
/// It speaks 2024-11-05, and so does 1.10.
const TYPESCRIPT_1_0: OldSdk = OldSdk {
    connected: "connected",
    failed: "failed true",
    content: BEFORE_LINKS,
    sound: "sound resource",
};
const TYPESCRIPT_1_20: OldSdk =
    OldSdk { content: WITH_LINKS, sound: "sound audio", ..TYPESCRIPT_1_0 };

#[test]
#[ignore = "needs tests/old_clients/install.sh: run ./test"]
fn python_1_9() {
    over_http(python("1.9"), &PYTHON_1_9);
    over_stdio(python("1.9"), &PYTHON_1_9);
}

#[test]
#[ignore = "needs tests/old_clients/install.sh: run ./test"]
fn python_1_12() {
    over_http(python("1.12"), &PYTHON_1_12);
    over_stdio(python("1.12"), &PYTHON_1_12);
}

#[test]
#[ignore = "needs tests/old_clients/install.sh: run ./test"]
fn python_1_26() {
    over_http(python("1.26"), &PYTHON_1_26);
    over_stdio(python("1.26"), &PYTHON_1_26);
}

/// It has no HTTP but SSE.
#[test]
#[ignore = "needs tests/old_clients/install.sh: run ./test"]
fn typescript_1_0() {
    over_stdio(typescript("sdk-1.0"), &TYPESCRIPT_1_0);
}

#[test]
#[ignore = "needs tests/old_clients/install.sh: run ./test"]
fn typescript_1_10() {
    over_http(typescript("sdk-1.10"), &TYPESCRIPT_1_0);
    over_stdio(typescript("sdk-1.10"), &TYPESCRIPT_1_0);
}

#[test]
#[ignore = "needs tests/old_clients/install.sh: run ./test"]
fn typescript_1_20() {
    over_http(typescript("sdk-1.20"), &TYPESCRIPT_1_20);
    over_stdio(typescript("sdk-1.20"), &TYPESCRIPT_1_20);
}

fn project() -> Project {
    Project::new(&[
        ("tools/echo.lua", ECHO),
        ("extensions/gallery.star", include_str!("old_clients/project/gallery.star")),
    ])
}

fn installed() -> std::path::PathBuf {
    let script = repo().join("tests/old_clients/install.sh");
    let check = Command::new("sh").arg(script).arg("--check").output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    repo().join("target/old_clients")
}

fn python(version: &str) -> Command {
    let mut command = Command::new(installed().join(format!("python-{version}/bin/python")));
    command.arg(repo().join("tests/old_clients/check.py"));
    command
}

fn typescript(package: &str) -> Command {
    let mut command = Command::new("node");
    command.arg(repo().join("tests/old_clients/check.mjs")).arg(installed()).arg(package);
    command
}

fn over_http(mut client: Command, sdk: &OldSdk) {
    let project = project();
    let mut server = project.serve();
    let port = server.address.rsplit(':').next().unwrap().to_owned();
    client.args(["http", &server.url("/mcp")]);
    let (mut child, lines) = start(client);
    let said = follow(&lines, |line| match line {
        "change…" => project.write("tools/late.lua", &ECHO.replace("echo", "late")),
        "restart…" => {
            server.stop();
            let command = &mut moonlark();
            command.args(["serve", "--port", &port]).current_dir(project.path(""));
            server = Server::start(command);
            child.stdin.as_mut().unwrap().write_all(b"restarted\n").unwrap();
        }
        _ => {}
    });
    let restarted = ["restart…", "called again"];
    assert_eq!(said, expected(sdk, &restarted), "over HTTP");
    child.wait().unwrap();
}

fn over_stdio(mut client: Command, sdk: &OldSdk) {
    let project = project();
    client.arg("stdio").arg(moonlark().get_program()).arg(project.path(""));
    let (mut child, lines) = start(client);
    let said = follow(&lines, |line| {
        if line == "change…" {
            project.write("tools/late.lua", &ECHO.replace("echo", "late"));
        }
    });
    assert_eq!(said, expected(sdk, &[]), "over stdio");
    child.wait().unwrap();
}

fn start(mut client: Command) -> (Child, Log) {
    client.env("HOME", "/nonexistent").env("NO_COLOR", "1").env("NO_PROXY", "127.0.0.1");
    client.env_remove("MOONLARK_LOG").env_remove("XDG_CONFIG_HOME").env("PYTHONUTF8", "1");
    let mut child = client
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let lines = Log::follow(child.stdout.take().unwrap());
    (child, lines)
}

/// All lines until the end.
fn follow(lines: &Log, mut hear: impl FnMut(&str)) -> Vec<String> {
    let mut said = Vec::new();
    loop {
        let line = lines.next();
        if line == "end" {
            return said;
        }
        hear(&line);
        said.push(line);
    }
}

fn expected(sdk: &OldSdk, restarted: &[&str]) -> Vec<String> {
    let before = [
        sdk.connected,
        "listed echo gallery sound",
        "called hi",
        sdk.failed,
        sdk.content,
        sdk.sound,
        "change…",
        "told of a change",
    ];
    before.iter().chain(restarted).chain(&["closed"]).map(|line| (*line).to_owned()).collect()
}
