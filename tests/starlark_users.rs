//! Extensions as users of starlark-mcp write them, with their tests, unchanged:
//! `tests/starlark_users/extensions`.

use std::path::Path;

use serde_json::{Value, json};

use crate::harness::{Project, repo};

/// All of them in a project of their own: one keeps a database.
fn project() -> Project {
    let project = Project::new(&[]);
    let home = repo().join("tests/starlark_users");
    let copy = |from: &Path, to: &str| {
        project.write(to, &std::fs::read_to_string(from).unwrap());
    };
    copy(&home.join("moonlark.toml"), "moonlark.toml");
    for entry in std::fs::read_dir(home.join("extensions")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        copy(&path, &format!("extensions/{name}"));
    }
    project
}

#[test]
fn extensions_written_for_starlark_mcp_run_unchanged_with_their_tests() {
    let project = project();
    let checked = project.run(&["check", "--json"]);
    let said: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(said["problems"], json!([]), "{said:#}");
    assert!(checked.status.success());

    let tested = project.run(&["test", "--json"]);
    let report: Value = serde_json::from_slice(&tested.stdout).unwrap();
    assert_eq!(report["failed"], 0, "{report:#}");
    assert!(report["passed"].as_u64().unwrap() >= 90, "{report:#}");
    let extensions = std::fs::read_dir(project.path("extensions")).unwrap();
    let tests = extensions
        .filter(|entry| {
            entry.as_ref().unwrap().file_name().to_str().unwrap().ends_with("_test.star")
        })
        .count();
    assert!(tests >= 25, "{tests} extensions with tests");
}

#[test]
fn what_we_would_write_otherwise_is_a_warning_and_no_refusal() {
    let project = Project::new(&[(
        "extensions/odd.star",
        r#"
def run(params):
    return params

def describe_extension():
    return Extension(
        name = "odd",
        tools = [Tool(
            name = "odd",
            description = "Odd",
            input_schema = [ToolParameter(name = "n", type = "int", default = "7")],
            output_schema = {"type": "object"},
            handler = run,
        )],
    )
"#,
    )]);
    let checked = project.run(&["check"]);
    assert!(checked.status.success());
    let said = String::from_utf8(checked.stderr).unwrap();
    for warning in [
        "warning: odd.input_schema is called parameters here\n  --> extensions/odd.star",
        "warning: odd.output_schema is called output here",
        "warning: odd.parameters.n.type is \"int\", which is called \"integer\" here",
        "warning: odd.parameters: defaults are written as text: n",
    ] {
        assert!(said.contains(warning), "{warning}\n---\n{said}");
    }
    let out = String::from_utf8(checked.stdout).unwrap();
    assert_eq!(out, "1 script checked, nothing wrong, 4 warnings\n");
    let called = project.run(&["call", "odd", "--json"]);
    assert!(String::from_utf8_lossy(&called.stdout).contains("7"), "{called:?}");
}

