//! Prompt scripts, `agents/*.lua`: what MCP clients are offered, and what they
//! get.

use serde_json::{Value, json};

use crate::harness::{Project, eventually};

/// In the manner of Context Harness.
const TRIAGE: &str = r#"
agent = {
    name = "triage",
    title = "Triage",
    description = "Sort an incident",
    tools = { "lookup", "nobody_has_this" },
    arguments = {
        { name = "incident", description = "Which one", required = true },
        { name = "tone", description = "How to write", default = "plain" },
    },
}

function agent.resolve(args, config, context)
    local found = context.call("lookup", { id = args.incident })
    return {
        system = `You are on call for {config.team}. Write in a {args.tone} tone.`,
        tools = agent.tools,
        messages = {
            { role = "user", content = `Incident {args.incident}: {found.title}` },
            { role = "assistant", content = "I will look at it." },
            { role = "system", content = "Be brief." },
        },
    }
end
"#;

const LOOKUP: &str = r#"
tool = { name = "lookup", description = "An incident", parameters = { { name = "id", type = "string", required = true } } }
function tool.execute(params) return { title = "disk full " .. params.id } end
"#;

const CONFIG: &str = r#"
[agents.script.triage]
path = "agents/triage.lua"
allow = ["tool:lookup"]
timeout = 5
team = "storage"
"#;

fn project() -> Project {
    Project::new(&[
        ("agents/triage.lua", TRIAGE),
        (
            "agents/hello.luau",
            "agent = { description = 'Greet' }\nfunction agent.resolve() return 'Say hello.' end\n",
        ),
        ("tools/lookup.lua", LOOKUP),
        ("moonlark.toml", CONFIG),
    ])
}

fn names(listed: &Value) -> Vec<&str> {
    let prompts = listed["result"]["prompts"].as_array().unwrap();
    prompts.iter().map(|prompt| prompt["name"].as_str().unwrap()).collect()
}

fn text(role: &str, text: &str) -> Value {
    json!({"role": role, "content": {"type": "text", "text": text}})
}

fn expected() -> Value {
    json!([
        text(
            "user",
            "You are on call for storage. Write in a plain tone.\n\nTools for this: lookup, nobody_has_this."
        ),
        text("user", "Incident 7: disk full 7"),
        text("assistant", "I will look at it."),
        text("user", "Be brief."),
    ])
}

#[test]
fn scripts_are_prompts_that_clients_list_and_get() {
    let project = project();
    let server = project.serve();
    let listed = server.mcp("prompts/list", json!({}));
    assert_eq!(names(&listed), ["hello", "triage"]);
    assert_eq!(
        listed["result"]["prompts"][1],
        json!({
            "name": "triage",
            "title": "Triage",
            "description": "Sort an incident",
            "arguments": [
                {"name": "incident", "description": "Which one", "required": true},
                {"name": "tone", "description": "How to write", "required": false},
            ],
        })
    );
    let get = |arguments: Value| {
        server.mcp("prompts/get", json!({"name": "triage", "arguments": arguments}))
    };
    let got = get(json!({"incident": "7"}));
    assert_eq!(got["result"]["description"], "Sort an incident", "{got}");
    assert_eq!(got["result"]["messages"], expected());
    let hello = server.mcp("prompts/get", json!({"name": "hello"}));
    assert_eq!(hello["result"]["messages"], json!([text("user", "Say hello.")]));

    // What it is given is held to what it says.
    let refused = get(json!({"incidnt": "7"}));
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    assert_eq!(
        refused["error"]["message"],
        "unknown argument: incidnt (did you mean incident?); missing required argument: incident"
    );
    assert_eq!(server.mcp("prompts/get", json!({"name": "none"}))["error"]["code"], -32602);
}

/// A client of the earlier protocol, and one that is an MCP client of its own:
/// another Moonlark, which offers the prompt to its clients in turn.
#[test]
fn old_clients_and_other_servers_get_the_same() {
    let project = project();
    let mut old = project.stdio();
    let send = |client: &mut crate::harness::StdioClient, message: Value| {
        client.send_raw(format!("{message}\n").as_bytes());
    };
    send(
        &mut old,
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "old", "version": "1"},
        }}),
    );
    assert!(old.answer(1)["result"]["capabilities"]["prompts"].is_object());
    send(&mut old, json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    let params = json!({"name": "triage", "arguments": {"incident": "7"}});
    send(&mut old, json!({"jsonrpc": "2.0", "id": 2, "method": "prompts/get", "params": params}));
    assert_eq!(old.answer(2)["result"]["messages"], expected());
    assert_eq!(old.close(), 0);

    let server = project.serve();
    let second = Project::new(&[(
        "moonlark.toml",
        &format!("[mcp_servers.first]\nurl = \"{}\"\n", server.url("/mcp")),
    )]);
    let outer = second.serve();
    let asked = json!({"name": "first/triage", "arguments": {"incident": "7"}});
    // It is still connecting at first.
    let got = eventually("the prompt", || {
        let got = outer.mcp("prompts/get", asked.clone());
        if got["result"].is_object() { Ok(got) } else { Err(got.to_string()) }
    });
    assert_eq!(got["result"]["messages"], expected(), "{got}");
}

