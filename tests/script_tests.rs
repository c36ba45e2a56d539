//! `moonlark test`: the tests that authors write, in both languages.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::{Log, Project, moonlark};

const GREET: &str = r#"
def greet(params):
    if params["name"] == "":
        fail("nobody to greet")
    return "Hello, " + params["name"]

def weather(params, context):
    answer = http.get("https://weather.example/" + params["city"], headers = {"X-Key": context.config["key"]})
    if not answer["ok"]:
        return {"content": [{"type": "text", "text": "status %d" % answer["status"]}], "isError": True}
    return answer["json"]["celsius"]

def branch(params):
    return exec.run("git", ["branch"])["stdout"].strip()

def describe_extension():
    return Extension(name = "greet", tools = [Tool(name = "greet", handler = greet)])
"#;

const GREET_TEST: &str = r#"
load("greet.star", "greet", "weather", "branch")

def test_greets():
    testing.eq(greet({"name": "Ada"}), "Hello, Ada")
    testing.ne(greet({"name": "Ada"}), "Hello, Bob")
    testing.contains(greet({"name": "Ada"}), "Ada")

def test_refuses_nobody():
    message = testing.raises(lambda: greet({"name": ""}), "nobody")
    testing.eq(message, "nobody to greet")

def test_weather_is_asked_for():
    testing.mock_http("https://weather.example/*", status = 404)
    testing.mock_http("https://weather.example/rome", method = "get", json = {"celsius": 21})
    context = testing.context({"key": "k"})
    testing.eq(weather({"city": "rome"}, context), 21)
    testing.is_true(weather({"city": "oz"}, context)["isError"])
    calls = testing.calls("http")
    testing.eq(len(calls), 2)
    testing.eq(calls[0]["headers"], {"X-Key": "k"})

def test_what_is_not_mocked_is_an_error():
    testing.mock_http("https://other.example/")
    testing.raises(lambda: weather({"city": "x"}, testing.context({"key": "k"})), "no mock fits this call of http.get")

def test_commands_are_mocked():
    testing.mock_exec("git", args = ["branch"], stdout = "main\n")
    testing.eq(branch({}), "main")

def test_tools_are_mocked():
    testing.mock_tool("search", returns = [{"title": "x"}], when = {"query": "moon*"})
    context = testing.context()
    testing.eq(context.search("moonlark"), [{"title": "x"}])
    testing.raises(lambda: context.search("sun"), "no mock fits")

def test_mocks_are_gone_in_the_next_test():
    testing.eq(testing.calls("http"), [])

def helper():
    fail("this is no test")
"#;

const ADD: &str = r#"
tool = { name = "add", description = "", parameters = { { name = "a", type = "number" } } }
function tool.execute(params, context)
    local found = context.call("offset", {})
    return params.a + found.by
end
"#;

const ADD_TEST: &str = r#"
local add = require("./add")
local state = 0

function test_adds()
    state += 1
    testing.eq(state, 1)
    testing.mock_tool("offset", { returns = { by = 2 } })
    testing.eq(add.execute({ a = 1 }, testing.context()), 3)
end

function test_state_is_fresh()
    state += 1
    testing.eq(state, 1)
end

function test_waits()
    sleep(0.001)
    testing.raises(function() error("boom") end, "boom")
    testing.raises(function() json.decode("{") end, "invalid JSON")
end
"#;

fn project() -> Project {
    Project::new(&[
        ("extensions/greet.star", GREET),
        ("extensions/greet_test.star", GREET_TEST),
        ("tools/add.luau", ADD),
        ("tools/add_test.luau", ADD_TEST),
    ])
}

fn outcome(run: &std::process::Output) -> Value {
    serde_json::from_slice(&run.stdout).unwrap_or_else(|_| panic!("{run:?}"))
}

#[test]
fn tests_of_both_languages_pass_and_are_isolated() {
    let project = project();
    let run = project.run(&["test", "--json"]);
    let outcome = outcome(&run);
    assert_eq!(run.status.code(), Some(0), "{outcome:#}");
    assert_eq!((&outcome["passed"], &outcome["failed"]), (&json!(10), &json!(0)));
    let names: Vec<&str> =
        outcome["tests"].as_array().unwrap().iter().filter_map(|it| it["name"].as_str()).collect();
    assert_eq!(
        names,
        [
            "test_commands_are_mocked",
            "test_greets",
            "test_mocks_are_gone_in_the_next_test",
            "test_refuses_nobody",
            "test_tools_are_mocked",
            "test_weather_is_asked_for",
            "test_what_is_not_mocked_is_an_error",
            "test_adds",
            "test_state_is_fresh",
            "test_waits",
        ]
    );
}

