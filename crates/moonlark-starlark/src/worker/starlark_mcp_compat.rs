//! What extensions that were written for starlark-mcp call otherwise: names of
//! parameters, and fields of results. Both spellings work; no message and no
//! reference lists these.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use moonlark_core::value::{Object, Value};
use moonlark_core::{Problem, Result};

/// Functions by their name or its beginning, what a parameter is called there,
/// and here.
const PARAMETER_ALIASES: [(&str, &str, &str); 10] = [
    ("http.", "params", "query"),
    ("http.", "json_body", "json"),
    ("exec.run", "command", "cmd"),
    ("sqlite.", "db_path", "path"),
    ("sqlite.query", "query", "sql"),
    ("sqlite.execute", "statement", "sql"),
    ("sqlite.describe_table", "table_name", "table"),
    ("postgres.", "connection_string", "conn"),
    ("postgres.query", "query", "sql"),
    ("postgres.execute", "statement", "sql"),
];

/// Parameters that are no other name for one of ours.
const EXTRA_REQUEST_PARAMETERS: [&str; 2] = ["form_body", "auth"];

/// The further names that parameters of `function` may have.
pub(super) fn extra_parameter_names(function: &str) -> Vec<&'static str> {
    let mut names: Vec<&str> = PARAMETER_ALIASES
        .iter()
        .filter(|(of, ..)| function.starts_with(of))
        .map(|(_, it, _)| *it)
        .collect();
    if function.starts_with("http.") {
        names.extend(EXTRA_REQUEST_PARAMETERS);
    }
    names
}

/// Arguments under the names that they have here.
pub(super) fn rename_arguments(function: &str, given: &mut Object) -> Result<()> {
    for (of, other, own) in PARAMETER_ALIASES {
        if !function.starts_with(of) {
            continue;
        }
        let Some(value) = given.swap_remove(other) else { continue };
        if given.insert(own.to_owned(), value).is_some() {
            return Err(Problem::bad_request(format!("{function}: {own} is given twice")));
        }
    }
    if function.starts_with("http.") {
        encode_form_body(function, given)?;
        add_basic_auth(function, given)?;
    }
    Ok(())
}

/// A result with the fields that those extensions look for.
pub(super) fn add_compat_fields(function: &str, answer: Value) -> Value {
    match (function, answer) {
        // A whole number can be the index of a list.
        ("time.now", Value::Float(seconds)) => Value::Int(seconds as i64),
        (function, Value::Object(mut fields)) if function.starts_with("http.") => {
            if let Some(status) = fields.get("status").cloned() {
                fields.insert("status_code".to_owned(), status);
            }
            Value::Object(fields)
        }
        (_, answer) => answer,
    }
}

/// `form_body` as the body of a form.
fn encode_form_body(function: &str, given: &mut Object) -> Result<()> {
    let Some(form) = given.swap_remove("form_body") else { return Ok(()) };
    let Value::Object(form) = form else {
        return Err(Problem::bad_request(format!("{function}: form_body must be a dict")));
    };
    let mut body = url::form_urlencoded::Serializer::new(String::new());
    for (key, value) in &form {
        match value {
            Value::Str(text) => body.append_pair(key, text),
            other => body.append_pair(key, &other.to_json_lossy().to_string()),
        };
    }
    if given.insert("body".to_owned(), body.finish().into()).is_some() {
        return Err(Problem::bad_request(format!("{function}: give body or form_body, not both")));
    }
    add_header(given, "content-type", "application/x-www-form-urlencoded".to_owned());
    Ok(())
}

/// `auth`: a name and a password.
fn add_basic_auth(function: &str, given: &mut Object) -> Result<()> {
    let Some(auth) = given.swap_remove("auth") else { return Ok(()) };
    let pair = match &auth {
        Value::Array(pair) => pair.iter().map(Value::as_str).collect::<Option<Vec<_>>>(),
        _ => None,
    };
    let Some([name, password]) = pair.as_deref() else {
        return Err(Problem::bad_request(format!(
            "{function}: auth must be a tuple of a name and a password"
        )));
    };
    let secret = STANDARD.encode(format!("{name}:{password}"));
    add_header(given, "authorization", format!("Basic {secret}"));
    Ok(())
}

/// A header, unless the script sends one of this name itself.
fn add_header(given: &mut Object, name: &str, value: String) {
    let headers = given.entry("headers".to_owned()).or_insert_with(|| Value::Object(Object::new()));
    if let Value::Object(headers) = headers
        && !headers.keys().any(|own| own.eq_ignore_ascii_case(name))
    {
        headers.insert(name.to_owned(), value.into());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn renamed(function: &str, given: serde_json::Value) -> String {
        let Ok(Value::Object(mut given)) = Value::from_json(given) else { panic!("no object") };
        match rename_arguments(function, &mut given) {
            Ok(()) => Value::Object(given).to_json_lossy().to_string(),
            Err(problem) => problem.message,
        }
    }

    #[test]
    fn arguments_of_starlark_mcp_become_ours() {
        for (function, given, expected) in [
            ("http.get", json!({"url": "u", "params": {"a": 1}}), r#"{"url":"u","query":{"a":1}}"#),
            ("http.post", json!({"url": "u", "json_body": [1]}), r#"{"url":"u","json":[1]}"#),
            (
                "http.post",
                json!({"url": "u", "form_body": {"a b": "c&d", "n": 2}}),
                r#"{"url":"u","body":"a+b=c%26d&n=2","headers":{"content-type":"application/x-www-form-urlencoded"}}"#,
            ),
            (
                "http.get",
                json!({"url": "u", "auth": ["ann", "pw"], "headers": {"X": "1"}}),
                r#"{"url":"u","headers":{"X":"1","authorization":"Basic YW5uOnB3"}}"#,
            ),
            (
                "http.get",
                json!({"auth": "ann"}),
                "http.get: auth must be a tuple of a name and a password",
            ),
            ("http.get", json!({"query": {}, "params": {}}), "http.get: query is given twice"),
            ("sqlite.query", json!({"db_path": "a", "query": "b"}), r#"{"path":"a","sql":"b"}"#),
            ("exec.run", json!({"command": "ls"}), r#"{"cmd":"ls"}"#),
            ("json.encode", json!({"params": 1}), r#"{"params":1}"#),
        ] {
            assert_eq!(renamed(function, given), expected);
        }
    }
}