#[test]
fn a_changed_script_is_another_prompt_and_a_broken_one_changes_nothing() {
    let project = project();
    let server = project.serve();
    // What is there at the start is not reported as added.
    server.log.wait_for(" serving ");
    project.write("agents/new.lua", "agent = {}\nfunction agent.resolve() return 'one' end\n");
    server.log.wait_for("agents/new.lua added");
    let get = || server.mcp("prompts/get", json!({"name": "new"}))["result"]["messages"].clone();
    assert_eq!(get(), json!([text("user", "one")]));
    project.write("agents/new.lua", "agent = {}\nfunction agent.resolve( return 'two' end\n");
    server.log.wait_for("the last good version stays in use");
    assert_eq!(get(), json!([text("user", "one")]));
    project.write("agents/new.lua", "agent = {}\nfunction agent.resolve() return 'two' end\n");
    server.log.wait_for("agents/new.lua changed");
    assert_eq!(get(), json!([text("user", "two")]));
    project.remove("agents/new.lua");
    server.log.wait_for("agents/new.lua removed");
    assert!(!names(&server.mcp("prompts/list", json!({}))).contains(&"new"));
}

#[test]
fn grants_limits_and_what_it_returns_hold_as_for_tools() {
    let resolve = |body: &str| {
        format!(
            "agent = {{ name = 'x' }}\nfunction agent.resolve(args, config, context)\n{body}\nend\n"
        )
    };
    for (body, expected) in [
        ("return context.call('lookup', { id = '1' })", "agents.script.x"),
        ("while true do end", "timed out"),
        ("return 7", "must return a table with system and messages, got"),
        ("return {}", "neither system nor messages"),
        (
            "return { messages = { { role = 'robot', content = 'x' } } }",
            "none of user, assistant, system",
        ),
        ("return { messages = { { content = 7 } } }", "messages[1].content must be text"),
        ("error('no luck')", "no luck"),
    ] {
        let config = "[agents.script.x]\npath = \"agents/x.lua\"\ntimeout = 1\n";
        let project = Project::new(&[
            ("agents/x.lua", &resolve(body)),
            ("tools/lookup.lua", LOOKUP),
            ("moonlark.toml", config),
        ]);
        let server = project.serve();
        let got = server.mcp("prompts/get", json!({"name": "x"}));
        let said = got["error"].to_string();
        assert!(said.contains(expected), "{body}: {got}");
    }
}

#[test]
fn check_says_what_is_wrong_with_a_prompt_script() {
    for (script, expected) in [
        ("agent = {}", "agent.resolve is not a function"),
        ("x = 1", "the script defines no global table named agent"),
        ("agent = { argumens = {} } function agent.resolve() end", "did you mean agent.arguments?"),
        (
            "agent = { arguments = { { required = true } } } function agent.resolve() end",
            "agent.arguments[1] has no name",
        ),
        ("agent = { tools = 'x' } function agent.resolve() end", "agent.tools must be a list"),
        (
            "agent = { name = 'y' } function agent.resolve() end",
            "rename [agents.script.x] to [agents.script.y]",
        ),
    ] {
        let config = "[agents.script.x]\npath = \"agents/x.lua\"\n";
        let project = Project::new(&[("agents/x.lua", script), ("moonlark.toml", config)]);
        let checked = project.run(&["check"]);
        let said = String::from_utf8_lossy(&checked.stderr).into_owned();
        assert!(!checked.status.success() && said.contains(expected), "{script}: {said}");
        assert!(said.contains("agents/x.lua"), "{script}: {said}");
    }
}

/// In the words of Context Harness, whose tools have other names here.
#[test]
fn tools_are_named_as_they_are_listed_and_unknown_ones_are_warned_of() {
    let script = "agent = { description = 'Research', tools = { 'search', 'get', 'nope', 'far.tool' } }\nfunction agent.resolve() return { system = 'Look.', tools = { 'search', 'get', 'sources', 'nope2' } } end\n";
    let project = Project::new(&[
        (
            "moonlark.toml",
            "[server]\nport = 0\n[connectors.filesystem.docs]\nroot = \"docs\"\n[mcp_servers.far]\ncommand = \"/nonexistent/server\"\n",
        ),
        ("agents/research.lua", script),
        ("docs/a.md", "# A"),
    ]);
    let warned = "warning: agent.tools names nope, which does not exist\n";
    let checked = project.run(&["check"]);
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(checked.status.success() && said.contains(warned), "{said}");
    assert!(said.contains("--> agents/research.lua"), "{said}");
    assert_eq!(said.matches("agent.tools names").count(), 1, "{said}");
    let doctor = String::from_utf8_lossy(&project.run(&["doctor"]).stdout).into_owned();
    assert!(doctor.contains(&format!("! script: {warned}")), "{doctor}");

    let config = "[server]\nport = 0\n[connectors.filesystem.docs]\nroot = \"docs\"\n";
    project.write("moonlark.toml", config);
    let server = project.serve();
    server.log.wait_for("agent.tools names nope, which does not exist");
    let got = server.mcp("prompts/get", json!({"name": "research"}));
    let first = "Look.\n\nTools for this: search, get_document, list_sources, nope2.";
    assert_eq!(got["result"]["messages"], json!([text("user", first)]), "{got}");
    assert_eq!(
        got["result"]["_meta"]["moonlark/tools"],
        json!(["search", "get_document", "list_sources", "nope2"]),
        "{got}"
    );
    server.log.wait_for("agent:research names the tool nope2, which does not exist");
}
