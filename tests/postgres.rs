//! The `postgres` module against a real server, through the real binary.
//!
//! Each test has a server of its own, which takes about a second to make.

#[path = "postgres/server.rs"]
pub mod server;
#[path = "postgres/values.rs"]
mod values;

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{PATIENCE, Project, Server, moonlark};
use server::{PASSWORD, Postgres};

/// Calls whatever function it is asked to, with the grants of its name, and
/// says what a script sees when that fails.
const SCRIPT: &str = r#"
tool = { name = "NAME", description = "", parameters = { type = "object" } }
local function run(p)
    if p.list then return postgres.list_tables(p.conn) end
    if p.describe then return postgres.describe_table(p.conn, p.describe) end
    if p.change then return postgres.execute(p.conn, p.change, p.params) end
    return postgres.query(p.conn, p.sql, p.params)
end
function tool.execute(p)
    if p.raise then return run(p) end
    local ok, result = pcall(run, p)
    if ok then return { rows = result } end
    return { problem = { code = result.code, message = result.message, retryable = result.retryable } }
end
"#;

struct World {
    postgres: Postgres,
    project: Project,
    moonlark: Server,
}

fn project(postgres: &Postgres) -> Project {
    let port = postgres.port;
    let net = format!(
        "\"net:127.0.0.1:{port}\", \"net:localhost:{port}\", \"net:{}\"",
        postgres.socket_dir()
    );
    let mut config = String::new();
    let mut files = Vec::new();
    for (name, extra) in [
        ("reader", format!("allow = [{net}]\n")),
        ("writer", format!("allow = [{net}, \"sql:write\"]\n")),
        ("brief", format!("timeout = 1\nallow = [{net}]\n")),
    ] {
        config.push_str(&format!("[tools.script.{name}]\npath = \"tools/{name}.luau\"\n{extra}\n"));
        files.push((format!("tools/{name}.luau"), SCRIPT.replace("NAME", name)));
    }
    config.push_str("[limits]\nvalue = \"2MB\"\n");
    files.push(("moonlark.toml".to_owned(), config));
    let files: Vec<_> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    Project::new(&files)
}

/// Types and tables that the tests are about.
const SCHEMA: [&str; 6] = [
    "CREATE TYPE mood AS ENUM ('sad', 'ok', 'very happy')",
    "CREATE DOMAIN age AS int CHECK (VALUE >= 0)",
    "CREATE TABLE people (id bigserial PRIMARY KEY, name text NOT NULL, born date DEFAULT '2000-01-01', mood mood, age age)",
    "CREATE VIEW names AS SELECT name FROM people",
    "CREATE SCHEMA other",
    "CREATE TABLE other.\"Odd Name\" (a int, b int, PRIMARY KEY (b, a))",
];

impl World {
    /// A server of its own with nothing in it, and Moonlark in front of it.
    fn new() -> World {
        let postgres = Postgres::start();
        let project = project(&postgres);
        let moonlark = project.serve();
        World { postgres, project, moonlark }
    }

    /// The same with two people in its tables.
    fn with_people() -> World {
        let world = World::new();
        for sql in SCHEMA {
            world.change(sql);
        }
        world.change("INSERT INTO people (name) VALUES ('Ann'), ('Bob')");
        world
    }

    fn conn(&self) -> String {
        format!("postgres://postgres:{PASSWORD}@127.0.0.1:{}/postgres", self.postgres.port)
    }

    /// What `tool` gives, or `code: message` of its Problem.
    fn call(&self, tool: &str, mut args: Value) -> Result<Value, String> {
        if args["conn"].is_null() {
            args["conn"] = json!(self.conn());
        }
        outcome(&self.moonlark.post(tool, &args).1)
    }

    fn query(&self, sql: &str, params: Value) -> Value {
        self.call("reader", json!({"sql": sql, "params": params})).unwrap()
    }

    fn refused(&self, tool: &str, sql: &str, params: Value) -> String {
        self.call(tool, json!({"sql": sql, "params": params})).expect_err(sql)
    }

