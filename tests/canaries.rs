//! Secrets as canaries: put wherever secrets are put, then looked for in everything
//! that the program wrote or sent.
//!
//! The table in [`canaries`] says of each where it may be: at the server it was meant
//! for, in answers to the caller who sent it, in the process it was given to. It must be
//! in none of the other places: logs at every level and in both forms, files, answers to
//! others, what commands print, telemetry, command lines. It is looked for as it is, in
//! JSON and in addresses, in Base64 wherever it begins, and in hexadecimal digits.

mod echo;
mod login;
mod search;
mod world;

use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::{eventually, moonlark};
use search::{Canary, Evidence};
use world::{Client, Running, World, with_env};

/// Each with where it may be found; the first place is what it is for. All others may
/// not have it.
fn canaries() -> Vec<Canary> {
    vec![
        // In the environment of the server, and nobody is to know.
        Canary::new("variable", &[]),
        // In the configuration of a script, which sends some of it to a site.
        Canary::new("script_env", &["echo /fetch"]),
        Canary::new("script_password", &["echo /fetch"]),
        Canary::new("script_nested", &["echo /fetch"]),
        Canary::new("script_db", &[]),
        // A secret of a script that somebody else sends as an argument.
        Canary::new("known", &[]),
        // What upstream servers are given.
        Canary::new("child_env", &["environment of the child"]),
        Canary::new("child_arg", &["environment of the child", "command line"]),
        Canary::new("web_header", &["echo /mcp"]),
        Canary::new("web_cookie", &["echo /mcp"]),
        Canary::new("web_bearer", &["echo /mcp"]),
        Canary::new("web_query", &["echo /mcp"]),
        // What APIs are given.
        Canary::new("api_bearer", &["echo /api/bearer"]),
        Canary::new("api_header", &["echo /api/bearer"]),
        Canary::new("api_frozen", &["echo /api/bearer"]),
        Canary::new("api_basic", &["echo /api/basic"]),
        Canary::new("api_query", &["echo /api/query"]),
        // Tokens that were obtained, and what they were obtained with.
        Canary::new("oauth_first", &["echo /login", "file login.json"]),
        Canary::new("oauth_second", &["echo /login", "file login.json"]),
        Canary::new("oauth_refresh", &["echo /oauth/token", "file login.json"]),
        Canary::new("oauth_client", &["echo /oauth/token", "file login.json"]),
        Canary::new("api_client", &["echo /oauth/token"]),
        Canary::new("api_access", &["echo /api/client"]),
        // Tokens in a file that somebody else replaces.
        Canary::new("file_first", &["echo /filed"]),
        Canary::new("file_second", &["echo /filed"]),
        // Where else there are addresses and headers.
        Canary::new("git_url", &[]),
        Canary::new("spec_url", &["echo /fail/spec"]),
        Canary::new("otlp_header", &["echo headers of /v1"]),
        // What callers show, and what a browser sends along.
        Canary::new("bob_token", &[]),
        Canary::new("cookie", &[]),
        Canary::new("header", &[]),
        // What a caller sends as arguments.
        Canary::new("arg_password", &["answer to alice", "echo /mcp"]),
        Canary::new("arg_nested", &["answer to alice", "echo /mcp"]),
        Canary::new("arg_refused", &[]),
        // What is secret neither by its name nor by its value is on record, also of calls
        // that are refused.
        Canary::new("arg_unnamed", &["file journal.db"]),
        // Whoever decides on a call sees its arguments, whatever they are called.
        Canary::new(
            "arg_approved",
            &["answer to alice /tools/pay", "answer to bob /approvals", "command approvals"],
        ),
        Canary::new("script_text", &["echo /fetch", "answer to alice"]),
    ]
}

const HOWS: [&str; 13] = [
    "values",
    "keys",
    "json",
    "base64",
    "url",
    "error",
    "raise",
    "log",
    "fetch",
    "unreachable",
    "invalid",
    "db",
    "env",
];

