//! What the operator says about sources and their tools: which there are, what they
//! are called, what they do, and what is said where that fits nothing.

#[path = "source_settings/apps.rs"]
mod apps;
#[path = "source_settings/moved.rs"]
mod moved;
#[path = "source_settings/pages.rs"]
mod pages;
#[path = "source_settings/tiny.rs"]
pub(crate) mod tiny;

use serde_json::{Value, json};

use self::tiny::Tiny;
use crate::harness::{Project, Server, eventually, moonlark, wait_for};

fn tools() -> Value {
    let text = json!({"type": "string"});
    json!([
        {"name": "search_issues", "description": "Search.", "inputSchema": {"type": "object",
            "properties": {"owner": text, "q": text}, "required": ["owner", "q"]}},
        {"name": "create_issue", "description": "Create.", "inputSchema": {"type": "object",
            "properties": {"title": text}}},
        {"name": "delete_issue", "description": "Delete.", "inputSchema": {"type": "object"}},
        {"name": "list-repos", "description": "List.", "inputSchema": {"type": "object"},
            "annotations": {"readOnlyHint": true}, "_meta": {"fastmcp": {"tags": ["repos"]}}},
    ])
}

const CONFIG: &str = r#"
[mcp_servers.hub]
url = "URL"
expose = "both"
include = ["*_issue*", "tag:repos", "tag:repso"]
exclude = ["delete_*"]

[mcp_servers.hub.tools.search_issues]
effects = { read_only = true }
arguments = { owner = "acme" }

[mcp_servers.hub.tools.create_issue]
name = "report_bug"
description = "Report a bug."
effects = { destructive = false }

[mcp_servers.hub.tools.create_isue]
description = "Misspelt."
"#;

pub(crate) fn execute(server: &Server, script: &str) -> Value {
    let (status, answer) = server.post("execute", &json!({ "script": script }));
    assert_eq!(status, 200, "{script}: {answer}");
    answer["result"].clone()
}

/// `GET /sources` once `name` is ready.
pub(crate) fn source(server: &Server, name: &str) -> Value {
    eventually("a source that is ready", || {
        let sources = server.get("/sources").json();
        let mut all = sources["upstreams"].as_array().unwrap().iter();
        let found = all.find(|it| it["name"] == name).cloned().unwrap_or_default();
        if found["state"] == "ready" { Ok(found) } else { Err(found.to_string()) }
    })
}

