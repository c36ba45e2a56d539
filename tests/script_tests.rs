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
