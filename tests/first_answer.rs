//! The first answer of a server that has just started: clients ask once what there is,
//! so it has everything, or what can be had in a bounded time. The servers behind
//! Moonlark are Moonlark, and take their time to start.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Project, Server, StdioClient, eventually, moonlark, wait_for};

const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
const MODERN: &str = "2026-07-28";

/// An API in a file, with one operation.
const SHOP: &str = r#"{"openapi": "3.1.0", "info": {"title": "Shop", "version": "1"}, "servers": [{"url": "http://127.0.0.1:9"}],
    "paths": {"/orders": {"get": {"operationId": "orders", "summary": "All orders", "responses": {"200": {"description": "ok"}}}}}}"#;

/// A project with an API, a script, and servers that take so many seconds to start.
fn project(expose: &str, settle: &str, servers: &[(&str, &str)]) -> Project {
    let project = Project::new(&[
        ("shop.json", SHOP),
        ("tools/near.lua", &tool("near")),
        ("tools/far.lua", &tool("far")),
    ]);
    let mut config = format!(
        "[server]\nsettle = {settle}\n[apis.shop]\nspec = 'shop.json'\nexpose = '{expose}'\n"
    );
    for (name, delay) in servers {
        project.write(&format!("{name}/tools/greet.lua"), &tool("greet"));
        project.write(&format!("{name}/moonlark.toml"), "");
        project.write(&format!("{name}/delay"), delay);
        let binary = moonlark().get_program().to_str().unwrap().to_owned();
        // A process that is told to end while it sleeps does.
        let script = format!(
            r#"sleep "$(cat {name}/delay)"; exec "$0" stdio --config {name}/moonlark.toml"#
        );
        config.push_str(&format!(
            "[mcp_servers.{name}]\nexpose = '{expose}'\ncommand = 'sh'\nargs = ['-c', {script:?}, {binary:?}]\n"
        ));
    }
    project.write("moonlark.toml", &config);
    project
}

fn tool(name: &str) -> String {
    format!(
        "tool = {{ name = '{name}', description = 'Something {name}', parameters = {{}} }}\nfunction tool.execute() return 'here' end\n"
    )
}

fn names(answer: &Value) -> Vec<&str> {
    let tools = answer["result"]["tools"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let mut names: Vec<&str> = tools.iter().filter_map(|tool| tool["name"].as_str()).collect();
    names.sort_unstable();
    names
}

/// An old client at stdin and stdout that has shaken hands.
struct OldClient {
    stdio: StdioClient,
    next: u64,
    /// What it was told by itself.
    told: Vec<String>,
}

impl OldClient {
    fn begin(project: &Project, version: &str) -> OldClient {
        let mut client = OldClient { stdio: project.stdio(), next: 0, told: Vec::new() };
        let begun = client.ask("initialize", initialize(version));
        assert_eq!(begun["result"]["protocolVersion"], version, "{begun}");
        client.stdio.send_raw(b"{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n");
        client
    }

    fn send(&mut self, method: &str, params: Value) -> u64 {
        self.next += 1;
        let message =
            json!({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params});
        self.stdio.send_raw(format!("{message}\n").as_bytes());
        self.next
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.hear(id)
    }

    fn hear(&mut self, id: u64) -> Value {
        loop {
            let message = self.stdio.message();
            if message["id"] == json!(id) {
                return message;
            }
            self.told.push(message["method"].as_str().unwrap_or_default().to_owned());
        }
    }
}

fn initialize(version: &str) -> Value {
    json!({
        "protocolVersion": version,
        "capabilities": {},
        "clientInfo": {"name": "suite", "version": "1"},
    })
}

/// The tools that an old client is first shown over HTTP.
fn first_list_over_http(server: &Server, version: &str) -> Vec<String> {
    let send = |session: Option<&str>, message: Value| {
        let mut headers = vec![
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        headers.extend(session.map(|session| ("Mcp-Session-Id", session)));
        server.request("POST", "/mcp", &headers, message.to_string().as_bytes())
    };
    let message =
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize(version)});
    let begun = send(None, message);
    let session = begun.header("mcp-session-id").unwrap().to_owned();
    send(Some(&session), json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let listed = send(Some(&session), json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}));
    let text = listed.text();
    let answer = text.lines().find_map(|line| line.strip_prefix("data: {")).unwrap();
    let answer: Value = serde_json::from_str(&format!("{{{answer}")).unwrap();
    names(&answer).into_iter().map(str::to_owned).collect()
}

fn wait_for_state(server: &Server, name: &str, state: &str) {
    eventually(&format!("the state {state}"), || {
        let source = source(server, name);
        if source["state"] == state { Ok(()) } else { Err(source.to_string()) }
    });
}

fn source(server: &Server, name: &str) -> Value {
    let sources = server.get("/sources").json();
    let all = sources["upstreams"].as_array().unwrap();
    all.iter().find(|it| it["name"] == name).unwrap().clone()
}

const ALL: [&str; 6] = ["far", "near", "one__greet", "shop__orders", "three__greet", "two__greet"];

#[test]
fn the_first_list_over_stdio_is_whole_and_nothing_is_said_to_have_changed() {
    let project = project("direct", "50", &[("one", "0"), ("two", "1"), ("three", "1.5")]);
    for version in LEGACY {
        let mut client = OldClient::begin(&project, version);
        let list = client.ask("tools/list", json!({}));
        assert_eq!(names(&list), ALL, "{version}");
        client.ask("resources/list", json!({}));
        client.ask("prompts/list", json!({}));
        let called = client.ask("tools/call", json!({"name": "three__greet", "arguments": {}}));
        assert_eq!(called["result"]["content"][0]["text"], "here", "{called}");
        assert_eq!(client.told, Vec::<String>::new(), "{version}");
    }
    let mut client = project.stdio();
    assert_eq!(names(&client.request("tools/list", json!({}))), ALL, "{MODERN}");
}

