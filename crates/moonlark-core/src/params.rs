//! The `parameters` of an authored tool as JSON Schema.
//!
//! Authors write a list of parameters, or a JSON Schema of their own; both end
//! up as the one schema that every surface shows and the gateway checks.

use serde_json::{Map, Value as Json, json};

use crate::nearest::nearest;
use crate::problem::{Problem, Result};
use crate::schema::Schema;
use crate::value::{Object, Value};

const TYPES: [&str; 6] = ["string", "integer", "number", "boolean", "array", "object"];

/// The fields of a parameter, and the JSON Schema keyword each becomes.
const FIELDS: [(&str, &str); 17] = [
    ("name", ""),
    ("required", ""),
    ("type", "type"),
    ("description", "description"),
    ("default", "default"),
    ("enum", "enum"),
    ("items", "items"),
    ("properties", "properties"),
    ("minimum", "minimum"),
    ("maximum", "maximum"),
    ("pattern", "pattern"),
    ("min_length", "minLength"),
    ("max_length", "maxLength"),
    ("min_items", "minItems"),
    ("max_items", "maxItems"),
    ("format", "format"),
    ("title", "title"),
];

/// The input schema for `parameters`; `what` names them in messages.
pub(crate) fn input_schema(parameters: Value, what: &str) -> Result<Schema> {
    let schema = match parameters {
        Value::Null => return Ok(Schema::empty()),
        Value::Object(object) if object.is_empty() => return Ok(Schema::empty()),
        Value::Array(list) => object_schema(list, what)?,
        Value::Object(object) => own_schema(object, what)?,
        other => {
            return Err(Problem::bad_script(format!(
                "{what} must be a list of parameters or a JSON Schema, got {}",
                other.kind()
            )));
        }
    };
    let schema = Schema::compile(schema)?;
    schema.check_defaults().map_err(|message| {
        Problem::bad_script(format!("{what}: {message}"))
            .hint("a default must be a value the parameter itself would accept")
    })?;
    Ok(schema)
}

/// The schema an author wrote as such: `parameters` or `output`.
pub(crate) fn own_schema(object: Object, what: &str) -> Result<Map<String, Json>> {
    let known = ["type", "properties", "$ref", "allOf", "anyOf", "oneOf", "$schema"];
    if !known.iter().any(|key| object.contains_key(*key)) {
        return Err(Problem::bad_script(format!(
            "{what} is neither a list of parameters nor a JSON Schema"
        ))
        .hint("write { { name = \"title\", type = \"string\", required = true } }"));
    }
    match lists(Value::Object(object)).into_json(what)? {
        Json::Object(map) => Ok(map),
        _ => Err(Problem::bad_script(format!("{what} must be an object"))),
    }
}

/// Luau writes an empty list and an empty object alike; in a schema the keyword
/// tells which is meant.
fn lists(value: Value) -> Value {
    let Value::Object(object) = value else { return value };
    let list = |key: &str| {
        matches!(key, "required" | "enum" | "allOf" | "anyOf" | "oneOf" | "prefixItems")
    };
    Value::Object(
        object
            .into_iter()
            .map(|(key, value)| match value {
                Value::Object(empty) if empty.is_empty() && list(&key) => {
                    (key, Value::Array(vec![]))
                }
                value => (key, lists(value)),
            })
            .collect(),
    )
}

fn object_schema(list: Vec<Value>, what: &str) -> Result<Map<String, Json>> {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for (index, parameter) in list.into_iter().enumerate() {
        let at = format!("{what}[{}]", index + 1);
        let Value::Object(parameter) = parameter else {
            return Err(Problem::bad_script(format!(
                "{at} must be a table such as {{ name = \"title\", type = \"string\" }}"
            )));
        };
        let name = match parameter.get("name") {
            Some(Value::Str(name)) if !name.is_empty() => name.clone(),
            _ => return Err(Problem::bad_script(format!("{at} has no name"))),
        };
        let at = format!("{what}.{name}");
        match parameter.get("required") {
            None | Some(Value::Null | Value::Bool(false)) => {}
            Some(Value::Bool(true)) => required.push(Json::from(name.clone())),
            Some(other) => {
                return Err(Problem::bad_script(format!(
                    "{at}.required must be a boolean, got {}",
                    other.kind()
                )));
            }
        }
        if properties.insert(name.clone(), property(parameter, &at)?).is_some() {
            return Err(Problem::bad_script(format!("{what} has two parameters named {name}")));
        }
    }
    let mut schema = Map::new();
    schema.insert("type".into(), "object".into());
    schema.insert("properties".into(), Json::Object(properties));
    if !required.is_empty() {
        schema.insert("required".into(), Json::Array(required));
    }
    schema.insert("additionalProperties".into(), false.into());
    Ok(schema)
}

