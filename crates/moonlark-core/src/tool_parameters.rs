//! The `parameters` of an authored tool as JSON Schema.
//!
//! Authors write a list of parameters, or a JSON Schema of their own; both end
//! up as the one schema that every surface shows and the gateway checks.

use serde_json::{Map, Value as Json, json};

use crate::nearest::nearest_name;
use crate::problem::{Problem, Result, Warning};
use crate::schema::Schema;
use crate::value::{MAX_VALUE_DEPTH, Object, Value};

const PARAMETER_TYPES: [&str; 6] = ["string", "integer", "number", "boolean", "array", "object"];

/// What programming languages call some of them.
const PARAMETER_TYPE_ALIASES: [(&str, &str); 10] = [
    ("str", "string"),
    ("text", "string"),
    ("int", "integer"),
    ("float", "number"),
    ("double", "number"),
    ("bool", "boolean"),
    ("list", "array"),
    ("dict", "object"),
    ("map", "object"),
    ("table", "object"),
];

/// The fields of a parameter, and the JSON Schema keyword each becomes.
const PARAMETER_FIELDS: [(&str, &str); 17] = [
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
pub(crate) fn input_schema(
    parameters: Value,
    what: &str,
    warnings: &mut Vec<Warning>,
) -> Result<Schema> {
    let mut reading = ParameterReader::new(warnings);
    let schema = match parameters {
        Value::Null => return Ok(Schema::without_parameters()),
        Value::Object(object) if object.is_empty() => return Ok(Schema::without_parameters()),
        Value::Array(list) => reading.object_schema(list, what, true),
        Value::Object(object) => authored_schema(object, what)?,
        other => {
            return Err(Problem::bad_script(format!(
                "{what} must be a list of parameters or a JSON Schema, got {}",
                other.kind()
            )));
        }
    };
    if !reading.mistakes.is_empty() {
        return Err(merge_mistakes(reading.mistakes));
    }
    reading.warn_of_empty_ranges(&Json::Object(schema.clone()), what, 0);
    let schema = Schema::compile(schema)?;
    schema.check_defaults().map_err(|message| {
        Problem::bad_script(format!("{what}: {message}")).with_hint(DEFAULT_MUST_FIT_HINT)
    })?;
    reading.warn_of_text_defaults(what);
    Ok(schema)
}

const DEFAULT_MUST_FIT_HINT: &str = "a default must be a value the parameter itself would accept";

/// The schema an author wrote as such: `parameters` or `output`.
pub(crate) fn authored_schema(object: Object, what: &str) -> Result<Map<String, Json>> {
    let known = ["type", "properties", "$ref", "allOf", "anyOf", "oneOf", "$schema"];
    if !known.iter().any(|key| object.contains_key(*key)) {
        return Err(Problem::bad_script(format!(
            "{what} is neither a list of parameters nor a JSON Schema"
        ))
        .with_hint("write { { name = \"title\", type = \"string\", required = true } }"));
    }
    match restore_empty_lists(Value::Object(object)).into_json(what)? {
        Json::Object(map) => Ok(map),
        _ => Err(Problem::bad_script(format!("{what} must be an object"))),
    }
}

/// Luau writes an empty list and an empty object alike; in a schema the keyword
/// tells which is meant.
fn restore_empty_lists(value: Value) -> Value {
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
                value => (key, restore_empty_lists(value)),
            })
            .collect(),
    )
}

/// Several mistakes as one Problem, so that one round of editing mends all of them.
pub fn merge_mistakes(mut mistakes: Vec<Problem>) -> Problem {
    if mistakes.len() < 2 {
        return mistakes.pop().unwrap_or_else(|| Problem::internal("there is no mistake"));
    }
    let place = mistakes.iter().find_map(|it| it.place.clone());
    let one = |it: &Problem| match &it.hint {
        Some(hint) => format!("{} ({hint})", it.message),
        None => it.message.clone(),
    };
    let all: Vec<String> = mistakes.iter().map(one).collect();
    let mut merged = Problem::bad_script(all.join("; "));
    merged.place = place;
    merged
}

