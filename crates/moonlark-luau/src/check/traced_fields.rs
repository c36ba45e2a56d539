//! Data flow of results that the type checker loses sight of: through helper functions,
//! `map_parallel` and `await_all`. The value is followed to its call, and the field held
//! to what the tool declares there.
//!
//! Also what is surely nil because results are JSON: items below the first, items of
//! objects, and fields of lists and texts.

use luau_syntax::ast::{Expression, ExpressionKind, UnaryOp};
use luau_syntax::location::Location;
use moonlark_core::nearest::nearest_name;
use moonlark_core::sdk::{SdkFunction, SdkSource};
use moonlark_core::value::shorten_text;
use serde_json::{Map, Value as Json};

use super::script_facts::{FieldAccess, LocalOrigin, ScriptFacts, as_field_access, as_local};
use super::sdk_names::SdkNameResolver;
use super::text_fields::is_same_local;
use super::{CheckFinding, script_globals};
use crate::declared_fields::{find_schema_reference, properties};
use crate::field_reads::ListOperation;
use crate::other_languages::{FieldReceiver, hint_for_field};
use crate::result_flow::{ResultFlow, ResultPath, ResultStep, TracedValue};

/// Levels of references and alternatives in a schema.
const MAX_SCHEMA_DEPTH: usize = 16;
/// Names of fields that a hint lists.
const MAX_LISTED_FIELDS: usize = 10;

pub(super) struct TracedFieldChecker<'x, 'a, 'c> {
    pub(super) names: &'x SdkNameResolver<'x, 'a, 'c>,
    pub(super) flow: ResultFlow<'x, 'a>,
}

/// What a tool declares somewhere in its result.
#[derive(Debug, PartialEq, Eq)]
enum DeclaredPart {
    Table(Vec<String>),
    List,
    Text,
}

