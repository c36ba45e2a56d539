//! What a script may use, and what it is told when it uses more: none of it
//! can be caught, and the next script is not affected.

use serde_json::{Value, json};

use super::upstream::{Offer, Reply, Upstream, text};
use super::world::{Era, Ran, World};

fn upstream() -> Upstream {
    Upstream::start(vec![
        Offer::of("echo", text("here")),
        Offer::new("never", json!({}), |_| Reply::Never),
        Offer::new("take", json!({"value": {}}), |_| Reply::Now(text("taken"))),
        Offer::new("long", json!({"size": {"type": "integer"}}), |args| {
            Reply::Now(text(&"x".repeat(args["size"].as_u64().unwrap() as usize)))
        }),
    ])
}

fn world(config: &str) -> (Upstream, World) {
    let upstream = upstream();
    let world = World::with(config, &[("far", &upstream)]);
    (upstream, world)
}

/// The server lives, and so do others.
fn unharmed(world: &World) {
    assert_eq!(world.value("return sdk.far.echo()"), json!("here"));
}

#[test]
fn calls_are_counted_in_every_form_and_the_limit_cannot_be_caught() {
    for script in [
        "for _ = 1, 6 do sdk.far.echo() end return 'all'",
        "local p = {} for i = 1, 6 do p[i] = far.echo() end await_all(p) return 'all'",
        "map_parallel({ 1, 2, 3, 4, 5, 6 }, function() return sdk.far.echo() end) return 'all'",
        "for _ = 1, 6 do pcall(sdk.far.echo) end return 'all'",
        "for _ = 1, 6 do pcall(function() far.echo():await() end) end return 'all'",
        "for _ = 1, 6 do coroutine.wrap(function() sdk.far.echo() end)() end return 'all'",
    ] {
        let (upstream, world) = world("[limits]\ncalls = 5");
        world.run(script).fails("limit", &["5 tool calls", "limits.calls"]);
        assert!(upstream.called("echo") <= 5, "{script}: {}", upstream.called("echo"));
        unharmed(&world);
    }
}

#[test]
fn memory_logs_and_time_are_bounded() {
    let (_upstream, world) = world(
        "[limits]\ntimeout = 3\nmemory = \"16MB\"\nlogs = \"64KB\"\n[execute]\ncheck = \"off\"",
    );
    for (script, codes) in [
        ("local t = {} while true do table.insert(t, string.rep('x', 1000) .. #t) end", "limit"),
        ("return string.rep('x', 1e9)", "limit"),
        ("while true do print(string.rep('x', 1000)) end", "limit"),
        ("while true do log.info('x') end", "limit"),
        ("while true do pcall(print, string.rep('x', 1000)) end", "limit"),
        ("while true do end", "timeout"),
        ("while true do pcall(function() while true do end end) end", "timeout"),
        ("sleep(1000)", "timeout"),
        ("local function f() return f() + 1 end f()", "tool_error"),
    ] {
        let (code, message) = world.run(script).problem();
        assert_eq!(code, codes, "{script}: {message}");
        unharmed(&world);
    }
}

#[test]
fn an_agent_may_ask_for_less_time_and_not_for_more_than_it_may_have() {
    let (_upstream, world) = world("[execute]\ntimeout = 1\nmax_timeout = 2\n");
    let run = |timeout: Value| {
        let args = json!({"script": "while true do end", "timeout": timeout});
        Ran(world.call(Era::New, "execute", args))
    };
    run(json!(0.3)).fails("timeout", &["0.3 seconds"]);
    run(json!(2)).fails("timeout", &["2 seconds"]);
    let more = run(json!(3600)).problem();
    assert!(more.0 == "bad_request" || more.1.contains("2 seconds"), "{more:?}");
    for odd in [json!(0), json!(-1), json!("long"), json!(1e300)] {
        let answer = world.call(Era::New, "execute", json!({"script": "return 1", "timeout": odd}));
        let failed = answer.as_ref().is_ok_and(|it| it["isError"] == true) || answer.is_err();
        assert!(failed, "{odd}: {answer:?}");
    }
    unharmed(&world);
}

