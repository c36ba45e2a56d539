//! What belongs to whom: a session, a stream, an artifact, a run and an approval
//! are out of reach of every other caller, and a token of what is behind the server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::{OTHER, ask, ask_with, call, is, project, ran, token};
use crate::apis::shop::{ORDER, Shop};
use crate::attacks::{Provider, Signer};
use crate::harness::{PATIENCE, Project, Server, mcp, modern};

/// A call that its caller's user decides on.
const APPROVED: &str = "[[policy.rules]]\ntools = [\"other\"]\naction = \"approve\"\n\
                        [approvals]\nby = \"caller\"\n";

#[test]
fn a_session_is_of_whoever_began_it() {
    let project = project("");
    let (ann, bob) = (token(&project, "ann", &[]), token(&project, "bob", &[]));
    let server = project.serve();
    let accept = ("Accept", "application/json, text/event-stream");
    let send = |method: &str, token: &str, session: Option<&str>, body: &Value| {
        let mut more = vec![accept, ("MCP-Protocol-Version", "2025-06-18")];
        more.extend(session.map(|it| ("Mcp-Session-Id", it)));
        ask_with(&server, method, "/mcp", Some(token), &more, body.to_string().as_bytes())
    };
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "suite", "version": "1"},
    }});
    let begun = send("POST", &ann, None, &hello);
    assert_eq!(begun.status, 200, "{}", begun.text());
    let session = begun.header("mcp-session-id").unwrap();
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(send("POST", &ann, Some(session), &ready).status, 202);
    let whoami =
        json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "whoami"}});
    let by_ann = send("POST", &ann, Some(session), &whoami).text();
    assert!(by_ann.contains("\"ann\""), "{by_ann}");
    for (method, body) in
        [("POST", &whoami), ("POST", &ready), ("GET", &Value::Null), ("DELETE", &Value::Null)]
    {
        let by_bob = send(method, &bob, Some(session), body);
        assert_eq!(by_bob.status, 404, "{method} {body}: {}", by_bob.text());
    }
    // It is still there, for who began it.
    let by_ann = send("POST", &ann, Some(session), &whoami).text();
    assert!(by_ann.contains("\"ann\""), "{by_ann}");
    assert_eq!(send("DELETE", &ann, Some(session), &Value::Null).status, 204);
    assert_eq!(send("POST", &ann, Some(session), &whoami).status, 404);
}

#[test]
fn an_open_stream_ends_when_its_token_is_taken_back() {
    let project = project("");
    let (ann, bob) = (token(&project, "ann", &[]), token(&project, "bob", &[]));
    let server = project.serve();
    let mut streams = [&ann, &bob].map(|token| listen(&server, token));
    ran(&project, &["token", "remove", "ann"]);
    let mut rest = Vec::new();
    streams[0].read_to_end(&mut rest).expect("the stream ends");
    // The other one is told of what changes from now on.
    project.write("tools/new.lua", &OTHER.replace("other", "new"));
    read_until(&mut streams[1], "notifications/tools/list_changed");
    assert!(!String::from_utf8_lossy(&rest).contains("list_changed"));
}

#[test]
fn an_open_stream_ends_when_the_token_of_a_provider_expires() {
    let signer = Signer::ed25519("key");
    let provider = Provider::open(&[&signer]);
    let config = format!(
        "[server.auth]\nissuer = \"{}\"\naudience = [\"moonlark\"]\n[tools.script.slow]\npath = \"tools/slow.lua\"\ntimeout = 300\n",
        provider.url()
    );
    let project = project(&config);
    project.write("tools/slow.lua", SLOW);
    let server = project.serve();
    let signed = |counts_for: u64| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        // Clocks may differ by a minute, so it counts that much longer.
        let claims = json!({
            "iss": provider.url(), "aud": "moonlark", "sub": "ann", "exp": now - 60 + counts_for,
        });
        signer.sign("EdDSA", &claims)
    };
    let long = signed(600);
    assert_eq!(call(&server, "whoami", Some(&long)), is("ann"));
    let (begun, session) = old_session(&server, &long);
    assert_eq!(begun, 200);
    let mut stays = listen(&server, &long);

    let short = signed(8);
    let slow = "POST /tools/slow HTTP/1.1\r\nAccept: text/event-stream\r\n";
    let old = format!(
        "GET /mcp HTTP/1.1\r\nAccept: text/event-stream\r\nMCP-Protocol-Version: 2025-06-18\r\nMcp-Session-Id: {session}\r\n"
    );
    let streams = [
        ("subscriptions/listen", listen(&server, &short)),
        ("GET of an old client", opened(&server, &short, &old, "", "text/event-stream")),
        ("events of REST", opened(&server, &short, slow, "{}", "begun")),
    ];
    for (what, mut stream) in streams {
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap_or_else(|it| panic!("{what} goes on: {it}"));
        assert!(!String::from_utf8_lossy(&rest).contains("\"done\""), "{what}");
    }
    assert_eq!(call(&server, "whoami", Some(&short)).0, 401);

    // Whoever comes back with another one goes on where it was.
    opened(&server, &long, &old, "", "text/event-stream");
    project.write("tools/new.lua", &OTHER.replace("other", "new"));
    read_until(&mut stays, "notifications/tools/list_changed");
}

