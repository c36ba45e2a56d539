//! Rules and every way in: what is denied does not exist, whoever looks for it
//! wherever; what is not is there as before.

mod names;
mod table;
mod world;

use serde_json::{Value, json};

use self::table::TABLE;
use self::world::{Named, TOOLS, World};
use crate::harness::Project;

/// Tools that agents find functions with; they are there like any other.
const FINDING: [&str; 3] = ["search_docs", "list_functions", "get_function_docs"];

/// What a caller sees under some rules: all that is not gone.
struct Look<'a> {
    world: &'a World,
    rules: &'a str,
    caller: &'a str,
    gone: Vec<&'a str>,
}

#[test]
fn what_is_denied_does_not_exist_by_any_way_in() {
    let world = World::new();
    let mut rows = 0;
    for (rules, callers) in &TABLE {
        world.rule(&if rules.is_empty() {
            String::new()
        } else {
            format!("[policy]\nrules = [{rules}]")
        });
        for (caller, gone) in *callers {
            let gone = gone.split_whitespace().collect();
            let look = Look { world: &world, rules, caller, gone };
            look.lists();
            for tool in &TOOLS {
                look.tool(tool);
                rows += 1;
            }
        }
    }
    println!("{rows} rows");
    assert!(rows >= 100, "{rows}");
}

impl Look<'_> {
    fn has(&self, tool: &str) -> bool {
        !self.gone.contains(&tool)
    }

    /// Whether scripts see anything of a source.
    fn has_source(&self, source: &str) -> bool {
        let scripts = source == "tools" && self.has("relay");
        scripts || TOOLS.iter().any(|it| it.source == source && self.has(it.tool))
    }

    #[track_caller]
    fn check(&self, what: &str, found: bool, expected: bool, said: &dyn std::fmt::Display) {
        let (rules, caller) = (self.rules, self.caller);
        assert_eq!(found, expected, "{what} for {caller} under {rules}\n{said}");
    }

    /// Nothing that is not there is named.
    #[track_caller]
    fn keeps_quiet(&self, what: &str, said: &str) {
        for tool in TOOLS.iter().filter(|it| !self.has(it.tool)) {
            for name in [tool.tool, tool.function, tool.shown] {
                // A function of this name may be there in another source.
                self.check(&format!("{what} names {name}"), said.contains(name), false, &said);
            }
        }
        for source in ["git_box", "git-box", "mailer", "petshop"] {
            let there = self.has_source(&source.replace('-', "_"));
            let named = said.contains(source) && !there;
            self.check(&format!("{what} names {source}"), named, false, &said);
        }
    }

    /// Everything that lists.
    fn lists(&self) {
        let Look { world, caller, .. } = self;
        let listed = world.get(caller, "/tools/list");
        let names = |list: &Value| -> Vec<String> {
            let items = list.as_array().unwrap().iter();
            items.map(|it| it["name"].as_str().unwrap().to_owned()).collect()
        };
        let rest = names(&listed["tools"]);
        let openapi = world.get(caller, "/openapi.json");
        let shown = world.mcp(caller, "tools/list", json!({}));
        let mcp = names(&shown["result"]["tools"]);
        for tool in &TOOLS {
            let (has, name) = (self.has(tool.tool), tool.tool);
            self.check(name, rest.iter().any(|it| it == name), has, &listed);
            let path = format!("/tools/{name}");
            self.check(&path, openapi["paths"].get(&path).is_some(), has, &openapi);
            self.check(tool.shown, mcp.iter().any(|it| it == tool.shown), has, &shown);
        }
        for name in FINDING.iter().chain(&["execute"]) {
            self.check(name, mcp.iter().any(|it| it == name), self.has(name), &shown);
        }
        let discovered = world.mcp(caller, "server/discover", json!({}));
        self.keeps_quiet("instructions", &discovered["result"]["instructions"].to_string());
        self.keeps_quiet("sources", &world.get(caller, "/sources").to_string());
        let resources = world.mcp(caller, "resources/list", json!({})).to_string();
        self.keeps_quiet("resources", &resources);
        if self.has("list_functions") {
            let (_, listed) = world.call(caller, "list_functions", &json!({}));
            self.keeps_quiet("list_functions", &listed);
        }
    }

    /// Everything that finds, explains or calls one tool.
    fn tool(&self, tool: &Named) {
        let Look { world, caller, .. } = self;
        let has = self.has(tool.tool);
        let args: Value = serde_json::from_str(tool.args).unwrap();
        let before = world.called();
        let path = format!("{}.{}", tool.source, tool.function);

        for name in [tool.tool, tool.shown] {
            let answer = world.post(caller, name, &args);
            self.check(&format!("POST {name}"), answer.status == 200, has, &answer.text());
            if !has {
                assert_eq!(answer.status, 404, "{}", answer.text());
                let hint = answer.json()["error"]["hint"].to_string();
                self.keeps_quiet("a suggestion", &hint);
            }
        }
        for name in [tool.tool, tool.shown] {
            let (worked, said) = world.call(caller, name, &args);
            self.check(&format!("tools/call {name}"), worked, has, &said);
        }
        if self.has("search_docs") {
            let question = json!({"query": tool.function, "limit": 20});
            let (_, said) = world.call(caller, "search_docs", &question);
            self.check("search_docs", said.contains(&format!("sdk.{path}")), has, &said);
            if !has {
                self.keeps_quiet("search_docs", &said);
            }
        }
        if self.has("get_function_docs") {
            let question = json!({"names": [path]});
            let (worked, said) = world.call(caller, "get_function_docs", &question);
            self.check("get_function_docs", worked, has, &said);
        }
        if self.has("list_functions") && self.has_source(tool.source) {
            let (_, said) = world.call(caller, "list_functions", &json!({"source": tool.source}));
            self.check("list_functions", said.contains(tool.function), has, &said);
            let read = |page: &str| {
                let uri = format!("sdk://{}/{page}", tool.source);
                world.mcp(caller, "resources/read", json!({ "uri": uri })).to_string()
            };
            let said = read("functions");
            self.check("functions", said.contains(tool.function), has, &said);
            let said = read("schemas");
            if !tool.types.is_empty() {
                self.check(tool.types, said.contains(tool.types), has, &said);
            }
        }
        let uri = format!("sdk://{}/functions/{}", tool.source, tool.function);
        let read = world.mcp(caller, "resources/read", json!({ "uri": uri }));
        let code_mode = self.has("execute") || self.has("search_docs");
        self.check(&uri, read.get("error").is_none(), has && code_mode, &read);
        if self.has("execute") {
            let table = args.as_object().unwrap().iter();
            let table: String = table.map(|(key, value)| format!("{key} = {value}")).collect();
            for script in [
                format!("return sdk.{path}({{ {table} }})"),
                format!("return {path}({{ {table} }}):await()"),
                // Not to be seen by the check before it runs.
                format!(
                    "local source = {:?}\nreturn (sdk :: any)[source][{:?}]({{ {table} }})",
                    tool.source, tool.function
                ),
            ] {
                let (worked, said) = world.call(caller, "execute", &json!({ "script": script }));
                self.check(&script, worked, has, &said);
            }
        }
        if self.has("relay") {
            let question = json!({"tool": tool.tool, "args": args});
            let (worked, said) = world.call(caller, "relay", &question);
            self.check(&format!("context.call of {}", tool.tool), worked, has, &said);
        }
        if !has {
            assert_eq!(world.called(), before, "nothing was called: {path}");
        }
    }
}

