//! A site that says back whatever it is told, in answers and in errors: an MCP server
//! at `/mcp`, `/filed` and, for those who log in, `/login`; an API at `/api`, a collector
//! of telemetry at `/v1`.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::login::Login;
use super::search::Canary;
use crate::harness::{PATIENCE, read_request};

pub struct Echo {
    pub port: u16,
    seen: Arc<Mutex<Vec<(String, String)>>>,
}

impl Echo {
    /// The tokens that it gives out are of these.
    pub fn open(canaries: &[Canary]) -> Echo {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let echo = Echo { port, seen: Arc::default() };
        let seen = echo.seen.clone();
        let login = Arc::new(Login::new(port, canaries));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, login) = (seen.clone(), login.clone());
                std::thread::spawn(move || serve(stream, &seen, &login));
            }
        });
        echo
    }

    /// What came, whole requests by their paths.
    pub fn seen(&self) -> Vec<(String, String)> {
        self.seen.lock().unwrap().clone()
    }
}

/// The document of an API that wants `scheme`.
pub fn document(port: u16, path: &str, scheme: Value) -> String {
    let operation = |id: &str| {
        json!({"get": {
            "operationId": id,
            "parameters": [{"name": "tenant_token", "in": "query", "schema": {"type": "string"}}],
            "responses": {"200": {"description": "What came."}},
        }})
    };
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Echo", "version": "1"},
        "servers": [{"url": format!("http://127.0.0.1:{port}/api/{path}")}],
        "security": [{"it": []}],
        "paths": {"/echo": operation("echo"), "/fail": operation("fail"), "/text": operation("text")},
        "components": {"securitySchemes": {"it": scheme}},
    })
    .to_string()
}

fn serve(mut stream: TcpStream, seen: &Mutex<Vec<(String, String)>>, login: &Login) -> Option<()> {
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    loop {
        let request = read_request(&mut stream)?;
        let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
        seen.lock().unwrap().push((path.clone(), request.clone()));
        let (status, headers, body) = login.answer(&path, &request).unwrap_or_else(|| {
            let (status, kind, body) = answer(&path, &request);
            (status, format!("Content-Type: {kind}\r\n"), body)
        });
        write!(
            stream,
            "HTTP/1.1 {status} Said\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .ok()?;
    }
}

fn answer(path: &str, request: &str) -> (u16, &'static str, String) {
    let said = json!({"you said": request});
    match path {
        _ if ["/mcp", "/login", "/filed"].iter().any(|it| path.starts_with(it)) => mcp(request),
        _ if path.contains("/fail") => (500, "text/plain", format!("you said {request}")),
        _ if path.contains("/text") => (200, "text/plain", format!("you said {request}")),
        _ if path.starts_with("/v1/") => (200, "application/json", "{}".to_owned()),
        _ => (200, "application/json", said.to_string()),
    }
}

fn mcp(request: &str) -> (u16, &'static str, String) {
    let body = request.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    let Ok(asked) = serde_json::from_str::<Value>(body) else {
        return (405, "text/plain", String::new());
    };
    let Some(id) = asked.get("id") else { return (202, "text/plain", String::new()) };
    let text = json!([{"type": "text", "text": format!("you said {request}")}]);
    let schema = json!({"type": "object"});
    let result = match asked["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}, "resources": {}, "prompts": {}},
            "serverInfo": {"name": "echo", "version": "1"},
            "instructions": format!("You said {request}"),
        }),
        "tools/list" => json!({"tools": [
            {"name": "say", "description": format!("You said {request}"), "inputSchema": schema},
            {"name": "fail", "description": "Fails", "inputSchema": schema},
            {"name": "refuse", "description": "Refuses", "inputSchema": schema},
        ]}),
        "resources/list" => json!({"resources": [
            {"uri": "echo://said", "name": "said", "description": format!("You said {request}")},
        ]}),
        "resources/templates/list" => json!({"resourceTemplates": []}),
        "prompts/list" => json!({"prompts": [
            {"name": "said", "description": format!("You said {request}")},
        ]}),
        "resources/read" => {
            json!({"contents": [{"uri": "echo://said", "text": format!("You said {request}")}]})
        }
        "prompts/get" => json!({"messages": [
            {"role": "user", "content": {"type": "text", "text": format!("You said {request}")}},
        ]}),
        "tools/call" if asked["params"]["name"] == "say" => {
            json!({"content": text, "structuredContent": {"you said": request}})
        }
        "tools/call" if asked["params"]["name"] == "fail" => {
            json!({"content": text, "isError": true})
        }
        _ => {
            let error =
                json!({"code": -32000, "message": format!("you said {request}"), "data": request});
            let answer = json!({"jsonrpc": "2.0", "id": id, "error": error});
            return (200, "application/json", answer.to_string());
        }
    };
    (200, "application/json", json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string())
}