#[test]
fn the_first_list_over_http_is_whole_in_every_version() {
    let project = project("direct", "50", &[("one", "0"), ("two", "1"), ("three", "1.5")]);
    let server = project.serve();
    std::thread::scope(|scope| {
        for version in LEGACY {
            let server = &server;
            scope
                .spawn(move || assert_eq!(first_list_over_http(server, version), ALL, "{version}"));
        }
        scope.spawn(|| assert_eq!(names(&server.mcp("tools/list", json!({}))), ALL));
        scope.spawn(|| {
            let listed = server.get("/tools/list").text();
            assert!(listed.contains("three.greet") && listed.contains("two.greet"), "{listed}");
        });
    });
}

#[test]
fn agents_who_look_for_functions_wait_for_them() {
    let project = project("code", "50", &[("slow", "1")]);
    let mut client = project.stdio();
    let found = client.request(
        "tools/call",
        json!({"name": "search_docs", "arguments": {"query": "something greet"}}),
    );
    let text = found["result"]["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("sdk.slow.greet"), "{text}");
    assert_eq!(client.close(), 0);
    for (tool, args) in [
        ("list_functions", json!({"source": "slow"})),
        ("get_function_docs", json!({"names": ["slow.greet"]})),
    ] {
        let server = project.serve();
        let (status, answer) = server.post(tool, &args);
        assert_eq!(status, 200, "{answer}");
        assert!(answer.to_string().contains("greet"), "{answer}");
    }
}

#[test]
fn a_server_that_never_answers_is_waited_for_only_by_lists() {
    let project = project("direct", "3", &[("never", "1000")]);
    let mut client = OldClient::begin(&project, "2025-06-18");
    let list = client.send("tools/list", json!({}));
    // What is asked later is answered before it.
    let called = client.ask("tools/call", json!({"name": "near", "arguments": {}}));
    assert_eq!(called["result"]["content"][0]["text"], "here");
    assert!(client.ask("ping", json!({}))["result"].is_object());
    assert_eq!(client.told, [""; 0]);
    assert_eq!(names(&client.hear(list)), ["far", "near", "shop__orders"]);
}

#[test]
fn a_server_that_fails_holds_up_nobody() {
    let project = project("direct", "60", &[]);
    let config = std::fs::read_to_string(project.path("moonlark.toml")).unwrap();
    project.write(
        "moonlark.toml",
        &format!("{config}[mcp_servers.broken]\ncommand = 'false'\nexpose = 'direct'\n"),
    );
    let began = Instant::now();
    let mut client = OldClient::begin(&project, "2025-11-25");
    assert_eq!(names(&client.ask("tools/list", json!({}))), ["far", "near", "shop__orders"]);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[test]
fn with_a_settle_time_of_zero_nobody_waits_but_for_local_documents() {
    let project = project("direct", "0", &[("never", "1000")]);
    let mut client = OldClient::begin(&project, "2025-06-18");
    assert_eq!(names(&client.ask("tools/list", json!({}))), ["far", "near", "shop__orders"]);
}

#[test]
fn a_server_that_comes_late_is_told_of_once_and_listed_from_memory_the_next_time() {
    let project = project("direct", "0.2", &[("late", "1.5")]);
    let server = project.serve();
    let without = ["far", "near", "shop__orders"];
    assert_eq!(names(&server.mcp("tools/list", json!({}))), without);
    wait_for_state(&server, "late", "ready");
    assert_eq!(source(&server, "late")["remembered"], false);
    // The server is killed, and what it knows is written in the background.
    let kept = project.path(".moonlark/upstreams/late.json");
    wait_for("what is written of it", || {
        std::fs::read_to_string(&kept).is_ok_and(|it| it.contains(r#""slow":true"#))
    });
    drop(server);

    // It was slow, so its tools are listed at once, whether it comes or not.
    project.write("late/delay", "1000");
    let with = ["far", "late__greet", "near", "shop__orders"];
    let server = project.serve();
    assert_eq!(names(&server.mcp("tools/list", json!({}))), with);
    let late = source(&server, "late");
    assert_eq!((&late["state"], &late["tools"]), (&json!("connecting"), &json!(1)), "{late}");
    assert_eq!(late["remembered"], true, "{late}");
    drop(server);

    // When it comes and is the same, nothing has changed.
    project.write("late/delay", "1");
    let mut client = OldClient::begin(&project, "2025-06-18");
    assert_eq!(names(&client.ask("tools/list", json!({}))), with);
    let called = client.ask("tools/call", json!({"name": "late__greet", "arguments": {}}));
    assert_eq!(called["result"]["content"][0]["text"], "here", "{called}");
    client.ask("ping", json!({}));
    assert_eq!(client.told, [""; 0]);
    drop(client);

    // When it has something else, that is told, once.
    project.write("late/tools/more.lua", &tool("more"));
    let mut client = OldClient::begin(&project, "2025-06-18");
    assert_eq!(names(&client.ask("tools/list", json!({}))), with);
    let called = client.ask("tools/call", json!({"name": "late__greet", "arguments": {}}));
    assert_eq!(called["result"]["content"][0]["text"], "here", "{called}");
    wait_for("the notification", || {
        client.ask("ping", json!({}));
        !client.told.is_empty()
    });
    let list = client.ask("tools/list", json!({}));
    assert_eq!(names(&list), ["far", "late__greet", "late__more", "near", "shop__orders"]);
    assert_eq!(client.told, ["notifications/tools/list_changed"]);
}
