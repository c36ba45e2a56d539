use std::path::Path;

use moonlark_core::Value;
use serde_json::{Value as Json, json};

use crate::test_calls::{call, call_value, limited, problem, scope};

async fn run(function: &str, args: Json) -> String {
    match call(scope(Path::new("."), &[]), function, args).await {
        Ok(value) => value.to_json_lossy().to_string(),
        Err(problem) => problem.message,
    }
}

async fn lists(text: &str) -> String {
    run("csv.decode", json!({"text": text, "header": false})).await
}

async fn objects(text: &str) -> String {
    run("csv.decode", json!({"text": text})).await
}

async fn encode(rows: Json) -> String {
    match call(scope(Path::new("."), &[]), "csv.encode", json!({"rows": rows})).await {
        Ok(value) => value.as_str().unwrap().to_owned(),
        Err(problem) => problem.message,
    }
}

#[tokio::test]
async fn every_form_of_a_field_is_read() {
    for (text, expected) in [
        ("", "[]"),
        ("\n\r\n\r", "[]"),
        ("a", r#"[["a"]]"#),
        ("a,b\r\nc,d\r\n", r#"[["a","b"],["c","d"]]"#),
        ("a\rb\r", r#"[["a"],["b"]]"#),
        ("a,\n,b\n,\n", r#"[["a",""],["","b"],["",""]]"#),
        ("\"a\nb\",\"\"\"c\"\"\"\n", r#"[["a\nb","\"c\""]]"#),
        ("\"\"\n", r#"[[""]]"#),
        ("a \"b\" c,5\" nail\n", r#"[["a \"b\" c","5\" nail"]]"#),
        (" a , b \n", r#"[[" a "," b "]]"#),
        ("\u{feff}\"a\",ä\n", r#"[["a","ä"]]"#),
        ("a\n\n\nb,c,d\n", r#"[["a"],["b","c","d"]]"#),
    ] {
        assert_eq!(lists(text).await, expected, "{text:?}");
    }
    for bad in ["", "ab", "\"", "\n", "\r"] {
        let args = json!({"text": "a", "delimiter": bad});
        assert!(run("csv.decode", args).await.contains("expected one character"), "{bad:?}");
    }
    let args = json!({"text": "aäb\näc", "delimiter": "ä", "header": false});
    assert_eq!(run("csv.decode", args).await, r#"[["a","b"],["","c"]]"#);
}

#[tokio::test]
async fn what_is_wrong_has_a_place() {
    for (text, expected) in [
        ("a,a\n", "csv.decode: the header has two columns named \"a\""),
        ("a,b\n1,2,3\n", "csv.decode: line 2 has 3 fields, but the header has 2"),
        ("a,b\n\"x\r\n\ry\",1\n\n2\n", "csv.decode: line 6 has 1 field, but the header has 2"),
        ("a\nb,\"c", "csv.decode: the quote at line 2, column 3 is not closed"),
        ("a\n\"b\"c\n", "csv.decode: there is text after the closing quote, at line 2, column 4"),
    ] {
        assert_eq!(objects(text).await, expected, "{text:?}");
    }
    assert_eq!(objects("").await, "[]");
    assert_eq!(objects("a,b\n").await, "[]");
}

#[tokio::test]
async fn rows_come_back_as_they_were() {
    for rows in [
        json!([["a", "b"], ["", "\""], ["x,y", "line\nbreak"], ["\r", "\u{feff}"]]),
        json!([[""], ["x"], [""]]),
        json!([["\u{feff}first"]]),
    ] {
        let text = encode(rows.clone()).await;
        assert_eq!(lists(&text).await, rows.to_string(), "{text:?}");
    }
    let rows = json!([{"a": "1", "b,c": "\""}, {"a": "", "b,c": "x"}]);
    assert_eq!(objects(&encode(rows.clone()).await).await, rows.to_string());
}

#[tokio::test]
async fn rows_of_every_kind_are_written_or_refused() {
    for (rows, expected) in [
        (json!([]), ""),
        (json!([{"a": 1}, {"b": 2}, {}, []]), "a,b\n1,\n,2\n,\n,\n"),
        (json!([[i64::MIN, 1.0, 1e300, false, null]]), "-9223372036854775808,1.0,1e300,false,\n"),
        (json!([[1], {}]), "1\n\n"),
        (json!([{"a": 1}, [1]]), "csv.encode: row 2 is no object, as others are, but an array"),
        (json!([[1], 2]), "csv.encode: row 2 is no list, but an integer"),
        (
            json!([[1, {"a": 1}]]),
            "csv.encode: row 1, column 2 is an object, and a field is only text",
        ),
    ] {
        assert_eq!(encode(rows.clone()).await, expected, "{rows}");
    }
    let with_columns = |rows| json!({"rows": rows, "columns": ["x", "y"]});
    assert_eq!(run("csv.encode", with_columns(json!([[1], [1, 2]]))).await, r#""x,y\n1,\n1,2\n""#);
    assert_eq!(run("csv.encode", with_columns(json!([]))).await, r#""x,y\n""#);
    assert_eq!(
        run("csv.encode", with_columns(json!([[1, 2, 3]]))).await,
        "csv.encode: row 1 has 3 fields, but there are 2 columns"
    );
    for (value, why) in [
        (Value::Float(f64::NAN), "is NaN or infinite, which CSV has no form for"),
        (Value::Bytes(vec![255]), "is not UTF-8 text"),
    ] {
        let rows = Value::Array(vec![Value::Array(vec![Value::Null, value])]);
        let args = Value::from_fields([("rows", rows)]);
        let problem = call_value(scope(Path::new("."), &[]), "csv.encode", args).await.unwrap_err();
        assert_eq!(problem.message, format!("csv.encode: row 1, column 2 {why}"));
    }
}

#[tokio::test]
async fn results_stay_within_the_limit() {
    let small = || limited(scope(Path::new("."), &[]), |limits| limits.value = 10_000);
    let header = "k".repeat(1000);
    for (function, args) in [
        ("csv.decode", json!({"text": ",".repeat(1000), "header": false})),
        ("csv.decode", json!({"text": format!("{header}\n{}", "x\n".repeat(20))})),
        ("csv.encode", json!({"rows": [["\"".repeat(6000)]]})),
        ("csv.encode", json!({"rows": vec![json!([]); 300], "columns": vec!["a"; 100]})),
    ] {
        assert_eq!(
            problem(small(), function, args).await,
            format!(
                "error[limit]: {function}: the result is larger than 10000 bytes\nhint: work on less at a time, or raise limits.value"
            )
        );
    }
}

#[tokio::test]
async fn as_many_columns_as_rows_end_with_the_time_of_the_call() {
    let rows: Vec<Json> = (0..3000).map(|n| json!({ (format!("c{n}")): n })).collect();
    let scope = limited(scope(Path::new("."), &[]), |limits| {
        limits.timeout = std::time::Duration::from_millis(20)
    });
    assert_eq!(
        problem(scope, "csv.encode", json!({ "rows": rows })).await,
        "error[timeout]: csv.encode: the time of the call is over"
    );
}
