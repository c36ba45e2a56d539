//! Scripts over real MCP servers, which nobody here wrote, sent by real clients,
//! which nobody here wrote either.
//!
//! The servers are those of `upstreams.rs`, the clients those of `clients.rs`.
//! One test, because the servers cost seconds to start: its steps are functions
//! whose names say what holds.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::discovery::names;
use super::world::{Era, World};
use crate::harness::{Project, go_through, moonlark, repo};
use crate::postgres::server::{PASSWORD, Postgres};
use crate::upstreams::make_files;
use crate::upstreams::servers::{self, Running, Upstream, Way};

struct Real {
    world: World,
    upstreams: Vec<Upstream>,
    _running: Vec<Running>,
    _postgres: Postgres,
}

#[test]
#[ignore = "needs tests/upstreams/install.sh, tests/postgres/install.sh and tests/clients/install.sh: run ./test"]
fn scripts_of_real_clients_run_over_real_servers() {
    let mut real = Real::new();
    go_through(
        &mut real,
        &[
            ("scripts wait for servers that still start", scripts_wait),
            ("listed, documented and callable names are the same", names_agree),
            ("every tool is found by its own name", every_tool_is_found),
            ("scripts run from the Python client over HTTP", python_over_http),
            ("scripts run from the TypeScript clients over HTTP", typescript_over_http),
            ("scripts run from the clients over stdio", over_stdio),
            ("pictures of real servers pass through", pictures_pass_through),
            ("many real servers are asked at once", many_are_asked_at_once),
        ],
    );
}

impl Real {
    fn new() -> Real {
        let project = Project::new(&[]);
        let data = project.path("data");
        let postgres = Postgres::start();
        let url = format!("postgres://postgres:{PASSWORD}@127.0.0.1:{}/postgres", postgres.port);
        let upstreams = servers::all(&data, &url);
        make_files(&data);
        let mut running = Vec::new();
        let configs = upstreams.iter().map(|upstream| {
            let port = (upstream.way != Way::Stdio).then(|| {
                running.push(Running::start(upstream));
                running.last().unwrap().port
            });
            for_scripts(upstream, port)
        });
        let config: String = configs.collect();
        let world = World::of(project, &config, &[]);
        Real { world, upstreams, _running: running, _postgres: postgres }
    }

    /// The scripts, in a file for the clients.
    fn cases(&self) -> std::path::PathBuf {
        let path = self.world.project.path("cases.json");
        std::fs::write(&path, cases(&self.world.project.path("data")).to_string()).unwrap();
        path
    }

    fn names(&self) -> BTreeSet<String> {
        let of = |upstream: &Upstream| {
            let (mut all, mut cursor) = (Vec::new(), Value::Null);
            loop {
                let mut args = json!({"source": upstream.name});
                if !cursor.is_null() {
                    args["cursor"] = cursor;
                }
                let text = self.world.text("list_functions", args);
                all.extend(names(&text));
                match text.rsplit_once(" more: cursor ") {
                    Some((_, next)) => cursor = json!(next.trim_matches('"')),
                    None => return all,
                }
            }
        };
        self.upstreams.iter().flat_map(of).collect()
    }
}

/// Its configuration, as servers are by default.
fn for_scripts(upstream: &Upstream, port: Option<u16>) -> String {
    upstream.config(port, "code-mode").replace("expose = \"direct\"\n", "")
}

fn scripts_wait(real: &mut Real) {
    let script = "
        local zone = { source_timezone = 'UTC', time = '12:00', target_timezone = 'Asia/Tokyo' }
        local time = sdk.time.convert_time(zone)
        local sum = calculator.calculate({ expression = '6 * 7' })
        local echo = everything_sse.echo({ message = 'here' })
        return { sum = sum:await(), echo = echo:await(), time = type(time) }";
    let value = when_it_is_there(real, script);
    assert_eq!(value["echo"], "Echo: here", "{value}");
    assert!(value["sum"].to_string().contains("42"), "{value}");
}

/// A script waits for servers that still start, but not for as long as Python
/// may need on a busy machine; what it is told then is to try again.
fn when_it_is_there(real: &Real, script: &str) -> Value {
    loop {
        let ran = real.world.run(script);
        match &ran.0 {
            Ok(answer) if answer["isError"] == true => {
                ran.fails("unavailable", &["still connecting", "nothing was called"]);
            }
            _ => return ran.value(),
        }
    }
}