#[test]
fn promises_that_nobody_awaits_do_no_harm() {
    let (upstream, world) = world("[limits]\ncalls = 20000\nparallel = 8\ntimeout = 300\n");
    let script = "for i = 1, 10000 do far.never() end return 'off'";
    assert_eq!(world.value(script), json!("off"));
    upstream.wait_until("nothing is inside", |seen| seen.inside == 0);
    assert!(upstream.seen().peak <= 8, "{}", upstream.seen().peak);
    unharmed(&world);
    let before = upstream.called("echo");
    let script = "
        local started = {}
        for i = 1, 10000 do started[i] = far.echo() end
        local count = 0
        for _, said in await_all(started) do if said == 'here' then count += 1 end end
        return count";
    assert_eq!(world.value(script), json!(10_000));
    assert_eq!(upstream.called("echo") - before, 10_000);
}

#[test]
fn a_script_cannot_run_a_script() {
    let (_upstream, world) = world("");
    for script in [
        "return sdk.moonlark.execute({ script = 'return 1' })",
        "return sdk.execute({ script = 'return 1' })",
        "return execute({ script = 'return 1' })",
        "return moonlark.execute({ script = 'return 1' }):await()",
        "return sdk['moonlark']['execute']({ script = 'return 1' })",
        "return context.call('execute', { script = 'return 1' })",
    ] {
        let (Ok(answer) | Err(answer)) = world.run(script).0;
        let failed = answer["isError"] == true || answer.get("code").is_some();
        assert!(failed, "{script}: {answer}");
    }
    unharmed(&world);
}

#[test]
fn scripts_that_are_none_say_where() {
    let (_upstream, world) = world("");
    let huge = format!("return '{}'", "x".repeat(3 << 20));
    let nested = format!("return {}1{}", "(".repeat(100_000), ")".repeat(100_000));
    let many = "local a = 1\n".repeat(300);
    for (script, words) in [
        ("", &["return", "result("][..]),
        ("-- nothing", &["return", "result("]),
        ("return 1 +", &["script:1"]),
        ("\n\nlocal x = = 1", &["script:3"]),
        (&nested, &[]),
        (&many, &[]),
        ("\u{1b}Lua", &[]),
    ] {
        let ran = world.run(script);
        let (Ok(answer) | Err(answer)) = &ran.0;
        let failed = answer["isError"] == true || answer.get("code").is_some();
        let start: String = script.chars().take(20).collect();
        assert!(failed, "{start}: {answer}");
        for word in words {
            assert!(answer.to_string().contains(word), "{start}: no {word:?} in {answer}");
        }
    }
    // Large is not wrong, whatever becomes of it.
    let (Ok(answer) | Err(answer)) = world.run(&huge).0;
    assert!(answer.is_object(), "{answer}");
    for args in [json!({}), json!({"script": 5}), json!({"script": "return 1", "skript": 1})] {
        let answer = world.call(Era::New, "execute", args.clone());
        let failed = answer.as_ref().is_ok_and(|it| it["isError"] == true) || answer.is_err();
        assert!(failed, "{args}: {answer:?}");
    }
    unharmed(&world);
}

#[test]
fn a_result_is_given_exactly_once() {
    let (_upstream, world) = world("");
    world.run("result(1) result(2)").fails("tool_error", &["once"]);
    world.run("result(1) return 2").fails("tool_error", &["result", "return"]);
    world.run("pcall(result, 1) pcall(result, 2) return 3").fails("tool_error", &[]);
    world.run("local x = 1").fails("tool_error", &["return", "result("]);
    world.run("sdk.far.echo()").fails("tool_error", &["return", "result("]);
    // The first answer is no reason to stop.
    assert_eq!(world.value("result(1) sdk.far.echo()"), json!(1));
}

#[test]
fn what_cannot_be_a_result_says_which_part_of_it() {
    let (_upstream, world) = world("[execute]\ncheck = \"off\"");
    for (script, words) in [
        ("return function() end", &["function"][..]),
        ("return { f = print }", &["function", "f"]),
        ("result(coroutine.create(print))", &["coroutine"]),
        ("local t = {} t.t = t return t", &["t"]),
        ("local t = {} for _ = 1, 1000 do t = { t } end return t", &["deep"]),
        ("return { [1] = 'a', x = 'b' }", &[]),
        ("return { 0/0 }", &[]),
        ("return { far.echo() }", &["await"]),
        ("return far.echo()", &["await"]),
        ("return { text = '\\255\\254' }", &[]),
        ("return sdk", &[]),
        ("return sdk.far", &[]),
        ("return sdk.far.echo", &["function"]),
    ] {
        let ran = world.run(script);
        let (Ok(answer) | Err(answer)) = &ran.0;
        assert_eq!(answer["isError"], true, "{script}: {answer}");
        for word in words {
            assert!(answer.to_string().contains(word), "{script}: no {word:?} in {answer}");
        }
    }
    // Arguments are held to the same.
    for value in ["print", "setmetatable({}, {})", "far.echo()", "0/0"] {
        let (Ok(answer) | Err(answer)) =
            world.run(&format!("return sdk.far.take({{ value = {value} }})")).0;
        assert!(answer.is_object(), "{answer}");
    }
    let script = "local t = {} t.t = t return sdk.far.take({ value = t })";
    let (code, _) = world.run(script).problem();
    assert!(["tool_error", "bad_request", "limit"].contains(&code.as_str()), "{code}");
    unharmed(&world);
}

