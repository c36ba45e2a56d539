//! Values that a schema lists, and single types, as every model takes them.

use serde_json::{Map, Value as Json, json};

use super::SchemaDirection;
use super::flatten::FlatSchema;
pub(super) use crate::schema::into_fields as as_map;
use crate::schema::json_type_name;

/// Values that are told in words, where models take only texts in a list.
const MAX_TOLD_VALUES: usize = 40;
const MAX_TOLD_CHARS: usize = 200;

/// Anything at all. Some frameworks take no schema without a type, so that it says
/// each.
pub(super) fn any_value(direction: SchemaDirection) -> Map<String, Json> {
    let any = match direction {
        SchemaDirection::Output => json!({}),
        SchemaDirection::Input => {
            let simple = ["string", "number", "boolean", "object"];
            let simple: Vec<Json> = simple.iter().map(|kind| json!({"type": kind})).collect();
            let mut all = simple.clone();
            // Not last: for the items of an array, LangChain gives Gemini the type of the last
            // alternative alone (langchain-google issue 1965), and an array without items is refused.
            all.insert(simple.len() - 1, json!({"type": "array", "items": {"anyOf": simple}}));
            json!({"anyOf": all})
        }
    };
    as_map(any)
}

pub(super) fn is_any_value(schema: &Map<String, Json>, direction: SchemaDirection) -> bool {
    let any = any_value(direction);
    match direction {
        SchemaDirection::Output => schema.is_empty(),
        SchemaDirection::Input => schema.get("anyOf") == any.get("anyOf"),
    }
}

pub(super) fn schema_of_type(kind: &str) -> Map<String, Json> {
    as_map(json!({"type": kind}))
}

/// The values that a schema allows, if it lists them.
pub(super) fn listed_values<'a>(flat: &FlatSchema<'a>) -> Option<Vec<&'a Json>> {
    if let Some(value) = flat.get("const") {
        return Some(vec![value]);
    }
    flat.get("enum").and_then(Json::as_array).map(|values| values.iter().collect())
}

/// A schema for each type among `values` that `types` allows.
pub(super) fn schemas_by_value_type(
    values: &[&Json],
    types: Option<&[&str]>,
    direction: SchemaDirection,
) -> Vec<Map<String, Json>> {
    const TYPE_ORDER: [&str; 7] =
        ["string", "integer", "number", "boolean", "object", "array", "null"];
    let is_allowed = |kind: &str| {
        types.is_none_or(|types| {
            types.contains(&kind) || (kind == "integer" && types.contains(&"number"))
        })
    };
    let mut groups: Vec<(&str, Vec<&Json>)> = Vec::new();
    for kind in TYPE_ORDER.into_iter().filter(|kind| is_allowed(kind)) {
        let of_kind: Vec<&Json> =
            values.iter().copied().filter(|value| json_type_name(value) == kind).collect();
        if of_kind.is_empty() {
            continue;
        }
        match groups.last_mut() {
            // Both are numbers.
            Some((last @ "integer", known)) if kind == "number" => {
                *last = "number";
                known.extend(of_kind);
            }
            _ => groups.push((kind, of_kind)),
        }
    }
    groups.into_iter().map(|(kind, values)| schema_of_values(kind, &values, direction)).collect()
}

/// One type with its values. Gemini takes lists of texts only, and no empty text in
/// them; what cannot be listed is told.
fn schema_of_values(kind: &str, values: &[&Json], direction: SchemaDirection) -> Map<String, Json> {
    let mut schema = schema_of_type(kind);
    match (direction, kind) {
        (_, "null") => {}
        (SchemaDirection::Output, _) => {
            schema.insert("enum".to_owned(), values.iter().copied().cloned().collect());
        }
        (SchemaDirection::Input, "string") => {
            let mut texts: Vec<Json> = Vec::new();
            for text in values.iter().filter(|text| text.as_str() != Some("")) {
                if !texts.contains(text) {
                    texts.push((*text).clone());
                }
            }
            if !texts.is_empty() {
                schema.insert("enum".to_owned(), Json::Array(texts));
            }
        }
        (SchemaDirection::Input, "boolean") if values.len() > 1 => {}
        (SchemaDirection::Input, _) => {
            let told = tell_values(values);
            schema.insert("description".to_owned(), told.into());
            if kind == "array" {
                schema.insert("items".to_owned(), Json::Object(any_value(direction)));
            }
            let numbers = || values.iter().filter_map(|it| it.as_i64());
            if kind == "integer"
                && numbers().count() == values.len()
                && let (Some(least), Some(most)) = (numbers().min(), numbers().max())
            {
                schema.insert("minimum".to_owned(), least.into());
                schema.insert("maximum".to_owned(), most.into());
            }
        }
    }
    schema
}

