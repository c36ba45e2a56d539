//! How much work a schema can make of one small value.
//!
//! A validator follows every alternative of `anyOf`, and every `$ref` as often as it is
//! met: eighteen definitions that each name the next three times are 400 million
//! checks of one text. Such schemas are refused before a value meets them.

use std::collections::HashMap;

use serde_json::{Map, Value as Json};

/// Subschemas that one path through a value may be held to.
const MAX_VISITS: u64 = 1_000_000;

/// Keywords whose schemas are for the same value.
const SAME_VALUE: [&str; 9] =
    ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "$ref"];
/// Keywords whose schemas are for its parts.
const PARTS: [&str; 10] = [
    "properties",
    "patternProperties",
    "additionalProperties",
    "unevaluatedProperties",
    "items",
    "prefixItems",
    "additionalItems",
    "unevaluatedItems",
    "contains",
    "propertyNames",
];

/// Whether a value of a few bytes could take a validator seconds.
pub(super) fn is_too_complex(schema: &Json) -> bool {
    let mut visits = Visits { root: schema, known: HashMap::new() };
    visits.of(schema, 0) > MAX_VISITS
}

struct Visits<'a> {
    root: &'a Json,
    /// By reference; none while it is being counted.
    known: HashMap<&'a str, Option<u64>>,
}

impl<'a> Visits<'a> {
    /// How often a validator may look at this and what is below it, for a value with one
    /// part at each level. Recursion counts once: how deep that goes is up to the value.
    fn of(&mut self, schema: &'a Json, depth: usize) -> u64 {
        let Json::Object(fields) = schema else { return 1 };
        // Deeper ones are refused elsewhere.
        if depth > 4 * crate::value::MAX_DEPTH {
            return u64::MAX;
        }
        let mut all: u64 = 1;
        for keyword in SAME_VALUE {
            let below = match fields.get(keyword) {
                Some(Json::String(reference)) => self.of_reference(reference, depth),
                Some(Json::Array(several)) => several
                    .iter()
                    .fold(0, |sum: u64, it| sum.saturating_add(self.of(it, depth + 1))),
                Some(Json::Object(several)) if keyword == "dependentSchemas" => several
                    .values()
                    .fold(0, |sum: u64, it| sum.saturating_add(self.of(it, depth + 1))),
                Some(one) => self.of(one, depth + 1),
                None => 0,
            };
            all = all.saturating_add(below);
        }
        all.saturating_add(self.of_parts(fields, depth))
    }

    fn of_parts(&mut self, fields: &'a Map<String, Json>, depth: usize) -> u64 {
        let mut most = 0;
        for keyword in PARTS {
            let below = match fields.get(keyword) {
                Some(Json::Object(several))
                    if keyword.ends_with("roperties") && !is_schema_of_all(keyword) =>
                {
                    several.values().map(|it| self.of(it, depth + 1)).max().unwrap_or(0)
                }
                Some(Json::Array(several)) => {
                    several.iter().map(|it| self.of(it, depth + 1)).max().unwrap_or(0)
                }
                Some(one) => self.of(one, depth + 1),
                None => 0,
            };
            most = most.max(below);
        }
        most
    }

    fn of_reference(&mut self, reference: &'a str, depth: usize) -> u64 {
        if let Some(known) = self.known.get(reference) {
            return known.unwrap_or(1);
        }
        let target = reference.strip_prefix('#').and_then(|pointer| self.root.pointer(pointer));
        let Some(target) = target else { return 1 };
        self.known.insert(reference, None);
        let visits = self.of(target, depth + 1);
        self.known.insert(reference, Some(visits));
        visits
    }
}

/// `additionalProperties` is one schema for all of them, `properties` one for each.
fn is_schema_of_all(keyword: &str) -> bool {
    matches!(keyword, "additionalProperties" | "unevaluatedProperties")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn chain(levels: usize, link: impl Fn(Json) -> Json) -> Json {
        let mut defs = Map::new();
        for level in 0..levels {
            let next = json!({ "$ref": format!("#/$defs/d{}", level + 1) });
            defs.insert(format!("d{level}"), link(next));
        }
        defs.insert(format!("d{levels}"), json!({"type": "string", "pattern": "zzz"}));
        json!({"properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs})
    }

    #[test]
    fn alternatives_that_multiply_are_too_complex_and_large_schemas_are_not() {
        let thrice = |it: Json| json!({"anyOf": [it.clone(), it.clone(), it]});
        assert!(is_too_complex(&chain(18, thrice)));
        assert!(!is_too_complex(&chain(6, thrice)));
        let in_parts = |it: Json| {
            let part = json!({"properties": {"p": it}});
            json!({"oneOf": [part.clone(), part.clone(), part]})
        };
        assert!(is_too_complex(&chain(18, in_parts)));
        // Many fields are as many values.
        let wide: Map<String, Json> =
            (0..5000).map(|n| (format!("f{n}"), json!({"$ref": "#/$defs/d0"}))).collect();
        let mut large = chain(60, |it| json!({"properties": {"p": it.clone(), "q": it}}));
        large["properties"] = Json::Object(wide);
        assert!(!is_too_complex(&large));
        // What refers to itself goes as deep as the value.
        let tree = json!({"$ref": "#/$defs/t", "$defs": {"t": {"anyOf": [
            {"type": "null"},
            {"properties": {"left": {"$ref": "#/$defs/t"}, "right": {"$ref": "#/$defs/t"}}},
        ]}}});
        assert!(!is_too_complex(&tree));
    }
}
