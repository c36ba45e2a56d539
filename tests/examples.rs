//! The example extensions against the real thing: git, SQLite, PostgreSQL, a web
//! server. Their own tests, beside them, need nothing of that.

use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Value, json};

use crate::harness::{Project, Server, moonlark, repo};

/// The example extensions in a project with this configuration.
fn project(config: &str) -> Project {
    let project = Project::new(&[("moonlark.toml", config)]);
    for folder in ["examples/extensions", "examples/extensions/lib"] {
        for entry in std::fs::read_dir(repo().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if name.ends_with(".star") && !name.ends_with("_test.star") {
                let folder = folder.strip_prefix("examples/").unwrap();
                let text = std::fs::read_to_string(&path).unwrap();
                project.write(&format!("{folder}/{name}"), &text);
            }
        }
    }
    project
}

fn call(server: &Server, tool: &str, args: Value) -> Value {
    let (status, answer) = server.post(tool, &args);
    assert_eq!(status, 200, "{tool}: {answer}");
    answer["result"].clone()
}

/// The message of a call that fails.
fn refused(server: &Server, tool: &str, args: Value) -> String {
    let (status, answer) = server.post(tool, &args);
    assert_ne!(status, 200, "{tool}: {answer}");
    answer["error"]["message"].as_str().unwrap().to_owned()
}

#[test]
fn the_examples_are_clean_and_their_tests_need_nothing() {
    let run = |args: &[&str]| {
        moonlark().args(args).current_dir(repo().join("examples")).env("PATH", "").output().unwrap()
    };
    let checked = run(&["check"]);
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let tested: Value = serde_json::from_slice(&run(&["test", "--json"]).stdout).unwrap();
    assert_eq!(tested["failed"], 0, "{tested:#}");
    assert!(tested["passed"].as_u64().unwrap() >= 40, "{tested:#}");
}

#[test]
fn an_extension_is_written_tested_and_tried() {
    let project = Project::new(&[]);
    let run = |args: &[&str]| {
        let done = project.run(args);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&done.stdout), text(&done.stderr), done.status.code())
    };
    assert_eq!(
        run(&["tool", "init", "my-hello", "--starlark"]),
        (
            "Created extensions/my-hello.star\nCreated extensions/my-hello_test.star\n".to_owned(),
            "Try it: moonlark tool test extensions/my-hello.star --param name=World\nTest it: moonlark test\n".to_owned(),
            Some(0),
        )
    );
    let (tested, _, code) = run(&["test", "--json"]);
    let tested: Value = serde_json::from_str(&tested).unwrap();
    assert_eq!((&tested["passed"], &tested["failed"], code), (&json!(2), &json!(0), Some(0)));
    let file = "extensions/my-hello.star";
    let arguments = ["--quiet", "tool", "test", file, "--param", "name=World"];
    let (shown, _, _) = run(&arguments);
    assert!(
        shown.starts_with("Testing tool: my_hello (extensions/my-hello.star)\n  ✓ Script loaded\n  ✓ describe_extension defined\n  ✓ 2 parameters declared\n  ✓ Calling its handler({name: \"World\"})...\n  ✓ Returned result in "),
        "{shown}"
    );
    assert!(
        shown.ends_with("\nResult:\n  {\n    \"greeting\": \"Hello, World!\"\n  }\n"),
        "{shown}"
    );
    assert_eq!(
        run(&["check", file, "extensions/my-hello_test.star"]).0,
        "2 scripts checked, nothing wrong\n"
    );
    let (listed, _, _) = run(&["tool", "list"]);
    assert!(
        listed.ends_with("\n\nStarlark extensions:\n  my_hello             Say what this tool does, in one line an agent can act on\n"),
        "{listed}"
    );
    let (found, _, _) = run(&["doctor", "--json"]);
    assert!(found.contains("1 tool from 1 script\""), "{found}");

    // What is there is not overwritten, not even one of the two.
    project.remove(file);
    let (_, said, code) = run(&["tool", "init", "my-hello", "--starlark"]);
    assert_eq!(code, Some(1));
    assert!(said.starts_with("error[bad_request]: extensions/my-hello_test.star is there already"));
    assert!(!project.path(file).exists());
}

