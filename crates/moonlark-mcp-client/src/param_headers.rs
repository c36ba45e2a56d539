//! Arguments that a tool also wants as headers (`x-mcp-header` in its schema), for
//! routers that do not read calls.

use std::borrow::Cow;
use std::collections::HashSet;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::HeaderName;
use moonlark_core::Value;
use moonlark_core::value::Object;

const PARAM_HEADER_KEYWORD: &str = "x-mcp-header";
const PARAM_HEADER_PREFIX: &str = "Mcp-Param-";

/// The headers of a call: for every marked property that has a value.
pub(crate) fn collect_param_headers(schema: &Value, arguments: &Object) -> Vec<(String, String)> {
    let mut found = Vec::new();
    visit_marked_properties(schema, &mut Vec::new(), &mut |path, property| {
        let Some((first, rest)) = path.split_first() else { return };
        let value = arguments
            .get(*first)
            .and_then(|value| rest.iter().try_fold(value, |value, key| value.get(key)));
        let text = match value {
            Some(Value::Str(text)) => Cow::Borrowed(text.as_str()),
            Some(number @ (Value::Bool(_) | Value::Int(_) | Value::Float(_))) => {
                // As it is written in the message, to which it is compared.
                match number.encode_json(PARAM_HEADER_KEYWORD) {
                    Ok(text) => Cow::Owned(text),
                    Err(_) => return,
                }
            }
            _ => return,
        };
        if let Some(name) = property
            .get(PARAM_HEADER_KEYWORD)
            .and_then(Value::as_str)
            .filter(|it| is_http_token(it))
        {
            found.push((
                format!("{PARAM_HEADER_PREFIX}{name}"),
                encode_header_text(&text).into_owned(),
            ));
        }
    });
    found
}

/// Whether there is a property that becomes a header.
pub(crate) fn has_marks(schema: &Value) -> bool {
    let mut found = false;
    visit_marked_properties(schema, &mut Vec::new(), &mut |_, _| found = true);
    found
}

/// What is wrong with the marks in a tool's schema.
pub(crate) fn check_marks(schema: &Value) -> Result<(), String> {
    if schema.get(PARAM_HEADER_KEYWORD).is_some() {
        return Err(format!("{PARAM_HEADER_KEYWORD} is for properties, not for the whole schema"));
    }
    if has_misplaced_mark(schema, true) {
        return Err(format!(
            "{PARAM_HEADER_KEYWORD} is only for what is reached by properties alone"
        ));
    }
    let mut seen = HashSet::new();
    let mut wrong = Ok(());
    visit_marked_properties(schema, &mut Vec::new(), &mut |path, property| {
        let outcome = check_property_mark(property, &mut seen);
        if let (Ok(()), Err(why)) = (&wrong, outcome) {
            wrong = Err(format!("{}: {why}", path.join(".")));
        }
    });
    wrong
}

fn check_property_mark(property: &Value, seen: &mut HashSet<String>) -> Result<(), String> {
    let Some(name) = property.get(PARAM_HEADER_KEYWORD).and_then(Value::as_str) else {
        return Err(format!("{PARAM_HEADER_KEYWORD} must be a string"));
    };
    if !is_http_token(name) {
        return Err(format!("{PARAM_HEADER_KEYWORD} {name:?} is not the name of a header"));
    }
    if !seen.insert(name.to_ascii_lowercase()) {
        return Err(format!("{PARAM_HEADER_KEYWORD} {name:?} is there twice"));
    }
    match property.get("type").and_then(Value::as_str) {
        Some("string" | "integer" | "boolean") => Ok(()),
        _ => Err(format!("{PARAM_HEADER_KEYWORD} is only for strings, integers and booleans")),
    }
}

/// Every property with a mark that is reached by `properties` alone. Values are
/// of bounded depth, and so is this.
fn visit_marked_properties<'a>(
    schema: &'a Value,
    path: &mut Vec<&'a str>,
    each: &mut dyn FnMut(&[&'a str], &'a Value),
) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    for (name, property) in properties {
        path.push(name);
        if property.get(PARAM_HEADER_KEYWORD).is_some() {
            each(path, property);
        }
        visit_marked_properties(property, path, each);
        path.pop();
    }
}

/// Whether there is a mark where no argument can be found by it. `straight`:
/// `schema` itself is reached by `properties` alone.
fn has_misplaced_mark(schema: &Value, straight: bool) -> bool {
    match schema {
        Value::Object(fields) => fields.iter().any(|(key, value)| match key.as_str() {
            PARAM_HEADER_KEYWORD => !straight,
            "properties" => any_misplaced_mark(value, straight),
            "$defs" | "definitions" | "dependentSchemas" | "patternProperties" => {
                any_misplaced_mark(value, false)
            }
            // Examples of arguments, in which it is a name like any other.
            "default" | "const" | "enum" | "examples" => false,
            _ => has_misplaced_mark(value, false),
        }),
        Value::Array(items) => items.iter().any(|item| has_misplaced_mark(item, false)),
        _ => false,
    }
}

