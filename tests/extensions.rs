//! Starlark extensions through every way in: the seed's shapes, content of
//! every kind, `load()`, reload.

use serde_json::{Value, json};

use crate::harness::{Project, wait_for};

/// The shapes of the seed: metadata, parameters of every type, both ways to
/// answer, a handler that is a lambda, one that is a closure.
const DEMO: &str = r#"
load("lib/words.star", "greeting", polite = "please")

def greet(params):
    return {
        "content": [{"type": "text", "text": greeting(params["name"], params["loud"])}],
        "isError": False,
    }

def refuse(params):
    return {"content": [{"type": "text", "text": polite("no")}], "isError": True}

def every_kind(params):
    return {"content": [
        {"type": "text", "text": "a picture"},
        {"type": "image", "data": base64.encode("not really"), "mimeType": "image/png"},
        {"type": "audio", "data": base64.encode("nor this"), "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///a.txt", "mimeType": "text/plain", "text": "hi"}},
        {"type": "resource_link", "uri": "file:///b.txt", "name": "b"},
    ]}

def structured(params):
    return {"content": [{"type": "text", "text": "7"}], "structuredContent": {"n": 7}}

def who(params, context):
    return {"surface": context.caller["surface"], "team": context.config.get("team")}

def adder(n):
    return lambda params: params["to"] + n

def broken(params):
    return {"content": [{"type": "picture"}]}

def boom(params):
    values = [1, 2]
    return values[params.get("at", 5)]

def describe_extension():
    return Extension(
        name = "demo",
        version = "1.2.0",
        description = "Shapes",
        allowed_exec = [],
        tools = [
            Tool(
                name = "greet",
                description = "Greet somebody",
                parameters = [
                    ToolParameter(name = "name", param_type = "string", required = True, description = "Whom"),
                    ToolParameter(name = "loud", param_type = "boolean", required = False, default = True),
                    ToolParameter(name = "tags", param_type = "array", items = "string", default = []),
                    ToolParameter(name = "share", param_type = "number", default = 1.5, minimum = 0, maximum = 2),
                ],
                handler = greet,
            ),
            Tool(name = "refuse", description = "Fails by itself", handler = refuse),
            Tool(name = "every_kind", description = "", handler = every_kind),
            Tool(name = "structured", description = "", handler = structured),
            Tool(name = "who", description = "", handler = who),
            Tool(name = "three_more", description = "", parameters = [ToolParameter("to", "integer", True)], handler = adder(3)),
            Tool(name = "plain", description = "", annotations = {"read_only": True}, handler = lambda params: [1, "two", None]),
            Tool(name = "broken", description = "", handler = broken),
            Tool(name = "boom", description = "", handler = boom),
        ],
    )
"#;

const WORDS: &str = r#"
def greeting(name, loud):
    text = "Hello, " + name
    return text.upper() if loud else text

def please(text):
    return text + ", please"
"#;

fn demo() -> Project {
    Project::new(&[
        ("extensions/demo.star", DEMO),
        ("extensions/lib/words.star", WORDS),
        ("moonlark.toml", "[extensions.script.demo]\nteam = \"blue\"\n"),
    ])
}

#[test]
fn the_shapes_of_the_seed_answer_the_same_over_rest_and_the_command_line() {
    let project = demo();
    let server = project.serve();
    for (tool, args, expected) in [
        ("greet", json!({"name": "Ada"}), json!("HELLO, ADA")),
        ("greet", json!({"name": "Ada", "loud": false}), json!("Hello, Ada")),
        ("structured", json!({}), json!({"n": 7})),
        ("three_more", json!({"to": 4}), json!(7)),
        ("plain", json!({}), json!([1, "two", null])),
    ] {
        assert_eq!(server.post(tool, &args), (200, json!({ "result": expected })), "{tool}");
        let run = project.run(&["call", tool, "--json", "--args", &args.to_string()]);
        let said: Value = serde_json::from_slice(&run.stdout).unwrap();
        assert_eq!(said, json!({ "result": expected }), "{tool}");
    }
    assert_eq!(
        server.post("who", &json!({})),
        (200, json!({"result": {"surface": "rest", "team": "blue"}}))
    );
    for (tool, args, status, code, message) in [
        ("greet", json!({}), 400, "bad_request", "missing required parameter: name"),
        (
            "greet",
            json!({"name": "A", "share": 3}),
            400,
            "bad_request",
            "parameter 'share' must be at most 2",
        ),
        ("refuse", json!({}), 500, "tool_error", "no, please"),
        (
            "broken",
            json!({}),
            500,
            "tool_error",
            "result.content[0].type is \"picture\", which is none of text, image, audio, resource, resource_link",
        ),
        (
            "boom",
            json!({}),
            500,
            "tool_error",
            "extensions/demo.star:36: Index `5` is out of bound",
        ),
    ] {
        let (got, answer) = server.post(tool, &args);
        let error = &answer["error"];
        assert_eq!(
            (got, error["code"].as_str(), error["message"].as_str()),
            (status, Some(code), Some(message)),
            "{tool}"
        );
    }
}

