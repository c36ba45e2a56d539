//! Real MCP servers, which nobody here wrote, all at once behind one Moonlark:
//! over stdio, HTTP and SSE, of both eras, in three languages.
//!
//! `upstreams/install.sh` installs them into `target/upstreams`. Each is asked
//! directly first, and then through Moonlark: it must make no difference but in
//! the names. One test, because the servers cost seconds to start: its steps are
//! functions whose names say what holds.

#[path = "upstreams/direct.rs"]
mod direct;
#[path = "upstreams/drift.rs"]
pub mod drift;
#[path = "upstreams/requests.rs"]
mod requests;
#[path = "upstreams/servers.rs"]
pub mod servers;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::harness::{Project, Server, eventually, go_through, repo, wait_for};
use crate::postgres::server::{PASSWORD, Postgres};
use crate::processes::{marked, signal};
use direct::Direct;
use requests::Asked;
use servers::{Running, Upstream, Way};

/// Calls tools of two servers, as tools of this project call each other.
const SCRIPT: &str = r#"
tool = { name = "both", description = "", parameters = { type = "object" } }
function tool.execute(params, context)
    local sum = context.call("calculator.calculate", { expression = "6 * 7" })
    local echo = context.call("everything_sse.echo", { message = "from a script" })
    return { sum = sum, echo = echo }
end
"#;

const LISTS: &[(&str, &str)] = &[
    ("tools/list", "tools"),
    ("resources/list", "resources"),
    ("resources/templates/list", "resourceTemplates"),
    ("prompts/list", "prompts"),
];

struct World {
    upstreams: Vec<Upstream>,
    requests: Vec<Asked>,
    /// What each package said for itself.
    seen: BTreeMap<&'static str, Seen>,
    mark: String,
    project: Project,
    moonlark: Server,
    _running: Vec<Running>,
    _postgres: Postgres,
}

/// What one server says when it is asked directly.
struct Seen {
    /// By the method that lists them.
    lists: BTreeMap<&'static str, Vec<Value>>,
    answers: Vec<Result<Value, Value>>,
}

type Step = fn(&mut World);

#[test]
#[ignore = "needs tests/upstreams/install.sh, tests/postgres/install.sh and tests/clients/install.sh: run ./test"]
fn real_servers_are_behind_moonlark_as_they_are_alone() {
    let mut world = World::new();
    let steps: &[(&str, Step)] = &[
        ("calls wait for servers that still start", calls_wait_for_servers_that_still_start),
        ("all tools are listed as they are", all_tools_are_listed_as_they_are),
        ("resources and prompts are listed", resources_and_prompts_are_listed),
        ("answers are those of the servers", answers_are_those_of_the_servers),
        ("drift is found in what was recorded of them", drift_is_found_in_what_was_recorded),
        ("every way in calls them by one name", every_way_in_calls_them_by_one_name),
        ("servers ask and tell their client", servers_ask_and_tell_their_client),
        ("a cancelled call is cancelled there", a_cancelled_call_is_cancelled_there),
        ("no process is left", no_process_is_left),
    ];
    go_through(&mut world, steps);
}

/// Their answers with fields removed, renamed, retyped and emptied.
fn drift_is_found_in_what_was_recorded(world: &mut World) {
    let answers = world
        .seen
        .iter()
        .flat_map(|(package, seen)| seen.answers.iter().flatten().map(|answer| (*package, answer)));
    let tried = drift::check_every_mutation(answers);
    println!("{tried:?}");
    assert!(tried.packages >= 8 && tried.mutations >= 200, "{tried:?}");
}

impl World {
    fn new() -> World {
        let project = Project::new(&[("tools/both.luau", SCRIPT)]);
        let data = project.path("data");
        let mark = format!("{}", std::process::id());
        let postgres = Postgres::start();
        let url = format!("postgres://postgres:{PASSWORD}@127.0.0.1:{}/postgres", postgres.port);
        let upstreams = servers::all(&data, &url);
        let requests = requests::all(&data, &web_page());

        make_files(&data);
        let seen = ask_directly(&upstreams, &requests);
        // What they wrote must not be there when Moonlark asks the same.
        std::fs::remove_dir_all(&data).unwrap();
        make_files(&data);

        let mut config =
            "[server]\nschemas = \"exact\"\n\n[tools.script.both]\npath = \"tools/both.luau\"\n\
            allow = [\"tool:calculator.*\", \"tool:everything_sse.echo\"]\n\n"
                .to_owned();
        let mut running = Vec::new();
        for upstream in &upstreams {
            let port = (upstream.way != Way::Stdio).then(|| {
                running.push(Running::start(upstream));
                running.last().unwrap().port
            });
            config.push_str(&upstream.config(port, &mark));
        }
        project.write("moonlark.toml", &config);
        let moonlark = project.serve();
        World {
            upstreams,
            requests,
            seen,
            mark,
            project,
            moonlark,
            _running: running,
            _postgres: postgres,
        }
    }

