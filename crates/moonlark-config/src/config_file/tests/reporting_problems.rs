//! Files with mistakes, and every word that is said about them.

use super::*;

#[test]
fn three_mistakes_are_three_problems_in_line_order() {
    check(
        r#"[tools]
watch = "yes"
[server]
prot = 8080
[limits]
memory = "64XB"
"#,
        &[
            "error[bad_config]: tools.watch must be a boolean, got string
  --> moonlark.toml:2:9
hint: for example: watch = true",
            "error[bad_config]: unknown key server.prot
  --> moonlark.toml:4:1
hint: did you mean port?",
            "error[bad_config]: limits.memory is not a size
  --> moonlark.toml:6:10
hint: for example: memory = \"64MB\"",
        ],
    );
}

#[test]
fn a_fault_of_one_tool_of_a_source_is_reported_at_its_key() {
    check(
        r#"[mcp_servers.fs]
command = "npx"
[mcp_servers.fs.tools.a]
description = "Fine"
[mcp_servers.fs.tools.read_file]
name = "bad name!"
[mcp_servers.fs.tools.x]
name = "one"
[mcp_servers.fs.tools.y]
name = "one"
effects = { read_only = true, destructive = true }
"#,
        &[
            "error[bad_config]: mcp_servers.fs.tools.read_file.name: a name may have letters, digits, -, _ and ., and at most 64 of them
  --> moonlark.toml:6:1
hint: write a name such as \"read_file\"",
            "error[bad_config]: mcp_servers.fs.tools.y.name: x has the name \"one\" already
  --> moonlark.toml:10:1
hint: give one of them another name",
            "error[bad_config]: mcp_servers.fs.tools.y.effects: a tool cannot be both read_only and destructive
  --> moonlark.toml:11:1
hint: remove one of the two",
        ],
    );
}

#[test]
fn an_address_that_cannot_be_read_is_reported_at_its_line_wherever_it_is() {
    check(
        r#"[mcp_servers.docs]
url = "exam ple"
[apis.shop]
spec = "shop.yaml"
base_url = "shop"
[apis.shop.auth."log in"]
client_id = "a"
client_secret = "b"
token_url = "auth.example.com/token"
"#,
        &[
            "error[bad_config]: mcp_servers.docs.url: must be an address that begins with http:// or https://
  --> moonlark.toml:2:1
hint: for example: url = \"https://mcp.example.com/mcp\"",
            "error[bad_config]: apis.shop.base_url: must be an address that begins with http:// or https://
  --> moonlark.toml:5:1
hint: for example: base_url = \"https://api.example.com/v1\"",
            "error[bad_config]: apis.shop.auth.\"log in\".token_url: must be an address that begins with http:// or https://
  --> moonlark.toml:9:1
hint: correct apis.shop.auth.\"log in\".token_url, or leave it out",
        ],
    );
}

#[test]
fn an_unknown_key_names_the_nearest_or_all_valid_ones() {
    check(
        "wibble = 1\nserverr = { port = true }\nlimits.tools.x.runs = 5\n\"a b\" = 1",
        &[
            "error[bad_config]: unknown key wibble
  --> moonlark.toml:1:1
hint: valid keys: server, limits, policy, network, approvals, journal, telemetry, log, tools, extensions, agents, execute, scripts, store, knowledge, connectors, mcp_servers, apis, frozen_params",
            "error[bad_config]: unknown key serverr
  --> moonlark.toml:2:1
hint: did you mean server?",
            "error[bad_config]: unknown key limits.tools.x.runs
  --> moonlark.toml:3:16
hint: valid keys of limits.tools.x: timeout, memory, steps, calls, parallel, logs",
            "error[bad_config]: unknown key \"a b\"
  --> moonlark.toml:4:1
hint: valid keys: server, limits, policy, network, approvals, journal, telemetry, log, tools, extensions, agents, execute, scripts, store, knowledge, connectors, mcp_servers, apis, frozen_params",
        ],
    );
}

