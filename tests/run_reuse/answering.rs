//! A service that answers everything with one text, which can be changed, and knows every
//! request that it got.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

pub struct Answering {
    port: u16,
    state: Arc<Mutex<State>>,
}

struct State {
    answer: String,
    requests: Vec<String>,
}

impl Answering {
    pub fn start(answer: &str) -> Answering {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = State { answer: answer.to_owned(), requests: Vec::new() };
        let state = Arc::new(Mutex::new(state));
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = shared.clone();
                std::thread::spawn(move || serve(&stream, &state));
            }
        });
        Answering { port, state }
    }

    pub fn set_answer(&self, answer: &str) {
        self.state.lock().unwrap().answer = answer.to_owned();
    }

    /// All so far: method, target and body.
    pub fn requests(&self) -> Vec<String> {
        self.state.lock().unwrap().requests.clone()
    }

    /// What it can do, for Moonlark: `put` changes something, the others only read.
    pub fn document(&self) -> String {
        let get = |id: &str, parameters: Value| {
            json!({"get": {
                "operationId": id,
                "parameters": parameters,
                "responses": {"200": {"description": "read"}},
            }})
        };
        let query =
            |name: &str, kind: &str| json!({"name": name, "in": "query", "schema": {"type": kind}});
        let page = json!([query("page", "integer"), query("q", "string")]);
        json!({
            "openapi": "3.0.3",
            "info": {"title": "shop", "version": "1"},
            "servers": [{"url": format!("http://127.0.0.1:{}", self.port)}],
            "paths": {
                "/list": get("list", page),
                "/login": get("login", json!([])),
                "/put": {"post": {
                    "operationId": "put",
                    "requestBody": {"required": true, "content": {"application/json": {"schema": {
                        "type": "object",
                        "properties": {"id": {"type": "string"}, "password": {"type": "string"}},
                        "required": ["id"],
                    }}}},
                    "responses": {"200": {"description": "done"}},
                }},
            },
        })
        .to_string()
    }
}

fn serve(stream: &TcpStream, state: &Mutex<State>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        let mut words = line.split(' ');
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut length = 0;
        loop {
            let mut header = String::new();
            reader.read_line(&mut header).ok().filter(|bytes| *bytes > 0)?;
            let header = header.trim_end().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse().ok()?;
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let answer = {
            let mut state = state.lock().unwrap();
            let body = String::from_utf8_lossy(&body);
            state.requests.push(format!("{method} {target} {body}"));
            state.answer.clone()
        };
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length:";
        (&*stream).write_all(format!("{head} {}\r\n\r\n{answer}", answer.len()).as_bytes()).ok()?;
    }
}
