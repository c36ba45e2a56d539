//! The functions of `sdk` as Luau: signatures, the types they name, what is
//! said about their parameters.
//!
//! Documentation and the type checker draw from here, so that an agent is held
//! to exactly what it was shown. How a page looks is for others to say.

use std::collections::HashMap;
use std::fmt::Write;

use serde_json::{Map, Value as Json};

use super::merged_schema::{merge_all_of, type_alternatives};
use super::type_names::LuauTypeNames;
use super::types::{LuauTypeReader, table_key};
use crate::function_parts::{object_fields, properties_of, to_pascal_case};
use moonlark_core::original_name::with_original_name;
use moonlark_core::schema::find_referenced_json;
use moonlark_core::sdk::{SdkFunction, SdkSource};
use moonlark_core::value::shorten_text;

/// Everything an agent needs to write a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SdkFunctionDocs {
    /// `sdk.files.read_file`
    pub path: String,
    /// What it does, as its source says.
    pub about: String,
    /// Parameters, and fields of parameters, that have something said about
    /// them.
    pub params: Vec<(String, String)>,
    /// `function sdk.files.read_file(args: { path: string }): string`
    pub signature: String,
    /// The types that the signature names, with those that they name.
    pub types: Vec<(String, String)>,
    /// How many calls the type of the result was learned from, if it was.
    pub learned: Option<u64>,
}

/// What results have looked like so far, where nobody declared it.
#[derive(Debug, Clone)]
pub struct ObservedResult {
    pub schema: Json,
    pub calls: u64,
}

/// One function to document.
pub type SdkDocsEntry<'a> = (&'a SdkSource, &'a SdkFunction, Option<&'a ObservedResult>);

/// A function by itself.
pub fn sdk_function_docs(
    source: &SdkSource,
    function: &SdkFunction,
    learned: Option<&ObservedResult>,
) -> SdkFunctionDocs {
    draw_docs((source, function, learned), "")
}

/// Functions that share a page: a type is there once, and where two tools mean
/// different things by one name, the later one's types have its own before them.
pub fn docs_for_page(entries: &[SdkDocsEntry<'_>]) -> Vec<SdkFunctionDocs> {
    let mut known: HashMap<String, String> = HashMap::new();
    let mut page = Vec::new();
    for entry in entries {
        let (source, function) = (to_pascal_case(&entry.0.name), to_pascal_case(&entry.1.name));
        let mut docs = draw_docs(*entry, "");
        for prefix in [function.clone(), format!("{source}{function}")] {
            let differs = |(name, body): &(String, String)| {
                known.get(name).is_some_and(|other| other != body)
            };
            if !docs.types.iter().any(differs) {
                break;
            }
            docs = draw_docs(*entry, &prefix);
        }
        docs.types.retain(|(name, body)| known.insert(name.clone(), body.clone()).is_none());
        page.push(docs);
    }
    page
}

impl SdkFunctionDocs {
    /// As an agent reads it: comments, the signature, the types.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for line in self.about.lines() {
            let _ = writeln!(text, "{}", format!("-- {line}").trim_end());
        }
        for (name, about) in &self.params {
            let _ = writeln!(text, "-- @param {name} - {about}");
        }
        if let Some(calls) = self.learned {
            let calls = if calls == 1 { "1 call".to_owned() } else { format!("{calls} calls") };
            let _ = writeln!(text, "-- result learned from {calls}");
        }
        let _ = writeln!(text, "{}", self.signature);
        for (name, body) in &self.types {
            let _ = write!(text, "\nexport type {name} = {body}\n");
        }
        text
    }
}

/// A result for the type checker: its type, and the types that this names, all
/// on one line each. None where nothing is declared.
pub fn declared_result(
    function: &SdkFunction,
    prefix: &str,
) -> Option<(String, Vec<(String, String)>)> {
    let output = Json::Object((**function.tool.output.as_ref()?.json()).clone());
    let mut names = LuauTypeNames::new(prefix, true);
    let result = LuauTypeReader::new(&output, Some(&mut names)).read_to_text(&output);
    Some((result, draw_named_types(&output, &mut names)))
}

fn draw_docs((source, function, learned): SdkDocsEntry<'_>, prefix: &str) -> SdkFunctionDocs {
    let path = format!("sdk.{}.{}", source.name, function.name);
    let tool = &function.tool;
    let mut names = LuauTypeNames::new(prefix, false);
    let input = Json::Object((**tool.input.json()).clone());
    let args = arguments_type(&input, &mut names);
    let mut types = draw_named_types(&input, &mut names);
    let output = match (&tool.output, learned) {
        (Some(output), _) => Some(Json::Object((**output.json()).clone())),
        (None, Some(learned)) => Some(learned.schema.clone()),
        (None, None) => None,
    };
    let mut result = "any".to_owned();
    if let Some(output) = output {
        if !have_same_definitions(&input, &output) {
            names.start_schema();
        }
        result = LuauTypeReader::new(&output, Some(&mut names)).read_to_text(&output);
        types.extend(draw_named_types(&output, &mut names));
    }
    let mut params = Vec::new();
    collect_descriptions(&input, "", 0, &mut params);
    SdkFunctionDocs {
        signature: format!("function {path}({args}): {result}"),
        path,
        about: match function.unreadable_original() {
            Some(original) => with_original_name(&tool.description, original).trim().to_owned(),
            None => tool.description.trim().to_owned(),
        },
        params,
        types,
        learned: learned.filter(|_| tool.output.is_none()).map(|learned| learned.calls),
    }
}

