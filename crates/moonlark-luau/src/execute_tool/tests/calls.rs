//! Calling tools by name: what is found, what is not, and what it says.

use moonlark_core::value::Value;
use moonlark_gateway::Caller;

use super::world::{World, account, answer, execute, said, scripted};
use crate::LuauCheckMode;

#[tokio::test]
async fn both_spellings_of_a_name_are_one() {
    for script in [
        "return sdk.calc.divide_by",
        "return sdk.calc['divide-by']",
        "return sdk['calc'].divide_by",
    ] {
        let script = format!("{script} == nil");
        assert_eq!(answer(&script).await, "false", "{script}");
    }
    assert_eq!(answer("return sdk.calc.add == sdk.calc.add").await, "true");
    assert_eq!(answer("return tostring(sdk.calc)").await, "\"sdk.calc\"");
}

#[tokio::test]
async fn a_module_or_a_global_comes_before_a_source_of_its_name() {
    assert_eq!(answer("return type(sleep)").await, "\"function\"");
    assert_eq!(answer("return sdk.sleep.shadowed()").await, "\"of a source\"");
    // There is no such module in this world, so the source has the name.
    assert_eq!(answer("return json.shadowed():await()").await, "\"of a source\"");
}

#[tokio::test]
async fn mistakes_are_explained() {
    for (script, problem) in [
        (
            "return sdk.clac.add({})",
            "there is no source sdk.clac\n  --> script:1\nhint: did you mean sdk.calc?",
        ),
        (
            "return sdk.calc.ad({})",
            "sdk.calc has no function ad\n  --> script:1\nhint: did you mean sdk.calc.add?",
        ),
        (
            "return calc.ad({})",
            "sdk.calc has no function ad\n  --> script:1\nhint: did you mean sdk.calc.add?",
        ),
        (
            "\nreturn sdk.calc()",
            "sdk.calc is a source, not a function\n  --> script:2\nhint: call one of its functions: sdk.calc.NAME({ … })",
        ),
        (
            "return sdk.calc.add(1, 2)",
            "sdk.calc.add takes one table of named arguments\n  --> script:1\nhint: write sdk.calc.add({ a = …, b = …, note = … })",
        ),
        (
            "return sdk.calc.add({ 1, 2 })",
            "sdk.calc.add takes one table of named arguments\n  --> script:1\nhint: write sdk.calc.add({ a = …, b = …, note = … })",
        ),
        (
            "return sdk.calc:add({ a = 1, b = 2 })",
            "sdk.calc.add is called with a dot, not with a colon\n  --> script:1\nhint: write sdk.calc.add({ … })",
        ),
        (
            "return sdk.calc.add({ a = 1, b = print })",
            "sdk.calc.add.b is a function, which is not a value\n  --> script:1",
        ),
        (
            "return sdk.content.text():await()",
            "attempt to call missing method 'await' of string\n  --> script:1\nhint: only a promise has :await(), as source.fn({ … }) gives it; sdk.source.fn({ … }) waits by itself",
        ),
        (
            "return require('json')",
            "require: there are no files here\n  --> script:1\nhint: everything there is, is a global",
        ),
        (
            "return io.open('x')",
            "attempt to index nil with 'open'\n  --> script:1\nhint: scripts of agents have no files: call a tool that reads or writes them",
        ),
    ] {
        assert_eq!(answer(script).await, format!("error[tool_error]: {problem}"), "{script}");
    }
}

#[tokio::test]
async fn a_variable_that_hides_result_is_explained_whatever_it_is() {
    for value in ["sdk.calc.add({ a = 1, b = 2 })", "sdk.content.text()", "5", "nil", "true"] {
        let answer = answer(&format!("local result = {value}\nresult(result)")).await;
        assert!(
            answer.starts_with("error[tool_error]: a variable named result hides the function result, which takes the answer: attempt to call a "),
            "{answer}"
        );
        assert!(answer.contains("--> script:2\nhint: give the variable another name"), "{answer}");
    }
    let answer = answer("local result = calc.add({ a = 1, b = 2 })\nresult(result)").await;
    assert!(answer.contains("calc.add(…) is a promise: call :await() for its value"), "{answer}");
    assert!(answer.contains("if it is named result, name it something else"), "{answer}");
}

#[tokio::test]
async fn failures_of_tools_can_be_caught() {
    for call in ["sdk.content.failure()", "content.failure():await()"] {
        let script = format!(
            "local ok, problem = pcall(function() return {call} end)\nreturn {{ ok, problem.code, problem.retryable, tostring(problem) }}"
        );
        let expected = r#"[false,"tool_error",false,"script:1: no such branch"]"#;
        assert_eq!(answer(&script).await, expected);
        assert_eq!(
            answer(&format!("\nreturn {call}")).await,
            "error[tool_error]: no such branch\n  --> script:2"
        );
    }
}

