//! Calls at the same time: told by what the server saw, not by the clock.

use std::time::Duration;

use serde_json::{Value, json};

use super::upstream::{Offer, Reply, Upstream, text};
use super::world::World;

/// `meet` answers when as many are inside as it is told; `echo` after a moment;
/// `odd` fails for odd numbers.
fn upstream() -> Upstream {
    let number = json!({"n": {"type": "integer"}});
    Upstream::start(vec![
        Offer::new("meet", number.clone(), |args| {
            Reply::Together(args["n"].as_u64().unwrap() as usize, text("met"))
        }),
        Offer::new("echo", number.clone(), |args| {
            Reply::After(Duration::from_millis(20), text(&args["n"].to_string()))
        }),
        Offer::new("odd", number, |args| match args["n"].as_u64().unwrap() {
            n if n % 2 == 0 => Reply::Now(text(&n.to_string())),
            n => Reply::Now(json!({
                "content": [{"type": "text", "text": format!("{n} is odd")}],
                "isError": true,
            })),
        }),
        Offer::new("never", json!({}), |_| Reply::Never),
    ])
}

#[test]
fn calls_started_before_the_first_await_run_together() {
    let upstream = upstream();
    let world = World::new(&[("far", &upstream)]);
    // None is answered before all ten are there.
    let script = "
        local started = {}
        for i = 1, 10 do started[i] = far.meet({ n = 10 }) end
        local met = {}
        for i, promise in started do met[i] = promise:await() end
        return met";
    assert_eq!(world.value(script), json!(vec!["met"; 10]));
    assert_eq!(upstream.seen().peak, 10);
}

#[test]
fn all_that_are_awaited_at_once_run_together() {
    let upstream = upstream();
    let world = World::new(&[("far", &upstream)]);
    // None is answered before all ten are there.
    let script = "
        local started = {}
        for i = 1, 10 do started[i] = far.meet({ n = 10 }) end
        return #await_all(started)";
    assert_eq!(world.value(script), json!(10));
    assert_eq!(upstream.seen().peak, 10);
}

#[test]
fn waiting_calls_come_one_after_another() {
    let upstream = upstream();
    let world = World::new(&[("far", &upstream)]);
    let script = "
        local said = {}
        for i = 1, 5 do said[i] = sdk.far.echo({ n = i }) end
        for i = 6, 9 do said[i] = far.echo({ n = i }):await() end
        return table.concat(said, ' ')";
    assert_eq!(world.value(script), json!("1 2 3 4 5 6 7 8 9"));
    let seen = upstream.seen();
    assert_eq!(seen.peak, 1);
    let order: Vec<u64> = seen.calls.iter().map(|(_, args)| args["n"].as_u64().unwrap()).collect();
    assert_eq!(order, (1..=9).collect::<Vec<u64>>());
}

#[test]
fn a_hundred_with_a_limit_of_ten_are_ten_at_a_time_and_in_order() {
    let upstream = upstream();
    let world = World::new(&[("far", &upstream)]);
    let script = "
        local list = {}
        for i = 1, 100 do list[i] = i end
        local results, errors = map_parallel(list, function(item, index)
            return { item = item, index = index, said = sdk.far.echo({ n = item }) }
        end, { limit = 10 })
        return { results = results, none = errors == nil }";
    let value = world.value(script);
    let expected: Vec<Value> =
        (1..=100).map(|n| json!({"item": n, "index": n, "said": n.to_string()})).collect();
    assert_eq!(value, json!({"results": expected, "none": true}));
    let seen = upstream.seen();
    assert_eq!((seen.peak, seen.calls.len()), (10, 100));
}

#[test]
fn more_calls_than_may_be_in_flight_wait_for_their_turn() {
    let upstream = upstream();
    let world = World::with("[limits]\nparallel = 4", &[("far", &upstream)]);
    let script = "
        local started = {}
        for i = 1, 40 do started[i] = far.echo({ n = i }) end
        local sum = 0
        for _, said in await_all(started) do sum += said end
        return sum";
    assert_eq!(world.value(script), json!(820));
    let seen = upstream.seen();
    assert_eq!((seen.peak, seen.calls.len()), (4, 40));
    // The same for every way to be many.
    let script = "
        local list = table.create(30, 1)
        local results = map_parallel(list, function(n) return sdk.far.echo({ n = n }) end)
        return #results";
    assert_eq!(world.value(script), json!(30));
    assert_eq!(upstream.seen().peak, 4);
}

