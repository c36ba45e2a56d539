//! Secrets taken out of a recorded run, the same way wherever they stand, so that the
//! script still makes the calls that are on record.

use moonlark_core::Value;
use moonlark_core::secret::{Secrets, secrets_from_literals};
use moonlark_core::tool::CallScope;
use moonlark_gateway::run::RecordedSecrets;
use std::sync::Arc;

/// Shorter secrets are only taken out where they are a whole text.
const MIN_REPLACED_BYTES: usize = 8;

/// What is secret in a run, and what stands for it.
pub(crate) struct SecretRemoval {
    found: Vec<(String, String)>,
    literals: Secrets,
    scopes: Vec<Arc<CallScope>>,
}

impl SecretRemoval {
    /// What is known to be secret in the run, what its script says is, and what the tools
    /// are configured with.
    pub(crate) fn for_secrets(
        secrets: RecordedSecrets,
        script: &str,
        scopes: Vec<Arc<CallScope>>,
    ) -> SecretRemoval {
        let mark = |(number, text): (usize, String)| (text, format!("[redacted {}]", number + 1));
        let found = secrets.into_values().into_iter().map(|secret| secret.value);
        let found = found.enumerate().map(mark).collect();
        SecretRemoval { found, literals: secrets_from_literals(script), scopes }
    }

    pub(crate) fn clean_value(&self, value: &Value) -> Value {
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

    pub(crate) fn clean_text(&self, text: &str) -> String {
        if let Some((_, mark)) = self.found.iter().find(|(secret, _)| secret == text) {
            return mark.clone();
        }
        self.clean_script(text)
    }

    /// The same for a script or another long text, in which short secrets are whole texts between quotes.
    pub(crate) fn clean_script(&self, script: &str) -> String {
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
        let mut secrets = RecordedSecrets::default();
        values.iter().for_each(|value| secrets.add_value(value));
        let removal = SecretRemoval::for_secrets(secrets, script, Vec::new());
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
