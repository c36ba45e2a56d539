use std::path::Path;
use std::time::Duration;

use moonlark_core::tool::CallScope;
use moonlark_core::value::TextOrBytes;
use moonlark_core::{Result, Value};
use rusqlite::Connection;
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use crate::test_calls::{call, call_value, limited, problem, scope};

fn dir() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn reader(dir: &Path) -> CallScope {
    scope(dir, &[])
}

fn writer(dir: &Path) -> CallScope {
    scope(dir, &["sql:write"])
}

async fn execute(dir: &Path, sql: &str, params: Json) -> Result<Value> {
    call(writer(dir), "sqlite.execute", json!({"path": "a.db", "sql": sql, "params": params})).await
}

async fn query(dir: &Path, sql: &str, params: Json) -> Json {
    let args = json!({"path": "a.db", "sql": sql, "params": params});
    call(reader(dir), "sqlite.query", args).await.unwrap().into_json("rows").unwrap()
}

async fn refused(scope: CallScope, sql: &str, params: Json) -> String {
    problem(scope, "sqlite.query", json!({"path": "a.db", "sql": sql, "params": params})).await
}

async fn people() -> TempDir {
    let dir = dir();
    execute(
        dir.path(),
        "CREATE TABLE people (id INTEGER PRIMARY KEY, name TEXT NOT NULL, age REAL DEFAULT 1.5)",
        json!([]),
    )
    .await
    .unwrap();
    execute(dir.path(), "INSERT INTO people (name) VALUES ('Ann'), ('Bob')", json!([]))
        .await
        .unwrap();
    dir
}

#[tokio::test]
async fn every_type_goes_in_and_comes_out_as_it_is() {
    let dir = people().await;
    let bytes = vec![0, 159, 146, 150];
    let given = [
        Value::Null,
        Value::Bool(true),
        Value::Int(i64::MAX),
        Value::Int(i64::MIN),
        Value::Float(0.1),
        Value::Float(1e300),
        Value::from("it's \u{1F600}"),
        Value::Bytes(bytes.clone()),
        Value::from("5"),
        Value::from(""),
    ];
    let args = |params| {
        Value::from_fields([
            ("path", "a.db".into()),
            ("sql", "SELECT ? a, ? b, ? c, ? d, ? e, ? f, ? g, ? h, typeof(?) i, ? j".into()),
            ("params", params),
        ])
    };
    let params = Value::Array(given.to_vec());
    let rows = call_value(reader(dir.path()), "sqlite.query", args(params)).await.unwrap();
    let Value::Array(rows) = rows else { panic!() };
    let row: Vec<Value> = rows[0].as_object().unwrap().values().cloned().collect();
    let mut expected = given.to_vec();
    expected[1] = Value::Int(1);
    expected[8] = "text".into();
    assert_eq!(row, expected);
    // Bytes that are text come as text, whatever the column says.
    let rows = query(
        dir.path(),
        "SELECT x'6869' a, CAST(? AS BLOB) b, typeof(CAST(? AS BLOB)) c",
        json!(["x", "x"]),
    )
    .await;
    assert_eq!(rows, json!([{"a": "hi", "b": "x", "c": "blob"}]));
    assert_eq!(Value::from(TextOrBytes(bytes.clone())), Value::Bytes(bytes));
}

#[tokio::test]
async fn values_that_have_no_type_are_refused() {
    let dir = people().await;
    for (value, expected) in [
        (Value::Float(f64::NAN), "parameter 1 is NaN"),
        (Value::Float(f64::INFINITY), "parameter 1 is inf"),
        (
            Value::Array(vec![Value::Int(1)]),
            "parameter 1 is an array, which SQLite has no type for",
        ),
        (Value::from_fields([("a", Value::Int(1))]), "parameter 1 is an object"),
    ] {
        let args = Value::from_fields([
            ("path", "a.db".into()),
            ("sql", "SELECT ?".into()),
            ("params", Value::Array(vec![value])),
        ]);
        let text =
            call_value(reader(dir.path()), "sqlite.query", args).await.unwrap_err().to_string();
        assert!(text.starts_with("error[bad_request]") && text.contains(expected), "{text}");
    }
}

