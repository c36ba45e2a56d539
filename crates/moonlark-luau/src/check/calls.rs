//! The arguments of a call, held to the schema of the tool.
//!
//! Only what the tool would surely refuse is said: values that are there to
//! read, and those whose kind is known whatever happens.

use luau_syntax::ast::{Expression, ExpressionKind, TableItem};
use luau_syntax::location::Location;
use moonlark_core::nearest::nearest;
use moonlark_core::sdk::{SdkFunction, SdkSource};
use serde_json::{Map, Value as Json};

use super::Finding;
use super::facts::Origin;
use super::kinds::{Kinds, Oracle, of_schema};

/// How deep arguments are looked into, and at how many values and forms of them.
const DEEPEST: usize = 12;
const MOST: usize = 5000;
/// How many allowed values a message names.
const SOME: usize = 12;

pub(super) struct Arguments<'x, 'a, 'c> {
    oracle: &'x Oracle<'x, 'a, 'c>,
    /// `sdk.files.read_file`
    tool: String,
    root: &'x Map<String, Json>,
    found: Vec<Finding>,
    /// What may still be looked at.
    left: usize,
}

impl<'x, 'a, 'c> Arguments<'x, 'a, 'c> {
    /// What is wrong with calling the function with `args`, at `place`.
    pub(super) fn check(
        oracle: &'x Oracle<'x, 'a, 'c>,
        (source, function): (&SdkSource, &'x SdkFunction),
        args: &[Expression<'a>],
        place: Location,
    ) -> Vec<Finding> {
        let tool = format!("sdk.{}.{}", source.name, function.name);
        let root = &**function.tool.input.json();
        let mut this = Arguments { oracle, tool, root, found: Vec::new(), left: MOST };
        this.all(args, place);
        this.found
    }

    fn all(&mut self, args: &[Expression<'a>], place: Location) {
        let root = self.root;
        let Some(first) = args.first().copied() else {
            return self.missing(root, &[], "", place);
        };
        let shown = self.seen_through(first);
        match shown.kind() {
            ExpressionKind::Nil => self.missing(root, &[], "", place),
            ExpressionKind::Table { .. } => self.value(shown, root, Path::top(place), DEEPEST),
            _ => {
                let kinds = self.oracle.kinds(first);
                if !kinds.meets(Kinds::TABLE.or(Kinds::NIL)) {
                    let words = kinds.words();
                    self.say(
                        first.location(),
                        format!("{} takes one table of arguments, not {words}", self.tool),
                    );
                }
            }
        }
    }

    /// The table or text that a local stands for, if it is nothing else.
    fn seen_through(&self, expression: Expression<'a>) -> Expression<'a> {
        match expression.kind() {
            ExpressionKind::Grouped(inner) => self.seen_through(inner),
            ExpressionKind::Local { local, .. } => {
                let facts = self.oracle.names.facts;
                let Origin::Value(value) = facts.origin(local) else { return expression };
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

    fn value(
        &mut self,
        expression: Expression<'a>,
        schema: &Map<String, Json>,
        path: Path,
        left: usize,
    ) {
        let (Some(left), Some(looked)) = (left.checked_sub(1), self.left.checked_sub(1)) else {
            return;
        };
        self.left = looked;
        if let Some(target) = self.target(schema) {
            return self.value(expression, target, path, left);
        }
        for part in list(schema, "allOf") {
            self.value(expression, part, path.with_others(), left);
        }
        for key in ["anyOf", "oneOf"] {
            if schema.contains_key(key) {
                self.one_of(expression, schema, key, &path, left);
            }
        }
        let shown = self.seen_through(expression);
        let path = path.at(expression.location());
        let kinds = self.oracle.kinds(shown);
        let wanted = of_schema(schema);
        if !fits(kinds, wanted) {
            let is_list = schema.get("type").is_some_and(|kind| kind == "array");
            let must = if is_list { "a list".to_owned() } else { wanted.words() };
            let message = format!("{} must be {must}, got {}", path.words(), kinds.words());
            return self.say_of(expression.location(), message);
        }
        match shown.kind() {
            ExpressionKind::Table { items } => self.table(items, schema, path, left),
            _ => self.literal(shown, expression.location(), schema, &path),
        }
    }

    /// One of several schemas has to fit. If none does, and only one of them is
    /// of the right kind, that one says why.
    fn one_of(
        &mut self,
        expression: Expression<'a>,
        schema: &Map<String, Json>,
        key: &str,
        path: &Path,
        left: usize,
    ) {
        let choices: Vec<&Map<String, Json>> = list(schema, key).collect();
        let whole = schema.get(key).and_then(Json::as_array).map_or(0, Vec::len);
        if choices.is_empty() || choices.len() < whole {
            return;
        }
        let path =
            &if schema.contains_key("properties") { path.with_others() } else { path.clone() };
        let before = self.found.len();
        let mut complaints = Vec::new();
        for choice in &choices {
            self.value(expression, choice, path.clone(), left);
            let found = self.found.split_off(before);
            if found.is_empty() {
                return;
            }
            complaints.push(found);
        }
        let kinds = self.oracle.kinds(self.seen_through(expression));
        let alike: Vec<usize> = (0..choices.len())
            .filter(|index| {
                let choice = self.target(choices[*index]).unwrap_or(choices[*index]);
                of_schema(choice).meets(kinds)
            })
            .collect();
        if let [only] = alike.as_slice() {
            return self.found.append(&mut complaints[*only]);
        }
        let wanted = choices
            .iter()
            .map(|choice| of_schema(self.target(choice).unwrap_or(choice)))
            .fold(Kinds::NONE, Kinds::or);
        let message = if kinds.meets(wanted) {
            format!("{} fits none of the forms it can have", path.words())
        } else {
            format!("{} must be {}, got {}", path.words(), wanted.words(), kinds.words())
        };
        self.say_of(expression.location(), message);
    }

    fn table(
        &mut self,
        items: &'a [TableItem<'a>],
        schema: &Map<String, Json>,
        path: Path,
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
                    self.value(*value, of, path.item(index + 1), left);
                }
            }
            return;
        }
        if !types("object") {
            if types("array") && !listed && !items.is_empty() {
                let message = format!("{} must be a list, got a table with keys", path.words());
                self.say_of(path.place, message);
            }
            return;
        }
        self.fields(items, schema, path, left);
    }

    fn fields(
        &mut self,
        items: &'a [TableItem<'a>],
        schema: &Map<String, Json>,
        path: Path,
        left: usize,
    ) {
        let properties = schema.get("properties").and_then(Json::as_object);
        let others = schema.get("additionalProperties").and_then(Json::as_object);
        let mut given: Vec<&str> = Vec::new();
        let mut certain = true;
        for item in items {
            let (TableItem::Record { key, value } | TableItem::General { key, value }) = item
            else {
                continue;
            };
            let ExpressionKind::String { value: name, .. } = key.kind() else {
                // A key that is computed may be any of them.
                certain = false;
                continue;
            };
            let Ok(name) = std::str::from_utf8(name.into_bytes()) else { continue };
            if matches!(value.kind(), ExpressionKind::Nil) {
                continue;
            }
            given.push(name);
            match properties.and_then(|properties| properties.get(name)) {
                Some(Json::Object(property)) => {
                    self.value(*value, property, path.field(name), left);
                }
                Some(_) => {}
                None if others.is_some() => {
                    let others = others.into_iter();
                    others.for_each(|others| self.value(*value, others, path.field(name), left));
                }
                None if !path.others && is_closed(schema) => {
                    given.extend(self.unknown(key.location(), name, properties, &path));
                }
                None => {}
            }
        }
        if certain {
            self.missing(schema, &given, &path.text, path.place);
        }
    }

    /// The name that was meant, which then is not missing as well.
    fn unknown<'s>(
        &mut self,
        place: Location,
        name: &str,
        known: Option<&'s Map<String, Json>>,
        path: &Path,
    ) -> Option<&'s str> {
        let names = known.into_iter().flat_map(|known| known.keys().map(String::as_str));
        let near = nearest(name, names);
        let inside =
            if path.text.is_empty() { String::new() } else { format!(" in {}", path.text) };
        let meant = near.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
        self.say(place, format!("{} has no parameter {name}{inside}{meant}", self.tool));
        near
    }

