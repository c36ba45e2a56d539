//! The arguments of a call, held to the schema of the tool.
//!
//! Only what the tool would surely refuse is said: values that are there to
//! read, and those whose kind is known whatever happens.

use luau_syntax::ast::{Expression, ExpressionKind, TableItem};
use luau_syntax::location::Location;
use moonlark_core::nearest::nearest_name;
use moonlark_core::schema::{property_names, required_names};
use moonlark_core::sdk::{SdkFunction, SdkSource};
use serde_json::{Map, Value as Json};

use super::CheckFinding;
use super::script_facts::{LocalOrigin, literal_text};
use super::value_kinds::{KindOracle, ValueKinds, kinds_of_schema};
use crate::declared_fields::{find_schema_reference, properties};

/// How deep arguments are looked into, and at how many values and forms of them.
const MAX_ARGUMENT_DEPTH: usize = 12;
const MAX_CHECKED_VALUES: usize = 5000;
/// How many allowed values a message names.
const MAX_LISTED_VALUES: usize = 12;

pub(super) struct ArgumentChecker<'x, 'a, 'c> {
    oracle: &'x KindOracle<'x, 'a, 'c>,
    /// `sdk.files.read_file`
    tool: String,
    root: &'x Map<String, Json>,
    found: Vec<CheckFinding>,
    /// What may still be looked at.
    left: usize,
}

