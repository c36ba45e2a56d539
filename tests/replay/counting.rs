//! A service that counts what it was asked to do, and says when somebody is to be
//! killed. It outlives whoever calls it, so it knows what has happened.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::harness::wait_for;

pub struct Counting {
    pub port: u16,
    state: Arc<Mutex<State>>,
    /// It is time to kill; and whoever does says when that is done.
    pub now: Receiver<Sender<()>>,
}

struct State {
    done: BTreeMap<String, usize>,
    requests: usize,
    connections: usize,
    kill: Option<Kill>,
    now: Sender<Sender<()>>,
}

/// At which request, and when.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Kill {
    pub request: usize,
    pub when: When,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum When {
    /// It has arrived, and nothing is done.
    Arrived,
    /// It is done, and nobody was told.
    Done,
    Answered,
}

/// What it can do, for Moonlark: `put` changes something, `read` does not.
pub fn document(port: u16) -> String {
    json!({
        "openapi": "3.0.3",
        "info": {"title": "counting", "version": "1"},
        "servers": [{"url": format!("http://127.0.0.1:{port}")}],
        "paths": {
            "/put": {"post": {
                "operationId": "put",
                "requestBody": {"required": true, "content": {"application/json": {"schema": {
                    "type": "object",
                    "properties": {
                        "id": {"type": "string"},
                        "at": {"type": "number"},
                        "key": {"type": "string"},
                    },
                    "required": ["id"],
                }}}},
                "responses": {"200": {"description": "done"}},
            }},
            "/read": {"get": {
                "operationId": "read",
                "parameters": [{"name": "id", "in": "query", "schema": {"type": "string"}}],
                "responses": {"200": {"description": "read"}},
            }},
        },
    })
    .to_string()
}

impl Counting {
    pub fn start(kill: Option<Kill>) -> Counting {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (says, now) = channel();
        let (done, requests, connections) = (BTreeMap::new(), 0, 0);
        let state = State { done, requests, connections, kill, now: says };
        let state = Arc::new(Mutex::new(state));
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = shared.clone();
                state.lock().unwrap().connections += 1;
                std::thread::spawn(move || {
                    serve(&stream, &state);
                    state.lock().unwrap().connections -= 1;
                });
            }
        });
        Counting { port, state, now }
    }

    /// How often each was put.
    pub fn done(&self) -> BTreeMap<String, usize> {
        self.state.lock().unwrap().done.clone()
    }

    /// Wait until nothing is on its way any more from whoever was killed.
    pub fn settle(&self) {
        // Connections are taken in turn: behind this one there is none of theirs.
        let mut own = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        own.write_all(b"GET /read HTTP/1.1\r\n\r\n").unwrap();
        assert!(own.read(&mut [0; 1]).unwrap() > 0);
        drop(own);
        wait_for("the end of all connections", || self.state.lock().unwrap().connections == 0);
    }
}

/// Requests of one connection, until it is gone.
fn serve(stream: &TcpStream, state: &Mutex<State>) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let (target, body) = request(&mut reader)?;
        let (due, now) = {
            let mut state = state.lock().unwrap();
            state.requests += 1;
            let kill = state.kill.filter(|kill| kill.request == state.requests);
            (kill.map(|kill| kill.when), state.now.clone())
        };
        let kill = || {
            let (killed, wait) = channel();
            now.send(killed).ok()?;
            wait.recv().ok()
        };
        if due == Some(When::Arrived) {
            kill()?;
            return None;
        }
        if target == "/put" {
            let body: Value = serde_json::from_slice(&body).ok()?;
            let id = body["id"].as_str()?.to_owned();
            *state.lock().unwrap().done.entry(id).or_default() += 1;
        }
        if due == Some(When::Done) {
            kill()?;
            return None;
        }
        let answer = format!(r#"{{"target":"{target}"}}"#);
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length:";
        (&*stream).write_all(format!("{head} {}\r\n\r\n{answer}", answer.len()).as_bytes()).ok()?;
        if due == Some(When::Answered) {
            kill()?;
        }
    }
}

fn request(reader: &mut BufReader<&TcpStream>) -> Option<(String, Vec<u8>)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
    let target = line.split(' ').nth(1)?.to_owned();
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
    Some((target, body))
}
