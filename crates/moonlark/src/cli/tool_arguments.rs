//! A tool's parameters as people write them on the command line: `name=value`,
//! `--name value`, one JSON object, or `--param name=value`.

use clap::Args;
use moonlark_core::nearest::nearest_name;
use moonlark_core::value::Object;
use moonlark_core::{Problem, Result, Tool, Value};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::parse_key_value;
use super::tool_options::ToolOption;

/// Parameters, in every form that a command takes them in.
#[derive(Args, Serialize, Deserialize)]
pub(crate) struct ToolParameterArgs {
    /// Parameters of the tool: NAME=VALUE or --NAME VALUE, or all of them as one JSON object. Values that are not text are written as JSON; `target.env=x` is a field of an object.
    #[arg(value_name = "NAME=VALUE")]
    words: Vec<String>,
    /// One parameter; values that are not text are written as JSON.
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parse_key_value)]
    params: Vec<(String, String)>,
    /// Options that the command does not have itself.
    #[arg(skip)]
    options: Vec<ToolOption>,
}

impl ToolParameterArgs {
    pub(crate) fn take_options(&mut self, options: Vec<ToolOption>) {
        self.options = options;
    }

    /// The arguments for a call, each read as the tool's schema says. `args` are those
    /// that were given as an object.
    pub(crate) fn read_arguments(&self, args: Object, tool: Option<&Tool>) -> Result<Object> {
        let mut reading = ArgumentReader { tool, args, given: Vec::new() };
        for option in &self.options {
            reading.add_option(option)?;
        }
        for word in &self.words {
            reading.add_word(word)?;
        }
        for (name, text) in &self.params {
            reading.set_argument(name, text)?;
        }
        Ok(reading.args)
    }
}

/// Arguments of one call, while they are read.
struct ArgumentReader<'a> {
    tool: Option<&'a Tool>,
    args: Object,
    /// The names that have a value.
    given: Vec<String>,
}

impl ArgumentReader<'_> {
    /// What stands after the tool's name: `name=value`, or an object.
    fn add_word(&mut self, word: &str) -> Result<()> {
        if word.trim_start().starts_with('{') {
            self.args.extend(parse_argument_object(word)?);
            return Ok(());
        }
        let Ok((name, text)) = parse_key_value(word) else {
            return Err(Problem::bad_request(format!(
                "{word:?} is no parameter: parameters are written name=value, or as one JSON object"
            ))
            .with_hint(usage_example(self.tool)));
        };
        self.set_argument(&name, &text)
    }

    /// `--name value`, `--name=value`, or `--flag`.
    fn add_option(&mut self, option: &ToolOption) -> Result<()> {
        let name = self.find_parameter_name(&option.name)?;
        let schema = self.input_schema();
        let is_flag = schema_property(&schema, &name).map(schema_types) == Some(vec!["boolean"]);
        match &option.value {
            None if is_flag => self.set_argument(&name, "true"),
            // It stands behind the flag and is a parameter of its own.
            Some(word) if is_flag && !option.is_attached && !is_boolean_word(word) => {
                self.set_argument(&name, "true")?;
                self.add_word(word)
            }
            Some(text) => self.set_argument(&name, text),
            None => {
                let command = self.tool.map_or("TOOL", |tool| tool.name.as_str());
                Err(Problem::bad_request(format!("--{} has no value", option.name))
                    .with_hint(format!("write `moonlark call {command} {name}=VALUE`")))
            }
        }
    }

    /// The parameter that an option names; dashes may stand for underscores. A tool that
    /// does not say which parameters it has is given the name as it is.
    fn find_parameter_name(&self, option: &str) -> Result<String> {
        let schema = self.input_schema();
        let Some(known) = schema["properties"].as_object().filter(|it| !it.is_empty()) else {
            return Ok(option.to_owned());
        };
        let first = option.split('.').next().unwrap_or(option);
        if known.contains_key(option) || known.contains_key(first) {
            return Ok(option.to_owned());
        }
        let plain = |name: &str| name.replace('-', "_");
        if let Some(name) = known.keys().find(|name| plain(name) == plain(option)) {
            return Ok(name.clone());
        }
        let command = self.tool.map_or("the tool", |tool| tool.name.as_str());
        let near = nearest_name(option, known.keys().map(String::as_str))
            .or_else(|| nearest_name(option, COMMAND_OPTION_NAMES));
        let hint = match near {
            Some(near) => format!("did you mean --{near}?"),
            None => format!("`moonlark docs {command}` lists its parameters"),
        };
        Err(Problem::bad_request(format!(
            "--{option} is no option of this command, and {command} has no such parameter"
        ))
        .with_hint(hint))
    }

    fn set_argument(&mut self, name: &str, text: &str) -> Result<()> {
        let schema = self.input_schema();
        let path = parameter_path(name, &schema);
        let wanted = path.iter().try_fold(&schema, |at, key| at.get("properties")?.get(key));
        if self.given.iter().any(|it| it == name) {
            let kinds = wanted.map(schema_types).unwrap_or_default();
            let is_list = kinds.is_empty() || kinds.contains(&"array");
            let hint = if is_list {
                format!(r#"a list is written as JSON: {name}='["a", "b"]'"#)
            } else {
                format!("it takes one value ({}): leave one of the two out", kinds.join(" or "))
            };
            return Err(Problem::bad_request(format!("the parameter {name} is given twice"))
                .with_hint(hint));
        }
        self.given.push(name.to_owned());
        let value = parse_argument_value(name, text, wanted)?;
        let Some((last, above)) = path.split_last() else { return Ok(()) };
        let mut fields = &mut self.args;
        for key in above {
            let field =
                fields.entry((*key).to_owned()).or_insert_with(|| Value::Object(Object::new()));
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

    fn input_schema(&self) -> Json {
        self.tool.map(|tool| Json::Object((**tool.input.json()).clone())).unwrap_or_default()
    }
}

/// Options of the commands that take parameters, for whoever has misspelt one.
const COMMAND_OPTION_NAMES: [&str; 12] = [
    "api",
    "args",
    "auth",
    "config",
    "help",
    "json",
    "log-format",
    "mcp",
    "param",
    "quiet",
    "standalone",
    "verbose",
];

fn schema_property<'a>(schema: &'a Json, name: &str) -> Option<&'a Json> {
    schema.get("properties")?.get(name)
}

