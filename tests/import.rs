//! `moonlark import`, with files as the clients write them. `moonlark install` is
//! in `import/install.rs`, at the same desk, its tokens in `import/install_tokens.rs`, and one table over all clients in
//! `import/every_client.rs`; what a client of the desktop makes of it is in
//! `import/desktop_client.rs`.

mod desktop_client;
mod every_client;
mod install;
mod install_tokens;
mod other_projects;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use crate::harness::moonlark;

const DESKTOP: &str = "home/.config/Claude/claude_desktop_config.json";
const CURSOR: &str = "home/.cursor/mcp.json";
const VSCODE: &str = "home/.config/Code/User/mcp.json";
const ZED: &str = "home/.config/zed/settings.json";
const CLAUDE_CODE: &str = "home/.claude.json";

/// Variables by which the clients of whoever runs the tests may keep files elsewhere.
const MOVES_FILES: [&str; 10] = [
    "CLAUDE_CONFIG_DIR",
    "CLINE_DATA_DIR",
    "CLINE_DIR",
    "CLINE_MCP_SETTINGS_PATH",
    "CODEX_HOME",
    "CONTINUE_GLOBAL_DIR",
    "GEMINI_CLI_HOME",
    "GOOSE_PATH_ROOT",
    "QWEN_HOME",
    "XDG_CONFIG_HOME",
];

/// A user with a home folder and a project.
struct Desk {
    dir: tempfile::TempDir,
}

impl Desk {
    fn new(files: &[(&str, &str)]) -> Desk {
        let desk = Desk { dir: tempfile::tempdir().unwrap() };
        std::fs::create_dir(desk.path("home")).unwrap();
        std::fs::create_dir(desk.path("project")).unwrap();
        for (file, text) in files {
            desk.write(file, text);
        }
        desk
    }

    fn path(&self, file: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(file)
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.path(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.path(file)).unwrap()
    }

    fn has(&self, file: &str) -> bool {
        self.path(file).symlink_metadata().is_ok()
    }

    fn run_with(&self, args: &[&str], env: &[(&str, &str)]) -> Output {
        let mut command = moonlark();
        for variable in MOVES_FILES {
            command.env_remove(variable);
        }
        command
            .args(args)
            .env("HOME", self.path("home"))
            .env("PATH", "/usr/bin:/bin")
            .envs(env.iter().copied())
            .current_dir(self.path("project"))
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// What a command prints when it succeeds, with the desk as `DESK` and the
    /// binary as `MOONLARK`.
    fn run(&self, args: &[&str]) -> String {
        let output = self.run_with(args, &[]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{args:?}: {said}");
        self.plain(&String::from_utf8(output.stdout).unwrap())
    }

    /// What it complains of when it fails.
    fn fail(&self, args: &[&str]) -> String {
        let output = self.run_with(args, &[]);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "");
        self.plain(&String::from_utf8(output.stderr).unwrap())
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.run(args)).unwrap()
    }

    fn plain(&self, text: &str) -> String {
        let binary = Path::new(env!("CARGO_BIN_EXE_moonlark")).canonicalize().unwrap();
        text.replace(binary.to_str().unwrap(), "MOONLARK")
            .replace(self.path("").to_str().unwrap().trim_end_matches('/'), "DESK")
    }
}

