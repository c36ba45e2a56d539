//! A variable that is not set costs the one source that needs it, and commands that
//! only look need none.

use std::process::{Output, Stdio};

use serde_json::Value;

use crate::harness::{Log, Project, moonlark};

const CONFIG: &str = r#"
[tools.script.oncall]
path = "tools/oncall.lua"
token = "${ONCALL_TOKEN}"

[extensions.script.pager]
key = "${PAGER_KEY}"

[mcp_servers.graph]
command = "npx"
env = { API_KEY = "${GRAPH_KEY}" }

[apis.shop]
spec = "shop.yaml"
auth = "${SHOP_KEY}"

[connectors.git.handbook]
url = "https://me:${HANDBOOK_PASSWORD}@127.0.0.1:1/a.git"
"#;

const ONCALL: &str = r#"
tool = { name = "oncall", description = "Who is on call" }
function tool.execute(_, context) return "Bearer " .. context.config.token end
"#;

const ONCALL_TEST: &str = r#"
function test_the_token_is_sent()
    local tool = require("./oncall")
    testing.eq(tool.execute({}, testing.context({ token = "x" })), "Bearer x")
end
"#;

const PAGER: &str = r#"
def page(params, context):
    return context.config["key"]

def describe_extension():
    return Extension(name = "pager", version = "1", description = "Pages", tools = [
        Tool(name = "page", description = "Page somebody", parameters = [], handler = page),
    ])
"#;

const SHOP: &str = r#"
openapi: 3.0.0
info: { title: Shop, version: "1" }
servers: [{ url: "http://127.0.0.1:1" }]
paths:
  /items: { get: { operationId: list_items, summary: List items, responses: { "200": { description: ok } } } }
"#;

