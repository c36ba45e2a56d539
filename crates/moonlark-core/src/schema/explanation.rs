//! Validation messages: what is wrong with a value that does not fit its schema.
//!
//! The library lists everything at once: a million wrong items are as many errors, and each
//! alternative has its own. So a large value is explained by its first error, or, where
//! there are alternatives, by the parameters that do not fit.

use std::borrow::Cow;

use jsonschema::error::{TypeKind, ValidationError, ValidationErrorKind};
use serde_json::{Map, Value as Json};

use super::compiled::CompiledSchema;
use super::error_work::count_error_work;
use super::references::unescape_key;
use super::step_budget::{SchemaVerdict, allow_uncounted_steps, weigh_json};
use super::{WHOLE_OBJECT_KEYWORDS, property_names, required_names};
use crate::nearest::nearest_name;
use crate::value::shorten_text;

/// Errors in one message.
const MAX_LISTED_ERRORS: usize = 5;
/// Up to which weight of a value, and how much of the library's work, all errors are gathered.
const MAX_LISTED_WEIGHT: u64 = 2_000;
const MAX_LISTED_WORK: u64 = 20_000;

/// Whether all that is wrong with a value is little enough to be listed.
pub(super) fn can_list_errors(schema: &Map<String, Json>, json: &Json) -> bool {
    weigh_json(json) <= MAX_LISTED_WEIGHT && count_error_work(schema, json) <= MAX_LISTED_WORK
}

/// The schema, compiled, and what its fields are called.
pub(super) struct MisfitExplainer<'a> {
    pub(super) schema: &'a Map<String, Json>,
    pub(super) compiled: &'a CompiledSchema,
    pub(super) noun: &'a str,
}

impl MisfitExplainer<'_> {
    /// For a value that was found not to fit.
    pub(super) fn explain_misfit(&self, json: &Json) -> String {
        let validator = &self.compiled.validator;
        if can_list_errors(self.schema, json) {
            allow_uncounted_steps();
            let errors = validator.iter_errors(json).take(MAX_LISTED_ERRORS);
            let described: Vec<String> = errors.map(|error| self.describe_error(&error)).collect();
            return described.join("; ");
        }
        let complexity = self.compiled.complexity;
        if !complexity.needs_step_budget
            && !complexity.has_alternatives
            && let Err(error) = validator.validate(json)
        {
            return self.describe_error(&error);
        }
        self.name_misfits(json)
    }

    /// Which fields do not fit, each looked at by itself.
    fn name_misfits(&self, json: &Json) -> String {
        let Json::Object(fields) = json else {
            return format!("the {}s must be an object, got {}", self.noun, json_type_name(json));
        };
        let noun = self.noun;
        let mut wrong: Vec<String> = required_names(self.schema)
            .filter(|name| !fields.contains_key(*name))
            .map(|name| format!("missing required {noun}: {}", shorten_text(name)))
            .collect();
        if self.schema.get("additionalProperties") == Some(&Json::Bool(false)) {
            let is_known = |name: &str| property_names(self.schema).any(|known| known == name);
            let unknown = fields.keys().filter(|name| !is_known(name));
            wrong.extend(unknown.map(|name| self.describe_unknown(name, name, true)));
        }
        if let Some(lenient) = self.compile_without_whole() {
            let fits = |name: &String, value: &Json| {
                let alone = Map::from_iter([(name.clone(), value.clone())]);
                lenient.check_value(&Json::Object(alone)) == SchemaVerdict::Fits
            };
            let misfits = fields.iter().filter(|(name, value)| !fits(name, value));
            wrong.extend(misfits.map(|(name, _)| {
                format!("{noun} '{}' does not fit its schema", shorten_text(name))
            }));
        }
        wrong.truncate(MAX_LISTED_ERRORS);
        if wrong.is_empty() {
            return format!("the {noun}s do not fit their schema");
        }
        wrong.join("; ")
    }

    /// The schema without what judges all fields together.
    fn compile_without_whole(&self) -> Option<CompiledSchema> {
        let mut lenient = self.schema.clone();
        let together = ["additionalProperties", "unevaluatedProperties"];
        lenient.retain(|keyword, _| {
            !WHOLE_OBJECT_KEYWORDS.contains(&keyword.as_str())
                && !together.contains(&keyword.as_str())
        });
        CompiledSchema::compile(&Json::Object(lenient), None).ok()
    }

    fn describe_error(&self, error: &ValidationError<'_>) -> String {
        let noun = self.noun;
        let path = dotted_path(error.instance_path().as_str());
        let at = if path.is_empty() { format!("the {noun}s") } else { format!("{noun} '{path}'") };
        let inside =
            |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        match error.kind() {
            ValidationErrorKind::Required { property } => {
                format!("missing required {noun}: {}", inside(property.as_str().unwrap_or("?")))
            }
            ValidationErrorKind::AdditionalProperties { unexpected } => {
                let names: Vec<String> = unexpected
                    .iter()
                    .take(MAX_LISTED_ERRORS)
                    .map(|name| self.describe_unknown(&inside(name), name, path.is_empty()))
                    .collect();
                names.join("; ")
            }
            ValidationErrorKind::Type { kind } => {
                let expected = match kind {
                    TypeKind::Single(kind) => kind.to_string(),
                    TypeKind::Multiple(kinds) => {
                        let kinds: Vec<String> =
                            kinds.iter().map(|kind| kind.to_string()).collect();
                        kinds.join(" or ")
                    }
                };
                format!("{at} must be {expected}, got {}", json_type_name(error.instance()))
            }
            ValidationErrorKind::Enum { options } => {
                let options: Vec<String> =
                    options.as_array().into_iter().flatten().map(shorten_json).collect();
                format!(
                    "{at} must be one of {}, got {}",
                    options.join(", "),
                    shorten_json(error.instance())
                )
            }
            ValidationErrorKind::Minimum { limit } => format!("{at} must be at least {limit}"),
            ValidationErrorKind::Maximum { limit } => format!("{at} must be at most {limit}"),
            ValidationErrorKind::Pattern { pattern } => format!("{at} must match {pattern}"),
            _ => match explain_limit(error.kind(), error.instance()) {
                Some(said) => format!("{at} {said}"),
                None => format!("{at}: {}", explain_in_words_of_library(error)),
            },
        }
    }

    fn describe_unknown(&self, full: &str, name: &str, top: bool) -> String {
        let noun = self.noun;
        let full = shorten_text(full);
        match nearest_name(name, property_names(self.schema)) {
            Some(known) if top => format!("unknown {noun}: {full} (did you mean {known}?)"),
            _ => format!("unknown {noun}: {full}"),
        }
    }
}

