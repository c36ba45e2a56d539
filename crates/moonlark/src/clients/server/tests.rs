use serde_json::json;

use super::*;

/// Each entry in a line: its name, and what it became.
fn check(document: Json, expected: &[&str]) {
    let read_file = |path: &Path| {
        (path == Path::new("/w/.env")).then(|| "# x\nexport A=1\nB='two words'\n\n".to_owned())
    };
    let entries = all(&document, Some(Path::new("/w")), Path::new("/home/a"), &read_file).unwrap();
    let lines: Vec<String> = entries.iter().map(line).collect();
    assert_eq!(lines, expected);
}

fn line(entry: &Entry) -> String {
    let server = match &entry.server {
        Ok(server) => server,
        Err(reason) => return format!("{}: {reason}", entry.name),
    };
    let mut parts: Vec<String> = server.command.iter().chain(&server.url).cloned().collect();
    parts.extend(server.sse.then(|| "(sse)".to_owned()));
    parts.extend(server.args.clone());
    let pairs = server.env.iter().chain(&server.headers);
    parts.extend(pairs.map(|(key, value)| format!("{key}={value}")));
    parts.extend(server.env_file.iter().map(|file| format!("reads {file}")));
    parts.extend(server.cwd.iter().map(|cwd| format!("in {cwd}")));
    parts.extend(server.notes.iter().map(|note| format!("without {note}")));
    format!("{} = {}", entry.name, parts.join(" "))
}

#[test]
fn claude_and_cursor_keep_servers_under_mcp_servers() {
    check(
        json!({"mcpServers": {
            "files": {"command": "npx", "args": ["-y", "server-filesystem", "/tmp", 3], "env": {"DEBUG": true}},
            "typed": {"type": "stdio", "command": "uvx", "args": null, "timeout": 60, "alwaysAllow": ["x"]},
            "web": {"url": "https://example.com/mcp", "headers": {"X-Team": "a"}},
            "old": {"url": "https://example.com/sse?x=1"},
            "older": {"type": "sse", "url": "https://example.com/events"},
            "newer": {"type": "streamable-http", "url": "https://example.com/sse"},
            "local": {"command": "./serve.sh", "cwd": "sub"},
            "dot": {"command": "node", "args": ["./index.js"]},
            "filed": {"command": "x", "envFile": "${workspaceFolder}/.env", "env": {"A": "${env:A}"}},
            "unfiled": {"command": "x", "envFile": "/none"},
        }}),
        &[
            "files = npx -y server-filesystem /tmp 3 DEBUG=true",
            "typed = uvx without timeout without alwaysAllow",
            "web = https://example.com/mcp X-Team=a",
            "old = https://example.com/sse?x=1 (sse)",
            "older = https://example.com/events (sse)",
            "newer = https://example.com/sse",
            "local = ./serve.sh in /w/sub",
            "dot = node ./index.js in /w",
            "filed = x B=two words A=${A}",
            "unfiled = x reads /none",
        ],
    );
}

#[test]
fn what_cannot_be_a_server_says_why() {
    check(
        json!({"mcpServers": {
            "off": {"command": "x", "disabled": true},
            "self": {"command": "/usr/bin/moonlark", "args": ["stdio"]},
            "text": "npx",
            "none": {},
            "half": {"type": "http", "command": "x"},
            "socket": {"type": "ws", "url": "wss://example.com"},
            "pipe": {"url": "unix:///tmp/x"},
            "hostless": {"url": "http://"},
            "args": {"command": "x", "args": "y"},
            "number": {"command": 1},
            "env": {"command": "x", "env": ["A=1"]},
            "nulls": {"command": "x", "env": {"A": null}},
        }}),
        &[
            "off: it is disabled there",
            "self: it is Moonlark itself",
            "text: it is not an object in braces",
            "none: it has neither command nor url",
            "half: its type is http, and it has no url",
            "socket: its type is none that is known",
            "pipe: its url is no address that begins with http:// or https://",
            "hostless: its url is no address that begins with http:// or https://",
            "args: its args are not a list",
            "number: its command is not a text",
            "env: its env is not an object in braces",
            "nulls = x without env.A",
        ],
    );
}

#[test]
fn vs_code_keeps_them_in_a_file_of_their_own_or_in_its_settings() {
    let servers = json!({
        "gh": {"type": "http", "url": "https://api.example.com/mcp/", "headers": {"Authorization": "Bearer ${input:pat}"}},
        "db": {"command": "docker", "args": ["run", "-v", "${workspaceFolder}:/w"], "env": {"FILE": "${file}"}},
    });
    let inputs = json!([{"id": "pat", "type": "promptString", "password": true}]);
    let expected = [
        "gh = https://api.example.com/mcp/ Authorization=Bearer ${PAT}",
        "db: it needs ${file}, which only the editor knows",
    ];
    check(json!({"inputs": inputs, "servers": servers}), &expected);
    check(json!({"mcp": {"inputs": inputs, "servers": servers}, "editor.tabSize": 2}), &expected);
}

#[test]
fn zed_has_commands_as_texts_and_as_objects() {
    check(
        json!({"theme": "One", "context_servers": {
            "new": {"source": "custom", "enabled": true, "command": "a", "args": ["${X}"], "env": null},
            "old": {"command": {"path": "b", "args": ["-v"], "env": {"K": "v"}}, "settings": {}},
            "extension": {"source": "extension", "settings": {"a": 1}},
            "off": {"command": "x", "enabled": false},
            "remote": {"url": "https://example.com/mcp"},
        }}),
        &[
            "new = a $${X}",
            "old = b -v K=v without settings",
            "extension: it is an extension of Zed, and only Zed knows what it starts",
            "off: it is disabled there",
            "remote = https://example.com/mcp",
        ],
    );
}

#[test]
fn claude_code_has_servers_of_single_projects_too() {
    check(
        json!({"numStartups": 3, "mcpServers": {"a": {"command": "x"}}, "projects": {
            "/home/a/shop": {"mcpServers": {"b": {"command": "./y"}}, "history": []},
            "/home/a/none": {"history": []},
        }}),
        &["a = x", "b = ./y in /home/a/shop"],
    );
}

#[test]
fn other_documents_are_not_taken_for_one() {
    for document in [json!({}), json!([]), json!({"name": "x", "dependencies": {}}), json!(1)] {
        assert!(all(&document, None, Path::new("/"), &|_| None).is_none(), "{document}");
    }
}