#[test]
fn a_session_of_an_older_client_is_its_callers() {
    let world = World::new();
    world.rule("[policy]\nrules = [{ callers = ['ci'], tools = ['mailer.*'], action = 'deny' }]");
    let hello = json!({
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "suite", "version": "1"},
    });
    for (caller, has) in [("ci", false), ("alice", true)] {
        let (session, answer) = world.old(caller, None, "initialize", &hello);
        assert_eq!(answer.contains("mailer"), has, "{caller}: {answer}");
        world.old(caller, session.as_deref(), "notifications/initialized", &json!({}));
        let list = |caller: &str| world.old(caller, session.as_deref(), "tools/list", &json!({})).1;
        assert_eq!(list(caller).contains("mailer__send"), has, "{caller}");
        // Who has only got hold of the session sees what is there for itself.
        assert!(!list("ci").contains("mailer__send"), "{caller}");
        let call = json!({"name": "mailer__send", "arguments": {}});
        let (_, answer) = world.old(caller, session.as_deref(), "tools/call", &call);
        assert_eq!(answer.contains("done"), has, "{caller}: {answer}");
    }
}

const STAR: &str = r#"
def close(params):
    return "closed"

def describe_extension():
    return Extension(name = "hub", tools = [Tool("close_issue", "Closes an issue.", [], close)])
