//! What a server says after the call that caused it has ended: whom it reaches.

use serde_json::{Value, json};

use super::world::faulty;
use crate::harness::{Project, StdioClient};

/// A client of an older version, connected.
fn old_client(project: &Project) -> StdioClient {
    let mut client = project.stdio();
    let hello = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "suite", "version": "1"},
    });
    send(&mut client, json!({"id": 1, "method": "initialize", "params": hello}));
    client.answer(1);
    send(&mut client, json!({"method": "notifications/initialized"}));
    client
}

fn send(client: &mut StdioClient, mut message: Value) {
    message["jsonrpc"] = json!("2.0");
    client.send_raw(format!("{message}\n").as_bytes());
}

fn ask(client: &mut StdioClient, method: &str, params: Value) {
    send(client, json!({"id": 2, "method": method, "params": params}));
    let answer = client.answer(2);
    assert!(answer["result"].is_object(), "{answer}");
}

/// Have the server say this when the call is over.
fn cause(client: &mut StdioClient, message: Value) {
    ask(client, "tools/call", json!({"name": "bad__late", "arguments": message}));
}

fn next_message(client: &StdioClient) -> Value {
    loop {
        let mut message = client.message();
        if message["method"] == "notifications/message" {
            return message["params"].take();
        }
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
    let mut client = old_client(&project);
    // It has not asked to hear anything. When the server answers again, what it
    // said before has come and gone.
    cause(&mut client, json!({"level": "alert", "data": "unheard"}));
    ask(&mut client, "tools/call", json!({"name": "bad__echo", "arguments": {}}));

    ask(&mut client, "logging/setLevel", json!({"level": "warning"}));
    cause(&mut client, json!({"level": "info", "data": "too small a matter"}));
    cause(&mut client, json!({"level": "error", "data": "first"}));
    let named = json!({"level": "warning", "logger": "db", "data": {"with": "hunter22"}});
    cause(&mut client, named);
    let said = [next_message(&client), next_message(&client)];
    assert_eq!(
        said,
        [
            json!({"level": "error", "logger": "bad", "data": "first"}),
            json!({
                "level": "warning",
                "logger": "bad/db",
                "data": {"with": "[redacted:mcp_servers.bad.env.API_TOKEN]"},
            }),
        ]
    );

    // The level it set last is the one that counts.
    ask(&mut client, "logging/setLevel", json!({"level": "debug"}));
    cause(&mut client, json!({"level": "debug", "data": "the least of all"}));
    let least = json!({"level": "debug", "logger": "bad", "data": "the least of all"});
    assert_eq!(next_message(&client), least);
    assert_eq!(client.close(), 0);
}
