//! No caller uses up what all share, and none is shown what another was answered.

use std::net::TcpStream;

use serde_json::{Value, json};

use super::whose::opened;
use super::{ask_with, ran, token};
use crate::harness::{Answer, Project, Server};

const NAP: &str = r#"
tool = { name = "nap", description = "Sleep a little", parameters = {} }
function tool.execute() sleep(0.3) return "awake" end
"#;
const OWN: &str = r#"
tool = { name = "own", description = "What is yours", parameters = {}, annotations = { read_only = true } }
function tool.execute(params, context)
    return { [context.caller.name .. "_private_project"] = 1 }
end
"#;

fn project() -> Project {
    let config = "[tools.script.own]\npath = 'tools/own.lua'\nexpose = 'both'\n";
    Project::new(&[("moonlark.toml", config), ("tools/nap.lua", NAP), ("tools/own.lua", OWN)])
}

/// A message of an old client, with a session or without.
fn send(server: &Server, token: &str, session: Option<&str>, message: &Value) -> Answer {
    let bearer = format!("Bearer {token}");
    let mut headers = vec![
        ("Content-Type", "application/json"),
        ("Accept", "application/json, text/event-stream"),
        ("Authorization", &bearer),
    ];
    headers.extend(session.map(|session| ("Mcp-Session-Id", session)));
    server.request("POST", "/mcp", &headers, message.to_string().as_bytes())
}

fn begin(server: &Server, token: &str) -> Answer {
    let params = json!({
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    });
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    send(server, token, None, &message)
}

fn session_of(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.header("mcp-session-id").unwrap().to_owned()
}

#[test]
fn a_caller_who_opens_many_sessions_closes_its_own() {
    let project = project();
    let (alice, bob) = (token(&project, "alice", &[]), token(&project, "bob", &[]));
    let server = project.serve();
    let hers = session_of(&begin(&server, &alice));
    let first = session_of(&begin(&server, &bob));
    for _ in 0..100 {
        session_of(&begin(&server, &bob));
    }
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    // His oldest made room. It is taken up again when he uses it, and another one goes.
    assert_eq!(send(&server, &bob, Some(&first), &ping).status, 200);
    assert_eq!(send(&server, &alice, Some(&hers), &ping).status, 200);
    session_of(&begin(&server, &alice));
}

#[test]
fn a_caller_whose_sessions_are_all_in_use_is_told_when_to_try_again_and_others_get_in() {
    let project = project();
    let (alice, bob) = (token(&project, "alice", &[]), token(&project, "bob", &[]));
    let server = project.serve();
    let sessions: Vec<String> = (0..100).map(|_| session_of(&begin(&server, &bob))).collect();
    // A stream in each: none of them can make room.
    let mut streams: Vec<TcpStream> = sessions
        .iter()
        .map(|session| {
            let head = format!(
                "GET /mcp HTTP/1.1\r\nAccept: text/event-stream\r\nMcp-Session-Id: {session}\r\n"
            );
            opened(&server, &bob, &head, "", "text/event-stream")
        })
        .collect();
    let refused = begin(&server, &bob);
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert_eq!(refused.header("retry-after"), Some("30"));
    let error = &refused.json()["error"];
    assert_eq!(
        (&error["code"], &error["message"], &error["hint"]),
        (
            &json!("unavailable"),
            &json!("too many sessions are open and in use, of this caller or of all"),
            &json!("end sessions that are no longer needed with DELETE, or try again later"),
        ),
        "{error}"
    );
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"});
    let hers = session_of(&begin(&server, &alice));
    assert_eq!(send(&server, &alice, Some(&hers), &ping).status, 200);
    assert_eq!(send(&server, &bob, Some(&sessions[0]), &ping).status, 200);
    // One that is not in use any more makes room.
    drop(streams.pop());
    crate::harness::eventually("room for one more session", || {
        let answer = begin(&server, &bob);
        if answer.status == 200 { Ok(()) } else { Err(answer.text()) }
    });
}

#[test]
fn requests_of_a_session_with_one_id_are_all_answered() {
    let project = project();
    let alice = token(&project, "alice", &[]);
    let server = project.serve();
    let session = session_of(&begin(&server, &alice));
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(send(&server, &alice, Some(&session), &initialized).status, 202);
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "nap", "arguments": {}}});
    let answers: Vec<String> = std::thread::scope(|scope| {
        let ask = || send(&server, &alice, Some(&session), &call).text();
        let asking: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        asking.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let made = answers.iter().filter(|it| it.contains("awake")).count();
    let refused = answers.iter().filter(|it| it.contains("-32600")).count();
    assert!(made >= 1 && made + refused == 8, "{answers:?}");
    // The id is free again afterwards.
    let again = send(&server, &alice, Some(&session), &call).text();
    assert!(again.contains("awake"), "{again}");
}

#[test]
fn what_one_caller_was_answered_is_not_in_what_another_reads() {
    let project = project();
    let (alice, bob) = (token(&project, "alice", &[]), token(&project, "bob", &[]));
    let server = project.serve();
    let post = |token: &str, tool: &str, args: Value| {
        let path = format!("/tools/{tool}");
        let headers = [("Content-Type", "application/json")];
        let body = args.to_string();
        let answer = ask_with(&server, "POST", &path, Some(token), &headers, body.as_bytes());
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.text()
    };
    let docs = |token: &str| {
        let docs = post(token, "get_function_docs", json!({"names": ["tools.own"]}));
        docs + &post(token, "search_docs", json!({"query": "What is yours"}))
    };
    for _ in 0..30 {
        post(&alice, "own", json!({}));
    }
    assert!(docs(&alice).contains("alice_private_project"), "{}", docs(&alice));
    assert!(!docs(&bob).contains("alice"), "{}", docs(&bob));
    post(&bob, "own", json!({}));
    assert!(docs(&bob).contains("bob_private_project"), "{}", docs(&bob));
    assert!(!docs(&bob).contains("alice"), "{}", docs(&bob));
}

#[test]
fn a_token_for_execute_lists_it_and_a_slip_in_a_pattern_is_said() {
    let project = Project::new(&[("tools/nap.lua", NAP)]);
    let output = project.run(&["token", "add", "bad", "--tools", "nope.*", "--tools", "npa"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("no tool matches nope.*"), "{said}");
    assert!(said.contains("no tool matches npa; did you mean nap?"), "{said}");
    ran(&project, &["token", "remove", "bad"]);
    let ci = token(&project, "ci", &["--tools", "nap", "--tools", "execute"]);
    let server = project.serve();
    let bearer = format!("Bearer {ci}");
    let headers = [("Authorization", bearer.as_str())];
    let listed = crate::harness::mcp(&server.address, &headers, "tools/list", json!({}));
    let tools = listed["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["execute", "nap"], "{listed}");
}
