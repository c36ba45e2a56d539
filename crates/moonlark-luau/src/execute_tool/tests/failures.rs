//! Failures that nobody looks at: of items, of promises, of fields that are not there.

use moonlark_core::Value;

use super::world::{World, account, answer};

/// What came back, and what was logged.
pub(super) async fn logged(script: &str) -> (String, String) {
    let world = World::new();
    let ended = world.execute(script).await;
    let extra = match &ended {
        Ok(content) => content.extra.clone(),
        Err(problem) => problem.content.as_ref().unwrap().extra.clone(),
    };
    let logs = match account(&extra).get("logs") {
        Some(Value::Array(lines)) => {
            lines.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    };
    (super::world::said(ended), logs)
}

const FAILS: &str = "local function f(n) if n == 2 then error('boom') end return n end\n";
const HOW: &str =
    "to go on without what failed, take the second result: local results, errors = map_parallel(…)";

#[tokio::test]
async fn map_parallel_raises_unless_the_script_takes_its_errors() {
    for script in [
        "for _, r in map_parallel({ 1, 2, 3 }, f) do end return 'went on'",
        "local ok = map_parallel({ 1, 2, 3 }, f) return ok",
        "return map_parallel({ 1, 2, 3 }, f)",
        "map_parallel({ 1, 2, 3 }, f) return 1",
        "return #map_parallel({ 1, 2, 3 }, f)",
        "return { all = map_parallel({ 1, 2, 3 }, f) }",
        "local mp = map_parallel local r = mp({ 1, 2, 3 }, f) return r",
        "local ops = { each = map_parallel } local r = ops.each({ 1, 2, 3 }, f) return r",
        "local function all(l) return map_parallel(l, f) end local r = all({ 1, 2, 3 }) return r",
        "local function all(l) local r = map_parallel(l, f) return r end\nlocal r, e = all({ 1, 2, 3 }) return { r, e }",
        "return coroutine.wrap(function() return map_parallel({ 1, 2, 3 }, f) end)()",
        "print(map_parallel({ 1, 2, 3 }, f)) return 1",
    ] {
        let answer = answer(&format!("{FAILS}{script}")).await;
        let expected =
            format!("error[tool_error]: map_parallel: [2]: boom\n  --> script:1\nhint: {HOW}");
        assert_eq!(answer, expected, "{script}");
    }
    for (script, expected) in [
        (
            "local r, e = map_parallel({ 1, 2, 3 }, f) return { r, e[2].message }",
            r#"[[1,null,3],"script:1: boom"]"#,
        ),
        ("local r, e r, e = map_parallel({ 1, 2, 3 }, f) return { #r, e[1] == nil }", "[3,true]"),
        (
            "local t = table.pack(map_parallel({ 1, 2, 3 }, f)) return { t.n, t[2][2].message }",
            r#"[2,"script:1: boom"]"#,
        ),
        ("local t = { map_parallel({ 1, 2, 3 }, f) } return #t", "2"),
        ("local mp = map_parallel local r, e = mp({ 1, 2, 3 }, f) return e[2] ~= nil", "true"),
        (
            "local function all(l) return map_parallel(l, f) end\nlocal r, e = all({ 1, 2, 3 }) return e[2] ~= nil",
            "true",
        ),
        (
            "local ok, r, e = pcall(map_parallel, { 1, 2, 3 }, f) return { ok, e[2] ~= nil }",
            "[true,true]",
        ),
        (
            "local ok, r, e = pcall(function() return map_parallel({ 1, 2, 3 }, f) end) return { ok, e ~= nil }",
            "[true,true]",
        ),
        // Not taken: it raises, and that is caught.
        (
            "local ok, why = pcall(map_parallel, { 1, 2, 3 }, f) return { ok, why.message }",
            r#"[false,"script:1: map_parallel: [2]: boom"]"#,
        ),
        (
            "local ok = pcall(function() for _, r in map_parallel({ 1, 2 }, f) do end end) return ok",
            "false",
        ),
        (
            "local function handle(r, e) return e[2].code end return handle(map_parallel({ 1, 2 }, f))",
            "\"tool_error\"",
        ),
        // Nothing failed: one result, or two, of which the second is nil.
        ("local r, e = map_parallel({ 1, 3 }, f) return { r, e == nil }", "[[1,3],true]"),
        ("return select('#', map_parallel({ 1, 3 }, f))", "1"),
        ("local t = {} table.insert(t, map_parallel({ 1 }, f)) return t", "[[1]]"),
    ] {
        assert_eq!(answer(&format!("{FAILS}{script}")).await, expected, "{script}");
    }
}

#[tokio::test]
async fn no_more_items_are_begun_once_one_has_failed() {
    let script = "local begun = 0\nlocal ok = pcall(function()\n  return #map_parallel({ 1, 2, 3, 4, 5, 6 }, function(n) begun += 1 if n == 2 then error('no') end return n end, { limit = 1 })\nend)\nreturn { ok, begun }";
    assert_eq!(answer(script).await, "[false,2]");
    // With the errors taken, every item has its turn.
    let script = "local begun = 0\nlocal _, errors = map_parallel({ 1, 2, 3, 4 }, function(n) begun += 1 error('no') end, { limit = 1 })\nreturn { begun, #errors }";
    assert_eq!(answer(script).await, "[4,4]");
}

#[tokio::test]
async fn several_failures_are_counted_and_keep_what_the_first_says() {
    let script = "return map_parallel({ 1, 2, 3 }, function() return sdk.content.failure() end)";
    assert_eq!(
        answer(script).await,
        format!(
            "error[tool_error]: map_parallel: [1]: no such branch (and 2 more items failed)\n  --> script:1\nhint: {HOW}"
        )
    );
}

#[tokio::test]
async fn a_list_with_empty_places_keeps_its_length() {
    for (script, expected) in [
        (
            "local r = map_parallel({ 1, 2, 3 }, function(n) if n ~= 2 then return n end end) return { r, #r }",
            "[[1,null,3],3]",
        ),
        (
            "local r = map_parallel({ 1, 2, 3 }, function() end) return { r, #r }",
            "[[null,null,null],3]",
        ),
        (
            "local r = map_parallel({ 1, 2, 3 }, function(n) if n == 3 then return n end end) r[#r + 1] = 4 r[#r + 1] = 5 return r",
            "[null,null,3,4,5]",
        ),
    ] {
        assert_eq!(answer(script).await, expected, "{script}");
    }
}

#[tokio::test]
async fn await_all_gives_the_errors_to_a_script_that_takes_them() {
    for (script, expected) in [
        (
            "local values, errors = await_all({ good = content.text(), bad = content.failure() }) return { values, errors.bad.message, errors.good == nil }",
            r#"[{"good":"hello"},"no such branch",true]"#,
        ),
        (
            "local values, errors = await_all({ content.text() }) return { values, errors == nil }",
            r#"[["hello"],true]"#,
        ),
        (
            "local values = await_all({ content.text(), content.failure() }) return values",
            "error[tool_error]: await_all: [2]: no such branch\n  --> script:1\nhint: to go on without what failed, take the second result: local results, errors = await_all(…)",
        ),
    ] {
        assert_eq!(answer(script).await, expected, "{script}");
    }
}

#[tokio::test]
async fn errors_that_nothing_reads_are_logged() {
    for script in [
        "local r, _ = map_parallel({ 1, 2, 3 }, f) return r",
        "local t = { map_parallel({ 1, 2, 3 }, f) } return t[1]",
        "local t = table.pack(map_parallel({ 1, 2, 3 }, f)) return t[1]",
    ] {
        let (answer, logs) = logged(&format!("{FAILS}{script}")).await;
        assert_eq!(answer, "[1,null,3]", "{script}");
        let said =
            "map_parallel: 1 of 3 failed, and nothing reads the errors; the first: [2]: boom";
        assert_eq!(logs, said, "{script}");
    }
    let read = format!("{FAILS}local t = {{ map_parallel({{ 1, 2 }}, f) }} return t[2][2].code");
    assert_eq!(logged(&read).await, ("\"tool_error\"".to_owned(), String::new()));
}

#[tokio::test]
async fn a_promise_that_failed_and_was_not_awaited_is_logged() {
    let (answer, logs) = logged("content.failure() content.text():await() return 1").await;
    assert_eq!(answer, "1");
    assert_eq!(logs, "content.failure failed, and its promise was not awaited: no such branch");
    let caught = "local p = content.failure() pcall(p.await, p) return 1";
    assert_eq!(logged(caught).await, ("1".to_owned(), String::new()));
    let raced = "local v = await_any({ content.failure(), content.text() }) return v";
    assert_eq!(logged(raced).await, ("\"hello\"".to_owned(), String::new()));
}

#[tokio::test]
async fn a_table_as_text_is_its_json() {
    for (script, expected) in [
        ("return tostring({ a = 1, b = { 'x' } })", r#"{"a":1,"b":["x"]}"#),
        ("return `t: { { 1, 2 } }`", "t: [1,2]"),
        (
            "return string.format('%s %d %s', { a = true }, 5, content.json({}):await().n[2])",
            r#"{"a":true} 5 null"#,
        ),
        ("return ('%s'):format(sdk.declared.read({}).more)", r#"{"size":1}"#),
        ("return tostring(sdk.shop.nothing({}))", "[]"),
        (
            "return tostring(setmetatable({}, { __tostring = function() return 'mine' end }))",
            "mine",
        ),
        ("return string.sub(tostring(setmetatable({}, {})), 1, 7)", "table: "),
        ("return string.sub(tostring({ print }), 1, 7)", "table: "),
        ("local t = {} t.t = t return string.sub(`{t}`, 1, 7)", "table: "),
        (
            "local t = {} for n = 1, 300000 do t[n] = n end local s = tostring(t) return string.sub(s, 1, 6) .. (if #s <= 4200 then ' short' else ' long')",
            "[1,2,3 short",
        ),
    ] {
        let expected = serde_json::Value::from(expected).to_string();
        assert_eq!(answer(script).await, expected, "{script}");
    }
    // An error of the builtin still says where.
    let wrong = answer("\nreturn string.format('%d', 'x')").await;
    assert!(
        wrong.contains("script:2") && wrong.contains("invalid argument #2 to 'format'"),
        "{wrong}"
    );
}

#[tokio::test]
async fn print_shows_a_table() {
    for (script, expected) in [
        ("print({ a = 1, b = { 'x', true } })", r#"{"a":1,"b":["x",true]}"#),
        ("print('n:', { 1, 2 }, nil)", "n:\t[1,2]\tnil"),
        ("print(sdk.declared.read({}).more)", r#"{"size":1}"#),
        (
            "local p = content.text() p:await() print({ f = print, p = p, s = sdk })",
            r#"{"f":"<function>","p":"<promise>","s":"<sdk>"}"#,
        ),
        ("local t = { n = 1 } t.t = t print(t)", r#"{"n":1,"t":"<this table again>"}"#),
        ("print(setmetatable({}, { __tostring = function() return 'mine' end }))", "mine"),
        ("print({ 1, nil, 3, x = 1 })", r#"{"[1]":1,"[3]":3,"x":1}"#),
        (
            "local p = calc.add({ a = 1, b = 2 }) p:await() print(sdk.calc, p)",
            "sdk.calc\tpromise of calc.add",
        ),
    ] {
        let (_, logs) = logged(&format!("{script} return 1")).await;
        assert_eq!(logs, expected, "{script}");
    }
    let (_, logs) =
        logged("local t = {} for n = 1, 100000 do t[n] = n end print(t) return 1").await;
    assert!(logs.len() <= 4200 && logs.starts_with("[1,2,3"), "{}: {logs}", logs.len());
    assert!(logs.contains("more"), "{logs}");
}

#[tokio::test]
async fn loops_over_the_sdk_list_what_is_there() {
    for (script, expected) in [
        (
            "local n = {} for name in pairs(calc) do table.insert(n, name) end table.sort(n) return n",
            r#"["add","divide_by"]"#,
        ),
        (
            "local n = {} for name in sdk.calc do table.insert(n, name) end table.sort(n) return n",
            r#"["add","divide_by"]"#,
        ),
        (
            "local n = {} for name in next, sdk.calc do table.insert(n, name) end table.sort(n) return n",
            r#"["add","divide_by"]"#,
        ),
        (
            "local n = {} for name, source in pairs(sdk) do n[name] = type(source) end return n.calc",
            "\"table\"",
        ),
        ("return next(sdk.calc) ~= nil", "true"),
        (
            "for name, f in pairs(sdk.calc) do if name == 'add' then return f({ a = 1, b = 2 }) end end",
            r#"{"sum":3}"#,
        ),
        (
            "return ipairs(sdk)",
            "error[tool_error]: sdk is no list\n  --> script:1\nhint: use pairs(sdk)",
        ),
        (
            "return #sdk.calc",
            "error[tool_error]: sdk.calc is a source, which has no length\n  --> script:1\nhint: for name in pairs(sdk.calc) do … end names its functions",
        ),
        (
            "for _ in pairs(content.text()) do end return 1",
            "error[tool_error]: content.text(…) is a promise: call :await() first\n  --> script:1\nhint: write content.text({ … }):await()",
        ),
        (
            "for _ in ipairs(content.text()) do end return 1",
            "error[tool_error]: content.text(…) is a promise: call :await() first\n  --> script:1\nhint: write content.text({ … }):await()",
        ),
        (
            "local n = 0 for k, v in pairs({ a = 1, b = 2 }) do n += v end for i, v in ipairs({ 1, 2 }) do n += v end for k, v in next, { 5 } do n += v end return n",
            "11",
        ),
        (
            "return pairs(nil)",
            "error[tool_error]: invalid argument #1 to 'pairs' (table expected, got nil)\n  --> script:1\nhint: the value is nil: print of the table it came from shows what it has",
        ),
    ] {
        assert_eq!(answer(script).await, expected, "{script}");
    }
}

#[tokio::test]
async fn result_counts_once_even_where_its_error_is_caught() {
    assert_eq!(
        answer("pcall(result, 1) pcall(result, 2)").await,
        "error[tool_error]: result was called more than once\n  --> script\nhint: call it once, with a table of all that belongs to the answer"
    );
    assert_eq!(answer("pcall(result, 1)").await, "1");
}

#[tokio::test]
async fn slips_at_run_time_have_a_hint() {
    for (script, hint) in [
        ("local l = { { t = 1 } } return l[0].t", "lists count from 1: the first item is list[1]"),
        (
            "local l = { 1 } return l:filter(print)",
            "build it in a loop: for _, item in list do table.insert(out, item) end",
        ),
        (
            "local r = {} return 'n: ' .. r.count",
            "one of the values is nil: print(value) shows what there is, tostring(value) makes text of it",
        ),
        ("local l = {} l:push(1) return l", "use table.insert(list, value)"),
        ("return 'a' .. {}", "a table is no text: use one of its fields, or json.encode(value)"),
        (
            "local a = {} return a.b.c",
            "what is before the name is nil: print(value) of the table it came from shows what it has",
        ),
        (
            "return audio.play()",
            "what is before the name is nil: print(value) of the table it came from shows what it has",
        ),
        ("return os.exit()", "a script ends by return: return value"),
    ] {
        let answer = answer(script).await;
        assert!(answer.ends_with(&format!("\nhint: {hint}")), "{script}: {answer}");
    }
}

#[tokio::test]
async fn a_field_of_a_text_is_said_when_the_script_has_ended() {
    let of_result = |why: &str| format!("script:1: the result of sdk.content.text {why}");
    for (script, answer, log) in [
        (
            "return ('abc').length",
            "null",
            "script:1: a text has no field length: #text is its length".to_owned(),
        ),
        (
            "local s = tostring(5)\nreturn { s.foo, s.foo }",
            "{}",
            "script:2: a text has no field foo".to_owned(),
        ),
        (
            "return sdk.content.text({}).text",
            "null",
            of_result("is a text, which has no field text"),
        ),
        (
            "local function show(s) return s.length end return show(sdk.content.text({}))",
            "null",
            of_result("is a text, which has no field length: #text is its length"),
        ),
        (
            "local rs = map_parallel({ 1 }, function() return sdk.content.text({}) end) return rs[1].text",
            "null",
            of_result("is a text, which has no field text"),
        ),
        (
            "local rs = await_all({ content.text({}) }) return rs[1].text",
            "null",
            of_result("is a text, which has no field text"),
        ),
        // Looked for, or there.
        ("local s = 'abc' if s.foo then return 1 end return 2", "2", String::new()),
        ("local s = 'abc' return s.foo or 2", "2", String::new()),
        ("local s = 'abc' return s:upper() .. s.lower(s)", r#""ABCabc""#, String::new()),
        ("return string.foo == nil", "true", String::new()),
    ] {
        assert_eq!(logged(script).await, (answer.to_owned(), log), "{script}");
    }
}

#[tokio::test]
async fn the_line_is_shown_to_agents_and_a_fence_is_no_part_of_it() {
    let world = World::new();
    let ended = world.execute("```lua\nlocal a = {}\nreturn a.b.c\n```").await.unwrap_err();
    let text = ended.content.unwrap().blocks[0].get("text").cloned();
    assert_eq!(
        text.as_ref().and_then(Value::as_str).unwrap(),
        "error[tool_error]: attempt to index nil with 'c'\n  --> script:3\n   3 | return a.b.c\nhint: what is before the name is nil: print(value) of the table it came from shows what it has"
    );
}

#[tokio::test]
async fn a_parameter_that_means_the_script_is_told_so() {
    let world = World::new();
    let gateway = world.gateway();
    let ask = async |args: Value| {
        let call = gateway.open_call(moonlark_gateway::Caller::new("cli")).unwrap();
        gateway.invoke(&call, "execute", args).await.unwrap_err().to_string()
    };
    assert_eq!(
        ask(Value::from_fields([("code", "return 1".into())])).await,
        "error[bad_request]: unknown parameter: code; missing required parameter: script\nhint: did you mean script?"
    );
    assert_eq!(
        ask(Value::from_fields([])).await,
        "error[bad_request]: missing required parameter: script\nhint: write {\"script\": \"return 1\"}"
    );
    assert_eq!(
        ask(Value::from_fields([("script", "return 1".into()), ("timout", 1_i64.into())])).await,
        "error[bad_request]: execute has no parameter timout\nhint: did you mean timeout?"
    );
}

#[tokio::test]
async fn a_preview_tells_how_to_read_a_part_that_is_there() {
    let long = "local list = {} for n = 1, 500 do list[n] = { id = n } end ";
    for (script, expected) in [
        ("return { n = 1, rows = list }", "{ path = \"rows\", from = 1, count = 100 }"),
        ("return list", "{ from = 1, count = 100 }"),
        (
            "return { text = string.rep('a', 5000), few = { 1 } }",
            "{ path = \"text\", from = 1, count = 100 }",
        ),
    ] {
        let world = World { result: 1000, ..World::new() };
        let content = world.execute(&format!("{long}{script}")).await.unwrap();
        let text = content.blocks[0].get("text").and_then(Value::as_str).unwrap();
        assert!(text.contains(expected), "{script}: {text}");
    }
}