    /// The result of a request of 2026-07-28, or the error.
    fn ask(&self, method: &str, params: Value) -> Result<Value, Value> {
        let mut message = self.moonlark.mcp(method, params);
        let error = message["error"].take();
        if !error.is_null() {
            return Err(error);
        }
        // Whatever the server behind it speaks.
        assert_eq!(message["result"]["resultType"], "complete", "{method}: {message}");
        Ok(message["result"].take())
    }

    fn list(&self, method: &str, key: &str) -> Vec<Value> {
        all_pages(key, |params| self.ask(method, params).unwrap())
    }

    /// What is to be asked of `upstream`, and what it answers for itself.
    fn expected(&self, upstream: &Upstream) -> Vec<(&Asked, &Result<Value, Value>)> {
        let requests = self.requests.iter().filter(|asked| asked.package == upstream.package);
        requests.zip(&self.seen[upstream.package].answers).collect()
    }
}

fn calls_wait_for_servers_that_still_start(world: &mut World) {
    let world = &*world;
    std::thread::scope(|scope| {
        for upstream in &world.upstreams {
            scope.spawn(move || {
                let (asked, expected) = world.expected(upstream)[0];
                compare(world, upstream, asked, expected);
            });
        }
    });
}

fn all_tools_are_listed_as_they_are(world: &mut World) {
    let listed = by(&world.list("tools/list", "tools"), "name");
    let mut expected = BTreeMap::new();
    for upstream in &world.upstreams {
        for tool in &world.seen[upstream.package].lists["tools/list"] {
            let name = format!("{}__{}", upstream.name, tool["name"].as_str().unwrap());
            let mut tool = tool.clone();
            tool["name"] = json!(name);
            expected.insert(name, tool);
        }
    }
    let of_servers = listed.keys().filter(|name| name.contains("__"));
    assert!(of_servers.eq(expected.keys()), "{:#?}", listed.keys());
    for (name, tool) in &expected {
        for key in ["title", "description", "inputSchema", "outputSchema", "annotations"] {
            assert_eq!(listed[name][key], tool[key], "{key} of {name}");
        }
    }
}

fn resources_and_prompts_are_listed(world: &mut World) {
    for (method, key) in &LISTS[1..] {
        let name = match *key {
            "resources" => "uri",
            "resourceTemplates" => "uriTemplate",
            _ => "name",
        };
        let mut expected = BTreeMap::new();
        for upstream in &world.upstreams {
            for item in &world.seen[upstream.package].lists[method] {
                let mut item = item.clone();
                let before = if name == "name" { "" } else { "mcp://" };
                let full = format!("{before}{}/{}", upstream.name, item[name].as_str().unwrap());
                item[name] = json!(full);
                expected.insert(full, item);
            }
        }
        assert_eq!(by(&world.list(method, key), name), expected, "{method}");
    }
}

fn answers_are_those_of_the_servers(world: &mut World) {
    for upstream in &world.upstreams {
        for (asked, expected) in world.expected(upstream) {
            compare(world, upstream, asked, expected);
        }
    }
}

fn every_way_in_calls_them_by_one_name(world: &mut World) {
    for upstream in &world.upstreams {
        let (asked, _) = world.expected(upstream)[0];
        let tool = format!("{}.{}", upstream.name, asked.params["name"].as_str().unwrap());
        let (status, answer) = world.moonlark.post(&tool, &asked.params["arguments"]);
        assert_eq!(status, 200, "{tool}: {answer}");
    }
    let (status, answer) = world.moonlark.post("both", &json!({}));
    assert_eq!(status, 200, "{answer}");
    let text = answer.to_string();
    assert!(text.contains("42") && text.contains("Echo: from a script"), "{text}");
}

