//! The running server of a project: commands and further `stdio` processes use it,
//! so that its upstream servers are started once; and they go on without it.

use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::process::Output;

use serde_json::{Value, json};

use crate::harness::{PATIENCE, Project, StdioClient, moonlark};

const GREET: &str = r#"
tool = { name = "greet", description = "Greet somebody", parameters = { { name = "name", type = "string", required = true } } }
function tool.execute(args)
    log.info("greeting " .. args.name)
    return { text = "hello " .. args.name }
end
"#;

/// A project with a script and an upstream server, which leaves a line in `starts`
/// each time it is started.
fn project() -> Project {
    let binary = moonlark().get_program().to_str().unwrap().to_owned();
    let project = Project::new(&[
        (
            "tools/twice.lua",
            "tool = { name = 'twice', description = 'Twice a number', parameters = { { name = 'n', type = 'integer', required = true } } }\nfunction tool.execute(args) return args.n * 2 end",
        ),
        ("other/tools/greet.lua", GREET),
        ("other/moonlark.toml", ""),
    ]);
    let (starts, other) = (project.path("starts"), project.path("other"));
    let start = format!("echo x >> {}; exec {binary} stdio --quiet", starts.display());
    let config = format!(
        "[server]\nport = 0\n[mcp_servers.other]\ncommand = \"sh\"\nargs = [\"-c\", {start:?}]\ncwd = {other:?}\n"
    );
    project.write("moonlark.toml", &config);
    project
}

fn starts(project: &Project) -> usize {
    std::fs::read_to_string(project.path("starts")).unwrap_or_default().lines().count()
}

#[track_caller]
fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    (text(&output.stdout), text(&output.stderr))
}

