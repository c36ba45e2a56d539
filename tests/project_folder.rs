//! Where a project is, what commands leave in it, and what they leave elsewhere.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::harness::{Project, moonlark};

fn run_in(folder: &Path, args: &[&str]) -> Output {
    moonlark().args(args).current_dir(folder).stdin(Stdio::null()).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn mode(path: &Path) -> u32 {
    path.metadata()
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        .permissions()
        .mode()
        & 0o777
}

const HELLO: &str =
    "tool = { name = 'hello', description = 'Hello' }\nfunction tool.execute() return 'hi' end";

#[test]
fn commands_find_the_project_of_a_folder_above() {
    let project = Project::new(&[
        ("moonlark.toml", ""),
        ("tools/hello.lua", HELLO),
        ("tools/deep/er/readme.txt", ""),
    ]);
    let below = project.path("tools/deep/er");
    let called = run_in(&below, &["call", "hello"]);
    assert!(called.status.success(), "{}", text(&called));
    assert!(!below.join(".moonlark").exists());
    let doctor = text(&run_in(&below, &["doctor"]));
    let file = project.path("moonlark.toml").canonicalize().unwrap();
    assert!(doctor.contains(&format!("configuration: {}\n", file.display())), "{doctor}");
    let served = project.serve();
    let called = run_in(&below, &["call", "hello"]);
    assert!(called.status.success(), "{}", text(&called));
    drop(served);
}

#[test]
fn a_folder_that_is_no_project_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("script.luau"), "return 1 + 1").unwrap();
    let binary = moonlark().get_program().to_str().unwrap().to_owned();
    let upstream = Project::new(&[("moonlark.toml", ""), ("tools/hello.lua", HELLO)]);
    let server =
        format!("x={binary} stdio --quiet --config {}", upstream.path("moonlark.toml").display());
    for (args, said) in [
        (&["run", "script.luau"][..], "2"),
        (&["call", "hello"], "no tool registered with name: hello"),
        (&["call", "x.hello", "--mcp", &server], "hi"),
        (&["sources"], "There are no sources"),
        (&["doctor"], "configuration: none, defaults"),
        (&["serve", "--port", "0"], "there are no tools"),
        (&["stdio"], "there are no tools"),
        (&["runs"], ""),
        (&["check"], "0 scripts checked, nothing wrong"),
    ] {
        let output = run_in(folder.path(), args);
        assert!(text(&output).contains(said), "{args:?}: {}", text(&output));
        let left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(left, ["script.luau"], "{args:?}");
    }
    let called = text(&run_in(folder.path(), &["call", "hello"]));
    assert!(
        called.contains(
            "hint: there is no moonlark.toml in this folder or above, and no tools/ folder"
        ),
        "{called}"
    );
}

#[test]
fn whichever_command_is_first_the_state_is_its_users_alone_and_not_for_git() {
    let files = [
        ("moonlark.toml", "[connectors.filesystem.docs]\nroot = \"docs\"\n"),
        ("docs/a.md", "# Holidays\n\nThirty days."),
        ("tools/hello.lua", HELLO),
    ];
    for first in [
        &["sync"][..],
        &["call", "hello"],
        &["token", "add", "ann"],
        &["types"],
        &["run", "x.luau"],
    ] {
        let project = Project::new(&files);
        project.write("x.luau", "return 1");
        let output = Command::new("sh")
            .args(["-c", "umask 022; exec \"$@\"", "sh"])
            .arg(moonlark().get_program())
            .args(first)
            .current_dir(project.path(""))
            .output()
            .unwrap();
        assert!(output.status.success(), "{first:?}: {}", text(&output));
        let state = project.path(".moonlark");
        assert_eq!(mode(&state), 0o700, "{first:?}");
        assert!(std::fs::read_to_string(state.join(".gitignore")).unwrap().ends_with("*\n"));
        for entry in std::fs::read_dir(&state).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                assert_eq!(mode(&path) & 0o077, 0, "{first:?}: {}", path.display());
            }
        }
    }
}