#[test]
fn a_failure_shows_what_differs_and_where() {
    let project = Project::new(&[
        (
            "extensions/x_test.star",
            "def test_a():\n    print('on the way')\n    testing.eq({'items': [1, 2], 'ok': True}, {'items': [1, 3], 'ok': False}, 'the order')\n\ndef test_b():\n    pass\n",
        ),
        (
            "tools/y_test.luau",
            "function test_text()\n  testing.eq('one\\ntwo\\n', 'one\\n2\\n')\nend\nfunction test_loop()\n  while true do end\nend\n",
        ),
        ("moonlark.toml", "[limits]\ntimeout = 0.3\n"),
    ]);
    let run = project.run(&["test"]);
    assert_eq!(run.status.code(), Some(1));
    let said = String::from_utf8_lossy(&run.stdout);
    // Times differ from run to run.
    let said: Vec<&str> = said.lines().map(|line| line.split(" (").next().unwrap()).collect();
    assert_eq!(
        said.join("\n"),
        "\
extensions/x_test.star
  ✗ test_a
      error[tool_error]: testing.eq: the order: the values differ:
        items[1] is 2, expected 3
        ok is true, expected false
        --> extensions/x_test.star:3
      3 | testing.eq({'items': [1, 2], 'ok': True}, {'items': [1, 3], 'ok': False}, 'the order')
      said: on the way
  ✓ test_b

tools/y_test.luau
  ✗ test_loop
      error[timeout]: the test timed out after 0.3 seconds
  ✗ test_text
      error[tool_error]: testing.eq: the text differs from line 2 on:
            one
          - 2
          + two
         
        --> tools/y_test.luau:2
      2 | testing.eq('one\\ntwo\\n', 'one\\n2\\n')

1 passed, 3 failed"
    );
}

#[test]
fn filters_junit_and_exit_codes_are_for_ci() {
    let project = project();
    let run = project.run(&["test", "--filter", "greet_test.star::test_re", "--json"]);
    assert_eq!(outcome(&run)["passed"], json!(1));
    let junit = project.path("out.xml");
    let run = project.run(&["test", "tools", "--junit", junit.to_str().unwrap()]);
    assert_eq!(run.status.code(), Some(0));
    let xml = std::fs::read_to_string(junit).unwrap();
    assert!(
        xml.starts_with("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites tests=\"3\" failures=\"0\">\n  <testsuite name=\"tools/add_test.luau\" tests=\"3\" failures=\"0\">\n    <testcase classname=\"tools/add_test.luau\" name=\"test_adds\" time=\""),
        "{xml}"
    );
    // No test is no success.
    for args in [&["test", "--filter", "nothing"][..], &["test", "empty"]] {
        std::fs::create_dir_all(project.path("empty")).unwrap();
        let run = project.run(args);
        assert_eq!(run.status.code(), Some(1), "{args:?}");
        assert!(
            String::from_utf8_lossy(&run.stderr)
                .starts_with("error[bad_request]: no test was found")
        );
    }
    assert_eq!(project.run(&["test", "--allow", "everything"]).status.code(), Some(2));
    // A file that does not load is a failure too.
    project.write("extensions/broken_test.star", "def test_x(:\n");
    let run = project.run(&["test", "--json"]);
    assert_eq!((run.status.code(), &outcome(&run)["failed"]), (Some(1), &json!(1)));
}

#[test]
fn a_file_without_a_test_is_a_failure_also_among_others() {
    let project = project();
    project.write("tools/table_test.luau", "return { test_a = function() end }\n");
    project.write("extensions/none_test.star", "def tets_a():\n    pass\n");
    let run = project.run(&["test"]);
    let said = String::from_utf8_lossy(&run.stdout);
    assert_eq!(run.status.code(), Some(1), "{said}");
    for expected in [
        "extensions/none_test.star\n  ✗ the file has no test\n      error[bad_script]: the file has no test\n        --> extensions/none_test.star\n      hint: a test is a function whose name begins with test_: def test_adds(): …\n",
        "tools/table_test.luau\n  ✗ the file has no test\n",
        "neither a local function nor a returned table is one\n",
        "10 passed, 2 failed",
    ] {
        assert!(said.contains(expected), "{expected}\n---\n{said}");
    }
    // A filter that names another file leaves it out.
    let run = project.run(&["test", "--filter", "greet_test.star"]);
    assert_eq!(run.status.code(), Some(0), "{run:?}");
    let run = project.run(&["test", "tools/table_test.luau"]);
    assert_eq!(run.status.code(), Some(1), "{run:?}");
}

