//! Plain schemas: a few keywords, each with a value it may have. Whether a value fits one is
//! a few comparisons, so they are compiled only to say what is wrong with one that does not.
//!
//! Most tools have a plain schema and most calls fit it. Everything else is compiled when
//! its tool loads, for its author wants to know what is wrong with it.

use std::collections::HashSet;

use serde_json::{Map, Value as Json};

const JSON_TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];
/// Levels of a plain schema.
const MAX_PLAIN_DEPTH: usize = 16;
/// Values that are compared one by one.
const MAX_PLAIN_CHOICES: usize = 64;
/// Above it, neighbouring integers are one and the same float.
const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;

/// Whether `schema` has only keywords of the draft 2020-12 that are known here, with values
/// that it allows.
pub(super) fn is_plain_schema(schema: &Json) -> bool {
    is_plain_at_depth(schema, 0)
}

fn is_plain_at_depth(schema: &Json, depth: usize) -> bool {
    let Json::Object(fields) = schema else { return schema.is_boolean() };
    let inner = |schema: &Json| is_plain_at_depth(schema, depth + 1);
    let is_plain = |(keyword, said): (&String, &Json)| match keyword.as_str() {
        "title" | "description" => said.is_string(),
        "default" => true,
        "enum" => said.as_array().is_some_and(|choices| choices.len() <= MAX_PLAIN_CHOICES),
        "type" => said.as_str().is_some_and(|name| JSON_TYPES.contains(&name)),
        "properties" => said.as_object().is_some_and(|it| it.values().all(inner)),
        "items" | "additionalProperties" => inner(said),
        "required" => has_distinct_texts(said),
        "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => said.is_number(),
        "minLength" | "maxLength" | "minItems" | "maxItems" => said.is_u64(),
        _ => false,
    };
    depth < MAX_PLAIN_DEPTH && fields.iter().all(is_plain)
}

fn has_distinct_texts(list: &Json) -> bool {
    let Json::Array(items) = list else { return false };
    let texts: HashSet<&str> = items.iter().filter_map(Json::as_str).collect();
    texts.len() == items.len()
}

/// Whether a value surely fits a plain schema. One that does not may fit all the same: `1.0`
/// is an integer.
pub(super) fn fits_plain(schema: &Map<String, Json>, value: &Json) -> bool {
    let fits_keyword = |(keyword, said): (&String, &Json)| match keyword.as_str() {
        "title" | "description" | "default" => true,
        "enum" => said.as_array().is_some_and(|choices| choices.contains(value)),
        "type" => said.as_str().is_some_and(|name| is_of_type(value, name)),
        "properties" => said.as_object().is_some_and(|it| fits_properties(it, value)),
        "additionalProperties" => fits_additional(schema, said, value),
        "items" => value.as_array().is_none_or(|items| items.iter().all(|it| fits(said, it))),
        "required" => value.as_object().is_none_or(|fields| has_all(fields, said)),
        "minimum" => compare_numbers(value, said, |value, bound| value >= bound),
        "maximum" => compare_numbers(value, said, |value, bound| value <= bound),
        "exclusiveMinimum" => compare_numbers(value, said, |value, bound| value > bound),
        "exclusiveMaximum" => compare_numbers(value, said, |value, bound| value < bound),
        "minLength" => compare_counts(count_characters(value), said, |count, least| count >= least),
        "maxLength" => compare_counts(count_characters(value), said, |count, most| count <= most),
        "minItems" => compare_counts(count_items(value), said, |count, least| count >= least),
        "maxItems" => compare_counts(count_items(value), said, |count, most| count <= most),
        _ => false,
    };
    schema.iter().all(fits_keyword)
}

fn fits(schema: &Json, value: &Json) -> bool {
    match schema {
        Json::Object(fields) => fits_plain(fields, value),
        other => *other == Json::Bool(true),
    }
}

