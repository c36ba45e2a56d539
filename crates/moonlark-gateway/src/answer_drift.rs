//! Drift: what has changed in the shape of a tool's answers since they were recorded.
//!
//! Answers differ from day to day, and that is no drift: other values, more items or fewer.
//! What a script relies on is what fields there are and of which kind, and that there is
//! something in them.

use std::collections::BTreeMap;

use moonlark_core::value::{Object, Value};

/// Values of a field that are remembered, to know it again under another name.
const MAX_SAMPLES: usize = 16;
/// Differences of one answer that are named.
const MAX_DRIFTS: usize = 100;
/// Fields of an object that may be keys of a table, such as ids.
const MIN_TABLE_KEYS: usize = 4;

/// What became of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DriftKind {
    Removed,
    Renamed,
    Retyped,
    Emptied,
}

impl DriftKind {
    pub fn as_str(self) -> &'static str {
        match self {
            DriftKind::Removed => "removed",
            DriftKind::Renamed => "renamed",
            DriftKind::Retyped => "retyped",
            DriftKind::Emptied => "emptied",
        }
    }
}

/// One difference between the shape of an answer then and now.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AnswerDrift {
    /// `orders[].total`; empty for the whole answer.
    pub path: String,
    pub kind: DriftKind,
    /// What it was and is: a kind of values, or a name.
    pub before: String,
    pub after: String,
}

impl AnswerDrift {
    /// `orders[].total was renamed to amount`
    pub fn to_sentence(&self) -> String {
        let AnswerDrift { path, before, after, .. } = self;
        let path = if path.is_empty() { "the answer" } else { path };
        match self.kind {
            DriftKind::Removed => format!("{path} is gone; it was {before}"),
            DriftKind::Renamed => format!("{path} is now named {after}"),
            DriftKind::Retyped => format!("{path} was {before} and is {after}"),
            DriftKind::Emptied => format!("{path} was {before} and is {after}"),
        }
    }
}

/// What has changed in the shape of `after` since `before`.
pub fn find_answer_drift(before: &Value, after: &Value) -> Vec<AnswerDrift> {
    let (mut old, mut new) = (ValueShape::default(), ValueShape::default());
    old.observe_value(&parsed_text(before));
    new.observe_value(&parsed_text(after));
    let mut drifts = Vec::new();
    old.compare_with(&new, "", &mut drifts);
    drifts.sort();
    drifts.truncate(MAX_DRIFTS);
    drifts
}

/// Many servers answer with JSON as a text.
fn parsed_text(value: &Value) -> Value {
    let parsed = value.as_str().and_then(|text| Value::parse_json(text.as_bytes()).ok());
    match parsed {
        Some(parsed @ (Value::Object(_) | Value::Array(_))) => parsed,
        _ => value.clone(),
    }
}

/// What all values at one path have in common.
#[derive(Default)]
struct ValueShape {
    /// How many there were of each kind, and of all.
    nulls: usize,
    kinds: BTreeMap<&'static str, usize>,
    seen: usize,
    /// Those with something in them.
    filled: usize,
    objects: usize,
    fields: BTreeMap<String, ValueShape>,
    items: Option<Box<ValueShape>>,
    samples: Vec<String>,
}

impl ValueShape {
    fn observe_value(&mut self, value: &Value) {
        self.seen += 1;
        let (kind, is_filled) = match value {
            Value::Null => {
                self.nulls += 1;
                return;
            }
            Value::Bool(_) => ("a truth value", true),
            Value::Int(_) | Value::Float(_) => ("a number", true),
            Value::Str(text) => ("a text", !text.trim().is_empty()),
            Value::Bytes(bytes) => ("bytes", !bytes.is_empty()),
            Value::Array(items) => ("a list", !items.is_empty()),
            Value::Object(fields) => ("an object", !fields.is_empty()),
        };
        *self.kinds.entry(kind).or_default() += 1;
        self.filled += usize::from(is_filled);
        if self.samples.len() < MAX_SAMPLES && is_filled {
            self.samples.push(value.to_json_lossy().to_string());
        }
        match value {
            Value::Array(items) => {
                let shape = self.items.get_or_insert_default();
                items.iter().for_each(|item| shape.observe_value(item));
            }
            Value::Object(fields) if is_table(fields) => {
                let shape = self.items.get_or_insert_default();
                fields.values().for_each(|item| shape.observe_value(item));
            }
            Value::Object(fields) => {
                self.objects += 1;
                for (name, field) in fields {
                    self.fields.entry(name.clone()).or_default().observe_value(field);
                }
            }
            _ => {}
        }
    }

    fn compare_with(&self, new: &ValueShape, path: &str, drifts: &mut Vec<AnswerDrift>) {
        if self.seen == 0 || new.seen == 0 {
            return;
        }
        let drift = |kind: DriftKind, after: String| AnswerDrift {
            path: path.to_owned(),
            kind,
            before: self.kind_words(),
            after,
        };
        if self.kinds.is_empty() {
            return;
        }
        if new.kinds.is_empty() {
            if self.filled > 0 {
                drifts.push(drift(DriftKind::Emptied, "null".to_owned()));
            }
            return;
        }
        if !self.kinds.keys().any(|kind| new.kinds.contains_key(kind)) {
            drifts.push(drift(DriftKind::Retyped, new.kind_words()));
            return;
        }
        let known = drifts.len();
        self.compare_fields(new, path, drifts);
        // What objects no longer have is named field by field where that is known.
        if self.filled > 0 && new.filled == 0 && drifts.len() == known {
            let empty = format!("{} with nothing in it", new.kind_words());
            drifts.push(drift(DriftKind::Emptied, empty));
            return;
        }
        if let (Some(old), Some(new)) = (&self.items, &new.items) {
            old.compare_with(new, &format!("{path}[]"), drifts);
        }
    }