/// `args: { path: string }`, optional where nothing in it must be there.
fn arguments_type(input: &Json, names: &mut LuauTypeNames) -> String {
    let table = LuauTypeReader::new(input, Some(names)).read_to_text(input);
    if table == "{}" || (table == "{ [string]: any }" && takes_no_arguments(input)) {
        return String::new();
    }
    let optional = table != "any" && !has_required_argument(input);
    match optional {
        true if table.starts_with('{') && !table.contains(" & ") => format!("args: {table}?"),
        true => format!("args: ({table})?"),
        false => format!("args: {table}"),
    }
}

fn has_required_argument(input: &Json) -> bool {
    let Json::Object(schema) = input else { return true };
    let merged = schema.get("allOf").and_then(|_| merge_all_of(input, schema));
    let required = merged.as_ref().unwrap_or(input).get("required").and_then(Json::as_array);
    type_alternatives(schema).is_some() || !required.is_none_or(Vec::is_empty)
}

/// Whether it says that there are no parameters, by listing none.
fn takes_no_arguments(input: &Json) -> bool {
    let properties = input.get("properties").and_then(Json::as_object);
    properties.is_some_and(Map::is_empty) && input.get("additionalProperties").is_none()
}

/// Whether a name means the same in both schemas, as far as both have it.
fn have_same_definitions(input: &Json, output: &Json) -> bool {
    ["$defs", "definitions"].iter().all(|key| {
        let defs = |schema: &'_ Json| schema.get(*key).and_then(Json::as_object).cloned();
        let (Some(ours), Some(theirs)) = (defs(input), defs(output)) else { return true };
        ours.iter().all(|(name, body)| theirs.get(name).is_none_or(|other| other == body))
    })
}

/// Draw what has got a name, and what gets one by that.
fn draw_named_types(root: &Json, names: &mut LuauTypeNames) -> Vec<(String, String)> {
    /// A page with more helps nobody; names without a type are `any`.
    const MAX_NAMED_TYPES: usize = 100;
    let mut types = Vec::new();
    while let Some((name, reference)) = names.next_undrawn() {
        let body = match find_referenced_json(root, &reference) {
            Some(target) if types.len() < MAX_NAMED_TYPES => named_type_body(root, target, names),
            _ => "any".to_owned(),
        };
        types.push((name, body));
    }
    types
}

fn named_type_body(root: &Json, schema: &Json, names: &mut LuauTypeNames) -> String {
    let combined = ["allOf", "anyOf", "oneOf"].iter().any(|key| schema.get(key).is_some());
    let plain = object_fields(schema).is_some() && !combined && !names.lenient;
    let mut reader = LuauTypeReader::new(root, Some(names));
    let Json::Object(table) = schema else { return reader.read_to_text(schema) };
    if !plain {
        return reader.read_to_text(schema);
    }
    let about: HashMap<String, String> = properties_of(table)
        .filter_map(|(name, field)| Some((table_key(name), field_description(field)?)))
        .collect();
    let lines = reader.read_fields(table).into_iter().map(|(key, kind)| match about.get(&key) {
        Some(about) => format!("    {key}: {kind}, -- {about}\n"),
        None => format!("    {key}: {kind},\n"),
    });
    format!("{{\n{}}}", lines.collect::<String>())
}

/// What is said about parameters, and about the fields of those that are tables.
fn collect_descriptions(
    schema: &Json,
    prefix: &str,
    depth: usize,
    found: &mut Vec<(String, String)>,
) {
    const MAX_DESCRIBED_DEPTH: usize = 3;
    const MAX_DESCRIBED_PARAMS: usize = 200;
    let fields = schema.get("properties").and_then(Json::as_object);
    for (name, field) in fields.into_iter().flatten() {
        if found.len() == MAX_DESCRIBED_PARAMS {
            return;
        }
        let path = format!("{prefix}{}", shorten_text(name));
        found.extend(field_description(field).map(|about| (path.clone(), about)));
        if depth < MAX_DESCRIBED_DEPTH {
            collect_descriptions(field, &format!("{path}."), depth + 1, found);
            if let Some(items) = field.get("items") {
                collect_descriptions(items, &format!("{path}[]."), depth + 1, found);
            }
        }
    }
}

/// The description on one line, with the default and the range.
fn field_description(field: &Json) -> Option<String> {
    let about = field.get("description").and_then(Json::as_str).unwrap_or_default();
    let mut text = about.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut facts = Vec::new();
    if let Some(default) = field.get("default").filter(|default| !default.is_null()) {
        let written = super::luau_value(default);
        // Many descriptions say so themselves.
        if !text.to_lowercase().contains("default") && written.len() <= 60 && written != "{}" {
            facts.push(format!("default {written}"));
        }
    }
    facts.extend(number_range(field));
    if !facts.is_empty() {
        let facts = facts.join(", ");
        text = if text.is_empty() { facts } else { format!("{text} ({facts})") };
    }
    (!text.is_empty()).then_some(text)
}

/// `1 to 50`, for a number that has bounds.
pub fn number_range(field: &Json) -> Option<String> {
    let bound = |key: &str| field.get(key).filter(|it| it.is_number()).map(Json::to_string);
    // Generators write the limits of their integers for those of the parameter.
    match (bound("minimum"), bound("maximum").filter(|it| it.len() < 10)) {
        (Some(least), Some(most)) => Some(format!("{least} to {most}")),
        (Some(least), None) if least.len() < 10 => Some(format!("at least {least}")),
        (None, Some(most)) => Some(format!("at most {most}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
