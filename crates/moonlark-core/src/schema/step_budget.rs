//! A validator with a step budget: it gives up after a number of steps.
//!
//! The library has no bound on its work. So the schema is given a keyword of ours in front of
//! everything that can multiply work (alternatives, references): it counts, and once the
//! budget is used up it fails, which ends every alternative that is still open.

use std::cell::Cell;

use jsonschema::{Keyword, ValidationError, Validator};
use serde_json::{Map, Value as Json, json};

use super::complexity::{NAMED_SCHEMAS_KEYWORDS, SAME_VALUE_KEYWORDS};

/// The keyword that counts.
const COUNTING_KEYWORD: &str = "moonlark:step";
/// Steps for any value, and further ones for each unit of its weight.
const MIN_STEPS: u64 = 200_000;
const STEPS_PER_WEIGHT: u64 = 16;
/// What weighs as much as a number: this much text, so many places in a list or an object.
const TEXT_BYTES_PER_STEP: usize = 64;
const PARTS_PER_STEP: usize = 8;
/// Keywords with values in them that are no schemas.
pub(super) const DATA_KEYWORDS: [&str; 5] = ["const", "enum", "default", "examples", "example"];

thread_local! {
    static STEPS_LEFT: Cell<u64> = const { Cell::new(0) };
}

/// What became of a check.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SchemaVerdict {
    Fits,
    DoesNotFit,
    /// The budget was used up before it was known.
    OutOfSteps,
}

/// Check with `validator`, which was compiled with the schema of [`with_counted_steps`].
pub(super) fn check_counted(validator: &Validator, json: &Json) -> SchemaVerdict {
    let budget = MIN_STEPS.saturating_add(STEPS_PER_WEIGHT.saturating_mul(weigh_json(json)));
    STEPS_LEFT.set(budget);
    let valid = validator.is_valid(json);
    match (STEPS_LEFT.get(), valid) {
        (0, _) => SchemaVerdict::OutOfSteps,
        (_, true) => SchemaVerdict::Fits,
        (_, false) => SchemaVerdict::DoesNotFit,
    }
}

/// For work whose bound is known by other means, on this thread until the next check.
pub(super) fn allow_uncounted_steps() {
    STEPS_LEFT.set(u64::MAX);
}

/// How large a value is: one for each part of it, and more for long texts.
pub(super) fn weigh_json(json: &Json) -> u64 {
    match json {
        Json::String(text) => 1 + (text.len() / TEXT_BYTES_PER_STEP) as u64,
        Json::Array(items) => items.iter().fold(1, |sum, item| sum + weigh_json(item)),
        Json::Object(fields) => fields.values().fold(1, |sum, value| sum + weigh_json(value)),
        _ => 1,
    }
}

/// The keyword for the library's options.
pub(super) fn add_counting_keyword(
    options: jsonschema::ValidationOptions<'_>,
) -> jsonschema::ValidationOptions<'_> {
    options.with_keyword(COUNTING_KEYWORD, |_, _, _| Ok(Box::new(StepCounter)))
}

struct StepCounter;

