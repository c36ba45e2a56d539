//! `moonlark install --http`: who can read the token in a client's file, and what becomes
//! of it when the file no longer has it.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::{CURSOR, Desk};

const COPY: &str = "home/.cursor/mcp.json.moonlark-backup";

/// A project whose callers need tokens.
fn desk(files: &[(&str, &str)]) -> Desk {
    let desk = Desk::new(&[&[("project/moonlark.toml", "")], files].concat());
    desk.run(&["token", "add", "ci"]);
    desk
}

fn set_mode(desk: &Desk, file: &str, mode: u32) {
    std::fs::set_permissions(desk.path(file), PermissionsExt::from_mode(mode)).unwrap();
}

fn mode(desk: &Desk, file: &str) -> u32 {
    desk.path(file).metadata().unwrap().permissions().mode() & 0o777
}

/// The names of the tokens that are valid.
fn tokens(desk: &Desk) -> Vec<String> {
    let listed = desk.json(&["token", "list", "--json"]);
    let listed = listed["tokens"].as_array().unwrap();
    listed.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_file_that_others_could_read_is_the_users_alone_once_it_has_a_token() {
    const PLAIN: &str = r#"{"mcpServers": {"a": {"command": "x"}}}"#;
    const SECRET: &str = r#"{"mcpServers": {"a": {"command": "x", "env": {"TOKEN": "hunter2"}}}}"#;
    for (text, copy_mode) in [(PLAIN, 0o644), (SECRET, 0o600)] {
        let desk = desk(&[(CURSOR, text)]);
        set_mode(&desk, CURSOR, 0o644);
        let shown = desk.run(&["install", "cursor", "--http", "--dry-run"]);
        let would = "holds a token: it would be readable by you alone (mode 600)\n";
        assert!(shown.ends_with(&format!("\nDESK/{CURSOR} {would}")), "{shown}");
        assert_eq!(mode(&desk, CURSOR), 0o644);

        let is_now = "holds a token: it is now readable by you alone (mode 600)\n";
        let said = desk.run(&["install", "cursor", "--http"]);
        assert!(said.contains(&format!("\nDESK/{CURSOR} {is_now}")), "{said}");
        assert_eq!((mode(&desk, CURSOR), mode(&desk, COPY)), (0o600, copy_mode));

        // Whoever shared it since gets it back.
        set_mode(&desk, CURSOR, 0o644);
        let said = desk.run(&["install", "cursor", "--http"]);
        assert!(said.starts_with("Nothing to do: ") && said.contains(is_now), "{said}");
        assert_eq!(mode(&desk, CURSOR), 0o600);
        assert!(!desk.run(&["install", "cursor", "--http"]).contains("readable"));

        desk.run(&["install", "cursor", "--undo"]);
        assert_eq!((desk.read(CURSOR), mode(&desk, CURSOR)), (text.to_owned(), copy_mode));
    }
}

#[test]
fn a_copy_that_was_there_before_is_the_users_alone_if_it_has_a_secret() {
    let desk = desk(&[(CURSOR, "{}\n"), (COPY, r#"{"a": {"env": {"TOKEN": "hunter2"}}}"#)]);
    set_mode(&desk, COPY, 0o644);
    desk.run(&["install", "cursor"]);
    assert_eq!(mode(&desk, COPY), 0o600);
}

#[test]
fn undo_takes_back_the_token_that_was_made_for_the_client() {
    let desk = desk(&[(CURSOR, "{}\n")]);
    desk.run(&["install", "cursor", "--http"]);
    assert_eq!(tokens(&desk), ["ci", "cursor"]);
    let shown = desk.run(&["install", "cursor", "--undo", "--dry-run"]);
    assert!(shown.ends_with("\nWould be taken back: the token of cursor\n"), "{shown}");
    assert_eq!(tokens(&desk), ["ci", "cursor"]);
    let report = desk.json(&["install", "cursor", "--undo", "--json"]);
    let taken = json!([{"name": "cursor", "url": "http://127.0.0.1:7331/mcp", "did": "removed"}]);
    assert_eq!(report["tokens"], taken);
    assert_eq!(tokens(&desk), ["ci"]);
    assert_eq!(desk.read(CURSOR), "{}\n");
}

#[test]
fn a_token_that_the_client_no_longer_shows_is_taken_back_once_no_undo_needs_it() {
    let desk = desk(&[(CURSOR, "{}\n")]);
    desk.run(&["install", "cursor", "--http"]);
    let said = desk.run(&["install", "cursor"]);
    assert!(said.contains("\nTook the token of cursor back: it is no longer valid\n"), "{said}");
    assert_eq!(tokens(&desk), ["ci"]);

    // Here the copy has it, and undo puts it back.
    let desk = self::desk(&[]);
    desk.run(&["install", "cursor", "--http"]);
    desk.run(&["install", "cursor"]);
    assert_eq!(tokens(&desk), ["ci", "cursor"]);
    desk.run(&["install", "cursor", "--undo"]);
    assert!(desk.read(CURSOR).contains("Bearer "));
    assert_eq!(tokens(&desk), ["ci", "cursor"]);
    desk.run(&["install", "cursor", "--undo"]);
    assert_eq!(tokens(&desk), ["ci"]);
}

#[test]
fn undo_says_of_every_other_token_how_to_take_it_back() {
    let desk = desk(&[(
        "project/moonlark.toml",
        "[server.auth.tokens]\nann = 'hunter2-hunter2-hunter2'\n",
    )]);
    let added = desk.run(&["token", "add", "cursor-of-bob"]);
    for (token, said) in [
        (
            added.trim_end(),
            "Its token, of cursor-of-bob, was made with `moonlark token add` and stays valid: `moonlark token remove cursor-of-bob` takes it back",
        ),
        (
            "hunter2-hunter2-hunter2",
            "Its token, of ann, is in [server.auth.tokens] and stays valid until you remove it there",
        ),
        (
            "mlk_elsewhere",
            "Its token for http://127.0.0.1:7331/mcp is none of this project: where it is still valid, `moonlark token list` in the project that serves there names it, and `moonlark token remove NAME` takes it back",
        ),
    ] {
        let headers = json!({"Authorization": format!("Bearer {token}")});
        let entry = json!({"url": "http://127.0.0.1:7331/mcp", "headers": headers});
        desk.write(CURSOR, &json!({"mcpServers": {"moonlark": entry}}).to_string());
        let undone = desk.run(&["install", "cursor", "--undo"]);
        assert!(undone.contains(&format!("\n{said}\n")), "{undone}");
        assert_eq!(tokens(&desk), ["ci", "cursor-of-bob", "ann"]);
    }
}

#[test]
fn an_install_that_fails_leaves_no_token_behind() {
    let taken = r#"{"mcpServers": {"moonlark": {"command": "other"}}}"#;
    let desk = desk(&[(CURSOR, taken)]);
    assert!(desk.fail(&["install", "cursor", "--http"]).contains("it is not Moonlark"));
    desk.write(CURSOR, "{}");
    set_mode(&desk, CURSOR, 0o444);
    assert!(desk.fail(&["install", "cursor", "--http"]).contains("read-only"));
    assert_eq!(tokens(&desk), ["ci"]);
    let written: Value = serde_json::from_str(&desk.read(CURSOR)).unwrap();
    assert_eq!(written, json!({}));
}
