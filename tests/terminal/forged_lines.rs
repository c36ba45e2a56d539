//! Names, titles, descriptions, errors and scripts that try to begin a line of their
//! own, in what commands print and in the server's log: a person would take it for
//! Moonlark's.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};

use serde_json::{Value, json};

use crate::harness::{Project, mcp, serve_inside};

/// Everything that ends a line for somebody.
const LINE_ENDS: [&str; 8] =
    ["\n", "\r\n", "\r", "\u{b}", "\u{c}", "\u{85}", "\u{2028}", "\u{2029}"];

/// What a forged line begins with.
const FORGED: &str = "FORGED";

/// `what`, and a forged line after every kind of line end.
fn hostile(what: &str) -> String {
    let forged = LINE_ENDS.map(|end| format!("{end}{FORGED} after {what}"));
    format!("{what}{}", forged.concat())
}

/// No line of `text` is a forged one. Text with lines of its own stands below the line
/// it belongs to, further to the right than anything that Moonlark writes.
#[track_caller]
fn holds(what: &str, text: &str) {
    let lines = text.split(['\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}']);
    for line in lines {
        let is_indented = line.starts_with("    ");
        assert!(
            is_indented || !line.trim_start().starts_with(FORGED),
            "{what} has a forged line, {line:?}:\n{text}"
        );
    }
}

/// An MCP server that forges wherever it can.
async fn answer(State(()): State<()>, Json(message): Json<Value>) -> Response {
    let Some(id) = message.get("id") else { return StatusCode::ACCEPTED.into_response() };
    let result = match message["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}, "prompts": {}, "resources": {}},
            "serverInfo": {"name": hostile("server"), "title": hostile("title"), "version": hostile("1")},
            "instructions": hostile("instructions"),
        }),
        "tools/list" => {
            let schema = json!({"type": "object", "properties": {
                "text": {"type": "string", "description": hostile("parameter")},
                hostile("odd"): {"type": "string", "description": "x"},
            }});
            let tool = |name: &str| {
                json!({
                    "name": name,
                    "title": hostile("Pay"),
                    "description": hostile("Pays somebody"),
                    "inputSchema": schema,
                    "annotations": {"destructiveHint": true, "title": hostile("annotation")},
                })
            };
            json!({"tools": [tool("pay"), tool(&hostile("steal"))]})
        }
        "prompts/list" => {
            json!({"prompts": [{"name": hostile("prompt"), "description": hostile("p")}]})
        }
        "resources/list" => json!({"resources": [{"uri": "x://y", "name": hostile("resource")}]}),
        "resources/templates/list" => json!({"resourceTemplates": []}),
        "tools/call" => {
            json!({"content": [{"type": "text", "text": hostile("refused")}], "isError": true})
        }
        _ => {
            let error = json!({"code": -32601, "message": hostile("no such method")});
            return Json(json!({"jsonrpc": "2.0", "id": id, "error": error})).into_response();
        }
    };
    Json(json!({"jsonrpc": "2.0", "id": id, "result": result})).into_response()
}

fn project(address: &std::net::SocketAddr) -> Project {
    let config = format!(
        "[server]\nport = 0\n\
         [mcp_servers.shop]\nurl = \"http://{address}/\"\n\
         [mcp_servers.dead]\nurl = \"http://127.0.0.1:1/\"\n\
         [connectors.filesystem.docs]\nroot = \"docs\"\n\
         [[policy.rules]]\ntools = [\"wipe\", \"shop.pya\"]\naction = \"approve\"\n"
    );
    let wipe = r#"
tool = {
  name = "wipe",
  description = "Wipe all\nFORGED description",
  annotations = { destructive = true },
}
function tool.execute()
  log.warn("a\nFORGED log\r\nFORGED\u{2028}FORGED")
  error("no\nFORGED error\n  --> FORGED place")
end"#;
    Project::new(&[
        ("moonlark.toml", &config),
        ("tools/wipe.lua", wipe),
        ("tools/broken.lua", "error('no\\nFORGED load')"),
        ("docs/a.md", &format!("# {}\n\nwords about deployment\n", hostile("title"))),
        ("fails.luau", "log.info('a\\nFORGED log') return sdk.shop.pay({ text = 'x' })"),
        ("good.luau", "print('a\\nFORGED print') return 1"),
    ])
}

