//! The header of a saved script: the lines at its top that begin with `--!` and a space.

use moonlark_core::nearest::nearest_name;
use moonlark_core::{Problem, Result, SourceLocation};
use moonlark_render::luau::is_luau_name;
use serde_json::{Map, Value as Json, json};

use super::header_types::read_type;

/// The longest name of a saved script.
pub const MAX_SCRIPT_NAME_BYTES: usize = 64;

const HEADER_FIELDS: [&str; 7] =
    ["name", "title", "version", "description", "parameter", "returns", "annotations"];

const PARAMETER_HINT: &str = "write --! parameter NAME: TYPE = DEFAULT -- what it is; \
     the default may be left out, and TYPE? is a parameter that may be";

/// What a script says of itself.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ScriptHeader {
    pub(super) name: String,
    pub(super) description: String,
    title: Option<String>,
    version: Option<String>,
    parameters: Map<String, Json>,
    required: Vec<String>,
    returns: Option<Json>,
    annotations: Map<String, Json>,
    /// The line of the name.
    line: u32,
}

/// A line of a header: `--! KEY: VALUE`, with the lines that go on with it.
struct HeaderLine {
    number: u32,
    text: String,
}

impl ScriptHeader {
    /// None if there is no header.
    pub(super) fn parse(file: &str, text: &str) -> Result<Option<ScriptHeader>> {
        let lines = header_lines(text);
        let Some(first) = lines.first() else { return Ok(None) };
        let mut header = ScriptHeader::default();
        for line in &lines {
            header.read_line(&line.text, line.number).map_err(|problem| {
                problem.at_location(SourceLocation::at_line(file, line.number))
            })?;
        }
        if header.name.is_empty() {
            return Err(Problem::bad_script("the header has no name")
                .at_location(SourceLocation::at_line(file, first.number))
                .with_hint("begin it with: --! name: weekly_report"));
        }
        Ok(Some(header))
    }

    /// Where it is, for what is wrong with all of it.
    pub(super) fn place(&self, file: &str) -> SourceLocation {
        SourceLocation::at_line(file, self.line)
    }

    fn read_line(&mut self, text: &str, number: u32) -> Result<()> {
        if let Some(parameter) = text.strip_prefix("parameter ") {
            return self.read_parameter(parameter.trim());
        }
        let Some((key, value)) = text.split_once(':') else {
            return Err(Problem::bad_script("this is no line of a header")
                .with_hint("write --! KEY: VALUE, such as --! description: What it does"));
        };
        let (key, value) = (key.trim(), value.trim());
        let again = match key {
            "name" => !self.name.is_empty(),
            "description" => !self.description.is_empty(),
            "title" => self.title.is_some(),
            "version" => self.version.is_some(),
            "returns" => self.returns.is_some(),
            "annotations" => !self.annotations.is_empty(),
            _ => return Err(unknown_key_problem(key)),
        };
        if again {
            let many = if key.ends_with('s') { "lines of " } else { "" };
            let end = if many.is_empty() { "s" } else { "" };
            return Err(Problem::bad_script(format!("the header has two {many}{key}{end}"))
                .with_hint("keep one of them"));
        }
        match key {
            "name" => (self.name, self.line) = (read_name(value)?, number),
            "description" => value.clone_into(&mut self.description),
            "title" => self.title = Some(value.to_owned()),
            "version" => self.version = Some(value.to_owned()),
            "returns" => self.returns = Some(read_whole_type(value, "returns")?),
            _ => self.read_annotations(value)?,
        }
        Ok(())
    }

    /// `NAME: TYPE = DEFAULT -- DESCRIPTION`.
    fn read_parameter(&mut self, text: &str) -> Result<()> {
        let no_parameter = || Problem::bad_script("this is no parameter").with_hint(PARAMETER_HINT);
        let (name, rest) = text.split_once(':').ok_or_else(no_parameter)?;
        let name = name.trim();
        if !is_luau_name(name) {
            return Err(no_parameter());
        }
        if self.parameters.contains_key(name) {
            let message = format!("the header has two parameters named {name}");
            return Err(Problem::bad_script(message).with_hint("keep one of them"));
        }
        let about = |problem: Problem| {
            let message = format!("parameter {name}: {}", problem.message);
            problem.with_message(message)
        };
        let read = read_type(rest).map_err(about)?;
        let (default, rest) = match read.rest.strip_prefix('=') {
            Some(rest) => {
                let (value, rest) = read_json(rest).map_err(|error| {
                    let message = format!("parameter {name}: the default is not JSON: {error}");
                    Problem::bad_script(message).with_hint(PARAMETER_HINT)
                })?;
                (Some(value), rest)
            }
            None => (None, read.rest),
        };
        let description = match rest.strip_prefix("--") {
            Some(description) => description.trim(),
            None if rest.is_empty() => "",
            None => return Err(about(no_parameter())),
        };
        let mut schema = read.schema;
        if !description.is_empty() {
            schema["description"] = description.into();
        }
        match default {
            Some(default) => schema["default"] = default,
            None if !read.optional => self.required.push(name.to_owned()),
            None => {}
        }
        self.parameters.insert(name.to_owned(), schema);
        Ok(())
    }

