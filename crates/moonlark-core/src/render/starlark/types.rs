//! JSON Schema to the types of Starlark and of Python's stubs.
//!
//! A type has no room for a table of fields: one without a name of its own is
//! a `dict`.

use serde_json::{Map, Value as Json};

use super::values::{quoted, starlark_value};

/// Schemas come from authors too: what lies deeper, or comes after so many
/// parts, is `Any`.
const DEEPEST: usize = 24;
const LARGEST: usize = 1000;

/// Where a type is written.
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// For a reader: `list[str]`.
    Text,
    /// In the class of a module, where `list` may be a function: `List[str]`.
    Stub,
}

/// The type of a value that fits `schema`, on one line.
pub fn starlark_type(schema: &Json) -> String {
    written(schema, Place::Text, false)
}

/// The same for something that may also be `None`.
pub fn optional_type(schema: &Json) -> String {
    written(schema, Place::Text, true)
}

pub(super) fn written(schema: &Json, place: Place, none: bool) -> String {
    let mut reader = Reader { root: schema, place, open: Vec::new(), depth: 0, parts: 0 };
    let mut types = reader.read(schema);
    if none {
        types.push("None".to_owned());
    }
    union(types)
}

/// Alternatives as one type: none twice, literals together, `None` last.
fn union(types: Vec<String>) -> String {
    let mut all: Vec<String> = Vec::new();
    let mut literals: Vec<String> = Vec::new();
    for kind in types {
        let (list, kind) = match kind.strip_prefix(LITERAL) {
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
const LITERAL: char = '=';

struct Reader<'a> {
    root: &'a Json,
    place: Place,
    /// References on the way here, so that a cycle ends.
    open: Vec<&'a str>,
    depth: usize,
    parts: usize,
}

impl<'a> Reader<'a> {
    /// The alternatives.
    fn read(&mut self, schema: &'a Json) -> Vec<String> {
        self.parts += 1;
        if self.depth == DEEPEST || self.parts > LARGEST {
            return vec!["Any".to_owned()];
        }
        self.depth += 1;
        let found = self.read_part(schema);
        self.depth -= 1;
        found
    }

    fn read_part(&mut self, schema: &'a Json) -> Vec<String> {
        let Json::Object(schema) = schema else { return vec!["Any".to_owned()] };
        if let Some(Json::String(reference)) = schema.get("$ref") {
            return self.follow(reference);
        }
        if let Some(value) = schema.get("const") {
            return vec![literal(value)];
        }
        if let Some(Json::Array(values)) = schema.get("enum") {
            return values.iter().map(literal).collect();
        }
        for key in ["anyOf", "oneOf"] {
            if let Some(Json::Array(choices)) = schema.get(key) {
                return choices.iter().flat_map(|choice| self.read(choice)).collect();
            }
        }
        match schema.get("type") {
            Some(Json::String(kind)) => vec![self.kind(kind, schema)],
            Some(Json::Array(kinds)) => {
                kinds.iter().filter_map(Json::as_str).map(|kind| self.kind(kind, schema)).collect()
            }
            _ if schema.contains_key("properties") => vec![self.kind("object", schema)],
            _ => vec!["Any".to_owned()],
        }
    }

    fn kind(&mut self, kind: &str, schema: &'a Map<String, Json>) -> String {
        let (list, dict) = match self.place {
            Place::Text => ("list", "dict"),
            Place::Stub => ("List", "Dict"),
        };
        let mut inner = |key: &str| match schema.get(key) {
            Some(inner @ Json::Object(_)) => union(self.read(inner)),
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

    fn follow(&mut self, reference: &'a str) -> Vec<String> {
        let target = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
        match target {
            Some(target) if !self.open.contains(&reference) => {
                self.open.push(reference);
                let found = self.read(target);
                self.open.pop();
                found
            }
            _ => vec!["Any".to_owned()],
        }
    }
}

/// The type of exactly this value.
fn literal(value: &Json) -> String {
    match value {
        Json::Null => "None".to_owned(),
        Json::String(text) => format!("{LITERAL}{}", quoted(text)),
        Json::Bool(_) => format!("{LITERAL}{}", starlark_value(value)),
        Json::Number(number) if number.is_f64() => "float".to_owned(),
        Json::Number(number) => format!("{LITERAL}{number}"),
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
        assert_eq!(optional_type(&json!({"type": ["string", "null"]})), "str | None");
        assert_eq!(optional_type(&json!({})), "Any");
    }
}
