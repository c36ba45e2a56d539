//! Complexity limit for schemas: how often a validator may look at one value.
//!
//! A validator follows every alternative of `anyOf`, and every `$ref` as often as it is
//! met: eighteen definitions that each name the next three times are 400 million
//! checks of one text, and one definition that names itself twice is as many as the value
//! is deep. Schemas for which that is possible are checked with a step budget.

use std::collections::HashMap;

use serde_json::{Map, Value as Json};

use super::references::{SchemaNode, resolve_reference};

/// Subschemas for one and the same value up to which no steps are counted.
const MAX_UNCOUNTED_VISITS: u64 = 64;

/// Keywords whose schemas are for the same value.
pub(super) const SAME_VALUE_KEYWORDS: [&str; 12] = [
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
    "dependentSchemas",
    "dependencies",
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
];
/// Keywords whose schemas are for its parts.
const PART_KEYWORDS: [&str; 10] = [
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
/// Keywords with a schema behind each name.
pub(super) const NAMED_SCHEMAS_KEYWORDS: [&str; 6] =
    ["properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"];

/// What decides how a schema is checked and explained.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SchemaComplexity {
    /// Checking a small value could take for ever.
    pub needs_step_budget: bool,
    /// The library lists what is wrong with each alternative, as often as it is met.
    pub has_alternatives: bool,
}

impl SchemaComplexity {
    pub(super) fn measure_schema(schema: &Json) -> SchemaComplexity {
        let none = Map::new();
        let root = schema.as_object().unwrap_or(&none);
        let mut counter =
            VisitCounter { root, by_reference: HashMap::new(), has_alternatives: false };
        let visits = counter.count_fields(root, 0);
        SchemaComplexity {
            needs_step_budget: visits > MAX_UNCOUNTED_VISITS,
            has_alternatives: counter.has_alternatives,
        }
    }
}

struct VisitCounter<'a> {
    root: &'a Map<String, Json>,
    /// None while it is being counted.
    by_reference: HashMap<&'a str, Option<u64>>,
    has_alternatives: bool,
}

impl<'a> VisitCounter<'a> {
    fn count_visits(&mut self, schema: &'a Json, depth: usize) -> u64 {
        schema.as_object().map_or(1, |fields| self.count_fields(fields, depth))
    }

    /// How often a validator may look at this and what is below it, for a value with one
    /// part at each level. What refers to itself is without bound.
    fn count_fields(&mut self, fields: &'a Map<String, Json>, depth: usize) -> u64 {
        // Deeper ones are refused elsewhere.
        if depth > 4 * crate::value::MAX_VALUE_DEPTH {
            return u64::MAX;
        }
        self.has_alternatives |= fields.contains_key("anyOf") || fields.contains_key("oneOf");
        let mut all: u64 = 1;
        for keyword in SAME_VALUE_KEYWORDS {
            let below = match fields.get(keyword) {
                Some(Json::String(reference)) => self.count_reference(reference, depth),
                Some(Json::Array(several)) => self.count_sum(several.iter(), depth),
                Some(Json::Object(several)) if NAMED_SCHEMAS_KEYWORDS.contains(&keyword) => {
                    self.count_sum(several.values(), depth)
                }
                Some(one) => self.count_visits(one, depth + 1),
                None => 0,
            };
            all = all.saturating_add(below);
        }
        all.saturating_add(self.count_parts(fields, depth))
    }

    fn count_sum(&mut self, schemas: impl Iterator<Item = &'a Json>, depth: usize) -> u64 {
        schemas.fold(0, |sum, schema| sum.saturating_add(self.count_visits(schema, depth + 1)))
    }

    fn count_parts(&mut self, fields: &'a Map<String, Json>, depth: usize) -> u64 {
        let mut most = 0;
        for keyword in PART_KEYWORDS {
            let below = match fields.get(keyword) {
                Some(Json::Object(several)) if NAMED_SCHEMAS_KEYWORDS.contains(&keyword) => {
                    several.values().map(|it| self.count_visits(it, depth + 1)).max().unwrap_or(0)
                }
                Some(Json::Array(several)) => {
                    several.iter().map(|it| self.count_visits(it, depth + 1)).max().unwrap_or(0)
                }
                Some(one) => self.count_visits(one, depth + 1),
                None => 0,
            };
            most = most.max(below);
        }
        most
    }

    fn count_reference(&mut self, reference: &'a str, depth: usize) -> u64 {
        if let Some(known) = self.by_reference.get(reference) {
            return known.unwrap_or(u64::MAX);
        }
        let target = match resolve_reference(self.root, reference) {
            Some(SchemaNode::Fields(target)) => target,
            Some(SchemaNode::Flag(_)) => return 1,
            // It may lead anywhere.
            None => return u64::MAX,
        };
        self.by_reference.insert(reference, None);
        let visits = self.count_fields(target, depth + 1);
        self.by_reference.insert(reference, Some(visits));
        visits
    }
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
    fn steps_are_counted_where_alternatives_multiply_or_a_schema_refers_to_itself() {
        let needs_budget =
            |schema: &Json| SchemaComplexity::measure_schema(schema).needs_step_budget;
        let thrice = |it: Json| json!({"anyOf": [it.clone(), it.clone(), it]});
        assert!(needs_budget(&chain(18, thrice)));
        assert!(!needs_budget(&chain(2, thrice)));
        let in_parts = |it: Json| {
            let part = json!({"properties": {"p": it}});
            json!({"oneOf": [part.clone(), part.clone(), part]})
        };
        assert!(needs_budget(&chain(18, in_parts)));
        // Many fields are as many values.
        let wide: Map<String, Json> =
            (0..5000).map(|n| (format!("f{n}"), json!({"$ref": "#/$defs/d0"}))).collect();
        let mut large = chain(15, |it| json!({"properties": {"p": it.clone(), "q": it}}));
        large["properties"] = Json::Object(wide);
        assert!(!needs_budget(&large));
        let tree = json!({"$ref": "#/$defs/t", "$defs": {"t": {"properties": {
            "left": {"$ref": "#/$defs/t"}, "right": {"$ref": "#/$defs/t"},
        }}}});
        assert!(needs_budget(&tree));
        assert!(needs_budget(&json!({"$ref": "#anchor"})));
    }

    #[test]
    fn alternatives_are_seen_wherever_they_stand() {
        let has_alternatives =
            |schema: Json| SchemaComplexity::measure_schema(&schema).has_alternatives;
        assert!(has_alternatives(json!({"properties": {"a": {"items": {"oneOf": [true]}}}})));
        assert!(has_alternatives(chain(1, |it| json!({"anyOf": [it]}))));
        assert!(!has_alternatives(chain(3, |it| json!({"allOf": [it]}))));
    }
}
