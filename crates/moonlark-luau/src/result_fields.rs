//! Which fields the answers of one run had, and which of those that the script reads
//! were in none of them.
//!
//! A misspelt field is nil and no error, and the answer that is made of it looks
//! right. Only names are held here, of this run's own answers, and no values.

use std::collections::{HashMap, HashSet};

use moonlark_core::learned::Shape;
use moonlark_core::sdk::identifier;
use moonlark_core::value::{Value, shorten};
use moonlark_core::{Call, Tool};
use parking_lot::Mutex;
use serde_json::Value as Json;

use crate::field_reads::{ResultFieldRead, ResultStep, may_read_others, read_fields};

/// Names that are held of one tool; with more, nothing is said of it.
const MAX_FIELD_NAMES: usize = 2000;
/// Values of one answer that are looked at; with more, nothing is said of its tool.
const MAX_VALUES: usize = 200_000;
/// Calls after which a learned shape counts: a field may be missing now and then.
const MIN_LEARNED_CALLS: u32 = 3;
/// Lines about missing fields in one run, and names that a line lists.
const MAX_LINES: usize = 5;
const MAX_LISTED_NAMES: usize = 10;
/// The longest text that is tried as JSON.
const MAX_TEXT_BYTES: usize = 64 * 1024;

#[derive(Default)]
pub(crate) struct ResultFields {
    /// By the names of the tools.
    tools: Mutex<HashMap<String, AnsweredFields>>,
}

#[derive(Default)]
struct AnsweredFields {
    names: HashSet<String>,
    /// There were more than are held.
    incomplete: bool,
    tables: usize,
    texts: usize,
    /// The first table, or the first text that is JSON, as a schema.
    first: Option<Json>,
}

impl ResultFields {
    /// Look at what a tool answered.
    pub(crate) fn record(&self, tool: &str, answer: &Value) {
        if !matches!(answer, Value::Object(_) | Value::Array(_) | Value::Str(_)) {
            return;
        }
        let mut tools = self.tools.lock();
        let fields = match tools.get_mut(tool) {
            Some(fields) => fields,
            None => tools.entry(tool.to_owned()).or_default(),
        };
        if let Value::Str(text) = answer {
            fields.texts += 1;
            if fields.first.is_none() && text.len() <= MAX_TEXT_BYTES {
                let parsed = Value::parse_json(text.as_bytes()).ok();
                let parsed = parsed.filter(|it| matches!(it, Value::Object(_)));
                fields.first = parsed.map(|it| Shape::of(&it).to_schema());
            }
            return;
        }
        fields.tables += 1;
        if fields.first.is_none() {
            fields.first = Some(Shape::of(answer).to_schema());
        }
        fields.add_names(answer);
    }

    /// A sentence for each field that the script reads and no answer had.
    pub(crate) fn missing(&self, script: &str, call: &Call) -> Vec<String> {
        let tools = self.tools.lock();
        if tools.is_empty() {
            return Vec::new();
        }
        let functions: HashSet<String> =
            tools.keys().map(|tool| identifier(tool.rsplit('.').next().unwrap_or(tool))).collect();
        let is_known = |name: &str| {
            functions.contains(name) || tools.values().any(|it| it.names.contains(name))
        };
        if !may_read_others(script, is_known) {
            return Vec::new();
        }
        let mut lines: Vec<String> = Vec::new();
        for read in read_fields(script) {
            let Some((tool, path)) = read.tool(call.catalog().sdk()) else { continue };
            let Some(fields) = tools.get(&tool.name) else { continue };
            let Some(why) = fields.lack(&read, tool, call) else { continue };
            let line = format!("script:{}: the result of {path} {why}", read.line);
            if !lines.contains(&line) {
                lines.push(line);
            }
            if lines.len() == MAX_LINES {
                break;
            }
        }
        lines
    }
}

impl AnsweredFields {
    fn add_names(&mut self, answer: &Value) {
        let mut left = MAX_VALUES;
        let mut open = vec![answer];
        while let Some(value) = open.pop() {
            let Some(fewer) = left.checked_sub(1) else {
                self.incomplete = true;
                return;
            };
            left = fewer;
            match value {
                Value::Array(items) => open.extend(items),
                Value::Object(fields) => {
                    for (name, field) in fields {
                        if !self.names.contains(name) {
                            if self.names.len() == MAX_FIELD_NAMES {
                                self.incomplete = true;
                                return;
                            }
                            self.names.insert(name.clone());
                        }
                        open.push(field);
                    }
                }
                _ => {}
            }
        }
    }