#[test]
fn a_wrong_type_says_what_was_expected_and_what_came() {
    check(
        r#"limits = 3
[server]
host = 1979-05-27
port = "80"
allowed_hosts = "x"
allowed_origins = [true]
[tools]
dir = ["tools"]
watch = 1
script.jira = "jira.lua"
"#,
        &[
            "error[bad_config]: limits must be a table, got integer
  --> moonlark.toml:1:10
hint: write it as a table: [limits]",
            "error[bad_config]: server.host must be a string, got datetime
  --> moonlark.toml:3:8
hint: for example: host = \"127.0.0.1\"",
            "error[bad_config]: server.port must be an integer, got string
  --> moonlark.toml:4:8
hint: for example: port = 7331",
            "error[bad_config]: server.allowed_hosts must be an array, got string
  --> moonlark.toml:5:17
hint: for example: allowed_hosts = [\"moonlark.example.com\"]",
            "error[bad_config]: server.allowed_origins[0] must be a string, got boolean
  --> moonlark.toml:6:20
hint: write it in quotes",
            "error[bad_config]: tools.dir must be a string, got array
  --> moonlark.toml:8:7
hint: for example: dir = \"tools\"",
            "error[bad_config]: tools.watch must be a boolean, got integer
  --> moonlark.toml:9:9
hint: for example: watch = true",
            "error[bad_config]: tools.script.jira must be a table, got string
  --> moonlark.toml:10:15
hint: write it as a table: [tools.script.jira]",
        ],
    );
}

#[test]
fn a_word_that_is_none_of_the_known_ones_is_answered_with_one_of_them() {
    check(
        "[mcp_servers.a]\nurl = 'http://a'\ntransport = 'websocket'\n",
        &["error[bad_config]: mcp_servers.a.transport must be one of \"streamable-http\", \"sse\"
  --> moonlark.toml:3:13
hint: for example: transport = \"streamable-http\""],
    );
}

#[test]
fn a_number_out_of_range_says_the_range() {
    check(
        "server.port = 70000
[limits]
timeout = -1
memory = 0
parallel = 0
logs = \"0KB\"
value = -5
http_body = \"9999999999TB\"
request_body = 1.5
runs = 99999999999999999999
calls = 0x1_0000_0000
[limits.tools.x]
timeout = nan
",
        &[
            "error[bad_config]: server.port must be at least 0 and at most 65535, got 70000
  --> moonlark.toml:1:15
hint: for example: port = 7331",
            "error[bad_config]: limits.timeout must be more than 0 and at most 86400, got -1
  --> moonlark.toml:3:11
hint: for example: timeout = 30",
            "error[bad_config]: limits.memory must be more than 0 bytes
  --> moonlark.toml:4:10
hint: for example: memory = \"64MB\"",
            "error[bad_config]: limits.parallel must be at least 1 and at most 10000, got 0
  --> moonlark.toml:5:12
hint: for example: parallel = 16",
            "error[bad_config]: limits.logs must be more than 0 bytes
  --> moonlark.toml:6:8
hint: for example: logs = \"1MB\"",
            "error[bad_config]: limits.value must be more than 0 bytes
  --> moonlark.toml:7:9
hint: for example: value = \"32MB\"",
            "error[bad_config]: limits.http_body is too large
  --> moonlark.toml:8:13
hint: for example: http_body = \"10MB\"",
            "error[bad_config]: limits.request_body must be a size, got float
  --> moonlark.toml:9:16
hint: for example: request_body = \"4MB\"",
            "error[bad_config]: limits.runs is not a 64-bit integer
  --> moonlark.toml:10:8
hint: for example: runs = 4000",
            "error[bad_config]: limits.calls must be at least 0 and at most 1000000, got 4294967296
  --> moonlark.toml:11:9
hint: for example: calls = 100",
            "error[bad_config]: limits.tools.x.timeout must be a finite number
  --> moonlark.toml:13:11
hint: for example: timeout = 30",
        ],
    );
}

#[test]
fn a_script_needs_a_path_that_is_not_empty() {
    check(
        "[tools.script.a]\nurl = 1\n[tools.script.b]\npath = \"${EMPTY}\"\n[tools.script.c.sub]\n",
        &[
            "error[bad_config]: tools.script.a.path is missing
  --> moonlark.toml:1:1
hint: add a line such as path = \"tools/create-ticket.luau\"",
            "error[bad_config]: tools.script.b.path must not be empty
  --> moonlark.toml:4:8
hint: for example: path = \"tools/create-ticket.luau\"",
            "error[bad_config]: tools.script.c.path is missing
  --> moonlark.toml:5:15
hint: add a line such as path = \"tools/create-ticket.luau\"",
        ],
    );
}

#[test]
fn a_rule_that_cannot_be_meant_says_which_key() {
    let message = |content: &str| {
        let problems = load_bytes(content.as_bytes()).unwrap_err();
        problems.into_iter().map(|problem| problem.message).collect::<Vec<_>>()
    };
    let rule = |text: &str| message(&format!("[[policy.rules]]\n[[policy.rules]]\n{text}"));
    let bad_rate = "\"often\" is no rate such as \"10/s\", \"600/min\" or \"5000/h\"";
    for (text, expected) in [
        ("rate = 'often'", format!("policy.rules[1].rate: {bad_rate}")),
        ("timeout = '2d'", "policy.rules[1].timeout: must be at most a day".to_owned()),
        (
            "action = 'deny'\ncache = '1s'",
            "policy.rules[1].cache: says how to call what action = \"deny\" takes away".to_owned(),
        ),
        (
            "per = 'tool'",
            "policy.rules[1].per: counts nothing: set rate or concurrency as well".to_owned(),
        ),
        (
            "effects = ['writes']\ncache = '1s'",
            "policy.rules[1].cache: keeps answers of tools that only read, and the rule matches others".to_owned(),
        ),
        (
            "cache = 'soon'",
            "policy.rules[1].cache is not a time such as \"90s\", \"5min\", \"1h\" or \"30d\"".to_owned(),
        ),
        (
            "effects = ['deadly']",
            "policy.rules[1].effects[0] must be one of \"read-only\", \"writes\", \"destructive\", \"idempotent\", \"open-world\"".to_owned(),
        ),
    ] {
        assert_eq!(rule(text), [expected]);
    }
    assert_eq!(
        message("[tools.script.jira]\npath = 'x.lua'\nrate = 'often'"),
        [format!("tools.script.jira.rate: {bad_rate}")]
    );
}

#[test]
fn a_variable_that_all_of_moonlark_needs_is_named_with_its_key() {
    check(
        "[server.auth.tokens]
ci = \"${CI_TOKEN}\"
[policy]
rules = [{ tools = [\"${X} ${Y}\"], action = \"deny\" }]
",
        &[
            "error[bad_config]: server.auth.tokens.ci needs the environment variable CI_TOKEN, which is not set
  --> moonlark.toml:2:6
hint: set CI_TOKEN, or add a line CI_TOKEN=… to .moonlark/secrets.env, or write a default: \"${CI_TOKEN:-default}\"",
            "error[bad_config]: policy.rules[0].tools[0] needs the environment variable X, which is not set
  --> moonlark.toml:4:21
hint: set X, or add a line X=… to .moonlark/secrets.env, or write a default: \"${X:-default}\"",
            "error[bad_config]: policy.rules[0].tools[0] needs the environment variable Y, which is not set
  --> moonlark.toml:4:21
hint: set Y, or add a line Y=… to .moonlark/secrets.env, or write a default: \"${Y:-default}\"",
        ],
    );
}

#[test]
fn a_malformed_variable_is_reported_without_quoting_the_value() {
    check(
        "[server]
host = \"pw${B\"
allowed_hosts = [\"pw${no name}\", \"${X:-${B}}\"]
",
        &[
            "error[bad_config]: server.host has a \"${\" without a \"}\"
  --> moonlark.toml:2:8
hint: write \"${NAME}\" for a variable, or \"$${\" for a literal \"${\"",
            "error[bad_config]: server.allowed_hosts[0] has a \"${…}\" that names no variable
  --> moonlark.toml:3:18
hint: write \"${NAME}\" for a variable, or \"$${\" for a literal \"${\"",
            "error[bad_config]: server.allowed_hosts[1] has a \"${\" inside the default of X
  --> moonlark.toml:3:34
hint: a default is plain text; leave the inner variable out",
        ],
    );
}

#[test]
fn a_script_value_without_a_json_form_is_refused() {
    check(
        "[tools.script.jira]\npath = \"x\"\na = nan\nb = [-inf]\nc = 1e999\nd = 9223372036854775808",
        &[
            "error[bad_config]: tools.script.jira.a must be a finite number
  --> moonlark.toml:3:5
hint: write it as a string, or leave it out",
            "error[bad_config]: tools.script.jira.b[0] must be a finite number
  --> moonlark.toml:4:6
hint: write it as a string, or leave it out",
            "error[bad_config]: tools.script.jira.c must be a finite number
  --> moonlark.toml:5:5
hint: write it as a string, or leave it out",
            "error[bad_config]: tools.script.jira.d is not a 64-bit integer
  --> moonlark.toml:6:5
hint: write it as a string, or leave it out",
        ],
    );
}

#[test]
fn a_syntax_error_has_its_place_and_quotes_nothing() {
    check(
        "[server]\nport 80\n",
        &["error[bad_config]: not valid TOML: key with no value, expected `=`
  --> moonlark.toml:2:6
hint: check the quotes, brackets and equals signs here and just before"],
    );
    check(
        "token = \"s3cret",
        &["error[bad_config]: not valid TOML: invalid basic string, expected `\"`
  --> moonlark.toml:1:16
hint: check the quotes, brackets and equals signs here and just before"],
    );
}

#[test]
fn a_duplicate_key_is_named() {
    check(
        "[server]\nport = 1\nport = 2\n",
        &["error[bad_config]: duplicate key port
  --> moonlark.toml:3:1
hint: a key may be set once; remove one of the two"],
    );
    check(
        "[server]\n[limits]\n[server]\n",
        &["error[bad_config]: duplicate key server
  --> moonlark.toml:3:2
hint: a key may be set once; remove one of the two"],
    );
}

#[test]
fn columns_count_characters() {
    check(
        "\u{feff}server = { \"hö🦀\" = 1, port = true }",
        &[
            "error[bad_config]: unknown key server.\"hö🦀\"
  --> moonlark.toml:1:12
hint: valid keys of server: host, port, allowed_hosts, allowed_origins, name, instructions, settle, schemas, auth",
            "error[bad_config]: server.port must be an integer, got boolean
  --> moonlark.toml:1:30
hint: for example: port = 7331",
        ],
    );
}

#[test]
fn fifty_thousand_mistakes_on_one_line_are_all_reported() {
    let many: String = (0..50_000).map(|n| format!("\"é{n}\"=[],")).collect();
    let problems = load_bytes(format!("server = {{ {many} }}").as_bytes()).unwrap_err();
    assert_eq!(problems.len(), 50_000);
}

#[test]
fn no_depth_of_nesting_crashes() {
    let dotted = vec!["a"; 75].join(".");
    let deep = format!("{}1{}", format!("{{{dotted}=").repeat(75), "}".repeat(75));
    check(
        &format!("[tools.script.jira]\npath = \"x\"\ndeep = {deep}"),
        &[&format!(
            "error[bad_config]: tools.script.jira.deep{} is nested deeper than 128 levels
  --> moonlark.toml:3:258
hint: use fewer levels",
            ".a".repeat(125)
        )],
    );
    for deep in ["[".repeat(500_000), "{a=".repeat(300_000), "a.".repeat(500_000)] {
        assert_eq!(load_bytes(format!("x = {deep}").as_bytes()).unwrap_err().len(), 1);
        assert_eq!(load_bytes(deep.as_bytes()).unwrap_err().len(), 1);
    }
}