    fn compare_fields(&self, new: &ValueShape, path: &str, drifts: &mut Vec<AnswerDrift>) {
        if self.objects == 0 || new.objects == 0 {
            return;
        }
        let below = |name: &str| {
            if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
        };
        // A field that not every object had may be missing where there are fewer of them.
        let is_expected =
            |field: &ValueShape| field.seen == self.objects || new.objects >= self.objects;
        let gone: Vec<(&String, &ValueShape)> = self
            .fields
            .iter()
            .filter(|(name, field)| !new.fields.contains_key(*name) && is_expected(field))
            .collect();
        let mut added: Vec<(&String, &ValueShape)> =
            new.fields.iter().filter(|(name, _)| !self.fields.contains_key(*name)).collect();
        let is_only_one = gone.len() == 1 && added.len() == 1;
        for (name, field) in gone {
            let path = below(name);
            let heir = added.iter().position(|(other, shape)| {
                field.is_like(shape, is_only_one || is_similar_name(name, other))
            });
            let before = field.kind_words();
            drifts.push(match heir.map(|index| added.swap_remove(index)) {
                Some((heir, _)) => {
                    let (kind, after) = (DriftKind::Renamed, heir.clone());
                    AnswerDrift { path, kind, before, after }
                }
                None => {
                    let (kind, after) = (DriftKind::Removed, String::new());
                    AnswerDrift { path, kind, before, after }
                }
            });
        }
        for (name, field) in &self.fields {
            if let Some(now) = new.fields.get(name) {
                field.compare_with(now, &below(name), drifts);
            }
        }
    }

    /// Whether the other may be the same field under another name.
    fn is_like(&self, other: &ValueShape, is_likely: bool) -> bool {
        let same_kinds = self.kinds.keys().eq(other.kinds.keys());
        same_kinds && (is_likely || self.samples.iter().any(|it| other.samples.contains(it)))
    }

    fn kind_words(&self) -> String {
        match self.kinds.keys().copied().collect::<Vec<_>>().as_slice() {
            [] => "null".to_owned(),
            kinds => kinds.join(" or "),
        }
    }
}

/// Whether the names are data, such as ids or paths, and not names of fields.
fn is_table(fields: &Object) -> bool {
    let is_data = |name: &&String| {
        let digits = name.bytes().filter(u8::is_ascii_digit).count();
        digits * 2 > name.len() || name.contains(['/', ' ', '@']) || name.len() > 60
    };
    fields.len() >= MIN_TABLE_KEYS && fields.keys().filter(is_data).count() * 2 > fields.len()
}

/// `created_at` and `createdAt`, `total` and `total_amount`.
fn is_similar_name(one: &str, other: &str) -> bool {
    let plain = |name: &str| -> String {
        name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
    };
    let (one, other) = (plain(one), plain(other));
    let (short, long) = if one.len() < other.len() { (one, other) } else { (other, one) };
    short.len() >= 2 && long.contains(&short)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drift(before: &str, after: &str) -> Vec<String> {
        let value = |text: &str| Value::parse_json(text.as_bytes()).unwrap();
        let drifts = find_answer_drift(&value(before), &value(after));
        drifts.iter().map(|it| format!("{}: {}", it.kind.as_str(), it.to_sentence())).collect()
    }

    #[test]
    fn other_values_and_other_numbers_of_items_are_no_drift() {
        for (before, after) in [
            ("[]", "[1]"),
            (r#"{"a":1,"b":null}"#, r#"{"a":2.5,"b":"x","c":[]}"#),
            (r#"[{"id":1,"note":"x"},{"id":2}]"#, r#"[{"id":7}]"#),
            (
                r#"{"1":{"a":1},"2":{"a":1},"3":{"a":2},"4":{"a":1}}"#,
                r#"{"7":{"a":9},"8":{"a":9},"10":{"a":9},"11":{"a":9}}"#,
            ),
            (r#""text""#, r#""other text""#),
            ("null", r#"{"a":1}"#),
        ] {
            assert_eq!(drift(before, after), [""; 0], "{before} {after}");
        }
    }

    #[test]
    fn fields_that_are_gone_renamed_retyped_or_emptied_are_named_with_their_paths() {
        for (before, after, expected) in [
            (r#"[{"id":1,"x":"a"}]"#, r#"[{"id":2}]"#, "removed: [].x is gone; it was a text"),
            (
                r#"{"total":5,"n":1}"#,
                r#"{"total_amount":6,"n":2}"#,
                "renamed: total is now named total_amount",
            ),
            (
                r#"{"key":"A-1","n":1}"#,
                r#"{"issue":"A-1","n":1}"#,
                "renamed: key is now named issue",
            ),
            (
                r#"{"a":{"b":[{"c":1}]}}"#,
                r#"{"a":{"b":[{"c":"1"}]}}"#,
                "retyped: a.b[].c was a number and is a text",
            ),
            (
                r#"{"rows":[1]}"#,
                r#"{"rows":[]}"#,
                "emptied: rows was a list and is a list with nothing in it",
            ),
            (r#"{"one":{"a":1}}"#, r#"{"one":{}}"#, "removed: one.a is gone; it was a number"),
            (r#"{"name":"x"}"#, r#"{"name":null}"#, "emptied: name was a text and is null"),
            (r#""{\"a\":1}""#, r#""{\"b\":true}""#, "removed: a is gone; it was a number"),
            (r#""{\"a\":1}""#, r#""none""#, "retyped: the answer was an object and is a text"),
        ] {
            assert_eq!(drift(before, after), [expected], "{before} {after}");
        }
    }
}
