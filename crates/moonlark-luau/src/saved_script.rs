//! A saved script: an agent's script with a header, which makes it a function of
//! `sdk.scripts`.
//!
//! What is recorded of a run of it is one text that needs nothing else: the arguments are
//! written before its first line ([`bound_script`]). So everything that works with a run
//! works with this one, and line numbers stay what they are in the file.

mod bound_script;
mod header_types;
mod script_header;

use moonlark_core::nearest::nearest_name;
use moonlark_core::tool_header::ToolHeader;
use moonlark_core::value::Object;
use moonlark_core::{Problem, Result, SourceLocation, Value};

pub(crate) use bound_script::reading_script_name;
pub use script_header::MAX_SCRIPT_NAME_BYTES;
use script_header::ScriptHeader;

use crate::script_tokens::{ScriptTokenKind, tokenize_script};
use crate::script_unit::{MAX_LUAU_SOURCE_BYTES, ScriptUnit};

/// What some editors write before a text.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// The variable that holds the arguments of a saved script.
pub(crate) const PARAMS_VARIABLE: &str = "params";

/// A saved script that compiles.
#[derive(Debug, Clone, PartialEq)]
pub struct SavedScript {
    header: ScriptHeader,
    text: String,
    /// The type of its arguments.
    params_type: String,
}

impl SavedScript {
    /// Read a script, which messages call `file`; none if it has no header, so that it is a
    /// script like any other.
    pub fn parse(file: &str, text: &str) -> Result<Option<SavedScript>> {
        let text = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text);
        let Some(header) = ScriptHeader::parse(file, text)? else { return Ok(None) };
        if text.len() > MAX_LUAU_SOURCE_BYTES {
            let most = MAX_LUAU_SOURCE_BYTES >> 10;
            return Err(Problem::bad_script(format!("the script is longer than {most} KB")));
        }
        // Lines count the same with and without the arguments before them.
        ScriptUnit::from_text(file, text.to_owned())?;
        check_parameter_names(file, text, &header)?;
        let params_type = moonlark_render::luau::luau_type(&header.input_schema());
        let script = SavedScript { header, text: text.to_owned(), params_type };
        // What no tool can be made of is no script: a default that is none of its type, say.
        script.tool_header(file)?;
        Ok(Some(script))
    }

    pub fn name(&self) -> &str {
        &self.header.name
    }

    pub fn description(&self) -> &str {
        &self.header.description
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// How it is called, in one line.
    pub fn signature(&self) -> String {
        format!("sdk.scripts.{}({})", self.header.name, self.params_type)
    }

    /// What it says of itself, as tools say it.
    pub(crate) fn tool_header(&self, file: &str) -> Result<ToolHeader> {
        let Value::Object(fields) = Value::from_json(self.header.to_tool_fields())? else {
            return Err(Problem::internal("a header is no object"));
        };
        let fields: Object = fields;
        ToolHeader::from_fields(fields, "the header")
            .map_err(|problem| problem.at_location(self.header.place(file)))
    }

    /// The script with its arguments: what is run, and what is recorded. With `only_reads` it
    /// is held to that, also when it is run again from the record.
    pub(crate) fn bind_arguments(&self, args: &Value, only_reads: bool) -> Result<String> {
        let reading = only_reads.then_some(self.name());
        let bound = bound_script::bind_arguments(&self.text, args, reading);
        if bound.len() <= MAX_LUAU_SOURCE_BYTES {
            return Ok(bound);
        }
        let most = (MAX_LUAU_SOURCE_BYTES - self.text.len()) >> 10;
        Err(Problem::limit_exceeded(format!(
            "the arguments of {} may take {most} KB at most",
            self.header.name
        ))
        .with_hint("keep what is large as an artifact, and give its handle to the script"))
    }

    /// What the type check looks at: the same for all arguments.
    pub fn text_to_check(&self) -> String {
        bound_script::declare_arguments(&self.text, &self.params_type)
    }
}

