//! A client of one server, with nothing in between: JSON lines, no library. What
//! it sees is what must be seen through Moonlark.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::servers::Upstream;
use crate::harness::Log;

pub struct Direct {
    child: Child,
    /// Until the end.
    stdin: Option<ChildStdin>,
    lines: Log,
    next: u64,
}

impl Direct {
    pub fn open(upstream: &Upstream) -> Direct {
        let mut child = upstream
            .command()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        let mut direct = Direct { child, stdin, lines: Log::follow(stdout), next: 0 };
        // Some servers offer more to clients that can do more.
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {
                "sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": true},
            },
            "clientInfo": {"name": "suite", "version": "1"},
        });
        direct.ask("initialize", params).unwrap();
        direct.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        direct
    }

    /// The result of a request, or the error.
    pub fn ask(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.next += 1;
        let id = self.next;
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        loop {
            let line = self.lines.next();
            let mut message: Value =
                serde_json::from_str(&line).unwrap_or_else(|_| panic!("not JSON: {line}"));
            match (&message["method"], &message["id"]) {
                (Value::Null, answered) if *answered == json!(id) => {
                    let error = message["error"].take();
                    return if error.is_null() { Ok(message["result"].take()) } else { Err(error) };
                }
                // The only thing that servers ask on their own.
                (method, id) if method == "roots/list" => {
                    let answer = json!({"jsonrpc": "2.0", "id": id, "result": {"roots": []}});
                    self.send(&answer);
                }
                _ => {}
            }
        }
    }

    /// All pages of a list; none when the server knows no such list.
    pub fn list(&mut self, method: &str, key: &str) -> Vec<Value> {
        super::all_pages(key, |params| match self.ask(method, params) {
            Err(error) if error["code"] == -32601 => json!({key: []}),
            other => other.unwrap(),
        })
    }

    fn send(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(format!("{message}\n").as_bytes()).unwrap();
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        // Most end with their input, `everything` only when nobody owes it an answer.
        drop(self.stdin.take());
        let started = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            if started.elapsed() > Duration::from_secs(3) {
                // SAFETY: the group is that of our child, which was not waited for.
                unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
