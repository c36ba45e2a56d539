//! Which values are secret, and that they stay so.

use super::*;

const JIRA: &str = r#"
    [tools.script.jira]
    path = "jira.lua"
    url = "https://${HOST_NAME}/api"
    project = "ENG"
    author = "Jane"
    password = "hunter2"
    empty_token = ""
    max_tokens = 100
    header = "Bearer ${JIRA_API_TOKEN}"
    plain = "${JIRA_API_TOKEN}"
    fallback = "${NONE:-standard}"
    literal = "$${B}"
    auth = { user = "bob", ports = ["80", "81"] }
    list = [{ name = "x", api_key = "k-1" }]
    "#;

#[test]
fn a_value_is_secret_by_its_key_its_variable_or_its_origin() {
    assert_eq!(
        script(JIRA).config.secrets,
        [
            ConfigSecret::new("url", "https://jira.example.com/api", false),
            ConfigSecret::new("url", "jira.example.com", false),
            ConfigSecret::new("password", "hunter2", true),
            ConfigSecret::new("header", "Bearer s3cret-token", true),
            ConfigSecret::new("header", "s3cret-token", true),
            ConfigSecret::new("plain", "s3cret-token", true),
            ConfigSecret::new("fallback", "standard", false),
            ConfigSecret::new("auth.user", "bob", true),
            ConfigSecret::new("auth.ports[0]", "80", true),
            ConfigSecret::new("auth.ports[1]", "81", true),
            ConfigSecret::new("list[0].api_key", "k-1", true),
        ]
    );
}

#[test]
fn the_name_of_the_script_makes_nothing_secret() {
    let config = config("[tools.script.new_token]\npath = \"x\"\nurl = \"y\"");
    assert_eq!(config.tools.script["new_token"].config.secrets, []);
}

#[test]
fn nothing_of_a_script_is_printed_by_debug() {
    let debug = format!("{:?}", load_bytes(JIRA.as_bytes()).unwrap());
    for value in ["hunter2", "s3cret", "ENG", "bob", "k-1", "jira.example.com"] {
        assert!(!debug.contains(value), "{value} in {debug}");
    }
}

#[test]
fn what_is_shown_has_all_defaults_and_no_secret() {
    let shown = render_redacted_config(&load_bytes(JIRA.as_bytes()).unwrap());
    assert_eq!(
        shown,
        r#"[server]
host = "127.0.0.1"
port = 7331
allowed_hosts = []
allowed_origins = []
name = "moonlark"
settle = 4
schemas = "portable"

[server.auth]
name_claim = "sub"

[limits]
timeout = 30
load = 5
memory = "64MB"
steps = 1000000000
calls = 100
parallel = 16
logs = "1MB"
value = "32MB"
result = "64KB"
artifacts = "256MB"
http_body = "10MB"
request_body = "4MB"
runs = 4000
queued = 4000
queue_time = "10s"
starting = 8

[policy]

[network]
public = true
deny = []

[approvals]
by = "operator"
expiry = "1h"

[journal]
enabled = true
durability = "process"
keep = "30d"
size = "1GB"

[telemetry]
traces = true
metrics = true
interval = "1min"

[log]
format = "text"

[tools]
dir = "tools"
watch = true

[tools.script.jira]
path = "jira.lua"
allow = []
expose = "direct"
url = "[redacted]"
project = "ENG"
author = "Jane"
password = "[redacted]"
empty_token = ""
max_tokens = 100
header = "[redacted]"
plain = "[redacted]"
fallback = "[redacted]"
literal = "$${B}"

[tools.script.jira.auth]
user = "[redacted]"
ports = [
    "[redacted]",
    "[redacted]",
]

[[tools.script.jira.list]]
name = "x"
api_key = "[redacted]"

[extensions]
dir = "extensions"
watch = true

[agents]
dir = "agents"

[execute]
allow = ["tool:*"]
check = "error"

[scripts]
dir = "scripts"
expose = "code"

[store]
url = "sqlite:.moonlark/moonlark.db"

[knowledge]
embedder = "builtin"
chunk = 1200
sync = "manual"

[connectors]
dir = "connectors"
"#
    );
}

#[test]
fn what_is_shown_reads_back_as_the_same() {
    let limits = "[limits.tools.\"a b\"]\ntimeout = 0.5\nmemory = \"1.5KB\"";
    let odd = r#"
            [tools.script."my.tool"]
            table_first = { a = { b = 1 }, c = 2 }
            path = "x"
            rows = [{ a = 1 }, { a = { b = [] } }]
            mixed = [1, { a = 1 }, [{}]]
            empty = {}
            "key with = and \" and \n" = "\u0000 \n ''' \"\"\" $${ ü"
            scalar_last = 0.5
            "#;
    for content in ["", JIRA, limits, odd] {
        let loaded = load_bytes(content.as_bytes()).unwrap();
        let shown = render_redacted_config(&loaded);
        let again = load_bytes(shown.as_bytes()).unwrap();
        assert_eq!(again.config.server, loaded.config.server);
        assert_eq!(again.config.limits, loaded.config.limits);
        assert_eq!(again.config == loaded.config, content != JIRA);
        assert_eq!(render_redacted_config(&again), shown);
    }
}