    fn change(&self, sql: &str) -> Value {
        self.call("writer", json!({"change": sql})).unwrap()
    }

    /// How many other sessions run a statement with this text in it.
    fn running(&self, text: &str) -> i64 {
        let sql = "SELECT count(*) AS n FROM pg_stat_activity
            WHERE state <> 'idle' AND pid <> pg_backend_pid() AND position($1 IN query) > 0";
        self.query(sql, json!([text]))[0]["n"].as_i64().unwrap()
    }

    fn wait_until_running(&self, text: &str, expected: i64) {
        let started = Instant::now();
        while self.running(text) != expected {
            assert!(
                started.elapsed() < PATIENCE,
                "{text}: {} run, not {expected}",
                self.running(text)
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// What a call gave, or `code: message` of its Problem: one that the script
/// caught, or one that nothing catches.
fn outcome(answer: &Value) -> Result<Value, String> {
    let problem = match &answer["result"] {
        Value::Object(result) => match result.get("rows") {
            Some(rows) => return Ok(rows.clone()),
            None => &result["problem"],
        },
        _ => &answer["error"],
    };
    let message = problem["message"].as_str().unwrap_or_default();
    let message = message.split_once("postgres.").map_or(message, |(_, after)| after);
    Err(format!("{}: {message}", problem["code"].as_str().unwrap_or_default()))
}

#[test]
#[ignore = "needs tests/postgres/install.sh: run ./test"]
fn tables_are_made_listed_and_described() {
    let world = &World::new();
    let nothing = json!({"rows_affected": 0});
    for sql in SCHEMA {
        assert_eq!(world.change(sql), nothing, "{sql}");
    }
    let insert = "INSERT INTO people (name) VALUES ($1), ($2)";
    let inserted = world.call("writer", json!({"change": insert, "params": ["Ann", "Bob"]}));
    assert_eq!(inserted, Ok(json!({"rows_affected": 2})));
    let returned = world.call("writer", json!({"sql": "UPDATE people SET mood = $1 WHERE name = $2 RETURNING id, mood", "params": ["ok", "Bob"]}));
    assert_eq!(returned, Ok(json!([{"id": 2, "mood": "ok"}])));
    assert_eq!(
        world.call("reader", json!({"list": true})),
        Ok(json!(["names", "other.Odd Name", "people"]))
    );
    let column = |name: &str, kind: &str, nullable: bool, default: Value, key: bool| json!({"name": name, "type": kind, "nullable": nullable, "default": default, "primary_key": key});
    let described = world.call("reader", json!({"describe": "people"})).unwrap();
    assert_eq!(
        described,
        json!([
            column("id", "bigint", false, json!("nextval('people_id_seq'::regclass)"), true),
            column("name", "text", false, Value::Null, false),
            column("born", "date", true, json!("'2000-01-01'::date"), false),
            column("mood", "mood", true, Value::Null, false),
            column("age", "age", true, Value::Null, false),
        ])
    );
    let odd = world.call("reader", json!({"describe": "other.Odd Name"})).unwrap();
    assert_eq!(
        odd,
        json!([
            column("a", "integer", false, Value::Null, true),
            column("b", "integer", false, Value::Null, true)
        ])
    );
    for name in ["nobody", "Odd Name", "people'; DROP TABLE people; --"] {
        let refused = world.call("reader", json!({"describe": name})).unwrap_err();
        assert_eq!(refused, format!("not_found: describe_table: there is no table {name}"));
    }
}

#[test]
#[ignore = "needs tests/postgres/install.sh: run ./test"]
fn reading_cannot_be_escaped() {
    let world = &World::with_people();
    world.change("CREATE FUNCTION sneaky() RETURNS int LANGUAGE plpgsql AS 'BEGIN DELETE FROM people; RETURN 1; END'");
    world.change("CREATE FUNCTION unlock() RETURNS int LANGUAGE plpgsql AS 'BEGIN PERFORM set_config(''transaction_read_only'', ''off'', true); DELETE FROM people; RETURN 1; END'");
    world.change("CREATE FUNCTION unlocked() RETURNS int LANGUAGE plpgsql SET transaction_read_only = off AS 'BEGIN DELETE FROM people; RETURN 1; END'");
    world.change("CREATE FUNCTION nested() RETURNS int LANGUAGE plpgsql AS 'BEGIN BEGIN SET LOCAL transaction_read_only = off; DELETE FROM people; EXCEPTION WHEN OTHERS THEN DELETE FROM people; END; RETURN 1; END'");
    world.change("CREATE SEQUENCE counter");
    for sql in [
        "DELETE FROM people",
        "INSERT INTO people (name) VALUES ('x')",
        "WITH gone AS (DELETE FROM people RETURNING id) SELECT * FROM gone",
        "EXPLAIN ANALYZE DELETE FROM people",
        "SELECT * FROM people FOR UPDATE",
        "SELECT sneaky()",
        "SELECT unlock()",
        "SELECT unlocked()",
        "SELECT nested()",
        "SELECT set_config('transaction_read_only', 'off', false)",
        "SELECT set_config('transaction_read_only', 'off', true), sneaky()",
        "SELECT nextval('counter')",
        "SELECT 1 AS a INTO made",
        "DO $$ BEGIN SET TRANSACTION READ WRITE; DELETE FROM people; END $$",
        "DO $$ BEGIN COMMIT; DELETE FROM people; END $$",
        "CALL nothing()",
        "CREATE TEMP TABLE t (x int)",
        "TRUNCATE people",
        "DROP TABLE people",
        "/* SELECT */ DELETE FROM people",
        "SET TRANSACTION READ WRITE",
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
        "SET default_transaction_read_only = off",
        "BEGIN READ WRITE",
        "COMMIT",
        "COMMIT; DELETE FROM people",
        "ROLLBACK; DELETE FROM people; BEGIN",
        "SELECT 1; COMMIT; DELETE FROM people",
        "PREPARE p AS DELETE FROM people",
        "COPY people TO '/tmp/people'",
        "COPY (SELECT 1) TO PROGRAM 'true'",
        "COPY people TO STDOUT",
    ] {
        let refused = world.refused("reader", sql, json!([]));
        assert!(!refused.starts_with("internal"), "{sql}: {refused}");
        let execute = world.call("reader", json!({"change": sql})).unwrap_err();
        assert!(
            execute.starts_with("denied: ") && execute.contains("may not change databases"),
            "{sql}: {execute}"
        );
    }
    // What a server lets a reader do is undone.
    world.query("SELECT lo_create(0) > 0 AS made", json!([]));
    let left = world.query("SELECT count(*) AS n FROM pg_largeobject_metadata", json!([]));
    assert_eq!(left, json!([{"n": 0}]));
    // What was allowed by itself must not have opened the door for later.
    world.query("SELECT set_config('default_transaction_read_only', 'off', false)", json!([]));
    assert_eq!(
        world.refused("reader", "SELECT sneaky()", json!([])),
        "denied: query may not change databases"
    );
    let (_, answer) = world
        .moonlark
        .post("reader", &json!({"conn": world.conn(), "sql": "DELETE FROM people", "raise": true}));
    assert_eq!(
        answer["error"]["hint"],
        json!("add \"sql:write\" to allow for tools.script.reader in moonlark.toml")
    );
    assert_eq!(world.query("SELECT count(*) AS n FROM people", json!([])), json!([{"n": 2}]));
    assert_eq!(
        world.query("SELECT to_regclass('made') IS NULL AS gone", json!([])),
        json!([{"gone": true}])
    );
}

#[test]
#[ignore = "needs tests/postgres/install.sh: run ./test"]
fn some_statements_are_never_possible() {
    let world = &World::with_people();
    for sql in [
        "BEGIN",
        "COMMIT",
        "SET ROLE nobody",
        "LISTEN x",
        "PREPARE p AS SELECT 1",
        "COPY people TO STDOUT",
        "DISCARD ALL",
    ] {
        let refused = world.refused("writer", sql, json!([]));
        assert!(
            refused.starts_with("denied: ")
                && refused.contains("is not possible: each call is one statement"),
            "{sql}: {refused}"
        );
    }
}

#[test]
#[ignore = "needs tests/postgres/install.sh: run ./test"]
fn nothing_passes_from_one_call_to_the_next() {
    let world = &World::with_people();
    // Each of these would be seen by a later call on the same connection.
    world.query("SELECT set_config('search_path', 'other', false)", json!([]));
    world.query("SELECT set_config('statement_timeout', '1', false)", json!([]));
    world.call("writer", json!({"sql": "SELECT set_config('role', 'pg_monitor', false)"})).unwrap();
    world.query("SELECT pg_advisory_lock(1)", json!([]));
    world.call("writer", json!({"change": "CREATE TEMP TABLE left_over (x int)"})).unwrap();
    assert_eq!(
        world.query(
            "SELECT current_setting('search_path') AS path, current_user::text AS me, to_regclass('left_over') IS NULL AS gone,
                (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory') AS locks",
            json!([])
        ),
        json!([{"path": "\"$user\", public", "me": "postgres", "gone": true, "locks": 0}])
    );
    // A statement that fails leaves nothing, and a connection that works.
    world
        .call("writer", json!({"sql": "INSERT INTO people (name) SELECT 'x' RETURNING 1/0"}))
        .unwrap_err();
    assert_eq!(world.query("SELECT count(*) AS n FROM people", json!([])), json!([{"n": 2}]));
}

#[test]
#[ignore = "needs tests/postgres/install.sh: run ./test"]
fn results_are_bounded() {
    let world = &World::with_people();
    for sql in [
        "SELECT repeat('x', 3000000) AS v",
        "SELECT repeat('x', 200000000) AS v",
        "SELECT generate_series(1, 100000000) AS n, repeat('x', 1000) AS v",
        "SELECT generate_series(1, 100000000) AS n",
        "SELECT array_agg(n) AS v FROM generate_series(1, 400000) n",
        "SELECT ('[' || repeat('0,', 500000) || '0]')::json AS v",
    ] {
        let refused = world.refused("reader", sql, json!([]));
        assert!(refused.starts_with("limit: "), "{sql}: {refused}");
    }
    world.wait_until_running("generate_series", 0);
    // What was too large to be answered was not done either.
    let sql = "INSERT INTO people (name) SELECT repeat('x', 1000) FROM generate_series(1, 5000) RETURNING name";
    let refused = world.refused("writer", sql, json!([]));
    assert!(refused.starts_with("limit: "), "{refused}");
    world.wait_until_running("INSERT INTO people", 0);
    assert_eq!(world.query("SELECT count(*) AS n FROM people", json!([])), json!([{"n": 2}]));
}

#[test]
#[ignore = "needs tests/postgres/install.sh: run ./test"]
fn a_deadline_stops_the_server() {
    let world = &World::with_people();
    let started = Instant::now();
    let refused = world.refused("brief", "SELECT pg_sleep(600)", json!([]));
    assert_eq!(refused, "timeout: tool 'brief' timed out after 1 second");
    assert!(started.elapsed() < Duration::from_secs(10));
    world.wait_until_running("pg_sleep(600)", 0);
    // Also when the server's own clock is turned off for it.
    let refused = world.refused(
        "brief",
        "SELECT set_config('statement_timeout', '0', true), pg_sleep(601)",
        json!([]),
    );
    assert!(refused.starts_with("timeout: "), "{refused}");
    world.wait_until_running("pg_sleep(601)", 0);
}

#[test]
#[ignore = "needs tests/postgres/install.sh: run ./test"]
fn a_caller_that_goes_away_stops_the_server() {
    let world = &World::with_people();
    let body = json!({"conn": world.conn(), "sql": "SELECT pg_sleep(602)"}).to_string();
    let mut caller = TcpStream::connect(&world.moonlark.address).unwrap();
    write!(
        caller,
        "POST /tools/reader HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        world.moonlark.address,
        body.len()
    )
    .unwrap();
    world.wait_until_running("pg_sleep(602)", 1);
    drop(caller);
    world.wait_until_running("pg_sleep(602)", 0);
}

#[test]
#[ignore = "needs tests/postgres/install.sh: run ./test"]
fn busy_connections_are_a_problem_that_passes() {
    let world = &World::with_people();
    // A string of its own has a pool of its own.
    let conn = format!("{}?application_name=crowd", world.conn());
    let ask = |tool: &str, sql: &str| world.call(tool, json!({"conn": conn, "sql": sql}));
    std::thread::scope(|scope| {
        let slow: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| ask("reader", "SELECT pg_sleep(3) IS NULL AS v")))
            .collect();
        world.wait_until_running("pg_sleep(3)", 8);
        let (_, answer) =
            world.moonlark.post("brief", &json!({"conn": conn, "sql": "SELECT 1 AS one"}));
        assert_eq!(
            outcome(&answer).unwrap_err(),
            format!(
                "unavailable: query: all 8 connections to 127.0.0.1:{} are busy",
                world.postgres.port
            )
        );
        assert_eq!(answer["result"]["problem"]["retryable"], json!(true));
        for one in slow {
            one.join().unwrap().unwrap();
        }
    });
    assert_eq!(ask("brief", "SELECT 1 AS one"), Ok(json!([{"one": 1}])));
    let count = "SELECT count(*) AS n FROM pg_stat_activity WHERE application_name = 'crowd'";
    assert!(world.query(count, json!([]))[0]["n"].as_i64().unwrap() <= 8);
}

#[test]
#[ignore = "needs tests/postgres/install.sh: run ./test"]
fn failed_logins_are_explained() {
    let world = &World::with_people();
    let port = world.postgres.port;
    for (conn, expected) in [
        (
            format!("postgres://postgres:wrong-password@127.0.0.1:{port}/postgres"),
            format!(
                "127.0.0.1:{port} does not let this user in: password authentication failed for user \"postgres\""
            ),
        ),
        (
            format!("postgres://postgres@127.0.0.1:{port}/postgres"),
            format!("127.0.0.1:{port}: password missing"),
        ),
        (
            format!("postgres://postgres:{PASSWORD}@127.0.0.1:{port}/nowhere"),
            format!("127.0.0.1:{port}: database \"nowhere\" does not exist"),
        ),
        (
            format!("postgres://postgres:{PASSWORD}@localhost:{port}/postgres?sslmode=require"),
            format!("localhost:{port} does not offer TLS, which the connection string requires"),
        ),
    ] {
        let refused = world.call("reader", json!({"conn": conn, "sql": "SELECT 1"})).unwrap_err();
        assert_eq!(refused, format!("unavailable: query: {expected}"));
    }
    // The other ways in: by socket, by words, by name.
    let dir = world.postgres.socket_dir();
    for conn in [
        format!("host={dir} port={port} user=postgres dbname=postgres"),
        format!("postgres://postgres@%2F{}:{port}/postgres", &dir[1..].replace('/', "%2F")),
        format!(
            "host=localhost port={port} user=postgres password='{PASSWORD}' dbname=postgres sslmode=disable"
        ),
    ] {
        let rows = world.call("reader", json!({"conn": conn, "sql": "SELECT 1 AS one"}));
        assert_eq!(rows, Ok(json!([{"one": 1}])), "{conn}");
    }
}

/// Not in results, problems or logs, whatever goes wrong.
#[test]
#[ignore = "needs tests/postgres/install.sh: run ./test"]
fn the_password_is_in_no_output() {
    let world = &World::with_people();
    let port = world.postgres.port;
    let other = TcpStream::connect(("127.0.0.1", port)).unwrap();
    drop(other);
    for (user, database, sql) in [
        ("postgres", "postgres", "SELECT 1 AS one"),
        ("postgres", "postgres", "SELECT nonsense"),
        ("postgres", "nowhere", "SELECT 1"),
        ("nobody", "postgres", "SELECT 1"),
    ] {
        for option in ["", "?sslmode=require", "?nonsense=1"] {
            let conn = format!("postgres://{user}:{PASSWORD}@127.0.0.1:{port}/{database}{option}");
            let args = json!({"conn": conn, "sql": sql}).to_string();
            let output = moonlark()
                .args(["call", "reader", "--args", &args])
                .env("MOONLARK_LOG", "trace")
                .current_dir(world.project.path("."))
                .output()
                .unwrap();
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text);
            assert!(!text.contains(PASSWORD), "{text}");
        }
    }
}

#[test]
#[ignore = "needs tests/postgres/install.sh: run ./test"]
fn a_restart_is_survived() {
    let world = &mut World::with_people();
    let one = json!({"sql": "SELECT 1 AS one"});
    world.call("reader", one.clone()).unwrap();
    world.postgres.stop();
    let port = world.postgres.port;
    assert_eq!(
        world.call("reader", one.clone()).unwrap_err(),
        format!("unavailable: query: cannot connect to 127.0.0.1:{port}: connection refused")
    );
    world.postgres.start_again();
    assert_eq!(world.call("reader", one.clone()), Ok(json!([{"one": 1}])));
    // Without anybody noticing that it was away.
    world.postgres.stop();
    world.postgres.start_again();
    assert_eq!(world.call("reader", one.clone()), Ok(json!([{"one": 1}])));
    // In the middle of a statement it is a Problem, once.
    let body = json!({"conn": world.conn(), "sql": "SELECT pg_sleep(603)"});
    let address = world.moonlark.address.clone();
    let waiting = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(&address).unwrap();
        let body = body.to_string();
        write!(stream, "POST /tools/reader HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        std::io::read_to_string(stream).unwrap()
    });
    world.wait_until_running("pg_sleep(603)", 1);
    world.postgres.stop();
    let answer = waiting.join().unwrap();
    assert!(
        answer.contains("\"unavailable\"")
            && answer.contains("terminating connection due to administrator command"),
        "{answer}"
    );
    world.postgres.start_again();
    assert_eq!(world.call("reader", one), Ok(json!([{"one": 1}])));
}

#[test]
#[ignore = "needs tests/postgres/install.sh: run ./test"]
fn tls_is_used_and_verified_as_asked() {
    let world = &mut World::with_people();
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    world.postgres.offer_tls(&made.cert.pem(), &made.signing_key.serialize_pem());
    world.postgres.stop();
    world.postgres.start_again();
    let port = world.postgres.port;
    let conn = |host: &str, mode: &str| {
        format!("postgres://postgres:{PASSWORD}@{host}:{port}/postgres?sslmode={mode}")
    };
    let ask = |world: &World, conn: &str| {
        let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        world.call("reader", json!({"conn": conn, "sql": sql}))
    };
    assert_eq!(ask(world, &conn("localhost", "disable")), Ok(json!([{"ssl": false}])));
    assert_eq!(ask(world, &conn("localhost", "prefer")), Ok(json!([{"ssl": true}])));
    for mode in ["require", "verify-full"] {
        let refused = ask(world, &conn("localhost", mode)).unwrap_err();
        assert!(refused.starts_with(&format!("unavailable: query: no secure connection to localhost:{port}: invalid peer certificate")), "{refused}");
    }
    // A deadline reaches the server through TLS as well.
    let sleep = json!({"conn": conn("localhost", "prefer"), "sql": "SELECT set_config('statement_timeout', '0', true), pg_sleep(604)"});
    assert!(world.call("brief", sleep).unwrap_err().starts_with("timeout: "));
    world.wait_until_running("pg_sleep(604)", 0);
    // With its authority installed, the certificate is good, for its own name.
    world.project.write("authority.pem", &made.cert.pem());
    let authority = world.project.path("authority.pem");
    world.moonlark =
        world.project.serve_with(&[], &[("SSL_CERT_FILE", authority.to_str().unwrap())]);
    assert_eq!(ask(world, &conn("localhost", "require")), Ok(json!([{"ssl": true}])));
    let refused = ask(world, &conn("127.0.0.1", "require")).unwrap_err();
    assert!(
        refused
            .starts_with(&format!("unavailable: query: no secure connection to 127.0.0.1:{port}")),
        "{refused}"
    );
}
