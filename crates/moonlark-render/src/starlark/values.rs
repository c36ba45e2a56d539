//! JSON values as a Starlark script would write them.

use std::fmt::Write;

use serde_json::Value as Json;

use crate::function_parts::is_identifier;

pub fn starlark_value(value: &Json) -> String {
    match value {
        Json::Null => "None".to_owned(),
        Json::Bool(true) => "True".to_owned(),
        Json::Bool(false) => "False".to_owned(),
        Json::Number(number) => number.to_string(),
        Json::String(text) => quote_text(text),
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(starlark_value).collect();
            format!("[{}]", items.join(", "))
        }
        Json::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(key, value)| format!("{}: {}", quote_text(key), starlark_value(value)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
    }
}

/// Text between double quotes, with the escapes that Starlark shares with Python.
pub(super) fn quote_text(text: &str) -> String {
    let mut quoted = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            hidden if hidden.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(hidden));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

const STARLARK_KEYWORDS: [&str; 36] = [
    "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del", "elif",
    "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda",
    "load", "nonlocal", "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
    "None", "True", "False",
];

/// Whether it can be written as a name, in Starlark and in Python.
pub(super) fn is_starlark_name(name: &str) -> bool {
    is_identifier(name) && !STARLARK_KEYWORDS.contains(&name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_reads_as_starlark() {
        assert_eq!(
            starlark_value(
                &json!({"a": [1, 2.5, 3.0, null], "b c": "x\"\n\u{1}é", "d": {}, "e": true})
            ),
            "{\"a\": [1, 2.5, 3.0, None], \"b c\": \"x\\\"\\n\\u0001é\", \"d\": {}, \"e\": True}"
        );
    }
}
