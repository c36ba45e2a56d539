//! A tool's parameters as people write them on the command line: `name=value`, one
//! JSON object, or `--param name=value`.

use clap::Args;
use moonlark_core::value::Object;
use moonlark_core::{Problem, Result, Tool, Value};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::key_value;

/// `--param NAME=VALUE`, as often as there are parameters.
#[derive(Args, Serialize, Deserialize)]
pub(crate) struct Params {
    /// One parameter; values that are not text are written as JSON.
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = key_value)]
    params: Vec<(String, String)>,
}

impl Params {
    /// Put the parameters into `args`, each read as the tool's schema says.
    pub(crate) fn add_to(&self, args: &mut Object, tool: Option<&Tool>) -> Result<()> {
        let mut given = Vec::new();
        for (name, text) in &self.params {
            set(args, &mut given, name, text, tool)?;
        }
        Ok(())
    }
}

/// Put what stands after the tool's name into `args`: `name=value`, or an object.
pub(crate) fn add_words(words: &[String], args: &mut Object, tool: Option<&Tool>) -> Result<()> {
    let mut given = Vec::new();
    for word in words {
        if word.trim_start().starts_with('{') {
            args.extend(object(word)?);
            continue;
        }
        let Ok((name, text)) = key_value(word) else {
            return Err(Problem::bad_request(format!(
                "{word:?} is no parameter: parameters are written name=value, or as one JSON object"
            ))
            .hint(example(tool)));
        };
        set(args, &mut given, &name, &text, tool)?;
    }
    Ok(())
}

/// All parameters as one JSON object.
pub(crate) fn object(text: &str) -> Result<Object> {
    let hint = r#"an object is written '{"name": "value"}', in single quotes for the shell"#;
    match Value::parse_json(text.as_bytes()) {
        Ok(Value::Object(args)) => Ok(args),
        Ok(other) => Err(Problem::bad_request(format!(
            "the parameters must be a JSON object, got {}",
            other.kind()
        ))
        .hint(hint)),
        Err(problem) => {
            Err(Problem::bad_request(format!("the parameters: {}", problem.message)).hint(hint))
        }
    }
}

/// A call of the tool that is written rightly.
fn example(tool: Option<&Tool>) -> String {
    let name = tool.map_or("TOOL", |tool| tool.name.as_str());
    let first =
        tool.and_then(|tool| tool.input.json().get("properties")?.as_object()?.keys().next());
    let first = first.map_or("name", |it| it.as_str());
    format!("for example `moonlark call {name} {first}=value`; `moonlark docs {name}` lists them")
}