#[test]
fn one_tool_of_several_is_chosen_and_broken_files_are_found() {
    let project = project("");
    let said = |args: &[&str]| {
        let done = project.run(args);
        assert_eq!(done.status.code(), Some(1), "{args:?}");
        String::from_utf8(done.stderr).unwrap()
    };
    let file = "extensions/git.star";
    assert_eq!(
        said(&["tool", "test", file]),
        "error[bad_request]: extensions/git.star has several tools: git_status, git_log, git_diff, git_branches, git_blame\nhint: choose one with --tool NAME\n"
    );
    assert_eq!(
        said(&["tool", "test", file, "--tool", "git_lgo"]),
        "error[bad_request]: extensions/git.star has no tool git_lgo\nhint: did you mean git_log?\n"
    );
    assert_eq!(
        said(&["tool", "test", file, "--source", "gti"]),
        "error[bad_request]: there is no [extensions.script.gti] in the configuration\n"
    );
    assert!(said(&["tool", "test", "extensions/lib/sql.star"]).contains("has no tool"));
    // Also outside of the extensions folder.
    project.write("elsewhere/a.star", "def describe_extension():\n    return 1\n");
    project.write("elsewhere/a_test.star", "load(\"b.star\", \"x\")\n");
    project.write("tools/x_test.luau", "function test_a(\n");
    let broken =
        said(&["check", "elsewhere/a.star", "elsewhere/a_test.star", "tools/x_test.luau", file]);
    for part in [
        "must return Extension(…), got int",
        "there is no such file\n  --> elsewhere/b.star",
        "tools/x_test.luau",
        "4 scripts checked, 3 errors",
    ] {
        assert!(broken.contains(part), "{part}: {broken}");
    }
}

