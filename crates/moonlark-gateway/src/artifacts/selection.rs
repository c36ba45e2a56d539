//! Parts and slices of an artifact, as scripts ask for them: indices count
//! from 1.

use std::borrow::Cow;

use super::preview::format_grouped;
use super::{ArtifactContent, StoredArtifact};
use moonlark_core::nearest::nearest_name;
use moonlark_core::problem::{Problem, Result};
use moonlark_core::value::{Value, ValuePath, shorten_text};

/// A path is written by hand; this is far more than any takes.
const MAX_PATH_BYTES: usize = 1000;
/// Fields named in a hint.
const MAX_HINTED_FIELDS: usize = 12;

/// What of an artifact: all of it, unless something is said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArtifactSelection {
    /// The way to a part: `items[3].name`.
    pub path: Option<String>,
    /// The first item of a list, or byte of a text; 1 if none is said.
    pub from: Option<usize>,
    /// How many; all that follow if nothing is said.
    pub count: Option<usize>,
}

impl StoredArtifact {
    /// The value, or what is wanted of it.
    pub fn read_selection(&self, wanted: &ArtifactSelection) -> Result<Cow<'_, Value>> {
        let whole = match &self.held {
            ArtifactContent::Value(value) => Cow::Borrowed(value),
            ArtifactContent::Bytes { bytes, .. } => Cow::Owned(Value::text_or_bytes(bytes.clone())),
        };
        let found = match (&wanted.path, whole) {
            (None, whole) => whole,
            (Some(path), Cow::Borrowed(value)) => Cow::Borrowed(value_at_path(value, path)?),
            (Some(path), Cow::Owned(value)) => Cow::Owned(value_at_path(&value, path)?.clone()),
        };
        if wanted.from.is_none() && wanted.count.is_none() {
            return Ok(found);
        }
        let (from, count) = (wanted.from.unwrap_or(1), wanted.count.unwrap_or(usize::MAX));
        slice_value(&found, from, count).map(Cow::Owned)
    }
}

/// `count` items of a list, or bytes of a text, starting with number `from`.
/// Past the end there are none. A text is cut before the character that a
/// bound falls into, so slices that follow each other make up the whole.
pub fn slice_value(value: &Value, from: usize, count: usize) -> Result<Value> {
    let Some(start) = from.checked_sub(1) else {
        return Err(Problem::bad_request("from counts from 1"));
    };
    let end = start.saturating_add(count);
    match value {
        Value::Array(items) => {
            let end = end.min(items.len());
            Ok(Value::Array(items.get(start..end).unwrap_or_default().to_vec()))
        }
        Value::Str(text) => {
            Ok(text[text.floor_char_boundary(start)..text.floor_char_boundary(end)].into())
        }
        Value::Bytes(bytes) => {
            let end = end.min(bytes.len());
            Ok(Value::text_or_bytes(bytes.get(start..end).unwrap_or_default().to_vec()))
        }
        other => Err(Problem::bad_request(format!(
            "only lists and texts have slices; this is {}",
            describe_value(other)
        ))
        .with_hint(match other {
            Value::Object(_) => "name the part to slice with path",
            _ => "read it without from and count",
        })),
    }
}

/// The part of a value that `path` leads to: `items[3].name`, `items.3.name`,
/// `["a key"].x`.
pub fn value_at_path<'a>(value: &'a Value, path: &str) -> Result<&'a Value> {
    if path.len() > MAX_PATH_BYTES {
        return Err(Problem::bad_request(format!("path is longer than {MAX_PATH_BYTES} bytes")));
    }
    let mut at = ValuePath::new("artifact");
    let mut found = value;
    for step in parse_path(path)? {
        found = match (found, step.parse::<usize>()) {
            (Value::Object(fields), _) => {
                let next = fields.get(&*step).ok_or_else(|| no_field_problem(found, &step, &at))?;
                at.push_key(&step)?;
                next
            }
            (Value::Array(items), Ok(number)) => {
                let next = number.checked_sub(1).and_then(|index| items.get(index));
                let next = next.ok_or_else(|| {
                    Problem::not_found(format!(
                        "{at} has no item {number}: it is {}",
                        describe_value(found)
                    ))
                })?;
                at.push_index(number)?;
                next
            }
            (Value::Array(_), Err(_)) => return Err(not_inside_list_problem(found, &step, &at)),
            (leaf, _) => {
                let message = format!("{at} is {}, with nothing inside", describe_value(leaf));
                let is_text = matches!(leaf, Value::Str(_));
                let hint = "if the text is JSON, read it with json.decode(artifact(handle))";
                return Err(Problem::not_found(message)
                    .with_optional_hint(is_text.then(|| hint.to_owned())));
            }
        };
    }
    Ok(found)
}