fn greeted(answer: &Value) -> &str {
    answer["result"]["structuredContent"]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

fn greet(client: &mut StdioClient, name: &str) -> String {
    let args = json!({"name": "other.greet", "arguments": {"name": name}});
    greeted(&client.request("tools/call", args)).to_owned()
}

#[test]
fn commands_use_the_running_server_and_start_nothing() {
    let project = project();
    project.write("script.luau", "return sdk.other.greet({ name = 'Ann' }).text");
    let server = project.serve();
    let called = said(&project.run(&["call", "other.greet", "name=Ann"]));
    assert_eq!(called, ("{\n  \"text\": \"hello Ann\"\n}\n".to_owned(), String::new()));
    let called = said(&project.run(&["call", "twice", r#"{"n": 2}"#, "--json"]));
    assert_eq!(called.0, "{\"result\":4}\n");
    let ran = said(&project.run(&["run", "script.luau"]));
    assert_eq!(ran.0, "hello Ann\n");
    assert!(ran.1.contains("1 call in "), "{}", ran.1);
    for (args, part) in [
        (&["sources"][..], "other: ready, 1 tool"),
        (&["tool", "list"], "twice "),
        (&["search-tools", "greet"], "other.greet"),
        (&["docs", "other.greet"], "Greet somebody"),
        (&["policy", "explain", "other.greet"], "There are no rules: the call is allowed."),
        (&["run", "--check", "script.luau"], "nothing wrong"),
        (&["doctor"], "✓ server: serving on http://"),
    ] {
        let (out, _) = said(&project.run(args));
        assert!(out.contains(part), "{args:?}: {out}");
    }
    assert_eq!(starts(&project), 1);
    // What the calls were is known where they were made.
    let calls = said(&project.run(&["runs", "--calls", "--json"])).0;
    let calls: Value = serde_json::from_str(&calls).unwrap();
    let cli =
        calls["calls"].as_array().unwrap().iter().filter(|it| it["caller"]["surface"] == "cli");
    assert!(cli.count() >= 2, "{calls}");
    server.log.wait_for("twice called by local over cli: ok");
    said(&project.run(&["call", "other.greet", "name=Ann", "--standalone"]));
    assert_eq!(starts(&project), 2);
}

#[test]
fn a_command_that_fails_in_the_server_fails_the_same_way() {
    let project = project();
    let alone = project.run(&["call", "twice", "n=two"]);
    let _server = project.serve();
    let there = project.run(&["call", "twice", "n=two"]);
    assert_eq!(there.status.code(), Some(1));
    assert_eq!(there.stdout, alone.stdout);
    assert_eq!(String::from_utf8_lossy(&there.stderr), String::from_utf8_lossy(&alone.stderr));
}

#[test]
fn one_call_without_a_server_starts_what_it_needs() {
    let project = project();
    let mut config = std::fs::read_to_string(project.path("moonlark.toml")).unwrap();
    config.push_str("[mcp_servers.dead]\ncommand = \"/nonexistent/server\"\n");
    project.write("moonlark.toml", &config);
    // A script of its own needs no server, and nothing is said of the dead one.
    assert_eq!(said(&project.run(&["call", "twice", "n=2"])), ("4\n".to_owned(), String::new()));
    assert_eq!(starts(&project), 0);
    let called = said(&project.run(&["call", "other.greet", "name=Ann"]));
    assert_eq!(called, ("{\n  \"text\": \"hello Ann\"\n}\n".to_owned(), String::new()));
    assert_eq!(starts(&project), 1);
    // What it offers is known from then on.
    assert!(said(&project.run(&["docs", "other.greet"])).0.contains("Greet somebody"));
    assert_eq!(starts(&project), 1);
    let dead = project.run(&["call", "dead.tool"]);
    assert!(!dead.status.success());
    let dead = String::from_utf8_lossy(&dead.stderr).into_owned();
    assert_eq!(dead.matches("/nonexistent/server").count(), 1, "{dead}");
}

#[test]
fn every_stdio_of_a_project_uses_the_same_servers() {
    let project = project();
    let _server = project.serve();
    let mut one = project.stdio();
    let mut two = project.stdio();
    assert_eq!(greet(&mut one, "Ann"), "hello Ann");
    assert_eq!(greet(&mut two, "Bob"), "hello Bob");
    assert_eq!(starts(&project), 1);
    assert_eq!(one.close(), 0);
    assert_eq!(greet(&mut two, "Cy"), "hello Cy");
}

#[test]
fn a_stdio_goes_on_when_the_process_it_is_attached_to_ends() {
    let project = project();
    let mut first = project.stdio();
    assert_eq!(greet(&mut first, "Ann"), "hello Ann");
    let mut second = project.stdio();
    let mut third = project.stdio();
    // An old client, whose session has to be begun again.
    let hello = json!({"jsonrpc": "2.0", "id": 100, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"},
    }});
    third.send_raw(format!("{hello}\n").as_bytes());
    assert_eq!(third.answer(100)["result"]["protocolVersion"], "2025-06-18");
    third.send_raw(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
    let call = |id: u64, name: &str| {
        let params = json!({"name": "other.greet", "arguments": {"name": name}});
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        format!("{call}\n")
    };
    third.send_raw(call(101, "Cy").as_bytes());
    assert_eq!(greeted(&third.answer(101)), "hello Cy");
    assert_eq!(greet(&mut second, "Bob"), "hello Bob");
    assert_eq!(starts(&project), 1);
    assert_eq!(first.close(), 0);
    third.send_raw(call(102, "Di").as_bytes());
    assert_eq!(greeted(&third.answer(102)), "hello Di");
    assert_eq!(greet(&mut second, "Ed"), "hello Ed");
    // One of the two has taken over for both.
    assert_eq!(starts(&project), 2);
    assert_eq!(second.close(), 0);
    third.send_raw(call(103, "Flo").as_bytes());
    assert_eq!(greeted(&third.answer(103)), "hello Flo");
    assert_eq!(third.close(), 0);
}

#[test]
fn a_server_that_was_killed_leaves_nothing_that_hinders() {
    let project = project();
    let mut server = project.serve();
    let socket = project.path(".moonlark/server.sock");
    assert_eq!(socket.metadata().unwrap().mode() & 0o777, 0o600);
    server.kill();
    assert!(socket.exists());
    assert_eq!(said(&project.run(&["call", "twice", "n=2"])).0, "4\n");
    let server = project.serve();
    assert_eq!(said(&project.run(&["call", "twice", "n=3"])).0, "6\n");
    server.log.wait_for("twice called by local over cli: ok");
}

#[test]
fn a_server_of_another_configuration_is_left_alone() {
    let project = project();
    let _server = project.serve();
    project.write("b.toml", "[tools]\ndir = \"other/tools\"\n");
    let (out, err) = said(&project.run(&["call", "greet", "name=Ann", "--config", "b.toml"]));
    assert_eq!(out, "{\n  \"text\": \"hello Ann\"\n}\n");
    assert!(err.starts_with("note: the running server (moonlark serve, process "), "{err}");
    assert!(err.contains("b.toml; this command uses a process of its own\n"), "{err}");
}

#[test]
fn http_over_the_socket_is_the_operators() {
    let project = project();
    said(&project.run(&["token", "add", "ci", "--tools", "nothing.*"]));
    let server = project.serve();
    // Over TCP a token is needed now; the owner of the folder needs none.
    assert_eq!(server.post("twice", &json!({"n": 2})).0, 401);
    let mut socket = UnixStream::connect(project.path(".moonlark/server.sock")).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let body = "{\"n\":2}";
    let request = format!(
        "POST /tools/twice HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("{\"result\":4}"), "{answer}");
    assert_eq!(said(&project.run(&["call", "twice", "n=2"])).0, "4\n");
}
