//! A Moonlark with servers behind it, and an agent of either era in front.

use std::sync::OnceLock;

use serde_json::{Value, json};

use super::upstream::Upstream;
use crate::harness::{Answer, Project, Server, modern};

/// The versions of the protocol that differ in what a result may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Era {
    Old,
    New,
}

pub const ERAS: [Era; 2] = [Era::Old, Era::New];

pub struct World {
    pub project: Project,
    pub server: Server,
    /// Of the old client, once there is one.
    session: OnceLock<String>,
}

impl World {
    pub fn new(upstreams: &[(&str, &Upstream)]) -> World {
        World::with("", upstreams)
    }

    /// `config` is put before the upstreams in `moonlark.toml`.
    pub fn with(config: &str, upstreams: &[(&str, &Upstream)]) -> World {
        World::of(Project::new(&[]), config, upstreams)
    }

    /// A project with files of its own.
    pub fn of(project: Project, config: &str, upstreams: &[(&str, &Upstream)]) -> World {
        let servers = upstreams.iter().map(|(name, upstream)| server(name, upstream, ""));
        let servers: String = servers.collect();
        project.write("moonlark.toml", &format!("{config}\n{servers}"));
        let server = project.serve();
        World { project, server, session: OnceLock::new() }
    }

    /// Run a script as a modern agent.
    pub fn run(&self, script: &str) -> Ran {
        self.run_in(Era::New, script)
    }

    pub fn run_in(&self, era: Era, script: &str) -> Ran {
        Ran(self.call(era, "execute", json!({ "script": script })))
    }

    /// The value of a script that must succeed.
    pub fn value(&self, script: &str) -> Value {
        self.run(script).value()
    }

    /// Call a tool as an agent does.
    pub fn call(&self, era: Era, tool: &str, arguments: Value) -> Result<Value, Value> {
        let meta = json!({"moonlark/run": true});
        let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
        self.ask(era, "tools/call", params).answer
    }

    /// The names of the tools that an agent is shown.
    pub fn tools(&self) -> Vec<String> {
        let listed = self.ask(Era::New, "tools/list", json!({})).answer.unwrap();
        let tools = listed["tools"].as_array().unwrap().iter();
        tools.map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// The one text of a tool's answer.
    pub fn text(&self, tool: &str, arguments: Value) -> String {
        let answer = self.call(Era::New, tool, arguments).unwrap();
        let [block] = &answer["content"].as_array().unwrap()[..] else { panic!("{answer}") };
        block["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// One request, whatever is needed before it.
    pub fn ask(&self, era: Era, method: &str, params: Value) -> Heard {
        let mut headers =
            headers(if era == Era::New { "2026-07-28" } else { "2025-11-25" }).to_vec();
        let name = params["name"].as_str().or(params["uri"].as_str()).map(str::to_owned);
        let body = match era {
            Era::New => {
                headers.push(("Mcp-Method", method));
                headers.extend(name.as_deref().map(|name| ("Mcp-Name", name)));
                modern(1, method, params)
            }
            Era::Old => {
                headers.push(("Mcp-Session-Id", self.session()));
                json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
            }
        };
        Heard::of(&self.server.request("POST", "/mcp", &headers, body.to_string().as_bytes()))
    }

    fn session(&self) -> &str {
        self.session.get_or_init(|| {
            let post = |headers: &[(&str, &str)], message: Value| {
                self.server.request("POST", "/mcp", headers, message.to_string().as_bytes())
            };
            let params = json!({
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": {"name": "suite", "version": "1"},
            });
            let hello =
                json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
            let answer = post(&headers("2025-11-25"), hello);
            let session = answer.header("mcp-session-id").expect("a session").to_owned();
            let mut headers = headers("2025-11-25").to_vec();
            headers.push(("Mcp-Session-Id", &session));
            post(&headers, json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
            session
        })
    }
}

/// An upstream's part of `moonlark.toml`; `more` are keys of it.
pub fn server(name: &str, upstream: &Upstream, more: &str) -> String {
    format!("[mcp_servers.{name}]\nurl = {:?}\n{more}\n", upstream.url)
}

fn headers(version: &str) -> [(&str, &str); 3] {
    [
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("MCP-Protocol-Version", version),
    ]
}

/// What came back for a request: notifications, and the result or the error.
pub struct Heard {
    pub said: Vec<Value>,
    pub answer: Result<Value, Value>,
}

impl Heard {
    fn of(answer: &Answer) -> Heard {
        let text = answer.text();
        let read = |text: &str| serde_json::from_str::<Value>(text);
        // A call that said something is answered as a stream of events.
        let events = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let mut said: Vec<Value> = events.flat_map(read).collect();
        said.extend(read(&text));
        let end = said.iter().position(|it| it.get("id").is_some());
        let end = end.unwrap_or_else(|| panic!("no answer: {} {text}", answer.status));
        let mut last = said.remove(end);
        let error = last["error"].take();
        let answer = if error.is_null() { Ok(last["result"].take()) } else { Err(error) };
        Heard { said, answer }
    }
}

/// What came of a script.
pub struct Ran(pub Result<Value, Value>);

impl Ran {
    /// The result of the call, which must be a success.
    pub fn result(&self) -> &Value {
        match &self.0 {
            Ok(result) if result["isError"] != true => result,
            Ok(result) | Err(result) => panic!("the script failed: {result}"),
        }
    }

    /// Its value: the structure, or else the one text.
    pub fn value(&self) -> Value {
        let result = self.result();
        match (result.get("structuredContent"), self.content().as_slice()) {
            (Some(value), _) => value.clone(),
            (None, [block]) => block["text"].clone(),
            (None, _) => panic!("no one value: {result}"),
        }
    }

    /// What it is made of, but for the logs.
    pub fn content(&self) -> Vec<Value> {
        let mut blocks = self.result()["content"].as_array().cloned().unwrap_or_default();
        blocks.retain(|block| !is_logs(block));
        blocks
    }

    /// The block with the logs, if there is one.
    pub fn said(&self) -> Option<String> {
        let mut blocks = self.result()["content"].as_array().unwrap().iter();
        blocks.rfind(|block| is_logs(block)).map(|it| it["text"].as_str().unwrap().to_owned())
    }

    /// What is told about the run beside its result.
    pub fn about(&self) -> &Value {
        let (Ok(answer) | Err(answer)) = &self.0;
        &answer["_meta"]["moonlark/run"]
    }

    /// Why it failed: the code and the message.
    pub fn problem(&self) -> (String, String) {
        let error = match &self.0 {
            Ok(result) => {
                assert_eq!(result["isError"], true, "it did not fail: {result}");
                &result["structuredContent"]["error"]
            }
            Err(error) => panic!("not even a failed call, but an error: {error}"),
        };
        let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
        (text("code"), [text("message"), text("hint")].join("\n"))
    }

    /// It failed with this code, and these words are in what it says.
    #[track_caller]
    pub fn fails(&self, code: &str, words: &[&str]) {
        let (got, message) = self.problem();
        assert_eq!(got, code, "{message}");
        for word in words {
            assert!(message.contains(word), "no {word:?} in: {message}");
        }
    }
}

fn is_logs(block: &Value) -> bool {
    block["text"].as_str().is_some_and(|text| text.starts_with("logs:\n"))
}