#[tokio::test]
async fn changes_say_what_they_did() {
    let dir = people().await;
    let changed = |rows: i64, id: Option<i64>| {
        Value::from_fields([("rows_affected", rows.into()), ("last_insert_id", id.into())])
    };
    let run = async |sql| execute(dir.path(), sql, json!([])).await.unwrap();
    assert_eq!(run("INSERT INTO people (name) VALUES ('Cy')").await, changed(1, Some(3)));
    assert_eq!(run("UPDATE people SET age = 2").await, changed(3, None));
    assert_eq!(run("DELETE FROM people WHERE id = 3").await, changed(1, None));
    // The same id again, on the same connection.
    assert_eq!(run("INSERT INTO people (name) VALUES ('Di')").await, changed(1, Some(3)));
    assert_eq!(run("DELETE FROM people WHERE id = 77").await, changed(0, None));
    assert_eq!(run("CREATE TABLE t (x)").await, changed(0, None));
    let args = json!({"path": "a.db", "sql": "INSERT INTO t VALUES (1), (2) RETURNING x"});
    let rows = call(writer(dir.path()), "sqlite.query", args).await.unwrap();
    assert_eq!(rows.into_json("rows").unwrap(), json!([{"x": 1}, {"x": 2}]));
}

#[tokio::test]
async fn parameters_are_data() {
    let dir = people().await;
    for attack in [
        "'; DROP TABLE people; --",
        "Ann' OR '1'='1",
        "\" OR 1=1 --",
        "Ann'); DELETE FROM people; --",
        "\u{0}' OR 1=1",
        "%",
    ] {
        let rows = query(dir.path(), "SELECT id FROM people WHERE name = ?", json!([attack])).await;
        assert_eq!(rows, json!([]), "{attack}");
        let rows = query(dir.path(), "SELECT :name AS name", json!({"name": attack})).await;
        assert_eq!(rows, json!([{"name": attack}]));
    }
    let rows = query(dir.path(), "SELECT name FROM people ORDER BY id", json!([])).await;
    assert_eq!(rows, json!([{"name": "Ann"}, {"name": "Bob"}]));
}

#[tokio::test]
async fn parameters_that_do_not_fit_the_statement_are_named() {
    let dir = people().await;
    for (sql, params, expected) in [
        ("SELECT ?, ?", json!([1]), "the statement has 2 parameters, but 1 were given"),
        ("SELECT 1", json!([1]), "the statement has 0 parameters, but 1 were given"),
        (
            "SELECT :a",
            json!({"b": 1}),
            "the statement uses parameter \"a\", which is not in params",
        ),
        (
            "SELECT :a",
            json!({"a": 1, "b": 1}),
            "params has \"b\", which the statement does not use",
        ),
        ("SELECT ?", json!({"a": 1}), "parameter 1 has no name"),
        ("SELECT ?1", json!({"1": 1}), "parameter 1 has no name"),
        ("SELECT 1 a, 2 a", json!([]), "two columns of the result are named \"a\""),
        ("", json!([]), "the SQL has no statement"),
        (" -- nothing\n;", json!([]), "the SQL has no statement"),
        ("SELECT 1; DELETE FROM people", json!([]), "more than one statement"),
        ("SELECT 1; nonsense", json!([]), "more than one statement"),
        ("SELECT 1\u{0}; DELETE", json!([]), "the SQL contains a zero byte"),
        ("SELEC 1", json!([]), "near \"SELEC\": syntax error"),
        ("SELECT * FROM nobody", json!([]), "no such table: nobody"),
    ] {
        let text = refused(reader(dir.path()), sql, params).await;
        assert!(
            text.starts_with("error[bad_request]: sqlite.query: ") && text.contains(expected),
            "{sql}: {text}"
        );
    }
    let rows = query(dir.path(), "SELECT :a + @a + $a AS sum, ?4 AS d;", json!([1, 2, 3, 4])).await;
    assert_eq!(rows, json!([{"sum": 6, "d": 4}]));
    assert_eq!(
        query(dir.path(), "SELECT :a + @a AS sum", json!({"a": 2})).await,
        json!([{"sum": 4}])
    );
    // Statements beyond counting are still one refusal.
    let text = refused(reader(dir.path()), &"SELECT 1;".repeat(200_000), json!([])).await;
    assert!(text.contains("more than one statement"), "{text}");
    let text =
        refused(reader(dir.path()), &format!("SELECT {}1", "(".repeat(100_000)), json!([])).await;
    assert!(text.starts_with("error[bad_request]"), "{text}");
}