fn run(project: &Project, args: &[&str]) -> String {
    let mut command = moonlark();
    command.args(args).current_dir(project.path(".")).stdin(std::process::Stdio::null());
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_operator_decides_which_tools_a_server_has_and_what_they_are() {
    let tiny = Tiny::open(tools(), json!([]));
    let project = Project::new(&[("moonlark.toml", &CONFIG.replace("URL", &tiny.url()))]);
    let server = project.serve();
    let hub = source(&server, "hub");
    assert_eq!(hub["tools"], 3, "{hub}");
    let listed = server.mcp("tools/list", json!({}));
    let find = |name: &str| {
        let all = listed["result"]["tools"].as_array().unwrap();
        all.iter().find(|it| it["name"] == name).cloned().unwrap_or_default()
    };
    let search = find("hub__search_issues");
    assert_eq!(search["annotations"]["readOnlyHint"], true);
    assert_eq!(search["annotations"]["destructiveHint"], false);
    assert_eq!(search["inputSchema"]["required"], json!(["q"]));
    assert!(search["inputSchema"]["properties"]["owner"].is_null(), "{search}");
    let bug = find("hub__report_bug");
    assert_eq!(bug["description"], "Report a bug.");
    assert_eq!(bug["annotations"]["destructiveHint"], false);
    assert_eq!((find("hub__create_issue"), find("hub__delete_issue")), (json!(null), json!(null)));

    execute(&server, "return sdk.hub.search_issues({ q = 'x' })");
    let call = tiny.last_call();
    assert_eq!(call["name"], "search_issues");
    assert_eq!(call["arguments"], json!({"q": "x", "owner": "acme"}));
    execute(&server, "return sdk.hub.report_bug({ title = 't' })");
    assert_eq!(tiny.last_call()["name"], "create_issue");
    let before = tiny.calls();
    let (status, refused) =
        server.post("hub.search_issues", &json!({"q": "x", "owner": "mallory"}));
    assert_eq!(status, 400, "{refused}");
    assert_eq!(tiny.calls(), before);

    let said = [
        "\"tag:repso\" in include matches no tool of 'hub'",
        "'hub' has no tool named create_isue",
    ];
    let flaws = hub["flaws"].to_string();
    let sources = run(&project, &["sources", "--standalone"]);
    let doctor = run(&project, &["doctor", "--standalone"]);
    for text in said {
        assert!(flaws.contains(&text.replace('"', "\\\"")), "{flaws}");
        assert!(sources.contains(text), "{sources}");
        assert!(doctor.contains(text), "{doctor}");
    }
    assert!(sources.contains("hint: did you mean \"tag:repos\"?"), "{sources}");
    server.log.wait_for("'hub' has no tool named create_isue");
}

#[test]
fn a_reading_call_is_made_once_more_when_its_answer_breaks_off_and_a_changing_one_is_not() {
    let tiny = Tiny::open(tools(), json!([]));
    let project = Project::new(&[("moonlark.toml", &CONFIG.replace("URL", &tiny.url()))]);
    let server = project.serve();
    source(&server, "hub");
    tiny.break_off(1);
    assert_eq!(execute(&server, "return sdk.hub.search_issues({ q = 'x' })"), "fine");
    assert_eq!(tiny.calls(), 2);
    tiny.break_off(1);
    let (_, lost) = server.post("hub.report_bug", &json!({"title": "t"}));
    let message = lost["error"]["message"].as_str().unwrap();
    assert!(message.ends_with("the call may have happened, and was not repeated"), "{lost}");
    assert_eq!(tiny.calls(), 3);
    tiny.break_off(2);
    let (_, lost) = server.post("hub.search_issues", &json!({"q": "x"}));
    let message = lost["error"]["message"].as_str().unwrap();
    assert!(message.ends_with("it was tried twice"), "{lost}");
    assert_eq!(tiny.calls(), 5);
}

#[test]
fn names_that_are_one_identifier_in_scripts_are_said_and_dots_are_allowed() {
    let mut tools = tools();
    tools
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "list_repos", "inputSchema": {"type": "object"}}));
    let tiny = Tiny::open(tools, json!([]));
    let table = |name: &str| format!("[mcp_servers.{name}]\nurl = {:?}\n", tiny.url());
    let names = [r#""my.api""#, "data-server", "data_server"];
    let config = names.map(table).concat();
    let project = Project::new(&[("moonlark.toml", &config)]);
    let server = project.serve();
    source(&server, "my.api");
    assert_eq!(execute(&server, "return sdk.my_api.delete_issue()"), "fine");
    assert_eq!(execute(&server, "return sdk['my.api']['list-repos']()"), "fine");
    assert_eq!(tiny.last_call()["name"], "list-repos");
    let sources = "the sources data-server, data_server are all sdk.data_server in scripts: that is data_server, and data-server gets a number behind it";
    let functions = "tools list-repos, list_repos of 'my.api' are all sdk.my_api.list_repos in scripts: that is list_repos, and list-repos gets a number behind it";
    let check = run(&project, &["check"]);
    assert!(check.contains(sources), "{check}");
    let doctor = run(&project, &["doctor", "--standalone"]);
    assert!(doctor.contains(sources) && doctor.contains(functions), "{doctor}");
    assert!(source(&server, "data-server")["flaws"].to_string().contains(sources));
    assert!(source(&server, "my.api")["flaws"].to_string().contains(functions));
    let output =
        run(&project, &["sources", "--standalone", "--mcp", &format!("other.one={}", tiny.url())]);
    assert!(output.contains("other.one: ready, 5 tools"), "{output}");
}

#[test]
fn a_server_has_the_name_and_words_that_the_operator_gives_it_and_lists_may_be_kept() {
    let config = "[server]\nname = 'support'\ninstructions = 'Ask before you answer a customer.'\n";
    let tool = "tool = { name = 'hi', description = 'x', parameters = {}, execute = function() return 1 end }";
    let project = Project::new(&[("moonlark.toml", config), ("tools/hi.lua", tool)]);
    let server = project.serve();
    let found = server.mcp("server/discover", json!({}));
    let result = &found["result"];
    let info = &result["_meta"]["io.modelcontextprotocol/serverInfo"];
    assert_eq!(info["name"], "support", "{found}");
    let words = result["instructions"].as_str().unwrap();
    assert!(words.starts_with("Ask before you answer a customer.\n\nTools of"), "{words}");
    for (method, params) in [
        ("server/discover", json!({})),
        ("tools/list", json!({})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("prompts/list", json!({})),
    ] {
        let answer = server.mcp(method, params);
        assert_eq!(answer["result"]["ttlMs"], 60_000, "{method}: {answer}");
        assert_eq!(answer["result"]["cacheScope"], "public", "{method}: {answer}");
    }
    // Where callers are told apart, so are lists.
    let rules =
        format!("{config}[[policy.rules]]\ncallers = ['ann']\ntools = ['hi']\naction = 'deny'\n");
    project.write("moonlark.toml", &rules);
    wait_for("a private list", || {
        server.mcp("tools/list", json!({}))["result"]["cacheScope"] == "private"
    });
    drop(server);
    let mut client = project.stdio();
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
    let answer = client.request("initialize", params);
    assert_eq!(answer["result"]["serverInfo"]["name"], "support", "{answer}");
    let words = answer["result"]["instructions"].as_str().unwrap();
    assert!(words.starts_with("Ask before"), "{words}");
}
