//! Operator settings of single tools of a source: which there are, their names, effects
//! and fixed arguments.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::grant::matches_pattern;
use crate::nearest::nearest_name;
use crate::sdk::to_identifier;
use crate::tool::CallEffects;
use crate::value::shorten_text;
use crate::{Problem, SourceLocation, Value};
use serde_json::{Map, Value as Json};

/// What the operator says about one tool; nothing where the source is right.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolConfig {
    pub name: Option<String>,
    pub description: Option<String>,
    pub effects: EffectsConfig,
    /// Arguments that are always the same, and that callers neither see nor give.
    pub arguments: BTreeMap<String, Value>,
}

/// What a call does to the world, as far as the operator says so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EffectsConfig {
    pub read_only: Option<bool>,
    pub destructive: Option<bool>,
    pub idempotent: Option<bool>,
    pub open_world: Option<bool>,
}

impl EffectsConfig {
    pub fn is_empty(self) -> bool {
        self == EffectsConfig::default()
    }

    /// What of it asks for more care than nothing said at all.
    pub fn only_stricter(self) -> EffectsConfig {
        EffectsConfig {
            read_only: self.read_only.filter(|it| !it),
            destructive: self.destructive.filter(|it| *it),
            idempotent: self.idempotent.filter(|it| !it),
            open_world: self.open_world.filter(|it| *it),
        }
    }

    /// The effects that hold where the source says `said`.
    pub fn apply_to(self, said: CallEffects) -> CallEffects {
        let read_only = self.read_only.unwrap_or(said.read_only);
        // What a source says about a tool that reads says nothing about one that writes.
        let rest = if read_only == said.read_only { said } else { CallEffects::default() };
        CallEffects {
            read_only,
            destructive: self.destructive.unwrap_or(!read_only && rest.destructive),
            idempotent: self.idempotent.unwrap_or(read_only || rest.idempotent),
            open_world: self.open_world.unwrap_or(said.open_world),
        }
    }
}

/// One entry of `include` or `exclude`: `create_*`, or `tag:issues`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolPattern {
    Name(String),
    Tag(String),
}

impl FromStr for ToolPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        match text.strip_prefix("tag:").map(str::trim) {
            Some("") => Err("a tag must not be empty".to_owned()),
            None if text.is_empty() => Err("a pattern must not be empty".to_owned()),
            Some(tag) => Ok(ToolPattern::Tag(tag.to_owned())),
            None => Ok(ToolPattern::Name(text.to_owned())),
        }
    }
}

impl fmt::Display for ToolPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ToolPattern::Name(name) => f.write_str(name),
            ToolPattern::Tag(tag) => write!(f, "tag:{tag}"),
        }
    }
}

impl ToolPattern {
    pub fn matches_tool(&self, name: &str, tags: &[&str]) -> bool {
        match self {
            ToolPattern::Name(pattern) => matches_pattern(pattern, name),
            ToolPattern::Tag(pattern) => tags.iter().any(|tag| matches_pattern(pattern, tag)),
        }
    }
}

/// The key of a source in the configuration, such as `mcp_servers.git`.
#[derive(Clone, Copy)]
pub struct SourceKey<'a> {
    pub table: &'static str,
    pub name: &'a str,
}

