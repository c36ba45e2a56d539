//! A client of the desktop: it starts Moonlark as its file says, in an environment that
//! has nothing of the shell in which `import` and `install` ran.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use serde_json::{Value, json};

use super::{CURSOR, Desk};
use crate::harness::{Log, Server, mcp, modern, moonlark};

const GRAPH_KEY: &str = "graph-key-hunter2";
const TRACKER_TOKEN: &str = "tracker-token-hunter3";

/// A desk with a Cursor that has five servers. Those of `npx` and `uvx` are found in a
/// folder that only the user's shell knows, and leave a line in `starts` each time they
/// are started; two need a secret.
struct Office {
    desk: Desk,
    /// The server that is reached by its address.
    _tracker: Server,
}

const SERVERS: [&str; 5] = ["notes", "clock", "files", "graph", "tracker"];

impl Office {
    fn open() -> Office {
        let desk = Desk::new(&[]);
        for name in SERVERS {
            desk.write(&format!("servers/{name}/moonlark.toml"), "");
            let tool = format!(
                "tool = {{ name = 'who', description = 'Who it is' }}\nfunction tool.execute() return '{name}' end\n"
            );
            desk.write(&format!("servers/{name}/tools/who.lua"), &tool);
        }
        let tokens = format!("[server.auth.tokens]\ncursor = \"{TRACKER_TOKEN}\"\n");
        desk.write("servers/tracker/moonlark.toml", &tokens);
        let tracker = serve(&desk.path("servers/tracker"));
        let binary = moonlark().get_program().to_str().unwrap().to_owned();
        let starts = desk.path("starts");
        let script = format!(
            "#!/bin/sh\nif [ \"$1\" = graph ] && [ \"$API_KEY\" != {GRAPH_KEY} ]; then echo no key >&2; exit 1; fi\necho $1 >> {}\nexec {binary} stdio --quiet --config {}/$1/moonlark.toml\n",
            starts.display(),
            desk.path("servers").display()
        );
        for program in ["npx", "uvx"] {
            let file = format!("home/.local/share/node/bin/{program}");
            desk.write(&file, &script);
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(desk.path(&file), mode).unwrap();
        }
        let servers = json!({"mcpServers": {
            "notes": {"command": "npx", "args": ["notes"]},
            "clock": {"command": "uvx", "args": ["clock"]},
            "files": {"command": desk.path("home/.local/share/node/bin/npx"), "args": ["files"]},
            "graph": {"command": "npx", "args": ["graph"], "env": {"API_KEY": GRAPH_KEY}},
            "tracker": {
                "url": tracker.url("/mcp"),
                "headers": {"Authorization": format!("Bearer {TRACKER_TOKEN}")},
            },
        }});
        desk.write(CURSOR, &serde_json::to_string_pretty(&servers).unwrap());
        Office { desk, _tracker: tracker }
    }

    /// A command in the user's shell, which knows where programs are.
    fn shell(&self, args: &[&str]) -> String {
        let path = format!("{}:/usr/bin:/bin", self.programs().display());
        let output = self.desk.run_with(args, &[("PATH", &path)]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {said}");
        self.desk.plain(&String::from_utf8(output.stdout).unwrap())
    }

    fn programs(&self) -> PathBuf {
        self.desk.path("home/.local/share/node/bin")
    }

    /// The entry of Cursor's file for Moonlark.
    fn entry(&self) -> Value {
        let file: Value = serde_json::from_str(&self.desk.read(CURSOR)).unwrap();
        file["mcpServers"]["moonlark"].clone()
    }

    /// Exactly what Cursor does with the entry, whatever else is in its environment.
    fn start(&self, environment: &[(&str, &str)]) -> Session {
        let entry = self.entry();
        let args = entry["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap());
        let own: BTreeMap<String, String> =
            serde_json::from_value(entry["env"].clone()).unwrap_or_default();
        let mut child = Command::new(entry["command"].as_str().unwrap())
            .args(args)
            .env_clear()
            .envs(environment.iter().copied())
            .envs(own)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Log::follow(child.stderr.take().unwrap());
        let lines = Log::follow(child.stdout.take().unwrap());
        Session { stdin: child.stdin.take(), child, lines, log, next: 0 }
    }

    fn starts(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.desk.path("starts")).unwrap_or_default();
        let mut starts: Vec<String> = text.lines().map(str::to_owned).collect();
        starts.sort();
        starts
    }
}

fn serve(folder: &std::path::Path) -> Server {
    Server::start(moonlark().args(["serve", "--port", "0"]).current_dir(folder))
}

struct Session {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Log,
    log: Log,
    next: u64,
}

impl Session {
    fn request(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let request = modern(self.next, method, params);
        let stdin = self.stdin.as_mut().unwrap();
        std::io::Write::write_all(stdin, format!("{request}\n").as_bytes()).unwrap();
        let answer = self.lines.wait_for(&format!("\"id\":{}", self.next));
        serde_json::from_str(&answer).unwrap()
    }