#[tokio::test]
async fn without_the_grant_nothing_is_changed() {
    let dir = people().await;
    execute(dir.path(), "CREATE INDEX by_age ON people (age)", json!([])).await.unwrap();
    let before = std::fs::read(dir.path().join("a.db")).unwrap();
    for sql in [
        "DELETE FROM people",
        "INSERT INTO people (name) VALUES ('x')",
        "UPDATE people SET name = 'x' RETURNING id",
        "WITH x AS (SELECT 1) INSERT INTO people (name) SELECT 'x' FROM x",
        "REPLACE INTO people (id, name) VALUES (1, 'x')",
        "CREATE TABLE t (x)",
        "DROP TABLE people",
        "ALTER TABLE people ADD COLUMN z",
        "CREATE INDEX i ON people (name)",
        "CREATE VIRTUAL TABLE f USING fts5(x)",
        "CREATE TRIGGER g AFTER INSERT ON people BEGIN SELECT 1; END",
        "REINDEX",
        "ANALYZE",
        "PRAGMA user_version = 7",
        "PRAGMA journal_mode = wal",
        "EXPLAIN DELETE FROM people",
        "/* SELECT */ DELETE FROM people",
    ] {
        assert_eq!(
            refused(reader(dir.path()), sql, json!([])).await,
            "error[denied]: sqlite.query may not change databases\nhint: add \"sql:write\" to allow for tools.script.test in moonlark.toml",
            "{sql}"
        );
    }
    let text = problem(
        reader(dir.path()),
        "sqlite.execute",
        json!({"path": "a.db", "sql": "DELETE FROM people"}),
    )
    .await;
    assert!(text.starts_with("error[denied]: sqlite.execute may not change databases"), "{text}");
    assert_eq!(std::fs::read(dir.path().join("a.db")).unwrap(), before);
}

#[tokio::test]
async fn some_things_are_never_possible() {
    let dir = people().await;
    let other = dir.path().join("other.db");
    for sql in [
        "ATTACH 'other.db' AS o",
        "ATTACH ':memory:' AS o",
        "ATTACH '' AS o",
        "DETACH main",
        "VACUUM",
        "VACUUM INTO 'other.db'",
        "SELECT load_extension('x')",
        "SELECT LOAD_EXTENSION('x', 'y')",
        "BEGIN",
        "BEGIN IMMEDIATE",
        "COMMIT",
        "ROLLBACK",
        "SAVEPOINT s",
        "CREATE TEMP TABLE t (x)",
        "CREATE TEMP VIEW v AS SELECT 1",
        "PRAGMA query_only = OFF",
        "PRAGMA writable_schema = ON",
        "PRAGMA trusted_schema = ON",
        "PRAGMA temp_store_directory = '/tmp'",
        "PRAGMA data_store_directory = '/tmp'",
        "PRAGMA hard_heap_limit = 1",
        "PRAGMA locking_mode = EXCLUSIVE",
        "PRAGMA journal_mode = OFF",
        "PRAGMA mmap_size = 1",
        "PRAGMA database_list",
        "PRAGMA nonsense",
    ] {
        for scope in [reader(dir.path()), writer(dir.path())] {
            let text = refused(scope, sql, json!([])).await;
            assert!(text.starts_with("error[denied]"), "{sql}: {text}");
        }
    }
    assert!(!other.exists());
    assert_eq!(
        query(dir.path(), "SELECT count(*) n FROM people", json!([])).await,
        json!([{"n": 2}])
    );
}

