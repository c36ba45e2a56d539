use std::path::Path;

use moonlark_core::Value;
use serde_json::json;

use crate::test_calls::{call, call_value, limited, problem, scope};

async fn decode(text: &str) -> String {
    match call(scope(Path::new("."), &[]), "toml.decode", json!({"text": text})).await {
        Ok(value) => value.to_json_lossy().to_string(),
        Err(problem) => problem.message,
    }
}

async fn encode(value: serde_json::Value) -> String {
    match call(scope(Path::new("."), &[]), "toml.encode", json!({"value": value})).await {
        Ok(value) => value.as_str().unwrap().to_owned(),
        Err(problem) => problem.message,
    }
}

#[tokio::test]
async fn every_kind_of_value_is_decoded() {
    for (text, expected) in [
        ("", "{}"),
        ("\u{feff}a=1", r#"{"a":1}"#),
        ("z=1\na=2\n[m]\nb.c=0x1f\n", r#"{"z":1,"a":2,"m":{"b":{"c":31}}}"#),
        ("a=9223372036854775807", r#"{"a":9223372036854775807}"#),
        ("a=-9_223_372_036_854_775_808", r#"{"a":-9223372036854775808}"#),
        ("a=1979-05-27T07:32:00-08:00", r#"{"a":"1979-05-27T07:32:00-08:00"}"#),
        ("a=07:32:00.5", r#"{"a":"07:32:00.5"}"#),
        ("[[a]]\nx=1\n[[a]]\n", r#"{"a":[{"x":1},{}]}"#),
        ("a='''x\ny'''", r#"{"a":"x\ny"}"#),
        ("a=1.5e3", r#"{"a":1500.0}"#),
    ] {
        assert_eq!(decode(text).await, expected, "{text}");
    }
    let special = json!({"text": "a=[inf,-inf,nan]"});
    let value = call(scope(Path::new("."), &[]), "toml.decode", special).await.unwrap();
    let Some(Value::Array(floats)) = value.get("a") else { panic!("{value:?}") };
    assert_eq!(format!("{floats:?}"), "[Float(inf), Float(-inf), Float(NaN)]");
}

#[tokio::test]
async fn problems_say_where() {
    for (text, expected) in [
        (
            "a=1\nb=9223372036854775808",
            "toml.decode: invalid TOML: the integer 9223372036854775808 does not fit 64 bits, at line 2, column 3",
        ),
        ("a=1e999", "toml.decode: invalid TOML: the number is out of range, at line 1, column 3"),
        ("ä=1", "at line 1, column 1"),
        ("\"ä\"=1 x", "at line 1, column 5"),
        ("a=1\na=2", "toml.decode: invalid TOML: duplicate key, at line 2, column 1"),
    ] {
        let found = decode(text).await;
        assert!(found.ends_with(expected), "{text}: {found}");
    }
}

#[tokio::test]
async fn hostile_documents_are_problems() {
    for text in [
        format!("a={}", "[".repeat(1_000_000)),
        format!("{}=1", "a.".repeat(1_000_000)),
        format!("[{}a]\n", "a.".repeat(100_000)),
        "a={a=".repeat(100_000),
        format!("a={}", "1".repeat(1_000_000)),
        "a".repeat(5 * 1024 * 1024),
        "[[a]]\n".repeat(600_000) + "x",
        (0..200_000).map(|key| format!("a.k{key}=1\n")).collect::<String>() + "x",
    ] {
        let found = decode(&text).await;
        assert!(found.starts_with("toml.decode: "), "{}", &found[..found.len().min(200)]);
        assert!(found.len() < 1000, "{}", found.len());
    }
    let key = |count: usize| vec!["a"; count].join(".");
    let deep = format!("[{}]\n{}={}1{}", key(70), key(70), "[".repeat(60), "]".repeat(60));
    assert_eq!(
        decode(&deep).await,
        "toml.decode: the TOML is nested deeper than 128 levels, at line 2, column 117"
    );
}

#[tokio::test]
async fn results_stay_within_the_limit() {
    let small = || limited(scope(Path::new("."), &[]), |limits| limits.value = 10_000);
    let many = json!({"text": format!("a=[{}]", "1,".repeat(1000))});
    assert_eq!(
        problem(small(), "toml.decode", many).await,
        "error[limit]: toml.decode: the result is larger than 10000 bytes\nhint: work on less at a time, or raise limits.value"
    );
    let tables: serde_json::Map<_, _> =
        (0..100).map(|index| (index.to_string(), json!({}))).collect();
    let headers = json!({"value": {"k".repeat(1000): tables}});
    assert!(problem(small(), "toml.encode", headers).await.contains("larger than 10000 bytes"));
}

#[tokio::test]
async fn values_come_back_as_they_were() {
    for value in [
        json!({}),
        json!({"b": {"c": {"d": 1}}, "a": i64::MIN}),
        json!({"list": [{"a": 1}, {"b": [[1], []]}], "mixed": [1, "x", {"y": 2.5}]}),
        json!({"a b": "q\"\n\t\u{1}", "": "empty", "1.2": {"ä": true}, "x": {}}),
        json!({"f": 1.0, "g": 1e300}),
    ] {
        let text = encode(value.clone()).await;
        let back = decode(&text).await;
        let back: serde_json::Value = serde_json::from_str(&back).expect(&back);
        assert_eq!(back, value, "{text}");
    }
    assert_eq!(encode(json!([])).await, "");
    let list = (0..120).fold(json!([]), |inner, _| json!([inner]));
    assert!(encode(json!({"a": list})).await.starts_with("a = [["));
    let table = (0..120).fold(json!({}), |inner, _| json!({"a": inner}));
    assert!(encode(table).await.starts_with("[a.a.a"));
    assert_eq!(
        encode(json!({"a": {"b": null}})).await,
        "toml.encode: value.a.b is null, which TOML cannot hold"
    );
    let floats = Value::from_fields([("a", f64::INFINITY.into()), ("b", f64::NAN.into())]);
    let args = Value::from_fields([("value", floats)]);
    let text = call_value(scope(Path::new("."), &[]), "toml.encode", args).await.unwrap();
    assert_eq!(text, Value::from("a = inf\nb = nan\n"));
}
