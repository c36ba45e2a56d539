//! Everything a script can reach, compared with a committed list.
//!
//! The walk starts at the globals, the context and the metatables of each basic
//! type, and follows every key, value and metatable. `UPDATE=1` rewrites the
//! list; a new line in it is a new thing that every script can touch.

use serde_json::json;

use crate::harness::{Project, repo};

const WALK: &str = r#"
tool = { name = "walk", description = "", parameters = {} }
function tool.execute(params, context)
    local seen, lines, queue = {}, {}, {}
    local function visit(path, value)
        local kind = typeof(value)
        local frozen = if kind == "table" and table.isfrozen(value) then " (frozen)" else ""
        table.insert(lines, path .. ": " .. kind .. frozen)
        if kind == "table" and not seen[value] then
            seen[value] = true
            table.insert(queue, { path, value })
        end
        local meta = getmetatable(value)
        if meta ~= nil and kind ~= "string" then visit(path .. "<meta>", meta) end
    end
    for name, value in pairs(getmetatable("")) do visit("(string)<meta>." .. tostring(name), value) end
    visit("context", context)
    visit("_G", _G)
    for _, start in { "vector", "buffer" } do
        local ok, meta = pcall(getmetatable, if start == "vector" then vector.zero else buffer.create(1))
        if ok and meta ~= nil then visit("(" .. start .. ")<meta>", meta) end
    end
    local names = {
        NAMES
    }
    for _, name in names do
        local value = _G[name]
        if value ~= nil then visit(name, value) end
    end
    for _, name in { "search", "get", "sources", "call", "progress", "config", "caller" } do
        visit("context." .. name, context[name])
    end
    local thread = coroutine.create(function() end)
    visit("(thread)", thread)
    while #queue > 0 do
        local item = table.remove(queue)
        for key, value in next, item[2] do
            visit(item[1] .. "." .. tostring(key), value)
        end
    end
    table.sort(lines)
    return { lines = lines }
end
"#;

/// Every name that any Lua or Luau has had as a global, and ours.
const NAMES: [&str; 63] = [
    "assert",
    "bit32",
    "buffer",
    "class",
    "collectgarbage",
    "coroutine",
    "debug",
    "delay",
    "dofile",
    "error",
    "gcinfo",
    "getfenv",
    "getmetatable",
    "integer",
    "io",
    "ipairs",
    "jit",
    "load",
    "loadfile",
    "loadstring",
    "math",
    "module",
    "newproxy",
    "next",
    "os",
    "package",
    "pairs",
    "pcall",
    "print",
    "rawequal",
    "rawget",
    "rawlen",
    "rawset",
    "require",
    "script",
    "sdk",
    "select",
    "setfenv",
    "setmetatable",
    "shared",
    "spawn",
    "string",
    "table",
    "task",
    "tick",
    "tonumber",
    "tostring",
    "type",
    "typeof",
    "unpack",
    "utf8",
    "vector",
    "wait",
    "warn",
    "workspace",
    "xpcall",
    "_VERSION",
    "_ENV",
    "arg",
    "bit",
    "ffi",
    "game",
    "ypcall",
];

#[test]
fn a_script_reaches_what_the_list_says_and_nothing_else() {
    let modules: Vec<&str> =
        moonlark_host::host_modules().iter().map(|module| module.name).collect();
    let names: Vec<String> = NAMES.iter().chain(&modules).map(|name| format!("{name:?}")).collect();
    let project = Project::new(&[("tools/walk.luau", &WALK.replace("NAMES", &names.join(", ")))]);
    let output = project.run(&["call", "walk", "--json"]);
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["error"], json!(null));
    let lines: Vec<&str> = answer["result"]["lines"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|line| line.as_str())
        .collect();
    let found = lines.join("\n") + "\n";
    let list = repo().join("tests/reach.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&list, &found).unwrap();
    }
    let known = std::fs::read_to_string(&list).unwrap_or_default();
    let new: Vec<&str> =
        found.lines().filter(|line| !known.lines().any(|other| other == *line)).collect();
    let gone: Vec<&str> = known.lines().filter(|line| !lines.contains(line)).collect();
    assert!(new.is_empty() && gone.is_empty(), "new: {new:#?}\ngone: {gone:#?}");
}
