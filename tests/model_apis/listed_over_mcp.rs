//! The same by the real binary: a server with everything that was ever refused, and a
//! script with a dot in its name.

use serde_json::{Value as Json, json};

use super::{map, refusals};
use crate::harness::{Project, Server, mcp, modern, wait_for};
use crate::source_settings::source;
use crate::source_settings::tiny::Tiny;

const LONG: &str = "actions/get-github-actions-permissions-selected-repositories-enterprise";

const CONFIG: &str = r#"
[server]
SWITCH
[mcp_servers.odd]
url = "URL"
expose = "direct"
"#;

const MOVE: &str = r#"
tool = {
    name = "notes.move",
    description = "Move a note.",
    parameters = {
        { name = "note", type = "string", required = true },
        { name = "to", type = "string", default = "inbox" },
        { name = "options", type = "object", properties = { { name = "quiet", type = "boolean" } } },
    },
}
function tool.execute(params)
    return { note = params.note, to = params.to, options = json.encode(params.options or {}) }
end
"#;

fn tools() -> Json {
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "page[size]": {"type": "integer"},
            "$filter": {"type": ["string", "null"]},
            "tree": {"$ref": "#/$defs/node"},
            "to": {"type": "string", "format": "email"},
            "any": {"description": "Anything"},
            "list": {"type": "array"},
            "level": {"enum": [1, 2]},
        },
        "oneOf": [{"required": ["page[size]"]}, {"required": ["tree"]}],
        "$defs": {"node": {"type": "object", "properties": {
            "_id": {"type": "string"}, "next": {"$ref": "#/$defs/node"},
        }}},
    });
    json!([
        {"name": "files.read", "description": "Reads.", "inputSchema": schema},
        {"name": LONG, "description": "Says.", "inputSchema": {"type": "object"}},
    ])
}

fn project(tiny: &Tiny, switch: &str) -> Project {
    let config = CONFIG.replace("URL", &tiny.url()).replace("SWITCH", switch);
    Project::new(&[("moonlark.toml", &config), ("tools/move.luau", MOVE)])
}

fn listed(server: &Server) -> Vec<(String, Json)> {
    source(server, "odd");
    let answer = server.mcp("tools/list", json!({}));
    let tools = answer["result"]["tools"].as_array().unwrap();
    let named = |it: &Json| (it["name"].as_str().unwrap().to_owned(), it["inputSchema"].clone());
    let mut named: Vec<(String, Json)> = tools.iter().map(named).collect();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    named
}

fn call(server: &Server, name: &str, arguments: Json) -> Json {
    server.mcp("tools/call", json!({"name": name, "arguments": arguments}))["result"].clone()
}

#[test]
fn what_a_client_is_told_is_taken_by_all_and_what_it_sends_is_understood() {
    let tiny = Tiny::open(tools(), json!([]));
    let project = project(&tiny, "");
    let server = project.serve();
    let tools = listed(&server);
    let names: Vec<&str> = tools.iter().map(|(name, _)| name.as_str()).collect();
    let long = "odd__actions_get-github-actions-permissi_c3cd070b";
    assert_eq!(names, ["notes_move", long, "odd__files_read"]);
    for (name, schema) in &tools {
        assert_eq!(refusals(name, &map(schema)), [""; 0]);
    }
    // By every name, with the keys that were listed or those of the server.
    for name in ["odd__files_read", "odd__files.read", "odd.files.read"] {
        for arguments in [
            json!({"page_size": 2, "tree": {"id": "x", "next": {"id": "y"}}, "filter": null}),
            json!({"page[size]": 2, "tree": {"_id": "x", "next": {"_id": "y"}}, "$filter": null}),
        ] {
            // Only one of the two may be given, which is what the exact schema says.
            let both = call(&server, name, arguments.clone());
            assert_eq!(both["isError"], true, "{both}");
            let mut one = arguments;
            one.as_object_mut().unwrap().shift_remove("page_size");
            one.as_object_mut().unwrap().shift_remove("page[size]");
            let ended = call(&server, name, one);
            assert_ne!(ended["isError"], true, "{ended}");
            let sent = tiny.last_call();
            assert_eq!(sent["name"], "files.read");
            let expected = json!({"tree": {"_id": "x", "next": {"_id": "y"}}, "$filter": null});
            assert_eq!(sent["arguments"], expected);
        }
    }
    assert_ne!(call(&server, long, json!({}))["isError"], true);
    assert_eq!(tiny.last_call()["name"], LONG);
}

