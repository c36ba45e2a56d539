//! Text that a server or an API document wrote and agents read: without
//! characters that nobody sees, and of bounded length.

use std::borrow::Cow;

use moonlark_core::Value;
use moonlark_core::limits::format_size;
use moonlark_core::value::Object;
use serde_json::Value as Json;

/// Of the description of a tool.
pub(crate) const MAX_DESCRIPTION_BYTES: usize = 8 * 1024;
/// Of the description of one parameter or field, and of a title.
pub(crate) const MAX_FIELD_TEXT_BYTES: usize = 2 * 1024;
/// Of a tag that operations are filed under.
pub(crate) const MAX_TAG_BYTES: usize = 128;
/// Of what a server tells its users about itself.
pub(crate) const MAX_INSTRUCTIONS_BYTES: usize = 32 * 1024;

/// The text without invisible control characters, and its first `max_bytes` with a
/// note if it is longer.
pub(crate) fn clean_text(text: &str, max_bytes: usize) -> Cow<'_, str> {
    let visible: Cow<'_, str> = if text.contains(is_invisible) {
        text.chars().filter(|it| !is_invisible(*it)).collect::<String>().into()
    } else {
        text.into()
    };
    if visible.len() <= max_bytes {
        return visible;
    }
    let end = (0..=max_bytes).rev().find(|end| visible.is_char_boundary(*end)).unwrap_or(0);
    let left_out = format_size(visible.len() - end);
    format!("{}… ({left_out} left out)", visible[..end].trim_end()).into()
}

/// Controls that terminals act on, marks that turn the direction of the text, and
/// letters that only machines read.
fn is_invisible(letter: char) -> bool {
    match letter {
        '\n' | '\t' => false,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}' => true,
        other => other.is_control(),
    }
}

/// Clean every text of an MCP definition that agents read. How much of its
/// description was left out, if any was.
pub(crate) fn clean_definition(definition: &mut Object) -> Option<String> {
    let before = match definition.get("description") {
        Some(Value::Str(text)) => text.len(),
        _ => 0,
    };
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
    clean_field(entry, "description", MAX_FIELD_TEXT_BYTES);
    clean_field(entry, "title", MAX_FIELD_TEXT_BYTES);
    if let Some(Value::Array(arguments)) = entry.get_mut("arguments") {
        for argument in arguments {
            if let Value::Object(argument) = argument {
                clean_field(argument, "description", MAX_FIELD_TEXT_BYTES);
                clean_field(argument, "title", MAX_FIELD_TEXT_BYTES);
            }
        }
    }
}

/// Values are of bounded depth by the time they come here.
fn clean_schema(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            for key in ["description", "title"] {
                clean_field(fields, key, MAX_FIELD_TEXT_BYTES);
            }
            fields.values_mut().for_each(clean_schema);
        }
        Value::Array(items) => items.iter_mut().for_each(clean_schema),
        _ => {}
    }
}

fn clean_field(fields: &mut Object, key: &str, max_bytes: usize) {
    if let Some(Value::Str(text)) = fields.get_mut(key)
        && let Cow::Owned(clean) = clean_text(text, max_bytes)
    {
        *text = clean;
    }
}

/// The text of a schema as JSON has it.
pub(crate) fn clean_json_text(text: &str) -> Json {
    Json::String(clean_text(text, MAX_FIELD_TEXT_BYTES).into_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_nobody_sees_is_taken_out_and_what_is_long_is_cut() {
        for (text, expected) in [
            ("a\tb\nc", "a\tb\nc"),
            ("\u{1b}[31mred\u{7}\r", "[31mred"),
            ("a\u{202e}b\u{2066}c\u{e0041}d\u{9b}e", "abcde"),
            ("größe 👩‍👩‍👧", "größe 👩‍👩‍👧"),
        ] {
            assert_eq!(clean_text(text, 100), expected);
        }
        assert_eq!(clean_text("ääää", 5), "ää… (4 bytes left out)");
    }

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
