//! Error bodies of APIs: the API's own words, its list of field errors, and all of it as
//! data.

use moonlark_core::Value;
use moonlark_core::problem::cut_message;
use moonlark_core::value::{Object, shorten_text};

/// Entries of a list of mistakes that become part of the message.
const MAX_ERROR_DETAILS: usize = 6;
/// Of the answer, for scripts that look into it.
const MAX_ERROR_DATA_BYTES: usize = 16 * 1024;
/// How deep an answer is searched for words.
const MAX_ERROR_DEPTH: usize = 4;

const ERROR_MESSAGE_KEYS: [&str; 10] = [
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
const ERROR_LIST_KEYS: [&str; 9] = [
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
const ERROR_SUBJECT_KEYS: [&str; 8] =
    ["field", "param", "parameter", "property", "path", "loc", "pointer", "name"];
const ERROR_COMPLAINT_KEYS: [&str; 7] =
    ["message", "detail", "msg", "reason", "description", "code", "title"];

/// What went wrong, in one line of the API's own words.
pub(crate) fn describe_error_body(body: &Value) -> Option<String> {
    let details = collect_details(body);
    // A message that is the first detail says nothing beside it.
    let message = find_message(body, 0).map(|text| shorten_text(text.trim()).into_owned());
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
pub(crate) fn error_data(body: Value) -> Option<Value> {
    if !matches!(body, Value::Object(_) | Value::Array(_)) {
        return None;
    }
    let text = body.to_json_lossy().to_string();
    if text.len() <= MAX_ERROR_DATA_BYTES {
        return Some(body);
    }
    let end = text.floor_char_boundary(MAX_ERROR_DATA_BYTES);
    Some(Value::from(format!("{}… ({} bytes left out)", &text[..end], text.len() - end)))
}

/// Where errors usually say what they are about.
fn find_message(body: &Value, depth: usize) -> Option<&str> {
    match body {
        Value::Str(text) if !text.trim().is_empty() => Some(text),
        Value::Object(fields) if depth < MAX_ERROR_DEPTH => {
            known_fields(fields, &ERROR_MESSAGE_KEYS).find_map(|it| find_message(it, depth + 1))
        }
        Value::Array(items) if depth < MAX_ERROR_DEPTH => find_message(items.first()?, depth + 1),
        _ => None,
    }
}

fn collect_details(body: &Value) -> Vec<String> {
    let Some(list) = find_error_list(body, 0) else { return Vec::new() };
    let (count, mut said) = match list {
        Value::Array(items) => (
            items.len(),
            items.iter().take(MAX_ERROR_DETAILS).filter_map(describe_entry).collect::<Vec<_>>(),
        ),
        // Fields with what is wrong with each.
        Value::Object(fields) => {
            let each = fields.iter().take(MAX_ERROR_DETAILS);
            let said =
                each.filter_map(|(field, it)| Some(format_complaint(field, find_message(it, 0)?)));
            (fields.len(), said.collect())
        }
        _ => return Vec::new(),
    };
    if count > MAX_ERROR_DETAILS {
        said.push(format!("and {} more", count - MAX_ERROR_DETAILS));
    }
    said
}

fn find_error_list(body: &Value, depth: usize) -> Option<&Value> {
    let Value::Object(fields) = body else { return None };
    let is_list = |it: &&Value| match it {
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => fields.values().any(|it| matches!(it, Value::Array(_))),
        _ => false,
    };
    let own = known_fields(fields, &ERROR_LIST_KEYS).find(is_list);
    own.or_else(|| {
        let inner = fields.get("error").filter(|_| depth < MAX_ERROR_DEPTH)?;
        find_error_list(inner, depth + 1)
    })
}

fn describe_entry(item: &Value) -> Option<String> {
    match item {
        Value::Str(text) => Some(shorten_text(text.trim()).into_owned()),
        Value::Object(fields) => {
            let mut complaints = known_fields(fields, &ERROR_COMPLAINT_KEYS);
            let complaint = complaints.find_map(|it| find_message(it, 0));
            let said = [entry_subject(fields), complaint.map(|it| it.trim().to_owned())];
            let said: Vec<_> = said.iter().flatten().map(|it| shorten_text(it)).collect();
            (!said.is_empty()).then(|| said.join(": "))
        }
        _ => None,
    }
}

fn format_complaint(subject: &str, complaint: &str) -> String {
    format!("{}: {}", shorten_text(subject), shorten_text(complaint.trim()))
}

fn known_fields<'a>(fields: &'a Object, keys: &[&str]) -> impl Iterator<Item = &'a Value> {
    keys.iter().filter_map(|key| fields.get(*key))
}

/// The field that an entry is about: `title`, or `body.items.0`.
fn entry_subject(fields: &Object) -> Option<String> {
    let source = fields.get("source").and_then(Value::as_object);
    let all = [Some(fields), source].into_iter().flatten();
    all.flat_map(|it| known_fields(it, &ERROR_SUBJECT_KEYS)).find_map(|it| match it {
        Value::Str(text) if !text.is_empty() => Some(cut_message(text)),
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
            let said = describe_error_body(&Value::from_json(body.clone()).unwrap());
            assert_eq!(said.as_deref(), expected, "{body}");
        }
    }

    #[test]
    fn what_is_kept_of_an_answer_is_bounded() {
        let small = Value::from_json(json!({"errors": [1]})).unwrap();
        assert_eq!(error_data(small.clone()), Some(small));
        assert_eq!(error_data(Value::from("text")), None);
        let large = Value::from_json(json!({"a": "x".repeat(100_000)})).unwrap();
        let Some(Value::Str(text)) = error_data(large) else { panic!() };
        assert!(text.len() < MAX_ERROR_DATA_BYTES + 100, "{}", text.len());
    }
}
