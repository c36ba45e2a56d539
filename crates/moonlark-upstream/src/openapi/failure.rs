//! What an API says about a call that went wrong: its own words, the list of what
//! is wrong with which field, and all of it as data.

use moonlark_core::Value;
use moonlark_core::problem::cut;
use moonlark_core::value::{Object, shorten};

/// Entries of a list of mistakes that become part of the message.
const MAX_DETAILS: usize = 6;
/// Of the answer, for scripts that look into it.
const MAX_DATA_BYTES: usize = 16 * 1024;
/// How deep an answer is searched for words.
const MAX_DEPTH: usize = 4;

const MESSAGE_KEYS: [&str; 10] = [
    "message",
    "error_description",
    "detail",
    "error",
    "errors",
    "title",
    "description",
    "msg",
    "reason",
    "fault",
];

/// Where answers list what exactly is wrong.
const LIST_KEYS: [&str; 9] = [
    "errors",
    "details",
    "detail",
    "violations",
    "invalid-params",
    "invalid_params",
    "issues",
    "fieldErrors",
    "field_errors",
];

/// What an entry of such a list is about, and what it says about that.
const SUBJECT_KEYS: [&str; 8] =
    ["field", "param", "parameter", "property", "path", "loc", "pointer", "name"];
const COMPLAINT_KEYS: [&str; 7] =
    ["message", "detail", "msg", "reason", "description", "code", "title"];

/// What went wrong, in one line of the API's own words.
pub(crate) fn describe(body: &Value) -> Option<String> {
    let details = details(body);
    // A message that is the first detail says nothing beside it.
    let message = message(body, 0).map(|text| shorten(text.trim()).into_owned());
    let message = message.filter(|text| !details.iter().any(|it| it.ends_with(text.as_str())));
    match (message, details.is_empty()) {
        (Some(message), true) => Some(message),
        (Some(message), false) => Some(format!("{message} ({})", details.join("; "))),
        (None, false) => Some(details.join("; ")),
        (None, true) => None,
    }
}

