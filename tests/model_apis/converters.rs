//! What frameworks make of a tool, as far as it can fail: for each the names, keys
//! and schemas that its own code could not read when it was tried.
//!
//! These are recorded facts, not the frameworks: `tests/all_clients` runs them.

use serde_json::{Map, Value as Json};

use super::rules::each;

/// What is wrong with a schema at a place, if anything.
type FieldJudge<'a> = dyn FnMut(&Map<String, Json>, &str) -> Option<String> + 'a;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framework {
    /// autogen-ext 0.7.5: a class of pydantic for every tool.
    AutoGen,
    /// crewai-tools 1.15.30: the same, by its own code.
    CrewAi,
    /// dspy 3.4.1: a Python type for every parameter, references written out.
    Dspy,
    /// @langchain/mcp-adapters 1.1.4 with Gemini: schemas as they are.
    LangChainJs,
    /// llama-index-tools-mcp 0.6.0 and mcp-use 1.7.1: classes, references followed.
    LlamaIndex,
    /// @mastra/mcp 0.14.5: schemas of zod, references followed.
    Mastra,
    /// semantic-kernel 1.45.0: one record for every parameter.
    SemanticKernel,
    /// openai-agents 0.24.0, pydantic-ai 2.66.0, google-adk 2.13.0, agno, strands: names
    /// and schemas as they are.
    PassesOn,
}

impl Framework {
    pub const ALL: [Framework; 8] = [
        Framework::AutoGen,
        Framework::CrewAi,
        Framework::Dspy,
        Framework::LangChainJs,
        Framework::LlamaIndex,
        Framework::Mastra,
        Framework::SemanticKernel,
        Framework::PassesOn,
    ];

    /// What it could not read; none if it takes the tool.
    pub fn failure(self, name: &str, schema: &Map<String, Json>) -> Option<String> {
        let whole = Json::Object(schema.clone());
        let fields = || schema.get("properties").and_then(Json::as_object).into_iter().flatten();
        match self {
            Framework::AutoGen => (!is_plain(name))
                .then(|| format!("ValueError: Invalid name: {name}"))
                .or_else(|| each_object(&whole, &mut class_of_autogen))
                .or_else(|| each(&whole, "", &mut class_of_pydantic)),
            Framework::CrewAi => each(&whole, "", &mut class_of_pydantic),
            Framework::Dspy => fields()
                .find(|(_, field)| field["type"].is_array())
                .map(|(name, _)| format!("{name}: unhashable type: 'list'"))
                .or_else(|| recursion(schema)),
            Framework::LangChainJs => each(&whole, "", &mut |schema, place| {
                schema
                    .get("type")
                    .is_some_and(Json::is_array)
                    .then(|| format!("{place}: a list of types"))
            }),
            Framework::LlamaIndex => {
                recursion(schema).or_else(|| each(&whole, "", &mut class_of_pydantic))
            }
            Framework::Mastra => recursion(schema),
            Framework::SemanticKernel => fields().find_map(|(name, field)| {
                let kind = field.get("type").is_none_or(Json::is_string);
                (!kind || !is_plain(name))
                    .then(|| format!("ValidationError for KernelParameterMetadata: {name}"))
            }),
            Framework::PassesOn => (!is_plain(name)).then(|| format!("the model refuses {name}")),
        }
    }
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|it| it.is_ascii_alphanumeric() || "_-".contains(it))
}

/// What no class of pydantic can be made of without further packages.
fn class_of_pydantic(schema: &Map<String, Json>, place: &str) -> Option<String> {
    if schema.get("format") == Some(&Json::from("email")) {
        return Some(format!("{place}: email-validator is not installed"));
    }
    let fields = schema.get("properties").and_then(Json::as_object);
    let hidden = fields.into_iter().flat_map(Map::keys).find(|key| key.starts_with('_'));
    if let Some(key) = hidden {
        return Some(format!("{place}: Fields must not use names with leading underscores: {key}"));
    }
    let pattern = schema.get("pattern").and_then(Json::as_str)?;
    // The engine behind it is that of Rust.
    let unread = regex_syntax::Parser::new().parse(pattern).err()?;
    Some(format!("{place}: {unread}"))
}

/// The types that it knows, in a field or in each alternative of one.
fn class_of_autogen(field: &Map<String, Json>, place: &str) -> Option<String> {
    const FORMATS: [&str; 24] = [
        "uuid",
        "uuid1",
        "uuid2",
        "uuid3",
        "uuid4",
        "uuid5",
        "email",
        "uri",
        "hostname",
        "ipv4",
        "ipv6",
        "ipv4-network",
        "ipv6-network",
        "date-time",
        "date",
        "time",
        "duration",
        "int32",
        "int64",
        "float",
        "double",
        "decimal",
        "byte",
        "binary",
    ];
    if field.contains_key("$ref") || field.contains_key("enum") || field.contains_key("allOf") {
        return None;
    }
    let some = field.get("anyOf").or(field.get("oneOf")).and_then(Json::as_array);
    if let Some(some) = some {
        let known =
            |it: &Json| it["type"].is_string() || it["$ref"].is_string() || it["enum"].is_array();
        let unknown = some.iter().find(|it| !known(it))?;
        return Some(format!("{place}: Unsupported or missing type in union: {unknown}"));
    }
    if !field.get("type").is_some_and(Json::is_string) {
        return Some(format!("{place}: Unsupported or missing type"));
    }
    let items = field.get("items");
    if items.and_then(|it| it.get("type")).is_some_and(|it| !it.is_string()) {
        return Some(format!("{place}: Unsupported or missing item type"));
    }
    let format = field.get("format").and_then(Json::as_str)?;
    (!FORMATS.contains(&format)).then(|| format!("{place}: Unknown format {format}"))
}

/// The fields that it makes classes of: those of objects, not of lists.
fn each_object(schema: &Json, field: &mut FieldJudge<'_>) -> Option<String> {
    let fields = schema.get("properties").and_then(Json::as_object);
    fields.into_iter().flatten().find_map(|(name, inner)| match inner {
        Json::Object(inner_fields) => {
            field(inner_fields, name).or_else(|| each_object(inner, field))
        }
        _ => Some(format!("{name}: no schema")),
    })
}

/// A reference that leads back to where it stands: these follow it for ever.
fn recursion(schema: &Map<String, Json>) -> Option<String> {
    fn leads_back<'a>(json: &'a Json, root: &'a Map<String, Json>, on: &mut Vec<&'a str>) -> bool {
        match json {
            Json::Array(all) => all.iter().any(|it| leads_back(it, root, on)),
            Json::Object(fields) => {
                if let Some(Json::String(reference)) = fields.get("$ref") {
                    if on.contains(&reference.as_str()) {
                        return true;
                    }
                    let target = reference
                        .strip_prefix("#/$defs/")
                        .and_then(|name| root.get("$defs")?.get(name));
                    on.push(reference);
                    let found = target.is_some_and(|target| leads_back(target, root, on));
                    on.pop();
                    return found;
                }
                let inner = fields.iter().filter(|(key, _)| *key != "$defs");
                inner.into_iter().any(|(_, it)| leads_back(it, root, on))
            }
            _ => false,
        }
    }
    let whole = Json::Object(schema.clone());
    leads_back(&whole, schema, &mut Vec::new()).then(|| "RecursionError".to_owned())
}