impl<'x, 'a, 'c> ArgumentChecker<'x, 'a, 'c> {
    /// What is wrong with calling the function with `args`, at `place`.
    pub(super) fn check_arguments(
        oracle: &'x KindOracle<'x, 'a, 'c>,
        (source, function): (&SdkSource, &'x SdkFunction),
        args: &[Expression<'a>],
        place: Location,
    ) -> Vec<CheckFinding> {
        let tool = format!("sdk.{}.{}", source.name, function.name);
        let root = &**function.tool.input.json();
        let mut this =
            ArgumentChecker { oracle, tool, root, found: Vec::new(), left: MAX_CHECKED_VALUES };
        this.check_all(args, place);
        this.found
    }

    fn check_all(&mut self, args: &[Expression<'a>], place: Location) {
        let root = self.root;
        let Some(first) = args.first().copied() else {
            return self.report_missing_fields(root, &[], "", place);
        };
        let shown = self.resolve_local(first);
        match shown.kind() {
            ExpressionKind::Nil => self.report_missing_fields(root, &[], "", place),
            ExpressionKind::Table { .. } => {
                self.check_value(shown, root, ArgumentPath::at_root(place), MAX_ARGUMENT_DEPTH)
            }
            _ => {
                let kinds = self.oracle.infer_kinds(first);
                if !kinds.intersects(ValueKinds::TABLE_KIND.join_kinds(ValueKinds::NIL_KIND)) {
                    let words = kinds.describe_kinds();
                    self.add_finding(
                        first.location(),
                        format!("{} takes one table of arguments, not {words}", self.tool),
                    );
                }
            }
        }
    }

    /// The table or text that a local stands for, if it is nothing else.
    fn resolve_local(&self, expression: Expression<'a>) -> Expression<'a> {
        match expression.kind() {
            ExpressionKind::Grouped(inner) => self.resolve_local(inner),
            ExpressionKind::Local { local, .. } => {
                let facts = self.oracle.names.facts;
                let LocalOrigin::Value(value) = facts.local_origin(local) else {
                    return expression;
                };
                match value.kind() {
                    ExpressionKind::Table { .. } if facts.is_used_once(local) => value,
                    ExpressionKind::String { .. }
                    | ExpressionKind::Number { .. }
                    | ExpressionKind::Boolean(_) => value,
                    _ => expression,
                }
            }
            _ => expression,
        }
    }

    fn check_value(
        &mut self,
        expression: Expression<'a>,
        schema: &Map<String, Json>,
        path: ArgumentPath,
        left: usize,
    ) {
        let (Some(left), Some(looked)) = (left.checked_sub(1), self.left.checked_sub(1)) else {
            return;
        };
        self.left = looked;
        if let Some(target) = self.resolve_reference(schema) {
            return self.check_value(expression, target, path, left);
        }
        for part in subschemas(schema, "allOf") {
            self.check_value(expression, part, path.with_sibling_schemas(), left);
        }
        for key in ["anyOf", "oneOf"] {
            if schema.contains_key(key) {
                self.check_alternatives(expression, schema, key, &path, left);
            }
        }
        let shown = self.resolve_local(expression);
        let path = path.with_location(expression.location());
        let kinds = self.oracle.infer_kinds(shown);
        let wanted = kinds_of_schema(schema);
        if !fits_kinds(kinds, wanted) {
            let is_list = schema.get("type").is_some_and(|kind| kind == "array");
            let must = if is_list { "a list".to_owned() } else { wanted.describe_kinds() };
            let message = path.mismatch_message(&must, kinds);
            return self.add_tool_finding(expression.location(), message);
        }
        match shown.kind() {
            ExpressionKind::Table { items } => self.check_table(items, schema, path, left),
            _ => self.check_literal(shown, expression.location(), schema, &path),
        }
    }

    /// One of several schemas has to fit. If none does, and only one of them is
    /// of the right kind, that one says why.
    fn check_alternatives(
        &mut self,
        expression: Expression<'a>,
        schema: &Map<String, Json>,
        key: &str,
        path: &ArgumentPath,
        left: usize,
    ) {
        let choices: Vec<&Map<String, Json>> = subschemas(schema, key).collect();
        let whole = schema.get(key).and_then(Json::as_array).map_or(0, Vec::len);
        if choices.is_empty() || choices.len() < whole {
            return;
        }
        let path = &if schema.contains_key("properties") {
            path.with_sibling_schemas()
        } else {
            path.clone()
        };
        let before = self.found.len();
        let mut complaints = Vec::new();
        for choice in &choices {
            self.check_value(expression, choice, path.clone(), left);
            let found = self.found.split_off(before);
            if found.is_empty() {
                return;
            }
            complaints.push(found);
        }
        let kinds = self.oracle.infer_kinds(self.resolve_local(expression));
        let alike: Vec<usize> = (0..choices.len())
            .filter(|index| {
                let choice = self.resolve_reference(choices[*index]).unwrap_or(choices[*index]);
                kinds_of_schema(choice).intersects(kinds)
            })
            .collect();
        if let [only] = alike.as_slice() {
            return self.found.append(&mut complaints[*only]);
        }
        let wanted = choices
            .iter()
            .map(|choice| kinds_of_schema(self.resolve_reference(choice).unwrap_or(choice)))
            .fold(ValueKinds::NO_KIND, ValueKinds::join_kinds);
        let message = if kinds.intersects(wanted) {
            format!("{} fits none of the forms it can have", path.display_name())
        } else {
            path.mismatch_message(&wanted.describe_kinds(), kinds)
        };
        self.add_tool_finding(expression.location(), message);
    }

    fn check_table(
        &mut self,
        items: &'a [TableItem<'a>],
        schema: &Map<String, Json>,
        path: ArgumentPath,
        left: usize,
    ) {
        let types = |kind: &str| match schema.get("type") {
            Some(Json::String(one)) => one == kind,
            Some(Json::Array(many)) => many.iter().any(|it| it == kind),
            _ => schema.contains_key(if kind == "object" { "properties" } else { "items" }),
        };
        let listed = items.iter().all(|item| matches!(item, TableItem::List { .. }));
        if listed && types("array") {
            if let Some(Json::Object(of)) = schema.get("items") {
                for (index, item) in items.iter().enumerate() {
                    let TableItem::List { value } = item else { continue };
                    self.check_value(*value, of, path.join_index(index + 1), left);
                }
            }
            return;
        }
        if !types("object") {
            if types("array") && !listed && !items.is_empty() {
                let message =
                    format!("{} must be a list, got a table with keys", path.display_name());
                self.add_tool_finding(path.place, message);
            }
            return;
        }
        self.check_fields(items, schema, path, left);
    }

    fn check_fields(
        &mut self,
        items: &'a [TableItem<'a>],
        schema: &Map<String, Json>,
        path: ArgumentPath,
        left: usize,
    ) {
        let properties = properties(schema);
        let others = schema.get("additionalProperties").and_then(Json::as_object);
        let mut given: Vec<&str> = Vec::new();
        let mut certain = true;
        for item in items {
            let (TableItem::Record { key, value } | TableItem::General { key, value }) = item
            else {
                continue;
            };
            let Some(name) = literal_text(*key) else {
                // A key that is computed may be any of them.
                certain = false;
                continue;
            };
            if matches!(value.kind(), ExpressionKind::Nil) {
                continue;
            }
            given.push(name);
            match properties.and_then(|properties| properties.get(name)) {
                Some(Json::Object(property)) => {
                    self.check_value(*value, property, path.join_field(name), left);
                }
                Some(_) => {}
                None => {
                    if let Some(others) = others {
                        self.check_value(*value, others, path.join_field(name), left);
                    } else if !path.others && is_closed_schema(schema) {
                        let place = key.location();
                        given.extend(self.report_unknown_field(place, name, properties, &path));
                    }
                }
            }
        }
        if certain {
            self.report_missing_fields(schema, &given, &path.text, path.place);
        }
    }

    /// The name that was meant, which then is not missing as well.
    fn report_unknown_field<'s>(
        &mut self,
        place: Location,
        name: &str,
        known: Option<&'s Map<String, Json>>,
        path: &ArgumentPath,
    ) -> Option<&'s str> {
        let names = known.into_iter().flat_map(|known| known.keys().map(String::as_str));
        let near = nearest_name(name, names);
        let inside =
            if path.text.is_empty() { String::new() } else { format!(" in {}", path.text) };
        let meant = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        self.add_finding(place, format!("{} has no parameter {name}{inside}{meant}", self.tool));
        near
    }

