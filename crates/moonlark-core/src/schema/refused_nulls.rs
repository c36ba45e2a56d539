//! Nulls that only the validator can judge: in an alternative that another field selects, under
//! a pattern of names, behind a condition.
//!
//! The errors of the validator tell which nulls it refuses. Of several alternatives, the one
//! counts in which nothing but nulls is wrong.

use std::collections::BTreeSet;

use jsonschema::error::{ValidationError, ValidationErrorKind};
use serde_json::{Map, Value as Json};

use super::compiled::CompiledSchema;
use super::explanation::can_list_errors;
use super::references::{escape_key, unescape_key};
use super::step_budget::allow_uncounted_steps;
use crate::value::{Object, Value};

/// Length to which texts are cut while nulls are searched: each error has a copy of its value.
const MAX_OUTLINE_TEXT_BYTES: usize = 256;

/// The fields of `json`, which does not fit, that would have to be left out for it to fit, as
/// JSON pointers: all of them are null. None if anything else is wrong.
pub(super) fn find_refused_nulls(
    schema: &Map<String, Json>,
    compiled: &CompiledSchema,
    json: &Json,
) -> Option<BTreeSet<String>> {
    if !has_null_field(json) {
        return None;
    }
    let outline = outline_json(json);
    if !can_list_errors(schema, &outline) {
        return None;
    }
    allow_uncounted_steps();
    let errors: Vec<ValidationError<'_>> = compiled.validator.iter_errors(&outline).collect();
    let found = RefusedNullFinder { schema, json: &outline }.find_in_errors(&errors);
    found.filter(|found| !found.is_empty())
}

struct RefusedNullFinder<'a> {
    schema: &'a Map<String, Json>,
    json: &'a Json,
}

impl RefusedNullFinder<'_> {
    fn find_in_errors(&self, errors: &[ValidationError<'_>]) -> Option<BTreeSet<String>> {
        // While something else is wrong, fields count as unevaluated because of that.
        let is_effect = |error: &&ValidationError<'_>| {
            matches!(error.kind(), ValidationErrorKind::UnevaluatedProperties { .. })
        };
        let has_cause = errors.iter().any(|error| !is_effect(&error));
        let mut found = BTreeSet::new();
        for error in errors.iter().filter(|error| !has_cause || !is_effect(error)) {
            found.extend(self.find_in_error(error)?);
        }
        Some(found)
    }

    fn find_in_error(&self, error: &ValidationError<'_>) -> Option<BTreeSet<String>> {
        let at = error.instance_path().as_str();
        if error.instance().is_null() && self.is_field(at) {
            return Some(BTreeSet::from([at.to_owned()]));
        }
        match error.kind() {
            ValidationErrorKind::AnyOf { context }
            | ValidationErrorKind::OneOfNotValid { context } => {
                let alternatives = context.iter().filter_map(|errors| self.find_in_errors(errors));
                alternatives.min_by_key(BTreeSet::len)
            }
            // A parameter of another alternative is unknown to this one. A name that no
            // alternative has is a mistake of the caller.
            ValidationErrorKind::AdditionalProperties { unexpected }
            | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
                let pointer = |name: &String| {
                    let is_null = error.instance().get(name).is_some_and(Json::is_null);
                    let is_known = self.schema.values().any(|it| names_property(it, name));
                    (is_null && is_known).then(|| format!("{at}/{}", escape_key(name)))
                };
                unexpected.iter().map(pointer).collect()
            }
            _ => None,
        }
    }

    /// An item of a list cannot be left out.
    fn is_field(&self, pointer: &str) -> bool {
        let holder = pointer.rsplit_once('/').and_then(|(holder, _)| self.json.pointer(holder));
        holder.is_some_and(Json::is_object)
    }
}

fn has_null_field(json: &Json) -> bool {
    match json {
        Json::Object(fields) => fields.values().any(|it| it.is_null() || has_null_field(it)),
        Json::Array(items) => items.iter().any(has_null_field),
        _ => false,
    }
}