#[test]
fn content_of_every_kind_comes_through_mcp_as_it_is() {
    let project = demo();
    let mut client = project.stdio();
    let mut call = |name: &str| {
        client.request("tools/call", json!({"name": name, "arguments": {}}))["result"].clone()
    };
    let every = call("every_kind");
    assert_eq!(
        every["content"],
        json!([
            {"type": "text", "text": "a picture"},
            {"type": "image", "data": "bm90IHJlYWxseQ==", "mimeType": "image/png"},
            {"type": "audio", "data": "bm9yIHRoaXM=", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///a.txt", "mimeType": "text/plain", "text": "hi"}},
            {"type": "resource_link", "uri": "file:///b.txt", "name": "b"},
        ])
    );
    let refused = call("refuse");
    assert_eq!(refused["isError"], json!(true));
    assert_eq!(refused["content"], json!([{"type": "text", "text": "no, please"}]));
    let structured = call("structured");
    assert_eq!(structured["structuredContent"], json!({"n": 7}));
    assert_eq!(structured["content"], json!([{"type": "text", "text": "7"}]));
    let plain = call("plain");
    assert_eq!(plain["content"], json!([{"type": "text", "text": "[1,\"two\",null]"}]));
    assert_eq!(client.close(), 0);
}

#[test]
fn the_schema_says_what_the_author_said() {
    let project = demo();
    let server = project.serve();
    let listing = server.get("/tools/list").json();
    let greet =
        listing["tools"].as_array().unwrap().iter().find(|it| it["name"] == "greet").unwrap();
    assert_eq!(
        greet["parameters"],
        json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "Whom"},
                "loud": {"type": "boolean", "default": true},
                "tags": {"type": "array", "default": [], "items": {"type": "string"}},
                "share": {"type": "number", "default": 1.5, "minimum": 0, "maximum": 2},
            },
            "required": ["name"],
            "additionalProperties": false,
        })
    );
}

/// What is wrong with an extension, as `moonlark check` says it.
fn problems(files: &[(&str, &str)]) -> String {
    let project = Project::new(files);
    let run = project.run(&["check"]);
    String::from_utf8_lossy(&run.stderr).trim().to_owned()
}

const GOOD_END: &str =
    "\ndef describe_extension():\n    return Extension(name = 'x', tools = [])\n";