impl SourceKey<'_> {
    fn config_place(self, rest: &str) -> SourceLocation {
        SourceLocation::in_file(format!("{}.{}.{rest}", self.table, self.name))
    }

    /// An entry of `include` or `exclude` that fits nothing.
    pub fn unmatched_pattern_problem<'a>(
        self,
        key: &str,
        pattern: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Problem {
        let near = nearest_name(pattern, known);
        Problem::bad_config(format!(
            "\"{}\" in {key} matches no tool of '{}'",
            shorten_text(pattern),
            self.name
        ))
        .at_location(self.config_place(key))
        .with_hint(match near {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("correct it, or take it out of {key}"),
        })
    }

    /// A table for a tool that the source does not have.
    pub fn unknown_tool_problem<'a>(
        self,
        tool: &str,
        known: impl IntoIterator<Item = &'a str>,
    ) -> Problem {
        let near = nearest_name(tool, known);
        let message = format!("'{}' has no tool named {}", self.name, shorten_text(tool));
        Problem::bad_config(message)
            .at_location(self.config_place(&format!("tools.{tool}")))
            .with_hint(match near {
                Some(near) => format!("did you mean {near}?"),
                None => "it is named as the source itself names it".to_owned(),
            })
    }

    /// A fixed argument that the tool does not take.
    pub fn unknown_argument_problem(self, tool: &str, argument: &str) -> Problem {
        Problem::bad_config(format!(
            "{tool} of '{}' takes no argument named {}",
            self.name,
            shorten_text(argument)
        ))
        .at_location(self.config_place(&format!("tools.{tool}.arguments")))
        .with_hint("it is sent all the same; take it out if that is a mistake")
    }

    /// Tools whose names differ only in what cannot be part of an identifier.
    pub fn name_collision_problems<'a>(
        self,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Vec<Problem> {
        let mut by_identifier: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        for name in names {
            let same = by_identifier.entry(to_identifier(name)).or_default();
            if !same.contains(&name) {
                same.push(name);
            }
        }
        by_identifier.retain(|_, names| names.len() > 1);
        by_identifier
            .into_iter()
            .map(|(shared, names)| self.collision_problem(&shared, &names))
            .collect()
    }

    fn collision_problem(self, shared: &str, names: &[&str]) -> Problem {
        let first = names.iter().find(|name| **name == shared).unwrap_or(&names[0]);
        let others: Vec<&str> = names.iter().copied().filter(|name| name != first).collect();
        let verb = if others.len() == 1 { "gets" } else { "get" };
        let SourceKey { table, name } = self;
        Problem::bad_config(format!(
            "tools {} of '{name}' are all sdk.{}.{shared} in scripts: that is {first}, and {} {verb} a number behind it",
            names.join(", "),
            to_identifier(name),
            others.join(", "),
        ))
        .at_location(SourceLocation::in_file(format!("{table}.{name}")))
        .with_hint(format!(
            "give one of them another name: [{table}.{name}.tools.{:?}] name = \"…\"",
            others.first().copied().unwrap_or(first)
        ))
    }
}

/// Take fixed arguments out of a schema of arguments. Those that were not in it.
pub fn hide_arguments<'a>(
    schema: &mut Map<String, Json>,
    fixed: &'a BTreeMap<String, Value>,
) -> Vec<&'a str> {
    let properties = schema.get_mut("properties").and_then(Json::as_object_mut);
    let unknown = match properties {
        Some(properties) => {
            fixed.keys().filter(|name| properties.remove(*name).is_none()).collect::<Vec<_>>()
        }
        None => fixed.keys().collect(),
    };
    if let Some(Json::Array(required)) = schema.get_mut("required") {
        required.retain(|name| name.as_str().is_none_or(|name| !fixed.contains_key(name)));
        if required.is_empty() {
            schema.remove("required");
        }
    }
    unknown.into_iter().map(String::as_str).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn effects_of_the_operator_come_before_those_of_the_source() {
        let careful = CallEffects::default();
        let set = |read_only, destructive, idempotent| EffectsConfig {
            read_only,
            destructive,
            idempotent,
            open_world: None,
        };
        let reads = set(Some(true), None, None).apply_to(careful);
        assert!(reads.read_only && !reads.destructive && reads.idempotent && reads.open_world);
        let writes = set(Some(false), None, None).apply_to(CallEffects::READ_ONLY);
        assert!(!writes.read_only && writes.destructive && !writes.idempotent);
        assert!(!writes.open_world);
        let adds = set(None, Some(false), Some(true)).apply_to(careful);
        assert!(!adds.read_only && !adds.destructive && adds.idempotent);
        assert_eq!(set(None, None, None).apply_to(careful), careful);
    }

    #[test]
    fn fixed_arguments_are_nowhere_in_the_schema() {
        let schema = json!({
            "type": "object",
            "properties": {"owner": {}, "repo": {}},
            "required": ["owner"],
        });
        let mut schema = schema.as_object().unwrap().clone();
        let fixed = ["owner", "other"].map(|it| (it.to_owned(), Value::Null)).into();
        assert_eq!(hide_arguments(&mut schema, &fixed), ["other"]);
        assert_eq!(Json::Object(schema), json!({"type": "object", "properties": {"repo": {}}}));
    }

    #[test]
    fn names_that_are_one_identifier_are_said() {
        let said = SourceKey { table: "mcp_servers", name: "fs" }.name_collision_problems([
            "read-file",
            "read_file",
            "list",
            "list",
        ]);
        assert_eq!(said.len(), 1);
        assert_eq!(
            said[0].message,
            "tools read-file, read_file of 'fs' are all sdk.fs.read_file in scripts: that is read_file, and read-file gets a number behind it"
        );
    }
}