fn git(dir: &Path, args: &[&str]) -> String {
    let done = Command::new("git")
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .envs([("GIT_AUTHOR_NAME", "Ann Ö"), ("GIT_AUTHOR_EMAIL", "ann@example.com")])
        .envs([("GIT_COMMITTER_NAME", "Bob"), ("GIT_COMMITTER_EMAIL", "bob@example.com")])
        .envs([("GIT_AUTHOR_DATE", "2026-01-31T10:00:00Z")])
        .envs([("GIT_COMMITTER_DATE", "2026-01-31T10:00:00Z")])
        .output()
        .expect("git is installed");
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

#[test]
fn git_is_read_and_nothing_becomes_an_option() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    git(dir, &["init", "--quiet", "--initial-branch=main"]);
    std::fs::write(dir.join("größe.txt"), "one\ntwo\n").unwrap();
    git(dir, &["add", "."]);
    git(dir, &["commit", "--quiet", "-m", "First: a | b"]);
    git(dir, &["branch", "topic"]);
    std::fs::write(dir.join("größe.txt"), "one\n2\n").unwrap();
    git(dir, &["commit", "--quiet", "-am", "Second"]);
    git(dir, &["mv", "größe.txt", "new name.txt"]);
    std::fs::write(dir.join("extra.txt"), "x\n").unwrap();
    let [second, first] = ["HEAD", "HEAD~1"].map(|name| git(dir, &["rev-parse", name]));

    let project = project(&format!(
        "[extensions.script.git]\nallow = [\"exec:git\"]\nrepository = {:?}\n",
        dir.to_str().unwrap()
    ));
    let server = project.serve();
    assert_eq!(
        call(&server, "git_status", json!({})),
        json!({
            "branch": "main", "upstream": null, "ahead": 0, "behind": 0, "clean": false,
            "changes": [
                {"path": "new name.txt", "index": "renamed", "from": "größe.txt"},
                {"path": "extra.txt", "work_tree": "untracked"},
            ],
        })
    );
    let commit = |hash: &str, subject: &str| json!({"hash": hash, "author": "Ann Ö", "date": "2026-01-31T10:00:00Z", "subject": subject});
    assert_eq!(
        call(&server, "git_log", json!({"path": "größe.txt", "author": "Ann"})),
        json!({"commits": [commit(&second, "Second"), commit(&first, "First: a | b")]})
    );
    assert_eq!(
        call(&server, "git_log", json!({"revision": "topic..main"})),
        json!({"commits": [commit(&second, "Second")]})
    );
    let diff = call(&server, "git_diff", json!({"revision": "topic..main"}));
    assert!(diff.as_str().unwrap().ends_with("@@ -1,2 +1,2 @@\n one\n-two\n+2\n"), "{diff}");
    let staged = call(&server, "git_diff", json!({"staged": true, "stat": true}));
    assert!(staged.as_str().unwrap().contains("größe.txt => new name.txt"), "{staged}");
    let branches = call(&server, "git_branches", json!({}));
    assert_eq!(branches["branches"][0]["name"], "main");
    assert_eq!(branches["branches"][0]["current"], true);
    assert_eq!(branches["branches"][1]["hash"], first);
    let line = |line: u8, hash: &str, text: &str| json!({"line": line, "hash": hash, "author": "Ann Ö", "date": "2026-01-31T10:00:00Z", "text": text});
    assert_eq!(
        call(&server, "git_blame", json!({"path": "größe.txt", "revision": "main"})),
        json!({"lines": [line(1, &first, "one"), line(2, &second, "2")]})
    );

    let escape = dir.join("escaped");
    let option = format!("--output={}", escape.display());
    for tool in ["git_log", "git_diff"] {
        for name in ["revision", "path"] {
            let said = refused(&server, tool, json!({name: option}));
            assert_eq!(said, format!("{name} must not begin with -"));
        }
    }
    // A pattern is a name, and a path is not a revision.
    assert_eq!(call(&server, "git_log", json!({"path": ":(top)*"})), json!({"commits": []}));
    assert!(refused(&server, "git_log", json!({"revision": "extra.txt"})).contains("bad revision"));
    assert!(refused(&server, "git_blame", json!({"path": "/etc/passwd"})).contains("outside"));
    assert!(!escape.exists());
}

#[test]
fn a_folder_without_a_repository_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let config = "[extensions.script.git]\nallow = [\"exec:git\"]\nrepository = ";
    let project = project(&format!("{config}{path:?}\n"));
    let server = project.serve();
    for tool in ["git_status", "git_log", "git_diff", "git_branches"] {
        let said = refused(&server, tool, json!({}));
        assert_eq!(said, format!("{path} is not in a git repository"), "{tool}");
    }
    let answer = server.mcp("tools/call", json!({"name": "git_status", "arguments": {}}));
    assert_eq!(answer["result"]["isError"], true);
    assert_eq!(
        answer["result"]["content"],
        json!([{"type": "text", "text": format!("{path} is not in a git repository")}])
    );
}

/// Makes the databases that the explorers look into.
const MAKER: &str = r#"
def change(params, context):
    if "url" in context.config:
        return postgres.execute(context.config["url"], params["sql"])
    return sqlite.execute(context.config["database"], params["sql"])

def describe_extension():
    return Extension(name = "maker", tools = [Tool(
        name = "change",
        parameters = [ToolParameter(name = "sql", param_type = "string", required = True)],
        handler = change,
    )])
"#;