/// Of schemas by name: the names themselves mean nothing.
fn any_misplaced_mark(schemas: &Value, straight: bool) -> bool {
    let mut values = schemas.as_object().into_iter().flat_map(|schemas| schemas.values());
    values.any(|schema| has_misplaced_mark(schema, straight))
}

/// A token as HTTP has it.
fn is_http_token(text: &str) -> bool {
    HeaderName::from_bytes(text.as_bytes()).is_ok()
}

/// Text that any header can carry: as it is, or in a wrapping of Base64.
pub(super) fn encode_header_text(text: &str) -> Cow<'_, str> {
    let is_plain = text.bytes().all(|byte| (0x20..=0x7e).contains(&byte));
    let is_padded = text.starts_with(' ') || text.ends_with(' ');
    let is_wrapped = text.starts_with("=?base64?") && text.ends_with("?=");
    if is_plain && !is_padded && !is_wrapped {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(format!("=?base64?{}?=", BASE64_STANDARD.encode(text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(json: &str) -> Value {
        Value::parse_json(json.as_bytes()).unwrap()
    }

    #[test]
    fn marked_arguments_become_headers_as_they_are_written() {
        let schema = value(
            r#"{"properties":{
                "region":{"type":"string","x-mcp-header":"Region"},
                "count":{"type":"integer","x-mcp-header":"Count"},
                "deep":{"properties":{"flag":{"type":"boolean","x-mcp-header":"Flag"}}},
                "none":{"type":"string","x-mcp-header":"None"},
                "null":{"type":"string","x-mcp-header":"Null"},
                "list":{"type":"string","x-mcp-header":"List"},
                "free":{"type":"string"}}}"#,
        );
        let arguments = value(
            r#"{"region":"ä","count":7,"deep":{"flag":true},"null":null,"list":[1],"free":"x"}"#,
        );
        let found = collect_param_headers(&schema, arguments.as_object().unwrap());
        let found: Vec<_> = found.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        assert_eq!(
            found,
            [
                ("Mcp-Param-Region", "=?base64?w6Q=?="),
                ("Mcp-Param-Count", "7"),
                ("Mcp-Param-Flag", "true")
            ]
        );
        assert_eq!(collect_param_headers(&value("true"), &Object::new()), []);
        assert!(has_marks(&schema));
        let nested = r#"{"properties":{"deep":{"properties":{"flag":{"x-mcp-header":"Flag"}}}}}"#;
        assert!(has_marks(&value(nested)));
        assert!(!has_marks(&value(r#"{"properties":{"x-mcp-header":{"type":"string"}}}"#)));
    }

    #[test]
    fn only_what_a_header_would_change_is_wrapped() {
        for same in ["", "a b", "=?base64?", "x=?base64?eA==?=", "~!\"\\"] {
            assert_eq!(encode_header_text(same), same);
        }
        assert_eq!(encode_header_text(" a"), "=?base64?IGE=?=");
        assert_eq!(encode_header_text("a\t"), "=?base64?YQk=?=");
        assert_eq!(encode_header_text("a\nb"), "=?base64?YQpi?=");
        assert_eq!(encode_header_text("=?base64?eA==?="), "=?base64?PT9iYXNlNjQ/ZUE9PT89?=");
    }

    #[test]
    fn marks_that_make_no_sense_are_named() {
        let check = |json: &str, expected: &str| {
            let found = check_marks(&value(json)).err().unwrap_or_default();
            assert_eq!(found, expected, "{json}");
            assert_eq!(check_marks(&value(json)).is_ok(), expected.is_empty());
        };
        check(r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}"#, "");
        check(r#"{"properties":{"x-mcp-header":{"type":"string"}}}"#, "");
        check(r#"{"properties":{"a":{"default":{"x-mcp-header":1}}}}"#, "");
        check("true", "");
        check(
            r#"{"x-mcp-header":"A"}"#,
            "x-mcp-header is for properties, not for the whole schema",
        );
        let misplaced = "x-mcp-header is only for what is reached by properties alone";
        check(r#"{"properties":{"a":{"items":{"x-mcp-header":"A"}}}}"#, misplaced);
        check(r#"{"anyOf":[{"properties":{"a":{"x-mcp-header":"A"}}}]}"#, misplaced);
        check(r#"{"$defs":{"a":{"x-mcp-header":"A"}}}"#, misplaced);
        check(
            r#"{"properties":{"a":{"type":"string","x-mcp-header":5}}}"#,
            "a: x-mcp-header must be a string",
        );
        check(
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"a b"}}}"#,
            "a: x-mcp-header \"a b\" is not the name of a header",
        );
        check(
            r#"{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}"#,
            "a: x-mcp-header is only for strings, integers and booleans",
        );
        check(
            r#"{"properties":{"a":{"type":"string","x-mcp-header":"A"},
                "b":{"properties":{"c":{"type":"string","x-mcp-header":"a"}}}}}"#,
            "b.c: x-mcp-header \"a\" is there twice",
        );
    }
}