    fn missing(
        &mut self,
        schema: &Map<String, Json>,
        given: &[&str],
        inside: &str,
        place: Location,
    ) {
        let property = |name: &str| schema.get("properties").and_then(|it| it.get(name));
        let required = schema.get("required").and_then(Json::as_array).into_iter().flatten();
        let missing: Vec<String> = required
            .filter_map(Json::as_str)
            .filter(|name| !given.contains(name))
            // What has a default may be filled in on the way.
            .filter(|name| property(name).is_none_or(|it| it.get("default").is_none()))
            .map(
                |name| if inside.is_empty() { name.to_owned() } else { format!("{inside}.{name}") },
            )
            .collect();
        if !missing.is_empty() {
            let noun = if missing.len() == 1 { "argument" } else { "arguments" };
            self.say(place, format!("{}: missing {noun} {}", self.tool, missing.join(", ")));
        }
    }

    fn literal(
        &mut self,
        shown: Expression<'a>,
        place: Location,
        schema: &Map<String, Json>,
        path: &Path,
    ) {
        let allowed: Vec<&Json> = match (schema.get("const"), schema.get("enum")) {
            (Some(only), _) => vec![only],
            (None, Some(Json::Array(values))) => values.iter().collect(),
            _ => Vec::new(),
        };
        match shown.kind() {
            ExpressionKind::String { value, .. } => {
                let Ok(text) = std::str::from_utf8(value.into_bytes()) else { return };
                if !allowed.is_empty() && !allowed.iter().any(|it| it.as_str() == Some(text)) {
                    let near = nearest(text, allowed.iter().filter_map(|it| it.as_str()));
                    let near = near.map(|near| format!("; did you mean {near:?}?"));
                    let message = one_of_these(path, &allowed, &format!("{text:?}"));
                    self.say_of(place, format!("{message}{}", near.unwrap_or_default()));
                }
            }
            ExpressionKind::Number { value, .. } => {
                let is = |it: &&Json| it.as_f64() == Some(value);
                if !allowed.is_empty() && !allowed.iter().any(is) {
                    return self.say_of(place, one_of_these(path, &allowed, &value.to_string()));
                }
                self.number(value, place, schema, path);
            }
            ExpressionKind::Boolean(value)
                if !allowed.is_empty() && !allowed.iter().any(|it| it.as_bool() == Some(value)) =>
            {
                self.say_of(place, one_of_these(path, &allowed, &value.to_string()));
            }
            _ => {}
        }
    }

