//! What the three model APIs refuse, by their published rules and the words of
//! their errors.
//!
//! Only what costs the whole request is here. What an API does not know and every
//! client takes out before it sends (for Gemini `title`, `default`,
//! `additionalProperties`, `exclusiveMinimum`, `multipleOf`, `uniqueItems`, `examples`,
//! `minProperties`, a branch of type `null`, words beside `anyOf`, parameters without
//! any property) is no rule of ours.

use serde_json::{Map, Value as Json};

/// What is wrong with a schema at a place, if anything.
type ObjectJudge<'a> = dyn FnMut(&Map<String, Json>, &str) -> Option<String> + 'a;

/// What clients put before the name of a tool.
const CLIENT_PREFIX: &str = "mcp__moonlark__";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelApi {
    OpenAi,
    Anthropic,
    Gemini,
}

impl ModelApi {
    pub const ALL: [ModelApi; 3] = [ModelApi::OpenAi, ModelApi::Anthropic, ModelApi::Gemini];

    /// Why it refuses a tool; none if it takes it.
    pub fn refusal(self, name: &str, schema: &Map<String, Json>) -> Option<String> {
        let name = format!("{CLIENT_PREFIX}{name}");
        if !self.takes_name(&name) {
            return Some(format!("the name {name}"));
        }
        let whole = Json::Object(schema.clone());
        if schema.get("type") != Some(&Json::from("object")) {
            return Some("parameters that are no object".to_owned());
        }
        let at_top: &[&str] = match self {
            ModelApi::OpenAi => &["oneOf", "anyOf", "allOf", "enum", "const", "not"],
            ModelApi::Anthropic => &["oneOf", "anyOf", "allOf"],
            ModelApi::Gemini => &[],
        };
        if let Some(word) = at_top.iter().find(|word| schema.contains_key(**word)) {
            return Some(format!("{word} at the top"));
        }
        match self {
            ModelApi::OpenAi => open_ai(&whole),
            ModelApi::Anthropic => anthropic(&whole),
            ModelApi::Gemini => each(&whole, "", &mut gemini),
        }
    }

    fn takes_name(self, name: &str) -> bool {
        let (most, more) = match self {
            ModelApi::OpenAi => (64, "_-"),
            ModelApi::Anthropic => (128, "_-"),
            ModelApi::Gemini => (64, "_.:-"),
        };
        let begins = name.starts_with(|it: char| match self {
            ModelApi::Gemini => it.is_ascii_alphabetic() || it == '_',
            _ => true,
        });
        let known = |it: char| it.is_ascii_alphanumeric() || more.contains(it);
        begins && !name.is_empty() && name.len() <= most && name.chars().all(known)
    }
}

/// Schemas may have 5,000 properties, ten levels and 120,000 characters in names and
/// values in strict mode; no list is without items, and no `allOf` inside.
fn open_ai(whole: &Json) -> Option<String> {
    if !whole["properties"].is_object() {
        return Some("no properties".to_owned());
    }
    let (mut properties, mut characters) = (0, 0);
    let refused = each(whole, "", &mut |schema, place| {
        let fields = schema.get("properties").and_then(Json::as_object);
        properties += fields.map_or(0, Map::len);
        characters += fields.map_or(0, |it| it.keys().map(String::len).sum());
        let values = schema.get("enum").and_then(Json::as_array).into_iter().flatten();
        characters += values.map(|it| it.to_string().len()).sum::<usize>();
        let no_items = schema.get("type") == Some(&Json::from("array"))
            && !schema.get("items").is_some_and(Json::is_object);
        if no_items {
            return Some(format!("{place}: a list without items"));
        }
        schema.contains_key("allOf").then(|| format!("{place}: allOf"))
    });
    let levels = object_levels(whole);
    refused
        .or_else(|| (properties > 5000).then(|| format!("{properties} properties")))
        .or_else(|| (characters > 120_000).then(|| format!("{characters} characters")))
        .or_else(|| (levels > 10).then(|| format!("{levels} levels")))
}