#[test]
fn nulls_for_what_is_left_out_reach_no_tool() {
    let tiny = Tiny::open(tools(), json!([]));
    let project = project(&tiny, "");
    let server = project.serve();
    source(&server, "odd");
    // As frameworks fill them in, at every way in.
    let nulls = json!({"page_size": 1, "to": null, "list": null, "level": null, "filter": null,
        "tree": null, "any": null});
    call(&server, "odd__files_read", nulls);
    assert_eq!(
        tiny.last_call()["arguments"],
        json!({"page[size]": 1, "$filter": null, "any": null})
    );
    let arguments = json!({"note": "a", "to": null, "options": {"quiet": null}});
    let moved = json!({"note": "a", "to": "inbox", "options": "{}"});
    let ended = call(&server, "notes_move", arguments.clone());
    assert_eq!(ended["structuredContent"], moved);
    let (status, answer) = server.post("notes.move", &arguments);
    assert_eq!((status, &answer["result"]), (200, &moved), "{answer}");
    let script = "return sdk.tools.notes_move({ note = 'a', to = json.null, options = { quiet = json.null } })";
    let (status, answer) = server.post("execute", &json!({ "script": script }));
    assert_eq!((status, &answer["result"]), (200, &moved), "{answer}");
    let missing = call(&server, "notes_move", json!({"note": null}));
    assert_eq!(
        missing["structuredContent"]["error"]["message"],
        "parameter 'note' must be string, got null"
    );
    let ended = call(
        &server,
        "execute",
        json!({"script": "return 1", "timeout": null, "plan": null, "resume": null}),
    );
    assert_ne!(ended["isError"], true, "{ended}");
}

#[test]
fn schemas_are_listed_as_they_were_written_where_the_operator_says_so() {
    let tiny = Tiny::open(tools(), json!([]));
    let project = project(&tiny, "schemas = \"exact\"");
    let server = project.serve();
    let exact = tools()[0]["inputSchema"].clone();
    let find = |server: &Server| {
        listed(server).into_iter().find(|(name, _)| name == "odd__files_read").unwrap().1
    };
    assert_eq!(find(&server), exact);
    // It takes effect as any other setting does: with the file.
    project.write("moonlark.toml", &CONFIG.replace("URL", &tiny.url()).replace("SWITCH", ""));
    wait_for("the portable schema", || find(&server) != exact);
}

/// Objects that take other keys, and alternatives whose keys would be listed alike.
fn tools_with_like_keys() -> Json {
    let text = json!({"type": "string"});
    let closed = |name: &str| json!({"type": "object", "properties": {name: text}, "additionalProperties": false});
    let schema = json!({
        "type": "object",
        "properties": {
            "page[size]": {"type": "integer"},
            "meta": {"type": "object", "properties": {"$x": text}, "additionalProperties": true},
            "either": {"anyOf": [closed("x"), closed("$x")]},
            "or": {"oneOf": [closed("$a"), closed("@a")]},
            "notes": {"type": "object", "patternProperties": {"^x": {"type": ["string", "null"]}},
                "additionalProperties": text},
        },
    });
    json!([{"name": "read", "description": "Reads.", "inputSchema": schema}])
}

#[test]
fn what_a_client_means_by_a_key_reaches_the_tool() {
    let tiny = Tiny::open(tools_with_like_keys(), json!([]));
    let project = project(&tiny, "");
    let server = project.serve();
    let tools = listed(&server);
    let (name, schema) = tools.iter().find(|(name, _)| name == "odd__read").unwrap();
    assert_eq!(refusals(name, &map(schema)), [""; 0]);
    let sent = |arguments: Json| {
        let ended = call(&server, name, arguments.clone());
        assert_ne!(ended["isError"], true, "{arguments}: {ended}");
        tiny.last_call()["arguments"].clone()
    };
    // What is plain stays itself, and every listed key leads to one of its own.
    for plain in [
        json!({"meta": {"x": "mine"}}),
        json!({"meta": {"x": "mine", "$x": "theirs"}}),
        json!({"either": {"x": "v"}}),
        json!({"either": {"$x": "v"}}),
        json!({"or": {"@a": "v"}}),
        json!({"notes": {"x1": null, "b": "c"}}),
    ] {
        assert_eq!(sent(plain.clone()), plain);
    }
    let keys = |place: &Json| -> Vec<String> {
        let all = place.get("anyOf").and_then(Json::as_array).cloned();
        let all = all.unwrap_or_else(|| vec![place.clone()]);
        all.iter().flat_map(|it| map(&it["properties"])).map(|(key, _)| key).collect()
    };
    for (place, exact) in [("meta", &["$x"][..]), ("either", &["x", "$x"]), ("or", &["$a", "@a"])] {
        for (key, exact) in keys(&schema["properties"][place]).iter().zip(exact) {
            let arguments = json!({ place: { key.as_str(): "v" } });
            assert_eq!(sent(arguments), json!({place: {*exact: "v"}}), "{key}");
        }
    }
}

#[test]
fn an_error_names_the_key_that_the_client_sent() {
    let tiny = Tiny::open(tools_with_like_keys(), json!([]));
    let portable = project(&tiny, "");
    let server = portable.serve();
    source(&server, "odd");
    let message = |server: &Server, arguments: Json| {
        let ended = call(server, "odd__read", arguments);
        ended["structuredContent"]["error"]["message"].as_str().unwrap_or_default().to_owned()
    };
    let wrong = |key: &str| format!("parameter '{key}' must be integer, got string");
    for key in ["page_size", "page[size]"] {
        assert_eq!(message(&server, json!({ key: "no" })), wrong(key));
    }
    let (_, refused) = server.post("odd.read", &json!({"page[size]": "no"}));
    assert_eq!(refused["error"]["message"], wrong("page[size]"));
    // Nothing is listed under another name, so nothing is put back.
    let exact = project(&tiny, "schemas = \"exact\"");
    let server = exact.serve();
    source(&server, "odd");
    assert_eq!(message(&server, json!({"page[size]": "no"})), wrong("page[size]"));
    for plain in [json!({"page_size": "no"}), json!({"meta": {"x": "mine"}})] {
        let ended = call(&server, "odd__read", plain.clone());
        assert_ne!(ended["isError"], true, "{ended}");
        assert_eq!(tiny.last_call()["arguments"], plain);
    }
}