/// Whether some part of a schema has a property of this name.
fn names_property(schema: &Json, name: &str) -> bool {
    match schema {
        Json::Object(fields) => {
            let properties = fields.get("properties").and_then(Json::as_object);
            properties.is_some_and(|it| it.contains_key(name))
                || fields.values().any(|it| names_property(it, name))
        }
        Json::Array(items) => items.iter().any(|it| names_property(it, name)),
        _ => false,
    }
}

/// The same value with its texts cut.
fn outline_json(json: &Json) -> Json {
    match json {
        Json::String(text) => text[..text.floor_char_boundary(MAX_OUTLINE_TEXT_BYTES)].into(),
        Json::Array(items) => items.iter().map(outline_json).collect(),
        Json::Object(fields) => {
            fields.iter().map(|(name, field)| (name.clone(), outline_json(field))).collect()
        }
        other => other.clone(),
    }
}

/// Remove these fields from `value`.
pub(super) fn remove_fields(value: &mut Value, pointers: &BTreeSet<String>) {
    for pointer in pointers {
        let mut keys: Vec<String> = pointer.split('/').skip(1).map(unescape_key).collect();
        let Some(name) = keys.pop() else { continue };
        if let Some(fields) = object_at(value, &keys) {
            fields.shift_remove(&name);
        }
    }
}

