//! The command line as people see it.

use std::process::Output;

use crate::harness::{Project, moonlark, repo};
use crate::jira;

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn tool_test_reports_each_step() {
    let (port, _) = jira::start();
    let script =
        std::fs::read_to_string(repo().join("tests/seeds/create-jira-ticket.lua")).unwrap();
    let config = format!(
        "[tools.script.create_jira_ticket]\npath = \"tools/create-jira-ticket.lua\"\nurl = \"http://127.0.0.1:{port}\"\nemail = \"bot@company.com\"\napi_token = \"secret-canary\"\nallow = [\"net:127.0.0.1:{port}\"]\n"
    );
    let project =
        Project::new(&[("tools/create-jira-ticket.lua", &script), ("moonlark.toml", &config)]);
    let arguments = [
        "tool",
        "test",
        "tools/create-jira-ticket.lua",
        "--param",
        "title=Test ticket",
        "--param",
        "body=Testing the tool",
        "--param",
        "enrich=false",
        "--source",
        "create_jira_ticket",
    ];
    let output = project.run(&arguments);
    // How long it took is the one thing that may differ.
    let took = text(&output)
        .split("Returned result in ")
        .nth(1)
        .unwrap()
        .split('s')
        .next()
        .unwrap()
        .to_owned();
    assert!(took.parse::<f64>().is_ok(), "{took}");
    assert_eq!(
        text(&output).replace(&format!("in {took}s"), "in 1.2s").replace(&port.to_string(), "PORT"),
        r#"Testing tool: create_jira_ticket (tools/create-jira-ticket.lua)
  ✓ Script loaded
  ✓ tool.execute defined
  ✓ 5 parameters declared
  ✓ Calling execute({title: "Test ticket", body: "Testing the tool", enrich: false})...
  ✓ Returned result in 1.2s

Result:
  {
    "message": "Created ENG-1234: Test ticket",
    "success": true,
    "ticket_key": "ENG-1234",
    "url": "http://127.0.0.1:PORT/browse/ENG-1234"
  }
"#
    );
    assert_eq!(output.status.code(), Some(0));
    // The entry of this file is found by its path.
    assert_eq!(project.run(&arguments[..9]).status.code(), Some(0));
    // Without the settings the script has no configuration, and that is a failure.
    project.write("moonlark.toml", "");
    let output = project.run(&arguments[..9]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("  ✗ Failed after"), "{}", text(&output));
    assert!(said(&output).contains("--> tools/create-jira-ticket.lua:84"), "{}", said(&output));
}

#[test]
fn tool_list_shows_two_groups() {
    let jira = "tool = { name = 'create_jira_ticket', description = 'Create a Jira ticket enriched with related context', parameters = {}, execute = print }";
    let echo = "tool = { name = 'echo', description = 'Echoes back the input message', parameters = {}, execute = print }";
    let project = Project::new(&[("tools/create-jira-ticket.lua", jira), ("tools/echo.lua", echo)]);
    assert_eq!(
        text(&project.run(&["tool", "list"])),
        "Built-in tools:
  search           Search indexed documents
  get_document     Retrieve full document by ID
  list_sources     List configured data sources

Lua tools:
  create_jira_ticket   Create a Jira ticket enriched with related context
  echo                 Echoes back the input message
"
    );
}

#[test]
fn tool_init_writes_a_tool_that_works_and_overwrites_nothing() {
    let project = Project::new(&[]);
    let output = project.run(&["tool", "init", "my-tool"]);
    assert_eq!(text(&output), "Created tools/my-tool.lua\nCreated tools/my-tool_test.luau\n");
    assert_eq!(
        text(&project.run(&[
            "tool",
            "test",
            "tools/my-tool.lua",
            "--param",
            "name=World",
            "--json"
        ])),
        "{\n  \"greeting\": \"Hello, World!\"\n}\n"
    );
    let again = project.run(&["tool", "init", "my-tool"]);
    assert_eq!(
        said(&again),
        "error[bad_request]: tools/my-tool.lua is there already\nhint: choose another name, or remove the file first\n"
    );
    for bad in ["../evil", "a b", "", "a/b"] {
        assert_eq!(project.run(&["tool", "init", bad]).status.code(), Some(1), "{bad}");
    }
}