#[test]
fn a_bad_extension_is_a_problem_with_its_place() {
    let check = |text: &str| problems(&[("extensions/x.star", text)]);
    for (text, expected) in [
        (
            "def f(:\n  pass",
            "error[bad_script]: unexpected symbol ':', expected identifier\n  --> extensions/x.star:1",
        ),
        ("while True:\n    pass", "hint: Starlark has no while: use for … in range(…)"),
        (
            "x = 1",
            "error[bad_script]: the file defines no function describe_extension\n  --> extensions/x.star\nhint: define it, or begin the file's name with _ if others are to load it",
        ),
        (
            "def describe_extension():\n    return {}",
            "error[bad_script]: describe_extension() must return Extension(…), got dict\n  --> extensions/x.star",
        ),
        (
            "def describe_extension():\n    return Extension(name = 'x', tool = [])",
            "error[bad_script]: Extension has no parameter tool\n  --> extensions/x.star:2\nhint: did you mean tools?",
        ),
        (
            "def describe_extension():\n    return Extension(name = 'x', tools = [Tool(name = 'a')])",
            "error[bad_script]: Tool a has no handler\n  --> extensions/x.star\nhint: add: handler = my_function, where def my_function(params): …",
        ),
        (
            "def describe_extension():\n    return Extension(name = 'x', tools = [Tool(name = 'a', handler = 5)])",
            "error[bad_script]: Tool a: the handler must be a function, got int\n  --> extensions/x.star",
        ),
        (
            "def h(a, b, c):\n    pass\ndef describe_extension():\n    return Extension(name = 'x', tools = [Tool(name = 'a', handler = h)])",
            "error[bad_script]: Tool a: the handler must take (params) or (params, context)\n  --> extensions/x.star",
        ),
        (
            "def describe_extension():\n    return Extension(name = 'x', tools = [Tool(name = 'a', handler = lambda p: 1, parameters = [ToolParameter(name = 'n', param_type = 'intt')])])",
            "error[bad_script]: a.parameters.n.type is \"intt\", which is none of string, integer, number, boolean, array, object\n  --> extensions/x.star",
        ),
        (
            "x = http.get('https://example.com')",
            "error[denied]: http.get may not reach example.com\n  --> extensions/x.star:1\nhint: while a script loads it can only read its own files: move this into a handler",
        ),
        ("fail('not today')", "error[bad_script]: not today\n  --> extensions/x.star:1"),
    ] {
        let said = check(text);
        assert!(said.contains(expected), "{text}\n{said}");
    }
}

#[test]
fn load_stays_inside_the_folder_and_notices_cycles() {
    let secret = ("secret.star", "secret = 1");
    for (files, expected) in [
        (
            vec![("extensions/x.star", "load('../secret.star', 'secret')")],
            "load(\"../secret.star\") leads out of the extensions folder\n  --> extensions/x.star:1",
        ),
        (
            vec![("extensions/x.star", "load('/etc/passwd.star', 'secret')")],
            "load(\"/etc/passwd.star\") is not a path inside the extensions folder",
        ),
        (
            vec![("extensions/x.star", "load('missing.star', 'secret')")],
            "the script cannot be read: there is no such file\n  --> extensions/missing.star",
        ),
        (
            vec![
                ("extensions/x.star", "load('y.star', 'b')\na = 1"),
                ("extensions/y.star", "load('x.star', 'a')\nb = 1"),
            ],
            "these files load each other: x.star → y.star → x.star",
        ),
        (
            vec![("extensions/x.star", "load('x.star', 'a')\na = 1")],
            "these files load each other: x.star → x.star",
        ),
        (
            vec![
                ("extensions/x.star", "load('_lib.star', 'missing')"),
                ("extensions/_lib.star", "here = 1"),
            ],
            "Module has no symbol `missing`",
        ),
        (
            vec![
                ("extensions/x.star", "load('_lib.star', 'here')"),
                ("extensions/_lib.star", "\nhere = undefined"),
            ],
            "Variable `undefined` not found\n  --> extensions/_lib.star:2",
        ),
    ] {
        let mut files = files;
        files.push(secret);
        let said = problems(&files);
        assert!(said.contains(expected), "{files:?}\n{said}");
    }
    // A link is not a way out either.
    let project = Project::new(&[
        ("secret.star", "secret = 1"),
        ("extensions/x.star", "load('link.star', 'secret')"),
    ]);
    std::os::unix::fs::symlink("../secret.star", project.path("extensions/link.star")).unwrap();
    let run = project.run(&["check"]);
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(said.contains("the script cannot be read"), "{said}");
    // An endless chain: every file loads the next.
    let chain: Vec<(String, String)> = (0..100)
        .map(|n| (format!("extensions/_{n}.star"), format!("load('_{}.star', x = 'x')", n + 1)))
        .collect();
    let mut files: Vec<(&str, &str)> =
        chain.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    files.push(("extensions/x.star", "load('_0.star', 'x')"));
    let said = problems(&files);
    assert!(said.contains("files load each other more than 64 levels deep"), "{said}");
}

