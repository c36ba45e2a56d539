//! Nulls for optional parameters, which are treated as absent.
//!
//! Many agents and frameworks fill every optional parameter with null. Where the
//! schema has no null, that can only mean that nothing is given: such nulls are
//! taken out before arguments are checked, in nested objects too. A null that the
//! schema allows is a value like any other, and one for a required parameter stays
//! to be refused by name.

use serde_json::{Map, Value as Json};

use super::references::{SchemaNode, resolve_reference};
use crate::value::{Object, Value};

/// How many references and parts of a schema are followed to find out about one
/// null. Beyond that it stays where it is.
const MAX_FOLLOWED_SCHEMAS: usize = 64;
/// What may allow a null, or more fields, beside `properties` and
/// `additionalProperties`. It is left to the validator: see [`super::refused_nulls`].
const UNFOLLOWED_KEYWORDS: [&str; 8] = [
    "patternProperties",
    "if",
    "then",
    "else",
    "dependencies",
    "dependentSchemas",
    "unevaluatedProperties",
    "propertyNames",
];

/// Take out of `args` every null that `schema` does not allow and does not require.
pub(super) fn remove_absent_nulls(schema: &Map<String, Json>, args: &mut Value) {
    if has_null(args) {
        AbsentNullFinder { root: schema, nullable: NullableMode::IsNoKeyword }
            .remove_nulls(&[SchemaNode::Fields(schema)], args);
    }
}

/// `args` without the nulls of fields that are `nullable: true`, which is a word of
/// OpenAPI that JSON Schema does not know; none if there are none. They are
/// somebody's values, but no validator takes them.
pub(super) fn without_nullable(schema: &Map<String, Json>, args: &Value) -> Option<Value> {
    if !has_null(args) {
        return None;
    }
    let mut rest = args.clone();
    AbsentNullFinder { root: schema, nullable: NullableMode::IsLookedFor }
        .remove_nulls(&[SchemaNode::Fields(schema)], &mut rest);
    (rest != *args).then_some(rest)
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Object(fields) => {
            fields.values().any(|field| *field == Value::Null || has_null(field))
        }
        Value::Array(items) => items.iter().any(has_null),
        _ => false,
    }
}

#[derive(Clone, Copy, PartialEq)]
enum NullableMode {
    /// A null of a field that says so stays.
    IsNoKeyword,
    /// Only nulls of such fields are taken out.
    IsLookedFor,
}

struct AbsentNullFinder<'a> {
    root: &'a Map<String, Json>,
    nullable: NullableMode,
}

/// What the schemas of an object say that nulls are judged by.
#[derive(Default)]
struct ObjectParts<'a> {
    objects: Vec<&'a Map<String, Json>>,
    /// How many of them hold in any case, and are no alternative.
    unconditional: usize,
}

