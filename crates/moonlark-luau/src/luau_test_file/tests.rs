//! Tests written in Luau.

use std::sync::Arc;
use std::time::Duration;

use moonlark_core::{ProblemCode, Result};

use crate::LuauTestFile;
use crate::luau_testing::{Folder, tool};

async fn load(folder: &Folder, main: &str) -> Result<Arc<LuauTestFile>> {
    let call = folder.test_call();
    folder
        .engine
        .load_tests("tools".to_owned(), main.to_owned(), folder.files(), &call)
        .await
        .map(Arc::new)
}

/// Run the test `test_it` with this body: nothing, or the Problem.
async fn run(body: &str) -> Result<(), String> {
    let folder = Folder::new(&[(
        "lib.luau",
        "local lib = {}\nfunction lib.check(truth) testing.check(truth) end\nreturn lib",
    )]);
    folder.write("x_test.luau", &format!("function test_it()\n{body}\nend"));
    let tests = load(&folder, "x_test.luau").await.map_err(|problem| problem.to_string())?;
    tests.run_test("test_it", &folder.test_call()).await.map_err(|problem| problem.to_string())
}

#[tokio::test]
async fn tests_are_the_global_functions_that_say_so() {
    let folder = Folder::new(&[(
        "x_test.luau",
        "function test_b() end\ntest_a = print\ntest_c = 5\nlocal function test_d() end\nfunction helper() end",
    )]);
    assert_eq!(load(&folder, "x_test.luau").await.unwrap().names, ["test_a", "test_b"]);
}

#[tokio::test]
async fn every_test_has_a_fresh_environment_and_reaches_the_code_under_test() {
    let folder = Folder::new(&[
        (
            "greet.luau",
            &tool(
                "",
                "return { text = 'Hello ' .. context.config.name .. ' by ' .. context.caller.surface }",
            ),
        ),
        (
            "x_test.luau",
            "local greet = require('./greet')\nlocal seen = 0\nfunction test_a()\nseen += 1 x = 1\nassert(seen == 1)\nlocal context = testing.context({ name = 'Ann' })\nassert(greet.execute({}, context).text == 'Hello Ann by test')\nassert(type(context.call) == 'function')\nassert(next(testing.context().config) == nil)\nend\nfunction test_b()\nseen += 1\nassert(seen == 1 and x == nil)\nsleep(0.001)\nend",
        ),
    ]);
    let tests = load(&folder, "x_test.luau").await.unwrap();
    for name in ["test_a", "test_b", "test_a"] {
        assert_eq!(tests.run_test(name, &folder.test_call()).await, Ok(()), "{name}");
    }
}

#[tokio::test]
async fn a_failure_shows_its_line() {
    for (body, expected) in [
        ("testing.check(true)", None),
        (
            "\ntesting.check(false)",
            Some("error[tool_error]: testing.check: it is not true\n  --> tools/x_test.luau:3"),
        ),
        ("\n\nassert(false, 'no')", Some("error[tool_error]: no\n  --> tools/x_test.luau:4")),
        ("error('no')", Some("error[tool_error]: no\n  --> tools/x_test.luau:2")),
        (
            "require('lib').check(false)",
            Some("error[tool_error]: testing.check: it is not true\n  --> tools/lib.luau:2"),
        ),
    ] {
        assert_eq!(run(body).await.err().as_deref(), expected, "{body}");
    }
}

#[tokio::test]
async fn raises_wants_a_failure_with_the_right_words() {
    let at = "\n  --> tools/x_test.luau:3";
    for (body, expected) in [
        ("\nassert(testing.raises(function() error('boom 1') end) == 'boom 1')", None),
        ("\nassert(testing.raises(function() error('boom 1') end, 'boom') == 'boom 1')", None),
        (
            "\nassert(testing.raises(function() error('boom (1)', 0) end, '(1)') == 'boom (1)')",
            None,
        ),
        ("\nassert(testing.raises(function() error({ message = 'm' }) end) == 'm')", None),
        (
            "\nassert(testing.raises(function() testing.check(false) end) == 'testing.check: it is not true')",
            None,
        ),
        (
            "\nassert(testing.raises(function() sleep(0.001) error('late') end, 'late') == 'late')",
            None,
        ),
        (
            "\ntesting.raises(function() error('boom') end, 'bang')",
            Some("raises: it failed with \"boom\", which does not contain \"bang\""),
        ),
        (
            "\ntesting.raises(function() return 5 end)",
            Some("raises: the function did not fail, it returned 5"),
        ),
        (
            "\ntesting.raises(function() end)",
            Some("raises: the function did not fail, it returned nil"),
        ),
        ("\ntesting.raises(5)", Some("raises takes a function, got number")),
        ("\ntesting.raises(print, 5)", Some("raises: the second argument is a text, got number")),
        ("\ntesting.context(5)", Some("context takes a table, got number")),
    ] {
        let expected = expected.map(|words| format!("error[tool_error]: testing.{words}{at}"));
        assert_eq!(run(body).await.err(), expected, "{body}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_end_a_test_whatever_it_expects() {
    for (body, code) in [
        ("testing.raises(function() while true do end end)", ProblemCode::Timeout),
        ("sleep(100)", ProblemCode::Timeout),
        (
            "testing.raises(function() local t = {} while true do table.insert(t, string.rep('x', 1000) .. #t) end end) while true do end",
            ProblemCode::Limit,
        ),
    ] {
        let mut folder = Folder::new(&[]);
        folder.limits.timeout = Duration::from_millis(200);
        folder.limits.memory = 8 << 20;
        folder.write("x_test.luau", &format!("function test_it()\n{body}\nend"));
        let tests = load(&folder, "x_test.luau").await.unwrap();
        let problem = tests.run_test("test_it", &folder.test_call()).await.unwrap_err();
        assert_eq!(problem.code, code, "{body}: {problem}");
    }
}

#[tokio::test]
async fn a_file_of_tests_that_does_not_load_is_a_problem() {
    for (text, expected) in [
        (
            "x = = 1",
            "error[bad_script]: Expected identifier when parsing expression, got '='\n  --> tools/x_test.luau:1",
        ),
        ("\nerror('boom')", "error[bad_script]: boom\n  --> tools/x_test.luau:2"),
        (
            "\nrequire('gone.lua')",
            "error[bad_script]: require(\"gone.lua\"): there is no tools/gone.lua\n  --> tools/x_test.luau:2\nhint: the path begins at the folder of the file that requires",
        ),
    ] {
        let folder = Folder::new(&[("x_test.luau", text)]);
        assert_eq!(
            load(&folder, "x_test.luau").await.err().map(|problem| problem.to_string()).as_deref(),
            Some(expected)
        );
    }
    let problem = load(&Folder::new(&[]), "x_test.luau").await.err().unwrap();
    assert_eq!(
        problem.to_string(),
        "error[bad_script]: there is no such file\n  --> tools/x_test.luau"
    );
}

#[tokio::test]
async fn tools_do_not_see_what_is_for_tests() {
    let folder = Folder::new(&[("main.luau", &tool("assert(testing == nil)", ""))]);
    assert!(folder.load("main.luau").await.0.is_ok());
}