fn set(
    args: &mut Object,
    given: &mut Vec<String>,
    name: &str,
    text: &str,
    tool: Option<&Tool>,
) -> Result<()> {
    if given.iter().any(|it| it == name) {
        return Err(Problem::bad_request(format!("the parameter {name} is given twice"))
            .hint(format!(r#"a list is written as JSON: {name}='["a", "b"]'"#)));
    }
    given.push(name.to_owned());
    let schema = tool.map(|tool| Json::Object((**tool.input.json()).clone())).unwrap_or_default();
    let path = path(name, &schema);
    let wanted = path.iter().try_fold(&schema, |at, key| at.get("properties")?.get(key));
    let value = read(name, text, wanted)?;
    let (last, above) = match path.split_last() {
        Some(split) => split,
        None => return Ok(()),
    };
    let mut fields = args;
    for key in above {
        let field = fields.entry((*key).to_owned()).or_insert_with(|| Value::Object(Object::new()));
        match field {
            Value::Object(inner) => fields = inner,
            other => {
                return Err(Problem::bad_request(format!(
                    "the parameter {name}: {key} is {} already, and has no fields",
                    other.kind()
                )));
            }
        }
    }
    fields.insert((*last).to_owned(), value);
    Ok(())
}

/// Where a parameter goes: `target.env` is the field `env` of `target`, unless the
/// tool has a parameter of just that name.
fn path<'a>(name: &'a str, schema: &Json) -> Vec<&'a str> {
    let is_own = schema.get("properties").is_some_and(|fields| fields.get(name).is_some());
    let first = name.split('.').next().unwrap_or(name);
    let kind = schema.pointer("/properties").and_then(|fields| fields.get(first)).map(kinds);
    let has_fields = kind.is_some_and(|kinds| kinds.is_empty() || kinds.contains(&"object"));
    let parts: Vec<&str> = name.split('.').collect();
    match !is_own && has_fields && parts.iter().all(|part| !part.is_empty()) {
        true => parts,
        false => vec![name],
    }
}

fn kinds(schema: &Json) -> Vec<&str> {
    match schema.get("type") {
        Some(Json::String(kind)) => vec![kind.as_str()],
        Some(Json::Array(kinds)) => kinds.iter().filter_map(Json::as_str).collect(),
        _ => Vec::new(),
    }
}

fn read(name: &str, text: &str, schema: Option<&Json>) -> Result<Value> {
    let kinds = schema.map(kinds).unwrap_or_default();
    if kinds.is_empty() || kinds.contains(&"string") {
        return Ok(Value::Str(text.to_owned()));
    }
    let structured = kinds.contains(&"object") || kinds.contains(&"array");
    match Value::parse_json(text.as_bytes()) {
        Ok(value) => Ok(value),
        Err(problem) if structured => {
            let example = match kinds.contains(&"object") {
                true => format!(r#"{name}='{{"key": "value"}}', or {name}.key=value"#),
                false => format!(r#"{name}='["a", "b"]'"#),
            };
            Err(Problem::bad_request(format!(
                "the parameter {name} must be {}, written as JSON: {}",
                kinds.join(" or "),
                problem.message
            ))
            .hint(format!("for example {example}")))
        }
        // The schema complains in its own words.
        Err(_) => Ok(Value::Str(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use moonlark_core::schema::Schema;
    use moonlark_core::tool::{Body, Source, SourceKind};
    use serde_json::json;

    use super::*;

    fn tool() -> Tool {
        let fields = json!({"type": "object", "properties": {
            "name": {"type": "string"},
            "count": {"type": "integer"},
            "target": {"type": "object", "properties": {"env": {"type": "string"}, "n": {"type": "integer"}}},
            "tags": {"type": "array"},
            "either": {"type": ["integer", "null"]},
            "a.b": {"type": "boolean"},
        }});
        let source = Arc::new(Source { kind: SourceKind::Script, name: "a".to_owned() });
        let Json::Object(fields) = fields else { unreachable!() };
        Tool::new("greet", source, Schema::described(fields), Body::now(|_, args| Ok(args)))
    }

    fn read(words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let mut args = Object::new();
        match add_words(&words, &mut args, Some(&tool())) {
            Ok(()) => Value::Object(args).to_json_lossy().to_string(),
            Err(problem) => problem.to_string(),
        }
    }

    #[test]
    fn words_are_parameters() {
        for (words, args) in [
            (&["name=Ann"][..], r#"{"name":"Ann"}"#),
            (&["name=1", "count=2"], r#"{"name":"1","count":2}"#),
            (&[r#"{"name": "Ann"}"#, "count=2"], r#"{"name":"Ann","count":2}"#),
            (&["target.env=x", "target.n=3"], r#"{"target":{"env":"x","n":3}}"#),
            (&["a.b=true"], r#"{"a.b":true}"#),
            (&["x.y=1"], r#"{"x.y":"1"}"#),
            (&["either=null"], r#"{"either":null}"#),
            (&["tags=[1]"], r#"{"tags":[1]}"#),
            (&["count=many"], r#"{"count":"many"}"#),
            (&["name=a=b"], r#"{"name":"a=b"}"#),
        ] {
            assert_eq!(read(words), args);
        }
    }

    #[test]
    fn what_is_no_parameter_is_answered_with_how_it_is_written() {
        assert_eq!(
            read(&["Ann"]),
            "error[bad_request]: \"Ann\" is no parameter: parameters are written name=value, or as one JSON object\nhint: for example `moonlark call greet name=value`; `moonlark docs greet` lists them"
        );
        assert_eq!(
            read(&["name=a", "name=b"]),
            "error[bad_request]: the parameter name is given twice\nhint: a list is written as JSON: name='[\"a\", \"b\"]'"
        );
        let bad = read(&["target={env:1}"]);
        assert!(
            bad.starts_with(
                "error[bad_request]: the parameter target must be object, written as JSON: "
            ),
            "{bad}"
        );
        assert!(
            bad.ends_with("\nhint: for example target='{\"key\": \"value\"}', or target.key=value"),
            "{bad}"
        );
        let bad = read(&["{name: 1}"]);
        assert!(bad.starts_with("error[bad_request]: the parameters: "), "{bad}");
        assert!(bad.contains("\nhint: an object is written '{\"name\": \"value\"}'"), "{bad}");
        assert_eq!(
            read(&["name=a", "target=1", "target.env=x"]),
            "error[bad_request]: the parameter target.env: target is integer already, and has no fields"
        );
    }
}
