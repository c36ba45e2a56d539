//! Secrets taken out of a recorded run, the same way wherever they stand, so that the
//! script still makes the calls that are on record.

use moonlark_core::Value;
use moonlark_core::secret::{Secrets, is_secret_name, secrets_from_literals};
use moonlark_core::tool::CallScope;
use std::sync::Arc;

/// Shorter secrets are only taken out where they are a whole text.
const MIN_REPLACED_BYTES: usize = 8;
/// Secrets of one run.
const MAX_REMOVED_SECRETS: usize = 1000;

/// What is secret in a run, and what stands for it.
pub(super) struct SecretRemoval {
    found: Vec<(String, String)>,
    literals: Secrets,
    scopes: Vec<Arc<CallScope>>,
}

impl SecretRemoval {
    /// What the values say is secret by its name, what the script does, and what the tools
    /// are configured with.
    pub(super) fn for_values<'a>(
        values: impl Iterator<Item = &'a Value>,
        script: &str,
        scopes: Vec<Arc<CallScope>>,
    ) -> SecretRemoval {
        let mut found = Vec::new();
        for value in values {
            collect_secrets(value, false, &mut found);
        }
        // What contains another goes first.
        found.sort_by_key(|text: &String| std::cmp::Reverse(text.len()));
        found.truncate(MAX_REMOVED_SECRETS);
        let mark = |(number, text): (usize, String)| (text, format!("[redacted {}]", number + 1));
        let found = found.into_iter().enumerate().map(mark).collect();
        SecretRemoval { found, literals: secrets_from_literals(script), scopes }
    }

    pub(super) fn clean_value(&self, value: &Value) -> Value {
        match value {
            Value::Str(text) => Value::from(self.clean_text(text)),
            Value::Array(items) => {
                items.iter().map(|it| self.clean_value(it)).collect::<Vec<_>>().into()
            }
            Value::Object(fields) => {
                let clean = |(key, field): (&String, &Value)| {
                    (self.clean_text(key), self.clean_value(field))
                };
                Value::Object(fields.iter().map(clean).collect())
            }
            plain => plain.clone(),
        }
    }

    pub(super) fn clean_text(&self, text: &str) -> String {
        if let Some((_, mark)) = self.found.iter().find(|(secret, _)| secret == text) {
            return mark.clone();
        }
        let mut text = text.to_owned();
        for (secret, mark) in self.found.iter().filter(|it| it.0.len() >= MIN_REPLACED_BYTES) {
            text = text.replace(secret, mark);
        }
        self.clean_known(&text)
    }

    /// The same for a script, in which short secrets are whole texts between quotes.
    pub(super) fn clean_script(&self, script: &str) -> String {
        let mut text = script.to_owned();
        for (secret, mark) in &self.found {
            if secret.len() >= MIN_REPLACED_BYTES {
                text = text.replace(secret, mark);
            } else {
                for quote in ['"', '\'', '`'] {
                    let quoted = |inner: &str| format!("{quote}{inner}{quote}");
                    text = text.replace(&quoted(secret), &quoted(mark));
                }
            }
        }
        self.clean_known(&text)
    }

    fn clean_known(&self, text: &str) -> String {
        let mut text = self.literals.redact_text(text).into_owned();
        for scope in &self.scopes {
            text = scope.secrets.redact_text(&text).into_owned();
        }
        text
    }
}

fn collect_secrets(value: &Value, is_secret: bool, found: &mut Vec<String>) {
    match value {
        Value::Str(text)
            if is_secret
                && !text.is_empty()
                && !text.starts_with("[redacted")
                && !found.contains(text) =>
        {
            found.push(text.clone());
        }
        // An answer that is JSON as a text says by name what is secret, too.
        Value::Str(text) if text.starts_with(['{', '[']) => {
            if let Ok(parsed @ (Value::Object(_) | Value::Array(_))) =
                Value::parse_json(text.as_bytes())
            {
                collect_secrets(&parsed, is_secret, found);
            }
        }
        Value::Array(items) => {
            items.iter().for_each(|item| collect_secrets(item, is_secret, found));
        }
        Value::Object(fields) => {
            for (name, field) in fields {
                collect_secrets(field, is_secret || is_secret_name(name), found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_taken_out_the_same_way_wherever_it_stands() {
        let value = |text: &str| Value::parse_json(text.as_bytes()).unwrap();
        let values = [
            value(r#"{"user":"ann","password":"abc"}"#),
            value(r#""{\"session_token\":\"t-123456789\"}""#),
        ];
        let script = "login('ann', \"abc\") abc(`Bearer t-123456789`)";
        let removal = SecretRemoval::for_values(values.iter(), script, Vec::new());
        assert_eq!(
            removal.clean_script(script),
            "login('ann', \"[redacted 2]\") abc(`Bearer [redacted 1]`)"
        );
        let clean = |text: &str| removal.clean_value(&value(text)).to_json_lossy().to_string();
        assert_eq!(
            clean(r#"{"p":"abc","q":"abcd","r":["x t-123456789"]}"#),
            r#"{"p":"[redacted 2]","q":"abcd","r":["x [redacted 1]"]}"#
        );
    }
}
