//! Work limit for error reports: how much a validator looks at to list all violations of
//! one value.
//!
//! While it lists errors, the library remembers nothing: a part that is reached on two ways
//! is looked at twice. Counted here by schema and part, each pair once.

use std::collections::HashMap;

use serde_json::{Map, Value as Json};

use super::complexity::{NAMED_SCHEMAS_KEYWORDS, SAME_VALUE_KEYWORDS};
use super::references::{SchemaNode, resolve_reference};

/// Pairs of schema and part, for one count.
const MAX_COUNTED_PAIRS: usize = 20_000;
/// Keywords whose schemas are for parts of a value, whichever.
const EVERY_PART_KEYWORDS: [&str; 9] = [
    "patternProperties",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "items",
    "prefixItems",
    "additionalItems",
    "unevaluatedItems",
    "contains",
];

/// The number of looks, at most; the largest number where that is not known.
pub(super) fn count_error_work(schema: &Map<String, Json>, value: &Json) -> u64 {
    let mut counter = ErrorWorkCounter { root: schema, by_pair: HashMap::new() };
    counter.count_object(schema, value)
}

struct ErrorWorkCounter<'a> {
    root: &'a Map<String, Json>,
    /// By where schema and part are in memory; none while a pair is being counted.
    by_pair: HashMap<(usize, usize), Option<u64>>,
}

impl<'a> ErrorWorkCounter<'a> {
    fn count_work(&mut self, schema: &'a Json, value: &Json) -> u64 {
        match schema {
            Json::Object(fields) => self.count_object(fields, value),
            _ => 1,
        }
    }

    fn count_object(&mut self, schema: &'a Map<String, Json>, value: &Json) -> u64 {
        let pair = (std::ptr::from_ref(schema) as usize, std::ptr::from_ref(value) as usize);
        match self.by_pair.get(&pair) {
            // The library cuts this short: the same schema for the same part.
            Some(None) => return 1,
            Some(Some(known)) => return *known,
            None if self.by_pair.len() >= MAX_COUNTED_PAIRS => return u64::MAX,
            None => self.by_pair.insert(pair, None),
        };
        let work = self
            .count_same_value(schema, value)
            .saturating_add(self.count_properties(schema, value))
            .saturating_add(self.count_every_part(schema, value))
            .saturating_add(1);
        self.by_pair.insert(pair, Some(work));
        work
    }

    fn count_same_value(&mut self, schema: &'a Map<String, Json>, value: &Json) -> u64 {
        let mut work: u64 = 0;
        for keyword in SAME_VALUE_KEYWORDS {
            let below = match schema.get(keyword) {
                Some(Json::String(reference)) => match resolve_reference(self.root, reference) {
                    Some(SchemaNode::Fields(target)) => self.count_object(target, value),
                    Some(SchemaNode::Flag(_)) => 1,
                    None => u64::MAX,
                },
                Some(one) => self.count_several(keyword, one, value),
                None => 0,
            };
            work = work.saturating_add(below);
        }
        // An alternative is tried first, and then its errors are listed.
        work.saturating_mul(2)
    }

    fn count_properties(&mut self, schema: &'a Map<String, Json>, value: &Json) -> u64 {
        let Some(Json::Object(properties)) = schema.get("properties") else { return 0 };
        let Json::Object(fields) = value else { return 0 };
        let parts = fields.iter().filter_map(|(name, part)| Some((properties.get(name)?, part)));
        saturating_sum(parts.map(|(property, part)| self.count_work(property, part)))
    }

    fn count_every_part(&mut self, schema: &'a Map<String, Json>, value: &Json) -> u64 {
        let parts: Vec<&Json> = match value {
            Json::Array(items) => items.iter().collect(),
            Json::Object(fields) => fields.values().collect(),
            _ => return 0,
        };
        let mut work: u64 = 0;
        for keyword in EVERY_PART_KEYWORDS {
            let Some(below) = schema.get(keyword) else { continue };
            for part in &parts {
                work = work.saturating_add(self.count_several(keyword, below, part));
            }
        }
        work
    }

    fn count_several(&mut self, keyword: &str, schemas: &'a Json, value: &Json) -> u64 {
        match schemas {
            Json::Array(several) => {
                saturating_sum(several.iter().map(|one| self.count_work(one, value)))
            }
            Json::Object(named) if NAMED_SCHEMAS_KEYWORDS.contains(&keyword) => {
                saturating_sum(named.values().map(|one| self.count_work(one, value)))
            }
            one => self.count_work(one, value),
        }
    }
}

fn saturating_sum(works: impl Iterator<Item = u64>) -> u64 {
    works.fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn count(schema: Json, value: &Json) -> u64 {
        let Json::Object(schema) = schema else { unreachable!("an object literal") };
        count_error_work(&schema, value)
    }

    #[test]
    fn work_multiplies_where_alternatives_lead_to_the_same_part() {
        let part = json!({"properties": {"a": {"$ref": "#/$defs/t"}}});
        let twice = json!({"$ref": "#/$defs/t", "$defs": {"t": {"anyOf": [part.clone(), part]}}});
        let nested = |levels: usize| (0..levels).fold(json!(1), |value, _| json!({ "a": value }));
        assert!(count(twice.clone(), &nested(2)) < 2_000);
        assert_eq!(count(twice, &nested(100)), u64::MAX);
        let tree = json!({"properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}}});
        let balanced =
            (0..6).fold(json!({}), |value, _| json!({"left": value.clone(), "right": value}));
        assert!(count(tree, &balanced) < 20_000);
        assert_eq!(count(json!({"$ref": "#anchor"}), &json!(1)), u64::MAX);
    }
}