    /// Why the field that is read was not there, if it surely was not.
    fn lack(&self, read: &ResultFieldRead, tool: &Tool, call: &Call) -> Option<String> {
        let field = shorten(&read.field);
        if self.tables == 0 && self.texts > 0 && read.path.is_empty() && read.field != "length" {
            let names = self.first.as_ref().map(|first| listed(first, &[]));
            let decode = match names {
                Some(names) => format!("; json.decode gives {names}"),
                None => String::new(),
            };
            return Some(format!("is a text, which has no field {field}{decode}"));
        }
        let is_reached = |step: &ResultStep| match step {
            ResultStep::Field(name) => self.names.contains(name),
            ResultStep::Item => true,
        };
        let surely_not = self.tables > 0
            && self.texts == 0
            && !self.incomplete
            && !self.names.contains(&read.field)
            // Where something is missing on the way there, that was said.
            && read.path.iter().all(is_reached);
        if !surely_not || self.may_be_there(&read.field, tool, call) {
            return None;
        }
        let place = read.place();
        let inside = if place.is_empty() { String::new() } else { format!(" in {place}") };
        let first = self.first.as_ref()?;
        if kind_at(first, &read.path) == Some("array") {
            let hint = if matches!(&*read.field, "length" | "size" | "count") {
                ": #list is its length"
            } else {
                ": its items have fields"
            };
            let what = if place.is_empty() { "is a list" } else { "has a list" };
            return Some(format!("{what}{inside}, which has no field {field}{hint}"));
        }
        Some(format!("has no field {field}{inside}; it has {}", listed(first, &read.path)))
    }

    /// Whether the field is declared, or was there before. Where nothing is declared and
    /// little is known, it may be.
    fn may_be_there(&self, field: &str, tool: &Tool, call: &Call) -> bool {
        if let Some(output) = &tool.output {
            return mentions(&Json::Object((**output.json()).clone()), field);
        }
        match call.gateway().learned().of(tool, call.caller()) {
            Some(shape) if shape.calls() >= MIN_LEARNED_CALLS => {
                mentions(&shape.to_schema(), field)
            }
            _ => true,
        }
    }
}

/// Whether a schema knows a field of that name anywhere, or fields of any name.
fn mentions(schema: &Json, field: &str) -> bool {
    match schema {
        Json::Object(fields) => fields.iter().any(|(key, value)| match (key.as_str(), value) {
            ("properties", Json::Object(known)) => {
                known.contains_key(field) || known.values().any(|it| mentions(it, field))
            }
            ("patternProperties", _) => true,
            ("additionalProperties", Json::Object(any)) => !any.is_empty(),
            _ => mentions(value, field),
        }),
        Json::Array(items) => items.iter().any(|item| mentions(item, field)),
        _ => false,
    }
}

/// The part of a schema that describes what is at a path.
fn schema_at<'s>(mut schema: &'s Json, path: &[ResultStep]) -> Option<&'s Json> {
    for step in path {
        schema = match step {
            ResultStep::Field(name) => schema.get("properties")?.get(name)?,
            ResultStep::Item => schema.get("items")?,
        };
    }
    Some(schema)
}

fn kind_at<'s>(schema: &'s Json, path: &[ResultStep]) -> Option<&'s str> {
    schema_at(schema, path)?.get("type")?.as_str()
}

/// The names of the fields at a path, for a sentence.
fn listed(schema: &Json, path: &[ResultStep]) -> String {
    let at = schema_at(schema, path);
    let fields = at.and_then(|it| it.get("properties")).and_then(Json::as_object);
    let names: Vec<&str> =
        fields.into_iter().flat_map(|it| it.keys().map(String::as_str)).collect();
    let shown: Vec<_> = names.iter().take(MAX_LISTED_NAMES).map(|name| shorten(name)).collect();
    match names.len().saturating_sub(MAX_LISTED_NAMES) {
        _ if names.is_empty() => "other fields".to_owned(),
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