/// Says that it has begun, and then nothing for minutes.
const SLOW: &str = r#"
tool = { name = "slow", description = "Takes its time" }
function tool.execute()
    log.info("begun")
    sleep(290)
    return "done"
end
"#;

/// The session of an older client: how the server took it, and its name.
fn old_session(server: &Server, token: &str) -> (u16, String) {
    let more =
        [("Accept", "application/json, text/event-stream"), ("MCP-Protocol-Version", "2025-06-18")];
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "suite", "version": "1"},
    }});
    let begun = ask_with(server, "POST", "/mcp", Some(token), &more, hello.to_string().as_bytes());
    let session = begun.header("mcp-session-id").unwrap_or_default().to_owned();
    let ready = json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string();
    let more = [more[0], more[1], ("Mcp-Session-Id", session.as_str())];
    assert_eq!(ask_with(server, "POST", "/mcp", Some(token), &more, ready.as_bytes()).status, 202);
    (begun.status, session)
}

/// A stream of what changes, open.
fn listen(server: &Server, token: &str) -> TcpStream {
    let body =
        modern(1, "subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    let head = "POST /mcp HTTP/1.1\r\nAccept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\n";
    opened(server, token, head, &body.to_string(), "notifications/subscriptions/acknowledged")
}

/// A stream that has said so much, and goes on.
pub fn opened(server: &Server, token: &str, head: &str, body: &str, said: &str) -> TcpStream {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let request = format!(
        "{head}Host: {}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        server.address,
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    read_until(&mut stream, said);
    stream
}

#[track_caller]
fn read_until(stream: &mut TcpStream, said: &str) {
    let mut text = String::new();
    while !text.contains(said) {
        let mut part = [0; 1024];
        let read = stream.read(&mut part).unwrap();
        assert!(read > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&part[..read]));
    }
}

#[test]
fn a_token_goes_no_further_than_the_server() {
    let shop = Shop::open();
    let project = Project::new(&[
        ("moonlark.toml", "[apis.shop]\nspec = \"shop.yaml\"\nexpose = \"both\"\n"),
        ("shop.yaml", &shop.document()),
        ("parts/order.yaml", ORDER),
    ]);
    let ann = token(&project, "ann", &[]);
    let server = project.serve();
    let bearer = format!("Bearer {ann}");
    let by_mcp = || {
        let params = json!({"name": "shop__listOrders", "arguments": {}});
        mcp(&server.address, &[("Authorization", &bearer)], "tools/call", params)
    };
    let answer = by_mcp();
    assert!(answer.to_string().contains("tea"), "{answer}");
    let script = json!({"script": "return sdk.shop.listOrders({})"}).to_string();
    let ran = ask_with(&server, "POST", "/tools/execute", Some(&ann), &[], script.as_bytes());
    assert!(ran.text().contains("tea"), "{}", ran.text());
    assert_eq!(shop.seen().len(), 2);
    for arrived in shop.seen() {
        let all = format!("{arrived:?}");
        assert!(!all.contains(&ann) && !arrived.headers.contains_key("authorization"), "{all}");
    }
}

#[test]
fn an_artifact_is_of_whoever_it_was_made_for() {
    let project = project(
        "[limits]\nresult = \"1KB\"\n[tools.script.other]\npath = \"tools/other.lua\"\nexpose = \"code\"\n",
    );
    let (ann, bob) = (token(&project, "ann", &[]), token(&project, "bob", &[]));
    let server = project.serve();
    let run = |token: &str, script: &str| {
        let body = json!({ "script": script }).to_string();
        ask_with(&server, "POST", "/tools/execute", Some(token), &[], body.as_bytes()).text()
    };
    let kept = run(&ann, "return string.rep('x', 5000)");
    let at = kept.find("art_").unwrap_or_else(|| panic!("{kept}"));
    let handle = &kept[at..at + 30];
    let read = format!("return #artifact({handle:?})");
    assert!(run(&ann, &read).contains("5000"), "{}", run(&ann, &read));
    assert!(run(&bob, &read).contains("there is no artifact"), "{}", run(&bob, &read));
    let by_mcp = |token: &str| {
        let bearer = format!("Bearer {token}");
        let uri = json!({"uri": format!("artifact://{handle}")});
        mcp(&server.address, &[("Authorization", &bearer)], "resources/read", uri).to_string()
    };
    assert!(by_mcp(&ann).contains("xxxx"), "{}", by_mcp(&ann));
    assert!(by_mcp(&bob).contains("there is no artifact"), "{}", by_mcp(&bob));
}

#[test]
fn a_call_that_waits_for_its_client_goes_on_for_nobody_else() {
    let project = project(APPROVED);
    let (ann, bob) = (token(&project, "ann", &[]), token(&project, "bob", &[]));
    let server = project.serve();
    let send = |token: &str, state: Option<&str>| {
        let mut message = modern(1, "tools/call", json!({"name": "other", "arguments": {}}));
        let params = &mut message["params"];
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
            json!({"elicitation": {"form": {}}});
        let more = [
            ("Accept", "application/json, text/event-stream"),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", "other"),
        ];
        if let Some(state) = state {
            params["requestState"] = json!(state);
            let yes = json!({"action": "accept", "content": {"approve": true}});
            params["inputResponses"] = json!({"approval": yes, "input_1": yes});
        }
        let body = message.to_string();
        let answer = ask_with(&server, "POST", "/mcp", Some(token), &more, body.as_bytes());
        let text = answer.text();
        let data = text.lines().filter_map(|line| line.strip_prefix("data: ")).next_back();
        serde_json::from_str::<Value>(data.unwrap_or(&text)).unwrap_or_else(|_| panic!("{text}"))
    };
    let asked = send(&ann, None);
    let state = asked["result"]["requestState"].as_str().unwrap_or_else(|| panic!("{asked}"));
    let stolen = send(&bob, Some(state));
    assert!(stolen.to_string().contains("requestState belongs to no call"), "{stolen}");
}

#[test]
fn runs_and_approvals_are_of_their_callers_and_operators_decide() {
    let project = project(APPROVED);
    let (ann, bob) = (token(&project, "ann", &[]), token(&project, "bob", &[]));
    let boss = token(&project, "boss", &["--operator"]);
    let server = project.serve();
    let (status, asked) = call(&server, "other", Some(&ann));
    assert_eq!(status, 202, "{asked}");
    let id = asked["approval"]["id"].as_str().unwrap();
    let path = format!("/approvals/{id}");
    let count = |token: &str| {
        let listed = ask(&server, "GET", "/approvals", Some(token)).json();
        listed["approvals"].as_array().unwrap_or_else(|| panic!("{listed}")).len()
    };
    assert_eq!((count(&ann), count(&bob), count(&boss)), (1, 0, 1));
    assert_eq!(ask(&server, "GET", &path, Some(&bob)).status, 404);
    assert_eq!(ask(&server, "GET", &path, Some(&ann)).status, 200);
    let approve = format!("{path}/approve");
    assert_eq!(ask(&server, "POST", &approve, Some(&bob)).status, 403);
    assert_eq!(ask(&server, "POST", &approve, Some(&ann)).status, 403);
    // The token of the approval is of whoever made the call.
    let secret = asked["approval"]["token"].as_str().unwrap();
    let header = [("Moonlark-Approval", secret)];
    let stolen = ask_with(&server, "POST", "/tools/other", Some(&bob), &header, b"{}");
    assert_ne!(stolen.status, 200, "{}", stolen.text());

    let decided = ask(&server, "POST", &approve, Some(&boss));
    assert_eq!(decided.status, 200, "{}", decided.text());
    assert_eq!(call(&server, "other", Some(&bob)).0, 202, "decided for another");
    assert_eq!(call(&server, "other", Some(&ann)), is("other"));
    assert_eq!(call(&server, "other", Some(&ann)).0, 202, "decided once");

    let body = json!({"script": "return 1"}).to_string();
    let ran = ask_with(&server, "POST", "/tools/execute", Some(&ann), &[], body.as_bytes());
    assert_eq!(ran.status, 200, "{}", ran.text());
    let runs = |token: &str| {
        let listed = ask(&server, "GET", "/runs", Some(token)).json();
        listed["runs"].as_array().unwrap_or_else(|| panic!("{listed}")).clone()
    };
    assert_eq!((runs(&ann).len(), runs(&bob).len(), runs(&boss).len()), (1, 0, 1));
    let run = format!("/runs/{}", runs(&ann)[0]["id"].as_str().unwrap());
    assert_eq!(ask(&server, "GET", &run, Some(&bob)).status, 404);
    assert_eq!(ask(&server, "GET", &run, Some(&boss)).status, 200);
    let body = json!({"resume": runs(&ann)[0]["id"]}).to_string();
    let stolen = ask_with(&server, "POST", "/tools/execute", Some(&bob), &[], body.as_bytes());
    assert_ne!(stolen.status, 200, "{}", stolen.text());
}
