//! Trees out of whatever serde reads: JSON, YAML, values in memory.

use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::{MANY, Span, Tree, Value, Word};

/// How deep a document may nest.
pub(super) const MAX_DEPTH: usize = 256;

/// What serde_json calls a number whose digits it keeps.
const NUMBER: &str = "$serde_json::private::Number";

impl<'de> Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Tree, D::Error> {
        let mut builder = Builder::default();
        let root = Seed(&mut builder).deserialize(from)?;
        Ok(builder.finish(root))
    }
}

#[derive(Default)]
struct Builder {
    tree: Tree,
    known: HashMap<Box<str>, Word>,
    /// What belongs to objects and lists that are not complete.
    open: Vec<(Word, Value)>,
    depth: usize,
}

impl Builder {
    fn finish(mut self, root: Value) -> Tree {
        let Tree { words, fields, items, .. } = &mut self.tree;
        words.text.shrink_to_fit();
        words.ends.shrink_to_fit();
        fields.shrink_to_fit();
        items.shrink_to_fit();
        self.tree.root = root;
        self.tree
    }

    fn word<E: Error>(&mut self, text: &str) -> Result<Word, E> {
        if let Some(word) = self.known.get(text) {
            return Ok(*word);
        }
        let words = &mut self.tree.words;
        let word = Word(index(words.ends.len())?);
        words.text.push_str(text);
        words.ends.push(index(words.text.len())?);
        self.known.insert(text.into(), word);
        Ok(word)
    }

    fn list<E: Error>(&mut self, begins: usize) -> Result<Value, E> {
        let span = span(self.tree.items.len(), self.open.len() - begins)?;
        self.tree.items.extend(self.open.drain(begins..).map(|(_, value)| value));
        Ok(Value::List(span))
    }

    fn object<E: Error>(&mut self, begins: usize) -> Result<Value, E> {
        self.last_of_each(begins);
        let (start, length) = (self.tree.fields.len(), self.open.len() - begins);
        let span = span(start, length)?;
        self.tree.fields.extend(self.open.drain(begins..));
        if length >= MANY {
            let mut order: Vec<u32> = (0..span.length).collect();
            let name = |at: &u32| self.tree.words.get(self.tree.fields[start + *at as usize].0);
            order.sort_unstable_by(|one, other| name(one).cmp(name(other)));
            self.tree.sorted.insert(span.start, order.into());
        }
        Ok(Value::Fields(span))
    }

    /// A name that is there twice is there once, as what it was last.
    fn last_of_each(&mut self, begins: usize) {
        let entries = &self.open[begins..];
        let twice = match entries.len() {
            0..=MANY => (1..entries.len())
                .any(|at| entries[..at].iter().any(|(key, _)| *key == entries[at].0)),
            length => {
                let mut seen = std::collections::HashSet::with_capacity(length);
                !entries.iter().all(|(key, _)| seen.insert(*key))
            }
        };
        if !twice {
            return;
        }
        let mut kept: indexmap::IndexMap<Word, Value> = indexmap::IndexMap::new();
        kept.extend(self.open.drain(begins..));
        self.open.extend(kept);
    }
}

fn index<E: Error>(length: usize) -> Result<u32, E> {
    u32::try_from(length).map_err(|_| E::custom("it is too large"))
}

fn span<E: Error>(start: usize, length: usize) -> Result<Span, E> {
    Ok(Span { start: index(start)?, length: index(length)? })
}

/// Reads one value into the builder.
struct Seed<'b>(&'b mut Builder);

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }

    fn visit_bool<E: Error>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        self.0.word(&number.to_string()).map(Value::Number)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        self.0.word(&number.to_string()).map(Value::Number)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        // What JSON has no number for is null, as serde_json has it.
        match serde_json::Number::from_f64(number) {
            Some(number) => self.0.word(&number.to_string()).map(Value::Number),
            None => Ok(Value::Null),
        }
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        self.0.word(text).map(Value::Text)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let builder = self.0;
        let begins = builder.open.len();
        deeper(builder)?;
        while let Some(value) = from.next_element_seed(Seed(builder))? {
            builder.open.push((Word(0), value));
        }
        builder.depth -= 1;
        builder.list(begins)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let builder = self.0;
        let begins = builder.open.len();
        deeper(builder)?;
        while let Some(key) = from.next_key_seed(Key(builder))? {
            let Some(key) = key else {
                builder.depth -= 1;
                let digits: String = from.next_value()?;
                return builder.word(&digits).map(Value::Number);
            };
            let value = from.next_value_seed(Seed(builder))?;
            builder.open.push((key, value));
        }
        builder.depth -= 1;
        builder.object(begins)
    }
}

fn deeper<E: Error>(builder: &mut Builder) -> Result<(), E> {
    builder.depth += 1;
    match builder.depth > MAX_DEPTH {
        true => Err(E::custom(format_args!("it nests deeper than {MAX_DEPTH} levels"))),
        false => Ok(()),
    }
}

/// The name of a field; none for what stands before the digits of a number.
struct Key<'b>(&'b mut Builder);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Option<Word>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<Word>, D::Error> {
        from.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<Word>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<Word>, E> {
        if text == NUMBER {
            return Ok(None);
        }
        self.0.word(text).map(Some)
    }
}
