//! Clients over stdio that leave: nothing more is said to them, nobody waits, and nothing
//! is left behind.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Log, Project, modern, moonlark};
use crate::processes::marked;

/// Far less than any of the waits that there were: two seconds for each step of ending a
/// server, five for calls in progress.
const MAX_LEAVING_TIME: Duration = Duration::from_millis(1900);

const NAP: &str = r#"
tool = { name = "nap", description = "Sleep for long", parameters = {} }
function tool.execute() sleep(50) return "awake" end
"#;

/// A project with a tool that takes long, and a server that neither the end of its input
/// nor a signal can end. `mark` is in the environment of all its processes.
fn project(mark: &str) -> Project {
    let project = Project::new(&[
        ("tools/nap.lua", NAP),
        ("inner/tools/nap.lua", NAP),
        ("inner/moonlark.toml", "[limits]\ntimeout = 60\n"),
    ]);
    let binary = moonlark().get_program().to_str().unwrap().to_owned();
    let script = r#"trap "" TERM; "$0" stdio --config inner/moonlark.toml; sleep 1000"#;
    project.write(
        "moonlark.toml",
        &format!(
            "[limits]\ntimeout = 60\n[mcp_servers.stubborn]\nexpose = 'direct'\ncommand = 'sh'\nargs = ['-c', {script:?}, {binary:?}]\nenv = {{ MARK = '{mark}' }}\n"
        ),
    );
    project
}

/// `moonlark stdio`, with its output for the test to read.
struct Stdin {
    child: Child,
    lines: Log,
}

fn stdio(project: &Project) -> Stdin {
    let mut command: Command = moonlark();
    command.arg("stdio").current_dir(project.path(""));
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = Log::follow(child.stdout.take().unwrap());
    Stdin { child, lines }
}

impl Stdin {
    fn send(&mut self, message: &Value) {
        self.child.stdin.as_mut().unwrap().write_all(format!("{message}\n").as_bytes()).unwrap();
    }

    fn ask(&mut self, message: &Value) -> Value {
        self.send(message);
        loop {
            let answer: Value = serde_json::from_str(&self.lines.next()).unwrap();
            if answer["id"] == message["id"] {
                return answer;
            }
        }
    }

    /// Shake hands, have all tools there, and have two calls in progress.
    fn begin(&mut self) {
        let params = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "suite", "version": "1"},
        });
        let begun =
            self.ask(&json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}));
        assert!(begun["result"].is_object(), "{begun}");
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        let list = self.ask(&json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}));
        assert!(list.to_string().contains("stubborn__nap"), "{list}");
        for (id, name) in [(3, "nap"), (4, "stubborn__nap")] {
            let params = json!({"name": name, "arguments": {}});
            self.send(
                &json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}),
            );
        }
        // They have begun when this is answered.
        self.ask(&json!({"jsonrpc": "2.0", "id": 5, "method": "ping"}));
    }

    /// The time until the process has ended, and all it said meanwhile.
    fn wait(mut self) -> (Duration, Vec<String>) {
        let began = Instant::now();
        self.child.wait().unwrap();
        (began.elapsed(), self.lines.rest())
    }
}

/// What a process may not leave behind.
fn leftovers(folder: &Path) -> Vec<String> {
    let all = std::fs::read_dir(folder.join(".moonlark")).unwrap().flatten();
    let names = all.map(|entry| entry.file_name().into_string().unwrap());
    let is_left = |name: &String| {
        name.ends_with(".sock") || name.contains(".tmp") || name.ends_with(".partial")
    };
    names.filter(is_left).collect()
}

#[test]
fn a_client_that_leaves_hears_nothing_more_and_waits_for_nothing() {
    let mark = "leaves-in-the-middle";
    let project = project(mark);
    let mut client = stdio(&project);
    client.begin();
    assert!(!marked(mark).is_empty());
    drop(client.child.stdin.take());
    let (took, said) = client.wait();
    assert_eq!(said, Vec::<String>::new());
    assert!(took < MAX_LEAVING_TIME, "{took:?}");
    assert_eq!(marked(mark), Vec::<u32>::new());
    assert_eq!(leftovers(&project.path("")), Vec::<String>::new());
}

#[test]
fn signals_end_it_as_quickly() {
    let mark = "ended-by-a-signal";
    let project = project(mark);
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut client = stdio(&project);
        client.begin();
        // SAFETY: the process is our child and was not waited for.
        assert_eq!(unsafe { libc::kill(client.child.id() as i32, signal) }, 0);
        let (took, said) = client.wait();
        assert_eq!(said, Vec::<String>::new(), "{signal}");
        assert!(took < MAX_LEAVING_TIME, "{signal}: {took:?}");
        assert_eq!(marked(mark), Vec::<u32>::new());
        assert_eq!(leftovers(&project.path("")), Vec::<String>::new(), "{signal}");
    }
}

#[test]
fn a_client_of_a_running_server_leaves_as_quickly() {
    let project = project("attached");
    let _server = project.serve();
    let mut client = stdio(&project);
    client.begin();
    drop(client.child.stdin.take());
    let (took, said) = client.wait();
    assert_eq!(said, Vec::<String>::new());
    assert!(took < MAX_LEAVING_TIME, "{took:?}");
}

#[test]
fn what_a_killed_process_has_left_is_removed_by_the_next() {
    let project = project("killed");
    let mut client = stdio(&project);
    client.begin();
    let pid = client.child.id();
    client.child.kill().unwrap();
    client.child.wait().unwrap();
    assert_eq!(leftovers(&project.path("")), ["server.sock"]);
    // As if it had been writing.
    for name in ["learned", "upstreams/stubborn"] {
        project.write(&format!(".moonlark/{name}.{pid}.partial"), "{");
    }
    let mut next = stdio(&project);
    next.begin();
    assert_eq!(leftovers(&project.path("")), ["server.sock"], "its own");
    assert!(!project.path(&format!(".moonlark/upstreams/stubborn.{pid}.partial")).exists());
    drop(next.child.stdin.take());
    next.wait();
    assert_eq!(leftovers(&project.path("")), Vec::<String>::new());
}

#[test]
fn a_script_that_pipes_its_requests_in_gets_all_answers() {
    let project = Project::new(&[("tools/nap.lua", &NAP.replace("sleep(50)", "sleep(0.7)"))]);
    let params = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "suite", "version": "1"},
    });
    let old = [
        json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/list"}),
        json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "nap", "arguments": {}}}),
    ];
    let new = [
        modern(2, "tools/list", json!({})),
        modern(3, "tools/call", json!({"name": "nap", "arguments": {}})),
    ];
    let answered = |messages: &[Value]| {
        let mut command = moonlark();
        command.arg("stdio").current_dir(project.path(""));
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let text: String = messages.iter().map(|message| format!("{message}\n")).collect();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let mut said = String::new();
        child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        child.wait().unwrap();
        let ids = said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let mut ids: Vec<u64> = ids.filter_map(|message| message["id"].as_u64()).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(answered(&old), [1, 2, 3]);
    assert_eq!(answered(&new), [2, 3]);
    let _server = project.serve();
    assert_eq!(answered(&old), [1, 2, 3], "attached");
    assert_eq!(answered(&new), [2, 3], "attached");
}
