//! JSON Schema to Luau types.
//!
//! Luau has no integers, no ranges and no patterns in its types, so these are
//! left out; what it can say is said exactly.

use serde_json::{Map, Value as Json};

use super::merged::{any_of, merge};
use super::named::Names;
use crate::render::shape::is_required;

/// Schemas come from authors too, and references can make a short one large:
/// what lies deeper, or comes after so many parts, is `any`.
const DEEPEST: usize = 24;
const LARGEST: usize = 1000;

/// The Luau type of a value that fits `schema`, on one line.
pub fn luau_type(schema: &Json) -> String {
    Reader::new(schema, None).read(schema).written()
}

/// The same for something that may also be left out.
pub fn optional_type(schema: &Json) -> String {
    let mut found = Reader::new(schema, None).read(schema);
    found.nil = true;
    found.written()
}

/// Alternatives, none of them twice; `nil` is kept apart for its `?`.
#[derive(Default)]
pub(super) struct Union {
    types: Vec<String>,
    pub(super) nil: bool,
}

impl Union {
    fn of(text: impl Into<String>) -> Union {
        Union { types: vec![text.into()], nil: false }
    }

    fn nothing() -> Union {
        Union { types: Vec::new(), nil: true }
    }

    fn all(unions: impl IntoIterator<Item = Union>) -> Union {
        let mut all = Union::default();
        for union in unions {
            all.nil |= union.nil;
            for text in union.types {
                if !all.types.contains(&text) {
                    all.types.push(text);
                }
            }
        }
        all
    }

    pub(super) fn written(&self) -> String {
        // `any` takes everything in, so nothing beside it says more.
        if self.types.iter().any(|text| text == "any") {
            return "any".to_owned();
        }
        match (self.types.as_slice(), self.nil) {
            ([], true) => "nil".to_owned(),
            ([], false) => "never".to_owned(),
            ([one], true) if one.contains(" & ") => format!("({one})?"),
            ([one], true) => format!("{one}?"),
            ([one], false) => one.clone(),
            (many, true) => format!("({})?", many.join(" | ")),
            (many, false) => many.join(" | "),
        }
    }
}

