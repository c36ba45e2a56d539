//! Values as lines of YAML, laid out as the text that they go into.

use serde_json::Value as Json;

use crate::edit_check::is_empty_json;
use crate::yaml_text::parse_plain_scalar;

/// How a text is laid out.
pub(super) struct YamlStyle {
    pub(super) newline: &'static str,
    /// Spaces of one level.
    pub(super) unit: usize,
}

impl YamlStyle {
    pub(super) fn from_text(text: &str) -> YamlStyle {
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let is_content = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with('#');
        let spaces = |line: &str| line.len() - line.trim_start_matches(' ').len();
        let lines: Vec<&str> = text.lines().filter(is_content).collect();
        // What stands below a dash is as far in as the dash is wide, whatever the unit.
        let deeper = |pair: &[&str]| {
            let is_item = pair[0].trim_start().starts_with('-');
            spaces(pair[1]).checked_sub(spaces(pair[0])).filter(|more| *more > 0 && !is_item)
        };
        YamlStyle { newline, unit: lines.windows(2).find_map(deeper).unwrap_or(2).min(8) }
    }

    /// The lines of a value, each with its end.
    pub(super) fn render_block(&self, value: &Json, column: usize) -> String {
        match value {
            Json::Object(members) => {
                members.iter().map(|(key, value)| self.render_member(key, value, column)).collect()
            }
            Json::Array(items) => items.iter().map(|item| self.render_item(item, column)).collect(),
            value => format!("{}{}{}", " ".repeat(column), render_scalar(value), self.newline),
        }
    }

    pub(super) fn render_member(&self, key: &str, value: &Json, column: usize) -> String {
        let (indent, key) = (" ".repeat(column), quote_string(key));
        match value {
            Json::Object(_) | Json::Array(_) if !is_empty_json(value) => {
                let inner = self.render_block(value, column + self.unit);
                format!("{indent}{key}:{}{inner}", self.newline)
            }
            value => format!("{indent}{key}: {}{}", render_flow(value), self.newline),
        }
    }

    pub(super) fn render_item(&self, value: &Json, column: usize) -> String {
        let indent = " ".repeat(column);
        let inner = self.render_block(value, column + 2);
        format!("{indent}- {}", inner.trim_start_matches(' '))
    }
}

/// A value on one line: JSON, which is YAML too.
pub(crate) fn render_flow(value: &Json) -> String {
    match value {
        Json::Array(items) => {
            format!("[{}]", items.iter().map(render_flow).collect::<Vec<_>>().join(", "))
        }
        Json::Object(members) => {
            let member = |(key, value): (&String, &Json)| {
                format!("{}: {}", quote_string(key), render_flow(value))
            };
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(", "))
        }
        value => render_scalar(value),
    }
}

pub(super) fn render_scalar(value: &Json) -> String {
    match value {
        Json::String(text) => quote_string(text),
        other => other.to_string(),
    }
}

/// Words that some version of YAML takes for something else.
const RESERVED_WORDS: [&str; 8] = ["yes", "no", "on", "off", "y", "n", "true", "false"];

pub(super) fn quote_string(text: &str) -> String {
    let begins = text.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '/');
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./".contains(letter);
    let is_text = parse_plain_scalar(text).is_string()
        && !RESERVED_WORDS.contains(&text.to_lowercase().as_str());
    if begins && is_text && text.chars().all(plain) {
        return text.to_owned();
    }
    Json::from(text).to_string()
}
