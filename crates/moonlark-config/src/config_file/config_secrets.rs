//! Which of a script's configuration values are secret.
//!
//! A string is when a name on the way to it looks like one, or when it holds a
//! variable of the environment, whatever that variable is called. Of an address or a
//! connection string, the password is, wherever it stands.

use std::collections::BTreeMap;

use moonlark_core::secret::is_secret_name;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};
use url::Url;

use super::key_path::ConfigKeyPath;
use super::value_sources::VariableUse;
use crate::ConfigSecret;

/// The variables of every string that has some.
pub(super) type ExpandedVariables = BTreeMap<ConfigKeyPath, Vec<VariableUse>>;

/// The secrets of the script whose configuration is at `table`, in its order.
pub(super) fn collect_secrets(
    table: &ConfigKeyPath,
    values: &Map<String, Value>,
    variables: &ExpandedVariables,
) -> Vec<ConfigSecret> {
    let mut found = Vec::new();
    for (key, value) in values {
        collect_value_secrets(
            value,
            &mut table.with_key(key),
            table.depth(),
            variables,
            &mut found,
        );
    }
    found
}

fn collect_value_secrets(
    value: &Value,
    path: &mut ConfigKeyPath,
    table: usize,
    variables: &ExpandedVariables,
    found: &mut Vec<ConfigSecret>,
) {
    match value {
        Value::String(text) => {
            let variables = variables.get(path).map(Vec::as_slice).unwrap_or_default();
            collect_text_secrets(text, &path.skip_segments(table), variables, found);
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push_index(index);
                collect_value_secrets(item, path, table, variables, found);
                path.pop();
            }
        }
        Value::Object(object) => {
            for (key, value) in object {
                path.push_key(key);
                collect_value_secrets(value, path, table, variables, found);
                path.pop();
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The whole text, and each variable's part of it: of `Bearer ${TOKEN}` a script
/// or a server may well echo the token alone. Nothing empty, since an empty text
/// hides nothing and occurs everywhere.
fn collect_text_secrets(
    text: &str,
    key: &ConfigKeyPath,
    variables: &[VariableUse],
    found: &mut Vec<ConfigSecret>,
) {
    let key_is = key.key_names().any(is_secret_name);
    let variable_is = variables.iter().any(|variable| variable.is_secret);
    let passwords = find_passwords(text).into_iter().filter(|it| !it.is_empty() && it != text);
    found.extend(passwords.map(|it| ConfigSecret::new(key.to_string(), it, true)));
    if text.is_empty() || (!key_is && variables.is_empty()) {
        return;
    }
    found.push(ConfigSecret::new(key.to_string(), text, key_is || variable_is));
    for VariableUse { value, is_secret, .. } in variables {
        if !value.is_empty() && value != text {
            found.push(ConfigSecret::new(key.to_string(), value, *is_secret));
        }
    }
}

/// The password in `postgres://me:password@db/x`, as it is written there and as it is,
/// or the one in `host=db password=…`.
pub(super) fn find_passwords(text: &str) -> Vec<String> {
    if let Ok(url) = Url::parse(text) {
        let written = url.password().unwrap_or_default();
        let decoded = percent_decode_str(written).decode_utf8_lossy().into_owned();
        let mut both = vec![written.to_owned(), decoded];
        both.dedup();
        return both;
    }
    let word = text.split_whitespace().find_map(|word| word.strip_prefix("password="));
    word.map(|word| word.trim_matches('\'').to_owned()).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_found_in_addresses_and_connection_strings() {
        assert_eq!(find_passwords("postgres://me:p%40ss@db/x"), ["p%40ss", "p@ss"]);
        assert_eq!(find_passwords("https://me:plain@example.com/a.git"), ["plain"]);
        assert_eq!(find_passwords("host=db user=me password='pw' dbname=x"), ["pw"]);
        for text in ["https://example.com/", "https://me@example.com/", "a: b", ""] {
            assert!(find_passwords(text).iter().all(String::is_empty), "{text}");
        }
    }
}