fn servers_ask_and_tell_their_client(world: &mut World) {
    let python = repo().join("target/clients/python/bin/python");
    let mut failed = String::new();
    for upstream in world.upstreams.iter().filter(|upstream| upstream.package == "everything") {
        let output = Command::new(&python)
            .arg(repo().join("tests/upstreams/interact.py"))
            .args([&world.moonlark.url("/mcp"), upstream.name])
            .env("HOME", "/nonexistent")
            .env("NO_PROXY", "127.0.0.1")
            .output()
            .unwrap();
        if !output.status.success() {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            failed +=
                &format!("{}:\n{}{}", upstream.name, text(&output.stdout), text(&output.stderr));
        }
    }
    assert!(failed.is_empty(), "{failed}");
}

/// Of the calls that the client above gave up, the server over stdio was told.
fn a_cancelled_call_is_cancelled_there(world: &mut World) {
    let given_up = |sent: &str| -> (Vec<Value>, Vec<Value>) {
        let messages: Vec<Value> = sent.lines().flat_map(serde_json::from_str).collect();
        let called = messages.iter().filter(|message| {
            message["method"] == "tools/call" && message["params"]["arguments"]["duration"] == 600
        });
        let cancelled =
            messages.iter().filter(|message| message["method"] == "notifications/cancelled");
        (
            called.map(|message| message["id"].clone()).collect(),
            cancelled.map(|message| message["params"]["requestId"].clone()).collect(),
        )
    };
    let path = world.project.path("data/sent.jsonl");
    eventually("both cancellations", || {
        let (called, cancelled) = given_up(&std::fs::read_to_string(&path).unwrap());
        // Once in each era.
        assert_eq!(called.len(), 2);
        let is_so = called == cancelled;
        if is_so { Ok(()) } else { Err(format!("called {called:?}, cancelled {cancelled:?}")) }
    });
}

fn no_process_is_left(world: &mut World) {
    let stdio = world.upstreams.iter().filter(|upstream| upstream.way == Way::Stdio).count();
    let mark = format!("{}={}\0", servers::MARK, world.mark);
    assert!(marked(&mark).len() >= stdio, "{:?}", marked(&mark));
    signal(world.moonlark.pid(), libc::SIGTERM);
    wait_for("its end", || !world.moonlark.is_alive());
    assert_eq!(marked(&mark), Vec::<u32>::new());
}

/// Ask through Moonlark what was asked directly.
fn compare(world: &World, upstream: &Upstream, asked: &Asked, expected: &Result<Value, Value>) {
    let (source, mut params) = (upstream.name, asked.params.clone());
    match asked.method {
        "tools/call" => prefix(&mut params["name"], &format!("{source}__")),
        "prompts/get" => prefix(&mut params["name"], &format!("{source}/")),
        "resources/read" => prefix(&mut params["uri"], &format!("mcp://{source}/")),
        _ => {
            prefix(&mut params["ref"]["name"], &format!("{source}/"));
            prefix(&mut params["ref"]["uri"], &format!("mcp://{source}/"));
            let fields = params["ref"].as_object_mut().unwrap();
            fields.retain(|_, value| !value.is_null());
        }
    }
    let what = format!("{source}: {} {}", asked.method, asked.params);
    let answer = world.ask(asked.method, params);
    match (expected, answer) {
        (Ok(expected), Ok(answer)) => {
            let mut expected = plain(expected.clone());
            rename(&mut expected, &format!("mcp://{source}/"));
            let answer = plain(answer);
            assert_eq!(answer.pointer(asked.part), expected.pointer(asked.part), "{what}");
        }
        // An error of the protocol is that of the call; the words are kept.
        (Err(expected), answer) => {
            let said = answer.unwrap_or_else(|error| error).to_string();
            let words = expected["message"].to_string();
            assert!(said.contains(words.trim_matches('"')), "{what}: {said} without {words}");
        }
        (Ok(expected), Err(error)) => panic!("{what}: {error} instead of {expected}"),
    }
}