fn object_at<'a>(value: &'a mut Value, keys: &[String]) -> Option<&'a mut Object> {
    let found = keys.iter().try_fold(value, |value, key| match value {
        Value::Object(fields) => fields.get_mut(key),
        Value::Array(items) => items.get_mut(key.parse::<usize>().ok()?),
        _ => None,
    })?;
    match found {
        Value::Object(fields) => Some(fields),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::schema::{Schema, into_fields};
    use crate::value::Value;

    /// The arguments as the tool gets them, or what is wrong with them.
    fn checked(schema: &serde_json::Value, args: serde_json::Value) -> serde_json::Value {
        let (schema, problem) = Schema::from_foreign(into_fields(schema.clone()));
        assert!(problem.is_none());
        match schema.check_arguments(Value::from_json(args).unwrap()) {
            Ok(args) => args.to_json_lossy(),
            Err(problem) => problem.message.into(),
        }
    }

    #[test]
    fn a_null_is_judged_by_the_alternative_that_another_field_chooses() {
        let text = json!({"type": "string"});
        let maybe = json!({"type": ["string", "null"]});
        let create = json!({
            "properties": {"do": {"const": "create"}, "title": text, "parent": text},
            "required": ["do", "title"],
        });
        let moved = json!({
            "properties": {"do": {"enum": ["move", "copy"]}, "parent": maybe, "after": text},
            "required": ["do", "parent"],
        });
        let closed = |mut schema: serde_json::Value| {
            schema["additionalProperties"] = false.into();
            schema
        };
        for schema in [
            json!({"type": "object", "oneOf": [create, moved]}),
            json!({"type": "object", "anyOf": [create, {"$ref": "#/$defs/moved"}], "$defs": {"moved": moved}}),
            json!({"type": "object", "oneOf": [closed(create.clone()), closed(moved.clone())]}),
            json!({"type": "object", "oneOf": [create, moved], "unevaluatedProperties": false}),
        ] {
            assert_eq!(
                checked(
                    &schema,
                    json!({"do": "create", "title": "a", "parent": null, "after": null})
                ),
                json!({"do": "create", "title": "a"}),
                "{schema}"
            );
            // In this alternative a null is a value.
            assert_eq!(
                checked(&schema, json!({"do": "copy", "parent": null, "after": null})),
                json!({"do": "copy", "parent": null}),
                "{schema}"
            );
            // A null for a required field is refused.
            let refused = checked(&schema, json!({"do": "create", "title": null, "parent": null}));
            assert!(refused.is_string(), "{schema}: {refused}");
        }
        let either = json!({
            "type": "object", "properties": {"do": text},
            "if": {"properties": {"do": {"const": "create"}}}, "then": create, "else": moved,
        });
        let args = json!({"do": "create", "title": "a", "parent": null, "after": null});
        // No schema that applies says anything of `after`.
        let expected = json!({"do": "create", "title": "a", "after": null});
        assert_eq!(checked(&either, args), expected);
        let nested = json!({"type": "object", "properties": {"steps": {"type": "array", "items": {"oneOf": [create, moved]}}}});
        assert_eq!(
            checked(
                &nested,
                json!({"steps": [{"do": "create", "title": "a", "parent": null}, {"do": "move", "parent": null}]})
            ),
            json!({"steps": [{"do": "create", "title": "a"}, {"do": "move", "parent": null}]})
        );
    }

    #[test]
    fn a_null_is_judged_by_the_pattern_that_its_name_fits() {
        let schema = json!({
            "type": "object",
            "patternProperties": {"^x": {"type": "string"}, "^n": {"type": ["string", "null"]}},
            "additionalProperties": {"type": "integer"},
        });
        assert_eq!(
            checked(&schema, json!({"x1": null, "n1": null, "other": null, "a": 1})),
            json!({"n1": null, "a": 1})
        );
        let closed = json!({
            "type": "object", "patternProperties": {"^x": {"type": "string"}}, "additionalProperties": false,
        });
        assert_eq!(checked(&closed, json!({"x1": null, "x/2": null})), json!({}));
        // No schema knows this name.
        assert_eq!(checked(&closed, json!({"y": null})), json!("unknown parameter: y"));
        let dependent = json!({
            "type": "object", "properties": {"card": {"type": "string"}},
            "dependentSchemas": {"card": {"properties": {"address": {"type": "string"}}}},
        });
        assert_eq!(
            checked(&dependent, json!({"card": "1", "address": null})),
            json!({"card": "1"})
        );
        assert_eq!(checked(&dependent, json!({"address": null})), json!({"address": null}));
    }

    #[test]
    fn a_null_that_is_allowed_is_not_what_makes_the_rest_fit() {
        let schema = json!({
            "type": "object",
            "properties": {"a": {"type": ["string", "null"]}, "b": {"type": "string"}},
            "dependentRequired": {"a": ["b"]},
        });
        assert_eq!(checked(&schema, json!({"a": null})), json!("missing required parameter: b"));
        let many = json!({"type": "object", "patternProperties": {"^x": {"type": "string"}}});
        let items =
            json!({"type": "object", "properties": {"all": {"type": "array", "items": many}}});
        let nulls = |count: usize| -> serde_json::Value {
            (0..count)
                .map(|n| json!({format!("x{n}"): null, "text": "y".repeat(100_000)}))
                .collect()
        };
        let rest: serde_json::Value =
            (0..20).map(|_| json!({"text": "y".repeat(100_000)})).collect();
        assert_eq!(checked(&items, json!({"all": nulls(20)})), json!({"all": rest}));
        // Too many to be searched.
        let refused = checked(&items, json!({"all": nulls(2000)}));
        assert!(refused.is_string(), "{}", refused.to_string().len());
    }

    #[test]
    fn a_default_takes_the_place_of_a_null_that_was_removed() {
        let schema = json!({
            "type": "object",
            "properties": {"kind": {"type": "string"}, "mode": {"type": ["string", "null"], "default": "fast"}},
            "oneOf": [
                {"properties": {"kind": {"const": "a"}, "mode": {"type": "string"}}},
                {"properties": {"kind": {"const": "b"}}},
            ],
        });
        let schema = Schema::compile(into_fields(schema)).unwrap();
        let checked = |args| {
            let args = Value::from_json(args).unwrap();
            schema.check_arguments(args).unwrap().to_json_lossy()
        };
        assert_eq!(
            checked(json!({"kind": "a", "mode": null})),
            json!({"kind": "a", "mode": "fast"})
        );
        assert_eq!(checked(json!({"kind": "b", "mode": null})), json!({"kind": "b", "mode": null}));
    }
}
