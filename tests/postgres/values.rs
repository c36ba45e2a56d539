//! Values on their way to the server and back.

use serde_json::{Value, json};

use super::World;

#[test]
#[ignore = "needs tests/postgres/install.sh: run ./test"]
fn types_come_back_as_they_went_in() {
    let world = &World::with_people();
    let same = [
        ("bool", json!(true)),
        ("int2", json!(-32768)),
        ("int4", json!(2147483647)),
        ("int8", json!(9223372036854775807_i64)),
        ("int8", json!(-9007199254740993_i64)),
        ("oid", json!(4294967295_u32)),
        ("float4", json!(0.1)),
        ("float8", json!(0.1)),
        ("float8", json!(1e300)),
        ("numeric", json!(12345)),
        ("numeric", json!(0.1)),
        ("numeric", json!("123456789012345678901234567890.123")),
        ("numeric", json!("-0.10000000000000000000000001")),
        ("text", json!("it's \u{1F600} \\ \" $1; --")),
        ("text", json!("")),
        ("varchar", json!("x")),
        ("name", json!("x")),
        ("mood", json!("very happy")),
        ("age", json!(7)),
        ("bytea", json!("plain text")),
        ("uuid", json!("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11")),
        ("date", json!("2024-02-29")),
        ("date", json!("infinity")),
        ("time", json!("23:59:59.999999")),
        ("timetz", json!("12:00:00-05:30")),
        ("timestamp", json!("2024-02-29T12:34:56.789")),
        ("timestamp", json!("1899-12-31T23:59:59")),
        ("timestamp", json!("-infinity")),
        ("timestamptz", json!("2024-02-29T12:34:56Z")),
        ("interval", json!("P1Y2M3DT4H5M6.5S")),
        ("interval", json!("P-1M2DT-0.5S")),
        ("interval", json!("PT0S")),
        ("json", json!({"a": [1, null, {"b": "x"}], "n": 1.5})),
        ("jsonb", json!([1, "two", null])),
        ("jsonb", json!(true)),
        ("inet", json!("192.168.0.1")),
        ("inet", json!("10.0.0.0/8")),
        ("inet", json!("::1")),
        ("cidr", json!("10.0.0.0/8")),
        ("int4[]", json!([1, null, 3])),
        ("int4[]", json!([[1, 2], [3, 4]])),
        ("text[]", json!(["a,b", "\"q\"", "back\\slash", "NULL", null, "", "{}"])),
        ("numeric[]", json!([1, 2.5])),
        ("mood[]", json!(["sad", "very happy"])),
        ("jsonb[]", json!([{"a": 1}, [1, 2]])),
        ("date[]", json!(["2024-01-01"])),
        ("bytea[]", json!(["hi", "\\x"])),
        ("int4[]", json!([])),
    ];
    for (kind, value) in same {
        // Objects would be a list's only entry spread over rows otherwise.
        let rows = world.query(
            &format!("SELECT $1::{kind} AS v, pg_typeof($1::{kind})::text AS t"),
            json!([value]),
        );
        assert_eq!(rows[0]["v"], value, "{kind}");
        let null = world.query(&format!("SELECT $1::{kind} AS v"), json!([null]));
        assert!(null[0].get("v").is_none_or(Value::is_null), "{kind}: {null}");
    }
    for (kind, given, expected) in [
        ("int4", json!("12"), json!(12)),
        ("int8", json!(5.0), json!(5)),
        ("numeric", json!("19.90"), json!(19.9)),
        ("numeric(10,2)", json!(5), json!(5)),
        ("float8", json!("1e3"), json!(1000)),
        ("bool", json!("yes"), json!(true)),
        ("char(4)", json!("ab"), json!("ab  ")),
        ("timestamptz", json!("2024-02-29 12:34:56+02"), json!("2024-02-29T10:34:56Z")),
        ("date", json!("0044-03-15 BC"), json!("-0043-03-15")),
        ("interval", json!("1 day 02:03"), json!("P1DT2H3M")),
        ("jsonb", json!("{\"a\": 1}"), json!({"a": 1})),
        ("int4[]", json!("{1,2}"), json!([1, 2])),
        ("int4[]", json!({}), json!([])),
        (
            "uuid",
            json!("A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"),
            json!("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ),
    ] {
        let rows = world.query(&format!("SELECT $1::{kind} AS v"), json!([given]));
        assert_eq!(rows[0]["v"], expected, "{kind} {given}");
    }
    let rows = world.query("SELECT '\\x00ff'::bytea = decode($1, 'hex') AS same, int4 '7' AS a, 'x' AS b, \"char\" 'c' AS c, NULL AS d", json!(["00ff"]));
    assert_eq!(rows[0]["same"], json!(true));
    assert_eq!(rows[0]["c"], json!("c"));
}

#[test]
#[ignore = "needs tests/postgres/install.sh: run ./test"]
fn types_that_are_not_known_say_how_to_cast() {
    let world = &World::with_people();
    assert_eq!(
        world.refused("reader", "SELECT point '(1,2)' AS place", json!([])),
        "bad_request: query: the column place has the type point, which is not known here"
    );
    for value in [
        "int4range(1,2)",
        "bit '1'",
        "ROW(1,2)",
        "money '1'",
        "to_tsvector('x')",
        "'people'::regclass",
    ] {
        let refused = world.refused("reader", &format!("SELECT {value} AS v"), json!([]));
        assert!(refused.contains("which is not known here"), "{value}: {refused}");
        assert!(
            world.query(&format!("SELECT ({value})::text AS v"), json!([]))[0]["v"].is_string()
        );
    }
    assert_eq!(
        world.query("SELECT $1::int4range::text AS v", json!(["[1,5)"])),
        json!([{"v": "[1,5)"}])
    );
}

#[test]
#[ignore = "needs tests/postgres/install.sh: run ./test"]
fn parameters_that_do_not_fit_are_named() {
    let world = &World::with_people();
    for (sql, params, expected) in [
        (
            "SELECT $1::int4, $2::int4",
            json!([1, "abc"]),
            "parameter 2 is a string, but the statement needs int4",
        ),
        (
            "SELECT $1::int4",
            json!([1.5]),
            "parameter 1 is a number with a fraction, but the statement needs int4",
        ),
        (
            "SELECT $1::int4",
            json!([true]),
            "parameter 1 is a boolean, but the statement needs int4",
        ),
        ("SELECT $1::text", json!([1]), "parameter 1 is an integer, but the statement needs text"),
        ("SELECT $1::bool", json!([1]), "parameter 1 is an integer, but the statement needs bool"),
        (
            "SELECT $1::uuid",
            json!([{"a": 1}]),
            "parameter 1 is an object, but the statement needs uuid",
        ),
        (
            "SELECT $1::int4[]",
            json!([["x"]]),
            "parameter 1 is a string, but the statement needs int4",
        ),
        (
            "SELECT $1::text",
            json!([["x"]]),
            "parameter 1 is an array, but the statement needs text",
        ),
        (
            "SELECT $1::uuid",
            json!(["nope"]),
            "parameter 1: invalid input syntax for type uuid: \"nope\"",
        ),
        (
            "SELECT $1::int4, $2::date",
            json!([1, "2024-13-01"]),
            "parameter 2: date/time field value out of range: \"2024-13-01\"",
        ),
        (
            "SELECT $1::int2",
            json!([40000]),
            "parameter 1: value \"40000\" is out of range for type smallint",
        ),
        (
            "SELECT $1::mood",
            json!(["angry"]),
            "parameter 1: invalid input value for enum mood: \"angry\"",
        ),
        ("SELECT $1::int4", json!([]), "the statement has 1 parameter, but 0 were given"),
        ("SELECT 1 AS a, 2 AS a", json!([]), "two columns of the result are named \"a\""),
        ("SELEC 1", json!([]), "syntax error at or near \"SELEC\" (at character 1)"),
        ("SELECT * FROM nobody", json!([]), "relation \"nobody\" does not exist (at character 15)"),
        ("SELECT 1; DELETE FROM people", json!([]), "the SQL has more than one statement"),
        (" -- nothing", json!([]), "the SQL has no statement"),
        ("SELECT 1/0", json!([]), "division by zero"),
    ] {
        assert_eq!(
            world.refused("reader", sql, params),
            format!("bad_request: query: {expected}"),
            "{sql}"
        );
    }
    let twice =
        world.call("writer", json!({"change": "INSERT INTO people (id, name) VALUES (1, 'x')"}));
    assert_eq!(
        twice.unwrap_err(),
        "bad_request: execute: duplicate key value violates unique constraint \"people_pkey\": Key (id)=(1) already exists."
    );
}

#[test]
#[ignore = "needs tests/postgres/install.sh: run ./test"]
fn parameters_are_data() {
    let world = &World::with_people();
    for attack in [
        "'; DROP TABLE people; --",
        "Ann' OR '1'='1",
        "Ann'); DELETE FROM people; --",
        "$1",
        "\\'; SELECT 1",
        "%",
    ] {
        assert_eq!(
            world.query("SELECT id FROM people WHERE name = $1", json!([attack])),
            json!([]),
            "{attack}"
        );
        assert_eq!(
            world.query("SELECT $1::text AS v, $2::text[] AS a", json!([attack, [attack]])),
            json!([{"v": attack, "a": [attack]}])
        );
        assert_eq!(
            world.query("SELECT $1::jsonb AS v", json!([{"k": attack}])),
            json!([{"v": {"k": attack}}])
        );
    }
    let zero = world.refused("reader", "SELECT $1::text", json!(["a\u{0}b"]));
    assert!(zero.starts_with("bad_request: query: parameter 1: invalid byte sequence"), "{zero}");
    assert_eq!(world.query("SELECT count(*) AS n FROM people", json!([])), json!([{"n": 2}]));
}