"#;

const HELLO: &str = r#"
tool = { name = "hello", description = "Says hello.", parameters = {} }
function tool.execute() return "hello" end
"#;

const FOR_LOCAL: &str = r#"
[[policy.rules]]
kinds = ["extension"]
callers = ["local"]
action = "deny"
"#;

#[test]
fn who_is_at_this_machine_is_somebody_else_than_who_comes_over_the_network() {
    let project = Project::new(&[
        ("tools/hello.lua", HELLO),
        ("extensions/hub.star", STAR),
        ("moonlark.toml", FOR_LOCAL),
    ]);
    let server = project.serve();
    assert_eq!(server.post("close_issue", &json!({})).0, 200);
    assert_eq!(server.post("hello", &json!({})).0, 200);

    let out = project.run(&["call", "close_issue"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("error[not_found]: no tool registered with name: close_issue"), "{said}");
    assert_eq!(project.run(&["call", "hello"]).status.code(), Some(0));

    let mut stdio = project.stdio();
    let listed = stdio.request("tools/list", json!({})).to_string();
    assert!(listed.contains("hello") && !listed.contains("close_issue"), "{listed}");
    let called = stdio.request("tools/call", json!({"name": "close_issue", "arguments": {}}));
    assert!(called.to_string().contains("no tool registered"), "{called}");
}

#[test]
fn new_rules_hold_for_the_next_call_and_clients_are_told() {
    let project = Project::new(&[("tools/hello.lua", HELLO), ("extensions/hub.star", STAR)]);
    let mut stdio = project.stdio();
    let hello = json!({
        "jsonrpc": "2.0", "id": 100, "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "suite", "version": "1"},
        },
    });
    stdio.send_raw(format!("{hello}\n").as_bytes());
    stdio.answer(100);
    let list = |id: u64| json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"});
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    stdio.send_raw(format!("{ready}\n{}\n", list(101)).as_bytes());
    assert!(stdio.answer(101).to_string().contains("close_issue"));

    project.write("moonlark.toml", FOR_LOCAL);
    while stdio.message()["method"] != "notifications/tools/list_changed" {}
    stdio.send_raw(format!("{}\n", list(102)).as_bytes());
    let listed = stdio.answer(102).to_string();
    assert!(listed.contains("hello") && !listed.contains("close_issue"), "{listed}");
}

const LIMITED: &str = r#"
[[policy.rules]]
tools = ["git.*"]
action = "deny"

[[policy.rules]]
effects = ["read-only"]
cache = "1h"

[[policy.rules]]
callers = ["ci"]
action = "approve"

[[policy.rules]]
tools = ["hello"]
rate = "2/h"
timeout = "5s"

[tools.script.other]
path = "tools/other.lua"
concurrency = 1
"#;