/// A schema of draft 2020-12, keys of `[a-zA-Z0-9_.-]` up to 64.
fn anthropic(whole: &Json) -> Option<String> {
    let is_key = |key: &String| {
        let known = |it: char| it.is_ascii_alphanumeric() || "_.-".contains(it);
        !key.is_empty() && key.len() <= 64 && key.chars().all(known)
    };
    let bad_key = each(whole, "", &mut |schema, place| {
        let fields = schema.get("properties").and_then(Json::as_object);
        let key = fields.into_iter().flat_map(Map::keys).find(|key| !is_key(key))?;
        Some(format!("{place}: the key {key}"))
    });
    let validator = || jsonschema::draft202012::meta::validate(whole).err();
    bad_key.or_else(|| validator().map(|error| format!("no schema of draft 2020-12: {error}")))
}

/// Its subset of OpenAPI.
fn gemini(schema: &Map<String, Json>, place: &str) -> Option<String> {
    const UNKNOWN: [&str; 17] = [
        "$ref",
        "$defs",
        "definitions",
        "$schema",
        "allOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "const",
        "patternProperties",
        "propertyNames",
        "prefixItems",
        "dependentRequired",
        "contains",
        "unevaluatedProperties",
    ];
    let text = |key: &str| schema.get(key).and_then(Json::as_str);
    let kind = text("type");
    if let Some(word) = UNKNOWN.iter().find(|word| schema.contains_key(**word)) {
        return Some(format!("{place}: {word}"));
    }
    if schema.contains_key("type") && kind.is_none() {
        return Some(format!("{place}: a type that is no word"));
    }
    if kind.is_none() && !schema.contains_key("anyOf") {
        return Some(format!("{place}: no type"));
    }
    if let Some(values) = schema.get("enum") {
        let is_text = |it: &Json| it.as_str().is_some_and(|text| !text.is_empty());
        let texts = values.as_array().is_some_and(|all| !all.is_empty() && all.iter().all(is_text));
        if kind != Some("string") || !texts {
            return Some(format!("{place}: an enum of other than texts"));
        }
    }
    if kind == Some("array") && !schema.get("items").is_some_and(Json::is_object) {
        return Some(format!("{place}: a list without items"));
    }
    let formats: &[&str] = match kind {
        Some("string") => &["enum", "date-time"],
        Some("integer") => &["int32", "int64"],
        Some("number") => &["float", "double"],
        _ => &[],
    };
    if let Some(format) = text("format").filter(|it| !formats.contains(it)) {
        return Some(format!("{place}: the format {format}"));
    }
    let required = schema.get("required").and_then(Json::as_array).into_iter().flatten();
    let is_known = |name: &Json| schema.get("properties")?.get(name.as_str()?);
    let unknown = required.into_iter().find(|name| is_known(name).is_none())?;
    Some(format!("{place}: {unknown} is required and not defined"))
}

/// The first objection to a schema or to one inside it.
pub fn each(schema: &Json, place: &str, object: &mut ObjectJudge<'_>) -> Option<String> {
    let Json::Object(fields) = schema else {
        return Some(format!("{place}: no object but {schema}"));
    };
    if let Some(refusal) = object(fields, place) {
        return Some(refusal);
    }
    for (key, json) in fields {
        let inside = |name: &str| format!("{place}/{name}");
        let refusal = match (key.as_str(), json) {
            ("properties" | "$defs" | "definitions", Json::Object(all)) => {
                all.iter().find_map(|(name, inner)| each(inner, &inside(name), object))
            }
            ("anyOf" | "oneOf" | "allOf" | "prefixItems", Json::Array(all)) => {
                all.iter().find_map(|inner| each(inner, &inside(key), object))
            }
            ("items", inner) => each(inner, &inside(key), object),
            ("additionalProperties", inner @ Json::Object(_)) => each(inner, &inside(key), object),
            _ => None,
        };
        if refusal.is_some() {
            return refusal;
        }
    }
    None
}

/// How deep objects with properties stand in each other.
fn object_levels(schema: &Json) -> usize {
    match schema {
        Json::Object(fields) => {
            let inner = fields.values().map(object_levels).max().unwrap_or(0);
            inner + usize::from(fields.get("properties").is_some_and(Json::is_object))
        }
        Json::Array(all) => all.iter().map(object_levels).max().unwrap_or(0),
        _ => 0,
    }
}
