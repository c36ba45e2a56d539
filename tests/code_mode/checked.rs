//! Scripts that are wrong, against servers that remember: they are refused, and
//! nobody was called. What is said about each is in `check_corpus`.

use std::time::Instant;

use serde_json::{Map, Value, json};

use super::upstream::{Offer, Reply, Upstream, structured};
use super::world::World;
use crate::check_corpus::{corpus, scripts};

#[test]
fn a_script_that_is_refused_has_called_nobody() {
    let upstreams = upstreams();
    let named: Vec<(&str, &Upstream)> =
        upstreams.iter().map(|(name, upstream)| (name.as_str(), upstream)).collect();
    let world = World::new(&named);
    // Calls do arrive, when nothing is wrong.
    world.run("return sdk.db.list_tables()").result();
    assert_eq!(upstreams.iter().map(|(_, it)| it.seen().calls.len()).sum::<usize>(), 1);
    for (path, script) in scripts("wrong") {
        // Something right comes first, so that there is something to call.
        let (code, message) = world.run(&format!("sdk.db.list_tables() {script}")).problem();
        assert_eq!(code, "bad_script", "{}: {message}", path.display());
    }
    assert_eq!(upstreams.iter().map(|(_, it)| it.seen().calls.len()).sum::<usize>(), 1);
}

#[test]
fn a_check_that_only_warns_refuses_nothing() {
    let upstream = Upstream::start(vec![
        Offer::of("get", structured(json!({"title": "x"})))
            .gives(json!({"type": "object", "properties": {"title": {"type": "string"}}})),
    ]);
    let script = "local got = sdk.here.get()\nreturn { #tostring(got.titel) }";
    let world = World::new(&[("here", &upstream)]);
    world.run(script).fails("bad_script", &["has no field titel"]);
    let world = World::with("[execute]\ncheck = \"warn\"", &[("here", &upstream)]);
    let ran = world.run(script);
    assert_eq!(ran.value(), json!([3]));
    assert!(ran.said().is_some_and(|said| said.contains("has no field titel")), "{:?}", ran.said());
    let world = World::with("[execute]\ncheck = \"off\"", &[("here", &upstream)]);
    let ran = world.run(script);
    assert_eq!(ran.value(), json!([3]));
    // Without a check, it is said when the answer has come, and only once.
    let said = "logs:\nscript:2: the result of sdk.here.get has no field titel; it has title";
    assert_eq!(ran.said().as_deref(), Some(said));
    // Also where the value has gone through other hands.
    for script in [
        "local function title(it) return it.titel end\nreturn { title(sdk.here.get()) == nil }",
        "local all = map_parallel({ 1 }, function() return sdk.here.get() end)\nreturn { tostring(all[1].titel) }",
        "local all = await_all({ a = here.get() })\nfor _, it in all do print(it.titel) end return {}",
    ] {
        let said = world.run(script).said().unwrap_or_default();
        let expected = ": the result of sdk.here.get has no field titel; it has title";
        assert!(said.contains(expected), "{script}: {said}");
    }
}

#[test]
fn what_a_script_looks_for_in_vain_is_said() {
    let answer = json!({"orders": [{"id": 1, "total": 5}], "next": null});
    let output = json!({
        "type": "object",
        "properties": {
            "orders": {"type": "array", "items": {
                "type": "object",
                "properties": {"id": {"type": "integer"}, "total": {"type": "number"}},
            }},
            "next": {"type": ["string", "null"]},
        },
    });
    let upstream = Upstream::start(vec![
        Offer::of("open", structured(answer.clone())),
        Offer::of("closed", structured(answer)).gives(output),
    ]);
    let world = World::new(&[("shop", &upstream)]);
    for (script, said) in [
        ("return sdk.shop.open().total or 0", "open has no field total; it has next, orders"),
        ("return sdk.shop.closed().total or 0", "closed has no field total; it has next, orders"),
        (
            "local r = sdk.shop.closed() if not r.orders_list then return 0 end return 1",
            "closed has no field orders_list; it has next, orders",
        ),
        (
            "local n = 0 for _, o in sdk.shop.open().orders do n += o.amount or 0 end return n",
            "open has no field amount in orders[]; it has id, total",
        ),
        (
            "return #sdk.shop.open()",
            "open is an object with 2 fields, not a list, so # gives 0; it has next, orders",
        ),
    ] {
        let expected = format!("logs:\nscript:1: the result of sdk.shop.{said}");
        assert_eq!(world.run(script).said(), Some(expected), "{script}");
    }
    for script in [
        "local r = sdk.shop.closed() return r.data or r.orders",
        "local r = sdk.shop.closed() if r.error then return 0 end return #r.orders",
        "local r = sdk.shop.open() if r.note then return r.note end return #r.orders",
        "return sdk.shop.open().orders[1].total or 0",
    ] {
        assert_eq!(world.run(script).said(), None, "{script}");
    }
    // Where it is declared, nobody is called.
    let object = "is an object, not a list: # gives 0";
    world.run("return #sdk.shop.closed()").fails("bad_script", &[object, "its lists: orders"]);
}

