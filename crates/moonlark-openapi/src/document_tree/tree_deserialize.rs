//! Trees out of whatever serde reads: JSON, YAML, values in memory.

use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::{DocumentTree, MIN_SORTED_FIELDS, TextId, TreeSpan, TreeValue};

/// How deep a document may nest.
pub(super) const MAX_DOCUMENT_DEPTH: usize = 256;

/// What serde_json calls a number whose digits it keeps.
const SERDE_JSON_NUMBER_KEY: &str = "$serde_json::private::Number";

impl<'de> Deserialize<'de> for DocumentTree {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<DocumentTree, D::Error> {
        let mut builder = DocumentTreeBuilder::default();
        let root = TreeValueSeed(&mut builder).deserialize(from)?;
        Ok(builder.finish_tree(root))
    }
}

#[derive(Default)]
struct DocumentTreeBuilder {
    tree: DocumentTree,
    known: HashMap<Box<str>, TextId>,
    /// What belongs to objects and lists that are not complete.
    open: Vec<(TextId, TreeValue)>,
    depth: usize,
}

impl DocumentTreeBuilder {
    fn finish_tree(mut self, root: TreeValue) -> DocumentTree {
        let DocumentTree { words, fields, items, .. } = &mut self.tree;
        words.text.shrink_to_fit();
        words.ends.shrink_to_fit();
        fields.shrink_to_fit();
        items.shrink_to_fit();
        self.tree.root = root;
        self.tree
    }

    fn intern_text<E: Error>(&mut self, text: &str) -> Result<TextId, E> {
        if let Some(word) = self.known.get(text) {
            return Ok(*word);
        }
        let words = &mut self.tree.words;
        let word = TextId(checked_index(words.ends.len())?);
        words.text.push_str(text);
        words.ends.push(checked_index(words.text.len())?);
        self.known.insert(text.into(), word);
        Ok(word)
    }

    fn build_list<E: Error>(&mut self, begins: usize) -> Result<TreeValue, E> {
        let span = checked_span(self.tree.items.len(), self.open.len() - begins)?;
        self.tree.items.extend(self.open.drain(begins..).map(|(_, value)| value));
        Ok(TreeValue::List(span))
    }

    fn build_object<E: Error>(&mut self, begins: usize) -> Result<TreeValue, E> {
        self.keep_last_duplicates(begins);
        let (start, length) = (self.tree.fields.len(), self.open.len() - begins);
        let span = checked_span(start, length)?;
        self.tree.fields.extend(self.open.drain(begins..));
        if length >= MIN_SORTED_FIELDS {
            let mut order: Vec<u32> = (0..span.length).collect();
            let name = |at: &u32| self.tree.words.get(self.tree.fields[start + *at as usize].0);
            order.sort_unstable_by(|one, other| name(one).cmp(name(other)));
            self.tree.sorted.insert(span.start, order.into());
        }
        Ok(TreeValue::Fields(span))
    }

    /// A name that is there twice is there once, as what it was last.
    fn keep_last_duplicates(&mut self, begins: usize) {
        let entries = &self.open[begins..];
        let twice = match entries.len() {
            0..=MIN_SORTED_FIELDS => (1..entries.len())
                .any(|at| entries[..at].iter().any(|(key, _)| *key == entries[at].0)),
            length => {
                let mut seen = std::collections::HashSet::with_capacity(length);
                !entries.iter().all(|(key, _)| seen.insert(*key))
            }
        };
        if !twice {
            return;
        }
        let mut kept: indexmap::IndexMap<TextId, TreeValue> = indexmap::IndexMap::new();
        kept.extend(self.open.drain(begins..));
        self.open.extend(kept);
    }
}

fn checked_index<E: Error>(length: usize) -> Result<u32, E> {
    u32::try_from(length).map_err(|_| E::custom("it is too large"))
}

fn checked_span<E: Error>(start: usize, length: usize) -> Result<TreeSpan, E> {
    Ok(TreeSpan { start: checked_index(start)?, length: checked_index(length)? })
}

/// Reads one value into the builder.
struct TreeValueSeed<'b>(&'b mut DocumentTreeBuilder);

impl<'de> DeserializeSeed<'de> for TreeValueSeed<'_> {
    type Value = TreeValue;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<TreeValue, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TreeValueSeed<'_> {
    type Value = TreeValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<TreeValue, E> {
        Ok(TreeValue::Null)
    }

    fn visit_none<E: Error>(self) -> Result<TreeValue, E> {
        Ok(TreeValue::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<TreeValue, D::Error> {
        from.deserialize_any(self)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<TreeValue, E> {
        Ok(TreeValue::Bool(flag))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<TreeValue, E> {
        self.0.intern_text(&number.to_string()).map(TreeValue::Number)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<TreeValue, E> {
        self.0.intern_text(&number.to_string()).map(TreeValue::Number)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<TreeValue, E> {
        // What JSON has no number for is null, as serde_json has it.
        match serde_json::Number::from_f64(number) {
            Some(number) => self.0.intern_text(&number.to_string()).map(TreeValue::Number),
            None => Ok(TreeValue::Null),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<TreeValue, E> {
        self.0.intern_text(text).map(TreeValue::Text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<TreeValue, A::Error> {
        let builder = self.0;
        let begins = builder.open.len();
        enter_level(builder)?;
        while let Some(value) = from.next_element_seed(TreeValueSeed(builder))? {
            builder.open.push((TextId(0), value));
        }
        builder.depth -= 1;
        builder.build_list(begins)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<TreeValue, A::Error> {
        let builder = self.0;
        let begins = builder.open.len();
        enter_level(builder)?;
        while let Some(key) = from.next_key_seed(TreeKeySeed(builder))? {
            let Some(key) = key else {
                builder.depth -= 1;
                let digits: String = from.next_value()?;
                return builder.intern_text(&digits).map(TreeValue::Number);
            };
            let value = from.next_value_seed(TreeValueSeed(builder))?;
            builder.open.push((key, value));
        }
        builder.depth -= 1;
        builder.build_object(begins)
    }
}

fn enter_level<E: Error>(builder: &mut DocumentTreeBuilder) -> Result<(), E> {
    builder.depth += 1;
    if builder.depth > MAX_DOCUMENT_DEPTH {
        Err(E::custom(format_args!("it nests deeper than {MAX_DOCUMENT_DEPTH} levels")))
    } else {
        Ok(())
    }
}

/// The name of a field; none for what stands before the digits of a number.
struct TreeKeySeed<'b>(&'b mut DocumentTreeBuilder);

impl<'de> DeserializeSeed<'de> for TreeKeySeed<'_> {
    type Value = Option<TextId>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<TextId>, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for TreeKeySeed<'_> {
    type Value = Option<TextId>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<TextId>, E> {
        if text == SERDE_JSON_NUMBER_KEY {
            return Ok(None);
        }
        self.0.intern_text(text).map(Some)
    }
}