#[test]
fn the_demo_calls_a_tool_through_every_way_in() {
    let output =
        moonlark().args(["demo", "--once"]).stdin(std::process::Stdio::null()).output().unwrap();
    let shown = text(&output);
    for way in ["REST", "MCP over HTTP", "MCP over stdio", "command line"] {
        let row = format!("  {way:<23} 8 words on 2 lines; most frequent: a");
        assert!(shown.contains(&row), "{shown}");
    }
    // It is read in one go: no line wraps, and there are not many.
    let too_long: Vec<&str> = shown.lines().filter(|line| line.chars().count() > 100).collect();
    assert!(too_long.is_empty(), "{too_long:#?}");
    assert!(shown.lines().count() <= 70, "{}", shown.lines().count());
    // The question has its answer first.
    let asked = shown.lines().skip_while(|line| !line.contains("asked: How can I test a tool"));
    let first = asked.clone().nth(1).unwrap_or_default();
    assert!(first.contains(" Testing scripts: "), "{first}");
    for part in [
        "bad_request: unknown parameter: mesage (did you mean message?)",
        "curl -s http://127.0.0.1:",
        "\"mcpServers\"",
    ] {
        assert!(shown.contains(part), "{shown}");
    }
    assert_eq!((output.status.code(), said(&output).as_str()), (Some(0), ""));
}

#[test]
fn completions_exist_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = moonlark().args(["completions", shell]).output().unwrap();
        assert!(text(&output).contains("moonlark") && output.status.success(), "{shell}");
    }
}

#[test]
fn a_secret_is_printed_nowhere() {
    let canary = "canary-7f3a9c";
    let script = "tool = { name = 'leaky', description = '', parameters = {} }\nfunction tool.execute(_, context) local token = context.config.api_token log.info('using ' .. token, { token = token }) print(token) context.progress(1, 2, token) error('refused: ' .. token) end";
    let project = Project::new(&[
        ("tools/leaky.lua", script),
        (
            "moonlark.toml",
            "[tools.script.leaky]\npath = \"tools/leaky.lua\"\napi_token = \"${LEAKY_TOKEN}\"\n[tools.script.leaky.nested]\npassword = \"${LEAKY_TOKEN}\"\n",
        ),
    ]);
    let mut shown = String::new();
    for arguments in [
        &["config", "show"] as &[&str],
        &["config", "show", "--json"],
        &["config", "check"],
        &["doctor"],
        &["doctor", "--json"],
        &["check", "-v"],
        &["tool", "list", "--json"],
        &["call", "leaky", "-vv"],
        &["call", "leaky", "--json", "-vv"],
        &["tool", "test", "tools/leaky.lua", "--source", "leaky", "-vv"],
    ] {
        let output = moonlark()
            .args(arguments)
            .current_dir(project.path(""))
            .env("LEAKY_TOKEN", canary)
            .output()
            .unwrap();
        shown.push_str(&format!("{arguments:?}\n{}{}", text(&output), said(&output)));
    }
    let server = project.serve_with(&["-vv"], &[("LEAKY_TOKEN", canary)]);
    shown.push_str(&server.post("leaky", &serde_json::json!({})).1.to_string());
    shown.push_str(&server.get("/tools/list").text());
    shown.push_str(&server.get("/openapi.json").text());
    shown.push_str(&server.mcp("tools/call", serde_json::json!({"name": "leaky", "arguments": {}, "_meta": {"io.modelcontextprotocol/logLevel": "debug"}})).to_string());
    assert!(!shown.contains(canary), "{shown}");
    assert!(shown.contains("[redacted:api_token]"), "{shown}");
}
