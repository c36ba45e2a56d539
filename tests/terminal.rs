//! What commands print: nothing from outside can act on the terminal, or pass for a
//! line of ours.

mod forged_lines;

use serde_json::json;

use crate::harness::{Project, mcp};

/// Text that a terminal would obey, or hide.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}evil\u{2066}\u{200b}";

#[track_caller]
fn holds(args: &[&str], bytes: &[u8]) -> String {
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    let acts = |letter: char| {
        (letter.is_control() && letter != '\n' && letter != '\t')
            || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200b}')
    };
    let bad: Vec<char> = text.chars().filter(|letter| acts(*letter)).collect();
    assert!(bad.is_empty(), "{args:?} printed {bad:?}: {text}");
    text
}

#[test]
fn no_command_sends_escapes_from_outside_to_the_terminal() {
    let literal: String = HOSTILE.chars().map(|it| format!("\\u{{{:x}}}", u32::from(it))).collect();
    let script = format!(
        "tool = {{ name = \"show\", description = \"Show {literal}\", annotations = {{ destructive = true }} }}\nfunction tool.execute(args)\n    log.warn(\"{literal}\")\n    progress(1, 2, \"{literal}\")\n    return {{ text = \"{literal}\" }}\nend\n"
    );
    let fails = format!(
        "tool = {{ name = \"fails\", description = \"Fail\" }}\nfunction tool.execute() error(\"{literal}\") end\n"
    );
    let document = format!("# {HOSTILE}\n\nwords about {HOSTILE} deployment\n");
    let project = Project::new(&[
        ("tools/show.lua", &script),
        ("tools/fails.lua", &fails),
        ("tools/broken.lua", &format!("-- {HOSTILE}\nsyntax {HOSTILE} error")),
        ("docs/a.md", &document),
        ("script.luau", &format!("log.info(\"{literal}\")\nreturn \"{literal}\"")),
        ("fails.luau", &format!("error(\"{literal}\")")),
        (
            "moonlark.toml",
            "[server]\nport = 0\n[connectors.filesystem.docs]\nroot = \"docs\"\n[[policy.rules]]\ntools = [\"show\"]\ncallers = [\"anonymous\"]\naction = \"approve\"\n",
        ),
    ]);
    let server = project.serve();
    // A client whose name, script and arguments are hostile.
    let info = json!({"_meta": {"io.modelcontextprotocol/clientInfo": {"name": HOSTILE, "version": HOSTILE}}});
    for (tool, args) in [
        ("execute", json!({"script": format!("-- {HOSTILE}\nerror(\"{literal}\")")})),
        ("show", json!({HOSTILE: HOSTILE})),
        ("show", json!({})),
    ] {
        let mut params = info.clone();
        params["name"] = json!(tool);
        params["arguments"] = args;
        mcp(&server.address, &[], "tools/call", params);
    }
    let commands: &[&[&str]] = &[
        &["sync"],
        &["runs"],
        &["runs", "--calls"],
        &["approvals", "list"],
        &["sources"],
        &["tool", "list"],
        &["docs"],
        &["docs", "show"],
        &["search-tools", "show"],
        &["search", "deployment"],
        &["call", "show"],
        &["call", "fails"],
        &["call", HOSTILE],
        &["run", "script.luau"],
        &["run", "fails.luau"],
        &["policy", "explain", "show"],
        &["policy", "explain", HOSTILE],
        &["doctor"],
        &["check"],
        &["connector", "list"],
    ];
    let mut shown = 0;
    for standalone in [false, true] {
        for json in [false, true] {
            for args in commands {
                let mut args = args.to_vec();
                args.extend(standalone.then_some("--standalone"));
                args.extend(json.then_some("--json"));
                let output = project.run(&args);
                let out = holds(&args, &output.stdout);
                let err = holds(&args, &output.stderr);
                shown += usize::from(format!("{out}{err}").contains("202e"));
                if json && !out.is_empty() {
                    for line in out.lines() {
                        serde_json::from_str::<serde_json::Value>(line)
                            .unwrap_or_else(|_| panic!("{args:?}: {out}"));
                    }
                }
            }
        }
    }
    // It is shown, not left out.
    assert!(shown > 40, "{shown}");
    let runs = project.run(&["runs", "--json"]);
    let runs: serde_json::Value = serde_json::from_slice(&runs.stdout).unwrap();
    let id = runs["runs"].as_array().unwrap().last().unwrap()["id"].as_str().unwrap().to_owned();
    for args in [&["runs", id.as_str()][..], &["runs", &id, "--json"]] {
        holds(args, &project.run(args).stdout);
    }
}
