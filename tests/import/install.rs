//! `moonlark install`: one entry in a file that belongs to somebody else.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{CLAUDE_CODE, CURSOR, DESKTOP, Desk, VSCODE, ZED};

/// A client, its file, and how that looks before and after.
fn installed(desk: &Desk, client: &str, file: &str, expected: &str) {
    let before = desk.has(file).then(|| desk.read(file));
    let dry = desk.run(&["install", client, "--dry-run"]);
    assert_eq!(desk.has(file).then(|| desk.read(file)), before, "{dry}");
    let said = desk.run(&["install", client]);
    assert!(said.contains("\n+++ DESK/"), "{said}");
    assert_eq!(desk.plain(&desk.read(file)), expected);
    let backup = format!("{file}.moonlark-backup");
    assert_eq!(desk.has(&backup).then(|| desk.read(&backup)), before);

    let again = desk.run(&["install", client]);
    assert!(again.starts_with("Nothing to do: "), "{again}");
    assert_eq!(desk.plain(&desk.read(file)), expected);

    desk.run(&["install", client, "--undo"]);
    assert_eq!(desk.has(file).then(|| desk.read(file)), before);
    assert!(!desk.has(&backup));
    let again = desk.run(&["install", client, "--undo"]);
    assert!(again.starts_with("Nothing to undo: "), "{again}");
}

#[test]
fn installing_makes_the_file_that_is_missing() {
    let desk = Desk::new(&[("project/moonlark.toml", "")]);
    let whole = |key: &str, first: &str| {
        format!(
            "{{\n  \"{key}\": {{\n    \"moonlark\": {{\n{first}      \"command\": \"MOONLARK\",\n      \"args\": [\"stdio\", \"--config\", \"DESK/project/moonlark.toml\"],\n      \"env\": {{\n        \"PATH\": \"/usr/bin:/bin\"\n      }}\n    }}\n  }}\n}}\n"
        )
    };
    let typed = "      \"type\": \"stdio\",\n";
    installed(&desk, "claude-desktop", DESKTOP, &whole("mcpServers", ""));
    installed(&desk, "cursor", CURSOR, &whole("mcpServers", typed));
    installed(&desk, "vscode", VSCODE, &whole("servers", typed));
    installed(&desk, "zed", ZED, &whole("context_servers", "      \"source\": \"custom\",\n"));
    installed(&desk, "claude-code", CLAUDE_CODE, &whole("mcpServers", typed));
}

#[test]
fn installing_keeps_all_that_is_in_the_file() {
    let desk = Desk::new(&[
        ("project/moonlark.toml", ""),
        (
            ZED,
            "// Zed settings\n{\n  \"theme\": \"One Dark\", // dark\n  /* servers */\n  \"context_servers\": {\n    \"other\": {\"command\": \"x\"}, // kept\n  },\n  \"tab_size\": 2,\n}\n",
        ),
        (CURSOR, "\u{feff}{\r\n\t\"unknown\": [1, 2.50, 1e3],\r\n\t\"mcpServers\": {\r\n\t}\r\n}"),
        (
            CLAUDE_CODE,
            "{\"numStartups\":7,\"mcpServers\":{\"a\":{\"command\":\"x\"}},\"projects\":{}}",
        ),
        (VSCODE, ""),
        (DESKTOP, "{}\n"),
    ]);
    installed(
        &desk,
        "zed",
        ZED,
        "// Zed settings\n{\n  \"theme\": \"One Dark\", // dark\n  /* servers */\n  \"context_servers\": {\n    \"other\": {\"command\": \"x\"}, // kept\n    \"moonlark\": {\n      \"source\": \"custom\",\n      \"command\": \"MOONLARK\",\n      \"args\": [\"stdio\", \"--config\", \"DESK/project/moonlark.toml\"],\n      \"env\": {\n        \"PATH\": \"/usr/bin:/bin\"\n      }\n    },\n  },\n  \"tab_size\": 2,\n}\n",
    );
    installed(
        &desk,
        "cursor",
        CURSOR,
        "\u{feff}{\r\n\t\"unknown\": [1, 2.50, 1e3],\r\n\t\"mcpServers\": {\r\n\t\t\"moonlark\": {\r\n\t\t\t\"type\": \"stdio\",\r\n\t\t\t\"command\": \"MOONLARK\",\r\n\t\t\t\"args\": [\"stdio\", \"--config\", \"DESK/project/moonlark.toml\"],\r\n\t\t\t\"env\": {\r\n\t\t\t\t\"PATH\": \"/usr/bin:/bin\"\r\n\t\t\t}\r\n\t\t}\r\n\t}\r\n}",
    );
    installed(
        &desk,
        "claude-code",
        CLAUDE_CODE,
        "{\"numStartups\":7,\"mcpServers\":{\"a\":{\"command\":\"x\"}, \"moonlark\": {\"type\": \"stdio\", \"command\": \"MOONLARK\", \"args\": [\"stdio\", \"--config\", \"DESK/project/moonlark.toml\"], \"env\": {\"PATH\": \"/usr/bin:/bin\"}}},\"projects\":{}}",
    );
    let entry = "    \"moonlark\": {\n      \"command\": \"MOONLARK\",\n      \"args\": [\"stdio\", \"--config\", \"DESK/project/moonlark.toml\"],\n      \"env\": {\n        \"PATH\": \"/usr/bin:/bin\"\n      }\n    }\n";
    installed(
        &desk,
        "claude-desktop",
        DESKTOP,
        &format!("{{\n  \"mcpServers\": {{\n{entry}  }}\n}}\n"),
    );
    let typed =
        entry.replace("{\n      \"command", "{\n      \"type\": \"stdio\",\n      \"command");
    installed(&desk, "vscode", VSCODE, &format!("{{\n  \"servers\": {{\n{typed}  }}\n}}\n"));
}