/// The keywords whose range is empty when the first is greater than the second.
const RANGE_KEYWORDS: [(&str, &str); 4] = [
    ("minimum", "maximum"),
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
];

/// Reads a list of parameters, and notes what could be written otherwise.
struct ParameterReader<'a> {
    /// Defaults that were written as text and are none: `limit = "10"`.
    text_defaults: Vec<String>,
    /// What is wrong with the parameters: at most one mistake of each.
    mistakes: Vec<Problem>,
    warnings: &'a mut Vec<Warning>,
}

impl<'a> ParameterReader<'a> {
    fn new(warnings: &'a mut Vec<Warning>) -> ParameterReader<'a> {
        ParameterReader { text_defaults: Vec::new(), mistakes: Vec::new(), warnings }
    }

    /// `outermost`: the parameters themselves, whose defaults are checked
    /// together when all are known.
    fn object_schema(
        &mut self,
        list: Vec<Value>,
        what: &str,
        outermost: bool,
    ) -> Map<String, Json> {
        let mut properties = Map::new();
        let mut required = Vec::new();
        for (index, parameter) in list.into_iter().enumerate() {
            let at = format!("{what}[{}]", index + 1);
            let read = self.read_parameter(parameter, &at, what);
            let (name, property, is_required) = match read {
                Ok(read) => read,
                Err(mistake) => {
                    self.mistakes.push(mistake);
                    continue;
                }
            };
            if !outermost {
                self.mistakes.extend(check_default(&name, &property, what).err());
            }
            if is_required {
                required.push(Json::from(name.clone()));
            }
            if properties.contains_key(&name) {
                let message = format!("{what} has two parameters named {name}");
                self.mistakes.push(Problem::bad_script(message));
            }
            properties.insert(name, property);
        }
        let mut schema = Map::new();
        schema.insert("type".into(), "object".into());
        schema.insert("properties".into(), Json::Object(properties));
        if !required.is_empty() {
            schema.insert("required".into(), Json::Array(required));
        }
        schema.insert("additionalProperties".into(), false.into());
        schema
    }

    /// One parameter of a list: its name, its schema, whether it is required.
    fn read_parameter(
        &mut self,
        parameter: Value,
        at: &str,
        what: &str,
    ) -> Result<(String, Json, bool)> {
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
        let is_required = match parameter.get("required") {
            None | Some(Value::Null | Value::Bool(false)) => false,
            Some(Value::Bool(true)) => true,
            Some(other) => {
                return Err(Problem::bad_script(format!(
                    "{at}.required must be a boolean, got {}",
                    other.kind()
                )));
            }
        };
        Ok((name, self.property_schema(parameter, &at)?, is_required))
    }

    fn property_schema(&mut self, mut parameter: Object, at: &str) -> Result<Json> {
        // What Starlark calls it.
        if !parameter.contains_key("type")
            && let Some(kind) = parameter.swap_remove("param_type")
        {
            parameter.insert("type".to_owned(), kind);
        }
        let kind = self.parameter_type(&parameter, at)?;
        let mut schema = Map::new();
        for (field, keyword) in PARAMETER_FIELDS {
            let Some(value) = parameter.get(field).cloned() else { continue };
            if keyword.is_empty() {
                continue;
            }
            let value = match (field, value) {
                ("type", _) => Json::from(kind),
                ("items", Value::Str(items)) => {
                    json!({"type": canonical_type(&items).unwrap_or(&items)})
                }
                ("items", Value::Object(items)) => {
                    self.property_schema(items, &format!("{at}.items"))?
                }
                ("properties", Value::Array(list)) => {
                    let inner = self.object_schema(list, &format!("{at}.properties"), false);
                    schema.extend(inner.into_iter().filter(|(key, _)| key != "type"));
                    continue;
                }
                ("default", value) => match self.read_default(value, kind, at)? {
                    Some(default) => default,
                    None => continue,
                },
                ("enum", Value::Object(empty)) if empty.is_empty() => {
                    return Err(Problem::bad_script(format!("{at}.enum allows no value at all")));
                }
                (_, value) => value.into_json(&format!("{at}.{field}"))?,
            };
            schema.insert(keyword.to_owned(), value);
        }
        for field in parameter.keys() {
            if !PARAMETER_FIELDS.iter().any(|(known, _)| known == field) {
                let near = nearest_name(field, PARAMETER_FIELDS.map(|(known, _)| known));
                return Err(Problem::bad_script(format!("{at} has an unknown field {field}"))
                    .with_optional_hint(near.map(|near| format!("did you mean {near}?"))));
            }
        }
        Ok(Json::Object(schema))
    }

    fn parameter_type(&mut self, parameter: &Object, at: &str) -> Result<&'static str> {
        let Some(Value::Str(kind)) = parameter.get("type") else {
            return Err(Problem::bad_script(format!("{at} has no type"))
                .with_hint(format!("the types are {}", PARAMETER_TYPES.join(", "))));
        };
        let Some(own) = canonical_type(kind) else {
            let near =
                nearest_name(kind, PARAMETER_TYPES).map(|near| format!("did you mean {near:?}?"));
            return Err(Problem::bad_script(format!(
                "{at}.type is {kind:?}, which is none of {}",
                PARAMETER_TYPES.join(", ")
            ))
            .with_optional_hint(near));
        };
        if own != kind {
            self.warnings.push(
                Warning::new(format!("{at}.type is {kind:?}, which is called {own:?} here"))
                    .with_hint(format!("write {own:?}: both are understood")),
            );
        }
        Ok(own)
    }

