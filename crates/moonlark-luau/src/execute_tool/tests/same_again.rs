//! What differs from run to run is the same when a run is resumed.

use std::time::Duration;

use moonlark_gateway::journal::JournalEntry;
use serde_json::Value as Json;

use super::shop::Shop;
use crate::LuauEngine;
use crate::luau_testing::modules;

/// Run it, and again from all that is on record but its end.
async fn twice(script: &str) -> (Json, Json) {
    let engine = LuauEngine::new(&modules()).unwrap();
    let first = Shop::new(&engine, &[], 3);
    let one = first.run(script).await.unwrap();
    let mut entries = first.journal.entries();
    entries.retain(|entry| !matches!(entry, JournalEntry::RunEnded(_)));
    let second = Shop::new(&engine, &entries, 4);
    let other = second.resume(None).await.unwrap();
    assert!(second.done().is_empty(), "{script}: {:?}", second.done());
    (one, other)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_a_script_can_see_is_the_same_again() {
    for script in [
        "return { math.random(), math.random(1, 1000000) }",
        "return { os.time(), os.clock(), os.date('%c') }",
        "local a = os.clock() sdk.shop.put({ n = 1 }) sleep(0.002) local b = os.clock() return { a, b, b > a + 0.002 }",
        "return { tostring({}), tostring(print), tostring(coroutine.create(print)), `{ {} }`, string.format('%s', {}) }",
        "local t = {} return { tostring(t) == tostring(t), tostring(t) ~= tostring({}), (('%s'):format(t)) }",
        "local seen = {} for n = 1, 20 do seen[`key{n}`] = n end local order = {} for key in seen do table.insert(order, key) end return order",
        "local p = {} for n = 1, 12 do p[n] = shop.put({ n = n }) end local _, key = await_any(p) await_all(p) return key",
        "local order = {} map_parallel({ 1, 2, 3, 4, 5, 6 }, function(n) sdk.shop.put({ n = n }) table.insert(order, n) sdk.shop.read({ n = n }) table.insert(order, -n) end) return order",
        "local n = 0 local seen = {} map_parallel({ 1, 2, 3, 4 }, function(i) n += i sdk.shop.put({ n = n, i = i }) n += i table.insert(seen, n) end) return seen",
        "local order = {} local p = { a = shop.put({ n = 1 }), b = shop.put({ n = 2 }), c = shop.fail({ n = 3 }) } pcall(await_all, p) for key, it in p do pcall(it.await, it) table.insert(order, key) end return order",
    ] {
        let (one, other) = twice(script).await;
        assert_eq!(one, other, "{script}");
    }
}

#[tokio::test]
async fn the_clock_of_a_script_moves_while_it_looks_at_it() {
    let script = "local from = os.clock() local looks = 0 while os.clock() < from + 0.05 do looks += 1 end return looks > 0";
    assert_eq!(twice(script).await, (true.into(), true.into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_wait_until_all_of_the_script_does() {
    // Whatever has ended meanwhile, the script knows nothing of it before it waits.
    let script = "local p = shop.put({ n = 1 })
        local before = os.clock()
        local x = 0 for n = 1, 3e6 do x += n % 7 end
        local ok, problem = pcall(function() return setmetatable({}, { __index = function() return p:await() end }).x end)
        return { ok, problem.message, p:await().got }";
    let (one, other) = tokio::time::timeout(Duration::from_secs(60), twice(script)).await.unwrap();
    assert_eq!(one, other);
    assert_eq!(one[0], false);
    assert_eq!(one[2], "{\"n\":1}");
}