/// Everything in which a secret is used, echoed or refused.
fn use_everything(world: &World, alice: &Client<'_>, evidence: &mut Evidence) {
    let secret_args = json!({
        "password": world.value("arg_password"),
        "more": {"deep": [{"api_key": world.value("arg_nested")}]},
    });
    for how in HOWS {
        let mut args = secret_args.clone();
        args["how"] = json!(how);
        args["q"] = json!(format!("is it {}?", world.value("known")));
        alice.ask(evidence, "POST", "/tools/leaky", &args);
        alice.mcp(evidence, "tools/call", json!({"name": "leaky", "arguments": args}));
        alice.ask(evidence, "POST", "/tools/star_leaky", &json!({ "how": how }));
    }
    let refused = world.value("arg_refused");
    for args in [
        json!({"how": "x", "pin": world.value("arg_unnamed")}),
        json!({"how": 1, "password": refused}),
        json!({"how": "x", "secret_word": refused}),
        json!({"password": refused}),
    ] {
        alice.ask(evidence, "POST", "/tools/leaky", &args);
        alice.mcp(evidence, "tools/call", json!({"name": "leaky", "arguments": args}));
    }
    alice.ask(evidence, "POST", "/tools/nobody", &json!({ "password": refused }));
    let approved = json!({ "card_token": world.value("arg_approved") });
    alice.ask(evidence, "POST", "/tools/pay", &approved);

    let header = world.value("script_text");
    let mut script = format!(
        "local said = {{}}\nlocal function try(call, args)\n    local ok, it = pcall(call, args)\n    table.insert(said, {{ ok = ok, it = if ok then it else tostring(it) }})\nend\n\
         try(function() return http.get('http://127.0.0.1:{}/fetch', {{ headers = {{ Authorization = 'Bearer {header}' }} }}) end)\n",
        world.echo.port
    );
    for tool in ["leaky"] {
        for how in HOWS {
            script.push_str(&format!("try(sdk.tools.{tool}, {{ how = '{how}' }})\n"));
        }
    }
    for source in ["web", "login", "filed"] {
        for call in ["say", "fail", "refuse"] {
            script.push_str(&format!("try(sdk.{source}.{call}, {{ how = 'say' }})\n"));
        }
    }
    for how in ["say", "error"] {
        script.push_str(&format!("try(sdk.child.leak, {{ how = '{how}' }})\n"));
    }
    for api in ["bearer", "basic", "query", "client"] {
        for operation in ["echo", "fail", "text"] {
            script.push_str(&format!("try(sdk.{api}.{operation}, {{}})\n"));
        }
    }
    script.push_str("print(said[1].it)\nreturn said\n");
    let ran = alice.ask(evidence, "POST", "/tools/execute", &json!({ "script": script }));
    assert_eq!(ran.status, 200, "{}", ran.text());
    // Somebody renews a token.
    world.project.write("filed.token", world.value("file_second"));
    alice.mcp(evidence, "tools/call", json!({"name": "execute", "arguments": {"script": script}}));
    let args = format!(
        "return sdk.web.say({{ password = {:?}, more = {{ api_key = {:?} }} }})",
        world.value("arg_password"),
        world.value("arg_nested")
    );
    // Its text has the arguments in it: as a value they are known by their keys alone.
    let script = json!({"script": args});
    alice.ask(evidence, "POST", "/tools/execute", &script);
    alice.ask(
        evidence,
        "POST",
        "/tools/execute",
        &json!({"script": "error(sdk.child.leak({}).text)"}),
    );
    alice.ask(evidence, "POST", "/tools/execute", &json!({"script": "this is no script"}));
}