    /// The default as a value of the parameter's type. One that cannot be read as such
    /// is left out with a warning: the tool works without it.
    fn read_default(&mut self, value: Value, kind: &str, at: &str) -> Result<Option<Json>> {
        let value = match (value, kind) {
            (Value::Null, _) => return Ok(None),
            (Value::Object(empty), "array") if empty.is_empty() => return Ok(Some(json!([]))),
            (Value::Str(text), _) if kind != "string" => {
                return Ok(self.parse_text_default(&text, kind, at));
            }
            (value @ (Value::Bool(_) | Value::Int(_) | Value::Float(_)), "string") => {
                let text = value.to_json_lossy().to_string();
                self.warnings.push(
                    Warning::new(format!("{at}.default is {text}, which is taken as \"{text}\""))
                        .with_hint(format!("write \"{text}\": the parameter is a string")),
                );
                return Ok(Some(Json::from(text)));
            }
            (value, _) => value,
        };
        let fits = match (&value, kind) {
            (Value::Str(_), "string")
            | (Value::Bool(_), "boolean")
            | (Value::Int(_), "integer" | "number")
            | (Value::Float(_), "number")
            | (Value::Array(_), "array")
            | (Value::Object(_), "object") => true,
            (Value::Float(float), "integer") => float.fract() == 0.0,
            _ => false,
        };
        if !fits {
            self.warn_of_unread_default(value.kind(), kind, at);
            return Ok(None);
        }
        value.into_json(&format!("{at}.default")).map(Some)
    }

