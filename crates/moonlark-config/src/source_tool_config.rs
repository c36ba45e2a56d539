//! `[mcp_servers.NAME.tools.TOOL]` and `[apis.NAME.tools.OPERATION]`: what the
//! operator says about one tool of a source.

use std::collections::BTreeMap;

use moonlark_core::Value as ToolValue;
use moonlark_core::tool_config::{EffectsConfig, ToolConfig};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use url::Url;

/// One tool, by the name that its source has for it. Keys that are set override the
/// source.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SourceToolConfig {
    /// Another name for it. Rules match both.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), example = &"remove_repository")]
    pub name: Option<String>,
    /// The description that agents see; overrides that of its source.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", length(min = 1), example = &"Delete a repository for good.")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "SourceToolEffects::is_empty")]
    pub effects: SourceToolEffects,
    /// Fixed arguments: sent with every call, hidden from agents and scripts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(with = "Map<String, Value>")]
    pub arguments: BTreeMap<String, Value>,
}

/// The tool's annotations: what a call does. Rules, plans and replay use them.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SourceToolEffects {
    /// It changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool", example = true)]
    pub read_only: Option<bool>,
    /// It may destroy something.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool", example = false)]
    pub destructive: Option<bool>,
    /// Calling it twice does the same as calling it once.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool", example = true)]
    pub idempotent: Option<bool>,
    /// It reaches beyond its own server, such as the web.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool", example = false)]
    pub open_world: Option<bool>,
}

impl SourceToolEffects {
    fn is_empty(&self) -> bool {
        *self == SourceToolEffects::default()
    }
}

impl SourceToolConfig {
    pub(crate) fn to_tool_config(&self) -> ToolConfig {
        let SourceToolEffects { read_only, destructive, idempotent, open_world } = self.effects;
        ToolConfig {
            name: self.name.clone(),
            description: self.description.clone(),
            effects: EffectsConfig { read_only, destructive, idempotent, open_world },
            arguments: to_tool_values(&self.arguments).collect(),
        }
    }
}

/// Fixed arguments, as the one that calls takes them.
pub fn to_tool_values(
    arguments: &BTreeMap<String, Value>,
) -> impl Iterator<Item = (String, ToolValue)> {
    let read =
        |(key, it): (&String, &Value)| Some((key.clone(), ToolValue::from_json(it.clone()).ok()?));
    arguments.iter().filter_map(read)
}

/// The tables of a source, as the one that calls takes them.
pub fn tool_configs(tools: &BTreeMap<String, SourceToolConfig>) -> BTreeMap<String, ToolConfig> {
    tools.iter().map(|(name, it)| (name.clone(), it.to_tool_config())).collect()
}

/// Their fixed arguments, which may be secrets.
pub(crate) fn fixed_arguments(tools: &BTreeMap<String, SourceToolConfig>) -> Value {
    let each = tools.iter().filter(|(_, it)| !it.arguments.is_empty()).map(|(name, it)| {
        let arguments: Map<String, Value> = it.arguments.clone().into_iter().collect();
        let table = Map::from_iter([("arguments".to_owned(), Value::Object(arguments))]);
        (name.clone(), Value::Object(table))
    });
    Value::Object(each.collect())
}

/// A fault of `tools.TOOL` that no schema says.
pub(crate) struct SourceToolFault<'a> {
    pub tool: &'a str,
    /// The key of its table.
    pub key: &'static str,
    pub message: String,
    pub hint: &'static str,
}

pub(crate) fn find_tool_faults(
    tools: &BTreeMap<String, SourceToolConfig>,
) -> Vec<SourceToolFault<'_>> {
    let mut faults = Vec::new();
    let mut names: BTreeMap<&str, &str> = BTreeMap::new();
    for (tool, it) in tools {
        let mut report = |key: &'static str, message: &str, hint: &'static str| {
            faults.push(SourceToolFault { tool, key, message: message.to_owned(), hint });
        };
        if it.effects.read_only == Some(true) && it.effects.destructive == Some(true) {
            let message = "a tool cannot be both read_only and destructive";
            report("effects", message, "remove one of the two");
        }
        if let Some(name) = it.name.as_deref() {
            let plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-' | '.');
            if name.len() > 64 || !name.chars().all(plain) {
                let message = "a name may have letters, digits, -, _ and ., and at most 64 of them";
                report("name", message, "write a name such as \"read_file\"");
            }
            if let Some(other) = names.insert(name, tool) {
                let message = format!("{other} has the name {name:?} already");
                report("name", &message, "give one of them another name");
            }
        }
    }
    faults
}

/// What is wrong with a text that is to be an address of the web.
pub(crate) fn web_address_fault(text: &str) -> Option<String> {
    let is_web = |url: Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    let message = "must be an address that begins with http:// or https://";
    (!Url::parse(text).is_ok_and(is_web)).then(|| message.to_owned())
}

/// A name of a source: letters, digits, `-`, `_`, and dots between them.
pub(crate) fn source_name_fault(name: &str) -> Option<String> {
    let plain = |it: char| it.is_ascii_alphanumeric() || matches!(it, '_' | '-' | '.');
    let dots = name.starts_with('.') || name.ends_with('.') || name.contains("..");
    let bad = name.is_empty() || name.len() > 64 || dots || !name.chars().all(plain);
    bad.then(|| {
        "the name may have letters, digits, -, _ and single dots inside, and at most 64 of them"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sources_may_have_dots_inside() {
        for name in ["my.api", "a", "a-b_c.d2"] {
            assert_eq!(source_name_fault(name), None, "{name}");
        }
        for name in ["", ".", "..", ".a", "a.", "a..b", "a/b", "ä", "a b", &"x".repeat(65)] {
            assert!(source_name_fault(name).is_some(), "{name}");
        }
    }

    #[test]
    fn effects_that_contradict_each_other_and_names_given_twice_are_faults() {
        let tools =
            |toml: &str| toml::from_str::<BTreeMap<String, SourceToolConfig>>(toml).unwrap();
        let faults = |toml: &str| {
            let tools = tools(toml);
            let faults = find_tool_faults(&tools).into_iter();
            faults.map(|it| format!("{}.{}", it.tool, it.key)).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(faults("[a]\nname = 'x'\neffects = { read_only = true }"), "");
        assert_eq!(faults("[a]\neffects = { read_only = true, destructive = true }"), "a.effects");
        assert_eq!(faults("[a]\nname = 'x'\n[b]\nname = 'x'"), "b.name");
        assert_eq!(faults("[a]\nname = 'x y'"), "a.name");
    }
}
