//! How a script ends: with one answer, or with a Problem that no script can
//! catch.

use std::time::Duration;

use moonlark_core::ProblemCode;
use moonlark_core::limits::CallLimits;
use moonlark_core::value::Value;
use moonlark_gateway::Caller;

use super::world::{World, answer};

#[tokio::test]
async fn there_is_exactly_one_answer() {
    for (script, expected) in [
        ("result(1)", "1"),
        ("return result(1)", "1"),
        ("result(nil)", "null"),
        ("return nil", "null"),
        ("return 1, nil", "1"),
        ("return 1, nil, 3", "[1,null,3]"),
        (
            "local x = 1",
            "error[tool_error]: the script ended without an answer\n  --> script\nhint: end it with return VALUE, or call result(VALUE)",
        ),
        (
            "result(1)\nresult(2)",
            "error[tool_error]: result was already called, in line 1\n  --> script:2\nhint: call it once, with a table of all that belongs to the answer",
        ),
        (
            "result(1) return 2",
            "error[tool_error]: the script called result and also returned a value\n  --> script\nhint: do one of the two",
        ),
        (
            "result(1, 2)",
            "error[tool_error]: result takes one value, got 2\n  --> script:1\nhint: put them into a table: result({ first, second })",
        ),
        (
            "local x =",
            "error[bad_script]: Expected identifier when parsing expression, got <eof>\n  --> script:1",
        ),
    ] {
        assert_eq!(answer(script).await, expected, "{script}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_limit_can_be_caught() {
    let small = |world: &World| CallLimits {
        timeout: Duration::from_millis(300),
        memory: 8 << 20,
        calls: 20,
        logs: 10_000,
        value: 100_000,
        ..world.limits.clone()
    };
    for (body, code) in [
        ("while true do end", ProblemCode::Timeout),
        ("slow.hang():await()", ProblemCode::Timeout),
        ("sdk.slow.hang()", ProblemCode::Timeout),
        ("await_all({ slow.hang() })", ProblemCode::Timeout),
        ("await_any({ slow.hang() })", ProblemCode::Timeout),
        ("map_parallel({ 1, 2 }, function() while true do end end)", ProblemCode::Timeout),
        (
            "map_parallel({ 1, 2 }, function() pcall(function() while true do sleep(1) end end) end)",
            ProblemCode::Timeout,
        ),
        ("calc.add({ a = 1, b = 2 })", ProblemCode::Limit),
        ("sdk.calc.add({ a = 1, b = 2 })", ProblemCode::Limit),
        (
            "map_parallel({ 1 }, function() return sdk.calc.add({ a = 1, b = 2 }) end)",
            ProblemCode::Limit,
        ),
        ("await_all({ calc.add({ a = 1, b = 2 }) })", ProblemCode::Limit),
        ("print(string.rep('x', 1000))", ProblemCode::Limit),
        ("sdk.calc.add({ a = 1, b = 2, note = string.rep('x', 200000) })", ProblemCode::Limit),
        ("calc.add({ a = 1, b = 2, note = string.rep('x', 200000) })", ProblemCode::Limit),
        (
            "map_parallel({ 1, 2 }, function() local t = {} while true do table.insert(t, string.rep('x', 1000) .. #t) end end)",
            ProblemCode::Limit,
        ),
        (
            "local t = {} while true do table.insert(t, slow) t[#t + 1] = string.rep('x', 1000) .. #t end",
            ProblemCode::Limit,
        ),
    ] {
        for script in [
            format!("while true do {body} end"),
            format!("while true do pcall(function() {body} end) end"),
            format!(
                "coroutine.wrap(function() while true do pcall(function() {body} end) end end)()"
            ),
        ] {
            let mut world = World::new();
            world.limits = small(&world);
            let problem = world.execute(&script).await.unwrap_err();
            assert_eq!(problem.code, code, "{script}\n{problem}");
        }
    }
}

#[tokio::test]
async fn a_script_may_ask_for_time_up_to_the_ceiling() {
    let world = World::new();
    let gateway = world.gateway();
    let ask = async |script: &str, timeout: Value| {
        let call = gateway.open_call(Caller::new("cli")).unwrap();
        let args = Value::from_fields([("script", script.into()), ("timeout", timeout)]);
        gateway
            .invoke(&call, "execute", args)
            .await
            .map(|_| ())
            .map_err(|problem| problem.to_string())
    };
    assert_eq!(ask("return 1", Value::Int(20)).await, Ok(()));
    assert_eq!(
        ask("return 1", Value::Float(20.5)).await,
        Err("error[bad_request]: timeout: a script may take at most 20 seconds\nhint: ask for less, or have execute.max_timeout raised in moonlark.toml".to_owned())
    );
    assert!(ask("return 1", Value::Float(1e300)).await.is_err());
    assert_eq!(
        ask("print('before') return sdk.slow.hang()", Value::Float(0.05)).await,
        Err("error[timeout]: the script timed out after 0.05 seconds\nhint: it was waiting for slow.hang; do less in one script, or ask for a longer timeout, of up to 20 seconds".to_owned())
    );
}

#[tokio::test]
async fn a_script_that_has_all_the_time_there_is_is_told_who_can_give_more() {
    let mut world = World::new();
    world.limits.timeout = Duration::from_millis(50);
    for script in ["return sdk.slow.hang()", "while true do end"] {
        let problem = world.execute(script).await.unwrap_err();
        let waited = if script.contains("hang") { "it was waiting for slow.hang; " } else { "" };
        let expected = format!(
            "error[timeout]: the script timed out after 0.05 seconds\nhint: {waited}do less in one script, or have execute.max_timeout raised in moonlark.toml"
        );
        assert_eq!(problem.to_string(), expected, "{script}");
    }
}

#[tokio::test]
async fn the_listed_schema_asks_for_a_script_and_says_what_it_is() {
    let gateway = World::new().gateway();
    let call = gateway.open_call(Caller::new("cli")).unwrap();
    let tool = call.catalog().find_tool("execute").unwrap();
    let listed = tool.definition.as_ref().unwrap();
    let schema = listed.get("inputSchema").unwrap();
    assert_eq!(schema.get("required"), Some(&Value::Array(vec!["script".into()])));
    let script = schema.get("properties").and_then(|it| it.get("script")).unwrap();
    assert_eq!(script.get("type").and_then(Value::as_str), Some("string"));
    assert_eq!(
        script.get("description").and_then(Value::as_str),
        Some("Luau; \"\" with resume or saved")
    );
}