    /// A default that was written as text, read by the parameter's type: as JSON, or as
    /// Python writes it.
    fn parse_text_default(&mut self, text: &str, kind: &str, at: &str) -> Option<Json> {
        let trimmed = text.trim();
        if trimmed.is_empty() {
            self.warnings.push(
                Warning::new(format!("{at}.default is an empty text, which is no {kind}"))
                    .with_hint("leave the default out: there is none now"),
            );
            return None;
        }
        let parse = |text: &str| {
            // Bounded in depth, as all JSON from outside.
            let parsed = Value::parse_json(text.as_bytes()).and_then(|value| value.into_json(at));
            parsed.ok().filter(|it| if kind == "array" { it.is_array() } else { it.is_object() })
        };
        let read = match kind {
            "boolean" => match trimmed {
                "true" | "True" | "TRUE" => Some(json!(true)),
                "false" | "False" | "FALSE" => Some(json!(false)),
                _ => None,
            },
            "integer" => trimmed.parse::<i64>().ok().map(Json::from),
            "number" => (trimmed.parse::<i64>().ok().map(Json::from)).or_else(|| {
                let float = trimmed.parse::<f64>().ok().filter(|float| float.is_finite())?;
                Some(Json::from(float))
            }),
            _ => parse(trimmed).or_else(|| parse(&python_literal_to_json(trimmed)?)),
        };
        if read.is_some() {
            self.text_defaults.push(at.rsplit('.').next().unwrap_or(at).to_owned());
        } else {
            self.warn_of_unread_default(&format!("the text {text:?}"), kind, at);
        }
        read
    }

    fn warn_of_unread_default(&mut self, got: &str, kind: &str, at: &str) {
        self.warnings.push(
            Warning::new(format!("{at}.default cannot be read as {kind}, got {got}"))
                .with_hint("write a value of the parameter's type: there is no default now"),
        );
    }

    /// Ranges that no value is in, in a schema and those below it.
    fn warn_of_empty_ranges(&mut self, schema: &Json, at: &str, depth: usize) {
        if depth > MAX_VALUE_DEPTH {
            return;
        }
        for (least, most) in RANGE_KEYWORDS {
            let number = |keyword: &str| schema.get(keyword).and_then(Json::as_f64);
            if let (Some(low), Some(high)) = (number(least), number(most))
                && low > high
            {
                let message = format!(
                    "{at}: no value is valid, since {least} {} is greater than {most} {}",
                    schema[least], schema[most]
                );
                let hint = format!("exchange {least} and {most}, or leave one of them out");
                self.warnings.push(Warning::new(message).with_hint(hint));
            }
        }
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            self.warn_of_empty_ranges(property, &format!("{at}.{name}"), depth + 1);
        }
        if schema["items"].is_object() {
            self.warn_of_empty_ranges(&schema["items"], &format!("{at}.items"), depth + 1);
        }
    }

    fn warn_of_text_defaults(&mut self, what: &str) {
        if self.text_defaults.is_empty() {
            return;
        }
        let names = self.text_defaults.join(", ");
        self.warnings.push(
            Warning::new(format!("{what}: defaults are written as text: {names}"))
                .with_hint("write the value itself: text is read by the type of the parameter"),
        );
    }
}

/// A list, tuple or dict as Python writes it, as JSON text: `['a', True]` is
/// `["a", true]`. What it does not know it leaves to whoever parses the text.
fn python_literal_to_json(text: &str) -> Option<String> {
    let mut json = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(letter) = rest.next() {
        match letter {
            quote @ ('\'' | '"') => {
                let mut literal = String::new();
                loop {
                    match rest.next()? {
                        end if end == quote => break,
                        '\\' => literal.push(match rest.next()? {
                            'n' => '\n',
                            't' => '\t',
                            'r' => '\r',
                            other @ ('\\' | '\'' | '"') => other,
                            _ => return None,
                        }),
                        other => literal.push(other),
                    }
                }
                json.push_str(&Json::from(literal).to_string());
            }
            'A'..='Z' | 'a'..='z' => {
                let mut word = String::from(letter);
                while let Some(next) = rest.next_if(char::is_ascii_alphanumeric) {
                    word.push(next);
                }
                json.push_str(match word.as_str() {
                    "True" => "true",
                    "False" => "false",
                    "None" => "null",
                    // The exponent of a number.
                    other => other,
                });
            }
            '(' => json.push('['),
            closing @ (')' | ']' | '}') => {
                // Python allows a comma behind the last item.
                let end = json.trim_end().len();
                json.truncate(json[..end].strip_suffix(',').map_or(end, str::len));
                json.push(if closing == '}' { '}' } else { ']' });
            }
            other => json.push(other),
        }
    }
    Some(json)
}