    fn report_missing_fields(
        &mut self,
        schema: &Map<String, Json>,
        given: &[&str],
        inside: &str,
        place: Location,
    ) {
        let property = |name: &str| schema.get("properties").and_then(|it| it.get(name));
        let missing: Vec<String> = required_names(schema)
            .filter(|name| !given.contains(name))
            // What has a default may be filled in on the way.
            .filter(|name| property(name).is_none_or(|it| it.get("default").is_none()))
            .map(
                |name| if inside.is_empty() { name.to_owned() } else { format!("{inside}.{name}") },
            )
            .collect();
        if !missing.is_empty() {
            let noun = if missing.len() == 1 { "argument" } else { "arguments" };
            self.add_finding(
                place,
                format!("{}: missing {noun} {}", self.tool, missing.join(", ")),
            );
        }
    }

    fn check_literal(
        &mut self,
        shown: Expression<'a>,
        place: Location,
        schema: &Map<String, Json>,
        path: &ArgumentPath,
    ) {
        let allowed: Vec<&Json> = match (schema.get("const"), schema.get("enum")) {
            (Some(only), _) => vec![only],
            (None, Some(Json::Array(values))) => values.iter().collect(),
            _ => Vec::new(),
        };
        let got = match shown.kind() {
            ExpressionKind::String { .. } => literal_text(shown).map(|text| format!("{text:?}")),
            ExpressionKind::Number { value, .. } => Some(value.to_string()),
            ExpressionKind::Boolean(value) => Some(value.to_string()),
            _ => None,
        };
        let Some(got) = got else { return };
        let is_it = |it: &&Json| match shown.kind() {
            ExpressionKind::Number { value, .. } => it.as_f64() == Some(value),
            ExpressionKind::Boolean(value) => it.as_bool() == Some(value),
            _ => it.as_str() == literal_text(shown),
        };
        if !allowed.is_empty() && !allowed.iter().any(is_it) {
            let texts = allowed.iter().filter_map(|it| it.as_str());
            let near = literal_text(shown).and_then(|text| nearest_name(text, texts));
            let near = near.map(|near| format!("; did you mean {near:?}?")).unwrap_or_default();
            let message = allowed_values_message(path, &allowed, &got);
            return self.add_tool_finding(place, format!("{message}{near}"));
        }
        if let ExpressionKind::Number { value, .. } = shown.kind() {
            self.check_number(value, place, schema, path);
        }
    }