    fn read_annotations(&mut self, text: &str) -> Result<()> {
        let known = ["read_only", "destructive", "idempotent", "open_world"];
        for word in text.split(',').map(str::trim) {
            let (name, value) = match word.strip_prefix("not ") {
                Some(name) => (name.trim(), false),
                None => (word, true),
            };
            if !known.contains(&name) {
                let hint = match nearest_name(name, known) {
                    Some(near) => format!("did you mean {near}?"),
                    None => format!("the annotations are {}", known.join(", ")),
                };
                let message = format!("the annotation {name} means nothing");
                return Err(Problem::bad_script(message).with_hint(hint));
            }
            self.annotations.insert(name.to_owned(), value.into());
        }
        Ok(())
    }

    pub(super) fn has_parameter(&self, name: &str) -> bool {
        self.parameters.contains_key(name)
    }

    pub(super) fn parameter_names(&self) -> Vec<&str> {
        self.parameters.keys().map(String::as_str).collect()
    }

    /// The schema of its arguments.
    pub(super) fn input_schema(&self) -> Json {
        json!({
            "type": "object",
            "properties": self.parameters,
            "required": self.required,
            "additionalProperties": false,
        })
    }

    /// The same as a tool's table has it.
    pub(super) fn to_tool_fields(&self) -> Json {
        let mut fields = json!({
            "name": format!("scripts.{}", self.name),
            "description": self.description,
            "parameters": self.input_schema(),
        });
        let optional = [
            ("title", self.title.clone().map(Json::from)),
            ("version", self.version.clone().map(Json::from)),
            ("output", self.returns.clone()),
        ];
        for (key, value) in optional {
            if let Some(value) = value {
                fields[key] = value;
            }
        }
        if !self.annotations.is_empty() {
            fields["annotations"] = Json::Object(self.annotations.clone());
        }
        fields
    }
}

/// The lines of a header: those before the first that is neither empty nor a comment. One
/// with more spaces goes on with the one above it. Those without a space are for Luau.
fn header_lines(text: &str) -> Vec<HeaderLine> {
    let mut lines: Vec<HeaderLine> = Vec::new();
    let mut may_go_on = false;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with("--") || line.starts_with("--[") {
            break;
        }
        let Some(said) = line.strip_prefix("--!").filter(|it| it.starts_with([' ', '\t'])) else {
            may_go_on = false;
            continue;
        };
        let is_more = said.starts_with("   ") || said.starts_with('\t');
        match lines.last_mut().filter(|_| is_more && may_go_on) {
            Some(before) => {
                before.text.push(' ');
                before.text.push_str(said.trim());
            }
            None => lines.push(HeaderLine { number, text: said.trim().to_owned() }),
        }
        may_go_on = true;
    }
    lines
}

fn read_name(name: &str) -> Result<String> {
    let begins = name.starts_with(|it: char| it.is_ascii_alphabetic());
    if begins && is_luau_name(name) && name.len() <= MAX_SCRIPT_NAME_BYTES {
        return Ok(name.to_owned());
    }
    let shown = moonlark_core::value::shorten_text(name);
    Err(Problem::bad_script(format!("{shown:?} cannot be the name of a saved script")).with_hint(
        "use letters, digits and _, a letter first (at most 64), since it is called as sdk.scripts.NAME",
    ))
}

fn read_whole_type(text: &str, what: &str) -> Result<Json> {
    let about = |problem: Problem| {
        let message = format!("{what}: {}", problem.message);
        problem.with_message(message)
    };
    let read = read_type(text).map_err(about)?;
    if read.rest.is_empty() || read.rest.starts_with("--") {
        return Ok(read.schema);
    }
    let message = format!("{what}: {} is no part of a type", read.rest);
    Err(Problem::bad_script(message).with_hint("write a type such as { total: number }"))
}

/// JSON at the beginning of a text, and what is behind it.
fn read_json(text: &str) -> std::result::Result<(Json, &str), String> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Json>();
    match values.next() {
        Some(Ok(value)) => Ok((value, text[values.byte_offset()..].trim_start())),
        Some(Err(error)) => {
            let said = error.to_string();
            Err(said.split(" at line ").next().unwrap_or_default().to_owned())
        }
        None => Err("there is none".to_owned()),
    }
}

fn unknown_key_problem(key: &str) -> Problem {
    let key = moonlark_core::value::shorten_text(key);
    let hint = match nearest_name(&key, HEADER_FIELDS) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("a header has {}", HEADER_FIELDS.join(", ")),
    };
    Problem::bad_script(format!("the header has {key}, which means nothing")).with_hint(hint)
}