/// Everything that somebody else can look at.
fn look_everywhere(bob: &Client<'_>, evidence: &mut Evidence) {
    for path in [
        "/",
        "/tools/list",
        "/sources",
        "/runs",
        "/approvals",
        "/health",
        "/ready",
        "/metrics",
        "/openapi.json",
        "/nothing",
        "/.well-known/oauth-protected-resource",
    ] {
        bob.ask(evidence, "GET", path, &Value::Null);
    }
    for (list, path) in [("runs", "/runs"), ("approvals", "/approvals")] {
        let listed = bob.ask(evidence, "GET", path, &Value::Null).json();
        let all = listed[list].as_array().cloned().unwrap_or_default();
        assert!(!all.is_empty(), "{path}: {listed}");
        for one in all {
            let id = one["id"].as_str().unwrap();
            bob.ask(evidence, "GET", &format!("{path}/{id}"), &Value::Null);
        }
    }
    for method in [
        "server/discover",
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "prompts/list",
    ] {
        bob.mcp(evidence, method, json!({}));
    }
    for (tool, args) in [
        ("list_functions", json!({})),
        ("search_docs", json!({"query": "you said authorization"})),
        ("search_docs", json!({"query": "leak token password"})),
        ("get_function_docs", json!({"name": "web.say"})),
        ("get_function_docs", json!({"name": "login.say"})),
        ("get_function_docs", json!({"name": "filed.say"})),
        ("get_function_docs", json!({"name": "bearer.echo"})),
        ("get_function_docs", json!({"name": "child.leak"})),
        ("get_function_docs", json!({"name": "tools.leaky"})),
        ("sources", json!({})),
        ("search", json!({"query": "handbook"})),
    ] {
        bob.mcp(evidence, "tools/call", json!({"name": tool, "arguments": args}));
    }
    for (method, params) in [
        ("resources/read", json!({"uri": "echo://said"})),
        ("prompts/get", json!({"name": "web__said"})),
        ("prompts/get", json!({"name": "said"})),
    ] {
        bob.mcp(evidence, method, params);
    }
}

/// Everything that a person can ask for on the machine.
fn run_every_command(world: &World, evidence: &mut Evidence) {
    let run = |args: &[&str]| {
        let mut command = moonlark();
        with_env(&mut command, &world.canaries).args(args).current_dir(world.project.path("."));
        let output = command.stdin(Stdio::null()).output().unwrap();
        // Some of them fail, as they are to; none is misunderstood.
        assert_ne!(output.status.code(), Some(2), "{args:?}: {output:?}");
        (args.join(" "), [output.stdout, output.stderr].concat())
    };
    let runs = run(&["runs", "--json"]);
    let runs: Value = serde_json::from_slice(&runs.1).unwrap();
    let ids = runs["runs"].as_array().unwrap().iter().filter_map(|it| it["id"].as_str());
    let mut all: Vec<Vec<String>> = [
        "runs",
        "runs --json",
        "approvals list",
        "approvals list --json",
        "doctor",
        "doctor --json",
        "config show",
        "config check",
        "check -vv",
        "tool list",
        "tool list --json",
        "sources",
        "sources --json",
        "search-tools you said",
        "search-tools --json leak",
        "docs web.say",
        "docs login.say",
        "docs filed.say",
        "docs bearer.echo",
        "docs leaky",
        "docs child.leak",
        "policy explain leaky",
        "connector list",
        "sync all",
        "sync all -vv",
        "sources --json",
        "token list",
        "token list --json",
        "types --out typed",
        "pin web",
        "call leaky --args {\"how\":\"error\"}",
        "call leaky -vv --args {\"how\":\"log\"}",
        "call web.fail -vv",
        "call login.fail -vv",
        "call filed.fail -vv",
        "call client.echo -vv",
        "call child.leak -vv",
        "call query.fail -vv",
        "generate specs/query.json -o generated",
    ]
    .iter()
    .map(|line| line.split(' ').map(str::to_owned).collect())
    .collect();
    all.extend(ids.map(|id| vec!["runs".to_owned(), id.to_owned()]));
    for args in all {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let (line, said) = run(&args);
        evidence.add(format!("command {line}"), said);
    }
}

/// What the system knows of the processes that were started.
fn look_at_processes(world: &World, evidence: &mut Evidence) {
    let mut lines = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|it| it.parse::<u32>().ok()) else {
            continue;
        };
        let read = |what: &str| std::fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
        lines.extend(read("cmdline"));
        lines.push(b'\n');
        let at = std::fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
        if at == world.child.path(".").canonicalize().unwrap() {
            evidence.add("environment of the child", read("environ"));
        }
        let line = String::from_utf8_lossy(&read("cmdline")).into_owned();
        if line.contains("starlark") {
            evidence.add("worker's environment", read("environ"));
        }
    }
    evidence.add("command lines", lines);
}