/// The names and numbers of a path, in order.
fn parse_path(path: &str) -> Result<Vec<Cow<'_, str>>> {
    let wrong = |rest: &str| {
        Problem::bad_request(format!("path cannot be read from '{}' on", shorten_text(rest)))
            .with_hint("write it as in items[3].name or [\"a key\"].name")
    };
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix('[') {
            let quoted = inside.strip_prefix(['"', '\'']);
            let (step, after) = match quoted {
                Some(text) => text.split_once(&format!("{}]", &inside[..1])),
                None => inside.split_once(']'),
            }
            .ok_or_else(|| wrong(rest))?;
            if quoted.is_none() && step.parse::<usize>().is_err() {
                return Err(wrong(rest));
            }
            steps.push(step.into());
            rest = after;
        } else {
            let name = rest.strip_prefix('.').unwrap_or(rest);
            let end = name.find(['.', '[']).unwrap_or(name.len());
            if end == 0 {
                return Err(wrong(rest));
            }
            steps.push(name[..end].into());
            rest = &name[end..];
        }
    }
    Ok(steps)
}

fn no_field_problem(object: &Value, name: &str, at: &ValuePath) -> Problem {
    let names: Vec<&str> = object
        .as_object()
        .into_iter()
        .flat_map(|fields| fields.keys().map(String::as_str))
        .collect();
    let hint = match nearest_name(name, names.iter().copied().take(MAX_PATH_BYTES)) {
        Some(near) => Some(format!("did you mean {}?", shorten_text(near))),
        None if names.is_empty() => None,
        None => {
            let some: Vec<_> =
                names.iter().take(MAX_HINTED_FIELDS).map(|name| shorten_text(name)).collect();
            let more = names.len().saturating_sub(MAX_HINTED_FIELDS);
            let rest = if more > 0 {
                format!(" and {} more", format_grouped(more))
            } else {
                String::new()
            };
            Some(format!("there are {}{rest}", some.join(", ")))
        }
    };
    Problem::not_found(format!("{at} has no field '{}'", shorten_text(name)))
        .with_optional_hint(hint)
}

fn not_inside_list_problem(list: &Value, step: &str, at: &ValuePath) -> Problem {
    Problem::not_found(format!(
        "{at} is {}, which has no field '{}'",
        describe_value(list),
        shorten_text(step)
    ))
    .with_hint("take one item by its number, as in items[1], or slice the list with from and count")
}

/// `a list of 5,000 items`.
fn describe_value(value: &Value) -> String {
    match value {
        Value::Array(items) if items.len() == 1 => "a list of 1 item".to_owned(),
        Value::Array(items) => format!("a list of {} items", format_grouped(items.len())),
        Value::Object(fields) if fields.len() == 1 => "an object with 1 field".to_owned(),
        Value::Object(fields) => format!("an object with {} fields", format_grouped(fields.len())),
        Value::Str(text) if text.len() == 1 => "a text of 1 byte".to_owned(),
        Value::Str(text) => format!("a text of {} bytes", format_grouped(text.len())),
        Value::Bytes(bytes) => format!("{} bytes", format_grouped(bytes.len())),
        Value::Null => "null".to_owned(),
        other => format!("a {}", other.kind()).replace("a integer", "an integer"),
    }
}
