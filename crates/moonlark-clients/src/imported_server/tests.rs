use serde_json::json;

use super::*;

/// Each entry in a line: its name, and what it became.
fn check(document: Json, expected: &[&str]) {
    check_for(None, document, expected);
}

fn check_for(client: Option<ClientApp>, document: Json, expected: &[&str]) {
    let read_file = |path: &Path| {
        (path == Path::new("/w/.env")).then(|| "# x\nexport A=1\nB='two words'\n\n".to_owned())
    };
    let origin =
        ClientFileOrigin { client, project: Some(Path::new("/w")), home: Path::new("/home/a") };
    let entries = read_entries(&document, origin, &read_file).unwrap();
    let lines: Vec<String> = entries.iter().map(line).collect();
    assert_eq!(lines, expected);
}

fn line(entry: &ImportedEntry) -> String {
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
    parts.extend(server.timeout.map(|seconds| format!("within {seconds} s")));
    parts.extend(server.connect_timeout.map(|seconds| format!("begins within {seconds} s")));
    parts.extend(server.include.iter().map(|tool| format!("only {tool}")));
    parts.extend(server.exclude.iter().map(|tool| format!("not {tool}")));
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
            "old": {"command": {"path": "b", "args": ["-v"], "env": {"K": "v"}}, "settings": {"a": 1}},
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
fn codex_names_variables_instead_of_writing_them() {
    check(
        json!({"model": "o", "mcp_servers": {
            "files": {
                "command": "npx", "args": ["-y", "files", "${HOME}"], "env": {"A": "1"},
                "env_vars": ["B", {"name": "C", "source": "local"}], "cwd": "sub",
                "startup_timeout_sec": 20, "tool_timeout_sec": 90.5,
                "enabled_tools": ["read"], "disabled_tools": ["write"], "required": true,
            },
            "web": {
                "url": "https://example.com/mcp", "bearer_token_env_var": "TOKEN",
                "http_headers": {"X-Team": "a"}, "env_http_headers": {"X-Key": "KEY"},
                "startup_timeout_ms": 1500,
            },
            "off": {"command": "x", "enabled": false},
        }}),
        &[
            "files = npx -y files $${HOME} B=${B} C=${C} A=1 in /w/sub within 90.5 s begins within 20 s only read not write without required",
            "web = https://example.com/mcp X-Team=a X-Key=${KEY} Authorization=Bearer ${TOKEN} begins within 1.5 s",
            "off: it is disabled there",
        ],
    );
}

#[test]
fn gemini_and_qwen_have_a_key_for_each_transport() {
    let document = json!({"security": {}, "mcp": {"allowed": ["a"]}, "extensions": {"disabled": []}, "mcpServers": {
        "http": {"httpUrl": "https://example.com/mcp", "headers": {"Authorization": "Bearer $TOKEN"}, "timeout": 30000},
        "url": {"url": "https://example.com/events"},
        "typed": {"url": "https://example.com/mcp", "type": "http"},
        "old": {"url": "https://example.com/x", "type": "sse"},
        "local": {
            "command": "node", "args": ["$HOME/x.js"], "env": {"KEY": "${KEY:-none}"}, "trust": true,
            "includeTools": ["a", "b"], "excludeTools": ["c(x)"], "description": "mine",
        },
    }});
    let expected = |url: &'static str| {
        [
            "http = https://example.com/mcp Authorization=Bearer ${TOKEN} within 30 s",
            url,
            "typed = https://example.com/mcp",
            "old = https://example.com/x (sse)",
            "local = node ${HOME}/x.js KEY=${KEY:-none} only a only b without trust without excludeTools",
        ]
    };
    // One of them finds out by trying.
    check_for(
        Some(ClientApp::Gemini),
        document.clone(),
        &expected("url = https://example.com/events"),
    );
    check_for(Some(ClientApp::Qwen), document, &expected("url = https://example.com/events (sse)"));
}

