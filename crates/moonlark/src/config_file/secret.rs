//! Which of a script's configuration values are secret.
//!
//! A string is when a name on the way to it looks like one, or when it holds a
//! variable of the environment, whatever that variable is called.

use std::collections::BTreeMap;

use moonlark_core::secret::looks_secret;
use serde_json::{Map, Value};

use super::key_path::KeyPath;
use crate::config::Secret;

/// The variables of every string that has some: name and what it gave.
pub(super) type Variables = BTreeMap<KeyPath, Vec<(String, String)>>;

/// The secrets of the script whose configuration is at `table`, in its order.
pub(super) fn secrets(
    table: &KeyPath,
    values: &Map<String, Value>,
    variables: &Variables,
) -> Vec<Secret> {
    let mut found = Vec::new();
    for (key, value) in values {
        collect(value, &mut table.with(key), table.depth(), variables, &mut found);
    }
    found
}

fn collect(
    value: &Value,
    path: &mut KeyPath,
    table: usize,
    variables: &Variables,
    found: &mut Vec<Secret>,
) {
    match value {
        Value::String(text) => {
            let variables = variables.get(path).map(Vec::as_slice).unwrap_or_default();
            string(text, &path.skip(table), variables, found);
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.index(index);
                collect(item, path, table, variables, found);
                path.pop();
            }
        }
        Value::Object(object) => {
            for (key, value) in object {
                path.key(key);
                collect(value, path, table, variables, found);
                path.pop();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The whole text, and each variable's part of it: of `Bearer ${TOKEN}` a script
/// or a server may well echo the token alone. Nothing empty, since an empty text
/// hides nothing and occurs everywhere.
fn string(text: &str, key: &KeyPath, variables: &[(String, String)], found: &mut Vec<Secret>) {
    let key_is = key.names().any(looks_secret);
    let variable_is = variables.iter().any(|(name, _)| looks_secret(name));
    if text.is_empty() || (!key_is && variables.is_empty()) {
        return;
    }
    found.push(Secret::new(key.to_string(), text, key_is || variable_is));
    for (name, part) in variables {
        if !part.is_empty() && part != text {
            found.push(Secret::new(key.to_string(), part, looks_secret(name)));
        }
    }
}