/// The name that a type has here.
fn canonical_type(kind: &str) -> Option<&'static str> {
    let same = PARAMETER_TYPES.into_iter().find(|known| *known == kind);
    let alias =
        || PARAMETER_TYPE_ALIASES.iter().find(|(alias, _)| *alias == kind).map(|(_, own)| *own);
    same.or_else(alias)
}

/// Whether the default of a field, of a parameter that is an object, fits it.
fn check_default(name: &str, property: &Json, what: &str) -> Result<()> {
    let Some(default) = property.get("default") else { return Ok(()) };
    let mut schema = Map::new();
    schema.insert("properties".into(), json!({ name: property }));
    let value = Value::from_json(json!({ name: default }))?;
    Schema::compile(schema)?.find_violations(&value, "default").map_err(|message| {
        Problem::bad_script(format!("{what}: {message}")).with_hint(DEFAULT_MUST_FIT_HINT)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(parameters: Json) -> String {
        let mut warnings = Vec::new();
        let parameters = Value::from_json(parameters).unwrap();
        match input_schema(parameters, "tool.parameters", &mut warnings) {
            Ok(schema) => {
                let said: String = warnings.iter().map(|it| format!("\n{}", it.message)).collect();
                Json::Object((**schema.json()).clone()).to_string() + &said
            }
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
                "{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"integer\"}},\"additionalProperties\":false}\ntool.parameters.x.type is \"int\", which is called \"integer\" here",
            ),
            (
                json!([{"name": "x", "type": "strnig"}]),
                "error[bad_script]: tool.parameters.x.type is \"strnig\", which is none of string, integer, number, boolean, array, object\nhint: did you mean \"string\"?",
            ),
            (
                json!([{"name": "x"}]),
                "error[bad_script]: tool.parameters.x has no type\nhint: the types are string, integer, number, boolean, array, object",
            ),
            (
                json!([{"name": "x", "param_type": "string"}]),
                r#"{"type":"object","properties":{"x":{"type":"string"}},"additionalProperties":false}"#,
            ),
            (json!([{"type": "string"}]), "error[bad_script]: tool.parameters[1] has no name"),
            (
                json!([{"name": "x", "type": "string", "requird": true}]),
                "error[bad_script]: tool.parameters.x has an unknown field requird\nhint: did you mean required?",
            ),
            (
                json!([{"name": "x", "type": "integer", "default": "one"}]),
                "{\"type\":\"object\",\"properties\":{\"x\":{\"type\":\"integer\"}},\"additionalProperties\":false}\ntool.parameters.x.default cannot be read as integer, got the text \"one\"",
            ),
            (
                json!([{"name": "x"}, {"type": "string"}, {"name": "y", "type": "string", "requird": true}]),
                "error[bad_script]: tool.parameters.x has no type (the types are string, integer, number, boolean, array, object); tool.parameters[2] has no name; tool.parameters.y has an unknown field requird (did you mean required?)",
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

    /// `parameter` with the default, and what is said of it.
    fn default(kind: &str, default: Json, more: Json) -> String {
        let mut parameter = json!({"name": "x", "type": kind, "default": default});
        for (key, value) in more.as_object().unwrap() {
            parameter[key] = value.clone();
        }
        let said = check(json!([parameter]));
        match serde_json::from_str::<Json>(said.lines().next().unwrap()) {
            Ok(schema) => schema["properties"]["x"]["default"].to_string(),
            Err(_) => said.lines().next().unwrap().to_owned(),
        }
    }

    #[test]
    fn a_default_written_as_text_is_read_by_the_type() {
        let none = json!({});
        for (kind, text, expected) in [
            ("boolean", "true", "true"),
            ("boolean", "False", "false"),
            ("integer", "100", "100"),
            ("integer", "-1", "-1"),
            ("number", "1.5", "1.5"),
            ("number", "2", "2"),
            ("array", "[1, \"a\"]", "[1,\"a\"]"),
            ("object", "{\"a\": {}}", "{\"a\":{}}"),
            ("string", "100", "\"100\""),
            ("integer", "", "null"),
            ("boolean", "yes", "null"),
            ("integer", "1.5", "null"),
            ("number", "inf", "null"),
            ("array", "{}", "null"),
            ("array", "['a', \"it's\", True, None, 1.5e3,]", r#"["a","it's",true,null,1500.0]"#),
            ("array", "('a', ('b',))", r#"["a",["b"]]"#),
            ("object", "{'a': ['\\n', {}]}", r#"{"a":["\n",{}]}"#),
            ("array", "['a", "null"),
            ("array", "[nope]", "null"),
        ] {
            assert_eq!(default(kind, json!(text), none.clone()), expected, "{kind} {text:?}");
        }
    }

    #[test]
    fn a_default_must_fit_range_and_choices_also_inside_objects() {
        let said = default("integer", json!("7"), json!({"maximum": 5}));
        assert_eq!(said, "error[bad_script]: tool.parameters: parameter 'x' must be at most 5");
        let said = default("string", json!("red"), json!({"enum": ["blue"]}));
        assert!(said.contains("must be one of blue"), "{said}");
        let inner = json!([{"name": "n", "type": "integer", "maximum": 5, "default": "7"}]);
        let said = check(json!([{"name": "x", "type": "object", "properties": inner}]));
        assert_eq!(
            said,
            "error[bad_script]: tool.parameters.x.properties: default 'n' must be at most 5\nhint: a default must be a value the parameter itself would accept"
        );
    }

    #[test]
    fn a_default_of_another_type_is_a_warning_and_no_default() {
        for (kind, value, expected) in [
            ("string", json!(5), "\"5\""),
            ("string", json!(1.5), "\"1.5\""),
            ("string", json!(true), "\"true\""),
            ("string", json!(["a"]), "null"),
            ("integer", json!(2.0), "2.0"),
            ("integer", json!(1.5), "null"),
            ("number", json!(1), "1"),
            ("boolean", json!(1), "null"),
            ("array", json!({"a": 1}), "null"),
            ("object", json!([1]), "null"),
        ] {
            let said = check(json!([{"name": "x", "type": kind, "default": value}]));
            assert_eq!(default(kind, value.clone(), json!({})), expected, "{kind} {value}");
            let warns = said.contains("\ntool.parameters.x.default ");
            let is_same = expected == value.to_string().as_str();
            assert_eq!(warns, !is_same, "{said}");
        }
    }

    #[test]
    fn ranges_that_no_value_is_in_are_warned_of() {
        let inner = json!([{"name": "tags", "type": "array", "min_items": 2, "max_items": 1}]);
        let said = check(json!([
            {"name": "n", "type": "integer", "minimum": 5, "maximum": 1},
            {"name": "fine", "type": "string", "min_length": 1, "max_length": 1},
            {"name": "o", "type": "object", "properties": inner},
        ]));
        let warnings: Vec<&str> = said.lines().skip(1).collect();
        assert_eq!(
            warnings,
            [
                "tool.parameters.n: no value is valid, since minimum 5 is greater than maximum 1",
                "tool.parameters.o.tags: no value is valid, since minItems 2 is greater than maxItems 1",
            ]
        );
        let said =
            check(json!({"type": "object", "properties": {"n": {"minimum": 2, "maximum": 1}}}));
        assert!(said.contains("tool.parameters.n: no value is valid"), "{said}");
    }

    #[test]
    fn defaults_written_as_text_are_said_once() {
        let said = check(json!([
            {"name": "limit", "type": "integer", "default": "10"},
            {"name": "deep", "type": "boolean", "default": "true"},
        ]));
        assert!(
            said.ends_with("\ntool.parameters: defaults are written as text: limit, deep"),
            "{said}"
        );
    }
}