#[test]
fn an_error_in_one_does_not_lose_the_others() {
    let upstream = upstream();
    let world = World::new(&[("far", &upstream)]);
    let script = "
        local results, errors = map_parallel({ 1, 2, 3, 4, 5 }, function(n)
            return sdk.far.odd({ n = n })
        end)
        local failed = {}
        for index, problem in errors do failed[tostring(index)] = problem.message end
        return { two = results[2], four = results[4], one = results[1] == nil, failed = failed }";
    let value = world.value(script);
    assert_eq!((&value["two"], &value["four"]), (&json!("2"), &json!("4")));
    assert_eq!(value["one"], true);
    for index in ["1", "3", "5"] {
        let said = value["failed"][index].as_str().unwrap_or_else(|| panic!("{value}"));
        assert!(said.contains(&format!("{index} is odd")), "{value}");
    }
    // By hand.
    let script = "
        local started = {}
        for i = 1, 4 do started[i] = far.odd({ n = i }) end
        local ok = {}
        for i, promise in started do
            ok[i] = (pcall(function() return promise:await() end))
        end
        return ok";
    assert_eq!(world.value(script), json!([false, true, false, true]));
}

#[test]
fn all_are_awaited_by_their_keys_and_a_failed_one_is_named() {
    let upstream = upstream();
    let world = World::new(&[("far", &upstream)]);
    assert_eq!(
        world.value("return await_all({ a = far.odd({ n = 2 }), b = far.odd({ n = 4 }) })"),
        json!({"a": 2, "b": 4})
    );
    assert_eq!(world.value("return await_all({})"), json!([]));
    let script = "return await_all({ good = far.odd({ n = 2 }), bad = far.odd({ n = 3 }) })";
    let caught = format!("local ok, err = pcall(function() {script} end) return tostring(err)");
    let said = world.value(&caught);
    let said = said.as_str().unwrap();
    assert!(said.contains("bad") && said.contains("3 is odd"), "{said}");
}

#[test]
fn the_first_that_succeeds_is_enough() {
    let upstream = upstream();
    let world = World::new(&[("far", &upstream)]);
    let first = |promises: &str| {
        let script = format!("local value, key = await_any({promises}) return {{ value, key }}");
        world.value(&script)
    };
    assert_eq!(
        first("{ bad = far.odd({ n = 1 }), good = far.odd({ n = 2 }) }"),
        json!([2, "good"])
    );
    // It is not answered before the slow one is there too.
    assert_eq!(first("{ slow = far.never(), good = far.meet({ n = 2 }) }"), json!(["met", "good"]));
    // What nobody waits for any more is cancelled with the run.
    upstream.wait_until("the slow one is given up", |seen| seen.given_up >= 1);
    let script = "return await_any({ far.odd({ n = 1 }), far.odd({ n = 3 }) })";
    let caught = format!("local ok, err = pcall(function() {script} end) return tostring(err)");
    let said = world.value(&caught);
    assert!(said.as_str().unwrap().contains("is odd"), "{said}");
}

#[test]
fn a_promise_awaited_twice_is_one_call_with_one_outcome() {
    let upstream = upstream();
    let world = World::new(&[("far", &upstream)]);
    let script = "
        local good, bad = far.odd({ n = 2 }), far.odd({ n = 1 })
        local first, second = good:await(), good:await()
        local _, one = pcall(function() bad:await() end)
        local _, two = pcall(function() bad:await() end)
        return { first = first, second = second, same = tostring(one) == tostring(two) }";
    assert_eq!(world.value(script), json!({"first": 2, "second": 2, "same": true}));
    assert_eq!(upstream.called("odd"), 2);
}

#[test]
fn coroutines_wait_for_their_own_promises() {
    let upstream = upstream();
    let world = World::new(&[("far", &upstream)]);
    let script = "
        local said = {}
        local function work(n) said[n] = far.echo({ n = n }):await() end
        for i = 1, 3 do coroutine.wrap(work)(i) end
        local inside = coroutine.wrap(function() return sdk.far.echo({ n = 7 }) end)()
        return { said = said, inside = inside }";
    assert_eq!(world.value(script), json!({"said": [1, 2, 3], "inside": "7"}));
}

#[test]
fn eight_agents_share_one_server_at_the_same_time() {
    let upstream = upstream();
    let world = World::new(&[("far", &upstream)]);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                assert_eq!(world.value("return sdk.far.meet({ n = 8 })"), json!("met"));
            });
        }
    });
    assert_eq!(upstream.seen().peak, 8);
}