fn names_agree(real: &mut Real) {
    // Every server is there first.
    for upstream in &real.upstreams {
        let script = format!("return type(sdk.{})", upstream.name);
        assert_eq!(when_it_is_there(real, &script), json!("table"), "{}", upstream.name);
    }
    let listed = real.names();
    // As many as the servers have.
    let all = real.world.server.get("/tools/list").json();
    let all: Vec<&str> =
        all["tools"].as_array().unwrap().iter().filter_map(|it| it["name"].as_str()).collect();
    let of_servers = all
        .iter()
        .filter(|name| real.upstreams.iter().any(|it| name.starts_with(&format!("{}.", it.name))));
    assert_eq!(listed.len(), of_servers.count(), "{listed:#?}\n{all:#?}");
    println!("{} functions of {} servers", listed.len(), real.upstreams.len());
    let asked: Vec<&String> = listed.iter().collect();
    for some in asked.chunks(10) {
        let docs = real.world.text("get_function_docs", json!({ "names": some }));
        for name in some {
            assert!(docs.contains(&format!("function {name}(")), "{name}: {docs}");
        }
    }
    // As text, so that nobody has to agree to a script with so many names.
    for some in asked.chunks(50) {
        let checks: Vec<String> = some
            .iter()
            .map(|name| format!("if type({name}) ~= 'function' then bad[#bad + 1] = '{name}' end"))
            .collect();
        let script = format!("local bad = {{}}\n{}\nreturn {{ bad = bad }}", checks.join("\n"));
        assert_eq!(real.world.value(&script)["bad"].to_string().len(), 2);
    }
}

fn every_tool_is_found(real: &mut Real) {
    let mut lost = Vec::new();
    for name in real.names() {
        let mut parts = name.split('.').skip(1);
        let (source, function) = (parts.next().unwrap(), parts.next().unwrap());
        let asked = json!({"query": function.replace('_', " "), "source": source, "limit": 5});
        let found = real.world.text("search_docs", asked);
        if !names(&found).contains(&name) {
            lost.push(name);
        }
    }
    assert!(lost.is_empty(), "not among the first five: {lost:#?}");
}