/// Which limit a value is beyond, and what it has.
fn explain_limit(kind: &ValidationErrorKind, json: &Json) -> Option<String> {
    let has = |what: &str| format!("{what}, has {}", count_parts(json));
    Some(match kind {
        ValidationErrorKind::MaxLength { limit } => {
            has(&format!("must have at most {}", count_of(*limit, "character")))
        }
        ValidationErrorKind::MinLength { limit } => {
            has(&format!("must have at least {}", count_of(*limit, "character")))
        }
        ValidationErrorKind::MaxItems { limit } => {
            has(&format!("must have at most {}", count_of(*limit, "item")))
        }
        ValidationErrorKind::MinItems { limit } => {
            has(&format!("must have at least {}", count_of(*limit, "item")))
        }
        ValidationErrorKind::MaxProperties { limit } => {
            has(&format!("must have at most {}", count_of(*limit, "field")))
        }
        ValidationErrorKind::MinProperties { limit } => {
            has(&format!("must have at least {}", count_of(*limit, "field")))
        }
        ValidationErrorKind::UniqueItems => "must not have an item twice".to_owned(),
        ValidationErrorKind::MultipleOf { multiple_of } => {
            format!("must be a multiple of {multiple_of}, got {}", shorten_json(json))
        }
        ValidationErrorKind::ExclusiveMinimum { limit } => {
            format!("must be more than {limit}, got {}", shorten_json(json))
        }
        ValidationErrorKind::ExclusiveMaximum { limit } => {
            format!("must be less than {limit}, got {}", shorten_json(json))
        }
        ValidationErrorKind::Constant { expected_value } => {
            format!("must be {}, got {}", shorten_json(expected_value), shorten_json(json))
        }
        _ => return None,
    })
}

/// Its characters, items or fields.
fn count_parts(json: &Json) -> usize {
    match json {
        Json::String(text) => text.chars().count(),
        Json::Array(items) => items.len(),
        Json::Object(fields) => fields.len(),
        Json::Null | Json::Bool(_) | Json::Number(_) => 0,
    }
}

fn count_of(count: u64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// The value comes first in them: where it is long, it would leave no room for the reason.
fn explain_in_words_of_library(error: &ValidationError<'_>) -> String {
    let whole = error.to_string();
    match shorten_text(&whole) {
        Cow::Borrowed(said) => said.to_owned(),
        Cow::Owned(_) => shorten_text(&error.masked().to_string()).into_owned(),
    }
}

/// `/items/0/name` as `items[0].name`.
fn dotted_path(pointer: &str) -> String {
    let mut path = String::new();
    for part in pointer.split('/').skip(1) {
        if part.bytes().all(|b| b.is_ascii_digit()) && !part.is_empty() {
            path.push_str(&format!("[{part}]"));
        } else {
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(&unescape_key(part));
        }
    }
    shorten_text(&path).into_owned()
}

pub(crate) fn json_type_name(json: &Json) -> &'static str {
    match json {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(number) if number.is_f64() => "number",
        Json::Number(_) => "integer",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}

fn shorten_json(json: &Json) -> String {
    match json {
        Json::String(text) => shorten_text(text).into_owned(),
        other => shorten_text(&other.to_string()).into_owned(),
    }
}