#[test]
fn an_install_tells_what_it_did() {
    let desk = Desk::new(&[(
        CURSOR,
        "{\n  \"mcpServers\": {\n    \"a\": {\n      \"command\": \"x\",\n      \"env\": { \"A_TOKEN\": \"hunter2\" }\n    }\n  }\n}\n",
    )]);
    assert_eq!(
        desk.run(&["install", "cursor", "--name", "ml"]),
        "\
--- DESK/home/.cursor/mcp.json
+++ DESK/home/.cursor/mcp.json
@@ -3,6 +3,14 @@
     \"a\": {
       \"command\": \"x\",
       \"env\": { \"A_TOKEN\": \"[redacted]\" }
+    },
+    \"ml\": {
+      \"type\": \"stdio\",
+      \"command\": \"MOONLARK\",
+      \"args\": [\"stdio\"],
+      \"env\": {
+        \"PATH\": \"/usr/bin:/bin\"
+      }
     }
   }
 }

Registered with Cursor as ml, in DESK/home/.cursor/mcp.json
The file from before is kept as DESK/home/.cursor/mcp.json.moonlark-backup
Restart Cursor to apply the change
There is no moonlark.toml, so it serves the folder that the client starts it in
Make one (an empty file will do) and run this again to say which project it is
"
    );
    desk.write("project/moonlark.toml", "");
    let report = desk.json(&["install", "cursor", "--name", "ml", "--json"]);
    assert_eq!(report["did"], "updated");
    assert_eq!(report["client"], "cursor");
    assert_eq!(report["file"], "DESK/home/.cursor/mcp.json");
    assert_eq!(report["backup"], "DESK/home/.cursor/mcp.json.moonlark-backup");
    let written: Value = serde_json::from_str(&desk.plain(&desk.read(CURSOR))).unwrap();
    assert_eq!(
        written["mcpServers"]["ml"]["args"],
        json!(["stdio", "--config", "DESK/project/moonlark.toml"])
    );
    // The first copy is the one from before, and what comes back.
    let report = desk.json(&["install", "cursor", "--name", "ml", "--undo", "--json"]);
    assert_eq!((&report["did"], &report["backup"]), (&json!("undone"), &json!(null)));
    assert!(!desk.read(CURSOR).contains("\"ml\""));
    assert!(desk.read(CURSOR).contains("hunter2"));
}

#[test]
fn undo_after_other_changes_takes_out_only_our_entry() {
    let desk = Desk::new(&[(ZED, "{\n  // mine\n  \"theme\": \"One\"\n}\n")]);
    desk.run(&["install", "zed"]);
    let changed = desk.read(ZED).replace("\"One\"", "\"Two\"").replace(
        "\"context_servers\": {",
        "\"context_servers\": {\n    \"new\": {\"command\": \"y\"}, // new",
    );
    desk.write(ZED, &changed);
    desk.run(&["install", "zed", "--undo"]);
    assert_eq!(
        desk.read(ZED),
        "{\n  // mine\n  \"theme\": \"Two\",\n  \"context_servers\": {\n    \"new\": {\"command\": \"y\"} // new\n  }\n}\n"
    );
    // What was there before anything is still kept.
    assert_eq!(
        desk.read(&format!("{ZED}.moonlark-backup")),
        "{\n  // mine\n  \"theme\": \"One\"\n}\n"
    );
}

