//! Starting and reloading while something takes for ever: nothing holds up the server,
//! its rules, or the other sources.

use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};

use crate::harness::{PATIENCE, POLL_INTERVAL, Project, Server};

const ENDLESS_LUA: &str = "while true do end";
const ENDLESS_STARLARK: &str = "def f():\n    for a in range(1000000000):\n        for b in range(1000000000):\n            pass\n\nf()\n";
/// Far longer than any test waits: what ends within a test has not waited for it.
const LONG_LOAD: &str = "[limits]\nload = 3600\n";

fn tool(name: &str, answer: &str) -> String {
    format!(
        "tool = {{ name = '{name}', description = 'A tool', parameters = {{}} }}\nfunction tool.execute() return '{answer}' end\n"
    )
}

/// Loads for a while, and works.
fn slow_tool(name: &str) -> String {
    format!("local began = os.clock()\nwhile os.clock() - began < 1 do end\n{}", tool(name, "done"))
}

fn is_ready(server: &Server) -> bool {
    let answer = server.get("/ready");
    match answer.status {
        200 => true,
        503 => {
            assert_eq!(answer.json()["status"], json!("starting"));
            false
        }
        other => panic!("{other}: {}", answer.text()),
    }
}

fn wait_until_ready(server: &Server) {
    let began = Instant::now();
    while !is_ready(server) {
        assert!(began.elapsed() < PATIENCE, "never ready");
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn names(listing: &Value) -> Vec<&str> {
    let tools = listing["tools"].as_array().unwrap();
    let names = tools.iter().filter_map(|tool| tool["name"].as_str());
    names.filter(|name| ["quick", "slow"].contains(name)).collect()
}

/// Send a signal that reloads.
pub fn hang_up(server: &Server) {
    // SAFETY: the process is our child and was not waited for.
    assert_eq!(unsafe { libc::kill(server.pid() as i32, libc::SIGHUP) }, 0);
}

#[test]
fn scripts_that_never_end_hold_up_neither_the_start_nor_other_tools() {
    let project = Project::new(&[
        ("moonlark.toml", LONG_LOAD),
        ("tools/good.lua", &tool("good", "here")),
        ("extensions/endless.star", ENDLESS_STARLARK),
        ("connectors/endless.lua", ENDLESS_LUA),
    ]);
    for number in 0..40 {
        project.write(&format!("tools/a{number}.lua"), ENDLESS_LUA);
    }
    let server = project.serve();
    assert_eq!(server.get("/health").json()["status"], json!("ok"));
    assert_eq!(server.post("good", &json!({})), (200, json!({"result": "here"})));
    let called = server.mcp("tools/call", json!({"name": "good", "arguments": {}}));
    assert_eq!(called["result"]["content"][0]["text"], json!("here"), "{called}");
    assert!(!is_ready(&server), "the others are still being loaded");
    assert_eq!(server.get("/ready").json()["scripts_loading"], json!(true));
}

#[test]
fn a_script_that_never_ends_is_given_up_and_named() {
    let project = Project::new(&[
        ("moonlark.toml", "[limits]\nload = 0.5\n"),
        ("tools/endless.lua", ENDLESS_LUA),
        ("tools/good.lua", &tool("good", "here")),
        ("extensions/endless.star", ENDLESS_STARLARK),
        ("connectors/endless.lua", ENDLESS_LUA),
    ]);
    let server = project.serve();
    wait_until_ready(&server);
    let report = project.run(&["doctor", "--json"]);
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let messages: Vec<&str> =
        findings.iter().filter_map(|it| it["error"]["message"].as_str()).collect();
    assert_eq!(
        messages,
        [
            "tools/endless.lua: the script did not finish loading in time",
            "extensions/endless.star: the script did not finish loading in time",
            "endless: connectors/endless.lua: the script did not finish loading in time",
        ]
    );
    // The same for a command that has no server to ask.
    drop(server);
    let called = project.run(&["call", "good"]);
    assert!(called.status.success(), "{}", String::from_utf8_lossy(&called.stderr));
}

#[test]
fn what_is_asked_while_scripts_are_loaded_waits_for_all_of_them() {
    let project = Project::new(&[
        ("tools/quick.lua", &tool("quick", "here")),
        ("tools/slow.lua", &slow_tool("slow")),
    ]);
    let expected = ["quick", "slow"];
    let server = project.serve();
    assert_eq!(names(&server.get("/tools/list").json()), expected);
    drop(server);
    let server = project.serve();
    assert_eq!(server.post("slow", &json!({})), (200, json!({"result": "done"})));
    drop(server);
    let server = project.serve();
    assert_eq!(server.post("missing", &json!({})).0, 404);
    drop(server);
    let server = project.serve();
    let ran = server.post("execute", &json!({"script": "return sdk.tools.slow()"}));
    assert_eq!(ran, (200, json!({"result": "done"})));
    drop(server);
    let server = project.serve();
    assert_eq!(names(&server.mcp("tools/list", json!({}))["result"]), expected);
    drop(server);
    let mut client = project.stdio();
    assert_eq!(names(&client.request("tools/list", json!({}))["result"]), expected);
}

#[test]
fn a_rule_saved_while_a_script_is_loaded_holds_at_once() {
    let project =
        Project::new(&[("moonlark.toml", LONG_LOAD), ("tools/wipe.lua", &tool("wipe", "wiped"))]);
    let server = project.serve();
    server.wait_until("wipe", |status, _| status == 200);
    project.write("tools/endless.lua", ENDLESS_LUA);
    // It was seen, as it came before this one.
    project.write("tools/later.lua", &tool("later", "here"));
    server.wait_until("later", |status, _| status == 200);
    let rule = "[[policy.rules]]\ntools = ['wipe']\naction = 'deny'\n";
    project.write("moonlark.toml", &format!("{LONG_LOAD}{rule}"));
    server.wait_until("wipe", |status, _| status == 404);
    // A broken configuration keeps the rule, and is said once.
    project.write("moonlark.toml", "[limits\n");
    server.log.wait_for("the last good version stays in use");
    assert_eq!(server.post("wipe", &json!({})).0, 404);
    project.write("moonlark.toml", LONG_LOAD);
    server.wait_until("wipe", |status, _| status == 200);
}

#[test]
fn an_upstream_that_changes_while_a_script_is_loaded_is_published() {
    let binary = env!("CARGO_BIN_EXE_moonlark");
    let other = Project::new(&[("tools/one.lua", &tool("one", "1"))]);
    let config = other.path("moonlark.toml");
    other.write("moonlark.toml", "");
    let config = format!(
        "{LONG_LOAD}[mcp_servers.other]\ncommand = {binary:?}\nargs = ['stdio', '--config', {config:?}]\nexpose = 'direct'\n"
    );
    let project = Project::new(&[
        ("moonlark.toml", &config),
        ("tools/endless.lua", ENDLESS_LUA),
        ("tools/good.lua", &tool("good", "here")),
    ]);
    let server = project.serve();
    server.wait_until("other.one", |status, _| status == 200);
    other.write("tools/two.lua", &tool("two", "2"));
    server.wait_until("other.two", |status, _| status == 200);
    assert!(!is_ready(&server));
}

#[test]
fn a_newer_version_ends_the_load_of_an_older_one() {
    let project =
        Project::new(&[("moonlark.toml", LONG_LOAD), ("tools/good.lua", &tool("good", "here"))]);
    let server = project.serve();
    server.wait_until("good", |status, _| status == 200);
    let is = |text: &'static str| move |_: u16, answer: &Value| answer["result"] == json!(text);
    // Changed, mended, changed again, removed: each while the one before is loaded.
    for version in ["first", "second"] {
        project.write("tools/other.lua", ENDLESS_LUA);
        hang_up(&server);
        hang_up(&server);
        project.write("tools/other.lua", &tool("other", version));
        server.wait_until("other", is(version));
    }
    project.write("tools/other.lua", ENDLESS_LUA);
    // What is being loaded keeps its last good version.
    project.write("tools/later.lua", &tool("later", "here"));
    server.wait_until("later", is("here"));
    assert_eq!(server.post("other", &json!({})), (200, json!({"result": "second"})));
    project.remove("tools/other.lua");
    server.wait_until("other", |status, _| status == 404);
    project.write("tools/other.lua", &tool("other", "third"));
    server.wait_until("other", is("third"));
}

#[test]
fn a_file_that_a_script_requires_changes_while_it_is_loaded() {
    let main = "local text = require('./lib/text')\nlocal began = os.clock()\nwhile os.clock() - began < 0.7 do end\ntool = { name = 'say', description = '', parameters = {} }\nfunction tool.execute() return text end";
    let project = Project::new(&[
        ("tools/lib/text.luau", "return 'first'"),
        ("tools/good.lua", &tool("good", "here")),
    ]);
    let server = project.serve();
    server.wait_until("good", |status, _| status == 200);
    project.write("tools/say.lua", main);
    server.wait_until("say", |_, answer| answer["result"] == json!("first"));
    project.write("tools/say.lua", &format!("{main}\n-- again"));
    project.write("tools/lib/text.luau", "return 'second'");
    server.wait_until("say", |_, answer| answer["result"] == json!("second"));
}

/// The lines up to the one with `last`.
fn lines_until(server: &Server, last: &str) -> Vec<String> {
    let mut lines = Vec::new();
    loop {
        let line = server.log.next();
        if line.contains(last) {
            return lines;
        }
        lines.push(line);
    }
}

#[test]
fn each_version_of_a_broken_configuration_is_reported_once() {
    let project = Project::new(&[("tools/good.lua", &tool("good", "here"))]);
    let server = project.serve();
    server.wait_until("good", |status, _| status == 200);
    let broken = |lines: &[String]| {
        lines.iter().filter(|line| line.contains("the last good version stays in use")).count()
    };
    project.write("moonlark.toml", "bad = = 1");
    server.log.wait_for("the last good version stays in use");
    for number in 0..5 {
        project.write("nohup.out", &format!("{number} lines"));
        project.write("unrelated.txt", &format!("{number}"));
        project.write("tools/data.json", &format!("{number}"));
        hang_up(&server);
        let name = format!("new{number}");
        project.write(&format!("tools/{name}.lua"), &tool(&name, "here"));
        let lines = lines_until(&server, &format!("{name}.lua added"));
        assert_eq!(broken(&lines), 0, "{lines:#?}");
    }
    project.write("moonlark.toml", "bad = = 2");
    server.log.wait_for("the last good version stays in use");
    project.write("moonlark.toml", "");
    server.log.wait_for("moonlark.toml taken over");
}

#[test]
fn a_new_script_that_does_not_load_has_no_last_good_version() {
    let project = Project::new(&[("tools/good.lua", &tool("good", "here"))]);
    let server = project.serve();
    server.wait_until("good", |status, _| status == 200);
    project.write("tools/broken.lua", "oops oops");
    let line = server.log.wait_for("WARN reload:");
    assert!(line.ends_with("WARN reload: not in use"), "{line}");
    project.write("tools/good.lua", "oops oops");
    let line = server.log.wait_for("WARN reload:");
    assert!(line.ends_with("WARN reload: the last good version stays in use"), "{line}");
}

#[test]
fn files_that_are_no_scripts_hold_up_nothing_and_are_named() {
    let project = Project::new(&[("tools/good.lua", &tool("good", "here"))]);
    let make_pipe = |path: &Path| {
        let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: the path ends with a zero byte.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
    };
    let mut expected = Vec::new();
    for (folder, ending) in [("tools", "lua"), ("extensions", "star"), ("connectors", "luau")] {
        let file = |name: &str| format!("{folder}/{name}.{ending}");
        std::fs::create_dir_all(project.path(folder)).unwrap();
        make_pipe(&project.path(&file("pipe")));
        std::os::unix::fs::symlink("/dev/zero", project.path(&file("zero"))).unwrap();
        let looping = format!("looping.{ending}");
        std::os::unix::fs::symlink(looping, project.path(&file("looping"))).unwrap();
        let big = std::fs::File::create(project.path(&file("big"))).unwrap();
        big.set_len(1 << 30).unwrap();
        expected.extend(["pipe", "zero", "looping", "big"].map(file));
    }
    // For extensions, a folder is a folder, whatever its name.
    for file in ["tools/folder.lua", "connectors/folder.luau"] {
        std::fs::create_dir(project.path(file)).unwrap();
        expected.push(file.to_owned());
    }
    let server = project.serve();
    assert_eq!(server.post("good", &json!({})), (200, json!({"result": "here"})));
    wait_until_ready(&server);
    let report = project.run(&["doctor", "--json"]);
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    for file in expected {
        let findings = report["findings"].as_array().unwrap();
        let named = |it: &&Value| it["ok"] == json!(false) && it.to_string().contains(&file);
        assert!(findings.iter().any(|it| named(&it)), "{file}: {report:#}");
    }
    // Each is reported once, however often the disk is looked at.
    project.write("tools/later.lua", &tool("later", "here"));
    let lines = lines_until(&server, "later.lua added");
    assert!(!lines.iter().any(|line| line.contains("reload: not in use")), "{lines:#?}");
}

#[test]
fn what_is_served_is_said_at_the_start() {
    let project = Project::new(&[
        ("moonlark.toml", "[connectors.filesystem.docs]\nroot = 'docs'\n"),
        ("docs/a.md", "# A"),
    ]);
    let server = project.serve();
    let line = server.log.wait_for(" serving ");
    assert!(line.ends_with("serving 1 knowledge source (docs)"), "{line}");
    drop(server);
    project.write("tools/good.lua", &tool("good", "here"));
    let server = project.serve();
    let line = server.log.wait_for(" serving ");
    assert!(line.ends_with("serving 1 tool (good) and 1 knowledge source (docs)"), "{line}");
}

#[test]
fn doctor_has_no_doubts_about_rules_for_a_server_that_connects() {
    let binary = env!("CARGO_BIN_EXE_moonlark");
    let other = Project::new(&[("tools/one.lua", &tool("one", "1")), ("moonlark.toml", "")]);
    let config = other.path("moonlark.toml");
    let config = format!(
        "[mcp_servers.other]\ncommand = {binary:?}\nargs = ['stdio', '--config', {config:?}]\n\
         [[policy.rules]]\ntools = ['wipe', 'other.one']\naction = 'deny'\n\
         [[policy.rules]]\ntools = ['wipe', 'other.onee']\naction = 'deny'\n\
         [limits.tools.wipee]\ntimeout = 1\n"
    );
    let project =
        Project::new(&[("moonlark.toml", &config), ("tools/wipe.lua", &tool("wipe", "wiped"))]);
    let token = project.run(&["token", "add", "ci", "--tools", "other.*", "--tools", "otter.*"]);
    assert!(token.status.success());
    let policy = |args: &[&str]| -> Vec<String> {
        let report: Value = serde_json::from_slice(&project.run(args).stdout).unwrap();
        let findings = report["findings"].as_array().unwrap().clone();
        let about = |it: &&Value| it["what"] == json!("policy") || it["what"] == json!("limits");
        let message = |it: &Value| it["error"]["message"].as_str().unwrap().to_owned();
        findings.iter().filter(about).map(message).collect()
    };
    let expected = [
        "the token ci has \"otter.*\" in tools, which matches nothing",
        "has \"other.onee\" in tools, which matches nothing",
        "never decides: all it matches is decided by ",
        "limits.tools.wipee limits nothing: there is no wipee",
    ];
    let check = || {
        let said = policy(&["doctor", "--json"]);
        assert_eq!(said.len(), expected.len(), "{said:#?}");
        for (said, expected) in said.iter().zip(expected) {
            assert!(said.contains(expected), "{said}");
        }
    };
    check();
    // The same when the server is asked, right after its start.
    let server = project.serve();
    check();
    let report = project.run(&["doctor"]);
    let text = String::from_utf8_lossy(&report.stdout).into_owned();
    assert!(text.contains(&format!("serving on http://{}", server.address)), "{text}");
}
