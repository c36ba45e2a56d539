//! One table over all clients: what `install` makes of an empty file and of one with
//! servers and comments, what `--undo`, `--only` and `--http` leave, and what `import`
//! reads back. Whole files are compared: those in `import/clients`.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use super::Desk;

/// A client and its file, as it is and as it becomes.
struct ClientCase {
    word: &'static str,
    file: &'static str,
    /// What `install` writes where nothing is.
    new: String,
    /// What `install --http` writes where nothing is, with a token.
    http: Option<String>,
    /// A file with two servers, secrets, comments and other settings.
    before: String,
    /// That file with Moonlark in it.
    after: String,
    /// That file with nothing but Moonlark.
    only: String,
}

/// The two servers of every `before`, as our configuration has them.
const IMPORTED: &str = r#"[mcp_servers.files]
command = "npx"
args = ["-y", "files"]
env = { API_KEY = "${FILES_API_KEY}" }

[mcp_servers.web]
url = "https://example.com/mcp"
headers = { Authorization = "Bearer ${WEB_AUTHORIZATION}" }
"#;

/// Every client, and where its file is.
const CLIENTS: [(&str, &str); 13] = [
    ("claude-desktop", "home/.config/Claude/claude_desktop_config.json"),
    ("cursor", "home/.cursor/mcp.json"),
    ("vscode", "home/.config/Code/User/mcp.json"),
    ("zed", "home/.config/zed/settings.json"),
    ("claude-code", "home/.claude.json"),
    ("codex", "home/.codex/config.toml"),
    ("gemini", "home/.gemini/settings.json"),
    ("opencode", "home/.config/opencode/opencode.json"),
    ("qwen", "home/.qwen/settings.json"),
    ("continue", "home/.continue/config.yaml"),
    ("windsurf", "home/.codeium/windsurf/mcp_config.json"),
    ("cline", "home/.cline/data/settings/cline_mcp_settings.json"),
    ("goose", "home/.config/goose/config.yaml"),
];

impl ClientCase {
    fn all() -> Vec<ClientCase> {
        CLIENTS.iter().map(|(word, file)| ClientCase::read(word, file)).collect()
    }

    fn of(word: &str) -> ClientCase {
        let (word, file) = CLIENTS.iter().find(|(other, _)| *other == word).unwrap();
        ClientCase::read(word, file)
    }

    /// The files of `import/clients/WORD`.
    fn read(word: &'static str, file: &'static str) -> ClientCase {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/import/clients");
        let ending = Path::new(file).extension().unwrap().to_str().unwrap();
        let text = |name: &str| {
            let path = root.join(word).join(format!("{name}.{ending}"));
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"))
        };
        let (new, before, after, only) = (text("new"), text("before"), text("after"), text("only"));
        // It starts its servers itself.
        let http = (word != "claude-desktop").then(|| text("http"));
        ClientCase { word, file, new, http, before, after, only }
    }
}

/// What `command` leaves in the client's file.
fn left_by(desk: &Desk, case: &ClientCase, options: &[&str]) -> String {
    desk.run(&[&["install", case.word], options].concat());
    desk.plain(&desk.read(case.file))
}

#[test]
fn every_client_gets_a_file_of_its_own_where_it_has_none() {
    for case in &ClientCase::all() {
        let desk = Desk::new(&[("project/moonlark.toml", "")]);
        let shown = desk.run(&["install", case.word, "--dry-run"]);
        let diff: String = case.new.lines().map(|line| format!("\n+{line}")).collect();
        assert!(shown.contains(&diff), "{}: {shown}", case.word);
        assert!(!desk.has(case.file), "{}", case.word);
        assert_eq!(left_by(&desk, case, &[]), case.new, "{}", case.word);
        let again = desk.run(&["install", case.word]);
        assert!(again.starts_with("Nothing to do: "), "{again}");
        desk.run(&["install", case.word, "--undo"]);
        assert!(!desk.has(case.file), "{}", case.word);
    }
}

