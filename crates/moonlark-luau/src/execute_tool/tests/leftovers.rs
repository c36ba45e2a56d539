//! Nothing of one agent's script reaches the next one in the same VM.

use std::time::{Duration, Instant};

use super::world::{World, execute, said};
use crate::engine::InterruptGuard;

/// Scripts that end well, and try to leave "canary" or a changed world behind.
const LEAVING: &[&str] = &[
    "canary = 'canary' _G.other_canary = { 'canary' } rawset(_G, 'third', 'canary') return 1",
    "for _, it in { string, table, math, os, json, coroutine, bit32, buffer, utf8, vector } do
        pcall(function() it.canary = 'canary' end)
        pcall(rawset, it, 'canary', 'canary')
        pcall(setmetatable, it, { __index = function() return 'canary' end })
    end return 1",
    "local meta = getmetatable('') pcall(function() meta.__index = function() return 'canary' end end)
        pcall(function() meta.__add = function() return 'canary' end end)
        pcall(setmetatable, meta, { __index = { canary = 'canary' } }) return 1",
    "for _, it in { _G, sdk, sdk.calc, calc, calc.add({ a = 1, b = 2 }), json } do
        local meta = getmetatable(it)
        pcall(function() meta.canary = 'canary' end)
        pcall(setmetatable, it, { canary = 'canary' })
        pcall(rawset, it, 'canary', 'canary')
    end return 1",
    "print, tostring, pcall, error, type = nil, nil, nil, nil, nil
        string, table, math, sdk, json, calc = 'canary', 'canary', 'canary', 'canary', 'canary', 'canary' return 1",
    "local held = 'canary'
        left = coroutine.create(function() coroutine.yield(held) return held end)
        coroutine.resume(left)
        wrapped = coroutine.wrap(function() while true do coroutine.yield('canary') end end) wrapped() return 1",
    "started = calc['divide-by']({ note = 'canary' }) kept = calc.add({ a = 1, b = 2 }) return 1",
    "pcall(function() error({ canary = 'canary' }) end) pcall(error, 'canary')
        xpcall(function() error(setmetatable({}, { __tostring = function() return 'canary' end })) end, tostring) return 1",
    "local list = {} for n = 1, 50 do list[n] = n end
        map_parallel(list, function(n) return sdk.calc.add({ a = n, b = 1 }).sum end, { limit = 50 })
        local ok = pcall(map_parallel, list, function() error('canary') end) return ok",
    "result({ 'canary' })",
    "local weak = setmetatable({}, { __mode = 'k' }) weak[print] = 'canary' weak[json] = 'canary' return tostring(weak)",
    "local b = buffer.create(4096) buffer.fill(b, 0, 99) local s = string.rep('canary', 1000) return #s",
    "local t = table.create(1000, 'canary') table.clear(t) return #t",
    "local s = 'x' local t = setmetatable({}, { __index = function() return sdk.calc.add({ a = 1, b = 1 }) end })
        pcall(function() return t.x end) return s",
    "local ok = pcall(function() return sdk.nowhere.nothing() end) return ok",
    "for n = 1, 200 do local co = coroutine.create(function() coroutine.yield() end) coroutine.resume(co) end return tostring({})",
    "pcall(function() sleep = 'canary' end) pcall(setmetatable, _G, { __index = { sleep = 'canary' } }) return 1",
    "sleep(0.001) pcall(rawset, _G, 'sleep', function() return 'canary' end) return 1",
    "table.freeze({ 'canary' }) local s = string.format('%s', {}) return s",
];

/// Walks everything there is, and says what is not as in a VM that is new.
const LOOKING: &str = r#"
local seen, found = {}, {}
local function visit(path, value)
    if type(value) == "string" and string.find(value, "canary", 1, true) then table.insert(found, path) end
    if type(value) ~= "table" or seen[value] then return end
    seen[value] = true
    local meta = getmetatable(value)
    if type(meta) == "table" then visit(path .. "<meta>", meta) end
    if type(meta) ~= "string" then
        for key, item in next, value do
            visit(path .. "<key>", key)
            visit(path .. "." .. tostring(key), item)
        end
    end
