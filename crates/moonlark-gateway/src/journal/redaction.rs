//! Redacted journal entries for people: without secrets, and of bounded size.

use std::borrow::Cow;

use super::RedactionScopes;
use moonlark_core::secret::{is_secret_name, redact_literals};
use moonlark_core::value::{Object, Value};

/// Bytes of arguments that are kept for people.
const MAX_SHOWN_ARGUMENT_BYTES: usize = 4096;
/// What stands where a secret was.
const REDACTED_VALUE_MARK: &str = "[redacted]";

/// Arguments as JSON text: redacted, and cut where it gets long.
pub fn redact_arguments(args: &Value, secrets: &RedactionScopes) -> String {
    let mut room = MAX_SHOWN_ARGUMENT_BYTES;
    let shown = redact_value(args, secrets, false, &mut room);
    // Nothing in it has no JSON form any more.
    serde_json::to_string(&shown).unwrap_or_default()
}

/// A script, with the secrets taken out by value, and by the names they are given.
pub fn redact_script(script: &str, secrets: &RedactionScopes) -> String {
    redact_literals(&secrets.redact_secrets(script)).into_owned()
}

/// A text with the secrets taken out by value.
pub fn redact_text(text: &str, secrets: &RedactionScopes) -> String {
    secrets.redact_secrets(text).into_owned()
}

impl RedactionScopes {
    pub(crate) fn redact_secrets<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for scope in &self.0 {
            if let Cow::Owned(redacted) = scope.secrets.redact_text(&text) {
                text = Cow::Owned(redacted);
            }
        }
        text
    }
}

/// A copy with nothing secret in it, of about `room` bytes at most. Values are
/// no deeper than [`MAX_VALUE_DEPTH`](moonlark_core::value::MAX_VALUE_DEPTH) when they get here.
fn redact_value(value: &Value, secrets: &RedactionScopes, named: bool, room: &mut usize) -> Value {
    match value {
        Value::Str(text) if named && !text.is_empty() => Value::from(REDACTED_VALUE_MARK),
        Value::Str(text) => {
            // Cut only afterwards: half a secret is one that nothing finds.
            let text = secrets.redact_secrets(text);
            let text = cut_to_room(&redact_literals(&text), *room);
            *room = room.saturating_sub(text.len());
            Value::from(text)
        }
        Value::Bytes(bytes) => Value::from(format!("<{} bytes>", bytes.len())),
        Value::Array(items) => {
            let mut shown = Vec::new();
            for item in items {
                if *room == 0 {
                    shown.push(Value::from(format!("… {} more", items.len() - shown.len())));
                    break;
                }
                *room = room.saturating_sub(2);
                shown.push(redact_value(item, secrets, named, room));
            }
            Value::Array(shown)
        }
        Value::Object(fields) => {
            let mut shown = Object::new();
            for (key, item) in fields {
                if *room == 0 {
                    let more = format!("{} more", fields.len() - shown.len());
                    shown.insert("…".to_owned(), more.into());
                    break;
                }
                let key_shown = cut_to_room(&secrets.redact_secrets(key), *room);
                *room = room.saturating_sub(key_shown.len() + 4);
                let item = redact_value(item, secrets, named || is_secret_name(key), room);
                shown.insert(key_shown, item);
            }
            Value::Object(shown)
        }
        plain => {
            *room = room.saturating_sub(8);
            plain.clone()
        }
    }
}

fn cut_to_room(text: &str, room: usize) -> String {
    if text.len() <= room {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(room);
    format!("{}… {} more bytes", &text[..end], text.len() - end)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use moonlark_core::secret::{SecretValue, Secrets};
    use moonlark_core::tool::CallScope;

    fn check(args: &str, expected: &str) {
        let secret = SecretValue { key: "token".into(), value: "hunter22".into(), by_name: true };
        let scope = CallScope { secrets: Secrets::new(vec![secret]), ..CallScope::default() };
        let args = Value::parse_json(args.as_bytes()).unwrap();
        assert_eq!(
            redact_arguments(&args, &RedactionScopes([Arc::default(), Arc::new(scope)])),
            expected
        );
    }

    #[test]
    fn arguments_lose_secrets_by_value_wherever_they_stand() {
        check(r#"{"q":"it is hunter22"}"#, r#"{"q":"it is [redacted:token]"}"#);
        check(r#"{"hunter22":[1,"hunter22"]}"#, r#"{"[redacted:token]":[1,"[redacted:token]"]}"#);
    }

    #[test]
    fn arguments_lose_what_is_secret_by_its_name() {
        for key in ["password", "api_key", "Authorization", "X-Api-Key", "sessionCookie", "token"] {
            check(&format!(r#"{{"{key}":"abc"}}"#), &format!(r#"{{"{key}":"[redacted]"}}"#));
        }
        check(
            r#"{"headers":{"Authorization":["Bearer abc"],"Accept":"*/*"}}"#,
            r#"{"headers":{"Authorization":["[redacted]"],"Accept":"*/*"}}"#,
        );
        check(
            r#"{"credentials":{"user":"ann","inner":{"x":"y"}}}"#,
            r#"{"credentials":{"user":"[redacted]","inner":{"x":"[redacted]"}}}"#,
        );
    }

    #[test]
    fn numbers_and_empty_texts_hide_nothing() {
        check(r#"{"max_tokens":100,"token":""}"#, r#"{"max_tokens":100,"token":""}"#);
        check(r#"{"author":"ann","key":"k"}"#, r#"{"author":"ann","key":"k"}"#);
    }

    #[test]
    fn what_is_long_is_cut_after_the_secrets_are_out() {
        let long =
            format!("{}hunter22{}", "x".repeat(MAX_SHOWN_ARGUMENT_BYTES - 4), "y".repeat(100));
        let shown = redact_arguments(
            &Value::from_fields([("q", long.as_str().into())]),
            &RedactionScopes([
                Arc::default(),
                Arc::new(CallScope {
                    secrets: Secrets::new(vec![SecretValue {
                        key: "k".into(),
                        value: "hunter22".into(),
                        by_name: true,
                    }]),
                    ..CallScope::default()
                }),
            ]),
        );
        assert!(!shown.contains("hunt"), "{}", &shown[shown.len() - 60..]);
        assert!(shown.len() < MAX_SHOWN_ARGUMENT_BYTES + 100);
        let many = Value::Array((0..100_000).map(Value::Int).collect());
        let shown = redact_arguments(&many, &RedactionScopes::default());
        assert!(
            shown.len() < 3 * MAX_SHOWN_ARGUMENT_BYTES && shown.ends_with(" more\"]"),
            "{}",
            shown.len()
        );
    }
}
