//! Additions to JSON that people wrote: comments, order and layout stay.
//!
//! The text is read twice, once by a real parser, with comments and trailing
//! commas blanked out, and once for the places at which something goes in.

use serde::Serialize;
use serde_json::{Map, Value as Json};

/// What came of it.
pub(super) struct MergedJson {
    /// The new text, if it is another.
    pub(super) text: Option<String>,
    /// What is there with another value, as it should be.
    pub(super) refused: Map<String, Json>,
}

/// `text` with what it lacks of `wanted`; none if it is not a JSON object.
pub(super) fn merge_missing(text: &str, wanted: &Map<String, Json>) -> Option<MergedJson> {
    if text.trim().is_empty() {
        let text = Some(format!("{}\n", pretty_with_indent(&Json::Object(wanted.clone()), "  ")));
        return Some(MergedJson { text, refused: Map::new() });
    }
    let plain = blank_comments(text);
    let there = parse(&plain)?;
    let mut additions = JsonInsertions { text, plain: plain.as_bytes(), inserts: Vec::new() };
    let open = skip_space(additions.plain, 0);
    let refused = additions.merge_object(open, &there, wanted)?;
    let text = if additions.inserts.is_empty() { None } else { Some(additions.apply_inserts()) };
    // Better not to touch a file than to break it.
    if let Some(text) = &text {
        parse(&blank_comments(text))?;
    }
    Some(MergedJson { text, refused })
}

struct JsonInsertions<'a> {
    text: &'a str,
    /// The same length as `text`, comments blanked out.
    plain: &'a [u8],
    inserts: Vec<(usize, String)>,
}

impl JsonInsertions<'_> {
    /// Add to the object that begins at `open`; what is refused comes back.
    fn merge_object(
        &mut self,
        open: usize,
        there: &Map<String, Json>,
        wanted: &Map<String, Json>,
    ) -> Option<Map<String, Json>> {
        let (members, close) = object_members(self.plain, open)?;
        let (mut missing, mut refused) = (Vec::new(), Map::new());
        for (key, value) in wanted {
            match (there.get(key), value) {
                (None, value) => missing.push((key, value)),
                (Some(there), value) if there == value => {}
                (Some(Json::Object(there)), Json::Object(value)) => {
                    // Of a key that is there twice, the last one counts.
                    let (_, at) = members.iter().rfind(|(name, _)| name == key)?;
                    let inner = self.merge_object(*at, there, value)?;
                    if !inner.is_empty() {
                        refused.insert(key.clone(), Json::Object(inner));
                    }
                }
                (Some(_), value) => drop(refused.insert(key.clone(), value.clone())),
            }
        }
        if !missing.is_empty() {
            self.insert_members(open, close, &missing)?;
        }
        Some(refused)
    }

    /// Put members at the end of the object between `open` and `close`.
    fn insert_members(
        &mut self,
        open: usize,
        close: usize,
        members: &[(&String, &Json)],
    ) -> Option<()> {
        let last = self.plain[..close].iter().rposition(|byte| !byte.is_ascii_whitespace())?;
        let end = last + 1;
        let comma = if matches!(self.plain[last], b'{' | b',') { "" } else { "," };
        let line = self.text[..close].rfind('\n').map_or(0, |newline| newline + 1);
        let base = leading_space(&self.text[line..]);
        let unit = self.indent_unit();
        let own_line = line > end || (last == open && line <= open);
        let indent = match self.text[open..close].lines().nth(1) {
            Some(first) if last > open => leading_space(first).to_owned(),
            _ => format!("{base}{unit}"),
        };
        let members: Vec<String> = members
            .iter()
            .map(|(key, value)| {
                let value = pretty_with_indent(value, unit);
                let value =
                    if own_line { value.replace('\n', &format!("\n{indent}")) } else { value };
                format!("{}: {value}", Json::String((*key).clone()))
            })
            .collect();
        if line > end {
            let lines = members.join(&format!(",\n{indent}"));
            if !comma.is_empty() {
                self.inserts.push((end, comma.to_owned()));
            }
            self.inserts.push((line, format!("{indent}{lines}\n")));
        } else if last == open {
            let lines = members.join(&format!(",\n{indent}"));
            self.inserts.push((end, format!("\n{indent}{lines}\n{base}")));
        } else {
            self.inserts.push((end, format!("{comma} {}", members.join(", "))));
        }
        Some(())
    }

    /// What one level of indentation looks like in this text.
    fn indent_unit(&self) -> &str {
        let first = self.text.lines().map(leading_space).find(|space| !space.is_empty());
        first.unwrap_or("  ")
    }

    fn apply_inserts(mut self) -> String {
        self.inserts.sort_by_key(|(at, _)| *at);
        let mut text = self.text.to_owned();
        for (at, insert) in self.inserts.iter().rev() {
            text.insert_str(*at, insert);
        }
        text
    }
}

/// The keys of the object that begins at `open`, where their values begin, and
/// where it ends.
fn object_members(plain: &[u8], open: usize) -> Option<(Vec<(String, usize)>, usize)> {
    let mut members = Vec::new();
    let mut at = skip_space(plain, open + 1);
    while *plain.get(at)? != b'}' {
        if plain[at] == b',' {
            at = skip_space(plain, at + 1);
            continue;
        }
        let end = skip_value(plain, at)?;
        let key: String = serde_json::from_slice(plain.get(at..end)?).ok()?;
        let colon = skip_space(plain, end);
        let value = skip_space(plain, colon + 1);
        at = skip_space(plain, skip_value(plain, value)?);
        members.push((key, value));
    }
    Some((members, at))
}

