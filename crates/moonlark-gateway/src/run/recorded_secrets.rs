//! What is secret in a recorded run: what its arguments and answers say is secret by its
//! name, and what it has read from the environment.

use std::cmp::Reverse;
use std::collections::HashSet;

use crate::journal::{CallRecord, RunRecord};
use moonlark_core::secret::{SecretValue, is_secret_name};
use moonlark_core::value::Value;

/// Secrets of one run.
const MAX_RECORDED_SECRETS: usize = 1000;
/// Bytes of a name that stands for a secret.
const MAX_SECRET_NAME_BYTES: usize = 60;
/// The call that reads a variable of the environment.
const ENVIRONMENT_CALL: &str = "env.get";

/// Secrets, as they are found.
#[derive(Default)]
pub struct RecordedSecrets {
    found: Vec<SecretValue>,
    known: HashSet<String>,
}

impl RecordedSecrets {
    /// Of all that the calls of a run were given and have answered.
    pub fn from_record(record: &RunRecord) -> RecordedSecrets {
        let mut secrets = RecordedSecrets::default();
        for call in &record.calls {
            secrets.add_value(&call.began.args);
            if let Some(answer) = plain_answer(call) {
                secrets.add_value(&answer);
            }
        }
        secrets.add_environment(record);
        secrets
    }

    /// What a value says is secret.
    pub fn add_value(&mut self, value: &Value) {
        self.collect(value, None);
    }

    /// What the run has read from the environment; not the defaults, which its script has.
    pub fn add_environment(&mut self, record: &RunRecord) {
        for call in record.calls.iter().filter(|call| call.began.tool == ENVIRONMENT_CALL) {
            let default = call.began.args.get("default").and_then(Value::as_str);
            let name = call.began.args.get("name").and_then(Value::as_str);
            if let Some(Value::Str(text)) = plain_answer(call)
                && default != Some(text.as_str())
            {
                self.add_text(name.unwrap_or(ENVIRONMENT_CALL), &text);
            }
        }
    }

    /// All of them: what contains another is first.
    pub fn into_values(self) -> Vec<SecretValue> {
        let mut found = self.found;
        found.sort_by_key(|secret| Reverse(secret.value.len()));
        found.truncate(MAX_RECORDED_SECRETS);
        found
    }

    fn add_text(&mut self, name: &str, text: &str) {
        let is_known = text.is_empty() || text.starts_with("[redacted");
        if !is_known && self.known.insert(text.to_owned()) {
            let key = name[..name.floor_char_boundary(MAX_SECRET_NAME_BYTES)].to_owned();
            self.found.push(SecretValue { key, value: text.to_owned(), by_name: true });
        }
    }

    fn collect(&mut self, value: &Value, secret: Option<&str>) {
        match value {
            Value::Str(text) => {
                if let Some(name) = secret {
                    self.add_text(name, text);
                } else if text.starts_with(['{', '[']) {
                    // An answer that is JSON as a text says by name what is secret, too.
                    if let Ok(parsed @ (Value::Object(_) | Value::Array(_))) =
                        Value::parse_json(text.as_bytes())
                    {
                        self.collect(&parsed, None);
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| self.collect(item, secret)),
            Value::Object(fields) => {
                for (name, field) in fields {
                    let named = is_secret_name(name).then_some(name.as_str());
                    self.collect(field, secret.or(named));
                }
            }
            _ => {}
        }
    }
}

fn plain_answer(call: &CallRecord) -> Option<Value> {
    let answer = call.ended.as_ref()?.answer.as_ref()?;
    Some(answer.as_ref().ok()?.clone().into_plain_value())
}