end
for name, value in pairs(getmetatable("")) do visit("(string)." .. tostring(name), value) end
for _, name in {
    "_G", "canary", "other_canary", "third", "left", "wrapped", "started", "kept", "string", "table", "math", "os",
    "json", "time", "base64", "crypto", "regex", "url", "coroutine", "bit32", "buffer", "utf8", "vector", "print",
    "tostring", "pcall", "error", "type", "sdk", "calc", "await_all", "await_any", "map_parallel", "artifact",
} do
    local value = _G[name]
    visit(name, value)
    local ok, field = pcall(function() return value.canary end)
    if ok and field == "canary" then table.insert(found, name .. ".canary") end
end
local names = {}
for name in next, _G do table.insert(names, name) end
table.sort(names)
local promise = calc.add({ a = 1, b = 2 })
return {
    found = found,
    globals = names,
    types = { type(print), type(sdk), type(json), type(string), typeof(promise) },
    addresses = { tostring({}), tostring(print), string.format("%s", coroutine.create(print)) },
    zero = buffer.readu8(buffer.create(4096), 4095),
    fresh = #table.create(1000),
    sum = promise:await().sum,
    all = map_parallel({ 1, 2 }, function(n) return sdk.calc.add({ a = n, b = n }).sum end),
    text = ("x"):rep(3),
    missing = ("x").canary == nil,
    caught = { pcall(error, "mine", 0) },
}
"#;

#[tokio::test]
async fn nothing_that_a_script_leaves_in_its_vm_reaches_the_next() {
    let expected = World::new().answer(LOOKING).await;
    for left in LEAVING {
        let world = World::new();
        let ended = world.answer(left).await;
        assert!(!ended.starts_with("error["), "{left}: {ended}");
        let vms = world.engine.agent_vms().unwrap();
        assert_eq!(vms.count_idle_vms(), 1, "the VM is used again after {left}");
        assert_eq!(world.answer(LOOKING).await, expected, "after {left}");
        assert_eq!(vms.count_idle_vms(), 1);
    }
    // One after the other in the same VM, whoever sent them.
    let world = World::new();
    let gateway = world.gateway();
    for left in LEAVING {
        assert!(execute(&gateway, left).await.is_ok(), "{left}");
        assert_eq!(said(execute(&gateway, LOOKING).await), expected, "after {left} and others");
    }
    assert_eq!(world.engine.agent_vms().unwrap().count_idle_vms(), 1);
}

#[tokio::test]
async fn a_vm_whose_script_failed_or_was_stopped_is_not_used_again() {
    for stopped in [
        "error('x')",
        "local t = {} while true do table.insert(t, string.rep('x', 1000) .. #t) end",
        "while true do pcall(function() while true do end end) end",
        "return print",
    ] {
        let mut world = World::new();
        world.limits.memory = 8 << 20;
        world.limits.timeout = Duration::from_millis(300);
        let ended = world.answer(stopped).await;
        assert!(ended.starts_with("error["), "{stopped}: {ended}");
        let vms = world.engine.agent_vms().unwrap();
        assert_eq!(vms.count_idle_vms(), 0, "{stopped}");
    }
}

#[tokio::test]
async fn what_a_run_may_reach_is_looked_up_anew_in_a_used_vm() {
    let world = World::new();
    let script = "sleep(0.001) return sdk.calc.add({ a = 1, b = 2 }).sum";
    assert_eq!(world.answer(script).await, "3");
    // Another catalog, in which the source is gone.
    let gateway = world.gateway();
    let catalog = gateway.catalog();
    let tools = catalog.tools().iter().filter(|tool| tool.source.name != "calc").cloned();
    let smaller = moonlark_core::Catalog::new(world.modules.clone(), tools.collect(), &[], vec![]);
    gateway.publish(smaller);
    let ended = said(execute(&gateway, script).await);
    assert!(ended.contains("calc"), "{ended}");
    assert!(ended.starts_with("error["), "{ended}");
}

#[tokio::test]
async fn idle_vms_are_given_back_when_nobody_has_needed_them_for_a_while() {
    let world = World::new();
    let vms = world.engine.agent_vms().unwrap().clone();
    let leases: Vec<_> =
        (0..20).map(|_| vms.lease_vm(InterruptGuard::default()).unwrap()).collect();
    for lease in leases {
        lease.finish_run(Ok(())).unwrap();
    }
    assert!(vms.trim_idle_vms(Instant::now()), "there are many, and none is old");
    assert_eq!(vms.count_idle_vms(), 20);
    assert!(!vms.trim_idle_vms(Instant::now() + Duration::from_secs(10)));
    assert_eq!(vms.count_idle_vms(), 4);
}