#[test]
fn files_that_are_only_loaded_are_no_extensions() {
    let main = format!("load('shared.star', 'x')\nload('sub/_deep.star', 'y'){GOOD_END}");
    let said = problems(&[
        ("extensions/x.star", &main),
        ("extensions/shared.star", "x = 1"),
        ("extensions/sub/_deep.star", "load('//shared.star', 'x')\ny = x"),
        ("extensions/x_test.star", "this is not looked at"),
    ]);
    assert_eq!(said, "");
    // One that nobody loads is a mistake, whatever it loads itself.
    let said = problems(&[
        ("extensions/ab.star", "load('b.star', 'x')\ny = x"),
        ("extensions/b.star", "x = 1"),
    ]);
    assert!(
        said.starts_with("error[bad_script]: the file defines no function describe_extension\n  --> extensions/ab.star\n"),
        "{said}"
    );
    assert!(!said.contains("extensions/b.star"), "{said}");
}

#[test]
fn an_edit_of_a_shared_file_reloads_what_depends_on_it() {
    let main = |name: &str| {
        format!(
            "load('lib/shared.star', 'version')\ndef describe_extension():\n    return Extension(name = '{name}', tools = [Tool(name = '{name}', handler = lambda params: version)])\n"
        )
    };
    let alone = "def describe_extension():\n    return Extension(name = 'alone', tools = [Tool(name = 'alone', handler = lambda params: 1)])\n";
    let project = Project::new(&[
        ("extensions/one.star", &main("one")),
        ("extensions/two.star", &main("two")),
        ("extensions/alone.star", alone),
        ("extensions/lib/shared.star", "version = 1"),
    ]);
    let server = project.serve();
    let is = |version: i64| move |_: u16, answer: &Value| answer["result"] == json!(version);
    server.wait_until("one", is(1));
    project.write("extensions/lib/shared.star", "version = 2");
    server.wait_until("one", is(2));
    server.wait_until("two", is(2));
    // Broken: both stay as they were, and the log says where.
    project.write("extensions/lib/shared.star", "version = (");
    server.log.wait_for("the last good version stays in use");
    let line = server.log.wait_for("-->");
    assert!(line.contains("extensions/lib/shared.star:1"), "{line}");
    assert_eq!(server.post("two", &json!({})).1, json!({"result": 2}));
    project.write("extensions/lib/shared.star", "version = 3");
    server.wait_until("two", is(3));
    // A new file, a new folder, a removed file.
    project.write("extensions/more/new.star", &alone.replace("alone", "new"));
    server.wait_until("new", is(1));
    project.remove("extensions/two.star");
    server.wait_until("two", |status, _| status == 404);
    assert_eq!(server.post("one", &json!({})).1, json!({"result": 3}));
}

#[test]
fn a_call_that_is_given_up_leaves_no_process_behind() {
    let spin = "def spin(params):\n    for _ in range(2000000000):\n        for _ in range(2000000000):\n            pass\n\ndef describe_extension():\n    return Extension(name = 'spin', tools = [Tool(name = 'spin', handler = spin), Tool(name = 'calm', handler = lambda params: 1)])\n";
    let project = Project::new(&[
        ("extensions/spin.star", spin),
        ("moonlark.toml", "[extensions.script.spin]\ntimeout = 2\n"),
    ]);
    let mut server = project.serve();
    for _ in 0..3 {
        assert_eq!(server.post("spin", &json!({})).0, 408);
    }
    let busy = |pid: u32| -> Vec<u32> {
        children(pid).into_iter().filter(|pid| is_running(*pid)).collect()
    };
    // Those that spun are gone; what is left waits for work.
    wait_for("the end of all workers that run", || busy(server.pid()).is_empty());
    // A worker that somebody kills while it waits is replaced.
    for worker in children(server.pid()) {
        // SAFETY: sends a signal to a process of this test's own server.
        unsafe { libc::kill(worker as i32, libc::SIGKILL) };
    }
    assert_eq!(server.post("calm", &json!({})), (200, json!({"result": 1})));
    // Killed without warning, it takes its workers along.
    let workers = children(server.pid());
    assert!(!workers.is_empty(), "a worker is kept ready");
    server.kill();
    let is_gone = |pid: &u32| {
        !std::path::Path::new(&format!("/proc/{pid}/stat")).exists() || !is_worker(*pid)
    };
    wait_for("the end of the workers", || workers.iter().all(is_gone));
}