impl<'a, 'c> TracedFieldChecker<'_, 'a, 'c> {
    /// What is wrong with reading this field, if anything surely is.
    pub(super) fn check_field(
        &self,
        expression: Expression<'a>,
        signature: impl Fn(&SdkSource, &SdkFunction) -> String,
    ) -> Option<CheckFinding> {
        let FieldAccess { base, name, location, colon } = as_field_access(expression)?;
        let facts = self.names.facts;
        if facts.assigned.contains(name) || colon {
            return None;
        }
        if let Some(finding) = self.check_loop_key(base, name, location) {
            return Some(finding);
        }
        let origins = self.flow.trace_results(base)?;
        let mut parts = Vec::new();
        for origin in &origins {
            let (_, function) = self.find_function(origin)?;
            let output = function.tool.output.as_ref()?;
            parts.push(declared_part(output.json(), &origin.path)?);
        }
        let (source, function) = self.find_function(origins.first()?)?;
        let whose = format!("the result of sdk.{}.{}", source.name, function.name);
        let inside = origins.first().map(ResultPath::display_path).unwrap_or_default();
        let inside = if inside.is_empty() { String::new() } else { format!(" in {inside}") };
        if let Some((what, receiver)) = common_receiver(&parts) {
            // What is only looked for may well not be there, and texts have functions.
            let is_of_text =
                receiver == FieldReceiver::Text && script_globals::is_text_function(name);
            if facts.is_tested(expression) || is_of_text {
                return None;
            }
            let verb = if inside.is_empty() { "is" } else { "has" };
            let field = shorten_text(name);
            let message = format!("{whose} {verb} {what}{inside}, which has no field {field}");
            let finding = CheckFinding::new(location, message);
            let hint = hint_for_field(receiver, name).map(str::to_owned);
            return Some(finding.with_hint(hint.unwrap_or_else(|| signature(source, function))));
        }
        let known: Vec<&str> = parts
            .iter()
            .map(|part| match part {
                DeclaredPart::Table(names) => Some(names.iter().map(String::as_str)),
                _ => None,
            })
            .collect::<Option<Vec<_>>>()?
            .into_iter()
            .flatten()
            .collect();
        if known.contains(&name) {
            return None;
        }
        let found = find_misspelt_field(facts, expression, &whose, known.iter().copied())?;
        Some(found.with_hint(signature(source, function)))
    }

    /// `for item in list do item.title`: the first of a loop's names is the place.
    fn check_loop_key(
        &self,
        base: Expression<'a>,
        name: &str,
        place: Location,
    ) -> Option<CheckFinding> {
        let facts = self.names.facts;
        let local = as_local(base)?;
        let LocalOrigin::Key(over) = facts.local_origin(local) else { return None };
        // What a function goes through may be anything.
        let list = match as_local(over).map(|local| facts.local_origin(local)) {
            Some(LocalOrigin::Value(value)) => value,
            _ => over,
        };
        let is_written = matches!(list.kind(), ExpressionKind::Table { .. });
        if !is_written && self.flow.trace_results(over).is_none() {
            return None;
        }
        let local = std::str::from_utf8(local.name.bytes()).ok()?;
        let name = shorten_text(name);
        let message = format!("{local} is the place or name of the item, and has no field {name}");
        let hint = format!("the item comes second: for _, {local} in list do … end");
        Some(CheckFinding::new(place, message).with_hint(hint))
    }

    /// `list[0]`, `list[-1]`
    pub(super) fn check_index(&self, expression: Expression<'a>) -> Option<CheckFinding> {
        let ExpressionKind::IndexExpr { expr, index } = expression.kind() else { return None };
        let number = literal_number(index)?;
        let facts = self.names.facts;
        if number > 0.0 || facts.is_tested(expression) {
            return None;
        }
        let is_list = match self.flow.trace_value(expr)? {
            TracedValue::Results(_) => self.flow.trace_results(expr).is_some(),
            TracedValue::ListOf(_) => true,
            TracedValue::Written(items) => {
                let is_item = |it: &_| matches!(it, luau_syntax::ast::TableItem::List { .. });
                !items.is_empty() && items.iter().all(is_item)
            }
        };
        let hint = if number == 0.0 {
            "the first item is list[1]"
        } else {
            "the last item is list[#list]"
        };
        let message = format!("lists count from 1: there is nothing at [{number}]");
        is_list.then(|| CheckFinding::new(index.location(), message).with_hint(hint))
    }

    /// `#r` and `ipairs(r)` of a result that is declared as an object.
    pub(super) fn check_list_use(
        &self,
        value: Expression<'a>,
        operation: ListOperation,
        place: Location,
    ) -> Option<CheckFinding> {
        let origins = self.flow.trace_results(value)?;
        let mut objects = Vec::new();
        for origin in &origins {
            let (_, function) = self.find_function(origin)?;
            let output = function.tool.output.as_ref()?.json();
            let schema = declared_schema(output, &origin.path)?;
            objects.push((output, is_object(schema).then_some(schema)?));
        }
        let (first, (output, schema)) = (origins.first()?, objects.first()?);
        let declared = properties(schema);
        let names = || declared.into_iter().flat_map(Map::keys);
        // `if #r == 0 then use(r.items) end` knows that it may be an object.
        let facts = self.names.facts;
        if facts.is_length_compared(value) && names().any(|name| facts.reads_field(name)) {
            return None;
        }
        let (source, function) = self.find_function(first)?;
        let inside = first.display_path();
        let what = if inside.is_empty() {
            "is an object".to_owned()
        } else {
            format!("has an object in {}", shorten_text(&inside))
        };
        let message = format!(
            "the result of sdk.{}.{} {what}, not a list: {}",
            source.name,
            function.name,
            operation.describe_for_object()
        );
        let lists: Vec<_> = declared
            .into_iter()
            .flatten()
            .filter(|(_, field)| {
                let field = field.as_object();
                let field = field.and_then(|it| resolve_schema(output, it, MAX_SCHEMA_DEPTH));
                field.is_some_and(|it| is_kind(it, "array"))
            })
            .take(MAX_LISTED_FIELDS)
            .map(|(name, _)| shorten_text(name))
            .collect();
        let hint = if lists.is_empty() {
            "for name, value in pairs(…) do … end goes through its fields".to_owned()
        } else {
            format!("its lists: {}", lists.join(", "))
        };
        Some(CheckFinding::new(place, message).with_hint(hint))
    }

    /// `r.items.map(…)`, `r.name.split(…)`: results have no functions.
    pub(super) fn check_call(
        &self,
        func: Expression<'a>,
        args: &[Expression<'a>],
    ) -> Option<CheckFinding> {
        let FieldAccess { base, name, location, colon } = as_field_access(func)?;
        let facts = self.names.facts;
        // `text.sub(text, 1, 2)` is a way to write it.
        let is_handed_over = args.first().is_some_and(|first| is_same_local(base, *first));
        if colon || is_handed_over || facts.assigned.contains(name) {
            return None;
        }
        let origins = self.flow.trace_results(base)?;
        let (source, function) = self.find_function(origins.first()?)?;
        let path = format!("sdk.{}.{}", source.name, function.name);
        let hint = hint_for_field(FieldReceiver::Unknown, name).map(str::to_owned);
        let as_method = script_globals::is_text_function(name)
            .then(|| format!("for a text, write text:{name}(…)"));
        let message = format!(
            "the result of {path} has no function {}: results are data",
            shorten_text(name)
        );
        Some(CheckFinding::new(location, message).with_optional_hint(as_method.or(hint)))
    }

    /// Whether the script puts something of its own into the result that a value is of.
    pub(super) fn is_changed(&self, value: Expression<'a>) -> bool {
        matches!(self.flow.trace_value(value), Some(TracedValue::Results(_)))
            && self.flow.trace_results(value).is_none()
    }

    fn find_function(&self, origin: &ResultPath) -> Option<(&'c SdkSource, &'c SdkFunction)> {
        origin.find_function(self.names.catalog.sdk())
    }
}