#[test]
fn undo_puts_back_the_entry_that_was_replaced() {
    let entry = r#"{ "command": "moonlark", "args": ["stdio"], /* mine */ "env": { "A": "1" } }"#;
    let before = format!("{{\n  \"mcpServers\": {{\n    \"moonlark\": {entry}\n  }}\n}}\n");
    let desk = Desk::new(&[("project/moonlark.toml", ""), (CURSOR, &before)]);
    desk.run(&["install", "cursor"]);
    let written = desk.plain(&desk.read(CURSOR));
    // Our keys are ours; what somebody added to the entry stays.
    assert!(written.contains(r#""command": "MOONLARK", "args": ["stdio", "--config", "DESK/project/moonlark.toml"], /* mine */ "env": { "A": "1", "PATH": "/usr/bin:/bin" }, "type": "stdio""#), "{written}");

    desk.write(CURSOR, &desk.read(CURSOR).replace("{\n  \"mcp", "{\n  \"new\": 1,\n  \"mcp"));
    desk.run(&["install", "cursor", "--undo"]);
    assert_eq!(desk.read(CURSOR), before.replace("{\n  \"mcp", "{\n  \"new\": 1,\n  \"mcp"));
}

#[test]
fn a_project_can_have_its_own() {
    let desk = Desk::new(&[]);
    for (client, file) in [
        ("cursor", "project/.cursor/mcp.json"),
        ("vscode", "project/.vscode/mcp.json"),
        ("zed", "project/.zed/settings.json"),
        ("claude-code", "project/.mcp.json"),
    ] {
        desk.run(&["install", client, "--project"]);
        assert!(desk.has(file), "{file}");
    }
    let output = desk.run_with(&["install", "claude-desktop", "--project"], &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("Claude Desktop has no file of a project")
    );
    assert_eq!(desk.run_with(&["install", "emacs"], &[]).status.code(), Some(2));
}

#[test]
fn what_is_not_ours_to_change_is_not_changed() {
    let taken = r#"{"mcpServers": {"moonlark": {"command": "other"}}}"#;
    let desk = Desk::new(&[
        (CURSOR, taken),
        (ZED, "{\n  \"context_servers\": [\n  ]\n}"),
        (VSCODE, "{\n  \"servers\": {\n"),
        (DESKTOP, "{}"),
    ]);
    let read_only = desk.path(DESKTOP);
    std::fs::set_permissions(&read_only, PermissionsExt::from_mode(0o444)).unwrap();
    for (client, said) in [
        (
            "cursor",
            "error[bad_request]: there is a server moonlark already, and it is not Moonlark\n  --> DESK/home/.cursor/mcp.json\nhint: nothing was changed; choose another name with --name\n",
        ),
        (
            "zed",
            "error[bad_config]: context_servers should be an object in braces here\n  --> DESK/home/.config/zed/settings.json:2:22\nhint: nothing was changed; fix the file and run this again\n",
        ),
        (
            "vscode",
            "error[bad_config]: this { is never closed\n  --> DESK/home/.config/Code/User/mcp.json:2:14\nhint: nothing was changed; fix the file and run this again\n",
        ),
        (
            "claude-desktop",
            "error[unavailable]: the file is read-only\n  --> DESK/home/.config/Claude/claude_desktop_config.json\nhint: nothing was changed; make it writable if you want it changed\n",
        ),
    ] {
        assert_eq!(desk.fail(&["install", client]), said);
    }
    assert!(desk.fail(&["install", "cursor", "--undo"]).contains("it is not Moonlark"));
    assert_eq!(desk.read(CURSOR), taken);
    assert_eq!(desk.read(DESKTOP), "{}");
    assert!(!desk.has(&format!("{DESKTOP}.moonlark-backup")));
    let lost = desk.fail(&["install", "cursor", "--name", "x", "--config", "none.toml"]);
    assert!(lost.starts_with("error[not_found]: there is no such file\n"), "{lost}");
}

#[test]
fn a_link_stays_a_link_and_permissions_stay_as_they_are() {
    let desk = Desk::new(&[("home/dotfiles/mcp.json", "{}\n")]);
    let (target, link) = (desk.path("home/dotfiles/mcp.json"), desk.path(CURSOR));
    std::fs::set_permissions(&target, PermissionsExt::from_mode(0o640)).unwrap();
    std::fs::create_dir(link.parent().unwrap()).unwrap();
    symlink(&target, &link).unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;

    desk.run(&["install", "cursor"]);
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert!(desk.read("home/dotfiles/mcp.json").contains("moonlark"));
    assert_eq!(mode(&target), 0o640);
    assert_eq!(mode(&desk.path(&format!("{CURSOR}.moonlark-backup"))), 0o640);

    desk.run(&["install", "cursor", "--undo"]);
    assert!(link.symlink_metadata().unwrap().is_symlink());
    assert_eq!(desk.read("home/dotfiles/mcp.json"), "{}\n");

    std::fs::remove_file(&target).unwrap();
    let lost = desk.fail(&["install", "cursor"]);
    assert!(lost.contains("it is a link; see where it leads"), "{lost}");
}

#[test]
fn two_names_are_undone_one_by_one() {
    let before = "{\n  \"mcpServers\": {\n    \"x\": {\"command\": \"y\"}\n  }\n}\n";
    let desk = Desk::new(&[(CURSOR, before)]);
    desk.run(&["install", "cursor", "--name", "one"]);
    let one = desk.read(CURSOR);
    desk.run(&["install", "cursor", "--name", "two"]);
    desk.run(&["install", "cursor", "--name", "two", "--undo"]);
    assert_eq!(desk.read(CURSOR), one);
    desk.run(&["install", "cursor", "--name", "one", "--undo"]);
    assert_eq!(desk.read(CURSOR), before);
    assert!(!desk.has(&format!("{CURSOR}.moonlark-backup")));
}

#[test]
fn a_second_project_does_not_take_the_place_of_the_first() {
    let first = |desk: &Desk| {
        let config = desk.path("first/moonlark.toml");
        let entry = json!({"command": "moonlark", "args": ["stdio", "--config", config]});
        let text = json!({"mcpServers": {"moonlark": entry}}).to_string();
        desk.write(CURSOR, &text);
        text
    };
    let desk = Desk::new(&[("project/moonlark.toml", ""), ("first/moonlark.toml", "")]);
    let before = first(&desk);
    for args in [&["install", "cursor"][..], &["install", "cursor", "--http"]] {
        assert_eq!(
            desk.fail(args),
            "error[bad_request]: moonlark of Cursor serves another project: DESK/first/moonlark.toml\n  --> DESK/home/.cursor/mcp.json\nhint: nothing was changed; --name NAME adds this project beside it, and --replace puts this project in its place\n"
        );
        assert_eq!(desk.read(CURSOR), before);
    }
    desk.run(&["install", "cursor", "--name", "second"]);
    assert!(desk.plain(&desk.read(CURSOR)).contains("DESK/first/moonlark.toml"));
    desk.run(&["install", "cursor", "--replace"]);
    assert!(!desk.plain(&desk.read(CURSOR)).contains("DESK/first/moonlark.toml"));

    // Whoever moved a project has the old path in the file, and no project there.
    first(&desk);
    std::fs::remove_file(desk.path("first/moonlark.toml")).unwrap();
    desk.run(&["install", "cursor"]);
    assert!(desk.plain(&desk.read(CURSOR)).contains("DESK/project/moonlark.toml"));
}

#[test]
fn what_is_registered_starts_and_answers() {
    let desk = Desk::new(&[
        ("project/moonlark.toml", ""),
        (
            "project/tools/hello.lua",
            "tool = { name = \"hello\" }\nfunction tool.execute() return \"hi\" end\n",
        ),
    ]);
    desk.run(&["install", "claude-desktop"]);
    let config: Value = serde_json::from_str(&desk.read(DESKTOP)).unwrap();
    let entry = &config["mcpServers"]["moonlark"];
    let args: Vec<&str> =
        entry["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
    let mut child = std::process::Command::new(entry["command"].as_str().unwrap())
        .args(args)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let request =
        crate::harness::modern(1, "tools/call", json!({"name": "hello", "arguments": {}}));
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, format!("{request}\n").as_bytes()).unwrap();
    let answer = crate::harness::Log::follow(child.stdout.take().unwrap()).wait_for("\"id\":1");
    drop(stdin);
    child.wait().unwrap();
    assert!(answer.contains("hi"), "{answer}");
}
