//! Sessions of MCP clients over HTTP: they go on after a restart, they are nobody else's,
//! and their streams are in the form of their version.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::harness::{Answer, PATIENCE, Project, Server};

/// Says what it knows of whoever calls.
const ABOUT: &str = r#"
tool = { name = "about", description = "About the caller", parameters = {} }
function tool.execute(params, context)
    log.info("little")
    log.error("much")
    return { elicitation = client.can("elicitation"), sampling = client.can("sampling") }
end
"#;

fn project() -> Project {
    Project::new(&[("moonlark.toml", ""), ("tools/about.lua", ABOUT)])
}

fn token(project: &Project, name: &str) -> String {
    let output = project.run(&["token", "add", name]);
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// A session as its client has it.
struct OldSession {
    id: String,
    bearer: Option<String>,
}

impl OldSession {
    fn begin(server: &Server, version: &str, token: Option<&str>) -> (OldSession, Answer) {
        let params = json!({
            "protocolVersion": version,
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "suite", "version": "1"},
        });
        let bearer = token.map(|token| format!("Bearer {token}"));
        let mut session = OldSession { id: String::new(), bearer };
        let begun = session.post(server, &request(1, "initialize", params));
        assert_eq!(begun.status, 200, "{}", begun.text());
        session.id = begun.header("mcp-session-id").unwrap().to_owned();
        let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(session.post(server, &ready).status, 202);
        (session, begun)
    }

    fn headers(&self) -> Vec<(&str, &str)> {
        let mut headers = vec![
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
        ];
        if !self.id.is_empty() {
            headers.push(("Mcp-Session-Id", &self.id));
        }
        headers.extend(self.bearer.as_deref().map(|bearer| ("Authorization", bearer)));
        headers
    }

    fn post(&self, server: &Server, message: &Value) -> Answer {
        server.request("POST", "/mcp", &self.headers(), message.to_string().as_bytes())
    }

    /// The answer to a call.
    fn call(&self, server: &Server) -> Value {
        let params = json!({"name": "about", "arguments": {}});
        let answer = self.post(server, &request(7, "tools/call", params));
        assert_eq!(answer.status, 200, "{}", answer.text());
        let text = answer.text();
        let answer = text.lines().find_map(|line| line.strip_prefix("data: "));
        let answer: Value = serde_json::from_str(answer.unwrap()).unwrap();
        answer["result"]["structuredContent"].clone()
    }

    fn status(&self, server: &Server) -> u16 {
        self.post(server, &request(8, "ping", json!({}))).status
    }

    /// Its stream, line by line.
    fn stream(&self, server: &Server) -> impl Iterator<Item = String> + use<> {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut head = format!("GET /mcp HTTP/1.1\r\nHost: {}\r\n", server.address);
        for (name, value) in self.headers() {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
        let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
        assert_eq!(lines.next().unwrap(), "HTTP/1.1 200 OK");
        // Behind the head come events, in chunks whose sizes are lines as well.
        lines.skip_while(|line| !line.is_empty()).skip(1).filter(|line| {
            let is_size = u32::from_str_radix(line, 16).is_ok();
            !is_size && !line.is_empty()
        })
    }
}

fn request(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn changed(what: &str) -> String {
    format!(r#"data: {{"jsonrpc":"2.0","method":"notifications/{what}/list_changed"}}"#)
}

#[test]
fn a_session_goes_on_after_a_restart_as_it_was() {
    let project = project();
    let mut server = project.serve();
    let (session, _) = OldSession::begin(&server, "2025-06-18", None);
    let can = json!({"elicitation": true, "sampling": false});
    assert_eq!(session.call(&server), can);
    let level = request(2, "logging/setLevel", json!({"level": "error"}));
    assert_eq!(session.post(&server, &level).status, 200);
    for _ in 0..2 {
        server.kill();
        server = project.serve();
        assert_eq!(session.status(&server), 200);
        assert_eq!(session.call(&server), can);
        // It is told of nothing that is less severe than it said before the restart.
        let mut told = session.stream(&server).filter(|it| it.starts_with("data:"));
        let told: Vec<String> = (&mut told).take(2).collect();
        assert_eq!(told[0], changed("tools"));
        assert!(told[1].contains(r#""level":"error","data":"much""#), "{}", told[1]);
    }
}

#[test]
fn requests_that_come_at_once_after_a_restart_are_all_answered() {
    let project = project();
    let server = project.serve();
    let (session, _) = OldSession::begin(&server, "2025-11-25", None);
    drop(server);
    let server = project.serve();
    std::thread::scope(|scope| {
        for id in 20..28 {
            let (session, server) = (&session, &server);
            scope.spawn(move || {
                let answer = session.post(server, &request(id, "tools/list", json!({})));
                assert!(answer.text().contains("\"about\""), "{}", answer.text());
            });
        }
    });
}

#[test]
fn a_session_is_its_callers_alone_and_over_when_it_was_ended() {
    let project = project();
    let (alice, bob) = (token(&project, "alice"), token(&project, "bob"));
    let server = project.serve();
    let (hers, _) = OldSession::begin(&server, "2025-06-18", Some(&alice));
    let (ended, _) = OldSession::begin(&server, "2025-06-18", Some(&alice));
    let (idle, _) = OldSession::begin(&server, "2025-06-18", Some(&alice));
    let stolen = OldSession { id: hers.id.clone(), bearer: Some(format!("Bearer {bob}")) };
    let mut changed = hers.id.clone().into_bytes();
    changed[40] = if changed[40] == b'A' { b'B' } else { b'A' };
    let changed =
        OldSession { id: String::from_utf8(changed).unwrap(), bearer: hers.bearer.clone() };
    let end = |session: &OldSession, server: &Server| {
        server.request("DELETE", "/mcp", &session.headers(), b"").status
    };
    assert_eq!(end(&ended, &server), 204);
    assert!(hers.id.len() < 600, "{}", hers.id.len());
    let statuses =
        |server: &Server| [&hers, &stolen, &changed, &ended].map(|session| session.status(server));
    assert_eq!(statuses(&server), [200, 404, 404, 404]);
    drop(server);
    let server = project.serve();
    assert_eq!(statuses(&server), [200, 404, 404, 404], "after a restart");
    // One that this process has not seen can be ended as well.
    assert_eq!(end(&idle, &server), 204);
    assert_eq!(idle.status(&server), 404);
    assert_eq!(end(&stolen, &server), 404);
    assert_eq!(hers.status(&server), 200);
    drop(server);
    // Without the key, nobody's is known.
    project.remove(".moonlark/sessions.key");
    let server = project.serve();
    assert_eq!(statuses(&server), [404; 4]);
}

/// What a client sends about itself is kept for as long as its session.
#[test]
fn no_session_is_begun_with_parameters_over_the_limit() {
    let project = project();
    let server = project.serve();
    let nobody = OldSession { id: String::new(), bearer: None };
    let params = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {"experimental": {"x": {"y": vec![0; 1_900_000]}}},
        "clientInfo": {"name": "suite", "version": "1"},
    });
    let refused = nobody.post(&server, &request(1, "initialize", params));
    assert_eq!((refused.status, refused.header("mcp-session-id")), (200, None));
    let refused: Value = serde_json::from_str(&refused.text()).unwrap();
    let message = "the parameters of initialize are too large: 78 bytes of text and 1900009 \
                   values; the limits are 64 KB and 500 values";
    let error = json!({"code": -32602, "message": message});
    assert_eq!(refused, json!({"jsonrpc": "2.0", "id": 1, "error": error}));

    let (session, _) = OldSession::begin(&server, "2025-06-18", None);
    let uri = format!("mcp://bank/{}", "x".repeat(1_000_000));
    let refused = session.post(&server, &request(2, "resources/subscribe", json!({"uri": uri})));
    let text = refused.text();
    assert!(text.contains("the resource URI has 1000011 bytes; the limit is 8 KB"), "{text}");
    assert_eq!(session.status(&server), 200);
}

/// The record of sessions is shortened when it is longer than 1 MB.
#[test]
fn a_caller_that_sets_its_level_again_and_again_ends_nobodys_session() {
    let project = project();
    let (alice, bob) = (token(&project, "alice"), token(&project, "bob"));
    let server = project.serve();
    let (hers, _) = OldSession::begin(&server, "2025-06-18", Some(&alice));
    let (his, _) = OldSession::begin(&server, "2025-06-18", Some(&bob));
    let record = project.path(".moonlark/sessions.log");
    let set_level = |level: &str| {
        let message = request(2, "logging/setLevel", json!({"level": level}));
        assert_eq!(his.post(&server, &message).status, 200);
    };
    set_level("info");
    let once = std::fs::read_to_string(&record).unwrap();
    // The same again is not written down.
    for _ in 0..10 {
        set_level("info");
    }
    assert_eq!(std::fs::read_to_string(&record).unwrap(), once);
    // As if it had been set again and again, with one more that makes the record too long.
    std::fs::write(&record, once.repeat((1 << 20) / once.len() + 1)).unwrap();
    set_level("debug");
    assert_eq!(std::fs::read_to_string(&record).unwrap(), once.replace("info", "debug"));
    drop(server);
    let server = project.serve();
    assert_eq!([hers.status(&server), his.status(&server)], [200, 200]);
}

#[test]
fn a_client_that_opens_its_stream_again_is_told_once_that_lists_may_have_changed() {
    let project = project();
    let server = project.serve();
    let (session, _) = OldSession::begin(&server, "2025-06-18", None);
    drop(server);
    let server = project.serve();
    let mut stream = session.stream(&server);
    let told: Vec<String> = (&mut stream).filter(|it| it.starts_with("data:")).take(1).collect();
    assert_eq!(told, [changed("tools")]);
    project.write("tools/more.lua", &ABOUT.replace("about", "more"));
    let told = stream.find(|it| it.starts_with("data:"));
    assert_eq!(told, Some(changed("tools")), "for the new tool");
}

#[test]
fn only_versions_that_know_it_get_an_event_without_data() {
    let project = project();
    let server = project.serve();
    for (version, primed) in [
        ("2024-11-05", false),
        ("2025-03-26", false),
        ("2025-06-18", false),
        ("2025-11-25", true),
        // It is answered in the newest version that begins with a handshake.
        ("2099-01-01", true),
    ] {
        let (session, begun) = OldSession::begin(&server, version, None);
        let events: Vec<String> = begun.text().lines().map(str::to_owned).collect();
        let begins = events[0].starts_with("data: {");
        assert!(begins && events.len() == 2, "{version}: {events:#?}");
        let listed = session.post(&server, &request(2, "tools/list", json!({}))).text();
        if primed {
            let lines: Vec<&str> = listed.lines().collect();
            let id = lines[1].strip_prefix("id: ").unwrap().strip_suffix("-0").unwrap();
            assert_eq!((lines[0], lines[2], lines[3]), ("data: ", "retry: 3000", ""), "{version}");
            assert!(lines[4].starts_with("data: {"), "{version}: {listed}");
            assert_eq!(lines[5..], [format!("id: {id}-1"), String::new()], "{version}");
        } else {
            assert!(listed.starts_with("data: {") && !listed.contains("\nid: "), "{listed}");
        }
        let mut stream = session.stream(&server);
        if primed {
            let first: Vec<String> = (&mut stream).take(3).collect();
            assert_eq!(first, ["data: ", "id: 0", "retry: 3000"], "{version}");
        }
        project.write("tools/more.lua", &ABOUT.replace("about", &version.replace('-', "_")));
        assert_eq!(stream.next(), Some(changed("tools")), "{version}");
    }
}
