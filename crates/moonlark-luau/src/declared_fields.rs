//! Declared fields: whether a schema has a field at some place of a result.

use serde_json::{Map, Value as Json};

use crate::result_flow::ResultStep;
use moonlark_core::schema::resolve_reference;

/// Parts of a schema that are looked at for one field.
const MAX_SCHEMA_PARTS: usize = 200;

/// What a schema says of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldDeclaration {
    /// It is declared, or fields of any name are.
    Declared,
    /// Other fields are declared at its place.
    Undeclared,
    /// Nothing is said of its place.
    Unsaid,
}

/// What a schema says of the field `name` of the table at `path`.
pub(crate) fn find_field_declaration(
    root: &Map<String, Json>,
    path: &[ResultStep],
    name: &str,
) -> FieldDeclaration {
    let search = SchemaSearch { root };
    let Some(parts) = search.find_parts(path) else {
        // Not to be followed: the name may be meant wherever it stands.
        let mentions = root.iter().any(|(key, value)| mentions_field_in(key, value, name));
        return if mentions { FieldDeclaration::Declared } else { FieldDeclaration::Unsaid };
    };
    let declares = |part: &&Map<String, Json>| {
        properties(part).is_some_and(|fields| fields.contains_key(name))
            || part.contains_key("patternProperties")
            || typed_values(part).is_some()
    };
    if parts.iter().any(declares) {
        FieldDeclaration::Declared
    } else if parts.iter().any(|part| is_open(part)) {
        FieldDeclaration::Unsaid
    } else if parts.iter().any(|part| properties(part).is_some_and(|it| !it.is_empty())) {
        FieldDeclaration::Undeclared
    } else {
        FieldDeclaration::Unsaid
    }
}

/// Whether a schema knows a field of that name anywhere, or fields of any name.
fn mentions_field(schema: &Json, field: &str) -> bool {
    match schema {
        Json::Object(fields) => {
            fields.iter().any(|(key, value)| mentions_field_in(key, value, field))
        }
        Json::Array(items) => items.iter().any(|item| mentions_field(item, field)),
        _ => false,
    }
}

fn mentions_field_in(key: &str, value: &Json, field: &str) -> bool {
    match (key, value) {
        ("properties", Json::Object(known)) => {
            known.contains_key(field) || known.values().any(|it| mentions_field(it, field))
        }
        ("patternProperties", _) => true,
        ("additionalProperties", Json::Object(any)) => !any.is_empty(),
        _ => mentions_field(value, field),
    }
}

pub(crate) fn properties(part: &Map<String, Json>) -> Option<&Map<String, Json>> {
    part.get("properties")?.as_object()
}

/// What all other fields are, if that is something.
fn typed_values(part: &Map<String, Json>) -> Option<&Json> {
    let values = part.get("additionalProperties")?;
    values.as_object().is_some_and(|it| !it.is_empty()).then_some(values)
}

/// Whether it says that there are more fields, and not which.
fn is_open(part: &Map<String, Json>) -> bool {
    match part.get("additionalProperties") {
        Some(Json::Bool(open)) => *open,
        Some(Json::Object(any)) => any.is_empty(),
        _ => false,
    }
}

struct SchemaSearch<'s> {
    root: &'s Map<String, Json>,
}