/// Every package alone, all of them at once.
fn ask_directly(upstreams: &[Upstream], requests: &[Asked]) -> BTreeMap<&'static str, Seen> {
    let ask = |upstream: &Upstream| {
        let mut server = Direct::open(upstream);
        let lists = LISTS.iter().map(|(method, key)| (*method, server.list(method, key))).collect();
        let asked = requests.iter().filter(|asked| asked.package == upstream.package);
        let answers = asked.map(|asked| server.ask(asked.method, asked.params.clone())).collect();
        (upstream.package, Seen { lists, answers })
    };
    std::thread::scope(|scope| {
        let stdio = upstreams.iter().filter(|upstream| upstream.way == Way::Stdio);
        let threads: Vec<_> = stdio
            .map(|upstream| {
                // Whoever panics is named.
                let thread = std::thread::Builder::new().name(upstream.name.to_owned());
                thread.spawn_scoped(scope, || ask(upstream)).unwrap()
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// All items of a list that comes in pages.
fn all_pages(key: &str, mut ask: impl FnMut(Value) -> Value) -> Vec<Value> {
    let (mut items, mut params) = (Vec::new(), json!({}));
    for _ in 0..100 {
        let mut page = ask(params);
        items.append(page[key].as_array_mut().unwrap_or_else(|| panic!("no {key}")));
        match page["nextCursor"].take() {
            Value::Null => return items,
            cursor => params = json!({"cursor": cursor}),
        }
    }
    panic!("the pages of {key} never end");
}

/// Without what belongs to the transport or the era.
fn plain(mut answer: Value) -> Value {
    let fields = answer.as_object_mut().unwrap();
    for key in ["_meta", "resultType", "ttlMs", "cacheScope"] {
        fields.shift_remove(key);
    }
    if fields.get("isError") == Some(&json!(false)) {
        fields.shift_remove("isError");
    }
    by_value(&mut answer);
    answer
}

/// Numbers as JSON means them: `1` is `1.0`.
fn by_value(value: &mut Value) {
    match value {
        Value::Number(number) => *value = json!(number.as_f64()),
        Value::Array(items) => items.iter_mut().for_each(by_value),
        Value::Object(fields) => fields.values_mut().for_each(by_value),
        _ => {}
    }
}

/// URIs as they are called behind Moonlark.
fn rename(value: &mut Value, before: &str) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, before)),
        Value::Object(fields) => {
            for (key, value) in fields {
                if key == "uri" {
                    prefix(value, before);
                }
                rename(value, before);
            }
        }
        _ => {}
    }
}

fn prefix(value: &mut Value, before: &str) {
    if let Value::String(text) = value {
        text.insert_str(0, before);
    }
}

fn by(items: &[Value], key: &str) -> BTreeMap<String, Value> {
    items.iter().map(|item| (item[key].as_str().unwrap().to_owned(), item.clone())).collect()
}

/// The files that the servers work on, the same every time.
pub fn make_files(data: &Path) {
    for folder in ["files", "home", "repo"] {
        std::fs::create_dir_all(data.join(folder)).unwrap();
    }
    std::fs::write(data.join("files/dot.png"), b"\x89PNG\r\n\x1a\n").unwrap();
    std::fs::write(data.join("kube.yaml"), include_str!("upstreams/kube.yaml")).unwrap();
    std::fs::write(data.join("repo/song.txt"), "la\n").unwrap();
    for args in [
        &["init", "--quiet", "--initial-branch=main"][..],
        &["add", "."],
        &["commit", "--quiet", "--message=First song"],
    ] {
        let mut git = Command::new("git");
        for who in ["AUTHOR", "COMMITTER"] {
            git.env(format!("GIT_{who}_NAME"), "Ada")
                .env(format!("GIT_{who}_EMAIL"), "ada@example.com");
            git.env(format!("GIT_{who}_DATE"), "2026-01-02T03:04:05Z");
        }
        git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        assert!(git.args(args).current_dir(data.join("repo")).status().unwrap().success());
    }
}

/// The address of a page that is always the same.
fn web_page() -> String {
    const PAGE: &str = "<!doctype html><title>Larks</title><article><h1>Larks</h1><p>A lark \
        sings in flight, long before others are awake.</p></article>";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read > 0)
            {
                head.push(byte[0]);
            }
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n";
            let length = PAGE.len();
            let _ = stream
                .write_all(format!("{head}Content-Length: {length}\r\n\r\n{PAGE}").as_bytes());
        }
    });
    format!("http://{address}/")
}