#[test]
fn an_extension_whose_calls_all_wait_holds_up_nobody_else() {
    let waits = "def wait(params):\n    sleep(60)\n\ndef describe_extension():\n    return Extension(name = 'waits', tools = [Tool(name = 'wait', handler = wait)])\n";
    let quick = "def describe_extension():\n    return Extension(name = 'quick', tools = [Tool(name = 'quick', handler = lambda params: 1)])\n";
    let project =
        Project::new(&[("extensions/waits.star", waits), ("extensions/quick.star", quick)]);
    let server = std::sync::Arc::new(project.serve());
    // More than there are processes; nobody waits for their answers.
    for _ in 0..80 {
        let server = server.clone();
        std::thread::spawn(move || {
            let address = server.address.clone();
            drop(server);
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            let request = "POST /tools/wait HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
            std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
            // Until the server ends.
            let _ = std::io::Read::read(&mut stream, &mut [0; 1]);
        });
    }
    // As many as may wait at once do.
    wait_for("the calls", || {
        assert_eq!(server.post("quick", &json!({})), (200, json!({"result": 1})));
        children(server.pid()).len() >= 16
    });
    for _ in 0..20 {
        assert_eq!(server.post("quick", &json!({})), (200, json!({"result": 1})));
    }
}

#[test]
fn extensions_that_call_each_other_do_not_wait_for_each_other() {
    let text = "def down(params, context):\n    if params['n'] == 0:\n        return 0\n    return 1 + context.call('down', {'n': params['n'] - 1})\n\ndef describe_extension():\n    return Extension(name = 'x', tools = [Tool(name = 'down', parameters = [ToolParameter('n', 'integer', True)], handler = down)])\n";
    let project = Project::new(&[
        ("extensions/x.star", text),
        ("moonlark.toml", "[extensions.script.x]\nallow = [\"tool:down\"]\n"),
    ]);
    let server = std::sync::Arc::new(project.serve());
    // As many at once as one extension may have, each with two more below it.
    let calls: Vec<_> = (0..16)
        .map(|_| {
            let server = server.clone();
            std::thread::spawn(move || server.post("down", &json!({"n": 2})))
        })
        .collect();
    for call in calls {
        assert_eq!(call.join().unwrap(), (200, json!({"result": 2})));
    }
    let (_, answer) = server.post("down", &json!({"n": 20}));
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("tools call each other more than 16 levels deep"), "{answer}");
}

#[test]
fn a_loop_is_stopped_by_its_steps_and_by_its_memory() {
    let text = "def count(params):\n    for _ in range(params['n']):\n        pass\n    return 'done'\n\ndef grow(params):\n    l = []\n    for i in range(1000000):\n        l.append('x' * 100 + str(i))\n\ndef describe_extension():\n    n = ToolParameter('n', 'integer', default = 1)\n    return Extension(name = 'x', tools = [Tool(name = 'count', parameters = [n], handler = count), Tool(name = 'grow', handler = grow)])\n";
    let project = Project::new(&[
        ("extensions/x.star", text),
        ("moonlark.toml", "[limits]\nsteps = 100000\nmemory = \"8MB\"\n"),
    ]);
    let server = project.serve();
    let count = |n: u64| server.post("count", &json!({ "n": n }));
    assert_eq!(count(50_000), (200, json!({"result": "done"})));
    let (status, answer) = count(100_000_000);
    assert_eq!(
        (status, answer["error"]["message"].as_str()),
        (500, Some("the script took more than 100000 steps"))
    );
    let (_, answer) = server.post("grow", &json!({}));
    assert_eq!(answer["error"]["message"], json!("the script used more than 8 MB of memory"));
    assert_eq!(count(1), (200, json!({"result": "done"})));
}

fn children(pid: u32) -> Vec<u32> {
    let mut all = Vec::new();
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return all };
    for task in tasks.filter_map(Result::ok) {
        let children = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        all.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
    }
    all
}

/// Whether it is computing right now.
fn is_running(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    tasks.filter_map(Result::ok).any(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('R'))
    })
}

fn is_worker(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
        .is_ok_and(|line| line.contains("__worker"))
}