fn property(parameter: Object, at: &str) -> Result<Json> {
    let kind = match parameter.get("type") {
        Some(Value::Str(kind)) if TYPES.contains(&kind.as_str()) => kind.clone(),
        Some(Value::Str(kind)) => {
            let near = nearest(kind, TYPES).map(|near| format!("did you mean {near:?}?"));
            return Err(Problem::bad_script(format!(
                "{at}.type is {kind:?}, which is none of {}",
                TYPES.join(", ")
            ))
            .maybe_hint(near));
        }
        _ => {
            return Err(Problem::bad_script(format!("{at} has no type"))
                .hint(format!("the types are {}", TYPES.join(", "))));
        }
    };
    let mut schema = Map::new();
    for (field, keyword) in FIELDS {
        let Some(value) = parameter.get(field).cloned() else { continue };
        if keyword.is_empty() {
            continue;
        }
        let value = match (field, value) {
            ("items", Value::Str(kind)) => json!({"type": kind}),
            ("items", Value::Object(items)) => property(items, &format!("{at}.items"))?,
            ("properties", Value::Array(list)) => {
                let inner = object_schema(list, &format!("{at}.properties"))?;
                schema.extend(inner.into_iter().filter(|(key, _)| key != "type"));
                continue;
            }
            ("default", Value::Object(empty)) if empty.is_empty() && kind == "array" => json!([]),
            ("enum", Value::Object(empty)) if empty.is_empty() => {
                return Err(Problem::bad_script(format!("{at}.enum allows no value at all")));
            }
            (_, value) => value.into_json(&format!("{at}.{field}"))?,
        };
        schema.insert(keyword.to_owned(), value);
    }
    for field in parameter.keys() {
        if !FIELDS.iter().any(|(known, _)| known == field) {
            let near = nearest(field, FIELDS.map(|(known, _)| known));
            return Err(Problem::bad_script(format!("{at} has an unknown field {field}"))
                .maybe_hint(near.map(|near| format!("did you mean {near}?"))));
        }
    }
    Ok(Json::Object(schema))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(parameters: Json) -> String {
        match input_schema(Value::from_json(parameters).unwrap(), "tool.parameters") {
            Ok(schema) => Json::Object((**schema.json()).clone()).to_string(),
            Err(problem) => problem.to_string(),
        }
    }

    #[test]
    fn a_parameter_list_becomes_json_schema() {
        for (parameters, expected) in [
            (json!([]), r#"{"type":"object","properties":{},"additionalProperties":false}"#),
            (
                json!([{"name": "priority", "type": "string", "enum": ["low", "high"], "default": "low"},
                       {"name": "title", "type": "string", "required": true, "description": "Ticket title"}]),
                r#"{"type":"object","properties":{"priority":{"type":"string","default":"low","enum":["low","high"]},"title":{"type":"string","description":"Ticket title"}},"required":["title"],"additionalProperties":false}"#,
            ),
            (
                json!([{"name": "tags", "type": "array", "items": "string", "default": {}},
                       {"name": "at", "type": "object", "properties": [{"name": "x", "type": "number"}]}]),
                r#"{"type":"object","properties":{"tags":{"type":"array","default":[],"items":{"type":"string"}},"at":{"type":"object","properties":{"x":{"type":"number"}},"additionalProperties":false}},"additionalProperties":false}"#,
            ),
            (json!({"type": "object", "required": {}}), r#"{"type":"object","required":[]}"#),
            (
                json!([{"name": "x", "type": "int"}]),
                "error[bad_script]: tool.parameters.x.type is \"int\", which is none of string, integer, number, boolean, array, object",
            ),
            (
                json!([{"name": "x"}]),
                "error[bad_script]: tool.parameters.x has no type\nhint: the types are string, integer, number, boolean, array, object",
            ),
            (json!([{"type": "string"}]), "error[bad_script]: tool.parameters[1] has no name"),
            (
                json!([{"name": "x", "type": "string", "requird": true}]),
                "error[bad_script]: tool.parameters.x has an unknown field requird\nhint: did you mean required?",
            ),
            (
                json!([{"name": "x", "type": "integer", "default": "one"}]),
                "error[bad_script]: tool.parameters: parameter 'x' must be integer, got string\nhint: a default must be a value the parameter itself would accept",
            ),
            (
                json!([{"name": "x", "type": "string"}, {"name": "x", "type": "string"}]),
                "error[bad_script]: tool.parameters has two parameters named x",
            ),
            (
                json!({"title": "string"}),
                "error[bad_script]: tool.parameters is neither a list of parameters nor a JSON Schema\nhint: write { { name = \"title\", type = \"string\", required = true } }",
            ),
            (
                json!("x"),
                "error[bad_script]: tool.parameters must be a list of parameters or a JSON Schema, got string",
            ),
        ] {
            assert_eq!(check(parameters), expected);
        }
    }
}