fn is_boolean_word(word: &str) -> bool {
    matches!(word, "true" | "false")
}

/// All parameters as one JSON object.
pub(crate) fn parse_argument_object(text: &str) -> Result<Object> {
    let hint = r#"an object is written '{"name": "value"}', in single quotes for the shell"#;
    match Value::parse_json(text.as_bytes()) {
        Ok(Value::Object(args)) => Ok(args),
        Ok(other) => Err(Problem::bad_request(format!(
            "the parameters must be a JSON object, got {}",
            other.kind()
        ))
        .with_hint(hint)),
        Err(problem) => {
            Err(Problem::bad_request(format!("the parameters: {}", problem.message))
                .with_hint(hint))
        }
    }
}

/// A call of the tool that is written rightly.
fn usage_example(tool: Option<&Tool>) -> String {
    let name = tool.map_or("TOOL", |tool| tool.name.as_str());
    let first =
        tool.and_then(|tool| tool.input.json().get("properties")?.as_object()?.keys().next());
    let first = first.map_or("name", |it| it.as_str());
    format!("for example `moonlark call {name} {first}=value`; `moonlark docs {name}` lists them")
}

/// Where a parameter goes: `target.env` is the field `env` of `target`, unless the
/// tool has a parameter of just that name.
fn parameter_path<'a>(name: &'a str, schema: &Json) -> Vec<&'a str> {
    let is_own = schema.get("properties").is_some_and(|fields| fields.get(name).is_some());
    let first = name.split('.').next().unwrap_or(name);
    let kind = schema.pointer("/properties").and_then(|fields| fields.get(first)).map(schema_types);
    let has_fields = kind.is_some_and(|kinds| kinds.is_empty() || kinds.contains(&"object"));
    let parts: Vec<&str> = name.split('.').collect();
    if !is_own && has_fields && parts.iter().all(|part| !part.is_empty()) {
        parts
    } else {
        vec![name]
    }
}

fn schema_types(schema: &Json) -> Vec<&str> {
    match schema.get("type") {
        Some(Json::String(kind)) => vec![kind.as_str()],
        Some(Json::Array(kinds)) => kinds.iter().filter_map(Json::as_str).collect(),
        _ => Vec::new(),
    }
}