/// A script whose types grow without end, and are needed for a method that it calls. Each number
/// makes another of it.
fn endless(number: usize) -> String {
    let functions: String = (0..30)
        .map(|i| format!("local function f{}(x) return f{i}(f{i}(x)) end\n", i + 1))
        .collect();
    let first = "local function f0(x) return function(y) return { x, y, x, y } end end\n";
    let typed = "local text = string.rep('a', 2)\nlocal upper = text:upper()\n";
    format!("{first}{functions}{typed}return {number}")
}

#[test]
fn a_script_that_the_checker_cannot_follow_is_run_without_its_types() {
    let upstream = Upstream::start(vec![Offer::of("get", structured(json!({"title": "x"})))]);
    let world = World::new(&[("here", &upstream)]);
    let ran = world.run(&endless(1));
    assert_eq!(ran.value(), json!(1));
    let said = "logs:\nscript: runs without a full check: its types take too much to check";
    assert_eq!(ran.said().as_deref(), Some(said));
    // What is wrong with it is found all the same.
    world
        .run(&format!("{} + sdk.here.got()", endless(2)))
        .fails("bad_script", &["has no function got"]);
    // A type function is refused; where a check only warns, that is said and the script runs.
    let endless =
        "type function f(t) while true do end return t end local x: f<number> = 1 return x";
    world.run(endless).fails("bad_script", &["type functions are not allowed here"]);
    let world = World::with("[execute]\ncheck = \"warn\"", &[("here", &upstream)]);
    let ran = world.run(endless);
    assert_eq!(ran.value(), json!(1));
    assert!(ran.said().is_some_and(|said| said.contains("type functions")), "{:?}", ran.said());
}

#[test]
fn a_flood_of_slow_scripts_keeps_nobody_waiting_for_long() {
    const FLOOD: usize = 24;
    let upstream = Upstream::start(vec![Offer::of("get", structured(json!({"title": "x"})))]);
    let world = World::new(&[("here", &upstream)]);
    // How long one takes that has all the time a check may take, on this machine and now.
    assert_eq!(world.run("return sdk.here.get().title").value(), json!("x"));
    let began = Instant::now();
    world.run(&endless(FLOOD));
    let alone = began.elapsed();
    std::thread::scope(|scope| {
        let (world, (sender, begun)) = (&world, std::sync::mpsc::channel());
        for number in 0..FLOOD {
            let sender = sender.clone();
            scope.spawn(move || {
                sender.send(()).unwrap();
                assert_eq!(world.run(&endless(number)).value(), json!(number));
            });
        }
        // All of them are on their way; the same caller's script comes behind them.
        begun.iter().take(FLOOD).for_each(drop);
        let began = Instant::now();
        world.run("return sdk.here.got()").fails("bad_script", &["has no function got"]);
        let waited = began.elapsed();
        // Two are checked at once: with all of their time, it would be twelve times as long.
        assert!(waited < alone * 6, "{waited:?}, one alone: {alone:?}");
    });
}

/// The servers of the corpus.
fn upstreams() -> Vec<(String, Upstream)> {
    let text = std::fs::read_to_string(corpus().join("catalog.json")).unwrap();
    let sources: Map<String, Value> = serde_json::from_str(&text).unwrap();
    let offer = |definition: &Value| {
        Offer::defined(definition.clone(), |_| Reply::Now(structured(json!({}))))
    };
    let start =
        |listed: &Value| Upstream::start(listed.as_array().unwrap().iter().map(offer).collect());
    sources.iter().map(|(name, listed)| (name.clone(), start(listed))).collect()
}