#[tokio::test]
async fn tables_are_listed_and_described() {
    let dir = people().await;
    execute(dir.path(), "CREATE VIEW adults AS SELECT name FROM people", json!([])).await.unwrap();
    execute(dir.path(), "CREATE TABLE \"odd 'name\" (a, b TEXT, PRIMARY KEY (a, b))", json!([]))
        .await
        .unwrap();
    let tables =
        call(reader(dir.path()), "sqlite.list_tables", json!({"path": "a.db"})).await.unwrap();
    assert_eq!(tables, Value::from(vec!["adults", "odd 'name", "people"]));
    let describe = async |table: &str| {
        let args = json!({"path": "a.db", "table": table});
        call(reader(dir.path()), "sqlite.describe_table", args).await
    };
    let column = |name: &str, kind: &str, nullable: bool, default: Json, key: bool| json!({"name": name, "type": kind, "nullable": nullable, "default": default, "primary_key": key});
    assert_eq!(
        describe("people").await.unwrap().into_json("x").unwrap(),
        json!([
            column("id", "INTEGER", false, Json::Null, true),
            column("name", "TEXT", false, Json::Null, false),
            column("age", "REAL", true, json!("1.5"), false),
        ])
    );
    assert_eq!(
        describe("odd 'name").await.unwrap().into_json("x").unwrap(),
        json!([
            column("a", "", true, Json::Null, true),
            column("b", "TEXT", true, Json::Null, true),
        ])
    );
    assert_eq!(
        describe("nobody").await.unwrap_err().to_string(),
        "error[not_found]: sqlite.describe_table: there is no table nobody\nhint: sqlite.list_tables gives the tables that there are"
    );
}
#[tokio::test]
async fn no_path_leads_out_of_the_directory() {
    let outside = people().await;
    let secret = outside.path().join("a.db");
    let dir = dir();
    std::os::unix::fs::symlink(&secret, dir.path().join("link.db")).unwrap();
    std::os::unix::fs::symlink(outside.path(), dir.path().join("linked")).unwrap();
    std::os::unix::fs::symlink("nowhere.db", dir.path().join("dangling.db")).unwrap();
    let name = outside.path().file_name().unwrap().to_str().unwrap();
    let up = format!("../{name}/a.db");
    for path in
        [secret.to_str().unwrap(), "link.db", "linked/a.db", &up, "linked/../x.db", "../x.db"]
    {
        let args = json!({"path": path, "sql": "SELECT name FROM people"});
        let text = problem(reader(dir.path()), "sqlite.query", args.clone()).await;
        assert!(text.starts_with("error[denied]: sqlite.query may not open"), "{path}: {text}");
        let text = problem(writer(dir.path()), "sqlite.execute", args).await;
        assert!(text.starts_with("error[denied]: sqlite.execute may not open"), "{path}: {text}");
    }
    // The grant may be written like the path, or as what it leads to.
    for grant in
        [format!("sqlite:{}", secret.display()), "sqlite:link.db".into(), format!("sqlite:{up}")]
    {
        for path in [secret.to_str().unwrap(), "link.db", &up] {
            let args = json!({"path": path, "sql": "SELECT count(*) n FROM people"});
            let rows = call(scope(dir.path(), &[&grant]), "sqlite.query", args).await.unwrap();
            assert_eq!(rows.into_json("rows").unwrap(), json!([{"n": 2}]));
        }
    }
    for (path, expected) in [
        ("x/y.db", "error[not_found]: sqlite.execute: there is no directory for x/y.db"),
        ("", "error[bad_request]: sqlite.execute: \"\" is not a path"),
        ("a\0b", "error[bad_request]: sqlite.execute: \"a\\0b\" is not a path"),
        (".", "error[bad_request]: sqlite.execute: . is a directory, not a database"),
        (
            "new.lua",
            "error[denied]: sqlite.execute: a new database may not have the ending of a script",
        ),
        (
            "dangling.db",
            "error[unavailable]: sqlite.execute: the database dangling.db cannot be opened",
        ),
    ] {
        let text = problem(
            writer(dir.path()),
            "sqlite.execute",
            json!({"path": path, "sql": "CREATE TABLE t (x)"}),
        )
        .await;
        assert!(text.starts_with(expected), "{path}: {text}");
    }
    assert!(!dir.path().join("nowhere.db").exists());
    // These are names like any other.
    for path in [":memory:", "file:x.db?mode=memory"] {
        call(
            writer(dir.path()),
            "sqlite.execute",
            json!({"path": path, "sql": "CREATE TABLE t (x)"}),
        )
        .await
        .unwrap();
        assert!(dir.path().join(path).is_file(), "{path}");
    }
}
#[tokio::test]
async fn files_that_are_no_database_are_named_as_such() {
    let dir = dir();
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("text.db"), "hello, this is not a database at all\n".repeat(100)).unwrap();
    let args = |path: &str| json!({"path": path, "sql": "SELECT * FROM sqlite_schema"});
    assert_eq!(
        problem(reader(dir.path()), "sqlite.query", args("text.db")).await,
        "error[bad_request]: sqlite.query: text.db is not a SQLite database"
    );
    std::fs::write(at("empty.db"), "").unwrap();
    assert_eq!(
        call(reader(dir.path()), "sqlite.query", args("empty.db")).await.unwrap(),
        Value::Array(vec![])
    );
    // A database whose pages are scribbled over.
    let whole = people().await;
    let mut bytes = std::fs::read(whole.path().join("a.db")).unwrap();
    bytes[100..4096].fill(0x41);
    std::fs::write(at("torn.db"), bytes).unwrap();
    let text = problem(reader(dir.path()), "sqlite.query", args("torn.db")).await;
    assert!(
        text.starts_with("error[unavailable]: sqlite.query: the database torn.db is damaged"),
        "{text}"
    );
    let pipe = std::ffi::CString::new(at("pipe.db").to_str().unwrap()).unwrap();
    // SAFETY: the path is a C string that outlives the call.
    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
    let text = problem(reader(dir.path()), "sqlite.query", args("pipe.db")).await;
    assert!(text.contains("pipe.db is not a regular file"), "{text}");
}
#[tokio::test]
async fn a_file_put_in_place_of_another_is_noticed() {
    let dir = people().await;
    assert_eq!(
        query(dir.path(), "SELECT count(*) n FROM people", json!([])).await,
        json!([{"n": 2}])
    );
    let next = people().await;
    execute(next.path(), "DELETE FROM people", json!([])).await.unwrap();
    std::fs::copy(next.path().join("a.db"), dir.path().join("b.db")).unwrap();
    std::fs::rename(dir.path().join("b.db"), dir.path().join("a.db")).unwrap();
    assert_eq!(
        query(dir.path(), "SELECT count(*) n FROM people", json!([])).await,
        json!([{"n": 0}])
    );
}

