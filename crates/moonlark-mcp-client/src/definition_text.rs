//! The texts of an upstream's definitions that agents read: cleaned and bounded,
//! wherever in a definition they stand.

use std::borrow::Cow;

use moonlark_core::Value;
use moonlark_core::foreign_text::{MAX_DESCRIPTION_BYTES, MAX_FIELD_TEXT_BYTES, clean_text};
use moonlark_core::limits::format_size;
use moonlark_core::value::Object;

/// Clean every text of an MCP definition that agents read. How much of its
/// description was left out, if any was.
pub(crate) fn clean_definition(definition: &mut Object) -> Option<String> {
    let before = text_field(definition, "description").len();
    clean_field(definition, "description", MAX_DESCRIPTION_BYTES);
    clean_field(definition, "title", MAX_FIELD_TEXT_BYTES);
    if let Some(Value::Object(annotations)) = definition.get_mut("annotations") {
        clean_field(annotations, "title", MAX_FIELD_TEXT_BYTES);
    }
    for key in ["inputSchema", "outputSchema"] {
        if let Some(schema) = definition.get_mut(key) {
            clean_schema(schema);
        }
    }
    (before > MAX_DESCRIPTION_BYTES).then(|| {
        format!(
            "its description is {} long: the first {} are used",
            format_size(before),
            format_size(MAX_DESCRIPTION_BYTES)
        )
    })
}

/// The same for an entry of a list of resources or prompts, which describes itself
/// and its arguments.
pub(crate) fn clean_entry(entry: &mut Object) {
    clean_texts(entry);
    if let Some(Value::Array(arguments)) = entry.get_mut("arguments") {
        for argument in arguments {
            if let Value::Object(argument) = argument {
                clean_texts(argument);
            }
        }
    }
}

/// Values are of bounded depth by the time they come here.
fn clean_schema(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            clean_texts(fields);
            fields.values_mut().for_each(clean_schema);
        }
        Value::Array(items) => items.iter_mut().for_each(clean_schema),
        _ => {}
    }
}

/// The text in a field of a definition; empty if there is none.
pub(crate) fn text_field<'a>(definition: &'a Object, key: &str) -> &'a str {
    definition.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn clean_texts(fields: &mut Object) {
    for key in ["description", "title"] {
        clean_field(fields, key, MAX_FIELD_TEXT_BYTES);
    }
}

fn clean_field(fields: &mut Object, key: &str, max_bytes: usize) {
    if let Some(Value::Str(text)) = fields.get_mut(key)
        && let Cow::Owned(clean) = clean_text(text, max_bytes)
    {
        *text = clean;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn resources_and_prompts_are_cleaned_with_their_arguments() {
        let entry = json!({"name": "p", "description": "d\u{1b}", "arguments": [{"name": "a", "description": "x\u{202e}y"}]});
        let Value::Object(mut entry) = Value::from_json(entry).unwrap() else { panic!() };
        clean_entry(&mut entry);
        assert_eq!(
            Value::Object(entry).to_json_lossy(),
            json!({"name": "p", "description": "d", "arguments": [{"name": "a", "description": "xy"}]})
        );
    }

    #[test]
    fn a_definition_is_cleaned_wherever_agents_read_it() {
        let long = "x".repeat(3 * MAX_DESCRIPTION_BYTES);
        let definition = json!({
            "name": "t",
            "description": long,
            "title": "T\u{1b}",
            "annotations": {"title": "A\u{1b}"},
            "inputSchema": {"properties": {"description": {"description": "p\u{1b}", "type": "string"},
                "deep": {"anyOf": [{"description": long}]}}},
        });
        let Value::Object(mut definition) = Value::from_json(definition).unwrap() else { panic!() };
        let said = clean_definition(&mut definition);
        assert_eq!(said.as_deref(), Some("its description is 24 KB long: the first 8 KB are used"));
        let shown = Value::Object(definition).to_json_lossy();
        assert!(shown.to_string().len() < 12 * 1024, "{}", shown.to_string().len());
        assert!(!shown.to_string().contains("\\u001b"), "{shown}");
        assert_eq!(shown["inputSchema"]["properties"]["description"]["type"], "string");
    }
}