    /// What each server answers to the question who it is.
    fn ask_all(&mut self) -> Vec<String> {
        let who = |server: &&str| {
            let name = format!("{server}.who");
            let answer = self.request("tools/call", json!({"name": name, "arguments": {}}));
            let text = answer["result"]["content"][0]["text"].as_str();
            text.map_or_else(|| answer.to_string(), |text| text.trim_matches('"').to_owned())
        };
        SERVERS.iter().map(who).collect()
    }

    fn end(mut self) {
        drop(self.stdin.take());
        self.child.wait().unwrap();
    }
}

#[test]
fn what_import_and_install_leave_works_in_an_empty_environment() {
    let office = Office::open();
    let said = office.shell(&["import", "cursor"]);
    assert!(!said.contains("hunter"), "{said}");
    office.shell(&["install", "cursor"]);
    let toml = office.desk.read("project/moonlark.toml");
    assert!(!toml.contains("hunter"), "{toml}");
    let home = office.desk.path("home");
    // Nothing at all, and what the desktops of Linux and macOS give.
    for environment in [&[][..], &[("PATH", "/usr/bin:/bin"), ("HOME", home.to_str().unwrap())]] {
        let mut session = office.start(environment);
        assert_eq!(session.ask_all(), SERVERS);
        let list = session.request("tools/list", json!({}));
        let tools = list["result"]["tools"].as_array().unwrap_or_else(|| panic!("{list}"));
        assert!(tools.iter().any(|tool| tool["name"] == "execute"), "{list}");
        session.end();
    }
}

#[test]
fn without_its_secret_one_server_is_out_of_order_and_the_others_work() {
    let office = Office::open();
    office.shell(&["import", "cursor"]);
    office.shell(&["install", "cursor"]);
    let secrets = office.desk.read("project/.moonlark/secrets.env");
    let others: String = secrets
        .lines()
        .filter(|line| !line.starts_with("GRAPH"))
        .map(|line| format!("{line}\n"))
        .collect();
    office.desk.write("project/.moonlark/secrets.env", &others);
    let mut session = office.start(&[]);
    let answers = session.ask_all();
    assert_eq!([&answers[..3], &answers[4..]].concat(), ["notes", "clock", "files", "tracker"]);
    assert_eq!(
        answers[3].lines().next(),
        Some(
            "error[bad_config]: tool 'graph.who' is not there: mcp_servers.graph.env.API_KEY needs the environment variable GRAPH_API_KEY, which is not set"
        )
    );
    // It begins to work when the secret is there again.
    office.desk.write("project/.moonlark/secrets.env", &secrets);
    session.log.wait_for("graph");
    while session.ask_all() != SERVERS {}
    session.end();
}

#[test]
fn a_server_and_two_clients_start_every_upstream_once() {
    let office = Office::open();
    office.shell(&["import", "cursor"]);
    office.shell(&["install", "cursor"]);
    let path = format!("{}:/usr/bin:/bin", office.programs().display());
    let server = Server::start(
        moonlark()
            .args(["serve", "--port", "0"])
            .env("PATH", &path)
            .current_dir(office.desk.path("project")),
    );
    let mut clients = [office.start(&[]), office.start(&[])];
    for client in &mut clients {
        assert_eq!(client.ask_all(), SERVERS);
    }
    assert_eq!(office.starts(), ["clock", "files", "graph", "notes"]);
    clients.into_iter().for_each(Session::end);
    // The server goes on for the next one.
    let mut next = office.start(&[]);
    assert_eq!(next.ask_all(), SERVERS);
    assert_eq!(office.starts().len(), 4);
    next.end();
    drop(server);
}

#[test]
fn install_only_moves_the_other_servers_behind_moonlark_and_undo_puts_them_back() {
    let office = Office::open();
    let before = office.desk.read(CURSOR);
    let dry = office.shell(&["install", "cursor", "--only", "--dry-run"]);
    assert!(!dry.contains("hunter"), "{dry}");
    assert_eq!(office.desk.read(CURSOR), before);
    assert!(!office.desk.has("project/moonlark.toml"));

    let said = office.shell(&["install", "cursor", "--only"]);
    assert!(
        said.contains("\nAdded to moonlark.toml: notes, clock, files, graph, tracker\n"),
        "{said}"
    );
    assert!(!said.contains("hunter"), "{said}");
    let file: Value = serde_json::from_str(&office.desk.read(CURSOR)).unwrap();
    let names: Vec<&String> = file["mcpServers"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["moonlark"]);
    let mut session = office.start(&[]);
    assert_eq!(session.ask_all(), SERVERS);
    session.end();

    let again = office.shell(&["install", "cursor", "--only"]);
    assert!(again.starts_with("Nothing to do: "), "{again}");
    office.shell(&["install", "cursor", "--undo"]);
    assert_eq!(office.desk.read(CURSOR), before);
}

#[test]
fn install_only_leaves_what_moonlark_cannot_take() {
    let office = Office::open();
    let mut file: Value = serde_json::from_str(&office.desk.read(CURSOR)).unwrap();
    file["mcpServers"]["off"] = json!({"command": "x", "disabled": true});
    office.desk.write(CURSOR, &serde_json::to_string_pretty(&file).unwrap());
    office.shell(&["import", "cursor"]);
    let said = office.shell(&["install", "cursor", "--only"]);
    assert!(said.contains("  notes: there already, as notes\n"), "{said}");
    assert!(said.contains("  off: left out, it is disabled there\n"), "{said}");
    let file: Value = serde_json::from_str(&office.desk.read(CURSOR)).unwrap();
    let names: Vec<&String> = file["mcpServers"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["off", "moonlark"]);
    // After another change, only our entry goes, and the copy still has the rest.
    let changed = office.desk.read(CURSOR).replace("\"off\"", "\"OFF\"");
    office.desk.write(CURSOR, &changed);
    let said = office.shell(&["install", "cursor", "--undo"]);
    assert!(
        said.contains("Not put back, since more has changed: notes, clock, files, graph, tracker, off; the copy has them\n"),
        "{said}"
    );
}

#[test]
fn install_http_writes_where_the_server_is_and_a_token_where_one_is_needed() {
    let desk = Desk::new(&[
        ("project/moonlark.toml", ""),
        (
            "project/tools/hello.lua",
            "tool = { name = 'hello' }\nfunction tool.execute() return 'hi' end\n",
        ),
    ]);
    desk.run(&["install", "cursor", "--http"]);
    let entry = |desk: &Desk| {
        let file: Value = serde_json::from_str(&desk.read(CURSOR)).unwrap();
        file["mcpServers"]["moonlark"].clone()
    };
    assert_eq!(entry(&desk), json!({"url": "http://127.0.0.1:7331/mcp"}));
    desk.run(&["install", "cursor", "--undo"]);
    assert!(!desk.has(CURSOR));

    // A server that runs says where it is, and callers need tokens.
    desk.run(&["token", "add", "ci"]);
    let server =
        Server::start(moonlark().args(["serve", "--port", "0"]).current_dir(desk.path("project")));
    let said = desk.run(&["install", "cursor", "--http"]);
    let written = entry(&desk);
    assert_eq!(written["url"], server.url("/mcp"));
    let header = written["headers"]["Authorization"].as_str().unwrap();
    assert!(!said.contains(header.trim_start_matches("Bearer ")), "{said}");
    let call = json!({"name": "hello", "arguments": {}});
    let answer = mcp(&server.address, &[("Authorization", header)], "tools/call", call);
    assert_eq!(answer["result"]["content"][0]["text"], "hi", "{answer}");
    assert!(desk.run(&["token", "list"]).contains("cursor"));
    // The same token the next time, and out again.
    assert!(desk.run(&["install", "cursor", "--http"]).starts_with("Nothing to do: "));
    let said = desk.run(&["install", "cursor", "--undo"]);
    assert!(said.contains("\nTook the token of cursor back: it is no longer valid\n"), "{said}");
    assert!(!desk.has(CURSOR));
    let call = json!({"name": "hello", "arguments": {}});
    let answer = mcp(&server.address, &[("Authorization", header)], "tools/call", call);
    assert_eq!(answer["error"]["data"]["code"], "unauthorized", "{answer}");

    let refused = desk.fail(&["install", "claude-desktop", "--http"]);
    assert_eq!(
        refused,
        "error[bad_request]: Claude Desktop starts its servers itself, and takes no address\nhint: leave --http out: `moonlark stdio` uses the running server of the project\n"
    );
}