/// The rule would ask a person, and a test has none.
#[test]
fn testing_call_passes_rules_that_ask_for_an_approval() {
    let wipe = "tool = { name = 'wipe', description = 'd', annotations = { destructive = true } }\nfunction tool.execute() return 'gone' end\n";
    let project = Project::new(&[
        ("tools/wipe.lua", wipe),
        (
            "tools/wipe_test.luau",
            "function test_it()\n  testing.eq(testing.call('wipe'), 'gone')\n  testing.raises(function() testing.call('shut') end, 'shut')\nend\n",
        ),
        ("tools/shut.lua", &wipe.replace("wipe", "shut")),
        (
            "moonlark.toml",
            "[[policy.rules]]\ntools = [\"wipe\"]\naction = \"approve\"\n[[policy.rules]]\ntools = [\"shut\"]\naction = \"deny\"\n",
        ),
    ]);
    let tested = project.run(&["test"]);
    assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stdout));
    // Outside of tests the rule holds.
    assert!(!project.run(&["call", "wipe"]).status.success());
}

#[test]
fn an_extension_folder_of_its_own_needs_no_project() {
    let project = Project::new(&[
        ("elsewhere/greet.star", GREET),
        ("elsewhere/greet_test.star", GREET_TEST),
        (
            "elsewhere/deep/more_test.star",
            "load('../greet.star', 'greet')\n\ndef test_up():\n    testing.eq(greet({'name': 'x'}), 'Hello, x')\n",
        ),
    ]);
    let run = project.run(&["test", "elsewhere", "--json"]);
    assert_eq!(outcome(&run)["passed"], json!(8), "{run:?}");
    // What a test may do is what its script may, and what is allowed here.
    project.write(
        "elsewhere/run_test.star",
        "def test_runs():\n    testing.eq(exec.run('echo', ['hi'])['stdout'], 'hi\\n')\n",
    );
    let run = project.run(&["test", "elsewhere/run_test.star"]);
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(said.contains("error[denied]: exec.run may not run echo"), "{said}");
    let run = project.run(&["test", "elsewhere/run_test.star", "--allow", "exec:echo"]);
    assert_eq!(run.status.code(), Some(0), "{run:?}");
}

#[test]
fn watching_runs_again_after_an_edit() {
    let project =
        Project::new(&[("extensions/x_test.star", "def test_x():\n    testing.eq(1, 2)\n")]);
    let mut child = moonlark()
        .args(["test", "--watch"])
        .current_dir(project.path("."))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let log = Log::follow(child.stdout.take().unwrap());
    log.wait_for("0 passed, 1 failed");
    project.write("extensions/x_test.star", "def test_x():\n    testing.eq(1, 1)\n");
    log.wait_for("1 passed, 0 failed");
    child.kill().unwrap();
    child.wait().unwrap();
}

const GATED: &str = r#"
tool = {
    name = "gated",
    title = "Gated",
    description = "What callers meet",
    parameters = {
        { name = "count", type = "integer", minimum = 1, default = "2" },
        { name = "url", type = "string", default = "https://a.example/" },
    },
    outputSchema = { type = "object", properties = { total = { type = "integer" } }, required = { "total" } },
}

function tool.execute(params, context)
    local answer = http.get(params.url, { query = { page = params.count } })
    if answer.status == 404 then return { lost = true } end
    return { total = params.count + answer.json.n }
end
"#;

/// Defaults, validation and the output schema, with mocks, in both languages.
#[test]
fn testing_call_goes_through_the_gate() {
    let luau = r#"
function test_defaults_and_mocks()
    testing.mock_http("https://a.example/?page=2", { json = { n = 5 } })
    testing.eq(testing.call("gated"), { total = 7 })
    testing.eq(testing.call(require("./gated")), { total = 7 })
end

function test_arguments_are_checked()
    testing.raises(function() testing.call("gated", { count = 0 }) end, "must be at least 1")
    testing.raises(function() testing.call("gated", { cuont = 1 }) end, "did you mean count?")
end

function test_the_result_is_held_to_the_output()
    testing.mock_http("*", { status = 404 })
    testing.raises(function() testing.call("gated") end, "does not match tool.output")
end

function test_an_unknown_tool()
    testing.raises(function() testing.call("gatted") end, "gatted")
end
"#;
    let star = r#"
def test_the_same_from_starlark():
    testing.mock_http("*page=3", json = {"n": 1})
    testing.eq(testing.call("gated", {"count": 3}), {"total": 4})
    testing.raises(lambda: testing.call("gated", {"count": "x"}), "must be integer")
"#;
    let project = Project::new(&[
        ("tools/gated.lua", GATED),
        ("tools/gated_test.luau", luau),
        ("extensions/gated_test.star", star),
    ]);
    let tested = project.run(&["test"]);
    let said = String::from_utf8_lossy(&tested.stdout).into_owned();
    assert!(tested.status.success(), "{said}");
    assert!(said.contains("5 passed, 0 failed"), "{said}");
}

