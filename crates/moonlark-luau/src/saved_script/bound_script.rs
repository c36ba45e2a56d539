//! A saved script with its arguments written before its first line, as Luau.

use std::fmt::Write;

use moonlark_core::Value;
use moonlark_render::luau::is_luau_name;

use super::PARAMS_VARIABLE;

/// Whole numbers beyond this are none of Luau's.
const MAX_EXACT_INTEGER: i64 = 1 << 53;

/// What stands around the name of a script that is held to what it says: that it only reads.
const READING_MARK: [&str; 2] = ["--[[only reads: ", "]] "];

/// The text with the arguments as a variable. It stays on its lines. `reading` is its name if
/// it only reads.
pub(super) fn bind_arguments(text: &str, args: &Value, reading: Option<&str>) -> String {
    let mut out = format!("local {PARAMS_VARIABLE} = ");
    if let Some(name) = reading {
        let [before, behind] = READING_MARK;
        let _ = write!(out, "{before}{name}{behind}");
    }
    push_literal(&mut out, args);
    out.push(' ');
    out.push_str(text);
    out
}

/// The name of the saved script that this text is, if that only reads.
pub(crate) fn reading_script_name(bound: &str) -> Option<&str> {
    let [before, behind] = READING_MARK;
    let rest = bound.strip_prefix("local ")?.strip_prefix(PARAMS_VARIABLE)?;
    let (name, _) = rest.strip_prefix(" = ")?.strip_prefix(before)?.split_once(behind)?;
    Some(name)
}

/// The same with nothing but the type of the arguments.
pub(super) fn declare_arguments(text: &str, params_type: &str) -> String {
    format!("local {PARAMS_VARIABLE} = (nil :: any) :: {params_type} {text}")
}

fn push_literal(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("json.null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Int(whole) if (-MAX_EXACT_INTEGER..=MAX_EXACT_INTEGER).contains(whole) => {
            let _ = write!(out, "{whole}");
        }
        Value::Float(number) if number.is_nan() => out.push_str("(0 / 0)"),
        Value::Float(number) if number.is_infinite() => {
            out.push_str(if *number > 0.0 { "math.huge" } else { "-math.huge" });
        }
        Value::Float(number) => {
            let _ = write!(out, "{number:?}");
        }
        Value::Str(text) => push_text(out, text.as_bytes(), true),
        Value::Bytes(bytes) => push_text(out, bytes, false),
        Value::Array(items) if items.is_empty() => out.push_str("json.array({})"),
        Value::Array(items) => {
            push_list(out, items.iter(), push_literal);
        }
        Value::Object(fields) if fields.is_empty() => out.push_str("{}"),
        Value::Object(fields) => push_list(out, fields.iter(), |out, (key, field)| {
            if is_luau_name(key) {
                out.push_str(key);
            } else {
                out.push('[');
                push_text(out, key.as_bytes(), true);
                out.push(']');
            }
            out.push_str(" = ");
            push_literal(out, field);
        }),
        // Large whole numbers.
        other => {
            out.push_str("json.decode(");
            push_text(out, other.to_json_lossy().to_string().as_bytes(), true);
            out.push(')');
        }
    }
}

fn push_list<T>(
    out: &mut String,
    items: impl Iterator<Item = T>,
    mut push: impl FnMut(&mut String, T),
) {
    out.push_str("{ ");
    for (index, item) in items.enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        push(out, item);
    }
    out.push_str(" }");
}

/// Bytes in quotes. Letters stay readable where they are `text`; whatever would end a line
/// is written by its number, so that all of it is one line to everybody.
fn push_text(out: &mut String, bytes: &[u8], text: bool) {
    out.push('"');
    let mut rest = bytes;
    while let Some(first) = rest.first().copied() {
        let letter = if text { first_letter(rest) } else { None };
        let length = letter.map_or(1, char::len_utf8);
        match (first, letter) {
            (b'"' | b'\\', _) => {
                out.push('\\');
                out.push(char::from(first));
            }
            (0x20..=0x7e, _) => out.push(char::from(first)),
            (_, Some(letter)) if !letter.is_control() && !is_line_break(letter) => out.push(letter),
            _ => {
                for byte in &rest[..length] {
                    let _ = write!(out, "\\{byte:03}");
                }
            }
        }
        rest = &rest[length..];
    }
    out.push('"');
}

fn first_letter(bytes: &[u8]) -> Option<char> {
    let most = bytes.len().min(4);
    let text = match std::str::from_utf8(&bytes[..most]) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()?,
    };
    text.chars().next()
}

fn is_line_break(letter: char) -> bool {
    matches!(letter, '\u{85}' | '\u{2028}' | '\u{2029}')
}
