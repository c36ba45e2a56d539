//! The functions of a catalog as entries of an index: what about each of them
//! can be searched.

use moonlark_core::Tool;
use moonlark_core::catalog::Catalog;
use moonlark_core::sdk::{SdkFunction, SdkSource};
use moonlark_core::value::Value;
use serde_json::{Map, Value as Json};

use crate::index::{Builder, Entry, Index};

/// How deep parameters are looked at, and how much of them.
const DEEPEST: usize = 6;
const MOST: usize = 500;

pub(crate) fn index(catalog: &Catalog) -> Index {
    let mut builder = Builder::with_meaning();
    for (source, function) in all(catalog) {
        builder.add(&entry(source, function));
    }
    builder.finish()
}

/// All functions, in the order of the index.
pub(crate) fn all(catalog: &Catalog) -> impl Iterator<Item = (&SdkSource, &SdkFunction)> {
    let of = |source| -> Box<dyn Iterator<Item = _>> {
        let source: &SdkSource = source;
        Box::new(source.functions.iter().map(move |function| (source, function)))
    };
    catalog.sdk().sources().iter().flat_map(of)
}

fn entry<'a>(source: &'a SdkSource, function: &'a SdkFunction) -> Entry<'a> {
    let tool = &*function.tool;
    let mut entry = Entry {
        names: vec![&function.original],
        aliases: vec![
            format!("{}.{}", source.name, function.name),
            format!("sdk.{}.{}", source.name, function.name),
        ],
        body: vec![&source.original, &tool.description],
        details: Vec::new(),
    };
    entry.names.extend(title(tool).filter(|title| *title != function.original));
    entry.body.extend(tags(tool));
    described(tool.input.json(), 0, &mut entry.details);
    if let Some(output) = &tool.output {
        described(output.json(), 0, &mut entry.details);
    }
    entry
}

fn title(tool: &Tool) -> Option<&str> {
    let definition = tool.definition.as_deref()?;
    let annotated = definition.get("annotations").and_then(|it| it.get("title"));
    definition.get("title").or(annotated)?.as_str()
}

/// What the author of a tool filed it under: `_meta.tags`, or that of a
/// framework, such as `_meta.fastmcp.tags`.
pub(crate) fn tags(tool: &Tool) -> Vec<&str> {
    let meta = tool.definition.as_deref().and_then(|it| it.get("_meta"));
    let Some(Value::Object(meta)) = meta else { return Vec::new() };
    let lists = meta.get("tags").into_iter().chain(meta.values().filter_map(|it| it.get("tags")));
    let tags = lists.filter_map(|list| match list {
        Value::Array(tags) => Some(tags.iter().filter_map(Value::as_str)),
        _ => None,
    });
    tags.flatten().collect()
}

/// The words in a schema: names of fields and types, descriptions, values.
fn described<'a>(schema: &'a Map<String, Json>, depth: usize, words: &mut Vec<&'a str>) {
    if depth == DEEPEST || words.len() >= MOST {
        return;
    }
    for (keyword, value) in schema {
        match (keyword.as_str(), value) {
            ("description" | "title", Json::String(text)) if depth > 0 => words.push(text),
            ("const", Json::String(text)) => words.push(text),
            ("enum", Json::Array(values)) => words.extend(values.iter().filter_map(Json::as_str)),
            ("properties" | "$defs" | "definitions", Json::Object(fields)) => {
                for (name, field) in fields {
                    words.push(name);
                    if let Json::Object(field) = field {
                        described(field, depth + 1, words);
                    }
                }
            }
            ("items" | "additionalProperties", Json::Object(below)) => {
                described(below, depth + 1, words);
            }
            ("anyOf" | "oneOf" | "allOf", Json::Array(choices)) => {
                for choice in choices.iter().filter_map(Json::as_object) {
                    described(choice, depth + 1, words);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_word_of_a_schema_can_be_found() {
        let schema = json!({
            "type": "object",
            "title": "createArguments",
            "description": "Arguments",
            "properties": {
                "state": {"enum": ["open", "closed", 3], "description": "Of the issue"},
                "labels": {"type": "array", "items": {"$ref": "#/$defs/Label"}},
                "at": {"anyOf": [{"type": "null"}, {"const": "now"}]},
            },
            "$defs": {"Label": {"properties": {"color": {"type": "string"}}}},
        });
        let mut words = Vec::new();
        described(schema.as_object().unwrap(), 0, &mut words);
        assert_eq!(
            words,
            ["state", "open", "closed", "Of the issue", "labels", "at", "now", "Label", "color"]
        );
    }
}