/// A field that a result does not have, and that is nearly one which it has.
pub(super) fn find_misspelt_field<'a, 'n>(
    facts: &ScriptFacts<'a>,
    expression: Expression<'a>,
    whose: &str,
    known: impl Iterator<Item = &'n str>,
) -> Option<CheckFinding> {
    let FieldAccess { name, location, .. } = as_field_access(expression)?;
    // A server may answer with more than it declares: what is like nothing that it does
    // declare may well be there.
    let near = nearest_name(name, known)?;
    // What is only looked for may well not be there, unless it is a typo.
    if facts.is_tested(expression) && facts.reads_field(near) {
        return None;
    }
    let message = format!("{whose} has no field {name} here; did you mean {near}?");
    Some(CheckFinding::new(location, message))
}

fn common_receiver(parts: &[DeclaredPart]) -> Option<(&'static str, FieldReceiver)> {
    let all = |kind: &DeclaredPart| parts.iter().all(|part| part == kind);
    if all(&DeclaredPart::List) {
        Some(("a list", FieldReceiver::List))
    } else if all(&DeclaredPart::Text) {
        Some(("a text", FieldReceiver::Text))
    } else {
        None
    }
}

fn literal_number(index: Expression<'_>) -> Option<f64> {
    match index.kind() {
        ExpressionKind::Number { value, .. } => Some(value),
        ExpressionKind::Unary { op: UnaryOp::Negate, rhs } => Some(-literal_number(rhs)?),
        _ => None,
    }
}

/// What a schema says is at a path; None where that may be several things.
fn declared_part(root: &Map<String, Json>, path: &[ResultStep]) -> Option<DeclaredPart> {
    let schema = declared_schema(root, path)?;
    if is_kind(schema, "array") {
        return Some(DeclaredPart::List);
    }
    if is_kind(schema, "string") {
        return Some(DeclaredPart::Text);
    }
    Some(DeclaredPart::Table(closed_properties(schema)?.keys().cloned().collect()))
}

fn declared_schema<'s>(
    root: &'s Map<String, Json>,
    path: &[ResultStep],
) -> Option<&'s Map<String, Json>> {
    let mut schema = resolve_schema(root, root, MAX_SCHEMA_DEPTH)?;
    for step in path {
        let inner = match step {
            ResultStep::Field(name) => closed_properties(schema)?.get(name)?,
            ResultStep::Item => is_kind(schema, "array").then(|| schema.get("items"))??,
        };
        schema = resolve_schema(root, inner.as_object()?, MAX_SCHEMA_DEPTH)?;
    }
    Some(schema)
}

/// Whether nothing but an object, or nothing at all, is declared.
fn is_object(schema: &Map<String, Json>) -> bool {
    is_kind(schema, "object") || (!schema.contains_key("type") && schema.contains_key("properties"))
}

/// The fields of a table that has no others.
fn closed_properties(schema: &Map<String, Json>) -> Option<&Map<String, Json>> {
    let open = match schema.get("additionalProperties") {
        None | Some(Json::Bool(false)) => schema.contains_key("patternProperties"),
        Some(_) => true,
    };
    if open {
        return None;
    }
    properties(schema).filter(|fields| !fields.is_empty())
}

/// Follow references, and the one alternative that is not null.
fn resolve_schema<'s>(
    root: &'s Map<String, Json>,
    schema: &'s Map<String, Json>,
    left: usize,
) -> Option<&'s Map<String, Json>> {
    let left = left.checked_sub(1)?;
    if ["allOf", "if", "not", "enum", "const"].iter().any(|key| schema.contains_key(*key)) {
        return None;
    }
    if let Some(reference) = schema.get("$ref") {
        return resolve_schema(root, find_schema_reference(root, reference.as_str()?)?, left);
    }
    for key in ["anyOf", "oneOf"] {
        if let Some(alternatives) = schema.get(key) {
            let is_null = |it: &&Json| it.get("type").is_some_and(|kind| kind == "null");
            let mut others = alternatives.as_array()?.iter().filter(|it| !is_null(it));
            let only = others.next()?.as_object()?;
            return if others.next().is_none() { resolve_schema(root, only, left) } else { None };
        }
    }
    Some(schema)
}

/// Whether it is of this kind, or nothing.
fn is_kind(schema: &Map<String, Json>, kind: &str) -> bool {
    match schema.get("type") {
        Some(Json::String(it)) => it == kind,
        Some(Json::Array(kinds)) => {
            let mut others = kinds.iter().filter(|it| *it != "null");
            others.next().is_some_and(|it| it == kind) && others.next().is_none()
        }
        _ => false,
    }
}