pub(super) struct Reader<'a> {
    root: &'a Json,
    /// References on the way here, so that a cycle ends.
    open: Vec<String>,
    depth: usize,
    parts: usize,
    /// Where references get names; without it they are drawn in place.
    names: Option<&'a mut Names>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(root: &'a Json, names: Option<&'a mut Names>) -> Self {
        Reader { root, open: Vec::new(), depth: 0, parts: 0, names }
    }

    pub(super) fn read(&mut self, schema: &Json) -> Union {
        self.parts += 1;
        if self.depth == DEEPEST || self.parts > LARGEST {
            return Union::of("any");
        }
        self.depth += 1;
        let found = self.read_part(schema);
        self.depth -= 1;
        found
    }

    fn read_part(&mut self, schema: &Json) -> Union {
        let schema = match schema {
            Json::Bool(false) => return Union::default(),
            Json::Object(schema) => schema,
            _ => return Union::of("any"),
        };
        if let Some(Json::String(reference)) = schema.get("$ref") {
            return self.follow(reference);
        }
        if let Some(value) = schema.get("const") {
            return self.literal(value);
        }
        if let Some(Json::Array(values)) = schema.get("enum") {
            return Union::all(values.iter().map(|value| self.literal(value)));
        }
        if let Some(choices) = any_of(schema) {
            return Union::all(choices.iter().map(|choice| self.read(choice)));
        }
        if schema.contains_key("allOf") {
            return self.all_of(schema);
        }
        match schema.get("type") {
            Some(Json::String(kind)) => self.kind(kind, schema),
            Some(Json::Array(kinds)) => Union::all(
                kinds.iter().filter_map(Json::as_str).map(|kind| self.kind(kind, schema)),
            ),
            _ if schema.contains_key("properties") => self.kind("object", schema),
            _ => Union::of("any"),
        }
    }

    /// One table where all parts are tables: Luau takes a literal for that, and
    /// people can read it.
    fn all_of(&mut self, schema: &Map<String, Json>) -> Union {
        if let Some(merged) = merge(self.root, schema) {
            return self.read(&merged);
        }
        let parts = schema.get("allOf").and_then(Json::as_array).into_iter().flatten();
        let mut parts: Vec<Union> = parts.map(|part| self.read(part)).collect();
        parts.retain(|part| part.written() != "any");
        match parts.len() {
            0 => Union::of("any"),
            1 => parts.remove(0),
            _ => {
                let parts: Vec<String> = parts.iter().map(Union::written).collect();
                Union::of(parts.join(" & "))
            }
        }
    }

    fn kind(&mut self, kind: &str, schema: &Map<String, Json>) -> Union {
        match kind {
            "string" | "boolean" | "number" => Union::of(kind),
            "integer" => Union::of("number"),
            "null" => Union::nothing(),
            "array" => {
                let items = schema.get("items").map(|items| self.drawn(items));
                Union::of(format!("{{{}}}", items.as_deref().unwrap_or("any")))
            }
            "object" => Union::of(self.object(schema)),
            _ => Union::of("any"),
        }
    }

    fn object(&mut self, schema: &Map<String, Json>) -> String {
        let fields: Vec<String> =
            self.fields(schema).into_iter().map(|(key, value)| format!("{key}: {value}")).collect();
        if fields.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", fields.join(", ")) }
    }

    /// The fields of a table, each with its type, as they are written.
    pub(super) fn fields(&mut self, schema: &Map<String, Json>) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        for (name, field) in
            schema.get("properties").and_then(Json::as_object).into_iter().flatten()
        {
            let mut value = self.read(field);
            value.nil |= !is_required(schema, name);
            fields.push((key(name), self.written(value)));
        }
        let patterns = schema.get("patternProperties").and_then(Json::as_object);
        let others = match schema.get("additionalProperties") {
            Some(value @ Json::Object(_)) => Some(self.drawn(value)),
            Some(Json::Bool(true)) => Some("any".to_owned()),
            _ if patterns.is_some_and(|patterns| !patterns.is_empty()) => Some("any".to_owned()),
            None if fields.is_empty() => Some("any".to_owned()),
            _ => None,
        };
        fields.extend(others.map(|value| ("[string]".to_owned(), value)));
        fields
    }

    fn follow(&mut self, reference: &str) -> Union {
        let root = self.root;
        let target = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        let Some(target) = target.filter(|_| !self.open.iter().any(|open| open == reference))
        else {
            return Union::of("any");
        };
        if let Some(names) = self.names.as_deref_mut()
            && let Some(name) = names.of(reference, target)
        {
            return Union::of(name);
        }
        self.open.push(reference.to_owned());
        let found = self.read(target);
        self.open.pop();
        found
    }

    /// The type of `schema` as it is written.
    pub(super) fn drawn(&mut self, schema: &Json) -> String {
        let found = self.read(schema);
        self.written(found)
    }

    fn is_lenient(&self) -> bool {
        self.names.as_ref().is_some_and(|names| names.lenient)
    }

    fn literal(&self, value: &Json) -> Union {
        match value {
            Json::String(_) if self.is_lenient() => Union::of("string"),
            Json::Bool(_) if self.is_lenient() => Union::of("boolean"),
            value => literal(value),
        }
    }

    fn written(&self, mut value: Union) -> String {
        value.nil &= !self.is_lenient() || value.types.is_empty();
        value.written()
    }
}

/// The type of exactly this value; Luau has such types for text and booleans.
fn literal(value: &Json) -> Union {
    match value {
        Json::Null => Union::nothing(),
        Json::Bool(flag) => Union::of(flag.to_string()),
        Json::Number(_) => Union::of("number"),
        Json::String(text) => Union::of(format!("{text:?}")),
        _ => Union::of("any"),
    }
}

/// A field's name as a table type takes it.
pub(super) fn key(name: &str) -> String {
    if is_name(name) { name.to_owned() } else { format!("[{name:?}]") }
}

/// Luau's keywords; `continue`, `export` and `type` are only words in places.
const KEYWORDS: [&str; 21] = [
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local",
    "nil", "not", "or", "repeat", "return", "then", "true", "until", "while",
];