    fn check_number(
        &mut self,
        value: f64,
        place: Location,
        schema: &Map<String, Json>,
        path: &ArgumentPath,
    ) {
        let bound = |key: &str| schema.get(key).and_then(Json::as_f64);
        let words = path.display_name();
        if schema.get("type").is_some_and(|kind| kind == "integer") && value.fract() != 0.0 {
            self.add_tool_finding(place, format!("{words} must be a whole number, got {value}"));
        } else if let Some(least) = bound("minimum").filter(|least| value < *least) {
            self.add_tool_finding(place, format!("{words} must be at least {least}, got {value}"));
        } else if let Some(most) = bound("maximum").filter(|most| value > *most) {
            self.add_tool_finding(place, format!("{words} must be at most {most}, got {value}"));
        }
    }

    fn resolve_reference<'s>(&self, schema: &'s Map<String, Json>) -> Option<&'s Map<String, Json>>
    where
        'x: 's,
    {
        find_schema_reference(self.root, schema.get("$ref")?.as_str()?)
    }

    fn add_tool_finding(&mut self, place: Location, message: String) {
        self.add_finding(place, format!("{}: {message}", self.tool));
    }

    fn add_finding(&mut self, place: Location, message: String) {
        self.found.push(CheckFinding::new(place, message));
    }
}

/// Where in the arguments a value is, and where in the script.
#[derive(Clone)]
struct ArgumentPath {
    text: String,
    place: Location,
    /// The schema here is one of several for the same table: they know keys
    /// that this one does not.
    others: bool,
}

impl ArgumentPath {
    fn at_root(place: Location) -> ArgumentPath {
        ArgumentPath { text: String::new(), place, others: false }
    }

    fn join_field(&self, name: &str) -> ArgumentPath {
        let text =
            if self.text.is_empty() { name.to_owned() } else { format!("{}.{name}", self.text) };
        ArgumentPath { text, place: self.place, others: false }
    }

    fn join_index(&self, index: usize) -> ArgumentPath {
        ArgumentPath { text: format!("{}[{index}]", self.text), place: self.place, others: false }
    }

    /// The whole of the arguments is where the call is.
    fn with_location(self, place: Location) -> ArgumentPath {
        if self.text.is_empty() { self } else { ArgumentPath { place, ..self } }
    }

    fn with_sibling_schemas(&self) -> ArgumentPath {
        ArgumentPath { others: true, ..self.clone() }
    }

    fn display_name(&self) -> &str {
        if self.text.is_empty() { "the argument" } else { &self.text }
    }

    fn mismatch_message(&self, must: &str, kinds: ValueKinds) -> String {
        format!("{} must be {must}, got {}", self.display_name(), kinds.describe_kinds())
    }
}

/// A value that may be several things fits if one of them does; one that is
/// surely nothing counts as left out.
fn fits_kinds(kinds: ValueKinds, wanted: ValueKinds) -> bool {
    kinds == ValueKinds::NIL_KIND || kinds.intersects(wanted)
}

fn allowed_values_message(path: &ArgumentPath, allowed: &[&Json], got: &str) -> String {
    let mut words: Vec<String> =
        allowed.iter().take(MAX_LISTED_VALUES).map(|it| it.to_string()).collect();
    if allowed.len() > MAX_LISTED_VALUES {
        words.push(format!("{} more", allowed.len() - MAX_LISTED_VALUES));
    }
    let must = if words.len() == 1 { "must be" } else { "must be one of" };
    format!("{} {must} {}, got {got}", path.display_name(), words.join(", "))
}

/// Whether a key that is not listed means nothing. Where nobody says so, other
/// keys are allowed in principle and ignored in practice.
fn is_closed_schema(schema: &Map<String, Json>) -> bool {
    let others = ["allOf", "anyOf", "oneOf", "$ref", "patternProperties", "if"];
    let is_closed = match schema.get("additionalProperties") {
        Some(others) => *others == Json::Bool(false),
        None => property_names(schema).next().is_some(),
    };
    is_closed && !others.iter().any(|key| schema.contains_key(*key))
}

fn subschemas<'s>(
    schema: &'s Map<String, Json>,
    key: &str,
) -> impl Iterator<Item = &'s Map<String, Json>> {
    let list = schema.get(key).and_then(Json::as_array);
    list.into_iter().flatten().filter_map(Json::as_object)
}