/// Where the value that begins at `at` ends.
fn skip_value(plain: &[u8], at: usize) -> Option<usize> {
    let (mut depth, mut at) = (0_usize, at);
    loop {
        match *plain.get(at)? {
            b'"' => at = skip_string(plain, at)?,
            b'{' | b'[' => (depth, at) = (depth + 1, at + 1),
            b'}' | b']' => (depth, at) = (depth.checked_sub(1)?, at + 1),
            _ if depth > 0 => at += 1,
            _ => {
                let ends = |byte: &u8| b",}]:".contains(byte) || byte.is_ascii_whitespace();
                return Some(at + plain[at..].iter().position(ends)?);
            }
        }
        if depth == 0 {
            return Some(at);
        }
    }
}

/// Behind the text in quotes that begins at `at`.
fn skip_string(plain: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += 1;
        match *plain.get(at)? {
            b'\\' => at += 1,
            b'"' => return Some(at + 1),
            _ => {}
        }
    }
}

fn skip_space(plain: &[u8], at: usize) -> usize {
    let rest = plain.get(at..).unwrap_or_default();
    at + rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count()
}

/// Comments as spaces, so that every place stays where it is.
fn blank_comments(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at..] {
            [b'"', ..] => {
                at = skip_string(&bytes, at).unwrap_or(bytes.len());
                continue;
            }
            [b'/', b'/', ..] => text[at..].find('\n').map(|length| at + length),
            [b'/', b'*', ..] => text[at + 2..].find("*/").map(|length| at + 2 + length + 2),
            _ => {
                at += 1;
                continue;
            }
        };
        let end = end.unwrap_or(bytes.len());
        for byte in bytes[at..end].iter_mut().filter(|byte| **byte != b'\n') {
            *byte = b' ';
        }
        at = end;
    }
    // Only whole comments became spaces, so it is still UTF-8.
    String::from_utf8(bytes).unwrap_or_default()
}

/// The object in text without comments. Trailing commas are fine.
fn parse(plain: &str) -> Option<Map<String, Json>> {
    let mut bytes = plain.as_bytes().to_vec();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = skip_string(&bytes, at)?,
            b',' => {
                let next = skip_space(&bytes, at + 1);
                if matches!(bytes.get(next), Some(b'}' | b']')) {
                    bytes[at] = b' ';
                }
                at += 1;
            }
            _ => at += 1,
        }
    }
    serde_json::from_slice(&bytes).ok()
}

fn leading_space(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

fn pretty_with_indent(value: &Json, indent: &str) -> String {
    let mut bytes = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(indent.as_bytes());
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    match value.serialize(&mut serializer) {
        Ok(()) => String::from_utf8(bytes).unwrap_or_default(),
        Err(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wanted() -> Map<String, Json> {
        json!({"a": 1, "b": {"x": true}, "c": "text"}).as_object().unwrap().clone()
    }

    fn check(text: &str, expected: &str) {
        let merged = merge_missing(text, &wanted()).unwrap();
        let new = merged.text.unwrap_or_else(|| text.to_owned());
        assert_eq!(new, expected);
        // A second time there is nothing to add.
        assert!(merge_missing(&new, &wanted()).unwrap().text.is_none(), "{new}");
    }

    #[test]
    fn what_is_there_stays_as_it_is() {
        check("", "{\n  \"a\": 1,\n  \"b\": {\n    \"x\": true\n  },\n  \"c\": \"text\"\n}\n");
        check("{}", "{\n  \"a\": 1,\n  \"b\": {\n    \"x\": true\n  },\n  \"c\": \"text\"\n}");
        check(
            "{\"z\": [1, \"}\"], \"b\": {}}\n",
            "{\"z\": [1, \"}\"], \"b\": {\n  \"x\": true\n}, \"a\": 1, \"c\": \"text\"}\n",
        );
        check(
            "// mine\n{\n\t\"a\": 1, // one, \"two\" }\n\t/* b { */ \"b\": {\n\t\t\"y\": \"//\",\n\t}, \n\t\"c\": \"text\" // last\n}\n",
            "// mine\n{\n\t\"a\": 1, // one, \"two\" }\n\t/* b { */ \"b\": {\n\t\t\"y\": \"//\",\n\t\t\"x\": true\n\t}, \n\t\"c\": \"text\" // last\n}\n",
        );
        check(
            "{\n    \"z\": 1 // last\n    // end\n}",
            "{\n    \"z\": 1, // last\n    // end\n    \"a\": 1,\n    \"b\": {\n        \"x\": true\n    },\n    \"c\": \"text\"\n}",
        );
    }

    #[test]
    fn another_value_is_kept_and_named() {
        let merged =
            merge_missing(r#"{"a": 2, "b": {"x": false, "y": 1}, "c": "text"}"#, &wanted());
        let merged = merged.unwrap();
        assert!(merged.text.is_none());
        assert_eq!(Json::Object(merged.refused), json!({"a": 1, "b": {"x": true}}));
    }

    #[test]
    fn what_is_not_an_object_is_not_touched() {
        let deep = "[".repeat(100_000);
        for text in ["[]", "1", "{", "{\"a\": }", "{'a': 1}", "{} {}", "\"", "/*", "{\"a", &deep] {
            assert!(merge_missing(text, &wanted()).is_none(), "{text:.20}");
        }
    }
}