#[test]
fn every_client_keeps_its_servers_comments_and_layout() {
    for case in &ClientCase::all() {
        let desk = Desk::new(&[("project/moonlark.toml", ""), (case.file, &case.before)]);
        let shown = desk.run(&["install", case.word, "--dry-run"]);
        assert!(!shown.contains("hunter"), "{}: {shown}", case.word);
        assert_eq!(left_by(&desk, case, &[]), case.after, "{}", case.word);
        desk.run(&["install", case.word, "--undo"]);
        assert_eq!(desk.read(case.file), case.before, "{}", case.word);
        assert!(!desk.has(&format!("{}.moonlark-backup", case.file)), "{}", case.word);
        // After a change of somebody else's, only our entry goes.
        desk.run(&["install", case.word]);
        let changed = desk.read(case.file).replace("npx", "bunx");
        desk.write(case.file, &changed);
        desk.run(&["install", case.word, "--undo"]);
        assert_eq!(desk.read(case.file), case.before.replace("npx", "bunx"), "{}", case.word);
    }
}

#[test]
fn every_client_gives_its_servers_and_keeps_its_secrets_from_our_configuration() {
    for case in &ClientCase::all() {
        let desk = Desk::new(&[(case.file, &case.before)]);
        let said = desk.run(&["import", case.word]);
        assert!(!said.contains("hunter"), "{}: {said}", case.word);
        assert_eq!(desk.read("project/moonlark.toml"), IMPORTED, "{}", case.word);
        let secrets = desk.read("project/.moonlark/secrets.env");
        assert!(
            secrets.ends_with("\nFILES_API_KEY=hunter2\nWEB_AUTHORIZATION=hunter3\n"),
            "{}: {secrets}",
            case.word
        );
        // The file by its path says the same.
        std::fs::remove_file(desk.path("project/moonlark.toml")).unwrap();
        desk.run(&["import", &format!("../{}", case.file)]);
        assert_eq!(desk.read("project/moonlark.toml"), IMPORTED, "{}", case.word);
    }
}

#[test]
fn every_client_can_have_moonlark_alone_and_get_the_others_back() {
    for case in &ClientCase::all() {
        let desk = Desk::new(&[(case.file, &case.before)]);
        let said = desk.run(&["install", case.word, "--only"]);
        assert!(!said.contains("hunter"), "{}: {said}", case.word);
        assert!(said.contains("\nAdded to moonlark.toml: files, web\n"), "{said}");
        assert_eq!(desk.plain(&desk.read(case.file)), case.only, "{}", case.word);
        assert_eq!(desk.read("project/moonlark.toml"), IMPORTED, "{}", case.word);
        desk.run(&["install", case.word, "--undo"]);
        assert_eq!(desk.read(case.file), case.before, "{}", case.word);
    }
}

#[test]
fn every_client_that_takes_an_address_gets_it_with_a_token() {
    for case in &ClientCase::all() {
        let Some(http) = &case.http else { continue };
        let desk = Desk::new(&[("project/moonlark.toml", "")]);
        desk.run(&["token", "add", "ci"]);
        let written = left_by(&desk, case, &["--http"]);
        let (before, rest) = written.split_once("Bearer ").unwrap();
        let (token, after) = rest.split_once('"').unwrap();
        assert!(token.len() > 20, "{token}");
        assert_eq!(format!("{before}Bearer TOKEN\"{after}"), *http, "{}", case.word);
        let mode = desk.path(case.file).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", case.word);
        let again = desk.run(&["install", case.word, "--http"]);
        assert!(again.starts_with("Nothing to do: "), "{}: {again}", case.word);
        // From the address to a command: nothing of the other way is left.
        assert_eq!(left_by(&desk, case, &[]), case.new, "{}", case.word);
    }
}

