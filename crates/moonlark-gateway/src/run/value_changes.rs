//! What differs between two values, path by path, and between two texts, line by line.

use crate::journal::{RedactionScopes, are_same_values, redaction};
use moonlark_core::secret::Secrets;
use moonlark_core::value::Value;

/// Differences of two values that are named.
const MAX_VALUE_CHANGES: usize = 50;
/// Bytes of either side that are shown.
const MAX_SHOWN_VALUE_BYTES: usize = 300;
/// Lines of one text times those of the other that are compared one by one.
const MAX_COMPARED_LINE_PAIRS: usize = 4_000_000;
/// Lines that are named.
const MAX_LINE_CHANGES: usize = 400;

/// One difference: what is there on either side, as JSON text without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueChange {
    /// `orders[3].total`; empty for the whole.
    pub path: String,
    pub before: Option<String>,
    pub after: Option<String>,
}

/// A line that only one text has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineChange {
    /// Where, in the text that has it, counted from one.
    pub line: usize,
    pub is_added: bool,
    pub text: String,
}

/// What differs between two values, at most a few dozen places.
pub fn value_changes(before: &Value, after: &Value) -> Vec<ValueChange> {
    let mut changes = Vec::new();
    collect_changes(before, after, &mut String::new(), &mut changes);
    changes
}

fn collect_changes(
    before: &Value,
    after: &Value,
    path: &mut String,
    changes: &mut Vec<ValueChange>,
) {
    if changes.len() >= MAX_VALUE_CHANGES || are_same_values(before, after) {
        return;
    }
    let length = path.len();
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            let gone = old.keys().filter(|key| !new.contains_key(*key));
            for key in old.keys().filter(|key| new.contains_key(*key)).chain(gone) {
                push_key(path, key);
                collect_side(old.get(key), new.get(key), path, changes);
                path.truncate(length);
            }
            for key in new.keys().filter(|key| !old.contains_key(*key)) {
                push_key(path, key);
                collect_side(None, new.get(key), path, changes);
                path.truncate(length);
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            for index in 0..old.len().max(new.len()) {
                path.push_str(&format!("[{index}]"));
                collect_side(old.get(index), new.get(index), path, changes);
                path.truncate(length);
            }
        }
        _ => changes.push(changed(path, Some(before), Some(after))),
    }
}

fn collect_side(
    before: Option<&Value>,
    after: Option<&Value>,
    path: &mut String,
    changes: &mut Vec<ValueChange>,
) {
    match (before, after) {
        (Some(before), Some(after)) => collect_changes(before, after, path, changes),
        (before, after) if changes.len() < MAX_VALUE_CHANGES => {
            changes.push(changed(path, before, after));
        }
        _ => {}
    }
}

fn push_key(path: &mut String, key: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(key);
}

fn changed(path: &str, before: Option<&Value>, after: Option<&Value>) -> ValueChange {
    // A field whose name says that it is secret is shown as such.
    let name = path.rsplit(['.', '[']).next().unwrap_or(path).to_owned();
    let shown = |value: &Value| shown_value(&name, value);
    ValueChange { path: path.to_owned(), before: before.map(shown), after: after.map(shown) }
}

/// A value as JSON text, without secrets and not longer than a line or two.
pub fn shown_value(name: &str, value: &Value) -> String {
    let named = Value::from_fields([(name, value.clone())]);
    let text = redaction::redact_arguments(&named, &RedactionScopes::default());
    let whole: Option<serde_json::Value> = serde_json::from_str(&text).ok();
    let shown = whole.and_then(|whole| whole.as_object()?.values().next().cloned());
    let text = shown.map_or_else(|| "…".to_owned(), |it| it.to_string());
    let end = text.floor_char_boundary(MAX_SHOWN_VALUE_BYTES);
    if end < text.len() { format!("{}…", &text[..end]) } else { text }
}