#[test]
fn opencode_has_command_and_arguments_in_one_list() {
    let servers = json!({
        "local": {"type": "local", "command": ["npx", "-y", "x"], "environment": {"KEY": "{env:KEY}"}, "enabled": true, "timeout": 5000},
        "remote": {"type": "remote", "url": "https://example.com/mcp", "headers": {"Authorization": "Bearer {env:TOKEN}"}, "oauth": false},
        "file": {"type": "remote", "url": "https://example.com/mcp", "headers": {"A": "{file:~/.key}"}},
        "off": {"type": "local", "command": ["x"], "enabled": false},
        "none": {"type": "local", "command": []},
    });
    let expected = [
        "local = npx -y x KEY=${KEY} within 5 s",
        "remote = https://example.com/mcp Authorization=Bearer ${TOKEN} without oauth",
        "file: it needs {file:…}, a file whose content only opencode reads",
        "off: it is disabled there",
        "none: its command is not a text",
    ];
    check(json!({"$schema": "https://opencode.ai/config.json", "mcp": servers}), &expected);
    check(json!({"mcp": {"servers": servers}}), &expected);
    check_for(Some(ClientApp::Opencode), json!({"mcp": {}}), &[]);
}

#[test]
fn continue_lists_servers_with_their_names() {
    check(
        json!({"name": "Local", "mcpServers": [
            {"name": "files", "command": "npx", "args": ["x"], "env": {"KEY": "${{ secrets.KEY }}"}},
            {"name": "web", "type": "streamable-http", "url": "https://example.com/mcp", "requestOptions": {"headers": {"X-Team": "a"}}, "apiKey": "k"},
            {"name": "old", "type": "sse", "url": "https://example.com/x", "requestOptions": {"verifySsl": false}},
            {"uses": "team/block"},
        ]}),
        &[
            "files = npx x KEY=${KEY}",
            "web = https://example.com/mcp X-Team=a Authorization=Bearer k",
            "old = https://example.com/x (sse) without requestOptions",
            "team/block: it is a block of Continue, and only Continue knows what it starts",
        ],
    );
}

#[test]
fn windsurf_and_cline_have_their_own_words() {
    check(
        json!({"mcpServers": {
            "w": {"serverUrl": "https://example.com/mcp", "headers": {"A": "${env:B}"}, "disabledTools": ["x"]},
        }}),
        &["w = https://example.com/mcp A=${B} not x"],
    );
    check_for(
        Some(ClientApp::Cline),
        json!({"mcpServers": {
            "plain": {"url": "https://example.com/mcp"},
            "http": {"type": "streamableHttp", "url": "https://example.com/mcp", "timeout": 120, "autoApprove": []},
            "legacy": {"transportType": "http", "url": "https://example.com/mcp"},
            "nested": {"transport": {"type": "stdio", "command": "x", "args": ["y"]}, "disabled": false},
            "far": {"transport": {"type": "streamableHttp", "url": "https://example.com/mcp", "headers": {"A": "b"}}},
            "self": {"transport": {"type": "stdio", "command": "moonlark"}},
        }}),
        &[
            "plain = https://example.com/mcp (sse)",
            "http = https://example.com/mcp within 120 s",
            "legacy = https://example.com/mcp",
            "nested = x y",
            "far = https://example.com/mcp A=b",
            "self: it is Moonlark itself",
        ],
    );
}

#[test]
fn goose_has_extensions_that_are_no_servers() {
    check(
        json!({"GOOSE_MODEL": "x", "extensions": {
            "developer": {"enabled": true, "type": "builtin", "name": "developer", "bundled": true, "timeout": 300},
            "files": {
                "enabled": true, "type": "stdio", "name": "files", "description": "Files", "cmd": "npx", "args": ["-y", "$X"],
                "envs": {"A": "1"}, "env_keys": ["KEY"], "timeout": 300, "bundled": null, "available_tools": [],
            },
            "web": {
                "enabled": true, "type": "streamable_http", "name": "web", "uri": "https://example.com/mcp",
                "headers": {"Authorization": "Bearer ${KEY}", "X": "$OTHER"}, "envs": {"KEY": "k"}, "env_keys": ["OTHER"],
            },
            "old": {"enabled": true, "type": "sse", "name": "old", "uri": "https://example.com/events"},
            "off": {"enabled": false, "type": "stdio", "name": "off", "cmd": "x", "args": []},
        }}),
        &[
            "developer: it is a part of goose, and no server",
            "files = npx -y $X KEY=${KEY} A=1 within 300 s",
            "web = https://example.com/mcp Authorization=Bearer k X=${OTHER}",
            "old = https://example.com/events (sse)",
            "off: it is disabled there",
        ],
    );
}

#[test]
fn other_documents_are_not_taken_for_one() {
    for document in [json!({}), json!([]), json!({"name": "x", "dependencies": {}}), json!(1)] {
        let origin = ClientFileOrigin { client: None, project: None, home: Path::new("/") };
        assert!(read_entries(&document, origin, &|_| None).is_none(), "{document}");
    }
}