/// Scripts as agents write them. `data` is the folder with everybody's files.
fn cases(data: &Path) -> Value {
    let at = |name: &str| data.join(name).to_str().unwrap().to_owned();
    let with = |script: &str| script.replace("$FILES", &at("files")).replace("$REPO", &at("repo"));
    let several = with(
        r#"
        local songs = { lark = "la la", owl = "hoo", wren = "tik tik" }
        local names = { "lark", "owl", "wren" }
        local results, errors = map_parallel(names, function(name)
            sdk.filesystem.write_file({ path = "$FILES/" .. name .. ".txt", content = songs[name] })
            return sdk.filesystem.read_text_file({ path = "$FILES/" .. name .. ".txt" }).content
        end, { limit = 2 })
        if errors then error("could not write") end
        return { songs = results, count = #results }
        "#,
    );
    let history = with(
        r#"
        -- Start both before waiting for either.
        local log = git.git_log({ repo_path = "$REPO" })
        local listing = filesystem.list_directory({ path = "$FILES" })
        local text = json.encode(log:await())
        print("files:", json.encode(listing:await()))
        result({ author = text:find("Ada") ~= nil, subject = text:match("First song") })
        "#,
    );
    let refused = with(
        r#"
        local ok, err = pcall(function()
            return sdk.filesystem.read_text_file({ path = "/etc/hostname" })
        end)
        return { ok = ok, code = err.code, denied = tostring(err):lower():find("denied") ~= nil }
        "#,
    );
    let outside = with(r#"return sdk.filesystem.read_text_file({ path = "/etc/hostname" })"#);
    let sums = r#"
        local sums = {}
        for i = 1, 5 do sums[i] = calculator.calculate({ expression = i .. " * " .. i }) end
        local total = 0
        for _, promise in sums do
            total += tonumber(json.encode(promise:await()):match("%d+"))
        end
        result({ total = total })
    "#;
    let misspelt = with(r#"return sdk.filesystem.read_text_fil({ path = "$FILES/lark.txt" })"#);
    json!([
        {"name": "several", "script": several,
            "value": {"songs": ["la la", "hoo", "tik tik"], "count": 3}},
        {"name": "history", "script": history, "value": {"author": true, "subject": "First song"},
            "says": ["files:"]},
        {"name": "refused", "script": refused,
            "value": {"ok": false, "code": "tool_error", "denied": true}},
        {"name": "outside", "script": outside, "fails": true, "says": ["denied"]},
        {"name": "sums", "script": sums, "value": {"total": 55}},
        {"name": "misspelt", "script": misspelt, "fails": true, "says": ["read_text_file"]},
    ])
}

fn python_over_http(real: &mut Real) {
    let url = real.world.server.url("/mcp");
    agree(real, client("python"), &["http", &url], &["2025-11-25", "2026-07-28"]);
}

fn typescript_over_http(real: &mut Real) {
    let url = real.world.server.url("/mcp");
    agree(real, client("v1"), &["http", &url], &["2025-11-25"]);
    agree(real, client("v2"), &["http", &url], &["2025-11-25", "2026-07-28"]);
}

/// A project with fewer servers: every client starts them anew.
fn over_stdio(real: &mut Real) {
    let few = ["filesystem", "git", "calculator"];
    let few = real.upstreams.iter().filter(|upstream| few.contains(&upstream.name));
    let config: String = few.map(|upstream| for_scripts(upstream, None)).collect();
    real.world.project.write("few/moonlark.toml", &config);
    let binary = moonlark().get_program().to_str().unwrap().to_owned();
    agree(real, client("python"), &["stdio", &binary], &["2025-11-25", "2026-07-28"]);
    agree(real, client("v2"), &["stdio", &binary], &["2025-11-25", "2026-07-28"]);
}

fn client(which: &str) -> Command {
    let script = repo().join("tests/clients/install.sh");
    let check = Command::new("sh").arg(script).arg("--check").status().unwrap();
    assert!(check.success(), "run tests/clients/install.sh");
    let mut command = match which {
        "python" => {
            let mut python = Command::new(repo().join("target/clients/python/bin/python"));
            python.arg(repo().join("tests/code_mode/agent.py"));
            python
        }
        generation => {
            let mut node = Command::new("node");
            node.arg(repo().join("tests/code_mode/agent.mjs")).arg(generation);
            node
        }
    };
    command.env("HOME", "/nonexistent").env("NO_COLOR", "1").env("NO_PROXY", "127.0.0.1");
    command.env_remove("MOONLARK_LOG").env_remove("XDG_CONFIG_HOME");
    command
}

fn agree(real: &Real, mut client: Command, way: &[&str], versions: &[&str]) {
    let cases = real.cases();
    let output = client.args(way).arg(&cases).arg(real.world.project.path("few")).output().unwrap();
    let (said, why) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let cases: Value = serde_json::from_slice(&std::fs::read(cases).unwrap()).unwrap();
    let names = cases.as_array().unwrap().iter().map(|case| case["name"].as_str().unwrap());
    let line = |version: &str| -> String {
        names.clone().map(|name| format!("ok {version} {name}\n")).collect()
    };
    let expected: String = versions.iter().map(|version| line(version)).collect();
    assert!(output.status.success() && said == expected, "{}\n{said}{why}", output.status);
}

fn pictures_pass_through(real: &mut Real) {
    let ran = real.world.run("return sdk.everything.get_tiny_image()");
    let types: Vec<&str> = ran.result()["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["type"].as_str().unwrap())
        .collect();
    assert!(types.contains(&"image"), "{types:?}");
    let data = real.world.project.path("data/files/dot.png");
    let script = format!("return sdk.filesystem.read_media_file({{ path = {data:?} }})");
    let ran = real.world.run_in(Era::Old, &script);
    let text = ran.result().to_string();
    assert!(text.contains("iVBORw0KGgo"), "{text}");
    let link = real.world.value("return #sdk.everything.get_resource_links({ count = 3 })");
    assert!(link.as_u64().unwrap() >= 3, "{link}");
}

fn many_are_asked_at_once(real: &mut Real) {
    let repo = real.world.project.path("data/repo");
    let script = format!(
        "local all = await_all({{
            a = everything.echo({{ message = 'a' }}),
            b = everything_http.echo({{ message = 'b' }}),
            c = everything_sse.echo({{ message = 'c' }}),
            d = git.git_status({{ repo_path = {repo:?} }}),
            e = duck.execute_query({{ sql = 'SELECT 1 AS one' }}),
            f = memory.read_graph(),
        }})
        local count = 0
        for _ in all do count += 1 end
        -- These have the names of modules, so that only the sdk has them.
        sdk.sqlite.list_tables()
        sdk.postgres.query({{ sql = 'SELECT 1 AS one' }})
        return {{ count = count, a = all.a, b = all.b, c = all.c }}"
    );
    assert_eq!(
        real.world.value(&script),
        json!({"count": 6, "a": "Echo: a", "b": "Echo: b", "c": "Echo: c"})
    );
}