fn project() -> Project {
    Project::new(&[
        ("moonlark.toml", CONFIG),
        ("tools/oncall.lua", ONCALL),
        (
            "tools/hello.lua",
            "tool = { name = 'hello', description = 'Hello' }\nfunction tool.execute() return 'hi' end",
        ),
        (
            "tools/hello_test.lua",
            "local tool = require('./hello')\nfunction test_it_greets() testing.eq(tool.execute({}), 'hi') end",
        ),
        ("tools/oncall_test.lua", ONCALL_TEST),
        ("extensions/pager.star", PAGER),
        ("shop.yaml", SHOP),
    ])
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[track_caller]
fn succeeded(output: &Output) -> String {
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

fn missing(key: &str, name: &str) -> String {
    format!("{key} needs the environment variable {name}, which is not set")
}

#[test]
fn everybody_else_works_and_calls_say_what_is_missing() {
    let project = project();
    assert_eq!(succeeded(&project.run(&["call", "hello"])), "\"hi\"\n");
    for (tool, said) in [
        (
            "oncall",
            format!(
                "oncall is unavailable: {}",
                missing("tools.script.oncall.token", "ONCALL_TOKEN")
            ),
        ),
        (
            "page",
            format!("page is unavailable: {}", missing("extensions.script.pager.key", "PAGER_KEY")),
        ),
        (
            "graph.search",
            format!(
                "tool 'graph.search' is not there: {}",
                missing("mcp_servers.graph.env.API_KEY", "GRAPH_KEY")
            ),
        ),
        (
            "shop.list_items",
            format!(
                "tool 'shop.list_items' is not there: {}",
                missing("apis.shop.auth", "SHOP_KEY")
            ),
        ),
    ] {
        let output = project.run(&["call", tool]);
        assert_eq!(output.status.code(), Some(1), "{tool}");
        let first = text(&output.stderr);
        let first =
            first.lines().find(|line| line.starts_with("error")).unwrap_or_default().to_owned();
        assert_eq!(first, format!("error[bad_config]: {said}"));
    }
    let synced = project.run(&["sync"]);
    let said = text(&synced.stdout) + &text(&synced.stderr);
    assert!(said.contains(&missing("connectors.git.handbook.url", "HANDBOOK_PASSWORD")), "{said}");
}

#[test]
fn doctor_sources_and_the_log_name_each_of_them() {
    let project = project();
    let all = [
        missing("tools.script.oncall.token", "ONCALL_TOKEN"),
        missing("extensions.script.pager.key", "PAGER_KEY"),
        missing("mcp_servers.graph.env.API_KEY", "GRAPH_KEY"),
        missing("apis.shop.auth", "SHOP_KEY"),
        missing("connectors.git.handbook.url", "HANDBOOK_PASSWORD"),
    ];
    for command in ["doctor", "sources"] {
        let output = project.run(&[command]);
        assert_eq!(output.status.code(), Some(1), "{command}");
        let said = text(&output.stdout);
        for missing in &all {
            assert!(said.contains(missing.as_str()), "{command}: {missing} in\n{said}");
        }
    }
    let server = project.serve();
    server.log.wait_for(&all[2]);
    assert_eq!(server.post("hello", &serde_json::json!({})).0, 200);
    // The file of secrets is read again by itself.
    assert_ne!(server.post("oncall", &serde_json::json!({})).0, 200);
    std::fs::write(project.path(".moonlark/secrets.env"), "ONCALL_TOKEN=hunter2\n").unwrap();
    server.wait_until("oncall", |status, answer| {
        // What the tool says is a secret, and stays one.
        status == 200 && answer["result"] == "Bearer [redacted:token]"
    });
}

#[test]
fn all_that_a_source_misses_is_said_at_once_and_once() {
    let config = "[server]\nport = 0\n[tools.script.oncall]\npath = 'tools/oncall.lua'\ntoken = '${ONCALL_TOKEN}'\nuser = '${ONCALL_USER}'\n[mcp_servers.graph]\ncommand = 'npx'\nenv = { A = '${GRAPH_A}', B = '${GRAPH_B}' }\n[connectors.script.wiki]\npath = 'connectors/wiki.lua'\ntoken = '${WIKI_TOKEN}'\n";
    let project = Project::new(&[
        ("moonlark.toml", config),
        ("tools/oncall.lua", ONCALL),
        (
            "connectors/wiki.lua",
            "connector = { name = 'wiki' }\nfunction connector.scan() return {} end\n",
        ),
    ]);
    for (tool, names) in
        [("oncall", ["ONCALL_TOKEN", "ONCALL_USER"]), ("graph.search", ["GRAPH_A", "GRAPH_B"])]
    {
        let said = text(&project.run(&["call", tool]).stderr);
        assert!(names.iter().all(|name| said.contains(&format!("variable {name}, "))), "{said}");
    }
    let all = ["ONCALL_TOKEN", "ONCALL_USER", "GRAPH_A", "GRAPH_B", "WIKI_TOKEN"];
    let once = |said: &str| {
        for name in all {
            assert_eq!(said.matches(&format!("variable {name}, ")).count(), 1, "{name}: {said}");
        }
    };
    once(&text(&project.run(&["doctor"]).stdout));
    let server = project.serve();
    server.log.wait_for("variable WIKI_TOKEN, ");
    once(&text(&project.run(&["doctor"]).stdout));
    let log = server.stop_and_read_log();
    assert!(!log.contains("variable WIKI_TOKEN, "), "{log}");
}

#[test]
fn check_and_test_need_no_value_of_any_secret() {
    let project = project();
    let config = format!("{CONFIG}\n[server.auth.tokens]\nci = \"${{CI_TOKEN}}\"\n");
    project.write("moonlark.toml", &config);
    let checked = project.run(&["check"]);
    assert_eq!(succeeded(&checked), "3 scripts checked, nothing wrong\n");
    let notes = text(&checked.stderr);
    assert_eq!(notes.lines().count(), 6, "{notes}");
    assert!(notes.lines().all(|line| line.starts_with("note: moonlark.toml:")), "{notes}");
    let tested = succeeded(&project.run(&["test"]));
    assert!(tested.contains("2 passed"), "{tested}");
    assert_eq!(succeeded(&project.run(&["config", "check"])), "moonlark.toml: nothing wrong\n");
    let report: Value =
        serde_json::from_str(&succeeded(&project.run(&["check", "--json"]))).unwrap();
    assert_eq!(report["unset"].as_array().unwrap().len(), 6);
    // What all of Moonlark needs is another matter when it is to run.
    let called = project.run(&["call", "hello"]);
    assert_eq!(called.status.code(), Some(1));
    assert!(text(&called.stderr).starts_with(&format!(
        "error[bad_config]: {}\n  --> moonlark.toml:21:6\n",
        missing("server.auth.tokens.ci", "CI_TOKEN")
    )));
}

#[test]
fn near_misses_are_said_by_everyone_and_stop_nobody() {
    let project = Project::new(&[
        ("moonlark.toml", "[tools.script.hello]\npath = 'tools/hello.lua'\nalow = ['env:X']\n"),
        ("tools/hello.lua", "tool = { name = 'hello' }\nfunction tool.execute() return 'hi' end"),
    ]);
    let said = "alow in [tools.script.hello] is the script's own key, and looks like allow\n  --> moonlark.toml:3:1\nhint: did you mean allow?";
    for command in [&["check"][..], &["config", "check"]] {
        let output = project.run(command);
        succeeded(&output);
        assert!(text(&output.stderr).starts_with(&format!("warning: {said}")), "{command:?}");
    }
    let doctor = text(&project.run(&["doctor"]).stdout);
    assert!(
        doctor.contains("  ! configuration: warning: alow in [tools.script.hello]"),
        "{doctor}"
    );
    let mut child = moonlark()
        .args(["serve", "--port", "0"])
        .current_dir(project.path(""))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let line = Log::follow(child.stderr.take().unwrap()).wait_for("alow in");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(line.contains("looks like allow"), "{line}");
    assert_eq!(succeeded(&project.run(&["call", "hello"])), "\"hi\"\n");
}
