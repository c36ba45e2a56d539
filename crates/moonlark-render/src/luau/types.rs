//! JSON Schema to Luau types.
//!
//! Luau has no integers, no ranges and no patterns in its types, so these are
//! left out; what it can say is said exactly.

use serde_json::{Map, Value as Json};

use super::merged_schema::{merge_all_of, type_alternatives};
use super::type_names::LuauTypeNames;
use crate::function_parts::{is_identifier, is_required, properties_of};
use moonlark_core::schema::find_referenced_json;

/// Schemas come from authors too, and references can make a short one large:
/// what lies deeper, or comes after so many parts, is `any`.
const MAX_LUAU_TYPE_DEPTH: usize = 24;
const MAX_LUAU_TYPE_PARTS: usize = 1000;

/// The Luau type of a value that fits `schema`, on one line.
pub fn luau_type(schema: &Json) -> String {
    LuauTypeReader::new(schema, None).read_schema(schema).to_text()
}

/// The same for something that may also be left out.
pub fn luau_optional_type(schema: &Json) -> String {
    let mut found = LuauTypeReader::new(schema, None).read_schema(schema);
    found.nil = true;
    found.to_text()
}

/// Alternatives, none of them twice; `nil` is kept apart for its `?`.
#[derive(Default)]
pub(super) struct LuauUnion {
    types: Vec<String>,
    pub(super) nil: bool,
}

impl LuauUnion {
    fn from_type(text: impl Into<String>) -> LuauUnion {
        LuauUnion { types: vec![text.into()], nil: false }
    }

    fn nil_only() -> LuauUnion {
        LuauUnion { types: Vec::new(), nil: true }
    }