#[test]
fn a_sqlite_database_is_explored() {
    let project = project(
        r#"
[extensions.script.maker]
database = "../data/app.db"
allow = ["sqlite:../data/app.db", "sql:write"]

[extensions.script.sqlite_explorer]
database = "../data/app.db"
allow = ["sqlite:../data/app.db"]
"#,
    );
    project.write("extensions/maker.star", MAKER);
    std::fs::create_dir(project.path("data")).unwrap();
    let server = project.serve();
    call(
        &server,
        "change",
        json!({"sql": "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT NOT NULL)"}),
    );
    let made = json!({"sql": "INSERT INTO users (name) VALUES ('Ann'), ('Bob'), ('Cem')"});
    assert_eq!(call(&server, "change", made)["rows_affected"], 3);

    assert_eq!(call(&server, "sqlite_tables", json!({})), json!({"tables": ["users"]}));
    let columns = call(&server, "sqlite_describe", json!({"table": "users"}));
    assert_eq!(columns["columns"][1]["name"], "name");
    assert_eq!(
        refused(&server, "sqlite_describe", json!({"table": "user"})),
        "there is no table user; there are: users"
    );
    explore(&server, "sqlite_query", "?");
    assert!(
        refused(&server, "sqlite_query", json!({"sql": "SELECT 1", "database": "../../other.db"}))
            .contains("may not open ../../other.db")
    );
}

/// What holds for a query of the table `users` in either database.
fn explore(server: &Server, tool: &str, place: &str) {
    let query = |args: Value| call(server, tool, args);
    assert_eq!(
        query(json!({"sql": "SELECT name FROM users ORDER BY name DESC; ", "limit": 2})),
        json!({"rows": [{"name": "Cem"}, {"name": "Bob"}], "truncated": true})
    );
    assert_eq!(
        query(json!({
            "sql": format!("WITH u AS (SELECT * FROM users) SELECT id FROM u WHERE name = {place} -- by name"),
            "params": ["Bob"],
        })),
        json!({"rows": [{"id": 2}], "truncated": false})
    );
    // Neither a statement of another kind nor one hidden behind a query.
    for sql in [
        "DELETE FROM users",
        "SELECT 1; DELETE FROM users",
        "SELECT 1) AS a; DELETE FROM users; --",
    ] {
        refused(server, tool, json!({"sql": sql}));
    }
    assert_eq!(
        query(json!({"sql": "SELECT count(*) AS n FROM users"})),
        json!({"rows": [{"n": 3}], "truncated": false})
    );
}

#[cfg(unix)]
use crate::postgres::server as postgres;

#[cfg(unix)]
#[test]
#[ignore = "needs tests/postgres/install.sh: run ./test"]
fn a_postgresql_database_is_explored() {
    let postgres = postgres::Postgres::start();
    let port = postgres.port;
    let url = format!("postgres://postgres:{}@127.0.0.1:{port}/postgres", postgres::PASSWORD);
    let project = project(&format!(
        "[extensions.script.maker]\nurl = \"{url}\"\nallow = [\"net:127.0.0.1:{port}\", \"sql:write\"]\n\n[extensions.script.postgres_explorer]\nurl = \"{url}\"\nallow = [\"net:127.0.0.1:{port}\"]\n"
    ));
    project.write("extensions/maker.star", MAKER);
    let server = project.serve();
    call(
        &server,
        "change",
        json!({"sql": "CREATE TABLE users (id serial PRIMARY KEY, name text NOT NULL)"}),
    );
    let made = json!({"sql": "INSERT INTO users (name) VALUES ('Ann'), ('Bob'), ('Cem')"});
    assert_eq!(call(&server, "change", made)["rows_affected"], 3);

    assert_eq!(call(&server, "postgres_tables", json!({})), json!({"tables": ["users"]}));
    let columns = call(&server, "postgres_describe", json!({"table": "users"}));
    assert_eq!(columns["columns"][1]["type"], "text");
    assert_eq!(
        refused(&server, "postgres_describe", json!({"table": "user"})),
        "there is no table user; there are: users"
    );
    explore(&server, "postgres_query", "$1");
}

/// A GitHub that is just real enough.
#[derive(Clone)]
struct Hub {
    address: String,
    created: Arc<Mutex<Vec<Value>>>,
}

fn hub() -> (u16, Hub) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let hub = Hub { address: format!("http://127.0.0.1:{port}"), created: Arc::default() };
    let router = Router::new()
        .route("/repos/acme/app/issues", get(list).post(create))
        .route("/search/issues", get(search))
        .with_state(hub.clone());
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, router).await.unwrap();
        });
    });
    (port, hub)
}