#[test]
fn nothing_from_outside_begins_a_line_of_its_own() {
    let router = Router::new().route("/", post(answer)).with_state(());
    let (address, _ends) = serve_inside(router);
    let project = project(&address);
    let server = project.serve();
    let info = json!({"_meta": {"io.modelcontextprotocol/clientInfo": {"name": hostile("client"), "version": hostile("1")}}});
    let steal = format!("shop.{}", hostile("steal"));
    for (tool, args) in [
        (
            "execute",
            json!({"script": format!("-- {}\nFORGED = 1 error('a\\nFORGED')", hostile("script"))}),
        ),
        ("execute", json!({"script": "return 'a\\nFORGED result'"})),
        ("wipe", json!({hostile("key"): hostile("value")})),
        ("wipe", json!({})),
        ("shop.pay", json!({"text": hostile("value")})),
    ] {
        let mut params = info.clone();
        params["name"] = json!(tool);
        params["arguments"] = args;
        mcp(&server.address, &[], "tools/call", params);
    }
    let odd = hostile("odd");
    let commands: &[&[&str]] = &[
        &["sync"],
        &["runs"],
        &["runs", "--calls"],
        &["approvals"],
        &["approvals", "list", "--all"],
        &["sources"],
        &["tool", "list"],
        &["docs"],
        &["docs", "shop.pay"],
        &["search-tools"],
        &["search-tools", "--source", "shop"],
        &["search-tools", "pay somebody"],
        &["search", "deployment"],
        &["call", "wipe"],
        &["call", "shop.pay", "text=x"],
        &["call", &steal],
        &["call", &odd],
        &["call", "shop.pay", &odd],
        &["run", "fails.luau"],
        &["run", "good.luau"],
        &["policy", "explain", "shop.pay"],
        &["policy", "explain", &steal],
        &["policy", "explain", &odd],
        &["policy", "explain", "wipe", "--caller", &odd],
        &["doctor"],
        &["check"],
        &["connector", "list"],
        &["runs", &odd],
        &["approvals", "show", &odd],
    ];
    let mut shown = 0;
    for standalone in [false, true] {
        for args in commands {
            let mut args = args.to_vec();
            args.extend(standalone.then_some("--standalone"));
            let output = project.run(&args);
            for bytes in [&output.stdout, &output.stderr] {
                let text = String::from_utf8(bytes.clone()).unwrap();
                // The page of one tool has its whole description, with its lines.
                let is_page = args.first() == Some(&"docs") && args.len() > 1;
                if !is_page || !text.contains("Pays somebody") {
                    holds(&format!("{args:?}"), &text);
                }
                shown += usize::from(text.contains(FORGED));
            }
        }
    }
    // It is shown, not left out.
    assert!(shown > 20, "{shown}");
    let runs: Value = serde_json::from_slice(&project.run(&["runs", "--json"]).stdout).unwrap();
    for run in runs["runs"].as_array().unwrap() {
        let id = run["id"].as_str().unwrap();
        holds(id, &String::from_utf8(project.run(&["runs", id]).stdout).unwrap());
    }
    let asked = project.run(&["approvals", "--json"]);
    let asked: Value = serde_json::from_slice(&asked.stdout).unwrap();
    for approval in asked["approvals"].as_array().unwrap() {
        let id = approval["id"].as_str().unwrap();
        holds(id, &String::from_utf8(project.run(&["approvals", "show", id]).stdout).unwrap());
    }
    holds("the log", &server.stop_and_read_log());
}