#[test]
fn calls_that_are_written_wrong_say_how_they_are_written() {
    // With the check off, a script finds out when it gets there.
    for check in ["error", "off"] {
        let (upstream, world) = world(&format!("[execute]\ncheck = {check:?}"));
        for (script, words) in [
            ("return sdk.far.ecko()", &["echo"][..]),
            ("return sdk.fat.echo()", &["far"]),
            ("return far.ecko():await()", &["echo"]),
            ("return sdk.far()", &["far"]),
            ("return sdk.far.take('text')", &["table"]),
            ("return sdk.far.take(1, 2)", &["table"]),
            ("return sdk.far.echo():await()", &["await"]),
            ("return far.echo().length", &["await"]),
            ("return await_all(5)", &[]),
            ("return await_any({})", &[]),
            ("return map_parallel({ 1 }, 5)", &[]),
            ("return map_parallel(5, print)", &[]),
            ("return map_parallel({ 1 }, tostring, { limit = 0 })", &[]),
        ] {
            let ran = world.run(script);
            let (Ok(answer) | Err(answer)) = &ran.0;
            assert_eq!(answer["isError"], true, "{script}: {answer}");
            for word in words {
                assert!(answer.to_string().contains(word), "{script}: no {word:?} in {answer}");
            }
        }
        assert_eq!(upstream.called("take"), 0);
        unharmed(&world);
    }
}

#[test]
fn what_is_not_granted_says_which_line_would_grant_it() {
    let (_upstream, world) = world("[execute]\ncheck = \"off\"");
    for (script, words) in [
        ("return http.get('http://127.0.0.1:1/')", &["net:"][..]),
        ("return fs.read('moonlark.toml')", &["dir"]),
        ("return env.get('HOME')", &["env:"]),
        ("return exec.run('ls')", &["exec:"]),
    ] {
        let ran = world.run(script);
        let (Ok(answer) | Err(answer)) = &ran.0;
        assert_eq!(answer["isError"], true, "{script}: {answer}");
        let said = answer.to_string();
        assert!(said.contains("[execute]") || said.contains("execute"), "{script}: {said}");
        for word in words {
            assert!(said.contains(word), "{script}: no {word:?} in {said}");
        }
    }
    // What only computes is always there.
    let script = "return {
        json.encode({ 1 }), base64.encode('hi'), url.encode('a b'), regex.is_match('a', 'a'),
        #crypto.sha256('x') > 0, time.now() > 0,
    }";
    let value = world.value(script);
    assert_eq!(value[0], "[1]", "{value}");
    assert_eq!(value[1], "aGk=", "{value}");
}

#[test]
fn nothing_of_a_run_is_left_for_the_next() {
    let (_upstream, world) = world("[execute]\ncheck = \"off\"");
    for script in [
        "left = 5 return 1",
        "string.left = 5 return 1",
        "getmetatable('').left = 5 return 1",
        "sdk.left = 5 return 1",
        "sdk.far.left = 5 return 1",
        "far.left = 5 return 1",
        "rawset(sdk, 'left', 5) return 1",
        "json.left = 5 return 1",
        "result = print return 1",
    ] {
        // Whether it is refused or not.
        let _ = world.run(script).0;
        let left = "return { tostring(left), tostring(string.left), tostring(json.left),
            tostring(('').left), type(result), type(sdk.far.echo) }";
        assert_eq!(
            world.value(left),
            json!(["nil", "nil", "nil", "nil", "function", "function"]),
            "{script}"
        );
    }
    unharmed(&world);
}