#[test]
fn clients_see_titles_hints_and_lists() {
    let project = project();
    let server = project.serve();
    let listed = server.mcp("tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let tool = |name: &str| tools.iter().find(|tool| tool["name"] == name).unwrap().clone();
    let sales = tool("sales_by_region");
    assert_eq!(sales["title"], "Sales by region");
    assert_eq!(sales["annotations"]["readOnlyHint"], true);
    assert_eq!(sales["annotations"]["destructiveHint"], false);
    assert_eq!(sales["outputSchema"]["required"], json!(["year", "total"]));
    assert_eq!(sales["inputSchema"]["properties"]["top"]["default"], 5);
    let called = server.mcp(
        "tools/call",
        json!({"name": "search_items", "arguments": {"query": "tea", "limit": 1}}),
    );
    assert_eq!(called["result"]["content"][0]["text"], "Green tea", "{called}");
    assert_eq!(called["result"]["structuredContent"][0]["name"], "Green tea", "{called}");
    let (status, answer) = server.post("item_categories", &json!({}));
    assert_eq!((status, &answer["result"]), (200, &json!(["bakery", "drinks"])));
}

/// The data is part of the extension: it is loaded again with it, and a broken
/// file changes nothing.
#[test]
fn a_changed_data_file_reloads_the_extension() {
    let star = r#"
ITEMS = data.load_json("lists/items.json")

def count(params):
    return len(ITEMS)

def describe_extension():
    return Extension(name = "count", tools = [Tool(name = "count", description = "How many", handler = count)])
"#;
    let project =
        Project::new(&[("extensions/count.star", star), ("extensions/lists/items.json", "[1, 2]")]);
    let server = project.serve();
    let is = |count: u64| move |_: u16, answer: &Value| answer["result"] == json!(count);
    server.wait_until("count", is(2));
    project.write("extensions/lists/items.json", "[1, 2, 3]");
    server.wait_until("count", is(3));
    project.write("extensions/lists/items.json", "[1, 2, 3");
    server.log.wait_for("the last good version stays in use");
    assert_eq!(server.post("count", &json!({})).1["result"], json!(3));
    // A worker that is new reads what was loaded, not what is there now.
    let calls: Vec<_> = (0..8)
        .map(|_| {
            let address = server.address.clone();
            std::thread::spawn(move || {
                let body = b"{}";
                let headers = [("Content-Type", "application/json")];
                let answer =
                    crate::harness::request(&address, "POST", "/tools/count", &headers, body);
                String::from_utf8_lossy(&answer.body).into_owned()
            })
        })
        .collect();
    for call in calls {
        assert_eq!(call.join().unwrap(), r#"{"result":3}"#);
    }
    project.remove("extensions/lists/items.json");
    server.log.wait_for("no file lists/items.json in the extensions folder");
}

#[test]
fn data_stays_inside_the_extensions_folder() {
    for (path, why) in [
        ("../moonlark.toml", "leave the extensions folder"),
        ("/etc/passwd", "not a path inside"),
        ("link.json", "cannot be read"),
        ("missing.json", "no file missing.json"),
        ("broken.json", "broken.json"),
    ] {
        let star = format!(
            "X = data.load_json({path:?})\ndef describe_extension():\n    return Extension(name = 'x')\n"
        );
        let project = Project::new(&[
            ("extensions/x.star", &star),
            ("extensions/broken.json", "{"),
            ("secret.json", "{}"),
        ]);
        #[cfg(unix)]
        std::os::unix::fs::symlink("../secret.json", project.path("extensions/link.json")).unwrap();
        let checked = project.run(&["check"]);
        assert!(!checked.status.success(), "{path}");
        let said = String::from_utf8_lossy(&checked.stderr).into_owned();
        assert!(said.contains(why), "{path}: {said}");
        assert!(said.contains("extensions/x.star:1"), "{path}: {said}");
    }
}

#[test]
fn a_file_that_makes_tools_and_describes_none_is_told() {
    let project = Project::new(&[(
        "extensions/lost.star",
        "def run(params):\n    return 1\n\ntool = Tool(name = 'lost', description = 'Lost', handler = run)\n",
    )]);
    let checked = project.run(&["check", "extensions/lost.star"]);
    assert!(!checked.status.success());
    assert_eq!(
        String::from_utf8_lossy(&checked.stderr),
        "error[bad_script]: the file makes tools, but defines no function describe_extension: it gives none\n  \
         --> extensions/lost.star\n\
         hint: end it with: def describe_extension(): return Extension(name = \"…\", tools = […])\n\n\
         1 script checked, 1 error\n"
    );
}

/// A limit ends the script, whatever stands around what met it.
#[test]
fn try_call_catches_failures_and_no_limits() {
    let star = r#"
def caught(params):
    result = try_call(context_free, 1, b = 2)
    return [result.ok, result.error.code, result.error.message]

def context_free(a, b):
    fail("no %d %d" % (a, b))

def endless(params):
    result = try_call(loop)
    return "caught"

def loop():
    for _ in range(1000000000):
        pass

def deep(params):
    return try_call(lambda: fall(0)).ok

def fall(n):
    return fall(n + 1)

def denied(params):
    return try_call(exec.run, "ls").error.code

def tool(name, handler):
    return Tool(name = name, description = name, handler = handler)

def describe_extension():
    return Extension(name = "t", tools = [
        tool("caught", caught), tool("endless", endless), tool("deep", deep), tool("denied", denied),
    ])
"#;
    let project = Project::new(&[
        ("extensions/t.star", star),
        ("moonlark.toml", "[limits]\nsteps = 100000\n"),
    ]);
    let call = |tool: &str| {
        let called = project.run(&["call", tool]);
        String::from_utf8_lossy(&[called.stdout, called.stderr].concat()).into_owned()
    };
    let caught = call("caught");
    assert_eq!(
        serde_json::from_str::<Value>(&caught).unwrap(),
        json!([false, "tool_error", "no 1 2"])
    );
    assert!(call("denied").contains("denied"));
    assert!(call("endless").contains("error[limit]"), "{}", call("endless"));
    assert!(call("deep").contains("error[limit]"), "{}", call("deep"));
}