#[tokio::test]
async fn a_database_in_wal_mode_is_read_and_written() {
    let dir = people().await;
    execute(dir.path(), "PRAGMA journal_mode = wal", json!([])).await.unwrap();
    execute(dir.path(), "INSERT INTO people (name) VALUES ('Cy')", json!([])).await.unwrap();
    assert_eq!(
        query(dir.path(), "PRAGMA journal_mode", json!([])).await,
        json!([{"journal_mode": "wal"}])
    );
    assert_eq!(
        query(dir.path(), "SELECT count(*) n FROM people", json!([])).await,
        json!([{"n": 3}])
    );
}

#[tokio::test]
async fn a_locked_database_is_waited_for_and_then_a_problem() {
    let dir = people().await;
    let other = Connection::open(dir.path().join("a.db")).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    let brief = limited(reader(dir.path()), |limits| limits.timeout = Duration::from_millis(400));
    let args = json!({"path": "a.db", "sql": "SELECT 1 FROM people"});
    let locked = call(brief, "sqlite.query", args.clone()).await.unwrap_err();
    assert_eq!(
        locked.to_string(),
        "error[unavailable]: sqlite.query: the database a.db is locked\nhint: another program or call is writing to it; try again later"
    );
    // Waiting ended before the time of the call did, which would be a timeout.
    assert!(locked.is_retryable());
    // When the lock goes in time, nobody notices.
    let mut waiting = tokio::spawn(call(
        writer(dir.path()),
        "sqlite.execute",
        json!({"path": "a.db", "sql": "DELETE FROM people"}),
    ));
    let early = tokio::time::timeout(Duration::from_millis(50), &mut waiting).await;
    assert!(early.is_err(), "it does not end while the database is locked");
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(waiting.await.unwrap().unwrap().get("rows_affected"), Some(&Value::Int(2)));
}