#[tokio::test]
async fn arguments_are_checked_and_grants_hold() {
    let answer = answer("return sdk.calc.add({ a = 1 })").await;
    assert!(answer.contains("missing required parameter: b"), "{answer}");
    let world = World { allow: vec!["tool:content.*"], ..World::new() };
    assert_eq!(world.answer("return sdk.content.text()").await, "\"hello\"");
    let answer = world.answer("return sdk.calc.add({ a = 1, b = 2 })").await;
    assert!(answer.starts_with("error[denied]: "), "{answer}");
    assert!(answer.contains("add \"tool:calc.add\" to allow for execute"), "{answer}");
}

#[tokio::test]
async fn a_script_of_an_author_needs_a_grant_to_run_scripts() {
    let world = World::new();
    let gateway = world.gateway();
    let call = scripted(&gateway, &world.limits);
    let args = Value::from_fields([("script", "return 1".into())]);
    let problem = gateway.call(&call, "execute", args).await.unwrap_err();
    assert_eq!(problem.code, moonlark_core::ProblemCode::Denied);
}

#[tokio::test]
async fn logs_and_calls_come_with_the_answer_and_with_the_failure() {
    let script = "print('one', 2)\nlocal x = sdk.calc.add({ a = 1, b = 2 })\npcall(function() return sdk.content.failure() end)\nreturn 'done'";
    let content = World::new().execute(script).await.unwrap();
    assert_eq!(content.structured, Some("done".into()));
    assert_eq!(content.blocks[1].get("text"), Some(&"logs:\none\t2".into()));
    let calls = |extra: &moonlark_core::value::Object| {
        let Some(Value::Array(calls)) = account(extra).get("calls").cloned() else { panic!() };
        let shown = |call: &Value| {
            let text = |name: &str| call.get(name).unwrap().as_str().unwrap().to_owned();
            format!("{} {}", text("tool"), text("outcome"))
        };
        calls.iter().map(shown).collect::<Vec<_>>()
    };
    assert_eq!(calls(&content.extra), ["calc.add ok", "content.failure tool_error"]);
    assert_eq!(account(&content.extra).get("logs"), Some(&Value::from(vec!["one\t2"])));

    let problem = World::new().execute(&script.replace("return 'done'", "error('no')")).await;
    let problem = problem.unwrap_err();
    assert_eq!(problem.to_string(), "error[tool_error]: no\n  --> script:4");
    let content = problem.content.unwrap();
    assert_eq!(
        content.blocks[0].get("text"),
        Some(&"error[tool_error]: no\n  --> script:4\n   4 | error('no')".into())
    );
    assert_eq!(content.blocks[1].get("text"), Some(&"logs:\none\t2".into()));
    assert_eq!(calls(&content.extra), ["calc.add ok", "content.failure tool_error"]);
}

#[tokio::test]
async fn a_long_log_is_cut() {
    let content = World::new()
        .execute("for n = 1, 1000 do print(string.rep('x', 100)) end return 1")
        .await
        .unwrap();
    let text = content.blocks[1].get("text").unwrap().as_str().unwrap();
    assert!(text.len() < 4500 && text.ends_with("more lines"), "{text}");
}

#[tokio::test]
async fn a_script_that_the_checker_refuses_calls_nothing() {
    let script = "local x = sdk.slow.count({})\nreturn sdk.calc.ad({ a = 1, b = 2 })";
    let world = World { check: LuauCheckMode::Error, ..World::new() };
    let problem = world.execute(script).await.unwrap_err();
    assert_eq!(problem.code, moonlark_core::ProblemCode::BadScript);
    assert_eq!(problem.place.unwrap().to_string(), "script:2:17");
    assert_eq!(world.seen.peak.load(std::sync::atomic::Ordering::SeqCst), 0);
    let world = World { check: LuauCheckMode::Warn, ..World::new() };
    let problem = world.execute(script).await.unwrap_err();
    assert_eq!(problem.code, moonlark_core::ProblemCode::ToolError);
    assert!(format!("{:?}", problem.content).contains("script:2:17: "), "{problem:?}");
}

#[tokio::test]
async fn nothing_stays_for_the_next_run() {
    let gateway = World::new().gateway();
    for _ in 0..3 {
        let ended = execute(&gateway, "count = (count or 0) + 1 return count").await;
        assert_eq!(said(ended), "1");
    }
    assert_eq!(gateway.catalog().listed_tools().len(), 1);
    let call = gateway.open_call(Caller::new("cli")).unwrap();
    assert!(gateway.call(&call, "execute", Value::from_fields([])).await.is_err());
}
