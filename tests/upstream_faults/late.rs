//! What a server says after the call that caused it has ended: whom it reaches.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::world::faulty;
use crate::harness::{Project, StdioClient};

/// A client of an older version, and the log messages that it has not looked at.
struct Old {
    client: StdioClient,
    messages: VecDeque<Value>,
}

impl Old {
    fn connect(project: &Project) -> Old {
        let mut old = Old { client: project.stdio(), messages: VecDeque::new() };
        let hello = json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "suite", "version": "1"},
        });
        old.ask("initialize", hello);
        old.send(json!({"method": "notifications/initialized"}));
        old
    }

    fn send(&mut self, mut message: Value) {
        message["jsonrpc"] = json!("2.0");
        self.client.send_raw(format!("{message}\n").as_bytes());
    }

    fn ask(&mut self, method: &str, params: Value) {
        self.send(json!({"id": 1, "method": method, "params": params}));
        let answer = loop {
            let message = self.read();
            if message["id"] == 1 {
                break message;
            }
        };
        assert!(answer["result"].is_object(), "{answer}");
    }

    /// Have the server say this when the call is over.
    fn cause(&mut self, message: Value) {
        self.ask("tools/call", json!({"name": "bad__late", "arguments": message}));
    }

    fn next_message(&mut self) -> Value {
        while self.messages.is_empty() {
            self.read();
        }
        self.messages.pop_front().unwrap()
    }

    fn read(&mut self) -> Value {
        let message = self.client.message();
        if message["method"] == "notifications/message" {
            self.messages.push_back(message["params"].clone());
        }
        message
    }
}

#[test]
fn an_old_client_that_set_a_level_hears_what_belongs_to_no_call() {
    let config = format!(
        "[mcp_servers.bad]\ncommand = {:?}\nargs = [\"healthy\"]\nexpose = \"direct\"\n\
         env = {{ API_TOKEN = \"hunter22\" }}\n",
        faulty().display().to_string()
    );
    let project = Project::new(&[("moonlark.toml", &config)]);
    let mut old = Old::connect(&project);
    // It has not asked to hear anything. When the server answers again, what it
    // said before has come and gone.
    old.cause(json!({"level": "alert", "data": "unheard"}));
    old.ask("tools/call", json!({"name": "bad__echo", "arguments": {}}));

    old.ask("logging/setLevel", json!({"level": "warning"}));
    old.cause(json!({"level": "info", "data": "too small a matter"}));
    old.cause(json!({"level": "error", "data": "first"}));
    // Before another call is in progress, to which it might belong.
    let first = json!({"level": "error", "logger": "bad", "data": "first"});
    assert_eq!(old.next_message(), first);
    old.cause(json!({"level": "warning", "logger": "db", "data": {"with": "hunter22"}}));
    let redacted = json!({"with": "[redacted:env.API_TOKEN]"});
    let second = json!({"level": "warning", "logger": "bad/db", "data": redacted});
    assert_eq!(old.next_message(), second);

    // The level it set last is the one that counts.
    old.ask("logging/setLevel", json!({"level": "debug"}));
    old.cause(json!({"level": "debug", "data": "the least of all"}));
    let least = json!({"level": "debug", "logger": "bad", "data": "the least of all"});
    assert_eq!(old.next_message(), least);
    assert_eq!(old.client.close(), 0);
}
