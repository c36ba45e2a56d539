//! The tree of a document, in about as much memory as its text takes.
//!
//! A document of an API is hundreds of thousands of small values, and most of
//! its words stand in it many times. Here every word is kept once, and a value
//! is twelve bytes in a list. It is read, never changed.

use std::collections::HashMap;

use serde_json::{Map, Number, Value as Json};

mod tree_deserialize;

/// From this many fields on, names are looked up in an order of their own.
const MIN_SORTED_FIELDS: usize = 24;

#[derive(Debug, Default)]
pub struct DocumentTree {
    /// The file that it is of, for the `$ref`s in it; empty for the document itself.
    pub(crate) address: String,
    words: TextTable,
    fields: Vec<(TextId, TreeValue)>,
    items: Vec<TreeValue>,
    /// The fields of large objects by their names, by where they begin.
    sorted: HashMap<u32, Box<[u32]>>,
    root: TreeValue,
}

/// A value: itself, or where it is in its tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum TreeValue {
    #[default]
    Null,
    Bool(bool),
    /// As it was written.
    Number(TextId),
    Text(TextId),
    List(TreeSpan),
    Fields(TreeSpan),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TextId(u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TreeSpan {
    start: u32,
    length: u32,
}

impl TreeSpan {
    fn index_range(self) -> std::ops::Range<usize> {
        let start = self.start as usize;
        start..start + self.length as usize
    }
}

/// All words, one after the other.
#[derive(Debug, Default)]
struct TextTable {
    text: String,
    ends: Vec<u32>,
}

impl TextTable {
    fn get(&self, TextId(index): TextId) -> &str {
        let index = index as usize;
        let start = index.checked_sub(1).and_then(|before| self.ends.get(before));
        let (start, end) = (start.copied().unwrap_or(0), self.ends.get(index).copied());
        self.text.get(start as usize..end.unwrap_or(start) as usize).unwrap_or_default()
    }
}

impl DocumentTree {
    /// Of JSON that is in memory already.
    pub fn from_json(json: &Json) -> DocumentTree {
        serde::Deserialize::deserialize(json).unwrap_or_default()
    }

    pub fn root_node(&self) -> TreeNode<'_> {
        TreeNode { tree: self, value: self.root }
    }

    fn field_entries(&self, span: TreeSpan) -> &[(TextId, TreeValue)] {
        self.fields.get(span.index_range()).unwrap_or_default()
    }

    fn find_field(&self, span: TreeSpan, name: &str) -> Option<TreeValue> {
        let entries = self.field_entries(span);
        let Some(order) =
            self.sorted.get(&span.start).filter(|_| entries.len() >= MIN_SORTED_FIELDS)
        else {
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
pub struct TreeNode<'a> {
    pub(crate) tree: &'a DocumentTree,
    pub(crate) value: TreeValue,
}

impl<'a> TreeNode<'a> {
    fn with_value(self, value: TreeValue) -> TreeNode<'a> {
        TreeNode { value, ..self }
    }

    pub fn get(self, name: &str) -> Option<TreeNode<'a>> {
        match self.value {
            TreeValue::Fields(span) => {
                self.tree.find_field(span, name).map(|value| self.with_value(value))
            }
            _ => None,
        }
    }

    pub fn has_field(self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Whether the field is `true`.
    pub fn is_field_true(self, name: &str) -> bool {
        self.get(name).is_some_and(|it| it.value == TreeValue::Bool(true))
    }

    /// The items of the list in a field, if there is one.
    pub(crate) fn list_items(self, name: &str) -> impl Iterator<Item = TreeNode<'a>> + use<'a> {
        self.get(name).into_iter().flat_map(TreeNode::items)
    }

    /// The fields of the object in a field, if there is one.
    pub(crate) fn object_fields(
        self,
        name: &str,
    ) -> impl Iterator<Item = (&'a str, TreeNode<'a>)> + use<'a> {
        self.get(name).into_iter().flat_map(TreeNode::fields)
    }

    /// The field as text; empty if there is none.
    pub fn field_text(self, name: &str) -> &'a str {
        self.get(name).and_then(TreeNode::as_str).unwrap_or_default()
    }

    pub fn as_str(self) -> Option<&'a str> {
        match self.value {
            TreeValue::Text(word) => Some(self.tree.words.get(word)),
            _ => None,
        }
    }

    pub fn as_bool(self) -> Option<bool> {
        match self.value {
            TreeValue::Bool(flag) => Some(flag),
            _ => None,
        }
    }

    pub fn as_number(self) -> Option<Number> {
        match self.value {
            TreeValue::Number(word) => self.tree.words.get(word).parse().ok(),
            _ => None,
        }
    }

    pub fn is_object(self) -> bool {
        matches!(self.value, TreeValue::Fields(_))
    }

    pub fn is_array(self) -> bool {
        matches!(self.value, TreeValue::List(_))
    }

    /// Has neither fields nor items.
    pub fn is_empty(self) -> bool {
        match self.value {
            TreeValue::Fields(span) | TreeValue::List(span) => span.length == 0,
            _ => true,
        }
    }

    /// Nothing, unless it is an object.
    pub fn fields(self) -> impl Iterator<Item = (&'a str, TreeNode<'a>)> {
        let entries = match self.value {
            TreeValue::Fields(span) => self.tree.field_entries(span),
            _ => &[],
        };
        entries.iter().map(move |(key, value)| (self.tree.words.get(*key), self.with_value(*value)))
    }

    /// Nothing, unless it is a list.
    pub fn items(self) -> impl Iterator<Item = TreeNode<'a>> {
        let items = match self.value {
            TreeValue::List(span) => self.tree.items.get(span.index_range()).unwrap_or_default(),
            _ => &[],
        };
        items.iter().map(move |value| self.with_value(*value))
    }

    /// What a JSON Pointer leads to.
    pub fn resolve_pointer(self, pointer: &str) -> Option<TreeNode<'a>> {
        if pointer.is_empty() {
            return Some(self);
        }
        let steps = pointer.strip_prefix('/')?.split('/');
        steps.map(|step| step.replace("~1", "/").replace("~0", "~")).try_fold(self, |at, step| {
            match at.value {
                TreeValue::List(_) => at.items().nth(step.parse().ok()?),
                _ => at.get(&step),
            }
        })
    }

    /// Everything below it, itself first, in no order to rely on.
    pub fn iter_descendants(self) -> impl Iterator<Item = TreeNode<'a>> {
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
            TreeValue::Null => Json::Null,
            TreeValue::Bool(flag) => Json::Bool(flag),
            TreeValue::Number(_) => self.as_number().map_or(Json::Null, Json::Number),
            TreeValue::Text(word) => Json::String(self.tree.words.get(word).to_owned()),
            TreeValue::List(_) => Json::Array(self.items().map(TreeNode::to_json).collect()),
            TreeValue::Fields(_) => {
                let fields = self.fields().map(|(key, value)| (key.to_owned(), value.to_json()));
                Json::Object(fields.collect::<Map<String, Json>>())
            }
        }
    }
}

/// As serde_json compares them with text.
impl PartialEq<&str> for TreeNode<'_> {
    fn eq(&self, text: &&str) -> bool {
        self.as_str() == Some(text)
    }
}

#[cfg(test)]
mod tests;
