//! What it lists: its tools, or what no list should be.

use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use crate::calls;
use crate::server::{Reply, Server};

/// Tools on one page of long lists.
const PAGE: usize = 500;
/// Pages of the list of 10,000.
const PAGES: usize = 20;

pub fn page(server: &Server, cursor: Option<&str>) -> Reply {
    let number: usize = cursor.and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
    let next = (number + 1).to_string();
    let numbered = || (number * PAGE..(number + 1) * PAGE).map(|n| tool(&format!("tool_{n:05}")));
    Reply::Result(match server.mode.as_str() {
        "many" if number + 1 < PAGES => {
            json!({"tools": numbered().collect::<Value>(), "nextCursor": next})
        }
        "many" => json!({"tools": numbered().collect::<Value>()}),
        "endless_pages" => json!({"tools": numbered().collect::<Value>(), "nextCursor": next}),
        "empty_pages" => json!({"tools": [], "nextCursor": next}),
        "same_cursor" => json!({"tools": [tool("echo")], "nextCursor": "again"}),
        "huge_list" => {
            let mut tool = tool("echo");
            tool["description"] = json!("x".repeat(100_000_000));
            json!({"tools": [tool]})
        }
        "list_text" => json!({"tools": "none"}),
        "list_fails" => return Reply::Refused(-32603, "the list is locked".to_owned()),
        "list_silent" => return Reply::Silence,
        "odd_tools" => json!({"tools": odd_tools()}),
        _ => json!({"tools": own_tools(server)}),
    })
}

fn tool(name: &str) -> Value {
    let description = format!("The tool {name}.");
    json!({"name": name, "description": description, "inputSchema": {"type": "object"}})
}

fn own_tools(server: &Server) -> Value {
    let removed = server.removed.lock().unwrap();
    let added = (1..=server.added.load(Ordering::SeqCst)).map(|n| format!("added_{n}"));
    let own = calls::TOOLS.iter().chain(server.faults).map(|name| (*name).to_owned());
    own.chain(added).filter(|name| !removed.contains(name)).map(|name| described(&name)).collect()
}

fn described(name: &str) -> Value {
    let mut tool = tool(name);
    if name.starts_with("read_") {
        tool["annotations"] = json!({"readOnlyHint": true});
    }
    if name == "wrong_output" {
        tool["outputSchema"] =
            json!({"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]});
    }
    tool
}

/// Between two that are fine, everything that a list may hold and should not.
/// `REMOTE` is an address that nobody may ask for a schema.
fn odd_tools() -> Value {
    let remote = std::env::var("REMOTE").unwrap_or_else(|_| "http://127.0.0.1:9".to_owned());
    let input = |name: &str, schema: Value| {
        let mut tool = json!({"name": name});
        tool["inputSchema"] = schema;
        tool
    };
    let output = |name: &str, schema: Value| {
        let mut tool = tool(name);
        tool["outputSchema"] = schema;
        tool
    };
    json!([
        tool("first"),
        // Schemas that lead back to themselves, elsewhere, or very far down.
        input("refers_to_itself", json!({"$ref": "#"})),
        input(
            "cycle",
            json!({
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/a"}},
                "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
            })
        ),
        input(
            "tree",
            json!({
                "type": "object",
                "properties": {"node": {"$ref": "#/$defs/node"}},
                "$defs": {"node": {
                    "type": "object",
                    "properties": {"next": {"$ref": "#/$defs/node"}, "value": {"type": "number"}},
                    "required": ["value"],
                }},
            })
        ),
        input(
            "remote",
            json!({"type": "object", "properties": {"a": {"$ref": format!("{remote}/schema.json")}}})
        ),
        input("remote_whole", json!({"$ref": format!("{remote}/schema.json")})),
        input("remote_dialect", json!({"$schema": format!("{remote}/dialect"), "type": "object"})),
        input(
            "local_file",
            json!({"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}})
        ),
        input("dangling", json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}})),
        input("deep", deep(1000)),
        // Schemas that are none.
        json!({"name": "input_missing"}),
        input("input_null", json!(null)),
        input("input_true", json!(true)),
        input("input_text", json!("object")),
        input("input_array", json!({"type": "array"})),
        input("input_untyped", json!({"properties": {"a": {"type": "string"}}})),
        input("input_unknown_type", json!({"type": "objekt"})),
        input(
            "input_bad_pattern",
            json!({"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}})
        ),
        input("input_bad_properties", json!({"type": "object", "properties": ["a"]})),
        output("output_true", json!(true)),
        output("output_null", json!(null)),
        output("output_text", json!("object")),
        output("output_unknown_type", json!({"type": "objekt"})),
        // Names.
        json!({"description": "It has no name.", "inputSchema": {"type": "object"}}),
        json!({"name": null, "inputSchema": {"type": "object"}}),
        json!({"name": 5, "inputSchema": {"type": "object"}}),
        tool(""),
        tool("twin"),
        tool("twin"),
        tool("with space"),
        tool("a/b"),
        tool("a.b"),
        tool("../up"),
        tool("käse🌙"),
        tool("new\nline"),
        tool("nul\u{0}byte"),
        tool(&"x".repeat(300)),
        tool("__index"),
        tool("end"),
        // The rest of a tool.
        json!({"name": "description_null", "description": null, "inputSchema": {"type": "object"}}),
        json!({"name": "description_number", "description": 5, "inputSchema": {"type": "object"}}),
        json!({"name": "annotations_text", "annotations": "x", "inputSchema": {"type": "object"}}),
        // No tool at all.
        5,
        null,
        "text",
        [],
        tool("last"),
    ])
}

/// A schema of objects in objects. Not by `json!`, which copies what it is given.
fn deep(levels: usize) -> Value {
    (0..levels).fold(json!({"type": "object"}), |inner, _| {
        let mut outer = json!({"type": "object", "properties": {}});
        outer["properties"]["a"] = inner;
        outer
    })
}