#[test]
fn importing_writes_tables_and_keeps_secrets_for_the_user_alone() {
    let desk = Desk::new(&[(
        "project/claude_desktop_config.json",
        r#"{
  "globalShortcut": "Ctrl+Space",
  "mcpServers": {
    "filesystem": {
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "/home/ann/notes"]
    },
    "github": {
      "command": "docker",
      "args": ["run", "-i", "--rm", "-e", "GITHUB_PERSONAL_ACCESS_TOKEN", "ghcr.io/github/github-mcp-server"],
      "env": { "GITHUB_PERSONAL_ACCESS_TOKEN": "ghp_abcdefghijklmnopqrstuvwxyz0123456789" },
      "alwaysAllow": ["get_me"]
    },
    "Brave Search": {
      "command": "npx",
      "args": ["-y", "brave-search-mcp", "--api-key", "BSA-hunter2"],
      "disabled": false
    },
    "off": { "command": "npx", "disabled": true },
    "moonlark": { "command": "/usr/local/bin/moonlark", "args": ["stdio"] }
  }
}
"#,
    )]);
    let expected = "\
--- /dev/null
+++ moonlark.toml
@@ -0,0 +1,19 @@
+[mcp_servers.filesystem]
+command = \"npx\"
+args = [\"-y\", \"@modelcontextprotocol/server-filesystem\", \"/home/ann/notes\"]
+
+[mcp_servers.github]
+command = \"docker\"
+args = [
+    \"run\",
+    \"-i\",
+    \"--rm\",
+    \"-e\",
+    \"GITHUB_PERSONAL_ACCESS_TOKEN\",
+    \"ghcr.io/github/github-mcp-server\",
+]
+env = { GITHUB_PERSONAL_ACCESS_TOKEN = \"${GITHUB_GITHUB_PERSONAL_ACCESS_TOKEN}\" }
+
+[mcp_servers.Brave-Search]
+command = \"npx\"
+args = [\"-y\", \"brave-search-mcp\", \"--api-key\", \"${BRAVE_SEARCH_API_KEY}\"]

";
    let report = "\
filesystem, github, Brave-Search (Brave Search)
  github: without alwaysAllow
  off: left out, it is disabled there
  moonlark: left out, it is Moonlark itself
  BRAVE_SEARCH_API_KEY for mcp_servers.Brave-Search
  GITHUB_GITHUB_PERSONAL_ACCESS_TOKEN for mcp_servers.github
";
    let import = ["import", "claude_desktop_config.json"];
    let dry = desk.run(&[&import[..], &["--dry-run"]].concat());
    let (above, kept) = report.split_once("  BRAVE").unwrap();
    let told = |added: &str, keeps: &str| {
        format!(
            "{expected}{added} to moonlark.toml: {above}{keeps} secrets in .moonlark/secrets.env, for you alone:\n  BRAVE{kept}"
        )
    };
    assert_eq!(dry, told("Would add", "Would keep"));
    assert!(!desk.has("project/moonlark.toml") && !desk.has("project/.moonlark"));

    assert_eq!(desk.run(&import), told("Added", "Kept"));
    let secrets = desk.read("project/.moonlark/secrets.env");
    let (_, secrets) = secrets.split_once('\n').unwrap();
    assert_eq!(
        secrets,
        "BRAVE_SEARCH_API_KEY=BSA-hunter2\nGITHUB_GITHUB_PERSONAL_ACCESS_TOKEN=ghp_abcdefghijklmnopqrstuvwxyz0123456789\n"
    );
    let mode = |file: &str| desk.path(file).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("project/.moonlark"), 0o700);
    assert_eq!(mode("project/.moonlark/secrets.env"), 0o600);
    let written = desk.read("project/moonlark.toml");
    assert!(!written.contains("hunter2") && !written.contains("ghp_"), "{written}");
    let mode = desk.path("project/moonlark.toml").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o600, 0o600);

    let again = desk.run(&import);
    assert!(again.starts_with("Nothing to add to moonlark.toml\n"), "{again}");
    assert_eq!(desk.read("project/moonlark.toml"), written);
}

