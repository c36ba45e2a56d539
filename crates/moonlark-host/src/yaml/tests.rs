use std::path::Path;

use moonlark_core::Value;
use serde_json::json;

use crate::test_calls::{call, call_value, limited, problem, scope};

async fn decode(text: &str) -> String {
    match call(scope(Path::new("."), &[]), "yaml.decode", json!({"text": text})).await {
        Ok(value) => value.to_json_lossy().to_string(),
        Err(problem) => problem.to_string(),
    }
}

#[tokio::test]
async fn scalars_follow_yaml_1_2() {
    for (text, expected) in [
        ("", "null"),
        ("~", "null"),
        ("null", "null"),
        ("true", "true"),
        ("yes", r#""yes""#),
        ("off", r#""off""#),
        ("'true'", r#""true""#),
        ("0o17", "15"),
        ("017", "17"),
        ("0x1F", "31"),
        ("1.5e3", "1500.0"),
        ("9223372036854775807", "9223372036854775807"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("2026-01-31", r#""2026-01-31""#),
        ("12:30:45", r#""12:30:45""#),
        ("|\n  a\n  b\n", r#""a\nb\n""#),
        (">\n  a\n  b\n", r#""a b\n""#),
        ("!custom x", r#""x""#),
        ("!custom 1", "1"),
        ("! 1", r#""1""#),
        ("!!str 1", r#""1""#),
        ("!!float 1", "1.0"),
        ("!!binary aGk=", r#""hi""#),
        ("1_000", r#""1_000""#),
        ("1.2.3", r#""1.2.3""#),
        ("nan", r#""nan""#),
        ("infinity", r#""infinity""#),
        (".5", "0.5"),
        ("1.", "1.0"),
        (".", r#"".""#),
        ("-", "[null]"),
        ("+1", "1"),
        ("0x", r#""0x""#),
        ("\u{feff}a: 1", r#"{"a":1}"#),
        ("a: 1\r\nb: 2\r\n", r#"{"a":1,"b":2}"#),
    ] {
        assert_eq!(decode(text).await, expected, "{text}");
    }
    let value =
        call(scope(Path::new("."), &[]), "yaml.decode", json!({"text": "[.inf, -.Inf, .nan]"}));
    assert_eq!(
        format!("{:?}", value.await.unwrap()),
        "Array([Float(inf), Float(-inf), Float(NaN)])"
    );
}

#[tokio::test]
async fn problems_say_what_and_where() {
    for (text, expected) in [
        (
            "a: 18446744073709551615",
            "the integer 18446744073709551615 does not fit 64 bits, at line 1, column 4",
        ),
        (
            "-99999999999999999999999",
            "the integer -99999999999999999999999 does not fit 64 bits, at line 1, column 1",
        ),
        ("- 1\n- 1e999", "the number 1e999 is out of range, at line 2, column 3"),
        ("a: *nope", "while parsing node, found unknown anchor, at line 1, column 4"),
        ("a: &x [*x]", "the alias stands for what it is itself a part of, at line 1, column 8"),
        ("a: 1\nb: [1, 2", "unclosed bracket '[', at line 2, column 4"),
        ("a: b: c", "mapping values are not allowed in this context, at line 1, column 5"),
        ("a: 1\n'a': 2", "the key \"a\" is there twice, at line 2, column 1"),
        ("<<: 1", "<< needs a table or a list of tables, at line 1, column 5"),
        ("!!int x", "\"x\" is no integer, at line 1, column 7"),
    ] {
        let expected = format!("error[bad_request]: yaml.decode: invalid YAML: {expected}");
        assert_eq!(decode(text).await, expected, "{text}");
    }
    assert_eq!(
        decode("? [1, 2]\n: x").await,
        "error[bad_request]: yaml.decode: invalid YAML: a key is a list or a table, at line 1, column 8\nhint: only text, numbers, booleans and null can be keys"
    );
    assert_eq!(
        decode("a: 1\n---\nb: 2").await,
        "error[bad_request]: yaml.decode: the text has 2 documents, not one\nhint: use yaml.decode_all"
    );
}

#[tokio::test]
async fn keys_are_the_text_they_are_written_as() {
    let text = "1: a\ntrue: b\nnull: c\n1.50: d\n~: e\n0x10: f\n16: g\n";
    let keys = r#"{"1":"a","true":"b","null":"c","1.50":"d","~":"e","0x10":"f","16":"g"}"#;
    assert_eq!(decode(text).await, keys);
    assert_eq!(decode("[&k key, {*k : 1}]").await, r#"["key",{"key":1}]"#);
}

#[tokio::test]
async fn merges_never_replace_what_a_table_says_itself() {
    let text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], x: 0}\nd: {<<: *b, <<: *a}\ne: {'<<': 1}\n";
    assert_eq!(
        decode(text).await,
        r#"{"a":{"x":1,"y":1},"b":{"y":2,"z":2},"c":{"x":0,"y":1,"z":2},"d":{"y":2,"z":2,"x":1},"e":{"<<":1}}"#
    );
}

#[tokio::test]
async fn values_come_back_as_they_were() {
    let words = [
        "",
        "1",
        "null",
        "~",
        "yes",
        "on",
        "x\ny\n",
        "  lead",
        "trail ",
        "a: b",
        "#x",
        "---",
        "...",
        "2026-01-31",
        "0o17",
        "<<",
        "=",
        "\u{0}\u{7f}\u{85}\u{2028}\u{feff}",
        "- a",
        "[",
        "{",
        "*a",
        "&a",
        "!a",
        "%a",
        "@a",
        "`a",
        "\"",
        "'",
        "\t",
        "a\tb",
        "\r\n",
        ".inf",
        ".nan",
        "1e3",
        "ä🌙",
        "\n",
        "\n\n a",
    ];
    let object: serde_json::Map<_, _> =
        words.iter().map(|word| (word.to_string(), json!(word))).collect();
    let long = "word ".repeat(100);
    let deep = (0..126).fold(json!(1), |inner, _| json!([inner]));
    let tables = (0..125).fold(json!({}), |inner, _| json!({"a": inner}));
    for value in [
        json!(object),
        json!(words.to_vec()),
        json!([[], {}, [[]], [{}], {"a": []}, [[1, [2]], {"a": 1, "b": [3]}]]),
        json!(long),
        json!({"a": long, "b": format!("{long}\n{long}\n")}),
        deep,
        tables,
        json!([i64::MAX, i64::MIN, 1.0, -0.5, 1e300, 5e-324, true, null]),
    ] {
        let text = call(scope(Path::new("."), &[]), "yaml.encode", json!({"value": value})).await;
        let args = json!({"text": text.unwrap().to_json_lossy()});
        let back = call(scope(Path::new("."), &[]), "yaml.decode", args.clone()).await;
        assert_eq!(back.unwrap().to_json_lossy(), value, "{args}");
    }
    let floats = vec![Value::Float(f64::INFINITY), f64::NEG_INFINITY.into(), f64::NAN.into()];
    let args = Value::from_fields([("value", floats.into())]);
    let text = call_value(scope(Path::new("."), &[]), "yaml.encode", args).await.unwrap();
    assert_eq!(text, Value::from("- .inf\n- -.inf\n- .nan\n"));
    let args =
        Value::from_fields([("value", Value::from_fields([("a", Value::Bytes(vec![255]))]))]);
    let problem = call_value(scope(Path::new("."), &[]), "yaml.encode", args).await.unwrap_err();
    assert_eq!(problem.message, "yaml.encode: value.a is not UTF-8 text, which YAML cannot hold");
}

#[tokio::test]
async fn hostile_documents_are_problems() {
    let laughs: String = (1..=40)
        .map(|level| format!("- &a{level} [{}]\n", format!("*a{},", level - 1).repeat(10)))
        .collect();
    let words: String = (0..100).map(|_| "- *a\n").collect();
    let shifts = (0..20)
        .map(|level| format!("- &b{level} {}*b{}{}\n", "[".repeat(100), level - 1, "]".repeat(100)))
        .skip(1)
        .collect::<String>();
    for (name, text) in [
        ("laughs", format!("- &a0 lol\n{laughs}")),
        ("one long word", format!("- &a {}\n{words}", "x".repeat(100_000))),
        ("depth by alias", format!("- &b0 1\n{shifts}")),
        ("brackets", "[".repeat(1_000_000)),
        ("braces", "{a: ".repeat(300_000)),
        ("dashes", "- ".repeat(1_000_000)),
        ("questions", "? ".repeat(1_000_000)),
        ("steps", (0..2_000).map(|depth| " ".repeat(depth) + "a:\n").collect()),
        ("anchors", "&a ".repeat(300_000)),
        ("tags", "!a ".repeat(300_000)),
        ("a long key", format!("{}: 1", "a".repeat(1_000_000))),
        ("open quote", format!("\"{}", "a\n".repeat(1_000_000))),
        (
            "merges",
            format!(
                "a: &a {{{}}}\nb:\n{}",
                (0..1000).map(|key| format!("k{key}: 1,")).collect::<String>(),
                (0..3000)
                    .map(|key| format!(" - {{k: {key}, <<: [{}]}}\n", "*a,".repeat(20)))
                    .collect::<String>()
            ),
        ),
        ("documents", "---\n".repeat(200_000)),
        ("keys", "{a,".repeat(100_000)),
        ("entries", format!("[{}]", "a,".repeat(200_000))),
        ("colons", ":".repeat(3_000_000)),
        ("directives", "%YAML 1.2\n".repeat(300_000)),
    ] {
        let small = limited(scope(Path::new("."), &[]), |limits| limits.value = 3_000_000);
        let found = problem(small, "yaml.decode", json!({"text": text})).await;
        let shown: String = found.chars().take(300).collect();
        assert!(found.len() < 300, "{name}: {shown}");
    }
}

#[tokio::test]
async fn indentation_stops_at_the_limit() {
    let wide = (0..50).fold(json!([1]), |inner, _| json!([{"a": inner}, 1]));
    let small = limited(scope(Path::new("."), &[]), |limits| limits.value = 10_000);
    assert_eq!(
        problem(small, "yaml.encode", json!({"value": vec![wide; 3]})).await,
        "error[limit]: yaml.encode: the result is larger than 10000 bytes\nhint: work on less at a time, or raise limits.value"
    );
}

#[tokio::test]
async fn long_texts_and_keys_come_back_as_they_were() {
    let long = "yes: no # \u{e9}\n\t\"".repeat(500);
    let value = json!({"short": "plain", "long": long, (long.as_str()): [long.as_str(), 1]});
    let text = call(scope(Path::new("."), &[]), "yaml.encode", json!({"value": value})).await;
    let text = text.unwrap();
    assert!(text.as_str().unwrap().starts_with("short: plain\n"));
    assert_eq!(decode(text.as_str().unwrap()).await, value.to_string());
}
