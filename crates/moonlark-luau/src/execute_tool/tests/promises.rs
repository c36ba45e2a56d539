//! Calls that are started and awaited, several at once, and what becomes of
//! those that nobody waits for. That they run in parallel is shown by tools that
//! answer only when all have come, never by a clock.

use std::sync::atomic::Ordering;
use std::time::Duration;

use moonlark_core::limits::CallLimits;

use super::world::{World, account, answer, execute};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_started_before_the_first_await_run_at_once() {
    for script in [
        "local p = {} for n = 1, 10 do p[n] = slow.meet({ n = n }) end\nlocal sum = 0 for _, it in p do sum += it:await().n end return sum",
        "local p = {} for n = 1, 10 do p[n] = slow.meet({ n = n }) end\nlocal sum = 0 for _, it in await_all(p) do sum += it.n end return sum",
        "local got = map_parallel({ 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 }, function(n) return sdk.slow.meet({ n = n }).n end)\nlocal sum = 0 for _, n in got do sum += n end return sum",
        "local got = map_parallel({ 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 }, function(n) return slow.meet({ n = n }):await().n end)\nlocal sum = 0 for _, n in got do sum += n end return sum",
    ] {
        assert_eq!(answer(script).await, "55", "{script}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_are_in_flight_than_may_be_and_the_rest_wait_for_their_turn() {
    let all = "local p = {} for n = 1, 60 do p[n] = slow.count({ n = n }) end return #await_all(p)";
    let mapped = "local list = {} for n = 1, 60 do list[n] = n end\nreturn #map_parallel(list, function(n) return sdk.slow.count({ n = n }) end";
    for (script, most) in [
        (all.to_owned(), 4),
        (format!("{mapped})"), 4),
        (format!("{mapped}, {{ limit = 2 }})"), 2),
        (format!("{mapped}, {{ limit = 50 }})"), 4),
    ] {
        let mut world = World::new();
        world.limits = CallLimits { parallel: 4, ..world.limits.clone() };
        assert_eq!(world.answer(&script).await, "60", "{script}");
        let peak = world.seen.peak.load(Ordering::SeqCst);
        assert!(peak <= most, "{peak} over {most}: {script}");
    }
}

#[tokio::test]
async fn a_promise_gives_the_same_outcome_every_time() {
    let script = "local p = calc.add({ a = 1, b = 2 }) local first = p:await() return { first == p:await(), first.sum }";
    assert_eq!(answer(script).await, "[true,3]");
    let script = "local p = content.failure()\nlocal _, first = pcall(p.await, p)\nlocal _, second = pcall(p.await, p)\nreturn { first == second, first.message }";
    assert_eq!(answer(script).await, r#"[true,"script:2: no such branch"]"#);
}

#[tokio::test]
async fn a_promise_that_is_not_awaited_says_so() {
    for use_of in ["p.sum", "p.sum.x", "p + 1", "1 + p", "'x' .. p", "#p", "-p", "p < p"] {
        let answer =
            answer(&format!("local p = calc.add({{ a = 1, b = 2 }})\nreturn {use_of}")).await;
        assert_eq!(
            answer,
            "error[tool_error]: calc.add(…) is a promise: call :await() first\n  --> script:2\nhint: write calc.add({ … }):await()",
            "{use_of}"
        );
    }
    assert_eq!(answer("return tostring(calc.add({}))").await, "\"promise of calc.add\"");
    let answer = answer("for _ in calc.add({}) do end").await;
    assert!(answer.contains("is a promise: call :await() first"), "{answer}");
}

#[tokio::test]
async fn await_all_keeps_the_keys_and_names_the_one_that_failed() {
    for (script, expected) in [
        (
            "return await_all({ a = content.text(), b = calc.add({ a = 1, b = 2 }), c = 5 })",
            r#"{"a":"hello","b":{"sum":3},"c":5}"#,
        ),
        ("return await_all({ content.text(), content.text() })", r#"["hello","hello"]"#),
        ("return await_all({})", "[]"),
        (
            "\nreturn await_all({ good = content.text(), bad = content.failure() })",
            "error[tool_error]: await_all: bad: no such branch\n  --> script:2\nhint: to go on without what failed, take the second result: local results, errors = await_all(…)",
        ),
        (
            "return await_all({ content.text(), content.failure() })",
            "error[tool_error]: await_all: [2]: no such branch\n  --> script:1\nhint: to go on without what failed, take the second result: local results, errors = await_all(…)",
        ),
        (
            "return await_all(content.text())",
            "error[tool_error]: await_all takes a table of promises\n  --> script:1\nhint: write await_all({ first, second })",
        ),
        (
            "return await_all({ content.text })",
            "error[tool_error]: await_all: [1] is a function\n  --> script:1\nhint: call it, and hand over the promise",
        ),
        // One has failed; the other has not ended, and can still be awaited.
        (
            "local p = content.text()\nlocal ok = pcall(await_all, { p, content.failure() })\nreturn { ok, p:await() }",
            r#"[false,"hello"]"#,
        ),
    ] {
        assert_eq!(answer(script).await, expected, "{script}");
    }
}

#[tokio::test]
async fn await_any_gives_the_first_that_succeeds() {
    for (script, expected) in [
        (
            "local value, key = await_any({ bad = content.failure(), good = content.text(), never = slow.hang() }) return { value, key }",
            r#"["hello","good"]"#,
        ),
        (
            "return await_any({ content.failure(), calc.divide_by() })",
            "error[tool_error]: await_any: all have failed: [1]: no such branch; [2]: by zero\n  --> script:1",
        ),
        (
            "return await_any({})",
            "error[tool_error]: await_any: there is nothing to wait for\n  --> script:1",
        ),
    ] {
        assert_eq!(answer(script).await, expected, "{script}");
    }
}

#[tokio::test]
async fn map_parallel_gives_results_in_order_and_errors_beside_them() {
    for (script, expected) in [
        (
            "local results, errors = map_parallel({ 3, 4 }, function(n, at) return sdk.calc.add({ a = n, b = at }).sum end) return { results, errors == nil }",
            "[[4,6],true]",
        ),
        ("return map_parallel({}, print)", "[]"),
        (
            "local results, errors = map_parallel({ 1, 2, 3 }, function(n) if n == 2 then return sdk.content.failure() end if n == 3 then error('three') end return n end)\nreturn { results[1], results[2] == nil, errors[2].message, errors[2].code, errors[3].message, errors[1] == nil }",
            r#"[1,true,"script:1: no such branch","tool_error","script:1: three",true]"#,
        ),
        (
            "return map_parallel({ a = 1 }, print)",
            "error[tool_error]: map_parallel takes a list, got a table of names and values\n  --> script:1\nhint: make a list of its keys first",
        ),
        (
            "return map_parallel({ 1 }, 5)",
            "error[tool_error]: map_parallel takes a function, got number\n  --> script:1\nhint: write map_parallel(list, function(item) … end)",
        ),
        (
            "return map_parallel({ 1 }, print, { limit = 0 })",
            "error[tool_error]: map_parallel: limit is a number of at least 1\n  --> script:1\nhint: write { limit = 10 }",
        ),
        (
            "local _, errors = map_parallel({ 1 }, function() coroutine.yield(1) end) return errors[1].message",
            "\"coroutine.yield was called outside a coroutine\"",
        ),
        // One inside the other.
        (
            "return map_parallel({ 1, 2 }, function(n) return map_parallel({ 10, 20 }, function(m) return sdk.calc.add({ a = n, b = m }).sum end) end)",
            "[[11,21],[12,22]]",
        ),
        // More than may be in flight, waiting for a module.
        (
            "local list = {} for n = 1, 300 do list[n] = n end return #map_parallel(list, function(n) sleep(0.001) return n end, { limit = 300 })",
            "300",
        ),
    ] {
        assert_eq!(answer(script).await, expected, "{script}");
    }
}

#[tokio::test]
async fn waiting_is_possible_in_coroutines_and_explained_where_it_is_not() {
    let script = "return coroutine.wrap(function() return calc.add({ a = 1, b = 2 }):await().sum + sdk.calc.add({ a = 1, b = 2 }).sum end)()";
    assert_eq!(answer(script).await, "6");
    for (call, name) in [
        ("sdk.content.text()", "sdk.content.text"),
        ("slow.hang():await()", "await"),
        ("await_all({ slow.hang() })", "await_all"),
        ("map_parallel({ 1 }, print)", "map_parallel"),
    ] {
        let script =
            format!("return setmetatable({{}}, {{ __index = function() return {call} end }}).x");
        let answer = answer(&script).await;
        let expected =
            format!("error[tool_error]: {name} has to wait, which is not possible inside");
        assert!(answer.starts_with(&expected), "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_ends_cancels_what_it_started() {
    for (script, ok) in [
        ("local p = slow.hang() sdk.slow.count({}) return 1", true),
        ("local p = slow.hang() sdk.slow.count({}) error('no')", false),
    ] {
        let world = World::new();
        let ended = world.execute(script).await;
        assert_eq!(ended.is_ok(), ok, "{script}");
        // It may have been cancelled before it began.
        let extra = match ended {
            Ok(content) => content.extra,
            Err(problem) => problem.content.unwrap().extra,
        };
        let logs = format!("{:?}", account(&extra).get("logs"));
        assert!(logs.contains("1 call had not ended when the script did: cancelled"), "{logs}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_dropped_drops_its_calls() {
    for script in [
        "return sdk.slow.hang()",
        "return slow.hang():await()",
        "local p = slow.hang() while true do sleep(0.001) end",
        "local p = slow.hang() while true do end",
        "map_parallel({ 1 }, function() return sdk.slow.hang() end)",
    ] {
        let world = World::new();
        let gateway = world.gateway();
        let running = tokio::spawn(async move { execute(&gateway, script).await });
        let begun = world.seen.hanging.notified();
        tokio::time::timeout(Duration::from_secs(20), begun).await.expect(script);
        running.abort();
        let gone = world.seen.gone.notified();
        tokio::time::timeout(Duration::from_secs(20), gone).await.expect(script);
        assert_eq!(world.seen.dropped.load(Ordering::SeqCst), 1, "{script}");
    }
}
