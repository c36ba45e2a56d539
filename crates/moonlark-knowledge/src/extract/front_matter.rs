//! Front matter of Markdown files.

use moonlark_core::Value;
use moonlark_core::value::Object;

/// Bytes of what is believed to be front matter.
const MAX_FRONT_MATTER_BYTES: usize = 64 * 1024;

/// Fields, and where the text begins after them. What cannot be read as fields
/// is text.
pub(super) fn parse_front_matter(text: &str) -> Option<(Object, usize)> {
    let fence = text.lines().next()?.trim_end();
    let parse: fn(&str) -> Option<Value> = match fence {
        "---" => parse_yaml,
        "+++" => parse_toml,
        _ => return None,
    };
    let start = text.find('\n')? + 1;
    let mut at = start;
    for line in text[start..].split_inclusive('\n') {
        if at - start > MAX_FRONT_MATTER_BYTES {
            return None;
        }
        if line.trim_end() == fence {
            return match parse(&text[start..at])? {
                Value::Object(fields) => Some((fields, at + line.len())),
                Value::Null => Some((Object::new(), at + line.len())),
                _ => None,
            };
        }
        at += line.len();
    }
    None
}

/// The parser has bounds of its own on depth and on what aliases multiply.
fn parse_yaml(text: &str) -> Option<Value> {
    if text.trim().is_empty() {
        return Some(Value::Null);
    }
    let json: serde_json::Value = serde_saphyr::from_str(text).ok()?;
    Value::from_json(json).ok()
}

fn parse_toml(text: &str) -> Option<Value> {
    let table: toml::Table = text.parse().ok()?;
    let fields = table.into_iter().map(|(key, value)| Some((key, value_from_toml(value, 0)?)));
    fields.collect::<Option<Object>>().map(Value::Object)
}

fn value_from_toml(value: toml::Value, depth: usize) -> Option<Value> {
    if depth > 32 {
        return None;
    }
    Some(match value {
        toml::Value::String(text) => Value::Str(text),
        toml::Value::Integer(number) => Value::Int(number),
        toml::Value::Float(number) => Value::Float(number),
        toml::Value::Boolean(flag) => Value::Bool(flag),
        toml::Value::Datetime(time) => Value::Str(time.to_string()),
        toml::Value::Array(items) => Value::Array(
            items
                .into_iter()
                .map(|item| value_from_toml(item, depth + 1))
                .collect::<Option<_>>()?,
        ),
        toml::Value::Table(table) => Value::Object(
            table
                .into_iter()
                .map(|(key, value)| Some((key, value_from_toml(value, depth + 1)?)))
                .collect::<Option<_>>()?,
        ),
    })
}
