//! What is asked of each package: of the server itself, then through Moonlark.
//! The answers must be the same, in this order. The first of each package is a call
//! that changes nothing: it is made more than once.

use std::path::Path;

use serde_json::{Value, json};

pub struct Asked {
    pub package: &'static str,
    pub method: &'static str,
    pub params: Value,
    /// The part of the answer that is the same every time; all of it when empty.
    pub part: &'static str,
}

impl Asked {
    /// Compare only this, as a JSON pointer: the rest has a date in it or counts.
    pub fn part(mut self, part: &'static str) -> Asked {
        self.part = part;
        self
    }
}

/// `page` is the address of a web page, `data` the folder with everybody's files.
pub fn all(data: &Path, page: &str) -> Vec<Asked> {
    let at = |name: &str| data.join(name).to_str().unwrap().to_owned();
    let repo = at("repo");
    let tables = "SELECT 1 AS one, 'lark' AS bird";
    vec![
        tool("everything", "echo", json!({"message": "ζ \u{1F426} \\ \""})),
        tool("everything", "get-sum", json!({"a": 2, "b": 0.5})),
        tool("everything", "get-structured-content", json!({"location": "Chicago"})),
        tool("everything", "get-tiny-image", json!({})),
        tool(
            "everything",
            "get-annotated-message",
            json!({"messageType": "error", "includeImage": true}),
        ),
        tool("everything", "get-resource-links", json!({"count": 3})),
        tool(
            "everything",
            "get-resource-reference",
            json!({"resourceType": "Text", "resourceId": 4}),
        )
        .part("/content/1/resource/uri"),
        resource("everything", "demo://resource/static/document/architecture.md"),
        resource("everything", "demo://resource/static/document/features.md"),
        resource("everything", "demo://resource/dynamic/text/7").part("/contents/0/uri"),
        resource("everything", "demo://resource/dynamic/blob/7").part("/contents/0/mimeType"),
        prompt("everything", "simple-prompt", json!({})),
        prompt("everything", "args-prompt", json!({"city": "Turku", "state": "Finland"})),
        prompt("everything", "completable-prompt", json!({"department": "Sales", "name": "Eve"})),
        prompt("everything", "resource-prompt", json!({"resourceType": "Text", "resourceId": "2"}))
            .part("/messages/1/content/resource/uri"),
        completion(
            "everything",
            json!({"type": "ref/prompt", "name": "completable-prompt"}),
            "department",
            "S",
            json!({}),
        ),
        completion(
            "everything",
            json!({"type": "ref/prompt", "name": "completable-prompt"}),
            "name",
            "",
            json!({"department": "Support"}),
        ),
        completion(
            "everything",
            json!({"type": "ref/resource", "uri": "demo://resource/dynamic/text/{resourceId}"}),
            "resourceId",
            "12",
            json!({}),
        ),
        tool("filesystem", "list_directory", json!({"path": at("files")})),
        tool(
            "filesystem",
            "write_file",
            json!({"path": at("files/song.txt"), "content": "la\nla\n"}),
        ),
        tool(
            "filesystem",
            "edit_file",
            json!({"path": at("files/song.txt"), "edits": [{"oldText": "la\nla", "newText": "la\nli"}]}),
        ),
        tool("filesystem", "read_text_file", json!({"path": at("files/song.txt"), "tail": 1})),
        tool("filesystem", "directory_tree", json!({"path": at("files")})),
        tool("filesystem", "read_media_file", json!({"path": at("files/dot.png")})),
        tool("filesystem", "read_text_file", json!({"path": "/etc/hostname"})),
        tool("memory", "read_graph", json!({})),
        tool(
            "memory",
            "create_entities",
            json!({"entities": [
                {"name": "lark", "entityType": "bird", "observations": ["sings"]},
                {"name": "owl", "entityType": "bird", "observations": []},
            ]}),
        ),
        tool(
            "memory",
            "create_relations",
            json!({"relations": [{"from": "owl", "to": "lark", "relationType": "hears"}]}),
        ),
        tool("memory", "search_nodes", json!({"query": "sings"})),
        tool("memory", "read_graph", json!({})),
        resource("memory", "memory://knowledge-graph"),
        tool(
            "thinking",
            "sequentialthinking",
            json!({"thought": "Larks?", "nextThoughtNeeded": true, "thoughtNumber": 1, "totalThoughts": 2}),
        )
        .part("/structuredContent/nextThoughtNeeded"),
        tool(
            "thinking",
            "sequentialthinking",
            json!({"thought": "Larks.", "nextThoughtNeeded": false, "thoughtNumber": 2, "totalThoughts": 2}),
        )
        .part("/structuredContent/nextThoughtNeeded"),
        tool("postgres", "query", json!({"sql": tables})),
        tool("postgres", "query", json!({"sql": "SELECT nothing"})),
        tool("git", "git_log", json!({"repo_path": &repo})),
        tool("git", "git_status", json!({"repo_path": &repo})),
        tool("git", "git_show", json!({"repo_path": &repo, "revision": "HEAD"})),
        tool("git", "git_create_branch", json!({"repo_path": &repo, "branch_name": "spring"})),
        tool("git", "git_branch", json!({"repo_path": &repo, "branch_type": "local"})),
        tool(
            "time",
            "convert_time",
            json!({"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}),
        )
        .part("/structuredContent/time_difference"),
        tool("time", "get_current_time", json!({"timezone": "Nowhere/Nothing"})),
        tool("fetch", "fetch", json!({"url": page})),
        tool("fetch", "fetch", json!({"url": page, "raw": true, "max_length": 20})),
        prompt("fetch", "fetch", json!({"url": page})),
        tool("duck", "execute_query", json!({"sql": tables})),
        tool("duck", "execute_query", json!({"sql": "SELECT * FROM nothing"})),
        tool("duck", "list_databases", json!({})),
        tool("sqlite", "list_tables", json!({})),
        tool(
            "sqlite",
            "create_table",
            json!({"query": "CREATE TABLE birds (name TEXT, song INTEGER)"}),
        ),
        tool("sqlite", "write_query", json!({"query": "INSERT INTO birds VALUES ('lark', 9)"})),
        tool("sqlite", "read_query", json!({"query": "SELECT * FROM birds"})),
        tool("sqlite", "append_insight", json!({"insight": "Larks sing."})),
        resource("sqlite", "memo://insights"),
        prompt("sqlite", "mcp-demo", json!({"topic": "birds"})),
        tool("calculator", "calculate", json!({"expression": "6 * 7"})),
        tool("kube", "configuration_view", json!({})),
        prompt("kube", "cluster-health-check", json!({})).part("/messages/1/content/text"),
    ]
}

fn tool(package: &'static str, name: &str, arguments: Value) -> Asked {
    asked(package, "tools/call", json!({"name": name, "arguments": arguments}))
}

fn resource(package: &'static str, uri: &str) -> Asked {
    asked(package, "resources/read", json!({"uri": uri}))
}

fn prompt(package: &'static str, name: &str, arguments: Value) -> Asked {
    asked(package, "prompts/get", json!({"name": name, "arguments": arguments}))
}

fn completion(package: &'static str, of: Value, name: &str, value: &str, others: Value) -> Asked {
    let argument = json!({"name": name, "value": value});
    let params = json!({"ref": of, "argument": argument, "context": {"arguments": others}});
    asked(package, "completion/complete", params)
}

fn asked(package: &'static str, method: &'static str, params: Value) -> Asked {
    Asked { package, method, params, part: "" }
}
