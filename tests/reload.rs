//! Scripts that change while they are called without pause.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::harness::Project;
use crate::start_up::hang_up;

/// A version of a script: its answer names the version twice, once from the top
/// level and once from inside, so that a mixture would show.
fn version(name: &str, number: u64) -> String {
    format!(
        "local top = {number}\ntool = {{ name = '{name}', description = 'version {number}', parameters = {{}} }}\n\
         function tool.execute() sleep(0.001) return {{ top = top, inside = {number} }} end\n"
    )
}

#[test]
fn calls_never_fail_while_scripts_change_under_them() {
    let project = Project::new(&[
        ("tools/steady.lua", &version("steady", 1)),
        ("tools/other.lua", &version("other", 1)),
    ]);
    let server = Arc::new(project.serve());
    let stop = Arc::new(AtomicBool::new(false));
    let calls = Arc::new(AtomicU64::new(0));
    let versions = Arc::new(Mutex::new(HashSet::new()));
    let clients: Vec<_> = (0..32)
        .map(|_| {
            let (server, stop, calls, versions) =
                (server.clone(), stop.clone(), calls.clone(), versions.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let (status, answer) = server.post("steady", &json!({}));
                    assert_eq!(status, 200, "{answer}");
                    let (top, inside) = (&answer["result"]["top"], &answer["result"]["inside"]);
                    assert_eq!(top, inside, "an answer from two versions");
                    versions.lock().unwrap().insert(top.as_u64().unwrap());
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();

    let is = |number: u64| move |_: u16, answer: &Value| answer["result"]["top"] == json!(number);
    // Modify, again and again; in place as well as by rename.
    for number in 2..=10 {
        if number % 2 == 0 {
            project.write("tools/steady.lua", &version("steady", number));
        } else {
            std::fs::write(project.path("tools/steady.lua"), version("steady", number)).unwrap();
        }
        server.wait_until("steady", is(number));
    }
    // Break it: the last good version stays, and the log says where.
    project.write("tools/steady.lua", "tool = {\n  name = 'steady',\n  oops oops\n}");
    server.log.wait_for("the last good version stays in use");
    let line = server.log.wait_for("-->");
    assert!(line.contains("tools/steady.lua:3"), "{line}");
    assert_eq!(server.post("steady", &json!({})).1["result"]["top"], json!(10));
    // Mend it.
    project.write("tools/steady.lua", &version("steady", 11));
    server.wait_until("steady", is(11));
    // Create and remove neighbours.
    project.write("tools/new.lua", &version("new", 1));
    server.wait_until("new", is(1));
    project.remove("tools/new.lua");
    server.wait_until("new", |status, _| status == 404);
    // Rename a file: the same tool from another place, and no ghost.
    std::fs::rename(project.path("tools/other.lua"), project.path("tools/moved.lua")).unwrap();
    project.write("tools/moved.lua", &version("other", 2));
    server.wait_until("other", is(2));
    let listing = server.get("/tools/list").json();
    let names: Vec<&str> = listing["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    assert_eq!(names, ["search", "get_document", "list_sources", "other", "steady"]);

    stop.store(true, Ordering::Relaxed);
    for client in clients {
        client.join().unwrap();
    }
    assert!(calls.load(Ordering::Relaxed) > 100);
    assert!(versions.lock().unwrap().contains(&11));
}

#[test]
fn clients_are_told_when_tools_change() {
    let project = Project::new(&[("tools/one.lua", &version("one", 1))]);
    let mut client = project.stdio();
    // An old client is told without asking.
    client.send_raw(
        b"{\"jsonrpc\":\"2.0\",\"id\":100,\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{},\"clientInfo\":{\"name\":\"suite\",\"version\":\"1\"}}}\n\
          {\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}\n\
          {\"jsonrpc\":\"2.0\",\"id\":101,\"method\":\"tools/list\"}\n",
    );
    client.answer(101);
    project.write("tools/two.lua", &version("two", 1));
    loop {
        if client.message()["method"] == json!("notifications/tools/list_changed") {
            break;
        }
    }
    client.send_raw(b"{\"jsonrpc\":\"2.0\",\"id\":102,\"method\":\"tools/list\"}\n");
    let names: Vec<String> = client.answer(102)["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|tool| tool["name"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(names, ["one", "two"]);
}

#[test]
fn the_configuration_is_reloaded_and_a_broken_one_changes_nothing() {
    let script = "tool = { name = 'who', description = '', parameters = {} }\nfunction tool.execute(_, context) return { name = context.config.name } end";
    let config =
        |name: &str| format!("[tools.script.who]\npath = \"who.lua\"\nname = \"{name}\"\n");
    let project = Project::new(&[("who.lua", script), ("moonlark.toml", &config("first"))]);
    let server = project.serve();
    let is =
        |name: &'static str| move |_: u16, answer: &Value| answer["result"]["name"] == json!(name);
    server.wait_until("who", is("first"));
    project.write("moonlark.toml", &config("second"));
    server.wait_until("who", is("second"));
    project.write("moonlark.toml", "[tools.script.who]\npath = 5\n");
    server.log.wait_for("the last good version stays in use");
    assert_eq!(server.post("who", &json!({})).1, json!({"result": {"name": "second"}}));
    project.write("moonlark.toml", &config("third"));
    server.wait_until("who", is("third"));
}

#[test]
fn a_tool_is_loaded_again_when_a_file_it_requires_changes() {
    let tool = "local text = require('./lib/text')\ntool = { name = 'say', description = '', parameters = {} }\n\
                function tool.execute() return { text = text } end";
    let project = Project::new(&[
        ("tools/say.lua", tool),
        ("tools/lib/text.lua", "return require('./inner') .. ' 1'"),
        ("tools/lib/inner.luau", "return 'text'"),
    ]);
    let server = project.serve();
    let is =
        |text: &'static str| move |_: u16, answer: &Value| answer["result"]["text"] == json!(text);
    server.wait_until("say", is("text 1"));
    project.write("tools/lib/text.lua", "return require('./inner') .. ' 2'");
    server.wait_until("say", is("text 2"));
    project.write("tools/lib/inner.luau", "return 'words'");
    server.wait_until("say", is("words 2"));
    // A broken one leaves the last good version in use, and the log says where.
    project.write("tools/lib/inner.luau", "return\n= 'oops'");
    server.log.wait_for("the last good version stays in use");
    let line = server.log.wait_for("-->");
    assert!(line.contains("tools/lib/inner.luau:2"), "{line}");
    assert_eq!(server.post("say", &json!({})).1["result"]["text"], json!("words 2"));
    project.write("tools/lib/inner.luau", "return 'mended'");
    server.wait_until("say", is("mended 2"));
    // A file that is looked for first may appear later.
    project.write("tools/lib/text.luau", "return 'another file'");
    server.wait_until("say", is("another file"));
    project.remove("tools/lib/text.luau");
    server.wait_until("say", is("mended 2"));
}

/// Each version of the project has one of two tools, and a rule that denies the other. A
/// caller that sees none of them was given the rules of one version and the tools of
/// another.
#[test]
fn rules_and_tools_that_change_together_take_effect_in_one_step() {
    // It takes a while to load, so that there is time to see half of a change.
    let script = |name: &str| {
        format!(
            "for i = 1, 200000 do local _ = {{ i }} end\n\
             tool = {{ name = '{name}', description = 'one of two', parameters = {{}} }}\n\
             function tool.execute() return 1 end\n"
        )
    };
    let config = |denied: &str| {
        format!(
            "[tools]\nwatch = false\n[tools.script.asker]\npath = 'tools/asker.lua'\nallow = ['tool:*']\n\
             [extensions]\nwatch = false\n\
             [[policy.rules]]\ntools = ['{denied}']\naction = 'deny'\n"
        )
    };
    // Both are called within one call, which has one catalog and the rules that belong to it.
    let asker = "tool = { name = 'asker', description = 'calls both', parameters = {} }\n\
                 function tool.execute(_, context)\n\
                 local answered = 0\n\
                 for _, name in { 'odd', 'even' } do\n\
                 if pcall(context.call, name, {}) then answered += 1 end\n\
                 end\n\
                 return answered\n\
                 end\n";
    let project = Project::new(&[
        ("moonlark.toml", &config("odd")),
        ("tools/one.lua", &script("even")),
        ("tools/asker.lua", asker),
    ]);
    let server = Arc::new(project.serve());
    server.wait_until("even", |status, _| status == 200);
    server.wait_until("asker", |status, _| status == 200);
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (server, stop) = (server.clone(), stop.clone());
            std::thread::spawn(move || {
                let mut seen = HashSet::new();
                while !stop.load(Ordering::Relaxed) {
                    let listing = server.get("/tools/list").json();
                    let names = listing["tools"].as_array().unwrap().iter();
                    let names = names.filter_map(|tool| tool["name"].as_str());
                    let names: Vec<&str> =
                        names.filter(|it| ["odd", "even"].contains(it)).collect();
                    assert_eq!(names.len(), 1, "rules and tools of two versions: {names:?}");
                    seen.insert(names[0].to_owned());
                    let (status, answer) = server.post("asker", &json!({}));
                    assert_eq!((status, &answer["result"]), (200, &json!(1)), "{answer}");
                }
                seen
            })
        })
        .collect();
    for number in 1..=8 {
        let (now, before) = if number % 2 == 1 { ("odd", "even") } else { ("even", "odd") };
        project.write("moonlark.toml", &config(before));
        project.write("tools/one.lua", &script(now));
        hang_up(&server);
        server.wait_until(now, |status, _| status == 200);
        assert_eq!(server.post(before, &json!({})).0, 404);
    }
    stop.store(true, Ordering::Relaxed);
    for client in clients {
        assert_eq!(client.join().unwrap().len(), 2, "both versions were seen");
    }
}