impl<'s> SchemaSearch<'s> {
    /// All that is said of the place at a path. None where that cannot be told.
    fn find_parts(&self, path: &[ResultStep]) -> Option<Vec<&'s Map<String, Json>>> {
        let mut parts = self.expand_parts(vec![self.root])?;
        for step in path {
            let mut below: Vec<&'s Json> = Vec::new();
            for part in parts {
                match step {
                    ResultStep::Field(name) => {
                        match properties(part).and_then(|fields| fields.get(name)) {
                            Some(field) => below.push(field),
                            None if part.contains_key("patternProperties") => return None,
                            None => below.extend(typed_values(part)),
                        }
                    }
                    // Of a list, or of an object that a loop goes through.
                    ResultStep::Item => {
                        match part.get("items") {
                            Some(Json::Array(items)) => below.extend(items),
                            items => below.extend(items),
                        }
                        let first = part.get("prefixItems").and_then(Json::as_array);
                        below.extend(first.into_iter().flatten());
                        below.extend(properties(part).into_iter().flat_map(Map::values));
                        below.extend(typed_values(part));
                    }
                }
                if below.len() > MAX_SCHEMA_PARTS {
                    return None;
                }
            }
            let below = below.into_iter().filter_map(Json::as_object).collect();
            parts = self.expand_parts(below)?;
        }
        Some(parts)
    }

    /// The schemas themselves, with what they refer to and are made of.
    fn expand_parts(
        &self,
        mut open: Vec<&'s Map<String, Json>>,
    ) -> Option<Vec<&'s Map<String, Json>>> {
        let mut parts: Vec<&'s Map<String, Json>> = Vec::new();
        while let Some(part) = open.pop() {
            if parts.iter().any(|known| std::ptr::eq(*known, part)) {
                continue;
            }
            if parts.len() == MAX_SCHEMA_PARTS {
                return None;
            }
            parts.push(part);
            if let Some(reference) = part.get("$ref") {
                open.push(find_schema_reference(self.root, reference.as_str()?)?);
            }
            for key in ["anyOf", "oneOf", "allOf"] {
                let several = part.get(key).and_then(Json::as_array);
                open.extend(several.into_iter().flatten().filter_map(Json::as_object));
            }
            // What a text holds that is JSON is what a promise gives.
            for key in ["then", "else", "contentSchema"] {
                open.extend(part.get(key).and_then(Json::as_object));
            }
        }
        Some(parts)
    }
}

/// The part of a schema that a `$ref` in it names.
pub(crate) fn find_schema_reference<'s>(
    root: &'s Map<String, Json>,
    reference: &str,
) -> Option<&'s Map<String, Json>> {
    resolve_reference(root, reference)?.fields()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_is_declared_where_it_stands() {
        use FieldDeclaration::{Declared, Undeclared, Unsaid};
        let schema = json!({
            "type": "object",
            "properties": {
                "orders": {"type": "array", "items": {"$ref": "#/$defs/Order"}},
                "next": {"type": "string"},
                "by_name": {"type": "object", "additionalProperties": {"$ref": "#/$defs/Order"}},
                "open": {"type": "object"},
                "loose": {"type": "object", "properties": {"a": {}}, "additionalProperties": true},
                "either": {"oneOf": [{"properties": {"b": {}}}, {"properties": {"c": {}}}]},
                "far": {"$ref": "https://example.com/other.json"},
            },
            "$defs": {"Order": {
                "type": "object",
                "properties": {"total": {"type": "number"}, "parts": {"items": {"$ref": "#/$defs/Order"}}},
            }},
        });
        let root = schema.as_object().unwrap();
        let field = |name: &str| ResultStep::Field(name.to_owned());
        let order = || vec![field("orders"), ResultStep::Item];
        for (path, name, expected) in [
            (vec![], "orders", Declared),
            (vec![], "total", Undeclared),
            (order(), "total", Declared),
            (order(), "next", Undeclared),
            ([order(), vec![field("parts"), ResultStep::Item]].concat(), "total", Declared),
            (vec![field("by_name")], "anyone", Declared),
            (vec![field("by_name"), field("anyone")], "total", Declared),
            (vec![field("by_name"), ResultStep::Item], "next", Undeclared),
            (vec![field("open")], "total", Unsaid),
            (vec![field("loose")], "b", Unsaid),
            (vec![field("either")], "c", Declared),
            (vec![field("either")], "d", Undeclared),
            (vec![field("nowhere")], "d", Unsaid),
            // Where a reference leads out of the schema, every name counts.
            (vec![field("far")], "total", Declared),
        ] {
            let found = find_field_declaration(root, &path, name);
            assert_eq!(found, expected, "{path:?} {name}");
        }
    }

    #[test]
    fn schemas_without_end_are_survived() {
        let cycle = json!({
            "anyOf": [{"$ref": "#/$defs/A"}],
            "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/B"}]}, "B": {"oneOf": [{"$ref": "#/$defs/A"}]}},
        });
        let found = find_field_declaration(cycle.as_object().unwrap(), &[], "x");
        assert_eq!(found, FieldDeclaration::Unsaid);
        let wide: Vec<Json> = (0..1000).map(|n| json!({"properties": {"a": {"n": n}}})).collect();
        let wide = json!({ "anyOf": wide });
        let found = find_field_declaration(wide.as_object().unwrap(), &[], "a");
        assert_eq!(found, FieldDeclaration::Declared);
    }
}
