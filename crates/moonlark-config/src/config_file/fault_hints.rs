//! Hints for mistakes in the configuration, by key and by kind.

use serde_json::Value;

use super::document_check::hint_for_path;
use super::key_path::ConfigKeyPath;

pub(super) fn fault_hint(schema: &Value, key: &ConfigKeyPath, message: &str) -> String {
    let last = key.last_segment();
    if message.starts_with("the name may") || message.starts_with("another connector has") {
        let mut table: Vec<&str> = key.key_names().collect();
        table.pop();
        return format!("rename the table, for example [{}.my-name]", table.join("."));
    }
    if message.contains("exclude each other") {
        return "remove one of the two".to_owned();
    }
    if let Some(other) = message.strip_prefix("belongs to ").and_then(|it| it.split(',').next()) {
        return format!("remove {last}, or set {other}");
    }
    if message.starts_with("needs ") {
        return match key.key_names().next() {
            Some("mcp_servers") => {
                "add command = \"npx\" with args, or url = \"https://…\"".to_owned()
            }
            Some("apis") => "add a line such as spec = \"openapi.yaml\"".to_owned(),
            _ => format!("add it to [{key}]"),
        };
    }
    if message.contains("takes away") {
        return format!("remove {last}, or write another action");
    }
    hint_for_path(schema, key).unwrap_or_else(|| format!("correct {key}, or leave it out"))
}
