//! Variables and files that are not there: they cost the source that needs them, and
//! a check needs none of them.

use super::*;

const SIX_SOURCES: &str = r#"
[tools.script.oncall]
path = "tools/oncall.lua"
allow = ["net:${ONCALL_HOST}", "env:X"]
expose = "${ONCALL_EXPOSE}"
token = "${ONCALL_TOKEN}"

[tools.script.fine]
path = "tools/fine.lua"
token = "${B}"

[extensions.script.git]
deep = { list = [1, "${GIT_KEY}"] }

[mcp_servers.graph]
url = "https://${GRAPH_HOST}/mcp"
headers = { Authorization = "Bearer ${GRAPH_TOKEN}" }

[apis.shop]
spec = "shop.yaml"
base_url = "${SHOP_URL}"
rate = "${SHOP_RATE}"

[connectors.git.handbook]
url = "https://me:${HANDBOOK_PASSWORD}@example.com/a.git"

[connectors.script.wiki]
path = "connectors/wiki.lua"
key = "${file:keys/wiki}"
"#;

fn names(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(Problem::to_line).collect()
}

#[test]
fn what_is_not_there_puts_one_source_out_of_order_and_no_other() {
    let config = config(SIX_SOURCES);
    let missing = |place: &str, key: &str, name: &str| {
        format!(
            "moonlark.toml:{place}: {key} needs the environment variable {name}, which is not set"
        )
    };
    let then = |key: &str, name: &str| {
        format!("; {key} needs the environment variable {name}, which is not set")
    };
    let oncall = &config.tools.script["oncall"];
    assert_eq!(
        names(&oncall.config.outage),
        [missing("4:10", "tools.script.oncall.allow[0]", "ONCALL_HOST")
            + &then("tools.script.oncall.expose", "ONCALL_EXPOSE")
            + &then("tools.script.oncall.token", "ONCALL_TOKEN")]
    );
    assert_eq!(oncall.expose, moonlark_core::tool::ToolExposure::default());
    assert_eq!(config.tools.script["fine"].config.outage, []);
    assert_eq!(
        names(&config.extensions.script["git"].config.outage),
        [missing("13:21", "extensions.script.git.deep.list[1]", "GIT_KEY")]
    );
    assert_eq!(
        names(&config.mcp_servers["graph"].outage),
        [missing("16:7", "mcp_servers.graph.url", "GRAPH_HOST")
            + &then("mcp_servers.graph.headers.Authorization", "GRAPH_TOKEN")]
    );
    let shop = names(&config.apis["shop"].outage);
    assert!(shop[0].contains("SHOP_URL") && shop[0].contains("SHOP_RATE"), "{shop:?}");
    assert_eq!(config.connectors.git["handbook"].outage.len(), 1);
    assert_eq!(
        names(&config.connectors.script["wiki"].config.outage),
        [
            "moonlark.toml:29:7: connectors.script.wiki.key needs the file keys/wiki: there is no such file"
        ]
    );
}

#[test]
fn other_mistakes_of_such_a_source_are_reported_all_the_same() {
    let problems = load_bytes(
        b"[mcp_servers.a]\ncommand = \"${NONE}\"\nurl = \"http://x\"\n[mcp_servers.'b c']\nurl = \"${NONE}\"",
    );
    assert_eq!(
        names(&problems.unwrap_err()),
        [
            "moonlark.toml:3:1: mcp_servers.a.url: command and url exclude each other",
            "moonlark.toml:4:14: mcp_servers.\"b c\": the name may have letters, digits, -, _ and single dots inside, and at most 64 of them",
        ]
    );
}

#[test]
fn a_check_needs_no_value() {
    let text = format!("{SIX_SOURCES}\n[server.auth.tokens]\nci = \"${{CI}}\"\n");
    let dir = TempDir::new().unwrap();
    fs::write(dir.path().join(CONFIG_FILE_NAME), &text).unwrap();
    let problems = load_config(None, dir.path(), &env).unwrap_err().errors;
    assert_eq!(
        names(&problems),
        [
            "moonlark.toml:32:6: server.auth.tokens.ci needs the environment variable CI, which is not set"
        ]
    );
    let loaded = load_config_with(ValueRequirement::Never, None, dir.path(), &env).unwrap();
    assert_eq!(loaded.unset.len(), 11);
    assert_eq!(loaded.config.tools.script["oncall"].config.outage, []);
    // What is shown means the same.
    let shown = render_redacted_config(&loaded);
    assert!(shown.contains("base_url = \"${SHOP_URL}\""), "{shown}");
}

#[test]
fn the_knowledge_base_is_a_source_too() {
    let config = config(
        "[knowledge]\nembedder = { kind = 'openai', url = 'https://example.com', model = 'm', api_key = '${NONE}' }",
    );
    assert_eq!(
        names(&config.knowledge.outage),
        [
            "moonlark.toml:2:83: knowledge.embedder.api_key needs the environment variable NONE, which is not set"
        ]
    );
}