fn tell_values(values: &[&Json]) -> String {
    let shown = |value: &&Json| {
        let text = value.to_string();
        let end = text.char_indices().nth(MAX_TOLD_CHARS).map_or(text.len(), |(at, _)| at);
        if end < text.len() { format!("{}…", &text[..end]) } else { text }
    };
    let told: Vec<String> = values.iter().take(MAX_TOLD_VALUES).map(shown).collect();
    let more = if values.len() > MAX_TOLD_VALUES { ", …" } else { "" };
    match told.as_slice() {
        [only] => format!("Always {only}."),
        all => format!("One of {}{more}.", all.join(", ")),
    }
}

/// The types that follow from what a schema says about values.
pub(super) fn infer_types(flat: &FlatSchema<'_>, direction: SchemaDirection) -> Vec<&'static str> {
    // A keyword about objects says nothing about other values, which a result may be.
    if direction == SchemaDirection::Output {
        return Vec::new();
    }
    let says = |keywords: &[&str]| keywords.iter().any(|it| flat.get(it).is_some());
    let mut types = Vec::new();
    if flat.is_object()
        || !flat.additional.is_empty()
        || flat.has_patterns
        || says(&["minProperties", "maxProperties", "propertyNames", "dependentRequired"])
    {
        types.push("object");
    }
    if !flat.items.is_empty()
        || !flat.tuple.is_empty()
        || says(&["minItems", "maxItems", "uniqueItems"])
    {
        types.push("array");
    }
    if says(&["minLength", "maxLength", "pattern"]) {
        types.push("string");
    }
    if says(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]) {
        types.push("number");
    }
    if types.is_empty()
        && let Some(Json::String(format)) = flat.get("format")
    {
        types.push(match format.as_str() {
            "int32" | "int64" => "integer",
            "float" | "double" => "number",
            _ => "string",
        });
    }
    types
}

/// What a schema says about a text.
pub(super) fn string_schema(
    flat: &FlatSchema<'_>,
    direction: SchemaDirection,
) -> Map<String, Json> {
    let mut schema = schema_of_type("string");
    for keyword in ["minLength", "maxLength"] {
        if let Some(length) = flat.get(keyword).filter(|it| it.is_u64()) {
            schema.insert(keyword.to_owned(), length.clone());
        }
    }
    if let Some(Json::String(pattern)) = flat.get("pattern")
        && is_simple_pattern(pattern)
    {
        schema.insert("pattern".to_owned(), pattern.as_str().into());
    }
    if let Some(Json::String(format)) = flat.get("format") {
        // Gemini refuses every other format, `email` needs a package in Python, and
        // some frameworks refuse those that they do not know.
        if format == "date-time" {
            schema.insert("format".to_owned(), format.as_str().into());
        } else if direction == SchemaDirection::Input {
            schema.insert("description".to_owned(), format!("Format: {format}.").into());
        }
    }
    schema
}

/// What is made of a pattern in Python and Rust knows no look-around and no
/// references to groups.
fn is_simple_pattern(pattern: &str) -> bool {
    let has_reference = || {
        let mut letters = pattern.chars();
        while let Some(letter) = letters.next() {
            if letter == '\\' {
                match letters.next() {
                    Some('1'..='9' | 'k' | 'c' | 'Z' | '<' | '>') | None => return true,
                    _ => {}
                }
            }
        }
        false
    };
    !["(?=", "(?!", "(?<", "(?>", "[[", "&&"].iter().any(|it| pattern.contains(it))
        && !has_reference()
}

/// What a schema says about a number.
pub(super) fn number_schema(kind: &str, flat: &FlatSchema<'_>) -> Map<String, Json> {
    let mut schema = schema_of_type(kind);
    for (limit, exclusive) in [("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")] {
        let limit_said = flat.get(limit).filter(|it| it.is_number());
        match flat.get(exclusive) {
            // As draft 4 has it.
            Some(Json::Bool(true)) => {
                if let Some(bound) = limit_said {
                    schema.insert(exclusive.to_owned(), bound.clone());
                }
                continue;
            }
            Some(bound) if bound.is_number() => {
                schema.insert(exclusive.to_owned(), bound.clone());
            }
            _ => {}
        }
        if let Some(bound) = limit_said {
            schema.insert(limit.to_owned(), bound.clone());
        }
    }
    if let Some(step) = flat.get("multipleOf").filter(|it| it.is_number()) {
        schema.insert("multipleOf".to_owned(), step.clone());
    }
    if let Some(Json::String(format)) = flat.get("format") {
        let is_known = match kind {
            "integer" => matches!(format.as_str(), "int32" | "int64"),
            _ => matches!(format.as_str(), "float" | "double"),
        };
        if is_known {
            schema.insert("format".to_owned(), format.as_str().into());
        }
    }
    schema
}
