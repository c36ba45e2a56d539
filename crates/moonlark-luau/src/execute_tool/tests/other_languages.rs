//! The table of slips: what models write who have another language in mind, and what they
//! are told. Each goes the whole way, from the compiler over the check to the run.

use moonlark_core::Value;

use super::world::{World, account, said};
use crate::LuauCheckMode;

/// The error with its hint, and what was logged.
async fn told(script: &str, check: LuauCheckMode) -> (String, String) {
    let world = World { check, ..World::new() };
    let ended = world.execute(script).await;
    let logs = match &ended {
        Ok(content) => account(&content.extra).get("logs").cloned(),
        Err(_) => None,
    };
    let logs = match logs {
        Some(Value::Array(lines)) => {
            lines.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    };
    (said(ended), logs)
}

async fn assert_hints(table: &[(&str, &str)], check: LuauCheckMode) {
    let mut wrong = String::new();
    for (script, hint) in table {
        let (answer, _) = told(script, check).await;
        let expected = format!("\nhint: {hint}");
        let is_it = answer.ends_with(&expected)
            || answer.ends_with(&format!("{expected}\nnothing was called"));
        if !answer.starts_with("error[") || !is_it {
            wrong.push_str(&format!("{script}\n  {answer}\n  not: {hint}\n"));
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

const LOOPS: &str = "loops are written for _, item in list do … end, or for i = 1, 10 do … end";
const BLOCKS: &str = "blocks are words: if a then … end, while a do … end";
const ELSE_IF: &str = "the word is elseif: if a then … elseif b then … end";
const CATCH: &str = "errors are caught by pcall: local ok, value = pcall(function() return … end)";
const RAISE: &str = "errors are raised by error(\"message\")";
const LAMBDA: &str = "functions are written function(x) return … end";
const DEFINE: &str = "functions are written local function name(a, b) … end";
const COMMENT: &str = "comments begin with --";
const NOTHING: &str = "write nil, or json.null for a null in JSON";
const LOCAL: &str = "variables are declared with local: local name = value";
const IMPORT: &str =
    "nothing is imported here: modules such as json are globals, and tools are under sdk";
const NO_AWAIT: &str =
    "there is no await: sdk.source.fn({ … }) waits by itself; a promise has promise:await()";
const NO_IN: &str = "there is no in: write table.find(list, value) ~= nil, t[key] ~= nil or text:find(part, 1, true) ~= nil";
const FIELDS: &str = "fields are written { name = value }, or { [\"any name\"] = value }";
const BACKTICKS: &str = "text with values in it is written in backticks: `n: {value}`";
const BUILD: &str = "build it in a loop: for _, item in list do table.insert(out, item) end";
const CHOICE: &str = "write if a then b else c, without ? and :";

#[tokio::test]
async fn lines_of_other_languages_are_told_how_they_are_written_here() {
    assert_hints(
        &[
            ("for i in range(3):\n    print(i)\nreturn 1", LOOPS),
            ("for (let i = 0; i < 3; i++) {\n  print(i)\n}", LOOPS),
            ("for (const x of list) {\n}", LOOPS),
            ("for x of list do print(x) end", LOOPS),
            ("for x in list:\n  print(x)", LOOPS),
            ("local i = 1\ni++\nreturn i", "there is no ++: write n += 1"),
            (
                "local i = 1\ni--\nreturn i",
                "there is no --, which begins a comment: write n -= 1",
            ),
            ("if a != b then return 1 end", "not equal is written ~="),
            ("if a !== b then return 1 end", "not equal is written ~="),
            ("if a === b then return 1 end", "equal is written =="),
            ("if a && b then return 1 end", "and is a word: a and b"),
            ("if a || b then return 1 end", "or is a word: a or b"),
            ("if !a then return 1 end", "not is a word: not value"),
            ("local a = x ?? y", "or is a word: a or b"),
            ("local a = x?.y", "there is no ?. here: write a and a.b"),
            ("local a = 1\nif a == 1 then\n  return 1\nelse if a == 2 then\n  return 2\nend", ELSE_IF),
            ("if a then\n  return 1\nelif b then\n  return 2\nend", ELSE_IF),
            ("if (a) {\n return 1\n}", BLOCKS),
            ("if a:\n  return 1", BLOCKS),
            ("while true:\n  break", BLOCKS),
            ("while (true) {\n  break\n}", BLOCKS),
            ("function f(x) { return x }", "blocks end with the word end, without { } or :"),
            ("try\n  local x = 1\ncatch e\nend", CATCH),
            ("try {\n  return 1\n} catch (e) {\n  return 2\n}", CATCH),
            ("try:\n    x = 1\nexcept Exception as e:\n    print(e)", CATCH),
            ("throw new Error(\"no\")", RAISE),
            ("raise ValueError(\"no\")", RAISE),
            ("// first\nreturn 1", COMMENT),
            ("/* first */\nreturn 1", COMMENT),
            ("# first\nreturn 1", COMMENT),
            ("local x = 1 # the first\nreturn x", COMMENT),
            (
                "local x = 1 // the first one\nreturn x",
                "comments begin with --; a // b divides without a rest",
            ),
            ("local f = lambda x: x + 1", LAMBDA),
            ("local f = x => x + 1", LAMBDA),
            ("local f = (x) => { return x }", LAMBDA),
            ("list.forEach((x) => { print(x) })", LAMBDA),
            ("def f(x):\n  return x", DEFINE),
            ("fn f(x) return x end", DEFINE),
            (
                "async function f()\n  return 1\nend",
                "functions are not marked async: calls under sdk wait by themselves",
            ),
            ("return await sdk.calc.add({})", NO_AWAIT),
            ("import json\nreturn 1", IMPORT),
            ("from a import b", IMPORT),
            ("var x = 1", LOCAL),
            ("let x = 1", LOCAL),
            ("return sdk.calc.add({ severity: \"critical\" })", FIELDS),
            ("return { \"severity\": 1 }", FIELDS),
            ("local x = {\n  path: p,\n}", FIELDS),
            (
                "return sdk.calc.add(path=\"x\", n=1)",
                "arguments are one table of names and values: fn({ name = value })",
            ),
            ("local a = [1, 2, 3]", "lists are written { 1, 2, 3 }"),
            (
                "return [x for x in list]",
                "lists are built in a loop: for _, x in list do table.insert(out, x) end",
            ),
            (
                "return list[1:3]",
                "there are no slices: table.move(list, 1, 3, 1, {}) copies items, text:sub(1, 3) cuts a text",
            ),
            ("return \"b\" in text", NO_IN),
            ("if 1 in list then return 1 end", NO_IN),
            ("return x is None", "write value == nil, or value ~= nil"),
            ("return a == 5 ? \"a\" : \"b\"", CHOICE),
            ("return 1 if ok else 2", CHOICE),
            ("return 5 ** 2", "a power is written a ^ b"),
            ("return typeof x === \"string\"", "type is a function: type(value) == \"string\""),
            ("return new Error()", "there is no new: call a function, or write a table { … }"),
            ("local {a, b} = t", "take the fields one by one: local a, b = t.a, t.b"),
            (
                "return {...t, b=2}",
                "tables are not spread: local copy = table.clone(t), then copy.name = value",
            ),
            ("switch (x) {\n  case 1: return 1\n}", "use if a then … elseif b then … else … end"),
            ("with open(\"f\") as f:\n  pass", "there is no with: call the functions one after the other"),
            ("if a then\n  pass\nend", "an empty block needs no word: leave pass out"),
            ("print 5\nreturn 1", "print is a function: print(value)"),
            ("return \"abc\".upper()", "a text in quotes needs parentheses: (\"text\"):upper()"),
            ("local s = 'it''s'", "a quote inside of a text is written \\' or \\\""),
            ("return 1\nlocal x = 2", "return ends a block: nothing may follow it there"),
        ],
        LuauCheckMode::Off,
    )
    .await;
}

#[tokio::test]
async fn names_of_other_languages_are_told_what_they_are_called_here() {
    assert_hints(
        &[
            ("for i in range(3) do print(i) end return 1", "write for i = 1, n do … end"),
            ("local l = {} return len(l)", "the length of a list or a text is #value"),
            ("local x = 5 return 'n: ' .. str(x)", "use tostring(value)"),
            ("return int('5')", "use tonumber(text)"),
            ("return sorted({})", "use table.sort(list)"),
            ("return sum({})", "add in a loop: for _, n in list do total += n end"),
            ("return max({})", "use math.max(a, b), or math.max(table.unpack(list))"),
            ("return f\"n: {1}\"", BACKTICKS),
            ("local x = 1 print(f'n: {x}') return 1", BACKTICKS),
            ("local x = null return x", NOTHING),
            ("local x = None return x", NOTHING),
            ("return undefined", NOTHING),
            ("return True", "write true"),
            ("return False", "write false"),
            ("return JSON.parse('{}')", "use json.decode(text) and json.encode(value)"),
            ("console.log('a') return 1", "use print(…)"),
            ("return Math.floor(1.5)", "the module is math, in small letters"),
            ("throw 'no'", RAISE),
            ("local x = await f() return x", NO_AWAIT),
            ("return string.trim(' a ')", "use text:match(\"^%s*(.-)%s*$\")"),
            ("return table.push({}, 1)", "use table.insert(list, value)"),
            ("return table.sortt({})", "did you mean table.sort?"),
            ("return math.flor(1.5)", "did you mean math.floor?"),
        ],
        LuauCheckMode::Error,
    )
    .await;
}

#[tokio::test]
async fn unknown_names_in_conditions_are_said_where_another_name_is_meant() {
    const BLOCK: &str = "the local x of line 1 is only known inside of its block: declare it before the block, with local x";
    assert_hints(
        &[
            ("local x = 1\nif x and True then return 1 end", "write true"),
            ("local user\nif user == None then return 1 end", NOTHING),
            ("local user\nif user ~= null then return 1 end", NOTHING),
            ("if not None then return 1 end", NOTHING),
            ("local x = undefined or 1", NOTHING),
            (
                "local done, retries = false, 0\nwhile not done and retires < 3 do done = true end",
                "did you mean retries?",
            ),
            ("local done = false\nif not doen then return 1 end", "did you mean done?"),
            ("local users = {}\nif user then return 1 end", "did you mean users?"),
            ("local total\nreturn totla or 0", "did you mean total?"),
            ("local function helper() end\nif helpr then return 1 end", "did you mean helper?"),
            ("if tostrng then return 1 end", "did you mean tostring?"),
            ("do local x = 1 end\nif x then return 1 end", BLOCK),
            (
                "local function a() return later() end\nlocal function later() end\nreturn a()",
                "later is declared later, in line 2: move that up",
            ),
        ],
        LuauCheckMode::Error,
    )
    .await;
    let (answer, _) =
        told("local a = 1\nif a and verbose then return 1 end", LuauCheckMode::Error).await;
    assert_eq!(
        answer,
        "error[bad_script]: there is nothing called verbose; nothing was called\n  --> script:2:10"
    );
    for script in [
        "if foo then return 1 end return 2",
        "if foo ~= nil then return 1 end return 2",
        "local limit = LIMIT or 2 return limit",
        "if not foo then return 2 end",
        "local unpack = unpack or table.unpack return select('#', unpack({ 1, 2 }))",
        "if type(foo) == 'nil' then return 2 end",
        "foo = foo or 2 return foo",
        "if jit then return 1 end return 2",
        "return if bar then 1 else 2",
    ] {
        assert_eq!(told(script, LuauCheckMode::Error).await.0, "2", "{script}");
    }
}

#[tokio::test]
async fn fields_and_methods_of_other_languages_are_told_how_it_is_done_here() {
    assert_hints(
        &[
            ("local l = { 1, 2 } return l.length", "#list is its length"),
            ("local l = { 1, 2 } for i = 1, l.length do end", "#list is its length"),
            ("local l = {} table.insert(l, 1) return l.size", "#list is its length"),
            ("local l = { 1, 2 } return l.map(function(x) return x end)", BUILD),
            ("local l = { 1, 2 } return l.filter(function(x) return x end)", BUILD),
            ("local l = { 1, 2 } l.push(4) return l", "use table.insert(list, value)"),
            ("local l = { 1, 2 } l:push(4) return l", "use table.insert(list, value)"),
            ("local l = { 1, 2 } return l.join(',')", "use table.concat(list, \", \")"),
            ("local l = { 'a' } return l[0]", "the first item is list[1]"),
            ("local l = { 'a' } return l[-1]", "the last item is list[#list]"),
            (
                "local l = { { a = 1 } } for x in l do print(x.a) end",
                "the item comes second: for _, x in list do … end",
            ),
            ("return ('abc').length", "#text is its length"),
            ("local s = 'abc' return s.length", "#text is its length"),
            ("local s = 'abc' return s:toUpperCase()", "use text:lower() and text:upper()"),
            ("local s = 'abc' return s.trim()", "use text:match(\"^%s*(.-)%s*$\")"),
            ("local s = 'a,b' return s.split(',')", "write a colon: text:split(…)"),
            ("local s = 'a,b' return s.upper()", "write a colon: text:upper(…)"),
        ],
        LuauCheckMode::Error,
    )
    .await;
    // What only the run sees.
    assert_hints(
        &[
            ("local l = { 1 } return #l()", "the length of a list is #list, without ()"),
            ("local l = { a = 1 } return l.map(print)", BUILD),
            ("local t = { a = 1 } for k, v in t.items() do end", "use for key, value in t do … end"),
            ("local l = {} l.append(5) return l", "use table.insert(list, value)"),
            ("local l = {} for i = 1, l.length do end return 1", "the length of a list or a text is #value"),
            ("local l = { 'a' } local i = 0 return l[0].name, i", "lists count from 1: the first item is list[1]"),
            ("local l = { 'a' } return l[-1].name", "there are no places below 1: the last item is list[#list]"),
            ("for x in { { a = 1 } } do print(x.a) end", "a number has no fields; in for x in list do, x is the place: write for _, x in list do"),
            ("return 'a' + 'b'", "texts are joined with .., or written `a {b}` in backticks"),
            ("return 'a' .. true", "write tostring(value), or `{value}` in backticks"),
            ("return #nil", "the value is nil: print(value) of the table it came from shows what it has"),
        ],
        LuauCheckMode::Off,
    )
    .await;
}

#[tokio::test]
async fn a_text_that_only_looks_like_a_template_is_said_and_the_script_runs() {
    for (script, answer, log) in [
        (
            "local name = 'Ann'\nreturn \"Hello ${name}\"",
            r#""Hello ${name}""#,
            "script:2: ${name} in quotes is plain text, not the value of name; write it in backticks: `… {name} …`",
        ),
        (
            "local name = 'Ann'\nreturn `Hello ${name}`",
            r#""Hello $Ann""#,
            "script:2: in backticks, ${x} is a dollar sign and the value of x; write `{x}` for the value alone",
        ),
        ("local price = 5\nreturn `costs ${price}`", r#""costs $5""#, ""),
        ("local n = 'a'\nreturn `{n} costs ${n}`", r#""a costs $a""#, ""),
        ("return \"${HOME}/bin\"", r#""${HOME}/bin""#, ""),
    ] {
        assert_eq!(
            told(script, LuauCheckMode::Error).await,
            (answer.to_owned(), log.to_owned()),
            "{script}"
        );
    }
}

#[tokio::test]
async fn a_type_function_is_refused_wherever_it_stands() {
    const HINT: &str =
        "leave it out, or write the type itself: types change nothing in what a script does";
    for (script, place) in [
        ("type function f(t) return t end local x: f<number> = 1 return x", "1:1"),
        ("local a = 1\nexport type function f(t) return t end\nreturn a", "2:1"),
        ("if true then\n  type function f(t) return t end\nend\nreturn 1", "2:3"),
        ("local function g()\n  do type function f(t) return t end end\nend\nreturn 1", "2:6"),
        ("return function() type function f(t) while true do end end return 1 end", "1:19"),
    ] {
        let (answer, _) = told(script, LuauCheckMode::Error).await;
        let expected = format!(
            "error[bad_script]: type functions are not allowed here: the check would have to run them\n  \
             --> script:{place}\nhint: {HINT}\nnothing was called"
        );
        assert_eq!(answer, expected, "{script}");
    }
    // Types that compute nothing are nobody's mistake, nor is the word.
    let script = "type Pair<T> = { a: T, b: T }\nlocal p: Pair<number> = { a = 1, b = 2 }\nlocal s = 'type function f'\nreturn p.b, s";
    assert_eq!(told(script, LuauCheckMode::Error).await.0, r#"[2,"type function f"]"#);
}

#[tokio::test]
async fn the_check_knows_what_the_libraries_have() {
    let mut script = String::from("local found = {}\n");
    for (library, _) in crate::check::all_libraries() {
        script.push_str(&format!(
            "do local names = {{}} for name in {library} do table.insert(names, name) end table.sort(names) found.{library} = table.concat(names, ' ') end\n"
        ));
    }
    script.push_str("return found");
    let (answer, _) = told(&script, LuauCheckMode::Off).await;
    let found: serde_json::Value = serde_json::from_str(&answer).unwrap();
    for (library, members) in crate::check::all_libraries() {
        let mut members = members.to_vec();
        members.sort_unstable();
        assert_eq!(found[library], members.join(" "), "{library}");
    }
}