    fn union_of(unions: impl IntoIterator<Item = LuauUnion>) -> LuauUnion {
        let mut all = LuauUnion::default();
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

    pub(super) fn to_text(&self) -> String {
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

pub(super) struct LuauTypeReader<'a> {
    root: &'a Json,
    /// References on the way here, so that a cycle ends.
    open: Vec<String>,
    depth: usize,
    parts: usize,
    /// Where references get names; without it they are drawn in place.
    names: Option<&'a mut LuauTypeNames>,
}

impl<'a> LuauTypeReader<'a> {
    pub(super) fn new(root: &'a Json, names: Option<&'a mut LuauTypeNames>) -> Self {
        LuauTypeReader { root, open: Vec::new(), depth: 0, parts: 0, names }
    }

    pub(super) fn read_schema(&mut self, schema: &Json) -> LuauUnion {
        self.parts += 1;
        if self.depth == MAX_LUAU_TYPE_DEPTH || self.parts > MAX_LUAU_TYPE_PARTS {
            return LuauUnion::from_type("any");
        }
        self.depth += 1;
        let found = self.read_alternatives(schema);
        self.depth -= 1;
        found
    }

    fn read_alternatives(&mut self, schema: &Json) -> LuauUnion {
        let schema = match schema {
            Json::Bool(false) => return LuauUnion::default(),
            Json::Object(schema) => schema,
            _ => return LuauUnion::from_type("any"),
        };
        if let Some(Json::String(reference)) = schema.get("$ref") {
            return self.follow_reference(reference);
        }
        if let Some(value) = schema.get("const") {
            return self.read_literal(value);
        }
        if let Some(Json::Array(values)) = schema.get("enum") {
            return LuauUnion::union_of(values.iter().map(|value| self.read_literal(value)));
        }
        if let Some(choices) = type_alternatives(schema) {
            return LuauUnion::union_of(choices.iter().map(|choice| self.read_schema(choice)));
        }
        if schema.contains_key("allOf") {
            return self.read_all_of(schema);
        }
        match schema.get("type") {
            Some(Json::String(kind)) => self.read_kind(kind, schema),
            Some(Json::Array(kinds)) => LuauUnion::union_of(
                kinds.iter().filter_map(Json::as_str).map(|kind| self.read_kind(kind, schema)),
            ),
            _ if schema.contains_key("properties") => self.read_kind("object", schema),
            _ => LuauUnion::from_type("any"),
        }
    }

    /// One table where all parts are tables: Luau takes a literal for that, and
    /// people can read it.
    fn read_all_of(&mut self, schema: &Map<String, Json>) -> LuauUnion {
        if let Some(merged) = merge_all_of(self.root, schema) {
            return self.read_schema(&merged);
        }
        let parts = schema.get("allOf").and_then(Json::as_array).into_iter().flatten();
        let mut parts: Vec<LuauUnion> = parts.map(|part| self.read_schema(part)).collect();
        parts.retain(|part| part.to_text() != "any");
        match parts.len() {
            0 => LuauUnion::from_type("any"),
            1 => parts.remove(0),
            _ => {
                let parts: Vec<String> = parts.iter().map(LuauUnion::to_text).collect();
                LuauUnion::from_type(parts.join(" & "))
            }
        }
    }

    fn read_kind(&mut self, kind: &str, schema: &Map<String, Json>) -> LuauUnion {
        match kind {
            "string" | "boolean" | "number" => LuauUnion::from_type(kind),
            "integer" => LuauUnion::from_type("number"),
            "null" => LuauUnion::nil_only(),
            "array" => {
                let items = schema.get("items").map(|items| self.read_to_text(items));
                LuauUnion::from_type(format!("{{{}}}", items.as_deref().unwrap_or("any")))
            }
            "object" => LuauUnion::from_type(self.read_object(schema)),
            _ => LuauUnion::from_type("any"),
        }
    }

    fn read_object(&mut self, schema: &Map<String, Json>) -> String {
        let fields = self.read_fields(schema).into_iter();
        let fields: Vec<_> = fields.map(|(key, value)| format!("{key}: {value}")).collect();
        if fields.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", fields.join(", ")) }
    }

    /// The fields of a table, each with its type, as they are written.
    pub(super) fn read_fields(&mut self, schema: &Map<String, Json>) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        for (name, field) in properties_of(schema) {
            let mut value = self.read_schema(field);
            value.nil |= !is_required(schema, name);
            fields.push((table_key(name), self.write_union(value)));
        }
        let patterns = schema.get("patternProperties").and_then(Json::as_object);
        let others = match schema.get("additionalProperties") {
            Some(value @ Json::Object(_)) => Some(self.read_to_text(value)),
            Some(Json::Bool(true)) => Some("any".to_owned()),
            _ if patterns.is_some_and(|patterns| !patterns.is_empty()) => Some("any".to_owned()),
            None if fields.is_empty() => Some("any".to_owned()),
            _ => None,
        };
        fields.extend(others.map(|value| ("[string]".to_owned(), value)));
        fields
    }

    fn follow_reference(&mut self, reference: &str) -> LuauUnion {
        let root = self.root;
        let target = find_referenced_json(root, reference);
        let Some(target) = target.filter(|_| !self.open.iter().any(|open| open == reference))
        else {
            return LuauUnion::from_type("any");
        };
        if let Some(names) = self.names.as_deref_mut()
            && let Some(name) = names.name_for(reference, target)
        {
            return LuauUnion::from_type(name);
        }
        self.open.push(reference.to_owned());
        let found = self.read_schema(target);
        self.open.pop();
        found
    }

    /// The type of `schema` as it is written.
    pub(super) fn read_to_text(&mut self, schema: &Json) -> String {
        let found = self.read_schema(schema);
        self.write_union(found)
    }

    fn is_lenient(&self) -> bool {
        self.names.as_ref().is_some_and(|names| names.lenient)
    }

    fn read_literal(&self, value: &Json) -> LuauUnion {
        match value {
            Json::String(_) if self.is_lenient() => LuauUnion::from_type("string"),
            Json::Bool(_) if self.is_lenient() => LuauUnion::from_type("boolean"),
            value => literal_type(value),
        }
    }

    fn write_union(&self, mut value: LuauUnion) -> String {
        value.nil &= !self.is_lenient() || value.types.is_empty();
        value.to_text()
    }
}

/// The type of exactly this value; Luau has such types for text and booleans.
fn literal_type(value: &Json) -> LuauUnion {
    match value {
        Json::Null => LuauUnion::nil_only(),
        Json::Bool(flag) => LuauUnion::from_type(flag.to_string()),
        Json::Number(_) => LuauUnion::from_type("number"),
        Json::String(text) => LuauUnion::from_type(format!("{text:?}")),
        _ => LuauUnion::from_type("any"),
    }
}

/// A field's name as a table type takes it.
pub(super) fn table_key(name: &str) -> String {
    if is_luau_name(name) { name.to_owned() } else { format!("[{name:?}]") }
}

/// Luau's keywords; `continue`, `export` and `type` are only words in places.
const LUAU_KEYWORDS: [&str; 21] = [
    "and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local",
    "nil", "not", "or", "repeat", "return", "then", "true", "until", "while",
];

pub fn is_luau_name(name: &str) -> bool {
    is_identifier(name) && !LUAU_KEYWORDS.contains(&name)
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
        assert_eq!(luau_optional_type(&json!({"type": "string"})), "string?");
        assert_eq!(luau_optional_type(&json!({"type": ["string", "null"]})), "string?");
        assert_eq!(luau_optional_type(&json!({"enum": ["a", "b"]})), "(\"a\" | \"b\")?");
        assert_eq!(luau_optional_type(&json!({})), "any");
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