#[test]
fn an_imported_configuration_is_one_that_moonlark_takes() {
    let desk = Desk::new(&[(
        "project/.mcp.json",
        r#"{"mcpServers": {
            "a": {"type": "stdio", "command": "./serve", "args": ["${MODE:-fast}"], "env": {"API_KEY": "k", "N": 1}},
            "b": {"type": "http", "url": "https://example.com/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
            "c": {"type": "sse", "url": "https://example.com/sse"}
        }}"#,
    )]);
    desk.run(&["import", ".mcp.json"]);
    assert_eq!(
        desk.read("project/moonlark.toml"),
        "\
[mcp_servers.a]
command = \"./serve\"
args = [\"${MODE:-fast}\"]
env = { API_KEY = \"${A_API_KEY}\", N = \"1\" }

[mcp_servers.b]
url = \"https://example.com/mcp\"
headers = { Authorization = \"Bearer ${TOKEN}\" }

[mcp_servers.c]
url = \"https://example.com/sse\"
transport = \"sse\"
"
    );
    let output = desk.run_with(&["config", "check"], &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // What was a variable before is still the user's to set; the secret is there.
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        said,
        "note: moonlark.toml:8:29: mcp_servers.b.headers.Authorization needs the environment variable TOKEN, which is not set\n"
    );
}

#[test]
fn every_client_is_known_by_its_name() {
    let desk = Desk::new(&[
        (DESKTOP, r#"{"mcpServers": {"desktop": {"command": "a"}}}"#),
        (
            CURSOR,
            "\u{feff}{\r\n  \"mcpServers\": {\r\n    \"cursor\": {\"url\": \"https://x.example/mcp\"},\r\n  },\r\n}\r\n",
        ),
        ("project/.cursor/mcp.json", r#"{"mcpServers": {"cursor-project": {"command": "b"}}}"#),
        (
            VSCODE,
            "{\n  // mine\n  \"servers\": {\"code\": {\"type\": \"stdio\", \"command\": \"${userHome}/bin/c\"}},\n}",
        ),
        (
            "project/.vscode/mcp.json",
            r#"{"servers": {"code-project": {"command": "${workspaceFolder}/d"}}, "inputs": []}"#,
        ),
        (
            "project/.vscode/settings.json",
            r#"{"editor.tabSize": 2, "mcp": {"servers": {"code-old": {"command": "e"}}}}"#,
        ),
        (
            ZED,
            "// Zed settings\n{\n  \"theme\": \"One Dark\",\n  \"context_servers\": {\n    \"zed\": {\"source\": \"custom\", \"command\": {\"path\": \"f\", \"args\": [\"x\"]}},\n    \"extension\": {\"source\": \"extension\", \"settings\": {}}\n  }\n}\n",
        ),
        (
            CLAUDE_CODE,
            r#"{"numStartups": 7, "mcpServers": {"code-user": {"type": "stdio", "command": "g", "args": [], "env": {}}}, "projects": {"/w": {"mcpServers": {"local": {"command": "./h"}}}}}"#,
        ),
        ("project/.mcp.json", r#"{"mcpServers": {"shared": {"command": "i"}}}"#),
    ]);
    let mut did = Vec::new();
    for client in ["claude-desktop", "cursor", "vscode", "zed", "claude-code"] {
        let report = desk.json(&["import", client, "--dry-run", "--json"]);
        assert_eq!((&report["changed"], &report["dry_run"]), (&json!(false), &json!(true)));
        for server in report["servers"].as_array().unwrap() {
            let text = |key: &str| server[key].as_str().unwrap_or_default().to_owned();
            did.push(format!("{client}: {} {} from {}", text("did"), text("from"), text("file")));
        }
        let output = desk.run(&["import", client]);
        assert!(output.contains("Added to moonlark.toml"), "{output}");
    }
    assert_eq!(
        did,
        [
            "claude-desktop: added desktop from DESK/home/.config/Claude/claude_desktop_config.json",
            "cursor: added cursor-project from .cursor/mcp.json",
            "cursor: added cursor from DESK/home/.cursor/mcp.json",
            "vscode: added code-project from .vscode/mcp.json",
            "vscode: added code-old from .vscode/settings.json",
            "vscode: added code from DESK/home/.config/Code/User/mcp.json",
            "zed: added zed from DESK/home/.config/zed/settings.json",
            "zed: left extension from DESK/home/.config/zed/settings.json",
            "claude-code: added shared from .mcp.json",
            "claude-code: added code-user from DESK/home/.claude.json",
            "claude-code: added local from DESK/home/.claude.json",
        ]
    );
    let written = desk.plain(&desk.read("project/moonlark.toml"));
    for line in [
        "command = \"DESK/home/bin/c\"",
        "command = \"DESK/project/d\"",
        "command = \"f\"\nargs = [\"x\"]",
        "command = \"./h\"\ncwd = \"/w\"",
    ] {
        assert!(written.contains(line), "{line} in\n{written}");
    }
}

#[test]
fn an_import_leaves_what_is_in_the_file() {
    let before = "# My project\r\n[server] # the port\r\nport   = 8080\r\n\r\n[tools.script.x]\r\ntoken = \"hunter2\"";
    let desk = Desk::new(&[
        ("project/moonlark.toml", before),
        ("project/servers.json", r#"{"mcpServers": {"a": {"command": "x"}}}"#),
    ]);
    let said = desk.run(&["import", "servers.json"]);
    assert_eq!(
        said,
        "--- moonlark.toml\n+++ moonlark.toml\n@@ -6,0 +7,3 @@\n+\n+[mcp_servers.a]\n+command = \"x\"\n\nAdded to moonlark.toml: a\n"
    );
    assert_eq!(
        desk.read("project/moonlark.toml"),
        format!("{before}\r\n\r\n[mcp_servers.a]\r\ncommand = \"x\"\r\n")
    );
}

#[test]
fn the_file_named_with_config_is_the_one_that_changes() {
    let desk = Desk::new(&[
        ("project/moonlark.toml", "# mine\n"),
        ("project/servers.json", r#"{"mcpServers": {"a": {"command": "x"}}}"#),
    ]);
    desk.run(&["--config", "other.toml", "import", "servers.json"]);
    assert_eq!(desk.read("project/moonlark.toml"), "# mine\n");
    assert_eq!(desk.read("project/other.toml"), "[mcp_servers.a]\ncommand = \"x\"\n");
}

#[test]
fn secrets_are_written_only_when_asked_for_and_never_printed() {
    let desk = Desk::new(&[(
        "project/servers.json",
        r#"{"mcpServers": {
            "db": {"command": "x", "args": ["postgres://ann:hunter2@db/shop"], "env": {"API_KEY": "hunter3"}},
            "web": {"url": "https://example.com/mcp?token=hunter4", "headers": {"Authorization": "Bearer hunter5"}}
        }}"#,
    )]);
    let report = desk.run(&["import", "servers.json", "--dry-run", "--json"]);
    assert!(!report.contains("hunter"), "{report}");
    // Others could read it before.
    desk.write("project/moonlark.toml", "# mine\n");
    let path = desk.path("project/moonlark.toml");
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o644)).unwrap();
    let said = desk.run(&["import", "servers.json", "--keep-secrets"]);
    assert!(!said.contains("hunter"), "{said}");
    let ending = "\nmoonlark.toml holds secrets: it is now readable by you alone; keep it out of what you commit\n";
    assert!(said.ends_with(ending), "{said}");
    let written = desk.read("project/moonlark.toml");
    for secret in ["ann:hunter2@", "hunter3", "token=hunter4", "Bearer hunter5"] {
        assert!(written.contains(secret), "{secret} in\n{written}");
    }
    let mode = desk.path("project/moonlark.toml").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn what_cannot_be_imported_changes_nothing_and_says_where() {
    let desk = Desk::new(&[
        ("project/broken.json", "{\n  \"mcpServers\": {\n    \"a\" { }\n"),
        ("project/other.json", "{\"name\": \"x\"}"),
        ("project/list.json", "[1]"),
        ("project/utf16.json", ""),
        ("project/empty.json", ""),
        ("project/good.json", r#"{"mcpServers": {"a": {"command": "x"}}}"#),
        ("project/bad.toml", "a = [\n1\nb = 2\n"),
        ("project/inline.toml", "mcp_servers = { z = { command = \"y\" } }\n"),
    ]);
    std::fs::write(desk.path("project/utf16.json"), b"\xff\xfe{\0}\0").unwrap();
    for (args, said) in [
        (vec!["broken.json"], "error[bad_config]: a : is missing here\n  --> broken.json:3:9\n"),
        (
            vec!["other.json"],
            "error[bad_request]: this is no configuration of MCP servers that is known\n  --> other.json\n",
        ),
        (vec!["utf16.json"], "error[bad_config]: the file is not UTF-8 text\n  --> utf16.json\n"),
        (
            vec!["list.json"],
            "error[bad_request]: this is no configuration of MCP servers that is known\n  --> list.json\n",
        ),
        (vec!["none.json"], "error[not_found]: there is no such file\n  --> none.json\n"),
        (vec!["zed"], "error[not_found]: Zed has no configuration\n"),
        (vec!["."], "error[bad_request]: this is not a file\n  --> .\n"),
        (vec!["good.json", "--config", "bad.toml"], "error[bad_config]: not valid TOML: "),
        (
            vec!["good.json", "--config", "inline.toml"],
            "error[bad_config]: mcp_servers is written as one value, so no table can follow\n  --> inline.toml\n",
        ),
    ] {
        let problem = desk.fail(&[&["import"], &args[..]].concat());
        assert!(problem.starts_with(said), "{args:?}: {problem}");
        assert!(problem.contains("hint: "), "{problem}");
    }
    assert_eq!(desk.run(&["import", "empty.json"]), "There are no servers to import\n");
    assert!(!desk.has("project/moonlark.toml"));
    assert_eq!(desk.read("project/bad.toml"), "a = [\n1\nb = 2\n");
    assert_eq!(desk.run_with(&["import"], &[]).status.code(), Some(2));
}
