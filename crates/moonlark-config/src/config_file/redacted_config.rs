//! The effective configuration as text, with defaults and without secrets.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::LoadedConfig;
use super::config_secrets::find_passwords;
use super::key_path::ConfigKeyPath;
use crate::ConfigSecret;

/// A `moonlark.toml` that means the same, but for secrets, which are
/// `"[redacted]"`.
pub fn render_redacted_config(loaded: &LoadedConfig) -> String {
    let mut shown = serde_json::to_value(&loaded.config).unwrap_or_default();
    let config = &loaded.config;
    let tools = config.tools.script.iter().map(|(name, it)| ("tools", name, &it.config));
    let extensions =
        config.extensions.script.iter().map(|(name, it)| ("extensions", name, &it.config));
    let connectors =
        config.connectors.script.iter().map(|(name, it)| ("connectors", name, &it.config));
    let agents = config.agents.script.iter().map(|(name, it)| ("agents", name, &it.config));
    for (kind, name, own) in tools.chain(extensions).chain(connectors).chain(agents) {
        if let Value::Object(table) = &mut shown[kind]["script"][name] {
            table.extend(own.values.clone());
            redact_table(table, &own.secrets);
        }
    }
    let servers = config.mcp_servers.iter().map(|(name, it)| ("mcp_servers", name, &it.secrets));
    let apis = config.apis.iter().map(|(name, it)| ("apis", name, &it.secrets));
    for (kind, name, secrets) in servers.chain(apis) {
        if let Value::Object(table) = &mut shown[kind][name] {
            redact_table(table, secrets);
        }
    }
    if let Value::Object(table) = &mut shown {
        redact_table(table, &config.secrets);
    }
    redact_passwords_and_escape(&mut shown, &loaded.absent_texts);
    // By way of our own value: JSON numbers may be kept as text, which only
    // JSON itself understands. Nothing here can fail: only a null could, and
    // TOML, where all of it came from, has none.
    let shown = moonlark_core::Value::from_json(shown).unwrap_or_default();
    toml::to_string_pretty(&shown).unwrap_or_default()
}

fn redact_table(table: &mut Map<String, Value>, secrets: &[ConfigSecret]) {
    let secret = secrets.iter().map(|secret| secret.key.as_str()).collect();
    for (key, value) in table {
        redact_value(value, &mut ConfigKeyPath::from_keys([key]), &secret);
    }
}

fn redact_value(value: &mut Value, path: &mut ConfigKeyPath, secret: &BTreeSet<&str>) {
    match value {
        Value::String(text) if secret.contains(path.to_string().as_str()) => {
            "[redacted]".clone_into(text);
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                path.push_index(index);
                redact_value(item, path, secret);
                path.pop();
            }
        }
        Value::Object(object) => {
            for (key, value) in object {
                path.push_key(key);
                redact_value(value, path, secret);
                path.pop();
            }
        }
        _ => {}
    }
}

/// Addresses lose their passwords. A `${` that is left after expansion is literal, and
/// is written as such, unless the variable has no value.
fn redact_passwords_and_escape(value: &mut Value, absent: &BTreeSet<String>) {
    match value {
        Value::String(text) if absent.contains(text) => {}
        Value::String(text) => {
            for password in find_passwords(text).iter().filter(|it| !it.is_empty()) {
                *text = text.replace(password, "[redacted]");
            }
            *text = text.replace("${", "$${");
        }
        Value::Array(items) => {
            items.iter_mut().for_each(|item| redact_passwords_and_escape(item, absent))
        }
        Value::Object(object) => {
            object.values_mut().for_each(|value| redact_passwords_and_escape(value, absent))
        }
        _ => {}
    }
}