/// What differs between two texts.
pub fn line_changes(before: &str, after: &str, secrets: &Secrets) -> Vec<LineChange> {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let start = old.iter().zip(&new).take_while(|(a, b)| a == b).count();
    let end = old[start..].iter().rev().zip(new[start..].iter().rev());
    let end = end.take_while(|(a, b)| a == b).count();
    let (left, right) = (&old[start..old.len() - end], &new[start..new.len() - end]);
    let change = |index: usize, is_added: bool, text: &str| {
        let text = secrets.redact_text(text).into_owned();
        LineChange { line: start + index + 1, is_added, text }
    };
    let mut changes = Vec::new();
    if left.len().saturating_mul(right.len()) > MAX_COMPARED_LINE_PAIRS {
        changes.extend(left.iter().enumerate().map(|(at, line)| change(at, false, line)));
        changes.extend(right.iter().enumerate().map(|(at, line)| change(at, true, line)));
        changes.truncate(MAX_LINE_CHANGES);
        return changes;
    }
    let common = common_lengths(left, right);
    let (mut a, mut b) = (0, 0);
    while (a < left.len() || b < right.len()) && changes.len() < MAX_LINE_CHANGES {
        if a < left.len() && b < right.len() && left[a] == right[b] {
            (a, b) = (a + 1, b + 1);
        } else if b == right.len() || (a < left.len() && common[a + 1][b] >= common[a][b + 1]) {
            changes.push(change(a, false, left[a]));
            a += 1;
        } else {
            changes.push(change(b, true, right[b]));
            b += 1;
        }
    }
    changes
}

/// How long the longest common sequence is of what follows each pair of lines.
fn common_lengths(left: &[&str], right: &[&str]) -> Vec<Vec<u32>> {
    let mut lengths = vec![vec![0u32; right.len() + 1]; left.len() + 1];
    for a in (0..left.len()).rev() {
        for b in (0..right.len()).rev() {
            lengths[a][b] = if left[a] == right[b] {
                lengths[a + 1][b + 1] + 1
            } else {
                lengths[a + 1][b].max(lengths[a][b + 1])
            };
        }
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(before: &str, after: &str) -> Vec<String> {
        let value = |text: &str| Value::parse_json(text.as_bytes()).unwrap();
        let side = |side: Option<String>| side.unwrap_or_else(|| "-".to_owned());
        let change =
            |it: ValueChange| format!("{}: {} {}", it.path, side(it.before), side(it.after));
        value_changes(&value(before), &value(after)).into_iter().map(change).collect()
    }

    #[test]
    fn values_differ_where_their_paths_say_and_secrets_are_not_shown() {
        assert_eq!(changes(r#"{"a":[1,2],"b":1}"#, r#"{"b":1,"a":[1,2]}"#), [""; 0]);
        assert_eq!(
            changes(
                r#"{"a":[1,{"x":2}],"gone":1,"token":"abc"}"#,
                r#"{"a":[1,{"x":"2"},3],"token":"abd","new":null}"#
            ),
            [
                r#"a[1].x: 2 "2""#,
                "a[2]: - 3",
                r#"token: "[redacted]" "[redacted]""#,
                "gone: 1 -",
                "new: - null",
            ]
        );
        assert_eq!(changes("1", "[1]"), [": 1 [1]"]);
    }

    #[test]
    fn lines_that_only_one_text_has_are_named_with_their_numbers() {
        let lines = |before: &str, after: &str| -> Vec<String> {
            let changes = line_changes(before, after, &Secrets::default());
            let sign = |it: &LineChange| if it.is_added { '+' } else { '-' };
            changes.iter().map(|it| format!("{}{} {}", sign(it), it.line, it.text)).collect()
        };
        assert_eq!(lines("a\nb\nc", "a\nb\nc"), [""; 0]);
        assert_eq!(lines("a\nb\nc\nd", "a\nx\nc\ny\nd"), ["-2 b", "+2 x", "+4 y"]);
        assert_eq!(lines("", "a"), ["+1 a"]);
    }
}
