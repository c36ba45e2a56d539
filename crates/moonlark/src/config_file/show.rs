//! The effective configuration as text, with defaults and without secrets.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::Loaded;
use super::key_path::KeyPath;
use crate::config::ScriptConfig;

/// A `moonlark.toml` that means the same, but for secrets, which are
/// `"[redacted]"`.
pub fn show(loaded: &Loaded) -> String {
    let mut shown = serde_json::to_value(&loaded.config).unwrap_or_default();
    let config = &loaded.config;
    let tools = config.tools.script.iter().map(|(name, it)| ("tools", name, &it.config));
    let extensions =
        config.extensions.script.iter().map(|(name, it)| ("extensions", name, &it.config));
    let connectors =
        config.connectors.script.iter().map(|(name, it)| ("connectors", name, &it.config));
    for (kind, name, own) in tools.chain(extensions).chain(connectors) {
        if let Value::Object(table) = &mut shown[kind]["script"][name] {
            table.extend(redacted(own));
        }
    }
    escape(&mut shown);
    // By way of our own value: JSON numbers may be kept as text, which only
    // JSON itself understands. Nothing here can fail: only a null could, and
    // TOML, where all of it came from, has none.
    let shown = moonlark_core::Value::from_json(shown).unwrap_or_default();
    toml::to_string_pretty(&shown).unwrap_or_default()
}

fn redacted(config: &ScriptConfig) -> Map<String, Value> {
    let secret = config.secrets.iter().map(|secret| secret.key.as_str()).collect();
    let mut values = config.values.clone();
    for (key, value) in &mut values {
        redact(value, &mut KeyPath::of([key]), &secret);
    }
    values
}

fn redact(value: &mut Value, path: &mut KeyPath, secret: &BTreeSet<&str>) {
    match value {
        Value::String(text) if secret.contains(path.to_string().as_str()) => {
            "[redacted]".clone_into(text);
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                path.index(index);
                redact(item, path, secret);
                path.pop();
            }
        }
        Value::Object(object) => {
            for (key, value) in object {
                path.key(key);
                redact(value, path, secret);
                path.pop();
            }
        }
        _ => {}
    }
}

/// A `${` that is left after expansion is literal, and is written as such.
fn escape(value: &mut Value) {
    match value {
        Value::String(text) => *text = text.replace("${", "$${"),
        Value::Array(items) => items.iter_mut().for_each(escape),
        Value::Object(object) => object.values_mut().for_each(escape),
        _ => {}
    }
}
