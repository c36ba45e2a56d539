//! The tree of a document, in about as much memory as its text takes.
//!
//! A document of an API is hundreds of thousands of small values, and most of
//! its words stand in it many times. Here every word is kept once, and a value
//! is twelve bytes in a list. It is read, never changed.

use std::collections::HashMap;

use serde_json::{Map, Number, Value as Json};

mod reading;

/// From this many fields on, names are looked up in an order of their own.
const MANY: usize = 24;

#[derive(Debug, Default)]
pub struct Tree {
    words: Words,
    fields: Vec<(Word, Value)>,
    items: Vec<Value>,
    /// The fields of large objects by their names, by where they begin.
    sorted: HashMap<u32, Box<[u32]>>,
    root: Value,
}

/// A value: itself, or where it is in its tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum Value {
    #[default]
    Null,
    Bool(bool),
    /// As it was written.
    Number(Word),
    Text(Word),
    List(Span),
    Fields(Span),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Word(u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    start: u32,
    length: u32,
}

impl Span {
    fn range(self) -> std::ops::Range<usize> {
        let start = self.start as usize;
        start..start + self.length as usize
    }
}

/// All words, one after the other.
#[derive(Debug, Default)]
struct Words {
    text: String,
    ends: Vec<u32>,
}

impl Words {
    fn get(&self, Word(index): Word) -> &str {
        let index = index as usize;
        let start = index.checked_sub(1).and_then(|before| self.ends.get(before));
        let (start, end) = (start.copied().unwrap_or(0), self.ends.get(index).copied());
        self.text.get(start as usize..end.unwrap_or(start) as usize).unwrap_or_default()
    }
}

impl Tree {
    /// Of JSON that is in memory already.
    pub fn of(json: &Json) -> Tree {
        serde::Deserialize::deserialize(json).unwrap_or_default()
    }

    pub fn root(&self) -> Branch<'_> {
        Branch { tree: self, value: self.root }
    }

    fn entries(&self, span: Span) -> &[(Word, Value)] {
        self.fields.get(span.range()).unwrap_or_default()
    }

    fn field(&self, span: Span, name: &str) -> Option<Value> {
        let entries = self.entries(span);
        let Some(order) = self.sorted.get(&span.start).filter(|_| entries.len() >= MANY) else {
            let mut entries = entries.iter();
            return entries.find(|(key, _)| self.words.get(*key) == name).map(|(_, value)| *value);
        };
        let key = |at: &u32| entries.get(*at as usize).map(|(key, _)| self.words.get(*key));
        let found = order.binary_search_by(|at| key(at).cmp(&Some(name))).ok()?;
        entries.get(*order.get(found)? as usize).map(|(_, value)| *value)
    }
}

/// A value in its tree.
#[derive(Debug, Clone, Copy)]
pub struct Branch<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) value: Value,
}

impl<'a> Branch<'a> {
    fn at(self, value: Value) -> Branch<'a> {
        Branch { value, ..self }
    }

    pub fn get(self, name: &str) -> Option<Branch<'a>> {
        match self.value {
            Value::Fields(span) => self.tree.field(span, name).map(|value| self.at(value)),
            _ => None,
        }
    }

    pub fn has(self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Whether the field is `true`.
    pub fn says(self, name: &str) -> bool {
        self.get(name).is_some_and(|it| it.value == Value::Bool(true))
    }

    /// The field as text; empty if there is none.
    pub fn text(self, name: &str) -> &'a str {
        self.get(name).and_then(Branch::as_str).unwrap_or_default()
    }

    pub fn as_str(self) -> Option<&'a str> {
        match self.value {
            Value::Text(word) => Some(self.tree.words.get(word)),
            _ => None,
        }
    }

    pub fn as_bool(self) -> Option<bool> {
        match self.value {
            Value::Bool(flag) => Some(flag),
            _ => None,
        }
    }

    pub fn as_number(self) -> Option<Number> {
        match self.value {
            Value::Number(word) => self.tree.words.get(word).parse().ok(),
            _ => None,
        }
    }

    pub fn is_object(self) -> bool {
        matches!(self.value, Value::Fields(_))
    }

    pub fn is_array(self) -> bool {
        matches!(self.value, Value::List(_))
    }

    /// Has neither fields nor items.
    pub fn is_empty(self) -> bool {
        match self.value {
            Value::Fields(span) | Value::List(span) => span.length == 0,
            _ => true,
        }
    }

    /// Nothing, unless it is an object.
    pub fn fields(self) -> impl Iterator<Item = (&'a str, Branch<'a>)> {
        let entries = match self.value {
            Value::Fields(span) => self.tree.entries(span),
            _ => &[],
        };
        entries.iter().map(move |(key, value)| (self.tree.words.get(*key), self.at(*value)))
    }

    /// Nothing, unless it is a list.
    pub fn items(self) -> impl Iterator<Item = Branch<'a>> {
        let items = match self.value {
            Value::List(span) => self.tree.items.get(span.range()).unwrap_or_default(),
            _ => &[],
        };
        items.iter().map(move |value| self.at(*value))
    }

    /// What a JSON Pointer leads to.
    pub fn pointer(self, pointer: &str) -> Option<Branch<'a>> {
        if pointer.is_empty() {
            return Some(self);
        }
        let steps = pointer.strip_prefix('/')?.split('/');
        steps.map(|step| step.replace("~1", "/").replace("~0", "~")).try_fold(self, |at, step| {
            match at.value {
                Value::List(_) => at.items().nth(step.parse().ok()?),
                _ => at.get(&step),
            }
        })
    }

    /// Everything below it, itself first, in no order to rely on.
    pub fn all(self) -> impl Iterator<Item = Branch<'a>> {
        let mut open = vec![self];
        std::iter::from_fn(move || {
            let next = open.pop()?;
            open.extend(next.fields().map(|(_, value)| value));
            open.extend(next.items());
            Some(next)
        })
    }

    /// A copy. How deep it can be is bounded where trees are read.
    pub fn to_json(self) -> Json {
        match self.value {
            Value::Null => Json::Null,
            Value::Bool(flag) => Json::Bool(flag),
            Value::Number(_) => self.as_number().map_or(Json::Null, Json::Number),
            Value::Text(word) => Json::String(self.tree.words.get(word).to_owned()),
            Value::List(_) => Json::Array(self.items().map(Branch::to_json).collect()),
            Value::Fields(_) => {
                let fields = self.fields().map(|(key, value)| (key.to_owned(), value.to_json()));
                Json::Object(fields.collect::<Map<String, Json>>())
            }
        }
    }
}

/// As serde_json compares them with text.
impl PartialEq<&str> for Branch<'_> {
    fn eq(&self, text: &&str) -> bool {
        self.as_str() == Some(text)
    }
}

#[cfg(test)]
mod tests;
