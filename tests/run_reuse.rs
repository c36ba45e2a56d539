//! Recorded runs used again, by the real binary: forked, compared, looked into, made into
//! tests. The service behind them counts, so it is known what was called.

mod answering;

use std::process::Output;

use serde_json::{Value, json};

use self::answering::Answering;
use crate::harness::Project;

const SCRIPT: &str = "local list = sdk.shop.list({ page = 1 })
local names = {}
for _, row in list.rows do table.insert(names, row.name) end
sdk.shop.put({ id = 'a', password = 'hunter2hunter2' })
local token = sdk.shop.login({}).token
sdk.shop.put({ id = token })
print('names', #names)
return { names = names, total = list.total.sum }
";

const ROWS: &str = r#"{"rows":[{"name":"ann","age":3},{"name":"bob","age":4}],"total":{"sum":7},"token":"tok-secret-4711"}"#;

struct Shop {
    service: Answering,
    project: Project,
}

impl Shop {
    fn new() -> Shop {
        let service = Answering::start(ROWS);
        let project = Project::new(&[
            ("shop.json", &service.document()),
            ("script.luau", SCRIPT),
            ("moonlark.toml", "[apis.shop]\nspec = \"shop.json\"\n"),
        ]);
        Shop { service, project }
    }

    /// Run the script; the id of the run.
    fn run_script(&self) -> String {
        let ran = self.project.run(&["run", "script.luau", "--json", "--quiet"]);
        assert!(ran.status.success(), "{}", errors(&ran));
        let runs = json_of(&self.project.run(&["runs", "--json"]));
        runs["runs"][0]["id"].as_str().unwrap().to_owned()
    }

    fn json(&self, args: &[&str]) -> Value {
        json_of(&self.project.run(args))
    }

    /// A command that fails, and what it says.
    fn refused(&self, args: &[&str]) -> String {
        let output = self.project.run(args);
        assert!(!output.status.success(), "{args:?}: {}", text(&output));
        errors(&output)
    }
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json_of(output: &Output) -> Value {
    serde_json::from_str(&text(output))
        .unwrap_or_else(|_| panic!("{}\n{}", text(output), errors(output)))
}

#[test]
fn a_run_is_forked_on_the_command_line_and_over_rest_and_only_new_calls_go_out() {
    let shop = Shop::new();
    let id = shop.run_script();
    let before = shop.service.requests();
    assert_eq!(before.len(), 4, "{before:?}");

    // As it is.
    let forked = shop.json(&["runs", "fork", &id, "--json"]);
    let result = json!({"names": ["ann", "bob"], "total": 7});
    assert_eq!(forked["result"], result, "{forked}");
    assert_eq!(forked["logs"], json!(["names\t2"]));
    assert_eq!(forked["fork"]["of"], id.as_str());
    assert_eq!(forked["fork"]["counts"], json!({"recorded": 4, "new": 0, "dropped": 0}));
    assert_eq!(forked["fork"]["first_difference"], Value::Null);
    assert_eq!(shop.service.requests(), before);

    // Edited: by a program that stands for an editor, and from a file.
    let edit = "sed -i s/\"'a'\"/\"'b'\"/";
    let mut command = crate::harness::moonlark();
    command.args(["runs", "fork", &id, "--edit"]).env("EDITOR", edit);
    let output = command.current_dir(shop.project.path(".")).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let said = errors(&output);
    let expected = format!(
        "fork of run {id}: 3 calls from its record, 1 new, 1 no longer made\n\
         first difference at 2: was shop.put {{\"id\":\"a\",\"password\":\"[redacted]\"}}, is shop.put {{\"id\":\"b\",\"password\":\"[redacted]\"}}\n\
         new, planned: shop.put {{\"id\":\"b\",\"password\":\"[redacted]\"}} at 2\n\
         no longer made: shop.put {{\"id\":\"a\",\"password\":\"[redacted]\"}} at 2\n"
    );
    assert!(said.ends_with(&expected), "{said}");
    let plan = json_of(&output);
    assert_eq!(plan["calls"][0]["arguments"]["id"], "b");
    assert_eq!(shop.service.requests(), before);

    // The plan, carried out, makes the one new call.
    let plan = plan["plan"].as_str().unwrap();
    let done = shop.json(&["runs", "resume", plan, "--json"]);
    assert_eq!(done["result"], result, "{done}");
    let after = shop.service.requests();
    assert_eq!(after[before.len()..], ["POST /put {\"id\":\"b\",\"password\":\"hunter2hunter2\"}"]);

    let server = shop.project.serve();
    let post = |path: &str, body: &Value| {
        let headers = [("Content-Type", "application/json")];
        let answer = server.request("POST", path, &headers, body.to_string().as_bytes());
        (answer.status, answer.json())
    };
    // A run of the command line is another's to whoever comes over the network.
    let (status, answer) = post(&format!("/runs/{id}/fork"), &json!({}));
    assert_eq!((status, &answer["error"]["code"]), (404, &json!("not_found")), "{answer}");
    let (status, ran) = server.post("execute", &json!({"script": SCRIPT}));
    assert_eq!(status, 200, "{ran}");
    let own = server.get("/runs").json()["runs"][0]["id"].as_str().unwrap().to_owned();
    let before = shop.service.requests();
    let script = SCRIPT.replace("page = 1", "page = 2");
    let body = json!({"script": script, "new_calls": "make"});
    let (status, answer) = post(&format!("/runs/{own}/fork"), &body);
    assert_eq!((status, &answer["result"]), (200, &result), "{answer}");
    assert_eq!(answer["fork"]["counts"], json!({"recorded": 3, "new": 1, "dropped": 1}));
    assert_eq!(shop.service.requests()[before.len()..], ["GET /list?page=2 "]);
    let other = answer["id"].as_str().unwrap();
    let diff = server.get(&format!("/runs/{own}/diff/{other}")).json();
    assert_eq!(diff["same"], false, "{diff}");
    assert_eq!(diff["only_before"][0]["arguments"], "{\"page\":1}", "{diff}");
    assert_eq!(diff["only_after"][0]["arguments"], "{\"page\":2}");
    assert_eq!(
        diff["script"][0],
        json!({"change": "removed", "line": 1, "text": "local list = sdk.shop.list({ page = 1 })"})
    );
    let trace = server.get(&format!("/runs/{own}/trace")).json();
    assert_eq!(trace["events"].as_array().unwrap().len(), 4, "{trace}");
    let (status, answer) = post(&format!("/runs/{own}/fork"), &json!({"scirpt": "return 1"}));
    assert_eq!((status, &answer["error"]["code"]), (400, &json!("bad_request")), "{answer}");
    assert_eq!(shop.service.requests().len(), before.len() + 1);
}

#[test]
fn a_query_that_cannot_be_read_is_a_mistake_that_says_what_is_wrong() {
    let shop = Shop::new();
    let server = shop.project.serve();
    let id = "0199c0de-0000-7000-8000-000000000000";
    for (path, part, hint) in [
        (format!("/runs/{id}/trace?lines=foo"), "lines", "?lines=true"),
        (format!("/runs/{id}/trace?at=-1"), "at", "?lines=true"),
        (format!("/runs/{id}/trace?line=true"), "unknown field `line`", "?lines=true"),
        ("/runs?limit=many".to_owned(), "limit", "?limit=20"),
    ] {
        let answer = server.get(&path);
        let (status, said) = (answer.status, answer.json());
        assert_eq!((status, &said["error"]["code"]), (400, &json!("bad_request")), "{said}");
        assert!(said["error"]["message"].as_str().unwrap().contains(part), "{path}: {said}");
        assert!(said["error"]["hint"].as_str().unwrap().contains(hint), "{path}: {said}");
    }
}

#[test]
fn two_runs_are_compared_and_a_run_is_looked_into_without_a_call() {
    let shop = Shop::new();
    let first = shop.run_script();
    let same = shop.project.run(&["runs", "diff", &first, &first]);
    assert_eq!(text(&same), "the same script, 4 calls, result and logs\n");
    shop.service.set_answer(&ROWS.replace("\"bob\"", "\"eve\""));
    shop.project.write("script.luau", &SCRIPT.replace("'names', ", ""));
    let second = shop.run_script();
    let requests = shop.service.requests();
    let diff = shop.project.run(&["runs", "diff", &first, &second]);
    assert_eq!(
        text(&diff),
        "script:
  -    7 | print('names', #names)
  +    7 | print(#names)
calls: 0 calls with the same answer in both
  shop.list at 1 with {\"page\":1} was answered otherwise
    rows[1].name: \"bob\" -> \"eve\"
  shop.put at 2 with {\"id\":\"a\",\"password\":\"[redacted]\"} was answered otherwise
    rows[1].name: \"bob\" -> \"eve\"
  shop.login at 3 with {} was answered otherwise
    rows[1].name: \"bob\" -> \"eve\"
  shop.put at 4 with {\"id\":\"tok-secret-4711\"} was answered otherwise
    rows[1].name: \"bob\" -> \"eve\"
result:
  names[1]: \"bob\" -> \"eve\"
logs:
  -    1 | names 2
  +    1 | 2
",
        "{}",
        errors(&diff)
    );
    let trace = shop.project.run(&["runs", "trace", &first, "--at", "2"]);
    assert_eq!(
        text(&trace),
        "    2  line 4    sdk.shop.put({ id = 'a', password = '[redacted:password]' })
         list = {rows = {{age = 3, name = \"ann\"}, {age = 4, name = \"bob\"}}, token = \"[redacted]\", total = {sum = 7}}
         names = {\"ann\", \"bob\"}
      -> shop.put at 2 with {\"id\":\"a\",\"password\":\"[redacted]\"}
      <- {\"rows\":[{\"name\":\"ann\",\"age\":3},{\"name\":\"bob\",\"age\":4}],\"total\":{\"sum\":7},\"token\":\"[redacted]\"}
",
        "{}",
        errors(&trace)
    );
    let lines = shop.json(&["runs", "trace", &first, "--lines", "--json"]);
    assert_eq!(lines["complete"], true);
    assert!(lines["events"].as_array().unwrap().len() > 10, "{lines}");
    let none = shop.refused(&["runs", "trace", &first, "--at", "9"]);
    assert!(
        none.contains("the trace has no moment 9") && none.contains("moments 1 to 4"),
        "{none}"
    );
    assert_eq!(shop.service.requests(), requests);
}

#[test]
fn a_run_is_a_test_that_needs_no_server_and_says_what_the_server_has_changed() {
    let shop = Shop::new();
    let id = shop.run_script();
    let saved = shop.project.run(&["runs", "save", &id, "--as-test", "report"]);
    assert!(saved.status.success(), "{}", errors(&saved));
    let test = std::fs::read_to_string(shop.project.path("tests/report.runtest.json")).unwrap();
    let script = std::fs::read_to_string(shop.project.path("tests/report.luau")).unwrap();
    for secret in ["tok-secret-4711", "hunter2hunter2"] {
        assert!(!test.contains(secret) && !script.contains(secret), "{secret}:\n{script}\n{test}");
    }
    let again = shop.refused(&["runs", "save", &id, "--as-test", "report"]);
    assert!(again.contains("tests/report.runtest.json is there already"), "{again}");
    let wrong = shop.refused(&["runs", "save", &id, "--as-test", "../x"]);
    assert!(wrong.contains("is no name for a test"), "{wrong}");

    // Nothing has changed: nothing is reported, offline and for real.
    let before = shop.service.requests().len();
    let passed = shop.project.run(&["test", "--json"]);
    assert!(passed.status.success(), "{}{}", text(&passed), errors(&passed));
    assert_eq!(shop.service.requests().len(), before);
    let same = shop.project.run(&["test", "--drift"]);
    assert!(same.status.success(), "{}{}", text(&same), errors(&same));
    assert!(text(&same).contains("not called: it may change something"), "{}", text(&same));
    // Those that only read were made, and no other.
    assert_eq!(shop.service.requests()[before..], ["GET /list?page=1 ", "GET /login "]);

    // The script goes another way.
    let edited = script.replace("id = 'a'", "id = 'c'").replace("#names)", "#names + 1)");
    shop.project.write("tests/report.luau", &edited);
    let failed = shop.project.run(&["test"]);
    assert!(!failed.status.success());
    let said = text(&failed);
    for expected in [
        "calls: shop.put at 2 with {\"id\":\"c\"",
        "was not expected",
        "calls: shop.put at 2 with {\"id\":\"a\"",
        "was expected",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    shop.project
        .write("tests/report.luau", &script.replace("list.total.sum", "list.total.sum + 1"));
    let said = text(&shop.project.run(&["test"]));
    assert!(said.contains("result.total: expected 7, got 8"), "{said}");
    shop.project.write("tests/report.luau", &script);

    // The server has changed: each kind is found.
    for (from, to, expected) in [
        ("\"age\":4", "\"name2\":\"x\"", None),
        ("\"name\"", "\"full_name\"", Some("rows[].name is now named full_name")),
        ("\"sum\":7", "\"sum\":\"7\"", Some("total.sum was a number and is a text")),
        ("{\"sum\":7}", "null", Some("total was an object and is null")),
        (",\"total\":{\"sum\":7}", "", Some("total is gone; it was an object")),
        (
            "{\"name\":\"ann\",\"age\":3},{\"name\":\"bob\",\"age\":4}",
            "",
            Some("rows was a list and is a list with nothing in it"),
        ),
    ] {
        shop.service.set_answer(&ROWS.replace(from, to));
        let drift = shop.project.run(&["test", "--drift"]);
        let said = text(&drift);
        match expected {
            Some(expected) => {
                assert!(!drift.status.success() && said.contains(expected), "{to}: {said}");
            }
            None => assert!(drift.status.success(), "{to}: {said}"),
        }
    }
    shop.service.set_answer(ROWS);
    std::fs::write(shop.project.path("tests/report.runtest.json"), "{}").unwrap();
    let broken = text(&shop.project.run(&["test"]));
    assert!(broken.contains("the test cannot be read"), "{broken}");
}

#[test]
fn a_fork_of_what_is_gone_sealed_or_no_script_says_what_to_do() {
    let shop = Shop::new();
    let id = shop.run_script();
    let before = shop.service.requests();
    let gone = shop.refused(&["runs", "fork", "00000000-0000-7000-8000-000000000000"]);
    assert!(gone.contains("error[not_found]") && gone.contains("hint:"), "{gone}");
    shop.project.write("broken.luau", "return (");
    let broken = shop.refused(&["runs", "fork", &id, "--script", "broken.luau"]);
    assert!(broken.contains("error[bad_script]") && broken.contains("broken.luau:1"), "{broken}");
    let missing = shop.refused(&["runs", "fork", &id, "--script", "none.luau"]);
    assert!(missing.contains("none.luau cannot be read"), "{missing}");
    let key = shop.project.path(".moonlark/journal.key");
    std::fs::write(
        &key,
        std::fs::read(&key).unwrap().iter().map(|byte| byte ^ 1).collect::<Vec<_>>(),
    )
    .unwrap();
    let sealed = shop.refused(&["runs", "fork", &id]);
    assert!(sealed.contains("journal.key") && sealed.contains("hint:"), "{sealed}");
    std::fs::remove_file(shop.project.path(".moonlark/journal.db")).unwrap();
    let lost = shop.refused(&["runs", "fork", &id]);
    assert!(lost.contains("error[not_found]"), "{lost}");
    assert_eq!(shop.service.requests(), before);
}

const ENVIRONMENT_SCRIPT: &str = "local key = env.get('API_TOKEN')
local list = sdk.shop.list({ q = 'Bearer ' .. key })
print('one line')
return { sum = list.total.sum, leak = list.token }
";

fn with_token(shop: &Shop, args: &[&str]) -> Output {
    let mut command = crate::harness::moonlark();
    command.args(args).env("API_TOKEN", "tok-environment-4711");
    command.current_dir(shop.project.path(".")).output().unwrap()
}

fn shop_with_environment() -> Shop {
    let shop = Shop::new();
    let config =
        "[execute]\nallow = [\"env:API_TOKEN\", \"tool:*\"]\n\n[apis.shop]\nspec = \"shop.json\"\n";
    shop.project.write("moonlark.toml", config);
    shop.project.write("script.luau", ENVIRONMENT_SCRIPT);
    let ran = with_token(&shop, &["run", "script.luau", "--quiet"]);
    assert!(ran.status.success(), "{}", errors(&ran));
    shop
}

#[test]
fn what_a_run_read_from_the_environment_is_in_no_test_tool_or_trace_of_it() {
    let shop = shop_with_environment();
    let secrets = ["tok-environment-4711", "tok-secret-4711"];
    for args in [["--as-test", "report"], ["--as-tool", "report_tool"]] {
        let saved = shop.project.run(&[&["runs", "save", "last"], &args[..]].concat());
        assert!(saved.status.success(), "{}", errors(&saved));
    }
    for file in [
        "tests/report.runtest.json",
        "tests/report.luau",
        "tools/report_tool.luau",
        "tools/report_tool_test.luau",
    ] {
        let text = std::fs::read_to_string(shop.project.path(file)).unwrap();
        assert!(secrets.iter().all(|secret| !text.contains(secret)), "{file}:\n{text}");
    }
    let tested = shop.project.run(&["test"]);
    assert!(tested.status.success(), "{}{}", text(&tested), errors(&tested));
    for args in [vec![], vec!["--lines"]] {
        let traced = shop.project.run(&[vec!["runs", "trace", "last"], args].concat());
        let said = text(&traced);
        assert!(said.contains("[redacted:API_TOKEN]"), "{said}{}", errors(&traced));
        assert!(secrets.iter().all(|secret| !said.contains(secret)), "{said}");
    }
}

#[test]
fn the_newest_run_is_named_last_and_a_fork_says_each_line_once() {
    let shop = Shop::new();
    let none = shop.refused(&["runs", "last"]);
    assert!(none.contains("there is no run yet"), "{none}");
    let id = shop.run_script();
    assert_eq!(shop.json(&["runs", "last", "--json"])["id"], id.as_str());
    let forked = shop.project.run(&["runs", "fork", "last"]);
    let said = errors(&forked);
    assert_eq!(said.matches("names").count(), 1, "{said}");
    let same = shop.project.run(&["runs", "diff", &id, "last"]);
    assert!(text(&same).starts_with("the same script"), "{}{}", text(&same), errors(&same));
    let trace = shop.json(&["runs", "trace", "last", "--json"]);
    assert_eq!(trace["complete"], true, "{trace}");
}

#[test]
fn a_damaged_test_names_its_file_and_what_was_not_called_is_no_success() {
    let shop = Shop::new();
    let id = shop.run_script();
    let saved = shop.project.run(&["runs", "save", &id, "--as-test", "report"]);
    assert!(saved.status.success(), "{}", errors(&saved));
    let file = "tests/report.runtest.json";
    let whole = std::fs::read_to_string(shop.project.path(file)).unwrap();
    let said = text(&shop.project.run(&["test", "--drift"]));
    assert!(said.contains("2 passed, 0 failed, 2 not called"), "{said}");
    let damaged = |change: &dyn Fn(&mut Value), expected: &str| {
        let mut test: Value = serde_json::from_str(&whole).unwrap();
        change(&mut test);
        shop.project.write(file, &test.to_string());
        let said = text(&shop.project.run(&["test"]));
        assert!(said.contains(expected) && said.contains(file), "{said}");
    };
    damaged(&|test| test["seed"] = json!("00"), "its seed is not 64 hexadecimal digits");
    damaged(
        &|test| {
            for call in test["calls"].as_array_mut().unwrap() {
                call["order"] = json!(u64::MAX);
            }
        },
        "is too large",
    );
    let mut test: Value = serde_json::from_str(&whole).unwrap();
    test["tools"] = json!([]);
    shop.project.write(file, &test.to_string());
    let drift = shop.project.run(&["test", "--drift"]);
    let said = text(&drift);
    assert!(said.contains("not called: the test has no parameters of it"), "{said}");
    assert!(said.contains("0 passed, 0 failed, 4 not called"), "{said}");
    assert!(errors(&drift).contains("no tool was called"), "{}", errors(&drift));
}