impl<'a> AbsentNullFinder<'a> {
    fn remove_nulls(&self, parts: &[SchemaNode<'a>], value: &mut Value) {
        match value {
            Value::Object(fields) => self.remove_object_nulls(parts, fields),
            Value::Array(items) => {
                let inner = self.item_parts(parts);
                if !inner.is_empty() {
                    items.iter_mut().for_each(|item| self.remove_nulls(&inner, item));
                }
            }
            _ => {}
        }
    }

    fn remove_object_nulls(&self, parts: &[SchemaNode<'a>], fields: &mut Object) {
        let known = self.flatten_parts(parts);
        // All at once: taking them out one by one moves the rest each time.
        fields.retain(|name, value| *value != Value::Null || !self.is_absent(&known, name));
        for (name, value) in fields.iter_mut() {
            if matches!(value, Value::Object(_) | Value::Array(_)) {
                let inner = known.field_parts(name, self.nullable);
                if !inner.is_empty() {
                    self.remove_nulls(&inner, value);
                }
            }
        }
    }

    /// Whether a null under this name stands for nothing.
    fn is_absent(&self, known: &ObjectParts<'a>, name: &str) -> bool {
        let schemas = known.field_parts(name, self.nullable);
        if schemas.is_empty() || known.requires_field(name) {
            return false;
        }
        let says_nullable = || {
            let flat = self.flatten_parts(&schemas);
            flat.objects.iter().any(|it| it.get("nullable") == Some(&Json::Bool(true)))
        };
        let mut left = MAX_FOLLOWED_SCHEMAS;
        let refuses = schemas.iter().all(|part| !self.allows_null(*part, &mut left));
        match self.nullable {
            NullableMode::IsLookedFor => refuses && says_nullable(),
            NullableMode::IsNoKeyword => refuses && !says_nullable(),
        }
    }

    /// Every object schema among `parts`, their references, parts and alternatives.
    fn flatten_parts(&self, parts: &[SchemaNode<'a>]) -> ObjectParts<'a> {
        let mut flat = ObjectParts::default();
        let mut queue: Vec<&'a Map<String, Json>> = Vec::new();
        queue.extend(parts.iter().filter_map(|part| part.fields()));
        self.follow_parts(queue, &["allOf"], &mut flat);
        flat.unconditional = flat.objects.len();
        let lists = flat.objects.iter().flat_map(|it| [it.get("anyOf"), it.get("oneOf")]).flatten();
        let queue =
            lists.filter_map(Json::as_array).flatten().filter_map(Json::as_object).collect();
        self.follow_parts(queue, &["allOf", "anyOf", "oneOf"], &mut flat);
        flat
    }

    fn follow_parts(
        &self,
        mut queue: Vec<&'a Map<String, Json>>,
        keywords: &[&str],
        flat: &mut ObjectParts<'a>,
    ) {
        while let Some(schema) = queue.pop() {
            if flat.objects.len() == MAX_FOLLOWED_SCHEMAS {
                return;
            }
            if flat.objects.iter().any(|it| std::ptr::eq(*it, schema)) {
                continue;
            }
            flat.objects.push(schema);
            let target = schema.get("$ref").and_then(|it| self.resolve_reference(it));
            queue.extend(target.and_then(SchemaNode::fields));
            for keyword in keywords {
                let all = schema.get(*keyword).and_then(Json::as_array).into_iter().flatten();
                queue.extend(all.filter_map(Json::as_object));
            }
        }
    }

    fn item_parts(&self, parts: &[SchemaNode<'a>]) -> Vec<SchemaNode<'a>> {
        let flat = self.flatten_parts(parts);
        let items = flat.objects.iter().filter_map(|it| it.get("items"));
        items.filter(|it| it.is_object()).map(SchemaNode::from_json).collect()
    }

    fn resolve_reference(&self, reference: &Json) -> Option<SchemaNode<'a>> {
        resolve_reference(self.root, reference.as_str()?)
    }

    /// Whether null fits a schema, as far as that can be seen without checking.
    fn allows_null(&self, schema: SchemaNode<'a>, left: &mut usize) -> bool {
        *left = left.saturating_sub(1);
        let fields = match schema {
            _ if *left == 0 => return true,
            SchemaNode::Flag(anything) => return anything,
            SchemaNode::Fields(fields) => fields,
        };
        let by_type = match fields.get("type") {
            Some(Json::String(kind)) => kind == "null",
            Some(Json::Array(kinds)) => kinds.iter().any(|kind| kind == "null"),
            _ => true,
        };
        let by_value = match (fields.get("enum"), fields.get("const")) {
            (Some(Json::Array(options)), _) => options.contains(&Json::Null),
            (_, Some(value)) => value.is_null(),
            _ => true,
        };
        if !by_type || !by_value {
            return false;
        }
        if let Some(target) = fields.get("$ref").and_then(|it| self.resolve_reference(it))
            && !self.allows_null(target, left)
        {
            return false;
        }
        let list = |keyword: &str| fields.get(keyword).and_then(Json::as_array);
        let mut allows = |it: &'a Json| self.allows_null(SchemaNode::from_json(it), left);
        let all = list("allOf").into_iter().flatten().all(&mut allows);
        all && ["anyOf", "oneOf"]
            .iter()
            .all(|keyword| list(keyword).is_none_or(|some| some.iter().any(&mut allows)))
    }
}

impl<'a> ObjectParts<'a> {
    /// The schemas of a field: what is said of it, or of all that nothing is said of.
    /// None where keywords that are not followed may say something else, except while
    /// `nullable` is looked for: that may be said by any of them.
    fn field_parts(&self, name: &str, nullable: NullableMode) -> Vec<SchemaNode<'a>> {
        let named = |it: &&'a Map<String, Json>| it.get("properties")?.get(name);
        // Where its own schema holds in any case, no keyword beside it allows more.
        let holds = self.objects[..self.unconditional].iter().any(|it| named(it).is_some());
        let is_open = nullable == NullableMode::IsLookedFor;
        if !holds && !is_open && self.has_unfollowed_keywords() {
            return Vec::new();
        }
        let named: Vec<SchemaNode<'a>> =
            self.objects.iter().filter_map(named).map(SchemaNode::from_json).collect();
        if !named.is_empty() {
            return named;
        }
        let others = self.objects.iter().filter_map(|it| it.get("additionalProperties"));
        let patterns =
            self.objects.iter().filter_map(|it| it.get("patternProperties")?.as_object());
        let others = others.chain(patterns.flat_map(Map::values).filter(|_| is_open));
        others.filter(|it| it.is_object()).map(SchemaNode::from_json).collect()
    }

    fn has_unfollowed_keywords(&self) -> bool {
        let has_any = |it: &&Map<String, Json>| {
            UNFOLLOWED_KEYWORDS.iter().any(|keyword| it.contains_key(*keyword))
        };
        self.objects.iter().any(has_any)
    }

    fn requires_field(&self, name: &str) -> bool {
        let objects = &self.objects[..self.unconditional];
        let lists = objects.iter().filter_map(|it| it.get("required")?.as_array());
        lists.flatten().any(|it| it == name)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cleaned(schema: Json, args: Json) -> Json {
        let Json::Object(schema) = schema else { unreachable!("an object literal") };
        let mut args = Value::from_json(args).unwrap();
        remove_absent_nulls(&schema, &mut args);
        args.to_json_lossy()
    }

    #[test]
    fn a_null_stands_for_nothing_where_the_schema_has_none() {
        let schema = || {
            json!({
                "type": "object",
                "properties": {
                    "must": {"type": "string"},
                    "text": {"type": "string"},
                    "word": {"enum": ["a", "b"]},
                    "one": {"const": 1},
                    "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
                    "all": {"allOf": [{}, {"type": "object"}]},
                    "far": {"$ref": "#/$defs/far"},
                    "free": {"description": "anything"},
                    "or_null": {"type": ["string", "null"]},
                    "any_null": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                    "null_word": {"enum": ["a", null]},
                    "openapi": {"type": "string", "nullable": true},
                    "lost": {"$ref": "#/$defs/nowhere"},
                },
                "required": ["must"],
                "$defs": {"far": {"type": "integer"}},
            })
        };
        let Json::Object(properties) = schema()["properties"].clone() else { unreachable!() };
        let all: Json = properties.keys().map(|name| (name.clone(), Json::Null)).collect();
        let kept = cleaned(schema(), all);
        let mut kept: Vec<&String> = kept.as_object().unwrap().keys().collect();
        kept.sort();
        assert_eq!(kept, ["any_null", "free", "lost", "must", "null_word", "openapi", "or_null"]);
    }

    #[test]
    fn nested_nulls_are_looked_at_by_the_schema_of_their_place() {
        let inner = json!({
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": ["string", "null"]}},
        });
        let schema = json!({
            "type": "object",
            "properties": {
                "one": inner,
                "many": {"type": "array", "items": {"$ref": "#/$defs/inner"}},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "choice": {"oneOf": [inner, {"type": "string"}]},
                "tree": {"$ref": "#/$defs/tree"},
            },
            "$defs": {
                "inner": inner,
                "tree": {"type": "object", "properties": {
                    "left": {"$ref": "#/$defs/tree"}, "value": {"type": "integer"},
                }},
            },
        });
        let nulls = json!({"a": null, "b": null, "unknown": null});
        let args = json!({
            "one": nulls, "many": [nulls, null], "map": {"x": null, "y": "z"}, "choice": nulls,
            "tree": {"left": {"left": null, "value": null}, "value": 1},
        });
        let rest = json!({"b": null, "unknown": null});
        assert_eq!(
            cleaned(schema, args),
            json!({
                "one": rest, "many": [rest, null], "map": {"y": "z"}, "choice": rest,
                "tree": {"left": {}, "value": 1},
            })
        );
    }

    #[test]
    fn a_null_that_other_keywords_may_allow_is_left_to_the_validator() {
        let maybe = json!({"type": ["string", "null"]});
        let text = json!({"type": "string"});
        for (keyword, said) in [
            ("patternProperties", json!({"^x": maybe})),
            ("if", json!({"required": ["x1"]})),
            ("then", json!({"properties": {"x1": {"type": "null"}}})),
            ("else", json!({"properties": {"x1": {"type": "null"}}})),
            ("dependentSchemas", json!({"a": {"properties": {"x1": maybe}}})),
            ("unevaluatedProperties", maybe.clone()),
            ("propertyNames", json!({"pattern": "^x"})),
        ] {
            let mut schema = json!({
                "type": "object", "properties": {"a": text}, "additionalProperties": text,
            });
            schema[keyword] = said.clone();
            // Nothing beside it allows a null for `a`.
            assert_eq!(
                cleaned(schema.clone(), json!({"x1": null, "a": null})),
                json!({"x1": null}),
                "{keyword}"
            );
            schema["additionalProperties"] = json!({"type": "object", "properties": {"y": text}});
            let nested = json!({"x1": {"y": null}});
            assert_eq!(cleaned(schema, nested.clone()), nested, "{keyword}");
            // In an alternative, which may not hold, and with one that may.
            let either = json!({"type": "object", "anyOf": [
                {"properties": {"x1": text}}, {keyword: said},
            ]});
            assert_eq!(cleaned(either, json!({"x1": null})), json!({"x1": null}), "{keyword}");
        }
    }

    #[test]
    fn what_only_an_alternative_requires_can_be_left_out() {
        let schema = json!({
            "type": "object",
            "properties": {"id": {"type": "string"}, "name": {"type": "string"}},
            "oneOf": [{"required": ["id"]}, {"required": ["name"]}],
        });
        assert_eq!(cleaned(schema, json!({"id": "a", "name": null})), json!({"id": "a"}));
    }

    #[test]
    fn a_schema_that_goes_round_in_circles_ends() {
        let schema = json!({
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/a"}},
            "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}},
        });
        assert_eq!(cleaned(schema, json!({"a": null})), json!({"a": null}));
    }

    #[test]
    fn any_number_of_nulls_takes_as_many_steps() {
        let schema = json!({"type": "object", "additionalProperties": {"type": "string"}});
        // One by one, the rest would be moved forty billion times.
        let nulls: Map<String, Json> =
            (0..300_000).map(|n| (format!("k{n}"), Json::Null)).collect();
        assert_eq!(cleaned(schema, Json::Object(nulls)), json!({}));
    }

    #[test]
    fn what_openapi_calls_nullable_is_kept_and_not_shown_to_the_validator() {
        let schema = json!({"type": "object", "properties": {
            "due": {"type": "string", "nullable": true}, "done": {"type": "boolean"},
        }});
        let Json::Object(schema) = schema else { unreachable!("an object literal") };
        let args = Value::from_json(json!({"due": null, "done": true})).unwrap();
        let rest = without_nullable(&schema, &args).unwrap();
        assert_eq!(rest.to_json_lossy(), json!({"done": true}));
        assert_eq!(without_nullable(&schema, &rest), None);
        // Also under keywords that are not followed otherwise.
        let date = json!({"type": "string", "nullable": true});
        for schema in [
            json!({"type": "object", "patternProperties": {"^x": date}}),
            json!({"type": "object", "if": {"required": ["y"]}, "additionalProperties": date}),
        ] {
            let Json::Object(schema) = schema else { unreachable!("an object literal") };
            let args = Value::from_json(json!({"x1": null})).unwrap();
            let rest = without_nullable(&schema, &args).unwrap();
            assert_eq!(rest.to_json_lossy(), json!({}));
        }
    }
}
