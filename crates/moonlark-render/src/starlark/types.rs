//! JSON Schema to the types of Starlark and of Python's stubs.
//!
//! A type has no room for a table of fields: one without a name of its own is
//! a `dict`.

use serde_json::{Map, Value as Json};

use super::values::{quote_text, starlark_value};
use moonlark_core::schema::find_referenced_json;

/// Schemas come from authors too: what lies deeper, or comes after so many
/// parts, is `Any`.
const MAX_STARLARK_TYPE_DEPTH: usize = 24;
const MAX_STARLARK_TYPE_PARTS: usize = 1000;

/// Where a type is written.
#[derive(Clone, Copy)]
pub(super) enum StarlarkTypeStyle {
    /// For a reader: `list[str]`.
    Text,
    /// In the class of a module, where `list` may be a function: `List[str]`.
    Stub,
}

/// The type of a value that fits `schema`, on one line.
pub fn starlark_type(schema: &Json) -> String {
    write_type(schema, StarlarkTypeStyle::Text, false)
}

pub(super) fn write_type(schema: &Json, place: StarlarkTypeStyle, none: bool) -> String {
    let mut reader =
        StarlarkTypeReader { root: schema, place, open: Vec::new(), depth: 0, parts: 0 };
    let mut types = reader.read_schema(schema);
    if none {
        types.push("None".to_owned());
    }
    join_union(types)
}

/// Alternatives as one type: none twice, literals together, `None` last.
fn join_union(types: Vec<String>) -> String {
    let mut all: Vec<String> = Vec::new();
    let mut literals: Vec<String> = Vec::new();
    for kind in types {
        let (list, kind) = match kind.strip_prefix(LITERAL_MARK) {
            Some(literal) => (&mut literals, literal.to_owned()),
            None => (&mut all, kind),
        };
        if !list.contains(&kind) {
            list.push(kind);
        }
    }
    // `Any` takes everything in, so nothing beside it says more.
    if all.iter().any(|kind| kind == "Any") || (all.is_empty() && literals.is_empty()) {
        return "Any".to_owned();
    }
    if !literals.is_empty() {
        all.insert(0, format!("Literal[{}]", literals.join(", ")));
    }
    all.sort_by_key(|kind| kind == "None");
    all.join(" | ")
}

/// In front of exactly one value, which no type begins with.
const LITERAL_MARK: char = '=';

struct StarlarkTypeReader<'a> {
    root: &'a Json,
    place: StarlarkTypeStyle,
    /// References on the way here, so that a cycle ends.
    open: Vec<&'a str>,
    depth: usize,
    parts: usize,
}

impl<'a> StarlarkTypeReader<'a> {
    /// The alternatives.
    fn read_schema(&mut self, schema: &'a Json) -> Vec<String> {
        self.parts += 1;
        if self.depth == MAX_STARLARK_TYPE_DEPTH || self.parts > MAX_STARLARK_TYPE_PARTS {
            return vec!["Any".to_owned()];
        }
        self.depth += 1;
        let found = self.read_alternatives(schema);
        self.depth -= 1;
        found
    }

    fn read_alternatives(&mut self, schema: &'a Json) -> Vec<String> {
        let Json::Object(schema) = schema else { return vec!["Any".to_owned()] };
        if let Some(Json::String(reference)) = schema.get("$ref") {
            return self.follow_reference(reference);
        }
        if let Some(value) = schema.get("const") {
            return vec![literal_type(value)];
        }
        if let Some(Json::Array(values)) = schema.get("enum") {
            return values.iter().map(literal_type).collect();
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(Json::Array(choices)) = schema.get(key) {
                return choices.iter().flat_map(|choice| self.read_schema(choice)).collect();
            }
        }
        match schema.get("type") {
            Some(Json::String(kind)) => vec![self.read_kind(kind, schema)],
            Some(Json::Array(kinds)) => kinds
                .iter()
                .filter_map(Json::as_str)
                .map(|kind| self.read_kind(kind, schema))
                .collect(),
            _ if schema.contains_key("properties") => vec![self.read_kind("object", schema)],
            _ => vec!["Any".to_owned()],
        }
    }

    fn read_kind(&mut self, kind: &str, schema: &'a Map<String, Json>) -> String {
        let (list, dict) = match self.place {
            StarlarkTypeStyle::Text => ("list", "dict"),
            StarlarkTypeStyle::Stub => ("List", "Dict"),
        };
        let mut inner = |key: &str| match schema.get(key) {
            Some(inner @ Json::Object(_)) => join_union(self.read_schema(inner)),
            _ => "Any".to_owned(),
        };
        match kind {
            "string" => "str".to_owned(),
            "boolean" => "bool".to_owned(),
            "number" => "float".to_owned(),
            "integer" => "int".to_owned(),
            "null" => "None".to_owned(),
            "array" => format!("{list}[{}]", inner("items")),
            "object" if schema.contains_key("properties") => format!("{dict}[str, Any]"),
            "object" => format!("{dict}[str, {}]", inner("additionalProperties")),
            _ => "Any".to_owned(),
        }
    }

    fn follow_reference(&mut self, reference: &'a str) -> Vec<String> {
        match find_referenced_json(self.root, reference) {
            Some(target) if !self.open.contains(&reference) => {
                self.open.push(reference);
                let found = self.read_schema(target);
                self.open.pop();
                found
            }
            _ => vec!["Any".to_owned()],
        }
    }
}

/// The type of exactly this value.
fn literal_type(value: &Json) -> String {
    match value {
        Json::Null => "None".to_owned(),
        Json::String(text) => format!("{LITERAL_MARK}{}", quote_text(text)),
        Json::Bool(_) => format!("{LITERAL_MARK}{}", starlark_value(value)),
        Json::Number(number) if number.is_f64() => "float".to_owned(),
        Json::Number(number) => format!("{LITERAL_MARK}{number}"),
        _ => "Any".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schemas_become_types() {
        for (schema, expected) in [
            (json!({"type": "string"}), "str"),
            (json!({"type": "integer", "minimum": 0}), "int"),
            (json!({"type": "number"}), "float"),
            (json!({"type": "null"}), "None"),
            (json!({"type": "array"}), "list[Any]"),
            (json!({"type": "array", "items": {"type": ["string", "null"]}}), "list[str | None]"),
            (json!({"type": "object"}), "dict[str, Any]"),
            (
                json!({"type": "object", "additionalProperties": {"type": "string"}}),
                "dict[str, str]",
            ),
            (json!({"type": "object", "properties": {"a": {}}}), "dict[str, Any]"),
            (json!({"enum": ["a", "b", null]}), "Literal[\"a\", \"b\"] | None"),
            (json!({"type": ["null", "boolean"]}), "bool | None"),
            (json!({"oneOf": [{"type": "string"}, {}]}), "Any"),
            (json!({"const": true}), "Literal[True]"),
            (json!({"allOf": [{"type": "object"}]}), "Any"),
            (json!(true), "Any"),
            (json!({"$ref": "#/a", "a": {"type": "array", "items": {"$ref": "#/a"}}}), "list[Any]"),
        ] {
            assert_eq!(starlark_type(&schema), expected, "{schema}");
        }
        let optional = |schema: Json| write_type(&schema, StarlarkTypeStyle::Text, true);
        assert_eq!(optional(json!({"type": ["string", "null"]})), "str | None");
        assert_eq!(optional(json!({"type": "string"})), "str | None");
        assert_eq!(optional(json!({})), "Any");
    }
}