pub(super) fn is_name(name: &str) -> bool {
    let mut letters = name.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        && !KEYWORDS.contains(&name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plain_types_map_to_their_luau_names() {
        for (schema, expected) in [
            (json!({"type": "string"}), "string"),
            (json!({"type": "number"}), "number"),
            (json!({"type": "integer", "minimum": 0}), "number"),
            (json!({"type": "boolean"}), "boolean"),
            (json!({"type": "null"}), "nil"),
            (json!({"type": "array"}), "{any}"),
            (json!({"type": "array", "items": {"type": "integer"}}), "{number}"),
            (json!({"type": "array", "items": {"type": ["string", "null"]}}), "{string?}"),
            (json!(true), "any"),
            (json!({}), "any"),
            (json!({"description": "Anything."}), "any"),
            (json!(false), "never"),
        ] {
            assert_eq!(luau_type(&schema), expected, "{schema}");
        }
    }

    #[test]
    fn objects_have_fields_or_keys_or_both() {
        for (schema, expected) in [
            (json!({"type": "object"}), "{ [string]: any }"),
            (json!({"type": "object", "additionalProperties": false}), "{}"),
            (
                json!({"type": "object", "additionalProperties": {"type": "string"}}),
                "{ [string]: string }",
            ),
            (
                json!({"type": "object", "required": ["a"], "properties": {
                    "a": {"type": "string"}, "b": {"type": "integer"}, "c-d": {}, "end": {"type": "null"},
                }}),
                "{ a: string, b: number?, [\"c-d\"]: any, [\"end\"]: nil }",
            ),
            (
                json!({"properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "number"}}),
                "{ a: string?, [string]: number }",
            ),
        ] {
            assert_eq!(luau_type(&schema), expected, "{schema}");
        }
    }

    #[test]
    fn choices_become_unions() {
        for (schema, expected) in [
            (json!({"enum": ["low", "high"]}), "\"low\" | \"high\""),
            (json!({"enum": ["low", "high", null]}), "(\"low\" | \"high\")?"),
            (json!({"enum": [1, 2]}), "number"),
            (json!({"const": true}), "true"),
            (json!({"type": ["string", "null"]}), "string?"),
            (json!({"type": ["integer", "number", "string"]}), "number | string"),
            (json!({"anyOf": [{"type": "string"}, {"type": "null"}]}), "string?"),
            (json!({"oneOf": [{"type": "string"}, {}]}), "any"),
            (
                json!({"allOf": [{"type": "object", "properties": {"a": {}}}, {"type": "object"}]}),
                "{ a: any }",
            ),
            (json!({"allOf": [{"type": "string"}], "description": "d"}), "string"),
            (
                json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {}},
                    "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}),
                "{ a: string?, b: any }",
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"],
                    "oneOf": [{"properties": {"b": {"type": "number"}}}, {"required": ["c"], "properties": {"c": {"const": "x"}}}]}),
                "{ a: string, b: number? } | { a: string, c: \"x\" }",
            ),
        ] {
            assert_eq!(luau_type(&schema), expected, "{schema}");
        }
        assert_eq!(optional_type(&json!({"type": "string"})), "string?");
        assert_eq!(optional_type(&json!({"type": ["string", "null"]})), "string?");
        assert_eq!(optional_type(&json!({"enum": ["a", "b"]})), "(\"a\" | \"b\")?");
        assert_eq!(optional_type(&json!({})), "any");
    }

    #[test]
    fn references_are_followed_until_they_repeat() {
        let tree = json!({
            "$ref": "#/$defs/Node",
            "$defs": {"Node": {"type": "object", "properties": {
                "name": {"type": "string"},
                "below": {"type": "array", "items": {"$ref": "#/$defs/Node"}},
            }, "required": ["name", "below"]}},
        });
        assert_eq!(luau_type(&tree), "{ name: string, below: {any} }");
        assert_eq!(luau_type(&json!({"$ref": "https://example.com/x.json"})), "any");
    }

    #[test]
    fn a_schema_that_unfolds_without_end_is_cut() {
        let two = |next: usize| {
            let below = json!({"$ref": format!("#/$defs/{next}")});
            json!({"type": "object", "properties": {"a": below.clone(), "b": below}})
        };
        let defs: Map<String, Json> = (0..60).map(|n| (n.to_string(), two(n + 1))).collect();
        let text = luau_type(&json!({"$ref": "#/$defs/0", "$defs": defs}));
        assert!(text.len() < 100_000, "{}", text.len());
    }
}