fn parse_argument_value(name: &str, text: &str, schema: Option<&Json>) -> Result<Value> {
    let kinds = schema.map(schema_types).unwrap_or_default();
    if kinds.is_empty() || kinds.contains(&"string") {
        return Ok(Value::Str(text.to_owned()));
    }
    let structured = kinds.contains(&"object") || kinds.contains(&"array");
    match Value::parse_json(text.as_bytes()) {
        Ok(value) => Ok(value),
        Err(problem) if structured => {
            let example = if kinds.contains(&"object") {
                format!(r#"{name}='{{"key": "value"}}', or {name}.key=value"#)
            } else {
                format!(r#"{name}='["a", "b"]'"#)
            };
            Err(Problem::bad_request(format!(
                "the parameter {name} must be {}, written as JSON: {}",
                kinds.join(" or "),
                problem.message
            ))
            .with_hint(format!("for example {example}")))
        }
        // The schema complains in its own words.
        Err(_) => Ok(Value::Str(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use moonlark_core::schema::Schema;
    use moonlark_core::tool::{Source, SourceKind};
    use moonlark_gateway::tool_body::ToolBody;
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
            "dry_run": {"type": "boolean"},
        }});
        let source = Arc::new(Source { kind: SourceKind::Script, name: "a".to_owned() });
        let Json::Object(fields) = fields else { unreachable!() };
        Tool::new(
            "greet",
            source,
            Schema::description_only(fields),
            ToolBody::from_fn(|_, args| Ok(args)),
        )
    }

    fn read_all(words: &[&str], options: &[(&str, Option<&str>, bool)]) -> String {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        let option = |(name, value, is_attached): &(&str, Option<&str>, bool)| ToolOption {
            name: (*name).to_owned(),
            value: value.map(str::to_owned),
            is_attached: *is_attached,
        };
        let options = options.iter().map(option).collect();
        let params = ToolParameterArgs { words, params: Vec::new(), options };
        match params.read_arguments(Object::new(), Some(&tool())) {
            Ok(args) => Value::Object(args).to_json_lossy().to_string(),
            Err(problem) => problem.to_string(),
        }
    }

    fn read(words: &[&str]) -> String {
        read_all(words, &[])
    }

    #[test]
    fn options_are_parameters() {
        for (options, words, args) in [
            (&[("name", Some("Ann"), false)][..], &[][..], r#"{"name":"Ann"}"#),
            (
                &[("name", Some("Ann"), true), ("count", Some("-2"), false)],
                &[],
                r#"{"name":"Ann","count":-2}"#,
            ),
            (&[("dry-run", None, false)], &["name=x"], r#"{"dry_run":true,"name":"x"}"#),
            (&[("dry-run", Some("false"), false)], &[], r#"{"dry_run":false}"#),
            // A flag, and a parameter behind it.
            (&[("dry_run", Some("name=x"), false)], &[], r#"{"dry_run":true,"name":"x"}"#),
            (&[("target.env", Some("x"), false)], &[], r#"{"target":{"env":"x"}}"#),
            (&[("tags", Some("[1]"), false)], &[], r#"{"tags":[1]}"#),
        ] {
            assert_eq!(read_all(words, options), args);
        }
        for (option, problem) in [
            (
                ("nmae", Some("Ann"), false),
                "error[bad_request]: --nmae is no option of this command, and greet has no such parameter\nhint: did you mean --name?",
            ),
            (
                ("standalon", None, false),
                "error[bad_request]: --standalon is no option of this command, and greet has no such parameter\nhint: did you mean --standalone?",
            ),
            (
                ("zzz", None, false),
                "error[bad_request]: --zzz is no option of this command, and greet has no such parameter\nhint: `moonlark docs greet` lists its parameters",
            ),
            (
                ("name", None, false),
                "error[bad_request]: --name has no value\nhint: write `moonlark call greet name=VALUE`",
            ),
        ] {
            assert_eq!(read_all(&[], &[option]), problem);
        }
        assert_eq!(
            read_all(&["name=b"], &[("name", Some("a"), true)]),
            "error[bad_request]: the parameter name is given twice\nhint: it takes one value (string): leave one of the two out"
        );
    }

    #[test]
    fn the_options_of_the_commands_are_known() {
        let mut command = super::super::clap_command();
        command.build();
        let call = command.find_subcommand("call").unwrap();
        let mut names: Vec<&str> = call.get_arguments().filter_map(|arg| arg.get_long()).collect();
        names.sort_unstable();
        assert_eq!(names, COMMAND_OPTION_NAMES);
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
            read(&["tags=[1]", "tags=[2]"]),
            "error[bad_request]: the parameter tags is given twice\nhint: a list is written as JSON: tags='[\"a\", \"b\"]'"
        );
        assert_eq!(
            read(&["name=a", "name=b"]),
            "error[bad_request]: the parameter name is given twice\nhint: it takes one value (string): leave one of the two out"
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