/// An endless statement, which only an interrupt ends.
const ENDLESS: &str =
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c";

#[tokio::test]
async fn an_endless_statement_leaves_no_thread_behind() {
    let dir = people().await;
    for _ in 0..6 {
        let brief =
            limited(reader(dir.path()), |limits| limits.timeout = Duration::from_millis(60));
        let text = problem(brief, "sqlite.query", json!({"path": "a.db", "sql": ENDLESS})).await;
        assert!(text.starts_with("error[timeout]"), "{text}");
    }
    // A caller that goes away.
    for _ in 0..6 {
        let args = json!({"path": "a.db", "sql": ENDLESS});
        let mut running = tokio::spawn(call(reader(dir.path()), "sqlite.query", args));
        let early = tokio::time::timeout(Duration::from_millis(20), &mut running).await;
        assert!(early.is_err(), "it never ends by itself");
        running.abort();
    }
    // There are four connections: if all were still busy, these would be refused.
    for _ in 0..8 {
        assert_eq!(query(dir.path(), "SELECT 1 one", json!([])).await, json!([{"one": 1}]));
    }
}

#[tokio::test]
async fn busy_connections_are_a_problem_that_passes() {
    let dir = people().await;
    let args = || json!({"path": "a.db", "sql": ENDLESS});
    let running: Vec<_> =
        (0..4).map(|_| tokio::spawn(call(reader(dir.path()), "sqlite.query", args()))).collect();
    // Until all four have begun, another one runs in their place, and times out.
    loop {
        let brief =
            limited(reader(dir.path()), |limits| limits.timeout = Duration::from_millis(200));
        let text = problem(brief, "sqlite.query", args()).await;
        if text.starts_with("error[timeout]") {
            continue;
        }
        assert!(
            text.starts_with(
                "error[unavailable]: sqlite.query: all 4 connections to a.db are busy"
            ),
            "{text}"
        );
        break;
    }
    for one in running {
        one.abort();
        assert!(one.await.unwrap_err().is_cancelled());
    }
    assert_eq!(query(dir.path(), "SELECT 1 one", json!([])).await, json!([{"one": 1}]));
}

#[tokio::test]
async fn results_are_counted_as_they_are_read() {
    let dir = people().await;
    let small = || limited(reader(dir.path()), |limits| limits.value = 100_000);
    let endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c";
    for sql in [endless, "SELECT x, randomblob(90000) b FROM (SELECT 1 x UNION ALL SELECT 2)"] {
        let text = refused(small(), sql, json!([])).await;
        assert!(
            text.starts_with("error[limit]: sqlite.query: the result is larger than"),
            "{sql}: {text}"
        );
    }
    for sql in
        ["SELECT zeroblob(1000000)", "SELECT randomblob(2000000000)", "SELECT hex(zeroblob(90000))"]
    {
        let text = refused(small(), sql, json!([])).await;
        assert!(text.starts_with("error[limit]"), "{sql}: {text}");
    }
}

#[tokio::test]
async fn nothing_passes_from_one_call_to_the_next() {
    let dir = people().await;
    let other = people().await;
    // A constraint fails halfway: nothing of the statement stays.
    let text =
        execute(dir.path(), "INSERT INTO people (id, name) VALUES (9, 'x'), (1, 'y')", json!([]))
            .await
            .unwrap_err()
            .to_string();
    assert_eq!(text, "error[bad_request]: sqlite.execute: UNIQUE constraint failed: people.id");
    assert_eq!(
        query(dir.path(), "SELECT count(*) n FROM people", json!([])).await,
        json!([{"n": 2}])
    );
    // A result that is too large undoes the change as well.
    let small = limited(writer(other.path()), |limits| limits.value = 2000);
    let sql = "INSERT INTO people (name) SELECT hex(zeroblob(500)) FROM people RETURNING name";
    let text = refused(small, sql, json!([])).await;
    assert!(text.starts_with("error[limit]"), "{text}");
    assert_eq!(
        query(other.path(), "SELECT count(*) n FROM people", json!([])).await,
        json!([{"n": 2}])
    );
}