impl<'i> Keyword<'i> for StepCounter {
    fn validate(&self, instance: &'i Json) -> Result<(), ValidationError<'i>> {
        if self.is_valid(instance) {
            Ok(())
        } else {
            Err(ValidationError::custom("checking this takes too many steps"))
        }
    }

    fn is_valid(&self, instance: &'i Json) -> bool {
        let parts = match instance {
            Json::String(text) => text.len() / TEXT_BYTES_PER_STEP,
            Json::Array(items) => items.len() / PARTS_PER_STEP,
            Json::Object(fields) => fields.len() / PARTS_PER_STEP,
            _ => 0,
        };
        let left = STEPS_LEFT.get().saturating_sub(1 + parts as u64);
        STEPS_LEFT.set(left);
        left > 0
    }
}

/// The same schema, in which every step that can multiply is counted.
pub(super) fn with_counted_steps(schema: &Json) -> Json {
    let dialect = schema.get("$schema").and_then(Json::as_str).unwrap_or_default();
    // Drafts 3 to 7, in which nothing counts beside a reference.
    let references_stand_alone = dialect.contains("/draft-0");
    let mut counted = schema.clone();
    add_counting_in(&mut counted, references_stand_alone);
    counted
}

fn add_counting_in(schema: &mut Json, references_stand_alone: bool) {
    match schema {
        Json::Array(several) => {
            several.iter_mut().for_each(|it| add_counting_in(it, references_stand_alone));
        }
        Json::Object(fields) => {
            for (keyword, below) in fields.iter_mut() {
                match below {
                    Json::Object(named) if NAMED_SCHEMAS_KEYWORDS.contains(&keyword.as_str()) => {
                        named
                            .values_mut()
                            .for_each(|it| add_counting_in(it, references_stand_alone));
                    }
                    _ if DATA_KEYWORDS.contains(&keyword.as_str()) => {}
                    below => add_counting_in(below, references_stand_alone),
                }
            }
            if SAME_VALUE_KEYWORDS.iter().any(|keyword| fields.contains_key(*keyword)) {
                count_before_others(fields, references_stand_alone);
            }
        }
        _ => {}
    }
}

/// The library looks at `allOf` before it looks at alternatives and references, and at its
/// members in their order.
fn count_before_others(fields: &mut Map<String, Json>, references_stand_alone: bool) {
    let mut members = vec![json!({ COUNTING_KEYWORD: true })];
    if let Some(Json::String(reference)) = fields.get_mut("$ref") {
        *reference = shift_all_of(reference);
        if references_stand_alone {
            members.push(json!({ "$ref": reference }));
            let kept = ["$schema", "$id", "id", "$defs", "definitions"];
            fields.retain(|keyword, _| kept.contains(&keyword.as_str()));
        }
    }
    match fields.get_mut("allOf") {
        Some(Json::Array(own)) => {
            members.append(own);
            *own = members;
        }
        // No schema: the library says so.
        Some(_) => {}
        None => {
            fields.insert("allOf".into(), Json::Array(members));
        }
    }
}

/// A pointer to a member of an `allOf`, which has another in front of it now.
fn shift_all_of(reference: &str) -> String {
    if !reference.starts_with('#') || !reference.contains("/allOf/") {
        return reference.to_owned();
    }
    let mut parts: Vec<String> = reference.split('/').map(str::to_owned).collect();
    for place in 1..parts.len() {
        if parts[place - 1] == "allOf"
            && let Ok(number) = parts[place].parse::<usize>()
        {
            parts[place] = (number + 1).to_string();
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(schema: &Json) -> Validator {
        add_counting_keyword(jsonschema::options()).build(&with_counted_steps(schema)).unwrap()
    }

    fn nested(levels: usize, core: Json) -> Json {
        (0..levels).fold(core, |value, _| json!({ "a": value }))
    }

    /// Two alternatives that both look at the same part, over and over.
    fn twice(dialect: &str, definitions: &str) -> Json {
        let part = json!({"properties": {"a": {"$ref": format!("#/{definitions}/t")}}});
        let other =
            json!({"properties": {"a": {"$ref": format!("#/{definitions}/t")}}, "title": "2"});
        json!({"$schema": dialect, "$ref": format!("#/{definitions}/t"), definitions: {"t": {
            "type": ["object", "string"], "minLength": 3, "anyOf": [part, other],
        }}})
    }

    const DIALECTS: [(&str, &str); 3] = [
        ("https://json-schema.org/draft/2020-12/schema", "$defs"),
        ("https://json-schema.org/draft/2019-09/schema", "$defs"),
        ("http://json-schema.org/draft-07/schema#", "definitions"),
    ];

    #[test]
    fn a_schema_that_refers_to_itself_in_each_alternative_ends() {
        for (dialect, definitions) in DIALECTS {
            let validator = counted(&twice(dialect, definitions));
            let check = |value: Json| check_counted(&validator, &value);
            assert_eq!(check(nested(6, json!("long"))), SchemaVerdict::Fits, "{dialect}");
            assert_eq!(check(nested(6, json!("no"))), SchemaVerdict::DoesNotFit, "{dialect}");
            // The library remembers what it found for objects; the rest is for the budget.
            assert_ne!(check(nested(120, json!("no"))), SchemaVerdict::Fits, "{dialect}");
        }
    }

    #[test]
    fn what_no_memory_helps_with_runs_out_of_steps() {
        for (dialect, definitions) in DIALECTS {
            let mut named = Map::new();
            for level in 0..30 {
                let next = json!({"$ref": format!("#/{definitions}/d{}", level + 1)});
                named.insert(
                    format!("d{level}"),
                    json!({"anyOf": [next.clone(), next.clone(), next]}),
                );
            }
            named.insert("d30".into(), json!({"pattern": "zzz"}));
            let schema = json!({"$schema": dialect, "properties": {"a": {"$ref": format!("#/{definitions}/d0")}},
                definitions: named});
            let validator = counted(&schema);
            assert_eq!(check_counted(&validator, &json!({"a": "zzz"})), SchemaVerdict::Fits);
            assert_eq!(
                check_counted(&validator, &json!({"a": "no"})),
                SchemaVerdict::OutOfSteps,
                "{dialect}"
            );
            assert_eq!(check_counted(&validator, &json!({"b": "no"})), SchemaVerdict::Fits);
        }
    }

    #[test]
    fn a_large_value_may_take_as_many_steps_as_it_has_parts() {
        let schema = json!({"$defs": {"t": {"type": "object", "properties":
            {"next": {"$ref": "#/$defs/t"}, "n": {"oneOf": [{"type": "integer"}, {"type": "null"}]}}}},
            "type": "array", "items": {"$ref": "#/$defs/t"}});
        let validator = counted(&schema);
        let rows = |last: Json| {
            let row = |n: Json| json!({"n": n, "next": {"n": 2, "next": {"n": null}}});
            let mut rows: Vec<Json> = (0..100_000).map(|n| row(json!(n))).collect();
            rows.push(row(last));
            Json::Array(rows)
        };
        assert_eq!(check_counted(&validator, &rows(json!(1))), SchemaVerdict::Fits);
        assert_eq!(check_counted(&validator, &rows(json!("x"))), SchemaVerdict::DoesNotFit);
    }

    #[test]
    fn counting_changes_nothing_about_what_fits() {
        let schema = json!({
            "allOf": [{"properties": {"kind": {"enum": [{"anyOf": 1}, "b"]}}}],
            "properties": {"again": {"$ref": "#/allOf/0/properties/kind"}, "allOf": {"not": {"type": "null"}}},
            "unevaluatedProperties": false,
        });
        let validator = counted(&schema);
        let plain = jsonschema::options().build(&schema).unwrap();
        for value in [
            json!({"kind": "b", "again": {"anyOf": 1}}),
            json!({"again": "c"}),
            json!({"allOf": null}),
            json!({"allOf": 1}),
            json!({"kind": "b", "more": 1}),
        ] {
            let verdict = if plain.is_valid(&value) {
                SchemaVerdict::Fits
            } else {
                SchemaVerdict::DoesNotFit
            };
            assert_eq!(check_counted(&validator, &value), verdict, "{value}");
        }
        // Drafts up to 7 look at nothing beside a reference.
        let old = json!({"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/n",
            "maximum": 3, "definitions": {"n": {"type": "integer"}}});
        assert_eq!(check_counted(&counted(&old), &json!(5)), SchemaVerdict::Fits);
        assert_eq!(check_counted(&counted(&old), &json!("5")), SchemaVerdict::DoesNotFit);
    }
}