#[test]
fn a_project_has_its_file_where_the_client_looks_for_it() {
    for (word, file) in [
        ("cursor", "project/.cursor/mcp.json"),
        ("vscode", "project/.vscode/mcp.json"),
        ("zed", "project/.zed/settings.json"),
        ("claude-code", "project/.mcp.json"),
        ("codex", "project/.codex/config.toml"),
        ("gemini", "project/.gemini/settings.json"),
        ("opencode", "project/opencode.json"),
        ("qwen", "project/.qwen/settings.json"),
        ("continue", "project/.continue/mcpServers/moonlark.yaml"),
    ] {
        let case = ClientCase::of(word);
        let desk = Desk::new(&[("project/moonlark.toml", "")]);
        desk.run(&["install", word, "--project"]);
        assert_eq!(desk.plain(&desk.read(file)), case.new, "{word}");
    }
    let desk = Desk::new(&[]);
    for word in ["claude-desktop", "windsurf", "cline", "goose"] {
        let output = desk.run_with(&["install", word, "--project"], &[]);
        assert_eq!(output.status.code(), Some(2), "{word}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("has no file of a project"), "{said}");
    }
}

#[test]
fn a_token_in_a_file_of_a_project_is_warned_about() {
    let desk = Desk::new(&[("project/moonlark.toml", "")]);
    desk.run(&["token", "add", "ci"]);
    let said = desk.run(&["install", "codex", "--project", "--http"]);
    let warned = ".codex/config.toml holds a token: keep it out of what you commit\n";
    assert!(said.ends_with(warned), "{said}");
}

#[test]
fn the_file_that_is_there_is_the_one_that_changes() {
    let old = "home/.config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json";
    for (word, file, text) in [
        ("opencode", "home/.config/opencode/opencode.jsonc", "{\n  // mine\n}\n"),
        ("cline", old, "{}\n"),
    ] {
        let desk = Desk::new(&[(file, text)]);
        desk.run(&["install", word]);
        assert!(desk.read(file).contains("moonlark"), "{word}");
        desk.run(&["install", word, "--undo"]);
        assert_eq!(desk.read(file), text);
    }
    let desk = Desk::new(&[]);
    let home = desk.path("elsewhere");
    let output = desk.run_with(&["install", "codex"], &[("CODEX_HOME", home.to_str().unwrap())]);
    assert!(output.status.success());
    assert!(desk.has("elsewhere/config.toml") && !desk.has("home/.codex"));
}

#[test]
fn links_and_permissions_stay_whatever_the_syntax() {
    for word in ["codex", "goose"] {
        let case = ClientCase::of(word);
        let desk = Desk::new(&[("home/dotfiles/it", &case.before)]);
        let (target, link) = (desk.path("home/dotfiles/it"), desk.path(case.file));
        std::fs::set_permissions(&target, PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        symlink(&target, &link).unwrap();
        desk.run(&["install", word]);
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(target.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(desk.read("home/dotfiles/it").contains("moonlark"));
        desk.run(&["install", word, "--undo"]);
        assert_eq!(desk.read("home/dotfiles/it"), case.before);
    }
}

#[test]
fn a_broken_file_is_left_alone_whatever_the_syntax() {
    for (word, file, text, said) in [
        (
            "codex",
            "home/.codex/config.toml",
            "model = \"x\"\n[mcp_servers\n",
            "error[bad_config]: not valid TOML: unclosed table, expected `]`\n  --> DESK/home/.codex/config.toml:2:13\n",
        ),
        (
            "goose",
            "home/.config/goose/config.yaml",
            "extensions:\n  a: [1\n",
            "error[bad_config]: not valid YAML: unclosed bracket '['\n  --> DESK/home/.config/goose/config.yaml:2:6\n",
        ),
        (
            "goose",
            "home/.config/goose/config.yaml",
            "extensions: text\n",
            "error[bad_config]: extensions should be a mapping here\n  --> DESK/home/.config/goose/config.yaml:1:13\n",
        ),
        (
            "continue",
            "home/.continue/config.yaml",
            "mcpServers: {}\n",
            "error[bad_config]: mcpServers should be a list here\n  --> DESK/home/.continue/config.yaml:1:13\n",
        ),
        (
            "opencode",
            "home/.config/opencode/opencode.json",
            "{\"mcp\": {",
            "error[bad_config]: this { is never closed\n  --> DESK/home/.config/opencode/opencode.json:1:9\n",
        ),
    ] {
        let desk = Desk::new(&[(file, text)]);
        let problem = desk.fail(&["install", word]);
        let hint = "hint: nothing was changed; fix the file and run this again\n";
        assert_eq!(problem, format!("{said}{hint}"), "{word}");
        assert_eq!(desk.read(file), text);
        assert!(!desk.has(&format!("{file}.moonlark-backup")));
    }
}

#[test]
fn yaml_that_cannot_be_changed_alone_is_said_with_what_to_write() {
    // What is added to one would be in the other as well.
    let text =
        "extensions: &all\n  a:\n    enabled: false\n    type: builtin\n    name: a\ncopy: *all\n";
    let desk =
        Desk::new(&[("project/moonlark.toml", ""), ("home/.config/goose/config.yaml", text)]);
    assert_eq!(
        desk.fail(&["install", "goose"]),
        "\
error[bad_config]: this is written in a way that cannot be changed without touching more
  --> DESK/home/.config/goose/config.yaml:2:3
hint: nothing was changed; add this to extensions by hand: moonlark: {enabled: true, type: stdio, name: moonlark, cmd: MOONLARK, args: [stdio, \"--config\", DESK/project/moonlark.toml], timeout: 300}
"
    );
    assert_eq!(desk.read("home/.config/goose/config.yaml"), text);
}

#[test]
fn every_file_of_continue_is_read() {
    let block = |name: &str| {
        format!(
            "name: {name}\nversion: 0.0.1\nschema: v1\nmcpServers:\n  - name: {name}\n    command: x\n"
        )
    };
    let desk = Desk::new(&[
        ("home/.continue/config.yaml", &block("user")),
        ("home/.continue/mcpServers/one.yaml", &block("one")),
        ("project/.continue/mcpServers/two.yml", &block("two")),
        (
            "project/.continue/mcpServers/three.json",
            r#"{"mcpServers": {"three": {"command": "x"}}}"#,
        ),
        ("project/.continue/mcpServers/notes.md", "no servers"),
    ]);
    let report = desk.json(&["import", "continue", "--dry-run", "--json"]);
    let servers = report["servers"].as_array().unwrap().iter();
    let names: Vec<&str> = servers.map(|server| server["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["user", "three", "two", "one"]);
}

const SHOP: &str = r#"{
  "mcpServers": {
    "shop": {"command": "/opt/moonlark", "args": ["stdio", "--config", "/work/shop/moonlark.toml"]},
    "notes": {"command": "npx"}
  }
}
"#;

#[test]
fn only_keeps_the_moonlark_of_another_project_and_says_so() {
    let file = "home/.cursor/mcp.json";
    let desk = Desk::new(&[("project/moonlark.toml", ""), (file, SHOP)]);
    let servers = |desk: &Desk| -> Vec<String> {
        let file: serde_json::Value = serde_json::from_str(&desk.read(file)).unwrap();
        file["mcpServers"].as_object().unwrap().keys().cloned().collect()
    };
    let left =
        "Left in: shop, Moonlark for /work/shop/moonlark.toml; --drop shop takes it out as well\n";
    let said = desk.run(&["install", "cursor", "--only"]);
    assert!(said.contains(left), "{said}");
    assert!(!said.contains("it is Moonlark itself"), "{said}");
    assert_eq!(servers(&desk), ["shop", "moonlark"]);
    // Our own entry is no other one.
    let said = desk.run(&["install", "cursor", "--only"]);
    assert!(said.starts_with("Nothing to do: ") && said.contains(left), "{said}");

    let report = desk.json(&["install", "cursor", "--only", "--dry-run", "--json"]);
    assert_eq!(
        report["moved"]["other_moonlarks"],
        serde_json::json!([{"name": "shop", "config": "/work/shop/moonlark.toml", "url": null, "did": "kept"}])
    );
    let said = desk.run(&["install", "cursor", "--only", "--drop", "shop"]);
    assert!(said.contains("Taken out: shop, Moonlark for /work/shop/moonlark.toml\n"), "{said}");
    assert_eq!(servers(&desk), ["moonlark"]);
    desk.run(&["install", "cursor", "--undo"]);
    assert_eq!(desk.read(file), SHOP);

    let problem = desk.fail(&["install", "cursor", "--only", "--drop", "notes"]);
    assert_eq!(
        problem,
        "error[bad_request]: notes is no other Moonlark of Cursor\n  --> DESK/home/.cursor/mcp.json\nhint: nothing was changed; it has shop\n"
    );
    assert_eq!(desk.run_with(&["install", "cursor", "--drop", "shop"], &[]).status.code(), Some(2));
}

#[test]
fn only_takes_out_the_same_moonlark_under_another_name() {
    let file = "home/.codex/config.toml";
    let desk = Desk::new(&[("project/moonlark.toml", "")]);
    desk.run(&["install", "codex", "--name", "ml"]);
    let said = desk.run(&["install", "codex", "--only"]);
    assert!(said.contains("Taken out: ml, the same Moonlark once more\n"), "{said}");
    let case = ClientCase::of("codex");
    assert_eq!(desk.plain(&desk.read(file)), case.new);
}
