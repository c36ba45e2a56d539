//! The arguments of a call as its approver sees them: every key and every short value, in
//! the order they were given.
//!
//! The caller chooses names and order, so nothing is hidden by either: secrets are
//! taken out by their value only, and what is long is shortened by itself. If
//! anything was left out, that is known, and nobody decides by this text.

use crate::journal::RedactionScopes;
use moonlark_core::approval_ticket::ShownArguments;
use moonlark_core::value::{Object, Value};

/// Bytes of a text that is shown whole.
const MAX_SHOWN_TEXT_BYTES: usize = 2048;
/// Bytes that are shown of the beginning and of the end of a longer one.
const TEXT_END_BYTES: usize = 256;
/// Bytes of all texts and keys together, and how many values: more is not read.
const MAX_SHOWN_BYTES: usize = 32 * 1024;
const MAX_SHOWN_VALUES: usize = 2000;

/// What is shown of the arguments, without the secrets of those scopes.
pub fn show_arguments(args: &Value, secrets: &RedactionScopes) -> ShownArguments {
    let mut shortening = ArgumentShortener {
        secrets,
        bytes_left: MAX_SHOWN_BYTES,
        values_left: MAX_SHOWN_VALUES,
        left_out: false,
    };
    let shown = shortening.shorten_value(args);
    // Nothing in it has no JSON form any more.
    let text = serde_json::to_string(&shown).unwrap_or_default();
    ShownArguments { text, left_out: shortening.left_out }
}

struct ArgumentShortener<'a> {
    secrets: &'a RedactionScopes,
    bytes_left: usize,
    values_left: usize,
    left_out: bool,
}

impl ArgumentShortener<'_> {
    /// Values are no deeper than [`MAX_VALUE_DEPTH`](moonlark_core::value::MAX_VALUE_DEPTH) here.
    fn shorten_value(&mut self, value: &Value) -> Value {
        self.values_left = self.values_left.saturating_sub(1);
        match value {
            Value::Str(text) => Value::from(self.shorten_text(text)),
            Value::Bytes(bytes) => {
                self.left_out = true;
                Value::from(format!("<{} bytes>", bytes.len()))
            }
            Value::Array(items) => {
                let mut shown = Vec::new();
                for item in items {
                    if self.is_exhausted() {
                        shown.push(Value::from(self.left_out_text(items.len() - shown.len())));
                        break;
                    }
                    shown.push(self.shorten_value(item));
                }
                Value::Array(shown)
            }
            Value::Object(fields) => {
                let mut shown = Object::new();
                for (key, item) in fields {
                    if self.is_exhausted() {
                        let rest = self.left_out_text(fields.len() - shown.len());
                        shown.insert("…".to_owned(), rest.into());
                        break;
                    }
                    let key = self.shorten_text(key);
                    let item = self.shorten_value(item);
                    shown.insert(key, item);
                }
                Value::Object(shown)
            }
            plain => plain.clone(),
        }
    }

    fn shorten_text(&mut self, text: &str) -> String {
        // Cut only afterwards: half a secret is one that nothing finds.
        let text = self.secrets.redact_secrets(text);
        let shown = if text.len() <= MAX_SHOWN_TEXT_BYTES {
            text.into_owned()
        } else {
            self.left_out = true;
            let start = text.floor_char_boundary(TEXT_END_BYTES);
            let end = text.ceil_char_boundary(text.len() - TEXT_END_BYTES);
            let bytes = end - start;
            format!("{}[… {bytes} bytes are left out …]{}", &text[..start], &text[end..])
        };
        self.bytes_left = self.bytes_left.saturating_sub(shown.len());
        shown
    }

    fn is_exhausted(&self) -> bool {
        self.bytes_left == 0 || self.values_left == 0
    }

    fn left_out_text(&mut self, rest: usize) -> String {
        self.left_out = true;
        format!("[… {rest} more are left out …]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(args: &str, expected: &str, left_out: bool) {
        let args = Value::parse_json(args.as_bytes()).unwrap();
        let shown = show_arguments(&args, &RedactionScopes::default());
        assert_eq!((shown.text.as_str(), shown.left_out), (expected, left_out));
    }

    #[test]
    fn no_key_and_no_short_value_is_hidden_by_what_stands_before_it_or_by_its_name() {
        let long = "n".repeat(6000);
        let ends = "n".repeat(TEXT_END_BYTES);
        check(
            &format!(r#"{{"note":"{long}","amount":1000000,"to":"mallory"}}"#),
            &format!(
                r#"{{"note":"{ends}[… 5488 bytes are left out …]{ends}","amount":1000000,"to":"mallory"}}"#
            ),
            true,
        );
        let all = r#"{"auth_note":"and transfer everything to mallory","password":"x"}"#;
        check(all, all, false);
        let script = r#"{"text":"password = 'to mallory'"}"#;
        check(script, script, false);
    }

    #[test]
    fn what_is_too_much_is_counted_and_said() {
        let many = Value::Array((0..100_000).map(Value::Int).collect());
        let shown = show_arguments(&many, &RedactionScopes::default());
        assert!(shown.left_out && shown.text.ends_with(r#""[… 98001 more are left out …]"]"#));
        let fields = (0..3000).map(|it| (it.to_string(), Value::from("x"))).collect();
        let shown = show_arguments(&Value::Object(fields), &RedactionScopes::default());
        assert!(shown.left_out && shown.text.contains("more are left out"), "{}", shown.text);
    }
}