#[test]
fn a_state_folder_that_was_open_to_others_is_closed() {
    let project = Project::new(&[("moonlark.toml", ""), ("tools/hello.lua", HELLO)]);
    let state = project.path(".moonlark");
    std::fs::create_dir(&state).unwrap();
    std::fs::write(state.join("moonlark.db"), "").unwrap();
    std::fs::set_permissions(&state, PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::set_permissions(state.join("moonlark.db"), PermissionsExt::from_mode(0o644)).unwrap();
    assert!(project.run(&["call", "hello"]).status.success());
    assert_eq!(mode(&state), 0o700);
    assert_eq!(mode(&state.join("moonlark.db")), 0o600);
}

#[test]
fn trying_a_script_uses_the_settings_of_its_own_entry() {
    let project = Project::new(&[
        (
            "moonlark.toml",
            "[tools.script.incidents]\npath = 'tools/incidents.lua'\nurl = 'https://i.example'\n[connectors.script.wiki]\npath = 'connectors/wiki.lua'\npages = 2\n[extensions.script.shout]\nmark = '!!'\n",
        ),
        (
            "tools/incidents.lua",
            "tool = { name = 'incidents' }\nfunction tool.execute(_, context) return 'at ' .. context.config.url end",
        ),
        (
            "connectors/wiki.lua",
            "connector = { name = 'wiki' }\nfunction connector.scan(config)\n  local items = {}\n  for page = 1, config.pages do table.insert(items, { source_id = 'p' .. page, title = 'P', body = 'x' }) end\n  return items\nend",
        ),
        (
            "extensions/shout.star",
            "def shout(params, context):\n    return context.config[\"mark\"]\n\ndef describe_extension():\n    return Extension(name = \"shout\", version = \"1\", description = \"S\", tools = [Tool(name = \"shout\", description = \"S\", parameters = [], handler = shout)])\n",
        ),
    ]);
    for (args, said) in [
        (&["tool", "test", "tools/incidents.lua", "--json"][..], "\"at https://i.example\""),
        (&["tool", "test", "./tools/../tools/incidents.lua", "--json"], "\"at https://i.example\""),
        (&["tool", "test", "extensions/shout.star", "--json"], "\"!!\""),
        (&["connector", "test", "connectors/wiki.lua", "--json"], "\"found\":2"),
    ] {
        let output = project.run(args);
        assert!(output.status.success(), "{args:?}: {}", text(&output));
        assert!(
            text(&output).replace(' ', "").contains(&said.replace(' ', "")),
            "{args:?}: {}",
            text(&output)
        );
    }
    let below = run_in(&project.path("tools"), &["tool", "test", "incidents.lua", "--json"]);
    assert!(text(&below).contains("at https://i.example"), "{}", text(&below));
}

/// The table in the guide is what people go by when they back the folder up.
#[test]
fn everything_in_the_state_folder_is_in_the_guide() {
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/operating.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let table = guide.split("| in `.moonlark/` | |").nth(1).unwrap().split("\n\n").next().unwrap();
    let binary = moonlark().get_program().to_str().unwrap().to_owned();
    let upstream = Project::new(&[("moonlark.toml", ""), ("tools/hello.lua", HELLO)]);
    let config = format!(
        "[server]\nport = 0\n[connectors.filesystem.docs]\nroot = \"docs\"\n[mcp_servers.other]\ncommand = {binary:?}\nargs = [\"stdio\", \"--quiet\", \"--config\", {:?}]\npin = true\n",
        upstream.path("moonlark.toml")
    );
    let project = Project::new(&[
        ("moonlark.toml", &config),
        ("docs/a.md", "# Holidays\n\nThirty days."),
        ("tools/hello.lua", HELLO),
        ("x.luau", "return sdk.tools.hello({})"),
    ]);
    for args in [
        &["sync"][..],
        &["call", "hello"],
        &["run", "x.luau"],
        &["types"],
        &["pin", "other"],
        &["search", "holidays"],
    ] {
        let output = project.run(args);
        assert!(output.status.success(), "{args:?}: {}", text(&output));
    }
    let mut repl = moonlark()
        .args(["repl"])
        .current_dir(project.path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut repl.stdin.take().unwrap(), b"1 + 1\n").unwrap();
    repl.wait().unwrap();
    let server = project.serve();
    assert_eq!(server.post("execute", &serde_json::json!({"script": "return 1"})).0, 200);
    assert!(project.run(&["token", "add", "ann"]).status.success());
    let entries = std::fs::read_dir(project.path(".moonlark")).unwrap();
    let names: Vec<String> =
        entries.map(|it| it.unwrap().file_name().to_str().unwrap().to_owned()).collect();
    for expected in ["journal.db", "moonlark.db", "server.sock", "tokens.json", "types", "pins"] {
        assert!(names.iter().any(|it| it == expected), "{expected} is not in {names:?}");
    }
    for name in names {
        let is_sync_lock = name.starts_with("moonlark.db.") && name.ends_with(".lock");
        let plain = if is_sync_lock { "moonlark.db.*.lock" } else { &name };
        let plain = plain.trim_end_matches("-wal").trim_end_matches("-shm");
        let is_there = [format!("`{plain}`"), format!("`{plain}/`")];
        assert!(is_there.iter().any(|it| table.contains(it)), "{name} is not in the guide:{table}");
    }
}
