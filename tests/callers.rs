//! Who is calling: tokens that are handed out and taken back while a server runs,
//! what they are good for, and what of one caller is out of reach of another.

mod shares;
mod whose;

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::attacks::{Provider, Signer};
use crate::harness::{Answer, Project, Server, mcp, repo, wait_for};

const WHOAMI: &str = r#"
tool = { name = "whoami", description = "Who calls", annotations = { read_only = true } }
function tool.execute(params, context)
    return context.caller.name
end
"#;
const OTHER: &str = r#"
tool = { name = "other", description = "Something else" }
function tool.execute() return "other" end
"#;

fn project(config: &str) -> Project {
    Project::new(&[
        ("moonlark.toml", config),
        ("tools/whoami.lua", WHOAMI),
        ("tools/other.lua", OTHER),
    ])
}

/// Run a command to its end; what it prints.
#[track_caller]
fn ran(project: &Project, args: &[&str]) -> String {
    let output = project.run(args);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

#[track_caller]
fn token(project: &Project, name: &str, more: &[&str]) -> String {
    let token = ran(project, &[&["token", "add", name], more].concat());
    assert!(token.starts_with("mlk_") && token.len() == 4 + 43, "{token}");
    token
}

fn file(project: &Project) -> PathBuf {
    project.path(".moonlark/tokens.json")
}

fn ask(server: &Server, method: &str, path: &str, token: Option<&str>) -> Answer {
    ask_with(server, method, path, token, &[], b"")
}

fn ask_with(
    server: &Server,
    method: &str,
    path: &str,
    token: Option<&str>,
    more: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let bearer = token.map(|token| format!("Bearer {token}"));
    let mut headers = vec![("Content-Type", "application/json")];
    headers.extend(bearer.as_deref().map(|it| ("Authorization", it)));
    headers.extend(more);
    server.request(method, path, &headers, body)
}

/// Status and answer of a tool.
fn call(server: &Server, tool: &str, token: Option<&str>) -> (u16, Value) {
    let answer = ask_with(server, "POST", &format!("/tools/{tool}"), token, &[], b"{}");
    (answer.status, answer.json())
}

fn is(name: &str) -> (u16, Value) {
    (200, json!({ "result": name }))
}

#[test]
fn a_token_counts_from_when_it_is_handed_out_until_it_is_taken_back() {
    let project = project("");
    let server = project.serve();
    assert_eq!(call(&server, "whoami", None), is("anonymous"));
    assert_eq!(call(&server, "whoami", Some("anything")), is("anonymous"));

    let ci = token(&project, "ci", &[]);
    assert_eq!(call(&server, "whoami", Some(&ci)), is("ci"));
    assert_eq!(call(&server, "whoami", None).0, 401);
    assert_eq!(call(&server, "whoami", Some("anything")).0, 401);
    let ann = token(&project, "ann", &[]);
    assert_ne!(ci, ann);
    assert_eq!(call(&server, "whoami", Some(&ann)), is("ann"));

    ran(&project, &["token", "remove", "ci"]);
    assert_eq!(call(&server, "whoami", Some(&ci)).0, 401);
    assert_eq!(call(&server, "whoami", Some(&ann)), is("ann"));
    // The same name again is another token.
    let again = token(&project, "ci", &[]);
    assert_eq!(call(&server, "whoami", Some(&ci)).0, 401);
    assert_eq!(call(&server, "whoami", Some(&again)), is("ci"));

    // Without any, nobody comes in: taking the last one back does not open the door.
    ran(&project, &["token", "remove", "ci"]);
    ran(&project, &["token", "remove", "ann"]);
    assert_eq!(call(&server, "whoami", Some(&ann)).0, 401);
    assert_eq!(call(&server, "whoami", None).0, 401);
}

#[test]
fn a_client_without_a_token_finds_no_login_and_is_told_what_to_do() {
    let project = project("");
    let _token = token(&project, "ci", &[]);
    let server = project.serve();
    for path in [
        "/.well-known/oauth-authorization-server",
        "/.well-known/oauth-authorization-server/mcp",
        "/.well-known/openid-configuration",
        "/.well-known/openid-configuration/mcp",
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
        "/mcp/.well-known/openid-configuration",
    ] {
        assert_eq!(ask(&server, "GET", path, None).status, 404, "{path}");
    }
    // Clients try to register next, and what some of them show is the description.
    let description = "this server has no login: its operator makes a token with `moonlark token add NAME`, and clients send it in the header Authorization: Bearer TOKEN";
    for (method, path) in [("POST", "/register"), ("GET", "/authorize"), ("POST", "/token")] {
        let answer = ask(&server, method, path, None);
        assert_eq!(answer.status, 404, "{path}");
        let expected = json!({"error": "access_denied", "error_description": description});
        assert_eq!(answer.json(), expected, "{path}");
    }
    for path in ["/.well-known-not", "/register/more", "/mcp/more"] {
        assert_eq!(ask(&server, "POST", path, None).status, 401, "{path}");
    }
}

#[test]
fn every_route_asks_who_is_calling_but_those_for_everybody() {
    let project = project("");
    let ci = token(&project, "ci", &[]);
    let server = project.serve();
    for (method, path) in crate::attacks::ROUTES {
        let open = matches!(path, "/health" | "/ready") || path.starts_with("/.well-known");
        let without = ask(&server, method, path, None);
        let with = ask(&server, method, path, Some(&ci));
        assert_eq!(without.status == 401, !open, "{method} {path}: {}", without.text());
        assert_ne!(with.status, 401, "{method} {path}");
        if !open {
            let challenge = without.header("www-authenticate");
            assert_eq!(challenge, Some("Bearer realm=\"moonlark\""), "{method} {path}");
        }
    }
    // Clients show of it what the protocol calls an error.
    let error = &ask(&server, "POST", "/mcp", None).json()["error"];
    assert_eq!(
        error["message"],
        "authentication required: send the header Authorization: Bearer TOKEN; the operator makes tokens with `moonlark token add NAME`"
    );
    assert_eq!((&error["code"], &error["data"]["code"]), (&json!(-32001), &json!("unauthorized")));
    // A plain call, which is answered before its route is looked up, is asked too.
    let plain = |more: &[(&str, &str)]| {
        mcp(&server.address, more, "tools/call", json!({"name": "whoami"})).to_string()
    };
    let refused = plain(&[]);
    assert!(refused.contains("token") && !refused.contains("result"), "{refused}");
    let bearer = format!("Bearer {ci}");
    assert!(plain(&[("Authorization", &bearer)]).contains("ci"));
    // Nobody but us hands out tokens, so there is nobody to send a client to.
    let metadata = ask(&server, "GET", "/.well-known/oauth-protected-resource", None);
    assert_eq!(metadata.status, 404);
}

#[test]
fn of_a_token_only_a_hash_is_kept_where_nobody_else_can_write() {
    let project = project("");
    let ci = token(&project, "ci", &["--tools", "whoami", "--operator"]);
    let kept = std::fs::read_to_string(file(&project)).unwrap();
    assert!(!kept.contains(&ci) && !kept.contains(&ci[4..]), "{kept}");
    let mode = std::fs::metadata(file(&project)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let listed = ran(&project, &["token", "list"]);
    assert!(listed.starts_with("ci  since 20"), "{listed}");
    assert!(listed.ends_with("  whoami  operator"), "{listed}");
    let listed: Value = serde_json::from_str(&ran(&project, &["token", "list", "--json"])).unwrap();
    assert_eq!(listed["tokens"][0]["tools"], json!(["whoami"]));
    assert!(!listed.to_string().contains("hash"), "{listed}");

    for (args, expected) in [
        (
            vec!["token", "add", "ci"],
            "error[bad_request]: there is a token of the name ci already\nhint: choose another name, or run `moonlark token remove ci` first\n",
        ),
        (
            vec!["token", "add", "local"],
            "error[bad_request]: local is what callers without a token are called\n",
        ),
        (
            vec!["token", "add", "c*"],
            "error[bad_request]: a name has letters, digits, -, _, . and @, and at most 64 of them\n",
        ),
        (
            vec!["token", "remove", "cu"],
            "error[not_found]: there is no token of the name cu\nhint: did you mean ci?\n",
        ),
    ] {
        let output = project.run(&args);
        assert_eq!(String::from_utf8_lossy(&output.stderr), expected, "{args:?}");
        assert!(!output.status.success());
    }

    let server = project.serve();
    assert_eq!(call(&server, "whoami", Some(&ci)), is("ci"));
    // What others can write to, or what is damaged, has no token in it.
    for break_it in [
        |path: &PathBuf| std::fs::set_permissions(path, PermissionsExt::from_mode(0o666)),
        |path: &PathBuf| std::fs::write(path, "{\"tokens\": ["),
    ] {
        let whole = std::fs::read(file(&project)).unwrap();
        break_it(&file(&project)).unwrap();
        assert_eq!(call(&server, "whoami", Some(&ci)).0, 401);
        assert_eq!(call(&server, "whoami", None).0, 401);
        server.log.wait_for("cannot be used");
        std::fs::remove_file(file(&project)).unwrap();
        std::fs::write(file(&project), whole).unwrap();
        std::fs::set_permissions(file(&project), PermissionsExt::from_mode(0o600)).unwrap();
        assert_eq!(call(&server, "whoami", Some(&ci)), is("ci"));
    }
}

#[test]
fn a_token_for_some_tools_sees_no_others_by_any_way_in() {
    let project = project("[tools.script.other]\npath = \"tools/other.lua\"\nexpose = \"both\"\n");
    let server = project.serve();
    let (few, more) = (token(&project, "few", &["--tools", "who*"]), token(&project, "more", &[]));
    let names = |token: &str| -> Vec<String> {
        let listed = ask(&server, "GET", "/tools/list", Some(token)).json();
        let tools = listed["tools"].as_array().unwrap().iter();
        tools.map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&few), ["whoami"]);
    assert!(names(&more).contains(&"other".to_owned()));
    assert_eq!(call(&server, "whoami", Some(&few)), is("few"));
    assert_eq!(call(&server, "other", Some(&few)).0, 404);
    assert_eq!(call(&server, "execute", Some(&few)).0, 404);
    assert_eq!(call(&server, "other", Some(&more)), is("other"));

    let bearer = format!("Bearer {few}");
    let by_mcp =
        |params: Value| mcp(&server.address, &[("Authorization", &bearer)], "tools/call", params);
    let denied = by_mcp(json!({"name": "other"}));
    assert!(denied.to_string().contains("no tool registered with name: other"), "{denied}");
    let allowed = by_mcp(json!({"name": "whoami"}));
    assert!(allowed.to_string().contains("few"), "{allowed}");

    // A script sees what its caller sees.
    ran(&project, &["token", "remove", "few"]);
    let few = token(&project, "few", &["--tools", "whoami", "--tools", "execute"]);
    let script = |text: &str| {
        let body = json!({ "script": text }).to_string();
        let answer = ask_with(&server, "POST", "/tools/execute", Some(&few), &[], body.as_bytes());
        answer.text()
    };
    assert!(script("return sdk.tools.whoami({})").contains("few"));
    let gone = script("return sdk.tools.other({})");
    assert!(gone.contains("other") && !gone.contains("\"result\":\"other\""), "{gone}");

    // The token decides before any rule, and says so.
    let explained = ran(&project, &["policy", "explain", "other", "--caller", "few"]);
    assert!(
        explained.ends_with(
            "  the token few decides: deny, as all but [\"whoami\", \"execute\"]\nThe tool does not exist for this caller."
        ),
        "{explained}"
    );
    // Taken back, it leaves nothing open for what its holder left behind.
    ran(&project, &["token", "remove", "few"]);
    let explained = ran(&project, &["policy", "explain", "other", "--caller", "few"]);
    assert!(explained.contains("the token few decides: deny"), "{explained}");
}

#[test]
fn rules_know_callers_by_the_names_of_their_tokens() {
    let config = r#"
[server.auth]
tokens.ci = "${CI_TOKEN}"

[[policy.rules]]
tools = ["other"]
callers = ["ann"]

[[policy.rules]]
tools = ["other"]
action = "deny"
"#;
    let project = project(config);
    let secret = "configured-0123456789-token";
    let ann = {
        // Commands read the configuration too.
        let mut add = crate::harness::moonlark();
        add.args(["token", "add", "ann"]).env("CI_TOKEN", secret).current_dir(project.path(""));
        String::from_utf8(add.output().unwrap().stdout).unwrap().trim().to_owned()
    };
    let server = project.serve_with(&[], &[("CI_TOKEN", secret)]);
    assert_eq!(call(&server, "whoami", Some(secret)), is("ci"));
    assert_eq!(call(&server, "other", Some(secret)).0, 404);
    assert_eq!(call(&server, "other", Some(&ann)), is("other"));
    assert_eq!(call(&server, "other", None).0, 401);
    std::fs::remove_file(file(&project)).unwrap();
    assert_eq!(call(&server, "whoami", Some(&ann)).0, 401);

    let mut short = crate::harness::moonlark();
    short.args(["check"]).env("CI_TOKEN", "hunter22").current_dir(project.path(""));
    let said = String::from_utf8(short.output().unwrap().stderr).unwrap();
    assert!(said.contains("the token of ci is shorter than 16 letters"), "{said}");
    assert!(!said.contains("hunter22"), "{said}");
}

#[test]
fn nothing_is_reachable_from_other_machines_without_a_token() {
    let project = project("");
    let open = ["serve", "--host", "0.0.0.0", "--port", "0"];
    let refused = project.run(&open);
    assert_eq!(
        String::from_utf8_lossy(&refused.stderr),
        "error[bad_config]: refusing to listen on 0.0.0.0 without authentication: every machine that can reach it could call every tool\n  --> server.host\nhint: make a token with `moonlark token add NAME`, or set server.auth.issuer to your identity provider, or listen on 127.0.0.1\n"
    );
    let ci = token(&project, "ci", &[]);
    let mut server = project.serve_with(&["--host", "0.0.0.0"], &[]);
    server.address = server.address.replace("0.0.0.0", "127.0.0.1");
    assert_eq!(call(&server, "whoami", Some(&ci)), is("ci"));
    assert_eq!(call(&server, "whoami", None).0, 401);
    // Not even when all of them are gone.
    std::fs::remove_file(file(&project)).unwrap();
    assert_eq!(call(&server, "whoami", Some(&ci)).0, 401);
    assert_eq!(call(&server, "whoami", None).0, 401);
}

#[test]
fn the_command_line_and_stdio_are_of_this_machine() {
    let project = project("");
    token(&project, "ci", &["--tools", "whoami"]);
    assert_eq!(ran(&project, &["call", "whoami"]), "\"local\"");
    assert_eq!(ran(&project, &["call", "other"]), "\"other\"");
    let mut stdio = project.stdio();
    let answer = stdio.request("tools/call", json!({"name": "whoami"}));
    assert_eq!(answer["result"]["content"][0]["text"], "local", "{answer}");
}

#[test]
fn doctor_says_how_callers_are_known() {
    let project = project("[server]\nport = 0\n");
    let callers = |project: &Project| {
        let said = project.run(&["doctor"]);
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        said.lines().find(|line| line.contains("callers")).unwrap_or(&said).to_owned()
    };
    assert_eq!(callers(&project), "  ✓ callers: no authentication, on this machine only");
    token(&project, "ci", &[]);
    token(&project, "ann", &[]);
    assert_eq!(callers(&project), "  ✓ callers: by token: ci, ann");

    let signer = Signer::p256("one");
    let provider = Provider::open(&[&signer]);
    let issuer = provider.url();
    project.write(
        "moonlark.toml",
        &format!("[server]\nport = 0\nauth.issuer = \"{issuer}\"\nauth.audience = [\"m\"]\n"),
    );
    assert_eq!(
        callers(&project),
        format!("  ✓ callers: by token: ci, ann; by {issuer}, which has 1 key")
    );
    provider.go_down(true);
    let down = callers(&project);
    assert!(down.contains(&format!("the keys of {issuer} cannot be fetched")), "{down}");
}

#[test]
fn clients_are_told_where_to_get_a_token() {
    let provider = Provider::open(&[]);
    let issuer = provider.url();
    let config = |more: &str| {
        format!("[server.auth]\nissuer = \"{issuer}\"\naudience = [\"m\"]\nscope = \"a b\"\n{more}")
    };
    let project = project(&config(""));
    let server = project.serve();
    let check = |server: &Server, base: &str| {
        for (path, route) in [("", "/tools/list"), ("/mcp", "/mcp")] {
            let well_known = format!("/.well-known/oauth-protected-resource{path}");
            assert_eq!(
                ask(server, "GET", &well_known, None).json(),
                json!({
                    "resource": format!("{base}{path}"),
                    "resource_name": "Moonlark",
                    "authorization_servers": [issuer],
                    "bearer_methods_supported": ["header"],
                    "scopes_supported": ["a", "b"],
                })
            );
            let refused = ask(server, "POST", route, None);
            let challenge =
                format!("Bearer realm=\"moonlark\", resource_metadata=\"{base}{well_known}\"");
            assert_eq!(refused.header("www-authenticate"), Some(challenge.as_str()));
            let refused = ask(server, "POST", route, Some("x"));
            let challenge = format!(
                "Bearer realm=\"moonlark\", error=\"invalid_token\", resource_metadata=\"{base}{well_known}\""
            );
            assert_eq!(refused.header("www-authenticate"), Some(challenge.as_str()));
        }
    };
    check(&server, &server.url(""));
    drop(server);
    project.write("moonlark.toml", &config("url = \"https://moonlark.example.com/\"\n"));
    check(&project.serve(), "https://moonlark.example.com");
}

#[test]
#[ignore = "needs tests/clients/install.sh: run ./test"]
fn the_official_client_finds_the_provider_and_logs_in_by_itself() {
    let provider = Provider::open(&[]);
    provider.publish_login();
    let config = |audience: &str| {
        let issuer = provider.url();
        format!("[server.auth]\nissuer = \"{issuer}\"\naudience = [\"{audience}\"]\n")
    };
    let project = project(&config("nobody"));
    let server = project.serve();
    // Its own address, which is known only now, is what clients ask for a token for.
    let audience = server.url("/mcp");
    project.write("moonlark.toml", &config(&audience));
    let token = provider.logged_in(&audience);
    wait_for("the new audience", || call(&server, "whoami", Some(&token)) == is("ann"));

    let script = repo().join("tests/clients/install.sh");
    let check = Command::new("sh").arg(script).arg("--check").output().unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    let before = provider.asked().len();
    let output = Command::new(repo().join("target/clients/python/bin/python"))
        .arg(repo().join("tests/callers/login.py"))
        .arg(&audience)
        .env("HOME", "/nonexistent")
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "ann", "{errors}");
    let asked = &provider.asked()[before..];
    for path in ["/register", "/authorize", "/token"] {
        assert!(asked.iter().any(|it| it == path), "{path} in {asked:?}");
    }
}