fn story(args: &[&str], level: Option<&str>) {
    let world = World::new();
    let mut evidence = Evidence::default();
    let running = Running::start(&world, args, level);
    let alice = Client {
        name: "alice",
        token: &world.alice,
        more: vec![
            ("Cookie", format!("session={}", world.value("cookie"))),
            ("X-Api-Key", world.value("header").to_owned()),
        ],
        address: &running.address,
    };
    let bob = Client {
        name: "bob",
        token: world.value("bob_token"),
        more: Vec::new(),
        address: &running.address,
    };
    eventually("all sources", || {
        let sources = bob.ask(&mut evidence, "GET", "/sources", &Value::Null).json();
        let all = sources["upstreams"].as_array().cloned().unwrap_or_default();
        let ready = all.iter().filter(|it| it["state"] == "ready").count();
        if ready == 8 { Ok(()) } else { Err(sources.to_string()) }
    });
    use_everything(&world, &alice, &mut evidence);
    look_everywhere(&bob, &mut evidence);
    look_at_processes(&world, &mut evidence);
    // Who shows no token, or a wrong one, is told nothing either.
    let nobody =
        Client { name: "nobody", token: "wrong", more: Vec::new(), address: &running.address };
    nobody.ask(&mut evidence, "GET", "/tools/list", &Value::Null);
    run_every_command(&world, &mut evidence);
    eventually("telemetry", || {
        let seen = world.echo.seen();
        let has = |path: &str| seen.iter().any(|(it, _)| it.starts_with(path));
        if has("/v1/traces") && has("/v1/metrics") { Ok(()) } else { Err("none".to_owned()) }
    });
    evidence.add("log", running.end());
    collect(&world, &mut evidence);
    evidence.judge(&world.canaries);
}

fn collect(world: &World, evidence: &mut Evidence) {
    for (path, request) in world.echo.seen() {
        if path.starts_with("/v1/") {
            // The headers are for the collector; what is in the body, everybody sees there.
            let (head, body) = request.split_once("\r\n\r\n").unwrap();
            evidence.add(format!("echo headers of {path}"), head);
            evidence.add(format!("echo body of {path}"), body);
        } else {
            evidence.add(format!("echo {path}"), request);
        }
    }
    for dir in [".moonlark", "typed", "generated"] {
        evidence.add_files(&world.project.path(dir));
    }
    // Something was in each of these, and something was taken out: a place that nothing
    // ever got to proves nothing.
    let places = [
        ("file journal.db", "[redacted"),
        ("file moonlark.db", ""),
        ("log", "[redacted:password]"),
        ("log", "[redacted:env.CHILD_TOKEN]"),
        ("answer to alice /tools/leaky", "[redacted:api_token]"),
        ("answer to alice /tools/leaky", "[redacted:nested.client_secret]"),
        ("answer to alice /tools/star_leaky", "[redacted:password]"),
        ("answer to alice /tools/execute", "[redacted:auth.token]"),
        ("answer to alice /tools/execute", "[redacted:headers.X-Secret]"),
        ("answer to alice /tools/execute", "[redacted:auth.access_token]"),
        ("answer to alice /tools/execute", "[redacted:auth.token_file]"),
        ("answer to alice /tools/execute", "[redacted:auth.it]"),
        ("answer to alice /tools/execute", "[redacted:args[3]]"),
        ("answer to bob /mcp", "[redacted:auth.token]"),
        ("answer to bob /runs/", "[redacted:Authorization]"),
        ("answer to bob /approvals/", "card_token"),
        ("answer to bob /metrics", "moonlark_"),
        ("command docs web.say", "[redacted:headers.X-Api-Key]"),
        ("command docs login.say", "[redacted:auth.access_token]"),
        ("command docs filed.say", "[redacted:auth.token_file]"),
        ("command call client.echo", "[redacted:auth.it]"),
        ("command config show", "[redacted]"),
        ("command doctor", ""),
        ("command sync all", ""),
        ("echo body of /v1/traces", "leaky"),
        ("echo body of /v1/metrics", ""),
    ];
    let empty: Vec<_> = places.iter().filter(|(place, text)| !evidence.has(place, text)).collect();
    assert!(empty.is_empty(), "nothing there: {empty:#?}");
}

#[test]
fn no_secret_is_where_it_does_not_belong_with_a_log_for_people_that_says_everything() {
    story(&[], Some("trace"));
}

#[test]
fn no_secret_is_where_it_does_not_belong_with_a_log_for_programs() {
    story(&["--log-format", "json", "-v"], None);
}
