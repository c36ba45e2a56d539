//! The memory of all scripts together: many that each take much, and those who call
//! meanwhile. A script holds its memory for as long as its caller stays connected.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;

use serde_json::{Value, json};

use crate::harness::{Answer, PATIENCE, Project, Server, eventually};
use crate::processes::status;

const MB: f64 = 1024.0 * 1024.0;
const CONFIG: &str = "[limits]\nmemory = '16MB'\nmemory_total = '64MB'\ntimeout = 300\n\
                      [execute]\ncheck = 'off'\ntimeout = 300\nmax_timeout = 300\n";

const HELLO: &str = r#"
tool = { name = "hello", description = "Greets.", parameters = {} }
function tool.execute() return "hello" end
"#;

fn project() -> Project {
    Project::new(&[("moonlark.toml", CONFIG), ("tools/hello.lua", HELLO)])
}

/// A figure of `/metrics`.
fn figure(server: &Server, name: &str, token: Option<&str>) -> f64 {
    let bearer = token.map(|token| format!("Bearer {token}"));
    let headers: Vec<_> = bearer.iter().map(|it| ("Authorization", it.as_str())).collect();
    let text = server.request("GET", "/metrics", &headers, b"").text();
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

/// Scripts under way, each on a connection of its own, and the answers of those that
/// have ended.
struct Holders {
    streams: Vec<TcpStream>,
    answers: mpsc::Receiver<String>,
}

impl Holders {
    fn start(server: &Server, count: usize, args: &Value, token: Option<&str>) -> Holders {
        let body = args.to_string();
        let bearer = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
        let head = format!(
            "POST /tools/execute HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{}Content-Type: \
             application/json\r\nContent-Length: {}\r\n\r\n{body}",
            server.address,
            bearer.unwrap_or_default(),
            body.len()
        );
        let (sender, answers) = mpsc::channel();
        let open = |_| {
            let mut stream = TcpStream::connect(&server.address).unwrap();
            stream.write_all(head.as_bytes()).unwrap();
            let (mut reading, sender) = (stream.try_clone().unwrap(), sender.clone());
            std::thread::spawn(move || {
                let mut text = String::new();
                // Nothing comes where the test has hung up.
                if reading.read_to_string(&mut text).is_ok() && !text.is_empty() {
                    let _ = sender.send(text);
                }
            });
            stream
        };
        Holders { streams: (0..count).map(open).collect(), answers }
    }

    /// Wait until all but those that hold memory have their answer: at least `least`.
    fn wait_for_answers(&self, least: usize) -> Vec<String> {
        (0..least).map(|_| self.answers.recv_timeout(PATIENCE).expect("an answer")).collect()
    }

    fn hang_up(self) {
        for stream in self.streams {
            stream.shutdown(std::net::Shutdown::Both).unwrap();
        }
    }
}

fn execute(server: &Server, token: &str, script: &str) -> Answer {
    let bearer = format!("Bearer {token}");
    let headers = [("Content-Type", "application/json"), ("Authorization", &bearer)];
    let body = json!({ "script": script }).to_string();
    server.request("POST", "/tools/execute", &headers, body.as_bytes())
}

#[test]
fn many_scripts_that_take_much_end_with_a_problem_and_not_with_the_server() {
    let project = project();
    let server = project.serve();
    assert_eq!(server.post("execute", &json!({"script": "return 1"})).0, 200);
    let before = status(server.pid(), "VmRSS:");
    // Eight megabytes each, 480 in all; and none of them catches it.
    let script = "local t local ok = pcall(function() t = table.create(500000, 1) end) \
                  sleep(250) return ok";
    let holders = Holders::start(&server, 60, &json!({ "script": script }), None);
    let ended = holders.wait_for_answers(52);
    for answer in &ended {
        let short =
            "the script needed more memory than is left: all scripts together may hold 64 MB";
        let full = "no script can begin while memory is short: all scripts together may hold 64 MB";
        let refused = answer.starts_with("HTTP/1.1 429 ")
            && answer.contains("retry-after: 5\r\n")
            && answer.contains(full);
        let stopped = answer.starts_with("HTTP/1.1 503 ")
            && answer.contains(short)
            && answer.contains("resume = ")
            && answer.contains("limits.memory_total");
        assert!(refused || stopped, "{answer}");
    }
    assert!(figure(&server, "moonlark_script_memory_refused_total", None) >= 52.0);
    let held = figure(&server, "moonlark_script_memory_bytes", None);
    assert!((16.0 * MB..=64.0 * MB).contains(&held), "{held}");
    let grown = status(server.pid(), "VmHWM:") - before;
    assert!(grown < 160 * 1024, "grown by {grown} KB at most");
    assert_eq!(server.get("/health").status, 200);
    holders.hang_up();
    eventually("the memory", || {
        let held = figure(&server, "moonlark_script_memory_bytes", None);
        let grown = status(server.pid(), "VmRSS:") - before;
        let back = held < MB && grown < 64 * 1024;
        if back { Ok(()) } else { Err(format!("{held} are held, grown by {grown} KB")) }
    });
    // A run that was stopped goes on where there is room.
    let stopped = ended.iter().find_map(|it| it.split_once("resume = \\\"")).expect("a run");
    let run = stopped.1.split('\\').next().unwrap();
    let resumed = Holders::start(&server, 1, &json!({"script": "", "resume": run}), None);
    eventually("the run that goes on", || {
        let held = figure(&server, "moonlark_script_memory_bytes", None);
        if held > 8.0 * MB {
            Ok(())
        } else {
            Err(format!("{held}: {:?}", resumed.answers.try_recv()))
        }
    });
    resumed.hang_up();
    let (code, answer) = server.post("execute", &json!({"script": script.replace("250", "0")}));
    assert_eq!((code, &answer["result"]), (200, &json!(true)), "{answer}");
}

#[test]
fn a_caller_whose_scripts_hold_its_share_is_refused_and_others_are_served() {
    let project = project();
    let token = |name: &str| {
        let added = project.run(&["token", "add", name]);
        String::from_utf8(added.stdout).unwrap().trim().to_owned()
    };
    let (bob, alice) = (token("bob"), token("alice"));
    let server = project.serve();
    // More than a megabyte with its VM: at most 48 fit into his share.
    let script = "local t = table.create(50000, 1) sleep(250) return #t";
    let holders = Holders::start(&server, 90, &json!({ "script": script }), Some(&bob));
    let ended = holders.wait_for_answers(42);
    let refused =
        "no script can begin while memory is short: the scripts of one caller may hold 48 MB";
    assert!(
        ended.iter().any(|it| it.starts_with("HTTP/1.1 429 ") && it.contains(refused)),
        "{ended:?}"
    );
    let held = figure(&server, "moonlark_script_memory_bytes", Some(&alice));
    assert!((36.0 * MB..=48.0 * MB).contains(&held), "{held}");
    let again = execute(&server, &bob, "return 1");
    assert_eq!((again.status, again.header("retry-after")), (429, Some("5")), "{}", again.text());
    let hers = execute(&server, &alice, "local t = table.create(100000, 1) return #t");
    assert_eq!((hers.status, &hers.json()["result"]), (200, &json!(100_000)), "{}", hers.text());
    holders.hang_up();
    eventually("room for him", || {
        let answer = execute(&server, &bob, "return 1");
        if answer.status == 200 { Ok(()) } else { Err(answer.text()) }
    });
}

#[test]
fn what_a_burst_of_scripts_took_is_given_back() {
    let config = CONFIG.replace("memory_total = '64MB'", "runs = 1000");
    let project = Project::new(&[("moonlark.toml", &config), ("tools/hello.lua", HELLO)]);
    let server = project.serve();
    let script = "sleep(250) return 1";
    for answer in
        [server.post("execute", &json!({"script": "return 1"})), server.post("hello", &json!({}))]
    {
        assert_eq!(answer.0, 200, "{}", answer.1);
    }
    let idle = status(server.pid(), "VmRSS:");
    for _ in 0..2 {
        let holders = Holders::start(&server, 300, &json!({ "script": script }), None);
        eventually("the scripts", || {
            let held = figure(&server, "moonlark_script_memory_bytes", None);
            let enough = held > 300.0 * 200_000.0;
            if enough { Ok(()) } else { Err(format!("{held} bytes are held")) }
        });
        assert!(status(server.pid(), "VmRSS:") > 2 * idle, "a burst takes more than that");
        holders.hang_up();
        eventually("the memory", || {
            let now = status(server.pid(), "VmRSS:");
            let back = now <= 2 * idle;
            if back { Ok(()) } else { Err(format!("{now} KB, and {idle} KB before")) }
        });
    }
}
