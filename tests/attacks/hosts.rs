//! Requests that a page on the web makes a browser send: to a name that now leads
//! here, from an origin that is not ours. Nothing answers them, whatever the route.

use serde_json::json;

use crate::harness::{LOOK, Project, Server, modern};

/// Every route, with a body where it takes one.
pub const ROUTES: [(&str, &str); 21] = [
    ("GET", "/"),
    ("GET", "/health"),
    ("GET", "/ready"),
    ("GET", "/tools/list"),
    ("GET", "/tools/look"),
    ("POST", "/tools/look"),
    ("HEAD", "/tools/look"),
    ("GET", "/sources"),
    ("GET", "/runs"),
    ("GET", "/runs/01a1e35b-3919-778d-8969-b806cfe139e3"),
    ("GET", "/approvals"),
    ("GET", "/approvals/01a1e35b-3919-778d-8969-b806cfe139e3"),
    ("POST", "/approvals/01a1e35b-3919-778d-8969-b806cfe139e3/approve"),
    ("GET", "/openapi.json"),
    ("GET", "/metrics"),
    ("POST", "/mcp"),
    ("GET", "/mcp"),
    ("DELETE", "/mcp"),
    ("OPTIONS", "/tools/look"),
    ("GET", "/.well-known/oauth-protected-resource"),
    ("GET", "/nothing"),
];

fn project() -> Project {
    let config = "[tools.script.look]\npath = \"tools/look.lua\"\nallow = [\"fs:write\"]\n";
    Project::new(&[("moonlark.toml", config), ("tools/look.lua", LOOK)])
}

fn looked(project: &Project) -> usize {
    let entries = std::fs::read_dir(project.path("tools")).unwrap();
    entries.filter(|it| it.as_ref().unwrap().file_name() != "look.lua").count()
}

#[track_caller]
fn refused(server: &Server, forged: &[(&str, &str)], status: u16) {
    for (method, path) in ROUTES {
        let body = match (method, path) {
            ("POST", "/mcp") => modern(1, "tools/call", json!({"name": "look"})).to_string(),
            ("POST", _) => "{}".to_owned(),
            _ => String::new(),
        };
        let mut headers = vec![
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", "look"),
        ];
        headers.extend(forged);
        let answer = server.request(method, path, &headers, body.as_bytes());
        assert_eq!(answer.status, status, "{method} {path} {forged:?}: {}", answer.text());
        let cors = answer.headers.iter().find(|(name, _)| name.starts_with("access-control"));
        assert_eq!(cors, None, "{method} {path} {forged:?}");
    }
}

#[test]
fn no_route_answers_to_a_name_or_a_page_that_is_not_its_own() {
    let project = project();
    let server = project.serve();
    let port = server.address.split(':').nth(1).unwrap();
    for host in [
        "evil.example".to_owned(),
        format!("evil.example:{port}"),
        format!("127.0.0.1.evil.example:{port}"),
        format!("localhost.evil.example:{port}"),
        format!("0.0.0.0:{port}"),
        format!("10.0.0.1:{port}"),
        format!("[::ffff:7f00:1]:{port}"),
        "metadata.google.internal".to_owned(),
    ] {
        refused(&server, &[("Host", &host)], 403);
    }
    refused(&server, &[("Host", "[::1].evil.example")], 400);
    refused(&server, &[("Host", &server.address), ("Host", "evil.example")], 400);

    for origin in [
        "https://evil.example".to_owned(),
        format!("http://evil.example:{port}"),
        "null".to_owned(),
        // Another server of this machine is another origin.
        "http://127.0.0.1:1".to_owned(),
        "http://localhost:1".to_owned(),
        format!("http://127.0.0.1:{port}.evil.example"),
        format!("http://evil.example@127.0.0.1:{port}/"),
        "file://".to_owned(),
        "chrome-extension://abcdefgh".to_owned(),
    ] {
        refused(&server, &[("Origin", &origin)], 403);
        let asks = ("Access-Control-Request-Method", "POST");
        refused(&server, &[("Origin", &origin), asks], 403);
    }
    for site in ["cross-site", "same-site"] {
        refused(&server, &[("Sec-Fetch-Site", site)], 403);
    }
    assert_eq!(looked(&project), 0, "a tool was called");

    // Under its own name, all of that is there.
    for origin in [None, Some(format!("http://{}", server.address))] {
        let headers: Vec<(&str, &str)> = origin.iter().map(|it| ("Origin", it.as_str())).collect();
        assert_eq!(server.request("GET", "/tools/look", &headers, b"").status, 200);
    }
    assert_eq!(looked(&project), 2);
}

#[test]
fn a_request_line_with_a_name_of_its_own_does_not_get_around_that() {
    let project = project();
    let server = project.serve();
    let foreign = "http://evil.example/tools/look";
    let answer = server.request("GET", foreign, &[], b"");
    assert_eq!(answer.status, 400, "{}", answer.text());
    let answer = server.request("GET", foreign, &[("Host", "evil.example")], b"");
    assert_eq!(answer.status, 403, "{}", answer.text());
    assert_eq!(looked(&project), 0);
}