#[test]
fn explain_says_which_rule_decides_and_why_no_other_does() {
    let other = HELLO.replace("hello", "other");
    let files =
        [("tools/hello.lua", HELLO), ("tools/other.lua", &other), ("moonlark.toml", LIMITED)];
    let project = Project::new(&files);
    let explain = |args: &[&str]| {
        let out = project.run(&[&["policy", "explain"], args].concat());
        assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    assert_eq!(
        explain(&["hello"]),
        "\
hello, script tools/hello.lua, writes destructive open-world, called by anonymous
  policy rule 1 (line 2) does not match: tools is [\"git.*\"]
  policy rule 2 (line 6) does not match: effects is [\"read-only\"]
  policy rule 3 (line 10) does not match: callers is [\"ci\"], and it is anonymous
  policy rule 4 (line 14) decides: allow, at most 2/h, counted for each tool and caller, ended after 5 seconds
The call is allowed.
"
    );
    let explained: Value =
        serde_json::from_str(&explain(&["hello", "--caller", "ci", "--json"])).unwrap();
    assert_eq!(explained["decided_by"], "policy rule 3 (line 10)");
    assert_eq!(explained["action"], "approve");
    assert_eq!(explained["rules"][0], json!({"rule": "policy rule 1 (line 2)", "missed": "tools"}));
    let own: Value = serde_json::from_str(&explain(&["other", "--json"])).unwrap();
    assert_eq!(
        (&own["decided_by"], &own["concurrency"]),
        (&json!("tools.script.other"), &json!(1))
    );
    let out = project.run(&["policy", "explain", "helo"]);
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stderr).contains("did you mean hello?"));

    let out = project.run(&["doctor"]);
    let said = String::from_utf8(out.stdout).unwrap();
    assert!(
        said.contains("policy: error[bad_config]: policy rule 1 (line 2) matches no tool"),
        "{said}"
    );
    assert!(!said.contains("policy rule 4"), "{said}");
}

#[test]
fn a_script_that_can_only_call_tools_has_no_effects_for_rules() {
    let careful = "[[policy.rules]]\neffects = ['destructive']\naction = 'approve'\n";
    let project = Project::new(&[("tools/hello.lua", HELLO), ("moonlark.toml", careful)]);
    let explain = || {
        let out = project.run(&["policy", "explain", "execute", "--caller", "ci"]);
        assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    assert_eq!(
        explain(),
        "\
execute, builtin moonlark, no effects but those of its calls, called by ci
  policy rule 1 (line 1) does not match: effects is [\"destructive\"], and its calls are judged one by one
No rule matches: the call is allowed.
"
    );

    // Nobody is asked about the script, and somebody about its call.
    let server = project.serve();
    assert_eq!(server.post("execute", &json!({"script": "return 1"})).0, 200);
    let calls = json!({"script": "return sdk.tools.hello({})"});
    let (_, answer) = server.post("execute", &calls);
    assert!(answer.to_string().contains("approv"), "{answer}");
    // What clients are told of it stays careful.
    let listed = server.mcp("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    for tool in tools.iter().filter(|it| it["name"] == "execute") {
        assert_ne!(tool["annotations"]["destructiveHint"], json!(false), "{tool}");
        assert_ne!(tool["annotations"]["readOnlyHint"], json!(true), "{tool}");
    }

    // What it can do beside calls is judged by no rule but the one for itself.
    drop(server);
    for more in ["allow = ['tool:*', 'exec:git']", "dir = 'work'"] {
        project.write("moonlark.toml", &format!("{careful}\n[execute]\n{more}\n"));
        let said = explain();
        assert!(said.contains("writes destructive open-world"), "{said}");
        assert!(said.contains("policy rule 1 (line 1) decides: approve"), "{said}");
    }
}

#[test]
fn over_http_who_calls_too_often_is_told_when_to_come_back() {
    let project = Project::new(&[
        ("tools/hello.lua", HELLO),
        ("moonlark.toml", "[[policy.rules]]\ntools = ['hello']\nrate = '2/h'\n"),
    ]);
    let server = project.serve();
    assert_eq!(server.post("hello", &json!({})).0, 200);
    assert_eq!(server.post("hello", &json!({})).0, 200);
    let headers = [("Content-Type", "application/json")];
    let refused = server.request("POST", "/tools/hello", &headers, b"{}");
    assert_eq!(refused.status, 429, "{}", refused.text());
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1795..=1800).contains(&seconds), "{seconds}");
    assert_eq!(refused.json()["error"]["code"], "rate_limited");
    let over_mcp = server.mcp("tools/call", json!({"name": "hello", "arguments": {}}));
    assert!(
        over_mcp.to_string().contains("rate_limited"),
        "the ways in are counted together: {over_mcp}"
    );
}

/// Waits for as long as it is told.
const SLOW: &str = r#"
tool = {
    name = "slow", description = "Takes its time.",
    parameters = { { name = "seconds", type = "number", required = true } },
}
function tool.execute(params) sleep(params.seconds) return "done" end
"#;

#[test]
fn under_ten_times_its_capacity_a_server_answers_everybody_and_does_all_it_accepted() {
    let config = "[limits]\nruns = 4\nqueued = 16\nqueue_time = '30s'\n";
    let project = Project::new(&[
        ("tools/slow.lua", SLOW),
        ("tools/hello.lua", HELLO),
        ("moonlark.toml", config),
    ]);
    let server = project.serve();
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let call = || scope.spawn(|| server.post("slow", &json!({"seconds": 0.5})).0);
        let calls: Vec<_> = (0..40).map(|_| call()).collect();
        // What needs no place is answered meanwhile.
        assert_eq!(server.get("/health").status, 200);
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let done = statuses.iter().filter(|status| **status == 200).count();
    let refused = statuses.iter().filter(|status| **status == 429).count();
    assert_eq!(done + refused, 40, "{statuses:?}");
    assert!(done >= 20, "four run and sixteen wait: {statuses:?}");
    assert!(refused > 0, "and no more: {statuses:?}");
    assert_eq!(server.post("hello", &json!({})).0, 200);
}
