//! `require`, rule by rule, and what scripts print.

use std::sync::Arc;

use moonlark_core::limits::CallLimits;
use moonlark_core::{ProblemCode, Value};
use moonlark_gateway::call::CallEventSink;
use moonlark_gateway::gateway::CallOptions;
use moonlark_gateway::{CallEvent, Caller};
use parking_lot::Mutex;

use crate::luau_testing::{Folder, tool};

/// Load `main.luau` beside `files` and call it: the answer, or the Problem.
async fn run(files: &[(&str, &str)], top: &str, body: &str) -> Result<String, String> {
    let folder = Folder::new(files);
    folder.write("main.luau", &tool(top, body));
    let (loaded, _) = folder.load("main.luau").await;
    let answer = match loaded {
        Ok(tool) => folder.call(&tool).await,
        Err(problem) => Err(problem),
    };
    match answer {
        Ok(value) => Ok(value.to_json_lossy().to_string()),
        Err(problem) => Err(problem.to_string()),
    }
}

#[tokio::test]
async fn a_file_is_what_it_returns_or_its_tool_or_its_globals() {
    for (text, expected) in [
        ("return { x = 1 }", r#"{"x":1}"#),
        ("return 5, 6", "5"),
        ("return false", "false"),
        ("tool = { name = 'other' } y = 1", r#"{"name":"other"}"#),
        ("tool = 5 y = 1", r#"{"tool":5,"y":1}"#),
        ("x = 1 local y = 2", r#"{"x":1}"#),
        ("return nil", "{}"),
    ] {
        let answer = run(&[("lib.luau", text)], "local lib = require('./lib')", "return lib").await;
        assert_eq!(answer.as_deref(), Ok(expected), "{text}");
    }
}

#[tokio::test]
async fn paths_begin_at_the_file_that_requires() {
    let files = [
        (
            "lib/a.luau",
            "return { require('./b'), require('b'), require('../c'), require('deep/d') }",
        ),
        ("lib/b.lua", "return 'b'"),
        ("c.lua", "return 'c'"),
        ("lib/deep/d.luau", "return function() return require('../b.lua') .. 'd' end"),
    ];
    let body = "return { a[1], a[2], a[3], a[4](), require('lib/b'), require('./lib/../c.lua') }";
    let answer = run(&files, "local a = require('lib/a')", body).await;
    assert_eq!(answer.as_deref(), Ok(r#"["b","b","c","bd","b","c"]"#));
    // The first ending wins.
    let files = [("x.lua", "return 'lua'"), ("x.luau", "return 'luau'")];
    assert_eq!(run(&files, "", "return require('x')").await.as_deref(), Ok(r#""luau""#));
}

#[tokio::test]
async fn every_file_has_globals_of_its_own_and_the_same_builtins() {
    let files = [(
        "lib.luau",
        "x = 'theirs' tool = nil return { seen = tostring(mine), x = function() return x end, same = string }",
    )];
    let body = "return { lib.seen, x, lib.x(), lib.same == string }";
    let answer = run(&files, "mine = 1 x = 'ours' local lib = require('lib')", body).await;
    assert_eq!(answer.as_deref(), Ok(r#"["nil","ours","theirs",true]"#));
}

#[tokio::test]
async fn a_file_runs_once_per_call_and_nothing_stays_for_the_next() {
    let folder = Folder::new(&[
        ("lib.luau", "return { count = 0 }"),
        ("other.luau", "return require('lib')"),
    ]);
    let body = "lib.count += 1 local other = require('other') other.count += 1 return { lib.count, other == require('./lib.luau') }";
    folder.write("main.luau", &tool("local lib = require('lib')", body));
    let tool = folder.load("main.luau").await.0.unwrap();
    for _ in 0..3 {
        let answer = folder.call(&tool).await.unwrap();
        assert_eq!(answer, Value::Array(vec![Value::Int(2), Value::Bool(true)]));
    }
}

#[tokio::test]
async fn calls_see_the_files_that_were_loaded() {
    let folder = Folder::new(&[("lib.lua", "return 1"), ("later.lua", "return 'first'")]);
    folder.write(
        "main.luau",
        &tool(
            "local lib = require('lib')\npcall(require, 'gone')",
            "return { lib, require('later'), (pcall(require, 'gone')) }",
        ),
    );
    let (tool, texts) = folder.load("main.luau").await;
    let names: Vec<(&str, bool)> =
        texts.iter().map(|(name, text)| (name.as_str(), text.is_empty())).collect();
    assert_eq!(
        names,
        [
            ("gone.lua", true),
            ("gone.luau", true),
            ("lib.lua", false),
            ("lib.luau", true),
            ("main.luau", false)
        ]
    );
    let tool = tool.unwrap();
    folder.write("lib.lua", "return 2");
    folder.write("lib.luau", "return 3");
    folder.write("gone.luau", "return 4");
    let answer = [Value::Int(1), Value::from("first".to_owned()), Value::Bool(false)];
    assert_eq!(folder.call(&tool).await, Ok(Value::Array(answer.to_vec())));
    // What a call required first is kept as well; later.luau is looked for.
    folder.write("main.luau", "");
    folder.write("later.lua", "return 'second'");
    let reads = folder.reads();
    assert_eq!(folder.call(&tool).await, Ok(Value::Array(answer.to_vec())));
    assert_eq!(folder.reads() - reads, 1);
}

#[tokio::test]
async fn a_broken_load_still_says_what_it_consists_of() {
    let folder = Folder::new(&[("lib.luau", "return oops oops")]);
    folder.write("main.luau", &tool("require('lib')", ""));
    let (tool, texts) = folder.load("main.luau").await;
    let problem = tool.unwrap_err();
    assert_eq!(problem.code, ProblemCode::BadScript);
    assert_eq!(problem.place.unwrap().to_string(), "tools/lib.luau:1");
    assert_eq!(texts.keys().collect::<Vec<_>>(), ["lib.luau", "main.luau"]);
    // A main file that is not there is one of them.
    folder.remove("main.luau");
    let (tool, texts) = folder.load("main.luau").await;
    assert_eq!(
        tool.unwrap_err().to_string(),
        "error[bad_script]: there is no such file\n  --> tools/main.luau"
    );
    assert_eq!(texts["main.luau"], "");
}

#[tokio::test]
async fn errors_show_the_required_file_and_line() {
    let place = |line: u32| format!("\n  --> tools/lib.luau:{line}");
    for (text, message, line) in [
        ("\nerror('boom')", "boom", 2),
        ("\n\nerror({ message = 'table' })", "table", 3),
        ("\nlocal x = nil + 1", "attempt to perform arithmetic (add) on nil and number", 2),
        ("\nstring.find()", "invalid argument #1 to 'find' (string expected, got nil)", 2),
        (
            "\nstring.format('%d', 'x')",
            "invalid argument #2 to 'format' (number expected, got string)",
            2,
        ),
        ("\n\nsleep('x')", "sleep: seconds: invalid type: string \"x\", expected f64", 3),
        ("return {\n  x = = 1\n}", "Expected identifier when parsing expression, got '='", 2),
        ("sleep(0.001)\nerror('after a wait')", "after a wait", 2),
    ] {
        let files = [("lib.luau", text)];
        let expected = format!("error[tool_error]: {message}{}", place(line));
        // At the top level and later, straight and through another file.
        let answer = run(&files, "", "\n\n\nreturn require('lib')").await;
        assert_eq!(answer, Err(expected.clone()), "{text}");
        let answer = run(&files, "\n\n\nrequire('lib')", "").await;
        assert_eq!(answer, Err(expected.replace("tool_error", "bad_script")), "{text}");
        let through = [("lib.luau", text), ("between.luau", "\n\n\n\nreturn require('lib')")];
        assert_eq!(run(&through, "", "return require('between')").await, Err(expected), "{text}");
    }
    let files =
        [("lib.luau", "local lib = {}\nfunction lib.fail() error('later') end\nreturn lib")];
    assert_eq!(
        run(&files, "local lib = require('lib')", "return lib.fail()").await,
        Err(format!("error[tool_error]: later{}", place(2)))
    );
}

#[tokio::test]
async fn a_file_that_failed_is_tried_again_and_is_no_circle() {
    let files = [
        (
            "lib.luau",
            "state = require('state')\nstate.tries += 1\nif state.tries < 3 then error('not yet') end\nreturn state.tries",
        ),
        ("state.luau", "return { tries = 0 }"),
    ];
    let body = "local first = pcall(require, 'lib') local second = pcall(require, 'lib') return { first, second, require('lib') }";
    assert_eq!(run(&files, "", body).await.as_deref(), Ok("[false,false,3]"));
}

#[tokio::test]
async fn what_cannot_be_required_is_a_problem_with_place_and_hint() {
    let own = "require .luau and .lua files of the script's own folder: require(\"./lib/text\")";
    let begins = "the path begins at the folder of the file that requires";
    for (call, message, hint) in [
        (
            "require('gone')",
            "require(\"gone\"): there is no tools/gone.luau and no tools/gone.lua",
            begins,
        ),
        (
            "require('./lib/gone.lua')",
            "require(\"./lib/gone.lua\"): there is no tools/lib/gone.lua",
            begins,
        ),
        (
            "require('sleep')",
            "require(\"sleep\"): there is no tools/sleep.luau and no tools/sleep.lua",
            "sleep is a global: use it without require",
        ),
        ("require('../lib')", "require(\"../lib\") leads out of the script's folder", own),
        (
            "require('/etc/passwd')",
            "require(\"/etc/passwd\") is not a path inside the script's folder",
            own,
        ),
        ("require('data.json')", "require(\"data.json\") does not name a .luau or .lua file", own),
        (
            "require(5)",
            "require takes the path of a file, got number",
            "such as require(\"./lib/text\")",
        ),
        (
            "require()",
            "require takes the path of a file, got nil",
            "such as require(\"./lib/text\")",
        ),
        (
            "require('main')",
            "require(\"main\") leads in a circle: tools/main.luau is still loading",
            "move what both files need into a third",
        ),
        (
            "require('self')",
            "require(\"self\") leads in a circle: tools/self.luau is still loading",
            "move what both files need into a third",
        ),
        (
            "require('a')",
            "require(\"./a\") leads in a circle: tools/a.luau is still loading",
            "move what both files need into a third",
        ),
    ] {
        let files = [
            ("self.luau", "return require('self')"),
            ("a.luau", "return require('b')"),
            ("b.luau", "return require('./a')"),
        ];
        let at = match call {
            "require('self')" => "tools/self.luau:1",
            "require('a')" => "tools/b.luau:1",
            _ => "tools/main.luau:5",
        };
        assert_eq!(
            run(&files, "", &format!("\nreturn {call}")).await,
            Err(format!("error[tool_error]: {message}\n  --> {at}\nhint: {hint}")),
        );
    }
    let large = format!("--{}", "x".repeat(300 * 1024));
    assert_eq!(
        run(&[("large.luau", &large)], "", "return require('large')").await,
        Err("error[tool_error]: require(\"large\"): tools/large.luau: the script is larger than 256 KB\n  --> tools/main.luau:4".to_owned())
    );
}

#[tokio::test]
async fn there_is_an_end_to_depth_and_number_of_files() {
    let deep: Vec<(String, String)> = (0..70)
        .map(|n| (format!("f{n}.luau"), format!("return require('f{}')", n + 1)))
        .chain([("f70.luau".to_owned(), "return 'the end'".to_owned())])
        .collect();
    let deep: Vec<(&str, &str)> = deep.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    assert_eq!(run(&deep, "", "return require('f7')").await.as_deref(), Ok("\"the end\""));
    assert_eq!(
        run(&deep, "", "return require('f6')").await,
        Err("error[tool_error]: require(\"f70\"): files require each other more than 64 levels deep\n  --> tools/f69.luau:1\nhint: require what is needed at the top of the script".to_owned())
    );
    let many: Vec<(String, String)> =
        (1..=300).map(|n| (format!("f{n}.lua"), format!("return {n}"))).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    let body = |most: u32| {
        format!("local sum = 0\nfor n = 1, {most} do sum += require('f' .. n) end\nreturn sum")
    };
    assert_eq!(
        run(&many, &body(256).replace("return", "local x ="), &body(256)).await.as_deref(),
        Ok("32896")
    );
    assert_eq!(
        run(&many, "", &body(257)).await,
        Err("error[tool_error]: the script requires more than 256 files\n  --> tools/main.luau:5\nhint: require only what it needs, or make one file of several".to_owned())
    );
    let large = format!("--{}", "x".repeat(250 * 1024));
    let large: Vec<(String, &str)> =
        (1..=30).map(|n| (format!("f{n}.lua"), large.as_str())).collect();
    let large: Vec<(&str, &str)> = large.iter().map(|(a, b)| (a.as_str(), *b)).collect();
    let answer = run(&large, "", "for n = 1, 30 do require('f' .. n) end").await.unwrap_err();
    assert!(
        answer.starts_with("error[tool_error]: the script requires more than 4 MB of files"),
        "{answer}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_required_file_may_wait_where_its_caller_may() {
    let files = [
        ("lib.luau", "sleep(0.001) return require('inner')"),
        ("inner.luau", "sleep(0.001) return 'waited'"),
    ];
    for body in [
        "return require('lib')",
        "return coroutine.wrap(function() return require('lib') end)()",
        "local ok, value = pcall(require, 'lib') return value",
        "local co = coroutine.create(require) local ok, value = coroutine.resume(co, 'lib') return value",
    ] {
        assert_eq!(run(&files, "", body).await.as_deref(), Ok("\"waited\""), "{body}");
    }
    let body = "return setmetatable({}, { __index = function() return require('lib') end }).x";
    let answer = run(&files, "", body).await.unwrap_err();
    assert!(
        answer.contains("sleep has to wait, which is not possible inside a metamethod"),
        "{answer}"
    );
    assert!(answer.contains("--> tools/lib.luau:1"), "{answer}");
    // Without waiting, it is possible there.
    let body = "return setmetatable({}, { __index = function() return require('plain') end }).x";
    assert_eq!(run(&[("plain.luau", "return 1")], "", body).await.as_deref(), Ok("1"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_hold_in_required_files_and_cannot_be_caught() {
    let limits = |folder: &Folder| CallLimits {
        timeout: std::time::Duration::from_millis(200),
        memory: 8 << 20,
        ..folder.limits.clone()
    };
    for (text, code) in [
        ("while true do end", ProblemCode::Timeout),
        ("sleep(100)", ProblemCode::Timeout),
        (
            "local t = {} while true do table.insert(t, string.rep('x', 1000) .. #t) end",
            ProblemCode::Limit,
        ),
    ] {
        let mut folder = Folder::new(&[("lib.luau", text)]);
        folder.limits = limits(&folder);
        folder.write("main.luau", &tool("", "while true do pcall(require, 'lib') end"));
        let tool = folder.load("main.luau").await.0.unwrap();
        assert_eq!(folder.call(&tool).await.unwrap_err().code, code, "{text}");
    }
}

#[tokio::test]
async fn scripts_are_loaded_and_called_in_the_same_vm_one_after_the_other() {
    let folder = Folder::new(&[]);
    for number in 0..200 {
        folder.write("main.luau", &tool("", &format!("return {number}")));
        let tool = folder.load("main.luau").await.0.unwrap();
        assert_eq!(folder.call(&tool).await.unwrap(), Value::Int(number));
    }
    assert_eq!(folder.engine.tool_vms().unwrap().count_idle_vms(), 1);
}

/// What a tool of this body answers, and the lines that it logs.
async fn logged(body: &str) -> (String, Vec<String>) {
    let folder = Folder::new(&[]);
    folder.write("main.luau", &tool("", body));
    let tool = folder.load("main.luau").await.0.unwrap();
    let gateway = folder.gateway(vec![tool.clone()]);
    let lines: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = lines.clone();
    let events: CallEventSink = Arc::new(move |event| {
        if let CallEvent::Log { message, .. } = event {
            heard.lock().push(message);
        }
    });
    let call =
        gateway.open_call(CallOptions::from(Caller::new("cli")).with_events(Some(events))).unwrap();
    let answer = gateway.call(&call, &tool.name, Value::Object(Default::default())).await;
    let answer = match answer {
        Ok(value) => value.to_json_lossy().to_string(),
        Err(problem) => problem.to_string(),
    };
    let lines = lines.lock().clone();
    (answer, lines)
}

#[tokio::test]
async fn a_tool_script_prints_a_table_as_its_json() {
    let (answer, lines) = logged(
        "print({ a = 1, b = { 'x', true } })
        print('n:', { 1, 2 }, nil)
        print(setmetatable({}, { __tostring = function() return 'mine' end }))
        local t = { n = 1 } t.t = t print(t)
        return 1",
    )
    .await;
    assert_eq!(answer, "1");
    assert_eq!(
        lines,
        [
            r#"{"a":1,"b":["x",true]}"#,
            "n:\t[1,2]\tnil",
            "mine",
            r#"{"n":1,"t":"<this table again>"}"#,
        ]
    );
}

#[tokio::test]
async fn a_table_as_text_is_its_json_in_a_tool_script() {
    for (body, expected) in [
        ("return tostring({ a = 1, b = { 'x' } })", r#"{"a":1,"b":["x"]}"#),
        ("return `t: { { 1, 2 } }`", "t: [1,2]"),
        ("return ('%s %d'):format({ a = true }, 5)", r#"{"a":true} 5"#),
        ("return tostring(5) .. tostring(nil) .. string.format('%q', 'x')", "5nil\"x\""),
        ("return string.sub(tostring(print), 1, 9)", "function:"),
        ("return string.sub(tostring(setmetatable({}, {})), 1, 7)", "table: "),
        ("return tostring(setmetatable({}, { __tostring = function() return 'm' end }))", "m"),
    ] {
        let expected = serde_json::Value::from(expected).to_string();
        assert_eq!(logged(body).await.0, expected, "{body}");
    }
    let (wrong, _) = logged("return string.format('%d', 'x')").await;
    assert!(wrong.contains("tools/main.luau:4"), "{wrong}");
    assert!(wrong.contains("invalid argument #2 to 'format'"), "{wrong}");
}