#[test]
fn names_that_were_changed_are_said_and_known_to_rules() {
    let tiny = Tiny::open(tools(), json!([]));
    let project = project(&tiny, "");
    let text = |args: &[&str]| {
        let output = project.run(args);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let doctor = text(&["doctor", "--standalone"]);
    let said = format!(
        "  ✓ names: notes.move is listed to MCP clients as notes_move (characters that models refuse)\n  \
         ✓ names: odd__files.read is listed to MCP clients as odd__files_read (characters that models refuse)\n  \
         ✓ names: odd__{LONG} is listed to MCP clients as odd__actions_get-github-actions-permissi_c3cd070b (too long)\n"
    );
    assert!(doctor.contains(&said), "{doctor}");
    let mut config = CONFIG.replace("URL", &tiny.url()).replace("SWITCH", "");
    config.push_str("[[policy.rules]]\ntools = [\"odd__files_read\"]\naction = \"deny\"\n");
    project.write("moonlark.toml", &config);
    for name in ["odd__files_read", "odd.files.read", "odd__files.read"] {
        let explained = text(&["policy", "explain", name, "--standalone"]);
        assert!(explained.contains("policy rule 1 (line 7) decides: deny"), "{name}: {explained}");
    }
}

#[test]
fn a_token_and_a_question_for_docs_may_use_the_name_that_is_listed() {
    let tiny = Tiny::open(tools(), json!([]));
    let project = project(&tiny, "");
    let output = project.run(&["token", "add", "ci", "--tools", "odd__files_read", "--quiet"]);
    let bearer = format!("Bearer {}", String::from_utf8_lossy(&output.stdout).trim());
    let server = project.serve();
    let address = server.url("").trim_start_matches("http://").to_owned();
    let ask = |method: &str, params: Json| {
        mcp(address.trim_end_matches('/'), &[("Authorization", &bearer)], method, params)["result"]
            .clone()
    };
    wait_for("readiness", || server.get("/ready").status == 200);
    let listed = ask("tools/list", json!({}));
    let names: Vec<&str> =
        listed["tools"].as_array().unwrap().iter().filter_map(|it| it["name"].as_str()).collect();
    assert_eq!(names, ["odd__files_read"]);
    let called =
        ask("tools/call", json!({"name": "odd.files.read", "arguments": {"page_size": 1}}));
    assert_ne!(called["isError"], true, "{called}");
    assert_eq!(tiny.last_call()["arguments"], json!({"page[size]": 1}));
    assert!(ask("tools/call", json!({"name": "notes_move", "arguments": {}})).is_null());

    let free = self::project(&tiny, "");
    let server = free.serve();
    source(&server, "odd");
    let docs =
        call(&server, "get_function_docs", json!({"names": ["odd__files_read", "notes_move"]}));
    let text = docs["content"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("sdk.odd.files_read(") && text.contains("sdk.tools.notes_move("),
        "{text}"
    );
}

#[test]
fn how_a_run_went_is_in_meta_for_whoever_asks() {
    let project = Project::new(&[("moonlark.toml", ""), ("tools/move.luau", MOVE)]);
    let server = project.serve();
    let ask = |more: Json, script: &str| {
        let params = json!({"name": "execute", "arguments": {"script": script}});
        let mut message = modern(1, "tools/call", params);
        let meta = message["params"]["_meta"].as_object_mut().unwrap();
        meta.extend(map(&more));
        let headers = [
            ("Content-Type", "application/json"),
            ("Accept", "application/json, text/event-stream"),
            ("MCP-Protocol-Version", "2026-07-28"),
            ("Mcp-Method", "tools/call"),
            ("Mcp-Name", "execute"),
        ];
        let answer = server.request("POST", "/mcp", &headers, message.to_string().as_bytes());
        answer.json()["result"]["_meta"].clone()
    };
    for script in ["return 1", "error('no')"] {
        assert_eq!(ask(json!({}), script)["moonlark/run"], json!(null));
        assert_eq!(ask(json!({"moonlark/run": false}), script)["moonlark/run"], json!(null));
        assert_eq!(ask(json!({"moonlark/run": true}), script)["moonlark/run"]["calls"], json!([]));
        let declared = json!({"io.modelcontextprotocol/clientCapabilities": {
            "experimental": {"moonlark/run": {}},
        }});
        assert_eq!(ask(declared, script)["moonlark/run"]["calls"], json!([]));
    }
}