fn issue(number: u32, title: &str) -> Value {
    json!({
        "number": number, "title": title, "state": "open", "user": {"login": "ann"},
        "labels": [], "comments": 0, "updated_at": "2026-01-31T10:00:00Z",
        "html_url": format!("https://hub.example/acme/app/issues/{number}"),
    })
}

fn is_known(headers: &HeaderMap) -> bool {
    headers.get("authorization").is_some_and(|value| value == "Bearer t0ken-of-ann")
}

/// Three pages of two.
async fn list(
    State(hub): State<Hub>,
    Query(query): Query<std::collections::HashMap<String, String>>,
    headers: HeaderMap,
) -> Response {
    if !is_known(&headers) {
        return (StatusCode::UNAUTHORIZED, axum::Json(json!({"message": "Bad credentials"})))
            .into_response();
    }
    let page: u32 = query.get("page").and_then(|page| page.parse().ok()).unwrap_or(1);
    let issues = [issue(page * 2 - 1, "odd"), issue(page * 2, "even")];
    let next = format!(
        "<{0}/repos/acme/app/issues?state=open&page={1}>; rel=\"next\", <{0}/x?page=3>; rel=\"last\"",
        hub.address,
        page + 1
    );
    let link = if page < 3 { next } else { format!("<{}/x?page=1>; rel=\"first\"", hub.address) };
    ([("link", link)], axum::Json(json!(issues))).into_response()
}

async fn create(State(hub): State<Hub>, axum::Json(given): axum::Json<Value>) -> Response {
    hub.created.lock().unwrap().push(given.clone());
    let answer = issue(7, given["title"].as_str().unwrap_or_default());
    (StatusCode::CREATED, axum::Json(answer)).into_response()
}

async fn search() -> Response {
    let headers = [("x-ratelimit-remaining", "0"), ("x-ratelimit-reset", "1767225600")];
    let message = axum::Json(json!({"message": "API rate limit exceeded"}));
    (StatusCode::FORBIDDEN, headers, message).into_response()
}

#[test]
fn issues_are_read_and_made_over_http() {
    let (port, hub) = hub();
    let config = |token: &str| {
        format!(
            "[extensions.script.github_issues]\nurl = \"http://127.0.0.1:{port}\"\nrepository = \"acme/app\"\ntoken = \"{token}\"\nallow = [\"net:127.0.0.1:{port}\"]\n"
        )
    };
    let known = project(&config("t0ken-of-ann"));
    let server = known.serve();
    let numbers = |args: Value| -> (Vec<u64>, bool) {
        let answer = call(&server, "github_list_issues", args);
        let issues = answer["issues"].as_array().unwrap().iter();
        let numbers = issues.map(|issue| issue["number"].as_u64().unwrap()).collect();
        (numbers, answer["more"].as_bool().unwrap())
    };
    assert_eq!(numbers(json!({})), (vec![1, 2, 3, 4, 5, 6], false));
    assert_eq!(numbers(json!({"limit": 3})), (vec![1, 2, 3], true));

    let made = json!({"title": "It crashes", "body": "Always.", "labels": ["bug"]});
    assert_eq!(call(&server, "github_create_issue", made.clone())["title"], "It crashes");
    assert_eq!(*hub.created.lock().unwrap(), [made]);

    assert_eq!(
        refused(&server, "github_search_issues", json!({"query": "crash"})),
        "GitHub's rate limit is used up: try again at 2026-01-01T00:00:00Z; a token allows more requests"
    );
    assert!(
        refused(&server, "github_list_issues", json!({"repository": "acme/other"}))
            .contains("there is no such repository")
    );
    let stranger = project(&config("wrong-token"));
    assert!(
        refused(&stranger.serve(), "github_list_issues", json!({}))
            .contains("does not take the token")
    );
}