/// Refuse a script that reads a parameter which its header does not have, unless it has
/// another use for the variable.
fn check_parameter_names(file: &str, text: &str, header: &ScriptHeader) -> Result<()> {
    let tokens = tokenize_script(text);
    let is_params = |index: usize| {
        let is_field = index > 0 && matches!(tokens[index - 1].text, "." | ":");
        tokens[index].is_name(PARAMS_VARIABLE) && !is_field
    };
    let text_at = |index: usize| tokens.get(index).map_or("", |token| token.text);
    // Behind the bracket of `function (`, `function name(` or `function a.b:c(`.
    let is_of_function = |index: usize| {
        let Some(bracket) = (0..index).rev().find(|at| matches!(text_at(*at), "(" | ")")) else {
            return false;
        };
        let is_part_of_name = |at: &usize| {
            text_at(*at) != "function" && tokens[*at].kind == ScriptTokenKind::Name
                || matches!(text_at(*at), "." | ":")
        };
        let before_name = (0..bracket).rev().find(|at| !is_part_of_name(at));
        text_at(bracket) == "(" && before_name.is_some_and(|at| text_at(at) == "function")
    };
    let is_own = |index: usize| {
        let before = index.checked_sub(1).map_or("", text_at);
        matches!(before, "local" | "function" | "for" | ",")
            && !matches!(text_at(index + 1), "." | "[" | ")")
            || text_at(index + 1) == "="
            || is_of_function(index)
    };
    let places: Vec<usize> = (0..tokens.len()).filter(|index| is_params(*index)).collect();
    if places.iter().any(|index| is_own(*index)) {
        return Ok(());
    }
    for index in places.into_iter().filter(|index| text_at(index + 1) == ".") {
        let Some(field) = tokens.get(index + 2) else { continue };
        if header.has_parameter(field.text) {
            continue;
        }
        let names = header.parameter_names();
        let hint = match nearest_name(field.text, names.iter().copied()) {
            Some(near) => format!("did you mean params.{near}?"),
            None => format!("write into the header: --! parameter {}: string", field.text),
        };
        return Err(Problem::bad_script(format!("the header has no parameter {}", field.text))
            .at_location(SourceLocation::at_line(file, field.line))
            .with_hint(hint));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const REPORT: &str = "--! name: weekly_report\n\
        --! description: What the customers of a city ordered\n\
        --!   in the last days\n\
        --! parameter city: string -- Where they live\n\
        --! parameter days: integer = 7\n\
        --! parameter kinds: {\"new\" | \"old\"}?\n\
        --! returns: { total: number, names: {string} }\n\
        --! annotations: read_only\n\
        return { total = params.days, names = {} }\n";

    #[test]
    fn a_header_becomes_schemas_and_a_signature() {
        let script = SavedScript::parse("scripts/a.luau", REPORT).unwrap().unwrap();
        assert_eq!(script.name(), "weekly_report");
        assert_eq!(script.description(), "What the customers of a city ordered in the last days");
        assert_eq!(
            script.signature(),
            "sdk.scripts.weekly_report({ city: string, days: number?, kinds: {\"new\" | \"old\"}? })"
        );
        assert_eq!(
            script.header.to_tool_fields(),
            json!({
                "name": "scripts.weekly_report",
                "description": "What the customers of a city ordered in the last days",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "city": {"type": "string", "description": "Where they live"},
                        "days": {"type": "integer", "default": 7},
                        "kinds": {
                            "type": "array",
                            "items": {"type": "string", "enum": ["new", "old"]},
                        },
                    },
                    "required": ["city"],
                    "additionalProperties": false,
                },
                "output": {
                    "type": "object",
                    "properties": {
                        "total": {"type": "number"},
                        "names": {"type": "array", "items": {"type": "string"}},
                    },
                    "required": ["total", "names"],
                },
                "annotations": {"read_only": true},
            })
        );
        assert!(script.tool_header("scripts/a.luau").is_ok());
    }

    #[test]
    fn a_script_without_a_header_is_a_script_like_any_other() {
        for text in ["return 1", "--!strict\nreturn 1", "-- name: a\nreturn 1", ""] {
            assert_eq!(SavedScript::parse("scripts/a.luau", text), Ok(None), "{text}");
        }
    }

    #[test]
    fn a_default_that_does_not_fit_its_type_is_no_script_that_can_be_used() {
        let text = "--! name: a\n--! description: b\n--! parameter x: integer = \"q\"\nreturn 1";
        let problem = SavedScript::parse("scripts/a.luau", text).unwrap_err();
        assert!(problem.to_string().contains("default"), "{problem}");
        assert!(problem.to_string().contains("scripts/a.luau:1"), "{problem}");
    }

    #[test]
    fn a_mark_of_the_byte_order_before_the_header_is_not_read() {
        let script = SavedScript::parse("a", "\u{feff}--! name: a\nreturn 1").unwrap().unwrap();
        assert_eq!((script.name(), script.text()), ("a", "--! name: a\nreturn 1"));
    }

    #[test]
    fn a_script_that_only_reads_says_so_wherever_it_is_run_from_its_record() {
        let script = SavedScript::parse("a", REPORT).unwrap().unwrap();
        let args = Value::from_json(json!({"city": "Bonn"})).unwrap();
        let bound = script.bind_arguments(&args, true).unwrap();
        assert!(
            bound.starts_with("local params = --[[only reads: weekly_report]] { city"),
            "{bound}"
        );
        assert_eq!(reading_script_name(&bound), Some("weekly_report"));
        assert!(ScriptUnit::from_text("a", bound).is_ok());
        let bound = script.bind_arguments(&args, false).unwrap();
        assert_eq!(reading_script_name(&bound), None);
    }

    #[test]
    fn arguments_are_written_before_the_first_line() {
        let script = SavedScript::parse("a", "--! name: a\nreturn params").unwrap().unwrap();
        let args = Value::from_json(json!({
            "text": "a\"b\\\u{1}2\n\u{2028}ü",
            "list": [],
            "none": null,
            "large": 9_007_199_254_740_993_i64,
            "and": {"odd key": [1, 2.5, true]},
        }))
        .unwrap();
        assert_eq!(
            script.bind_arguments(&args, false).unwrap(),
            "local params = { text = \"a\\\"b\\\\\\0012\\010\\226\\128\\168ü\", list = json.array({}), \
             none = json.null, large = json.decode(\"9007199254740993\"), \
             [\"and\"] = { [\"odd key\"] = { 1, 2.5, true } } } --! name: a\nreturn params"
        );
        assert_eq!(
            script.text_to_check(),
            "local params = (nil :: any) :: {} --! name: a\nreturn params"
        );
    }

    #[test]
    fn faults_of_a_header_are_said_with_their_line() {
        let faults =
            |text: &str| SavedScript::parse("scripts/a.luau", text).unwrap_err().to_string();
        for (text, expected) in [
            (
                "--! description: no name\nreturn 1",
                "error[bad_script]: the header has no name\n  --> scripts/a.luau:1\nhint: begin it with: --! name: weekly_report",
            ),
            (
                "--! name: 9lives\nreturn 1",
                "error[bad_script]: \"9lives\" cannot be the name of a saved script\n  --> scripts/a.luau:1\nhint: use letters, digits and _, a letter first (at most 64), since it is called as sdk.scripts.NAME",
            ),
            (
                "--! name: a\n--! descripton: x\nreturn 1",
                "error[bad_script]: the header has descripton, which means nothing\n  --> scripts/a.luau:2\nhint: did you mean description?",
            ),
            (
                "--! name: a\n--! name: b\nreturn 1",
                "error[bad_script]: the header has two names\n  --> scripts/a.luau:2\nhint: keep one of them",
            ),
            (
                "--! name: a\n\n--! parameter city: strin\nreturn 1",
                "error[bad_script]: parameter city: there is no type strin\n  --> scripts/a.luau:3\nhint: did you mean string?",
            ),
            (
                "--! name: a\n--! parameter city string\nreturn 1",
                "error[bad_script]: this is no parameter\n  --> scripts/a.luau:2\nhint: write --! parameter NAME: TYPE = DEFAULT -- what it is; the default may be left out, and TYPE? is a parameter that may be",
            ),
            (
                "--! name: a\n--! parameter n: integer = seven\nreturn 1",
                "error[bad_script]: parameter n: the default is not JSON: expected value\n  --> scripts/a.luau:2\nhint: write --! parameter NAME: TYPE = DEFAULT -- what it is; the default may be left out, and TYPE? is a parameter that may be",
            ),
            (
                "--! name: a\n--! parameter n: { a: number\nreturn 1",
                "error[bad_script]: parameter n: the type does not end: } is missing\n  --> scripts/a.luau:2",
            ),
            (
                "--! name: a\n--! parameter n: string\n--! parameter n: string\nreturn 1",
                "error[bad_script]: the header has two parameters named n\n  --> scripts/a.luau:3\nhint: keep one of them",
            ),
        ] {
            assert_eq!(faults(text), expected, "{text}");
        }
        assert_eq!(
            faults("--! name: a\n--! parameter city: string\nlocal x = 1\nreturn params.cty"),
            "error[bad_script]: the header has no parameter cty\n  --> scripts/a.luau:4\nhint: did you mean params.city?"
        );
        // It is the script's own variable then.
        for text in [
            "local params = { a = 1 }\nreturn params.a",
            "return (function(params) return params.a end)({})",
        ] {
            assert!(SavedScript::parse("a", &format!("--! name: a\n{text}")).is_ok(), "{text}");
        }
        let wrong = "--! name: a\nreturn (";
        assert!(faults(wrong).contains("scripts/a.luau:2"), "{}", faults(wrong));
    }
}
