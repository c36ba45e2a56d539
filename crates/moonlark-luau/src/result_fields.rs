//! Which fields the answers of one run had, and which of those that the script reads
//! were in none of them.
//!
//! A misspelt field is nil and no error, and the answer that is made of it looks
//! right. Only names are held here, of this run's own answers, and no values.

use std::collections::{HashMap, HashSet};

use moonlark_core::learned_shapes::AnswerShape;
use moonlark_core::sdk::to_identifier;
use moonlark_core::value::{Value, shorten_text};
use moonlark_core::{Call, Tool};
use parking_lot::Mutex;
use serde_json::Value as Json;

use crate::field_reads::{ResultFieldRead, find_field_reads, may_read_unknown_fields};
use crate::other_languages::{FieldReceiver, hint_for_field};
use crate::result_flow::{ResultPath, ResultStep};

/// Names that are held of one tool; with more, nothing is said of it.
const MAX_FIELD_NAMES: usize = 2000;
/// Values of one answer that are looked at; with more, nothing is said of its tool.
const MAX_ANSWER_VALUES: usize = 200_000;
/// Calls after which a learned shape counts: a field may be missing now and then.
const MIN_LEARNED_CALLS: u32 = 3;
/// Lines about missing fields in one run, and names that a line lists.
const MAX_MISSING_FIELD_LINES: usize = 5;
const MAX_LISTED_NAMES: usize = 10;
/// Fields of texts that are noted in one run.
const MAX_NOTED_TEXT_FIELDS: usize = 20;
/// The longest text that is tried as JSON.
const MAX_JSON_TEXT_BYTES: usize = 64 * 1024;

#[derive(Default)]
pub(crate) struct ResultFields {
    /// By the names of the tools.
    tools: Mutex<HashMap<String, AnsweredFields>>,
    /// Fields of texts that the script read, with their lines.
    of_texts: Mutex<Vec<(u32, String)>>,
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
    pub(crate) fn record_answer(&self, tool: &str, answer: &Value) {
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
            if fields.first.is_none() && text.len() <= MAX_JSON_TEXT_BYTES {
                let parsed = Value::parse_json(text.as_bytes()).ok();
                let parsed = parsed.filter(|it| matches!(it, Value::Object(_)));
                fields.first = parsed.map(|it| AnswerShape::from_value(&it).to_schema());
            }
            return;
        }
        fields.tables += 1;
        if fields.first.is_none() {
            fields.first = Some(AnswerShape::from_value(answer).to_schema());
        }
        fields.add_names(answer);
    }

    /// A script read a field of a text that no text has.
    pub(crate) fn note_text_field(&self, line: u32, name: &str) {
        let mut noted = self.of_texts.lock();
        let is_known = noted.iter().any(|(at, known)| *at == line && known == name);
        if noted.len() < MAX_NOTED_TEXT_FIELDS && !is_known {
            noted.push((line, shorten_text(name).into_owned()));
        }
    }

    /// A sentence for each field that the script reads and no answer and no text had.
    /// `relies_on` says whether a field of that name is read on a line as if it were there.
    pub(crate) fn missing_field_lines(
        &self,
        script: &str,
        relies_on: impl Fn(u32, &str) -> bool,
        call: &Call,
    ) -> Vec<String> {
        let of_texts = self.of_texts.lock();
        let mut lines = self.missing_in_results(script, !of_texts.is_empty(), call);
        for (line, name) in of_texts.iter() {
            let start = format!("script:{line}: ");
            let is_said = |it: &String| it.starts_with(&start) && it.contains(name.as_str());
            if lines.len() == MAX_MISSING_FIELD_LINES
                || lines.iter().any(is_said)
                || !relies_on(*line, name)
            {
                continue;
            }
            let hint = hint_for_field(FieldReceiver::Text, name);
            let hint = hint.map_or_else(String::new, |hint| format!(": {hint}"));
            lines.push(format!("{start}a text has no field {name}{hint}"));
        }
        lines
    }

    /// `surely` something is missing, so that the script has to be read.
    fn missing_in_results(&self, script: &str, surely: bool, call: &Call) -> Vec<String> {
        let tools = self.tools.lock();
        if tools.is_empty() {
            return Vec::new();
        }
        let functions: HashSet<String> = tools
            .keys()
            .map(|tool| to_identifier(tool.rsplit('.').next().unwrap_or(tool)))
            .collect();
        let is_known = |name: &str| {
            functions.contains(name) || tools.values().any(|it| it.names.contains(name))
        };
        if !surely && !may_read_unknown_fields(script, is_known) {
            return Vec::new();
        }
        let mut lines: Vec<String> = Vec::new();
        for read in find_field_reads(script) {
            let Some(line) = missing_field_line(&tools, &read, call) else { continue };
            if !lines.contains(&line) {
                lines.push(line);
            }
            if lines.len() == MAX_MISSING_FIELD_LINES {
                break;
            }
        }
        lines
    }
}