/// The answer as scripts and agents get it beside the message; nothing if the
/// message says it all.
pub(crate) fn data(body: Value) -> Option<Value> {
    if !matches!(body, Value::Object(_) | Value::Array(_)) {
        return None;
    }
    let text = body.to_json_lossy().to_string();
    if text.len() <= MAX_DATA_BYTES {
        return Some(body);
    }
    let end = (0..=MAX_DATA_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    Some(Value::from(format!("{}… ({} bytes left out)", &text[..end], text.len() - end)))
}

/// Where errors usually say what they are about.
fn message(body: &Value, depth: usize) -> Option<&str> {
    match body {
        Value::Str(text) if !text.trim().is_empty() => Some(text),
        Value::Object(fields) if depth < MAX_DEPTH => {
            let known = MESSAGE_KEYS.iter().filter_map(|key| fields.get(*key));
            known.into_iter().find_map(|it| message(it, depth + 1))
        }
        Value::Array(items) if depth < MAX_DEPTH => message(items.first()?, depth + 1),
        _ => None,
    }
}

fn details(body: &Value) -> Vec<String> {
    let Some(list) = list_of_mistakes(body, 0) else { return Vec::new() };
    let (count, mut said) = match list {
        Value::Array(items) => {
            (items.len(), items.iter().take(MAX_DETAILS).filter_map(entry).collect::<Vec<_>>())
        }
        // Fields with what is wrong with each.
        Value::Object(fields) => {
            let each = fields.iter().take(MAX_DETAILS);
            let said = each.filter_map(|(field, it)| Some(about(field, message(it, 0)?)));
            (fields.len(), said.collect())
        }
        _ => return Vec::new(),
    };
    if count > MAX_DETAILS {
        said.push(format!("and {} more", count - MAX_DETAILS));
    }
    said
}

fn list_of_mistakes(body: &Value, depth: usize) -> Option<&Value> {
    let Value::Object(fields) = body else { return None };
    let is_list = |it: &&Value| match it {
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => fields.values().any(|it| matches!(it, Value::Array(_))),
        _ => false,
    };
    let own = LIST_KEYS.iter().filter_map(|key| fields.get(*key)).find(is_list);
    own.or_else(|| {
        let inner = fields.get("error").filter(|_| depth < MAX_DEPTH)?;
        list_of_mistakes(inner, depth + 1)
    })
}

fn entry(item: &Value) -> Option<String> {
    match item {
        Value::Str(text) => Some(shorten(text.trim()).into_owned()),
        Value::Object(fields) => {
            let complaint = COMPLAINT_KEYS.iter().filter_map(|key| fields.get(*key));
            let complaint = complaint.into_iter().find_map(|it| message(it, 0));
            match (subject(fields), complaint) {
                (Some(subject), Some(complaint)) => Some(about(&subject, complaint)),
                (None, Some(complaint)) => Some(shorten(complaint.trim()).into_owned()),
                (Some(subject), None) => Some(shorten(&subject).into_owned()),
                (None, None) => None,
            }
        }
        _ => None,
    }
}

fn about(subject: &str, complaint: &str) -> String {
    format!("{}: {}", shorten(subject), shorten(complaint.trim()))
}

/// The field that an entry is about: `title`, or `body.items.0`.
fn subject(fields: &Object) -> Option<String> {
    let source = fields.get("source").and_then(Value::as_object);
    let known = SUBJECT_KEYS.iter().filter_map(|key| fields.get(*key));
    let inner =
        source.into_iter().flat_map(|it| SUBJECT_KEYS.iter().filter_map(|key| it.get(*key)));
    known.chain(inner).find_map(|it| match it {
        Value::Str(text) if !text.is_empty() => Some(cut(text)),
        Value::Array(parts) => {
            let parts: Vec<String> = parts
                .iter()
                .filter_map(|part| match part {
                    Value::Str(text) => Some(text.clone()),
                    Value::Int(number) => Some(number.to_string()),
                    _ => None,
                })
                .collect();
            (!parts.is_empty()).then(|| parts.join("."))
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_useful_half_of_an_error_is_kept() {
        for (body, expected) in [
            (
                json!({"message": "Validation Failed", "errors": [{"resource": "Issue", "field": "title", "code": "already_exists"}]}),
                Some("Validation Failed (title: already_exists)"),
            ),
            (
                json!({"detail": [{"loc": ["body", "items", 0], "msg": "field required", "type": "missing"}]}),
                Some("body.items.0: field required"),
            ),
            (
                json!({"error": {"code": 400, "message": "Bad", "errors": [{"message": "Bad", "reason": "x"}]}}),
                Some("Bad"),
            ),
            (
                json!({"errors": {"email": ["is taken", "is odd"]}, "title": "Invalid"}),
                Some("Invalid (email: is taken)"),
            ),
            (
                json!({"errors": [{"title": "No", "detail": "not so", "source": {"pointer": "/data/a"}}]}),
                Some("/data/a: not so"),
            ),
            (json!({"errors": ["a", "b"]}), Some("a; b")),
            (
                json!({"errors": (0..9).map(|it| it.to_string()).collect::<Vec<_>>()}),
                Some("0; 1; 2; 3; 4; 5; and 3 more"),
            ),
            (json!({"message": "gone"}), Some("gone")),
            (json!("plain"), Some("plain")),
            (json!({"code": 7}), None),
        ] {
            let said = describe(&Value::from_json(body.clone()).unwrap());
            assert_eq!(said.as_deref(), expected, "{body}");
        }
    }

    #[test]
    fn what_is_kept_of_an_answer_is_bounded() {
        let small = Value::from_json(json!({"errors": [1]})).unwrap();
        assert_eq!(data(small.clone()), Some(small));
        assert_eq!(data(Value::from("text")), None);
        let large = Value::from_json(json!({"a": "x".repeat(100_000)})).unwrap();
        let Some(Value::Str(text)) = data(large) else { panic!() };
        assert!(text.len() < MAX_DATA_BYTES + 100, "{}", text.len());
    }
}