    fn number(&mut self, value: f64, place: Location, schema: &Map<String, Json>, path: &Path) {
        let bound = |key: &str| schema.get(key).and_then(Json::as_f64);
        let words = path.words();
        if schema.get("type").is_some_and(|kind| kind == "integer") && value.fract() != 0.0 {
            self.say_of(place, format!("{words} must be a whole number, got {value}"));
        } else if let Some(least) = bound("minimum").filter(|least| value < *least) {
            self.say_of(place, format!("{words} must be at least {least}, got {value}"));
        } else if let Some(most) = bound("maximum").filter(|most| value > *most) {
            self.say_of(place, format!("{words} must be at most {most}, got {value}"));
        }
    }

    fn target<'s>(&self, schema: &'s Map<String, Json>) -> Option<&'s Map<String, Json>>
    where
        'x: 's,
    {
        let reference = schema.get("$ref")?.as_str()?.strip_prefix("#/")?;
        let mut parts = reference.split('/').map(|part| part.replace("~1", "/").replace("~0", "~"));
        let mut found: &'s Json = self.root.get(&parts.next()?)?;
        for part in parts {
            found = found.get(&part)?;
        }
        found.as_object()
    }

    fn say_of(&mut self, place: Location, message: String) {
        self.say(place, format!("{}: {message}", self.tool));
    }

    fn say(&mut self, place: Location, message: String) {
        self.found.push(Finding::new(place, message));
    }
}

/// Where in the arguments a value is, and where in the script.
#[derive(Clone)]
struct Path {
    text: String,
    place: Location,
    /// The schema here is one of several for the same table: they know keys
    /// that this one does not.
    others: bool,
}

impl Path {
    fn top(place: Location) -> Path {
        Path { text: String::new(), place, others: false }
    }

    fn field(&self, name: &str) -> Path {
        let text =
            if self.text.is_empty() { name.to_owned() } else { format!("{}.{name}", self.text) };
        Path { text, place: self.place, others: false }
    }

    fn item(&self, index: usize) -> Path {
        Path { text: format!("{}[{index}]", self.text), place: self.place, others: false }
    }

    /// The whole of the arguments is where the call is.
    fn at(self, place: Location) -> Path {
        if self.text.is_empty() { self } else { Path { place, ..self } }
    }

    fn with_others(&self) -> Path {
        Path { others: true, ..self.clone() }
    }

    fn words(&self) -> &str {
        if self.text.is_empty() { "the argument" } else { &self.text }
    }
}

/// A value that may be several things fits if one of them does; one that is
/// surely nothing counts as left out.
fn fits(kinds: Kinds, wanted: Kinds) -> bool {
    kinds == Kinds::NIL || kinds.meets(wanted)
}

fn one_of_these(path: &Path, allowed: &[&Json], got: &str) -> String {
    let mut words: Vec<String> = allowed.iter().take(SOME).map(|it| it.to_string()).collect();
    if allowed.len() > SOME {
        words.push(format!("{} more", allowed.len() - SOME));
    }
    let must = if words.len() == 1 { "must be" } else { "must be one of" };
    format!("{} {must} {}, got {got}", path.words(), words.join(", "))
}

/// Whether a key that is not listed means nothing. Where nobody says so, other
/// keys are allowed in principle and ignored in practice.
fn is_closed(schema: &Map<String, Json>) -> bool {
    let others = ["allOf", "anyOf", "oneOf", "$ref", "patternProperties", "if"];
    match schema.get("additionalProperties") {
        Some(Json::Bool(false)) => !others.iter().any(|key| schema.contains_key(*key)),
        Some(_) => false,
        None => {
            let properties = schema.get("properties").and_then(Json::as_object);
            properties.is_some_and(|properties| !properties.is_empty())
                && !others.iter().any(|key| schema.contains_key(*key))
        }
    }
}

fn list<'s>(
    schema: &'s Map<String, Json>,
    key: &str,
) -> impl Iterator<Item = &'s Map<String, Json>> {
    let list = schema.get(key).and_then(Json::as_array);
    list.into_iter().flatten().filter_map(Json::as_object)
}