#[test]
fn differences_are_counted_as_the_language_counts() {
    let project = Project::new(&[
        (
            "tools/x_test.luau",
            "function test_it() testing.eq({ a = { 1, 2, 3 } }, { a = { 1, 2, 4 } }) end\n",
        ),
        (
            "extensions/x_test.star",
            "def test_it():\n    testing.eq({'a': [1, 2, 3]}, {'a': [1, 2, 4]})\n",
        ),
    ]);
    let said = String::from_utf8_lossy(&project.run(&["test"]).stdout).into_owned();
    assert!(
        said.contains("testing.eq: a[3] is 3, expected 4\n        --> tools/x_test.luau:1"),
        "{said}"
    );
    assert!(
        said.contains("testing.eq: a[2] is 3, expected 4\n        --> extensions/x_test.star:2"),
        "{said}"
    );
}

#[test]
fn a_new_tool_comes_with_a_test_that_passes() {
    for (flags, file) in
        [(&[][..], "tools/hello_test.luau"), (&["--starlark"][..], "extensions/hello_test.star")]
    {
        let project = Project::new(&[]);
        let made = project.run(&[&["tool", "init", "hello"][..], flags].concat());
        assert!(made.status.success());
        assert!(String::from_utf8_lossy(&made.stdout).contains(&format!("Created {file}")));
        let tested = project.run(&["test"]);
        assert!(tested.status.success(), "{}", String::from_utf8_lossy(&tested.stdout));
    }
}

/// What is printed is what the next command takes, in whichever folder of the project.
#[test]
fn paths_of_a_new_tool_work_where_they_are_printed() {
    for flags in [&[][..], &["--starlark"][..]] {
        let project = Project::new(&[("moonlark.toml", ""), ("docs/deep/x.md", "")]);
        let below = |args: &[&str]| {
            let dir = project.path("docs/deep");
            let run = moonlark().args(args).current_dir(dir).stdin(Stdio::null()).output().unwrap();
            let said = String::from_utf8_lossy(&[run.stdout, run.stderr].concat()).into_owned();
            assert!(run.status.success(), "{args:?}: {said}");
            said
        };
        let made = below(&[&["tool", "init", "hello"][..], flags].concat());
        let created: Vec<&str> =
            made.lines().filter_map(|line| line.strip_prefix("Created ")).collect();
        assert!(created.iter().all(|it| it.starts_with("../../")), "{made}");
        below(&["check", created[0]]);
        below(&["check", created[1]]);
        let tested = made.lines().find_map(|it| it.strip_prefix("Test it: moonlark ")).unwrap();
        below(&tested.split(' ').collect::<Vec<_>>());
        let tried = made.lines().find_map(|it| it.strip_prefix("Try it: moonlark ")).unwrap();
        let tried = below(&tried.split(' ').collect::<Vec<_>>());
        assert!(tried.contains("Returned result"), "{tried}");
    }
}

#[test]
fn titles_are_shown_and_what_could_be_better_is_said() {
    let project = Project::new(&[
        ("tools/gated.lua", GATED),
        ("tools/silent.lua", "tool = { name = 'silent', params = {} } function tool.execute() end"),
    ]);
    let out = |args: &[&str]| {
        let ran = project.run(args);
        String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned()
    };
    assert!(
        out(&["tool", "list"]).contains("Gated: What callers meet"),
        "{}",
        out(&["tool", "list"])
    );
    assert!(
        out(&["docs", "gated"]).starts_with("gated (Gated)\nWhat callers meet\n"),
        "{}",
        out(&["docs", "gated"])
    );
    let checked = out(&["check"]);
    for warning in [
        "warning: tool.outputSchema is called output here\n  --> tools/gated.lua",
        "warning: tool.parameters: defaults are written as text: count",
        "warning: tool has no description\n  --> tools/silent.lua",
        "warning: tool.params is called parameters here",
        "2 scripts checked, nothing wrong, 4 warnings",
    ] {
        assert!(checked.contains(warning), "{warning}\n---\n{checked}");
    }
}

#[test]
fn fields_that_mean_something_elsewhere_are_told_apart_from_helpers() {
    for (script, expected) in [
        (
            "tool = { name = 'x', helper = 1, zeta = 2, descripton = 'd' } function tool.execute() end",
            "did you mean tool.description?",
        ),
        ("tool = { name = 'x' } function tool.run() end", "rename tool.run to tool.execute"),
        (
            "tool = { name = 'x', parameters = { { name = 'n', type = 'integer', maximum = 3, default = 4 } } } function tool.execute() end",
            "parameter 'n' must be at most 3",
        ),
    ] {
        let project = Project::new(&[("tools/x.lua", script)]);
        let checked = project.run(&["check"]);
        let said = String::from_utf8_lossy(&checked.stderr).into_owned();
        assert!(!checked.status.success() && said.contains(expected), "{script}: {said}");
    }
}