fn is_of_type(value: &Json, name: &str) -> bool {
    match name {
        "array" => value.is_array(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "null" => value.is_null(),
        "number" => value.is_number(),
        "object" => value.is_object(),
        "string" => value.is_string(),
        _ => false,
    }
}

fn fits_properties(properties: &Map<String, Json>, value: &Json) -> bool {
    let Json::Object(fields) = value else { return true };
    properties.iter().all(|(name, schema)| fields.get(name).is_none_or(|it| fits(schema, it)))
}

/// Whether the fields that the schema does not list fit what it says of them.
fn fits_additional(schema: &Map<String, Json>, additional: &Json, value: &Json) -> bool {
    let Json::Object(fields) = value else { return true };
    let properties = schema.get("properties").and_then(Json::as_object);
    let is_listed = |name: &str| properties.is_some_and(|it| it.contains_key(name));
    fields.iter().all(|(name, value)| is_listed(name) || fits(additional, value))
}

fn has_all(fields: &Map<String, Json>, required: &Json) -> bool {
    let names = required.as_array().map(Vec::as_slice).unwrap_or_default();
    names.iter().all(|name| name.as_str().is_some_and(|name| fields.contains_key(name)))
}

/// What is no number has no bounds.
fn compare_numbers(value: &Json, bound: &Json, holds: fn(f64, f64) -> bool) -> bool {
    let exact = |number: &Json| number.as_f64().filter(|it| it.abs() < MAX_EXACT_INTEGER);
    let is_held = || exact(value).zip(exact(bound)).is_some_and(|(it, bound)| holds(it, bound));
    !value.is_number() || is_held()
}

/// What has no length has no bounds.
fn compare_counts(count: Option<usize>, bound: &Json, holds: fn(u64, u64) -> bool) -> bool {
    count.is_none_or(|count| bound.as_u64().is_some_and(|bound| holds(count as u64, bound)))
}

fn count_characters(value: &Json) -> Option<usize> {
    value.as_str().map(|text| text.chars().count())
}

fn count_items(value: &Json) -> Option<usize> {
    value.as_array().map(Vec::len)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::Schema;
    use super::super::compiled::CompiledSchema;
    use super::*;

    fn compile(schema: &Json) -> Result<CompiledSchema, String> {
        CompiledSchema::compile(schema, Some(jsonschema::Draft::Draft202012))
    }

    #[test]
    fn what_counts_as_plain_compiles() {
        for schema in [
            json!({}),
            json!({"type": "object", "properties": {}, "additionalProperties": false}),
            json!({"properties": {"a": {"type": "array", "items": {"enum": [1, "x", null]}}},
                   "required": ["a"], "additionalProperties": {"type": "null"}}),
            json!({"properties": {"a": true, "b": {"minimum": -1.5, "maximum": 3}}}),
            json!({"properties": {"a": {"minLength": 0, "maxLength": 3, "title": "A"},
                                  "b": {"minItems": 1, "maxItems": 2, "default": {"x": []}}}}),
        ] {
            assert!(is_plain_schema(&schema), "{schema}");
            assert!(compile(&schema).is_ok(), "{schema}");
        }
        for schema in [
            json!({"type": "text"}),
            json!({"type": ["string", "null"]}),
            json!({"properties": {"a": {"pattern": "("}}}),
            json!({"properties": {"a": 1}}),
            json!({"properties": []}),
            json!({"required": "a"}),
            json!({"required": ["a", "a"]}),
            json!({"required": ["a", 1]}),
            json!({"enum": 1}),
            json!({"enum": (0..65).collect::<Vec<_>>()}),
            json!({"minimum": "1"}),
            json!({"minLength": -1}),
            json!({"maxItems": 1.5}),
            json!({"title": 1}),
            json!({"$ref": "#/$defs/a"}),
            json!({"anyOf": [{}]}),
            json!({"format": "date"}),
            (0..40).fold(json!({}), |inner, _| json!({"items": inner})),
        ] {
            assert!(!is_plain_schema(&schema), "{schema}");
        }
    }

    #[test]
    fn ordinary_arguments_need_no_compiled_schema() {
        let schema = json!({"type": "object", "properties": {
            "text": {"type": "string", "minLength": 1, "maxLength": 5, "description": "Text"},
            "times": {"type": "integer", "minimum": 1, "maximum": 10, "default": 1},
            "kind": {"type": "string", "enum": ["a", "b"]},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        }, "required": ["text"], "additionalProperties": false});
        let Json::Object(schema) = schema else { panic!("no object") };
        let fits = |value: Json| fits_plain(&schema, &value);
        assert!(fits(json!({"text": "äöüß€", "times": 10, "kind": "b", "tags": ["x", "y"]})));
        for value in [
            json!({}),
            json!({"text": ""}),
            json!({"text": "äöüß€!"}),
            json!({"text": "a", "times": 0}),
            json!({"text": "a", "times": 1.5}),
            json!({"text": "a", "kind": "c"}),
            json!({"text": "a", "tags": ["a", 1]}),
            json!({"text": "a", "tags": ["a", "b", "c"]}),
            json!({"text": "a", "more": 1}),
            json!([]),
        ] {
            assert!(!fits(value.clone()), "{value}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_alike_whether_or_not_the_schema_is_plain() {
        let plain = json!({"type": "object", "properties": {"n": {"type": "integer", "maximum": 5}},
                           "required": ["n"], "additionalProperties": false});
        let mut compiled = plain.clone();
        compiled["$comment"] = json!("not plain");
        assert!(is_plain_schema(&plain) && !is_plain_schema(&compiled));
        let say = |schema: &Json, args: &Json| {
            let schema = Schema::compile(schema.as_object().unwrap().clone()).unwrap();
            let args = crate::Value::from_json(args.clone()).unwrap();
            schema.check_arguments(args).map_err(|problem| problem.to_string())
        };
        for args in [
            json!({"n": 1}),
            json!({"n": 2.0}),
            json!({"n": 9}),
            json!({}),
            json!({"m": 2}),
            json!([]),
        ] {
            assert_eq!(say(&plain, &args), say(&compiled, &args), "{args}");
        }
    }

    fn any_value() -> impl Strategy<Value = Json> {
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(Json::from),
            (-3_i64..6).prop_map(Json::from),
            Just(json!(9_007_199_254_740_993_u64)),
            Just(json!(1.0)),
            Just(json!(2.5)),
            "[aä]{0,3}".prop_map(Json::from),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Json::from),
                prop::collection::btree_map("[ab]", inner, 0..3)
                    .prop_map(|fields| Json::Object(fields.into_iter().collect())),
            ]
        })
    }

    fn any_plain_schema() -> impl Strategy<Value = Json> {
        let bound = prop_oneof![
            (-2_i64..5).prop_map(Json::from),
            Just(json!(1.5)),
            Just(json!(9_007_199_254_740_992_u64))
        ];
        let keyword = prop_oneof![
            prop::sample::select(&JSON_TYPES[..]).prop_map(|it| ("type", json!(it))),
            prop::collection::vec(any_value(), 0..3).prop_map(|it| ("enum", Json::from(it))),
            bound.clone().prop_map(|it| ("minimum", it)),
            bound.clone().prop_map(|it| ("maximum", it)),
            bound.clone().prop_map(|it| ("exclusiveMinimum", it)),
            bound.prop_map(|it| ("exclusiveMaximum", it)),
            (0_u64..3).prop_map(|it| ("minLength", json!(it))),
            (0_u64..3).prop_map(|it| ("maxLength", json!(it))),
            (0_u64..3).prop_map(|it| ("minItems", json!(it))),
            (0_u64..3).prop_map(|it| ("maxItems", json!(it))),
            prop::sample::select(vec![json!([]), json!(["a"]), json!(["a", "b"])])
                .prop_map(|it| ("required", it)),
        ];
        let leaf = prop_oneof![
            any::<bool>().prop_map(Json::from),
            prop::collection::vec(keyword, 0..3).prop_map(|it| it.into_iter().collect::<Json>()),
        ];
        leaf.prop_recursive(3, 10, 3, |inner| {
            (
                prop::collection::btree_map("[ab]", inner.clone(), 0..3),
                prop::option::of(inner.clone()),
                prop::option::of(inner),
            )
                .prop_map(|(properties, additional, items)| {
                    let mut schema = json!({"properties": properties});
                    additional.into_iter().for_each(|it| schema["additionalProperties"] = it);
                    items.into_iter().for_each(|it| schema["items"] = it);
                    schema
                })
        })
    }

    proptest! {
        #[test]
        fn what_surely_fits_is_accepted_by_the_compiled_schema(
            schema in any_plain_schema(),
            value in any_value(),
        ) {
            prop_assert!(is_plain_schema(&schema), "{}", schema);
            let accepted = compile(&schema).unwrap().validator.is_valid(&value);
            prop_assert!(accepted || !fits(&schema, &value), "{} {}", schema, value);
        }
    }
}
