//! Parts and slices of an artifact, as scripts ask for them: indices count
//! from 1.

use std::borrow::Cow;

use super::preview::{floor, grouped};
use super::{Held, Stored};
use crate::nearest::nearest;
use crate::problem::{Code, Problem, Result};
use crate::value::{Path, Value, shorten};

/// A path is written by hand; this is far more than any takes.
const LONGEST: usize = 1000;
/// Fields named in a hint.
const SOME: usize = 12;

/// What of an artifact: all of it, unless something is said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The way to a part: `items[3].name`.
    pub path: Option<String>,
    /// The first item of a list, or byte of a text; 1 if none is said.
    pub from: Option<usize>,
    /// How many; all that follow if nothing is said.
    pub count: Option<usize>,
}

impl Stored {
    /// The value, or what is wanted of it.
    pub fn read(&self, wanted: &Wanted) -> Result<Cow<'_, Value>> {
        let whole = match &self.held {
            Held::Value(value) => Cow::Borrowed(value),
            Held::Bytes { bytes, .. } => Cow::Owned(Value::text_or_bytes(bytes.clone())),
        };
        let found = match (&wanted.path, whole) {
            (None, whole) => whole,
            (Some(path), Cow::Borrowed(value)) => Cow::Borrowed(part(value, path)?),
            (Some(path), Cow::Owned(value)) => Cow::Owned(part(&value, path)?.clone()),
        };
        if wanted.from.is_none() && wanted.count.is_none() {
            return Ok(found);
        }
        let (from, count) = (wanted.from.unwrap_or(1), wanted.count.unwrap_or(usize::MAX));
        slice(&found, from, count).map(Cow::Owned)
    }
}

/// `count` items of a list, or bytes of a text, starting with number `from`.
/// Past the end there are none. A text is cut before the character that a
/// bound falls into, so slices that follow each other make up the whole.
pub fn slice(value: &Value, from: usize, count: usize) -> Result<Value> {
    let Some(start) = from.checked_sub(1) else {
        return Err(Problem::bad_request("from counts from 1"));
    };
    let end = start.saturating_add(count);
    match value {
        Value::Array(items) => {
            let end = end.min(items.len());
            Ok(Value::Array(items.get(start..end).unwrap_or_default().to_vec()))
        }
        Value::Str(text) => Ok(text[floor(text, start)..floor(text, end)].into()),
        Value::Bytes(bytes) => {
            let end = end.min(bytes.len());
            Ok(Value::text_or_bytes(bytes.get(start..end).unwrap_or_default().to_vec()))
        }
        other => Err(Problem::bad_request(format!(
            "only lists and texts have slices; this is {}",
            what(other)
        ))
        .hint(match other {
            Value::Object(_) => "name the part to slice with path",
            _ => "read it without from and count",
        })),
    }
}

/// The part of a value that `path` leads to: `items[3].name`, `items.3.name`,
/// `["a key"].x`.
pub fn part<'a>(value: &'a Value, path: &str) -> Result<&'a Value> {
    if path.len() > LONGEST {
        return Err(Problem::bad_request(format!("path is longer than {LONGEST} bytes")));
    }
    let mut at = Path::new("artifact");
    let mut found = value;
    for step in steps(path)? {
        found = match (found, step.parse::<usize>()) {
            (Value::Object(fields), _) => {
                let next = fields.get(&*step).ok_or_else(|| no_field(found, &step, &at))?;
                at.push_key(&step)?;
                next
            }
            (Value::Array(items), Ok(number)) => {
                let next = number.checked_sub(1).and_then(|index| items.get(index));
                let next = next.ok_or_else(|| {
                    missing(format!("{at} has no item {number}: it is {}", what(found)))
                })?;
                at.push_index(number)?;
                next
            }
            (Value::Array(_), Err(_)) => return Err(not_inside_list(found, &step, &at)),
            (Value::Str(_), _) => {
                return Err(missing(format!("{at} is {}, with nothing inside", what(found)))
                    .hint("if the text is JSON, read it with json.decode(artifact(handle))"));
            }
            _ => return Err(missing(format!("{at} is {}, with nothing inside", what(found)))),
        };
    }
    Ok(found)
}

/// The names and numbers of a path, in order.
fn steps(path: &str) -> Result<Vec<Cow<'_, str>>> {
    let wrong = |rest: &str| {
        Problem::bad_request(format!("path cannot be read from '{}' on", shorten(rest)))
            .hint("write it as in items[3].name or [\"a key\"].name")
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

fn no_field(object: &Value, name: &str, at: &Path) -> Problem {
    let names: Vec<&str> = object
        .as_object()
        .into_iter()
        .flat_map(|fields| fields.keys().map(String::as_str))
        .collect();
    let hint = match nearest(name, names.iter().copied().take(LONGEST)) {
        Some(near) => Some(format!("did you mean {}?", shorten(near))),
        None if names.is_empty() => None,
        None => {
            let some: Vec<_> = names.iter().take(SOME).map(|name| shorten(name)).collect();
            let more = names.len().saturating_sub(SOME);
            let rest =
                if more > 0 { format!(" and {} more", grouped(more)) } else { String::new() };
            Some(format!("there are {}{rest}", some.join(", ")))
        }
    };
    missing(format!("{at} has no field '{}'", shorten(name))).maybe_hint(hint)
}

fn not_inside_list(list: &Value, step: &str, at: &Path) -> Problem {
    missing(format!("{at} is {}, which has no field '{}'", what(list), shorten(step)))
        .hint("take one item by its number, as in items[1], or slice the list with from and count")
}

fn missing(message: String) -> Problem {
    Problem::new(Code::NotFound, message)
}

/// `a list of 5,000 items`.
fn what(value: &Value) -> String {
    match value {
        Value::Array(items) if items.len() == 1 => "a list of 1 item".to_owned(),
        Value::Array(items) => format!("a list of {} items", grouped(items.len())),
        Value::Object(fields) if fields.len() == 1 => "an object with 1 field".to_owned(),
        Value::Object(fields) => format!("an object with {} fields", grouped(fields.len())),
        Value::Str(text) if text.len() == 1 => "a text of 1 byte".to_owned(),
        Value::Str(text) => format!("a text of {} bytes", grouped(text.len())),
        Value::Bytes(bytes) => format!("{} bytes", grouped(bytes.len())),
        Value::Null => "null".to_owned(),
        other => format!("a {}", other.kind()).replace("a integer", "an integer"),
    }
}