/// Why a field was not there, if none of the calls that may have given it had it. Those that
/// were not made say nothing.
fn missing_field_line(
    tools: &HashMap<String, AnsweredFields>,
    read: &ResultFieldRead,
    call: &Call,
) -> Option<String> {
    let mut first = None;
    for origin in &read.origins {
        let (tool, path) = origin.find_tool(call.catalog().sdk())?;
        let Some(fields) = tools.get(&tool.name) else { continue };
        let why = fields.explain_missing_field(origin, &read.field, tool, call)?;
        let line = read.line;
        first.get_or_insert_with(|| format!("script:{line}: the result of {path} {why}"));
    }
    first
}

impl AnsweredFields {
    fn add_names(&mut self, answer: &Value) {
        let mut left = MAX_ANSWER_VALUES;
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
    fn explain_missing_field(
        &self,
        at: &ResultPath,
        name: &str,
        tool: &Tool,
        call: &Call,
    ) -> Option<String> {
        let field = shorten_text(name);
        if self.tables == 0 && self.texts > 0 && at.path.is_empty() {
            if let Some(hint) = hint_for_field(FieldReceiver::Text, name) {
                return Some(format!("is a text, which has no field {field}: {hint}"));
            }
            let names = self.first.as_ref().map(|first| list_field_names(first, &[]));
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
            && !self.names.contains(name)
            // Where something is missing on the way there, that was said.
            && at.path.iter().all(is_reached);
        if !surely_not || self.may_have_field(name, tool, call) {
            return None;
        }
        let place = at.display_path();
        let inside = if place.is_empty() { String::new() } else { format!(" in {place}") };
        let first = self.first.as_ref()?;
        if kind_at(first, &at.path) == Some("array") {
            let hint = hint_for_field(FieldReceiver::List, name).unwrap_or("its items have fields");
            let what = if place.is_empty() { "is a list" } else { "has a list" };
            return Some(format!("{what}{inside}, which has no field {field}: {hint}"));
        }
        Some(format!("has no field {field}{inside}; it has {}", list_field_names(first, &at.path)))
    }

    /// Whether the field is declared, or was there before. Where nothing is declared and
    /// little is known, it may be.
    fn may_have_field(&self, field: &str, tool: &Tool, call: &Call) -> bool {
        if let Some(output) = &tool.output {
            return mentions_field(&Json::Object((**output.json()).clone()), field);
        }
        match call.gateway().learned_shapes().find_shape(tool, call.caller()) {
            Some(shape) if shape.calls() >= MIN_LEARNED_CALLS => {
                mentions_field(&shape.to_schema(), field)
            }
            _ => true,
        }
    }
}

/// Whether a schema knows a field of that name anywhere, or fields of any name.
fn mentions_field(schema: &Json, field: &str) -> bool {
    match schema {
        Json::Object(fields) => fields.iter().any(|(key, value)| match (key.as_str(), value) {
            ("properties", Json::Object(known)) => {
                known.contains_key(field) || known.values().any(|it| mentions_field(it, field))
            }
            ("patternProperties", _) => true,
            ("additionalProperties", Json::Object(any)) => !any.is_empty(),
            _ => mentions_field(value, field),
        }),
        Json::Array(items) => items.iter().any(|item| mentions_field(item, field)),
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
fn list_field_names(schema: &Json, path: &[ResultStep]) -> String {
    let at = schema_at(schema, path);
    let fields = at.and_then(|it| it.get("properties")).and_then(Json::as_object);
    let names: Vec<&str> =
        fields.into_iter().flat_map(|it| it.keys().map(String::as_str)).collect();
    let shown: Vec<_> =
        names.iter().take(MAX_LISTED_NAMES).map(|name| shorten_text(name)).collect();
    match names.len().saturating_sub(MAX_LISTED_NAMES) {
        _ if names.is_empty() => "other fields".to_owned(),
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
