//! What a schema expects, in words for messages and hints.

use serde_json::Value;
use toml::de::DeValue;

use super::super::key_path::ConfigKeyPath;
use super::super::variable_expansion::ExpansionFault;
use crate::{ByteSize, HumanDuration};
use moonlark_state::secrets_file;

/// Whether a value of this TOML type can fit at all.
pub(super) fn accepts_toml_type(schema: &Value, value: &DeValue<'_>) -> bool {
    let mut types = schema_types(schema).peekable();
    if types.peek().is_none() {
        return true;
    }
    types.any(|name| match value {
        DeValue::String(_) => name == "string",
        DeValue::Integer(_) => name == "integer" || name == "number",
        DeValue::Float(_) => name == "number",
        DeValue::Boolean(_) => name == "boolean",
        DeValue::Array(_) => name == "array",
        DeValue::Table(_) => name == "object",
        DeValue::Datetime(_) => false,
    })
}

/// "an integer", "a size".
pub(super) fn expected_type_phrase(schema: &Value) -> &'static str {
    if schema["format"] == ByteSize::SCHEMA_FORMAT {
        return "a size";
    }
    if schema["format"] == HumanDuration::SCHEMA_FORMAT {
        return "a time";
    }
    match schema_types(schema).next() {
        Some("string") => "a string",
        Some("integer") => "an integer",
        Some("number") => "a number",
        Some("boolean") => "a boolean",
        Some("array") => "an array",
        Some("object") => "a table",
        _ => "something else",
    }
}

/// How to write it right.
pub(super) fn correction_hint(schema: &Value, path: &ConfigKeyPath) -> String {
    if let Some(example) = example_value(schema) {
        return format!("for example: {} = {example}", path.last_segment());
    }
    if let Some(word) = schema["enum"].get(0) {
        return format!("for example: {} = {word}", path.last_segment());
    }
    match schema_types(schema).next() {
        Some("object") => format!("write it as a table: [{path}]"),
        Some("string") => "write it in quotes".to_owned(),
        _ => "write it as a string, or leave it out".to_owned(),
    }
}

/// The default where it says something, else the example, as TOML.
pub(super) fn example_value(schema: &Value) -> Option<String> {
    let default = schema.get("default").filter(|default| *default != &Value::Array(Vec::new()));
    default.or_else(|| schema.get("examples")?.get(0)).map(Value::to_string)
}

/// How to write the key at `path` right, going by what the whole schema says of it.
pub(in super::super) fn hint_for_path(schema: &Value, path: &ConfigKeyPath) -> Option<String> {
    let below = |schema: &'_ Value, key: &str| match schema["properties"].get(key) {
        Some(known) => known.clone(),
        None if schema.get("items").is_some() => schema["items"]["properties"][key].clone(),
        None => schema["additionalProperties"].clone(),
    };
    let found = path.key_names().fold(schema.clone(), |schema, key| below(&schema, key));
    let key = path.key_names().last()?;
    example_value(&found).map(|example| format!("for example: {key} = {example}"))
}

/// What takes the place of a value that has to be there and is not.
pub(super) fn placeholder_value(schema: &Value) -> Value {
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    match schema_types(schema).next() {
        Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or_else(|| 1.into()),
        Some("boolean") => Value::Bool(false),
        Some("array") => Value::Array(Vec::new()),
        Some("object") => Value::Object(serde_json::Map::new()),
        _ => Value::String(String::new()),
    }
}

/// Why a string has no value, and what to do about it. Reads on from the key.
pub(super) fn describe_expansion_fault(fault: ExpansionFault) -> (String, String) {
    let literal = "write \"${NAME}\" for a variable, or \"$${\" for a literal \"${\"";
    match fault {
        ExpansionFault::Missing(name) => (
            format!("needs the environment variable {name}, which is not set"),
            format!(
                "set {name}, or add a line {name}=… to {}, or write a default: \"${{{name}:-default}}\"",
                secrets_file::secrets_file_display_path()
            ),
        ),
        ExpansionFault::UnreadableFile { path, why } => (
            format!("needs the file {path}: {why}"),
            "the path is seen from the folder of the configuration file; the file holds the value and nothing else".to_owned(),
        ),
        ExpansionFault::Unterminated => ("has a \"${\" without a \"}\"".to_owned(), literal.to_owned()),
        ExpansionFault::NotAName => {
            ("has a \"${…}\" that names no variable".to_owned(), literal.to_owned())
        }
        ExpansionFault::NestedDefault(name) => (
            format!("has a \"${{\" inside the default of {name}"),
            "a default is plain text; leave the inner variable out".to_owned(),
        ),
    }
}

/// What the number must be, when it is not.
pub(super) fn range_violation(schema: &Value, number: f64) -> Option<String> {
    let bound = |keyword: &str| schema.get(keyword).and_then(Value::as_f64);
    let (minimum, above, maximum) = (bound("minimum"), bound("exclusiveMinimum"), bound("maximum"));

    let fits = minimum.is_none_or(|minimum| number >= minimum)
        && above.is_none_or(|above| number > above)
        && maximum.is_none_or(|maximum| number <= maximum);
    if fits {
        return None;
    }
    let bounds = [
        minimum.map(|minimum| format!("at least {minimum}")),
        above.map(|above| format!("more than {above}")),
        maximum.map(|maximum| format!("at most {maximum}")),
    ];
    Some(format!("must be {}", bounds.into_iter().flatten().collect::<Vec<_>>().join(" and ")))
}

/// The keys of a table that may be set.
pub(super) fn schema_properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema["properties"].as_object().into_iter().flatten()
}

fn schema_types(schema: &Value) -> impl Iterator<Item = &str> {
    let (one, many) = (schema["type"].as_str(), schema["type"].as_array());
    one.into_iter().chain(many.into_iter().flatten().filter_map(Value::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config_json_schema;

    /// Constraints are checked here or in `check`; the rest only describes.
    const CHECKED: [&str; 12] = [
        "additionalProperties",
        "enum",
        "exclusiveMinimum",
        "format",
        "items",
        "maximum",
        "minLength",
        "minimum",
        "pattern", // of a size, which is parsed instead
        "properties",
        "required",
        "type",
    ];
    const DESCRIBING: [&str; 5] = ["$schema", "default", "description", "examples", "title"];

    fn check_keywords(schema: &Value) {
        let Value::Object(object) = schema else {
            return;
        };
        for (keyword, value) in object {
            let known =
                CHECKED.contains(&keyword.as_str()) || DESCRIBING.contains(&keyword.as_str());
            assert!(known, "the checker does not know {keyword}");
            match (keyword.as_str(), value) {
                ("properties", Value::Object(properties)) => {
                    properties.values().for_each(check_keywords);
                }
                ("items" | "additionalProperties", value) => check_keywords(value),
                ("minLength", value) => assert_eq!(value, 1),
                ("pattern", _) => assert_eq!(object["format"], ByteSize::SCHEMA_FORMAT),
                _ => {}
            }
        }
        if object.get("type").is_some_and(|name| name == "integer") {
            assert!(object.contains_key("maximum"), "an integer without a maximum: {schema}");
        }
    }

    #[test]
    fn the_checker_knows_every_keyword_that_the_structs_produce() {
        check_keywords(config_json_schema());
    }
}
