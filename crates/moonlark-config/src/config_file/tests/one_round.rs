//! Mistakes of every kind in one file: all of them are said at once, each with its line
//! and with what to do about it. What is only odd is a warning.

use super::*;

#[test]
fn types_rules_names_rates_and_grants_are_reported_in_one_round() {
    check(
        r#"[server]
prot = 8080

[mcp_servers.both]
command = "npx"
url = "https://example.com/mcp"
timeout = "soon"

[mcp_servers."my server"]
command = "npx"

[mcp_servers.neither]
lazy = true

[tools.script.jira]
path = "x.lua"
rate = "10/fortnight"
allow = ["nett:x", "net:example.com", "fs:wirte", "tool:"]

[connectors.filesystem.docs]
root = "docs"
include = ["a[", "ok"]

[[policy.rules]]
action = "deny"
rate = "10/min"
"#,
        &[
            "error[bad_config]: unknown key server.prot
  --> moonlark.toml:2:1
hint: did you mean port?",
            "error[bad_config]: mcp_servers.both.url: command and url exclude each other
  --> moonlark.toml:6:1
hint: remove one of the two",
            "error[bad_config]: mcp_servers.both.timeout must be a number, got string
  --> moonlark.toml:7:11
hint: for example: timeout = 30",
            "error[bad_config]: mcp_servers.\"my server\": the name may have letters, digits, -, _ and single dots inside, and at most 64 of them
  --> moonlark.toml:9:14
hint: rename the table, for example [mcp_servers.my-name]",
            "error[bad_config]: mcp_servers.neither: needs either command or url
  --> moonlark.toml:12:14
hint: add command = \"npx\" with args, or url = \"https://…\"",
            "error[bad_config]: tools.script.jira.rate: \"10/fortnight\" is no rate such as \"10/s\", \"600/min\" or \"5000/h\"
  --> moonlark.toml:17:1
hint: for example: rate = \"10/min\"",
            "error[bad_config]: tools.script.jira.allow[0]: \"nett:x\" is not a grant: the kind is none of net, env, fs, exec, sqlite, sql, tool, scripts
  --> moonlark.toml:18:10
hint: grants look like \"net:api.github.com\", \"net:127.0.0.1:8080\", \"net:10.0.0.0/8\", \"env:NAME\", \"fs:write\", \"exec:git\", \"sqlite:../data/app.db\", \"sql:write\", \"scripts:write\" or \"tool:jira_*\"",
            "error[bad_config]: tools.script.jira.allow[2]: \"fs:wirte\" is not a grant: only \"fs:write\" exists; reading is allowed anyway
  --> moonlark.toml:18:39
hint: grants look like \"net:api.github.com\", \"net:127.0.0.1:8080\", \"net:10.0.0.0/8\", \"env:NAME\", \"fs:write\", \"exec:git\", \"sqlite:../data/app.db\", \"sql:write\", \"scripts:write\" or \"tool:jira_*\"",
            "error[bad_config]: tools.script.jira.allow[3]: \"tool:\" is not a grant: it names nothing
  --> moonlark.toml:18:51
hint: grants look like \"net:api.github.com\", \"net:127.0.0.1:8080\", \"net:10.0.0.0/8\", \"env:NAME\", \"fs:write\", \"exec:git\", \"sqlite:../data/app.db\", \"sql:write\", \"scripts:write\" or \"tool:jira_*\"",
            "error[bad_config]: connectors.filesystem.docs.include: error parsing glob 'a[': unclosed character class; missing ']'
  --> moonlark.toml:22:1
hint: for example: include = [\"**/*.md\"]",
            "error[bad_config]: policy.rules[0].rate: says how to call what action = \"deny\" takes away
  --> moonlark.toml:26:1
hint: remove rate, or write another action",
        ],
    );
}

#[test]
fn a_key_that_was_wrong_already_is_not_asked_for_again() {
    check(
        "[mcp_servers.a]\ncommand = 1\n[tools.script.b]\npath = ''\nrate = 5",
        &[
            "error[bad_config]: mcp_servers.a.command must be a string, got integer
  --> moonlark.toml:2:11
hint: for example: command = \"npx\"",
            "error[bad_config]: tools.script.b.path must not be empty
  --> moonlark.toml:4:8
hint: for example: path = \"tools/create-ticket.luau\"",
            "error[bad_config]: tools.script.b.rate must be a string, got integer
  --> moonlark.toml:5:8
hint: for example: rate = \"10/min\"",
        ],
    );
}

#[test]
fn what_is_odd_is_said_beside_what_is_wrong() {
    let dir = TempDir::new().unwrap();
    let text = "[server]\nprot = 1\n[tools.script.a]\npath = 'x'\nalow = []\nkey = '${NOT_SET}'\n";
    fs::write(dir.path().join(CONFIG_FILE_NAME), text).unwrap();
    let rejected = load_config_with(ValueRequirement::Never, None, dir.path(), &env).unwrap_err();
    let lines = |problems: &[Problem]| problems.iter().map(Problem::to_line).collect::<Vec<_>>();
    assert_eq!(lines(&rejected.errors), ["moonlark.toml:2:1: unknown key server.prot"]);
    assert_eq!(
        lines(&rejected.warnings),
        [
            "moonlark.toml:5:1: alow in [tools.script.a] is the script's own key, and looks like allow"
        ]
    );
    assert_eq!(rejected.unset.len(), 1, "{rejected:?}");
    // To run, what is not there costs the script that needs it, and is said there.
    let rejected = load_config(None, dir.path(), &env).unwrap_err();
    assert_eq!((rejected.errors.len(), rejected.warnings.len(), rejected.unset.len()), (1, 1, 0));
}

fn warnings(table: &str) -> Vec<String> {
    let loaded = load_bytes(table.as_bytes()).unwrap();
    loaded.warnings.iter().map(Problem::to_string).collect()
}

#[test]
fn a_key_of_a_scripts_own_that_looks_like_one_of_ours_is_a_warning() {
    assert_eq!(
        warnings("[tools.script.a]\npath = 'x'\nalow = ['net:x']\ntimeot = 5\nrat = '10/min'"),
        [
            "error[bad_config]: alow in [tools.script.a] is the script's own key, and looks like allow
  --> moonlark.toml:3:1
hint: did you mean allow? If it is the script's own, write it in quotes: \"alow\" = …",
            "error[bad_config]: timeot in [tools.script.a] is the script's own key, and looks like timeout
  --> moonlark.toml:4:1
hint: did you mean timeout? If it is the script's own, write it in quotes: \"timeot\" = …",
            "error[bad_config]: rat in [tools.script.a] is the script's own key, and looks like rate
  --> moonlark.toml:5:1
hint: did you mean rate? If it is the script's own, write it in quotes: \"rat\" = …",
        ]
    );
    assert_eq!(
        warnings("[tools.script.a]\npath = 'x'\nallow = ['net:x']\nalow = ['net:y']"),
        ["error[bad_config]: alow in [tools.script.a] is the script's own key, and looks like allow
  --> moonlark.toml:4:1
hint: did you mean allow, which is there as well? If it is the script's own, write it in quotes: \"alow\" = …"]
    );
    assert_eq!(warnings("[connectors.script.a]\npath = 'x'\nallows = ['net:x']").len(), 1);
    assert_eq!(warnings("[extensions.script.a]\nexposed = 'code'").len(), 1);
}

#[test]
fn a_key_that_is_meant_is_none() {
    for own in [
        // In quotes, it is what it is.
        "\"alow\" = ['net:x']",
        "'timeot' = 5",
        // A value that ours would not take.
        "date = '2026-01-31'",
        "role = 'admin'",
        "allowed = true",
        "timeot = 'never'",
        // Ours is there as well.
        "timeout = 5\ntimeouts = 6",
        "url = 'https://example.com'\ntoken = 'x'\nproject = 'ENG'\nname = 'x'\nlimit = 3\nenv = 'test'",
    ] {
        let table = format!("[tools.script.a]\npath = 'x'\n{own}");
        assert_eq!(warnings(&table), [""; 0], "{own}");
    }
    // Inside a table of its own, nothing is ours.
    assert_eq!(warnings("[tools.script.a]\npath = 'x'\nsub = { alow = ['x'] }"), [""; 0]);
}
