//! Files without mistakes, and the configuration they give.

use super::*;

#[test]
fn an_empty_file_is_all_defaults() {
    for content in ["", "\n", "# nothing\r\n", "\u{feff}", "[server]\n[limits]\n[tools]"] {
        assert_eq!(config(content), ProjectConfig::default(), "{content:?}");
    }
}

#[test]
fn every_key_is_read() {
    let read = config(
        r#"
            [server]
            host = "0.0.0.0"
            port = 0
            allowed_hosts = ["a.example.com"]
            allowed_origins = ["https://b.example.com"]
            name = "here"
            instructions = "Be kind."
            settle = 1.5
            schemas = "exact"
            [network]
            public = false
            deny = ["10.0.0.0/8"]
            [limits]
            timeout = 1.5
            load = 2
            memory = "1.5 GB"
            steps = 7
            calls = 0
            parallel = 1
            logs = 1024
            value = "1KiB"
            result = "2KB"
            artifacts = "3KB"
            http_body = "${MEMORY}"
            request_body = "100 B"
            runs = 1
            queued = 0
            queue_time = "0.5min"
            starting = 3
            [[policy.rules]]
            tools = ["jira.*"]
            effects = ["destructive", "open-world"]
            kinds = ["upstream"]
            sources = ["jira"]
            callers = ["ci"]
            action = "approve"
            rate = "10/min"
            concurrency = 2
            per = "caller"
            timeout = 5
            cache = "1h"
            [[policy.rules]]
            [limits.tools.slow]
            timeout = 300
            memory = "1GB"
            steps = 1000000
            calls = 1
            parallel = 2
            logs = "2MB"
            [tools]
            dir = "scripts"
            watch = false
            [tools.script.jira]
            path = "tools/jira.lua"
            timeout = 20
            allow = ["net:api.github.com", "fs:write"]
            approve = true
            rate = "1/s"
            concurrency = 3
            [extensions]
            dir = "stars"
            watch = false
            [extensions.script.git]
            path = "vcs/git.star"
            timeout = 0.5
            allow = ["exec:git"]
            ratio = 1.5
            [execute]
            allow = ["tool:jira.*"]
            dir = "workspace"
            check = "warn"
            timeout = 5
            max_timeout = 60
            [telemetry]
            otlp = "https://otlp.example.com"
            headers = { Authorization = "Bearer ${B}" }
            service = "here"
            traces = false
            sample = 0.25
            metrics = false
            interval = "15s"
            [scripts]
            dir = "saved"
            expose = "both"
            [log]
            format = "json"
            level = "warn,call=debug"
            "#,
    );
    assert_eq!(
        serde_json::to_value(&read).unwrap(),
        json!({
            "server": {
                "host": "0.0.0.0", "port": 0,
                "allowed_hosts": ["a.example.com"],
                "allowed_origins": ["https://b.example.com"],
                "name": "here", "instructions": "Be kind.", "settle": 1.5, "schemas": "exact",
                "auth": {"name_claim": "sub"},
            },
            "limits": {
                "timeout": 1.5, "load": 2, "memory": "1536MB", "steps": 7, "calls": 0, "parallel": 1, "logs": "1KB",
                "value": "1KB", "result": "2KB", "artifacts": "3KB", "http_body": "32MB", "request_body": "100B", "runs": 1,
                "queued": 0, "queue_time": "30s", "starting": 3,
                "tools": {"slow": {
                    "timeout": 300, "memory": "1GB", "steps": 1_000_000, "calls": 1, "parallel": 2, "logs": "2MB",
                }},
            },
            "policy": {"rules": [
                {
                    "tools": ["jira.*"], "effects": ["destructive", "open-world"], "kinds": ["upstream"],
                    "sources": ["jira"], "callers": ["ci"], "action": "approve", "rate": "10/min",
                    "concurrency": 2, "per": "caller", "timeout": "5s", "cache": "1h",
                },
                {"action": "allow"},
            ]},
            "network": {"public": false, "deny": ["10.0.0.0/8"]},
            "approvals": {"by": "operator", "expiry": "1h"},
            "journal": {"enabled": true, "durability": "process", "keep": "30d", "size": "1GB"},
            "telemetry": {
                "otlp": "https://otlp.example.com", "headers": {"Authorization": "[redacted]"},
                "service": "here", "traces": false, "sample": 0.25, "metrics": false, "interval": "15s",
            },
            "log": {"format": "json", "level": "warn,call=debug"},
            "tools": {"dir": "scripts", "watch": false, "script": {"jira": {
                "path": "tools/jira.lua", "timeout": 20,
                "allow": ["net:api.github.com", "fs:write"], "expose": "direct",
                "approve": true, "rate": "1/s", "concurrency": 3,
            }}},
            "extensions": {"dir": "stars", "watch": false, "script": {"git": {
                "path": "vcs/git.star", "timeout": 0.5, "allow": ["exec:git"], "expose": "direct",
            }}},
            "agents": {"dir": "agents"},
            "execute": {
                "allow": ["tool:jira.*"], "dir": "workspace", "check": "warn", "timeout": 5, "max_timeout": 60,
            },
            "scripts": {"dir": "saved", "expose": "both"},
            "store": {"url": "sqlite:.moonlark/moonlark.db"},
            "knowledge": {"embedder": "builtin", "chunk": 1200, "sync": "manual"},
            "connectors": {"dir": "connectors"},
        })
    );
    let own = &read.extensions.script["git"].config.values;
    assert_eq!(serde_json::Value::Object(own.clone()), json!({"ratio": 1.5}));
}

#[test]
fn strings_of_all_tables_expand() {
    let server = config(
        r#"server = { host = "${B}", allowed_hosts = ["x-${B}", "${NONE:-dflt}", "$${B}"] }"#,
    )
    .server;
    let allowed_hosts = ["x-bee", "dflt", "${B}"].map(str::to_owned).into();
    assert_eq!(
        server,
        ServerConfig { host: "bee".to_owned(), allowed_hosts, ..ServerConfig::default() }
    );
}

#[test]
fn all_other_keys_of_a_script_are_its_own_in_the_order_of_the_file() {
    let script = script(
        r#"
            [tools.script.jira]
            zebra = 1
            path = "jira.lua"
            server = { port = "any" }
            pth = true
            once = "${A}"
            when = 2026-01-02T03:04:05Z
            day = 2026-01-02
            big = 9007199254740993
            ratio = 0.5
            mixed = [1, "two", [3.0], { four = [] }]
            [tools.script.jira.deep.er]
            "a key" = { x = "${B}" }
            [[tools.script.jira.rows]]
            n = 1
            [[tools.script.jira.rows]]
            n = 2
            "#,
    );
    assert_eq!(
        serde_json::to_string(&script.config.values).unwrap(),
        json!({
            "zebra": 1,
            "server": {"port": "any"},
            "pth": true,
            "once": "${B}",
            "when": "2026-01-02T03:04:05Z",
            "day": "2026-01-02",
            "big": 9007199254740993_i64,
            "ratio": 0.5,
            "mixed": [1, "two", [3.0], {"four": []}],
            "deep": {"er": {"a key": {"x": "bee"}}},
            "rows": [{"n": 1}, {"n": 2}],
        })
        .to_string()
    );
}