#[test]
fn the_environment_comes_first_then_the_secrets_file() {
    let dir = TempDir::new().unwrap();
    let text =
        "[tools.script.jira]\npath = 'x'\na = '${B}'\nb = '${KEPT}'\n[server]\nhost = '${HOST}'";
    fs::write(dir.path().join(CONFIG_FILE_NAME), text).unwrap();
    fs::create_dir(dir.path().join(".moonlark")).unwrap();
    let secrets = "B=not this\nKEPT='kept secret'\nHOST=localhost\nodd\n";
    fs::write(dir.path().join(".moonlark/secrets.env"), secrets).unwrap();
    let loaded = load_config(None, dir.path(), &env).unwrap();
    let own = &loaded.config.tools.script["jira"].config;
    assert_eq!((&own.values["a"], &own.values["b"]), (&json!("bee"), &json!("kept secret")));
    assert_eq!(loaded.config.server.host, "localhost");
    assert_eq!(
        own.secrets,
        [ConfigSecret::new("a", "bee", false), ConfigSecret::new("b", "kept secret", true)]
    );
    assert_eq!(names(&loaded.warnings), [".moonlark/secrets.env:4: the line is no variable"]);
    assert_eq!(loaded.value_files, [dir.path().join(".moonlark/secrets.env")]);
    assert!(!format!("{loaded:?}").contains("kept secret"));
    assert!(!render_redacted_config(&loaded).contains("kept secret"));
}

#[test]
fn a_secret_may_be_in_a_file_of_its_own() {
    let dir = TempDir::new().unwrap();
    let text =
        "[tools.script.jira]\npath = 'x'\na = 'Bearer ${file:keys/jira}'\nb = '${file:none:-}'\n";
    fs::write(dir.path().join(CONFIG_FILE_NAME), text).unwrap();
    fs::create_dir(dir.path().join("keys")).unwrap();
    fs::write(dir.path().join("keys/jira"), "s3cret\r\n\n").unwrap();
    let loaded = load_config(None, dir.path(), &env).unwrap();
    let own = &loaded.config.tools.script["jira"].config;
    assert_eq!((&own.values["a"], &own.values["b"]), (&json!("Bearer s3cret"), &json!("")));
    let secrets =
        [ConfigSecret::new("a", "Bearer s3cret", true), ConfigSecret::new("a", "s3cret", true)];
    assert_eq!(own.secrets, secrets);
    let files: Vec<_> =
        loaded.value_files.iter().map(|it| it.strip_prefix(dir.path()).unwrap()).collect();
    assert_eq!(
        files,
        [Path::new(".moonlark/secrets.env"), Path::new("keys/jira"), Path::new("none")]
    );
}

#[test]
fn only_a_small_regular_text_file_is_a_value() {
    let dir = TempDir::new().unwrap();
    fs::create_dir(dir.path().join("folder")).unwrap();
    fs::write(dir.path().join("large"), vec![b'x'; 65 * 1024]).unwrap();
    fs::write(dir.path().join("bytes"), [0xff, 0xfe]).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    for (file, why) in [
        ("folder", "it is not a regular file"),
        ("socket", "it is not a regular file"),
        ("large", "it is larger than 64 KB"),
        ("bytes", "it is not UTF-8 text"),
    ] {
        let text = format!("[apis.a]\nspec = 'x'\nauth = '${{file:{file}}}'");
        fs::write(dir.path().join(CONFIG_FILE_NAME), text).unwrap();
        let loaded = load_config(None, dir.path(), &env).unwrap();
        let said = format!("moonlark.toml:3:8: apis.a.auth needs the file {file}: {why}");
        assert_eq!(names(&loaded.config.apis["a"].outage), [said]);
    }
}

#[test]
fn a_file_of_variables_joins_those_of_a_server() {
    let dir = TempDir::new().unwrap();
    let text = "[mcp_servers.a]\ncommand = 'x'\nenv_file = '.env'\nenv = { A = 'own' }\n[mcp_servers.b]\ncommand = 'x'\nenv_file = 'none'\n";
    fs::write(dir.path().join(CONFIG_FILE_NAME), text).unwrap();
    fs::write(dir.path().join(".env"), "A=file\nPLAIN=hunter2\n").unwrap();
    let loaded = load_config(None, dir.path(), &env).unwrap();
    let server = &loaded.config.mcp_servers["a"];
    let values: Vec<(&str, &str)> =
        server.env.iter().map(|(name, value)| (name.as_str(), value.0.as_str())).collect();
    assert_eq!(values, [("A", "own"), ("PLAIN", "hunter2")]);
    assert!(server.secrets.iter().any(|it| it.expose_secret() == "hunter2" && it.by_name));
    assert_eq!(
        names(&loaded.config.mcp_servers["b"].outage),
        ["moonlark.toml:7:1: mcp_servers.b.env_file cannot be used: there is no such file"]
    );
}
