//! From a parser's events to values.
//!
//! No recursion, and every value is paid for when it is made: an alias repeats
//! all it stands for, so a few lines can stand for gigabytes.

use std::collections::HashMap;

use granit_parser::{ErrorKind, Event, Marker, Parser, ScalarStyle, ScanError};
use moonlark_core::limits::size;
use moonlark_core::value::{MAX_DEPTH, Object, shorten};
use moonlark_core::{Problem, Result, Value};

use super::scalar;

/// The documents of a stream, which together stay within `limit` bytes.
pub(super) fn documents(text: &str, limit: usize) -> Result<Vec<Value>> {
    if text.len() > limit {
        return Err(too_large(limit));
    }
    let options = granit_parser::options! {
        flow_nesting_limit: MAX_DEPTH,
        block_nesting_limit: MAX_DEPTH,
        emit_comments: false,
    };
    let mut composer = Composer { limit, left: limit, ..Composer::default() };
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| explain(&error))?;
        composer.take(event, span.start)?;
    }
    Ok(composer.documents)
}

#[derive(Default)]
struct Composer {
    limit: usize,
    left: usize,
    documents: Vec<Value>,
    /// What is open, outermost first.
    open: Vec<Node>,
    anchors: HashMap<usize, Anchored>,
}

/// A list or a table that is not closed yet.
struct Node {
    anchor: usize,
    /// What of the limit was left before it.
    left_before: usize,
    /// Levels below it.
    depth: usize,
    content: Content,
}

enum Content {
    List(Vec<Value>),
    Table { fields: Object, key: Option<Key>, merged: Vec<Object> },
}

enum Key {
    Text(String),
    /// `<<`
    Merge,
}

/// What an alias can stand for.
#[derive(Clone)]
struct Anchored {
    value: Value,
    size: usize,
    depth: usize,
}

/// A value that is complete, and what it costs to have it once more.
struct Done {
    value: Value,
    depth: usize,
    /// Written without quotes, so that `<<` means what it says.
    plain: bool,
    /// As it is written, if it is one word.
    text: Option<String>,
}

/// What a value takes beside its text, wherever it is held, as a key or not.
const ENTRY: usize = 56;
/// What a list or a table takes, however little is in it.
const TABLE_BYTES: usize = 48;

impl Composer {
    fn take(&mut self, event: Event<'_>, at: Marker) -> Result<()> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let left_before = self.left;
                self.spend(text.len() + ENTRY)?;
                let plain = style == ScalarStyle::Plain;
                let value =
                    scalar::read(&text, plain, tag.as_deref()).map_err(|why| invalid(&why, at))?;
                self.remember(anchor, &value, left_before, 0)?;
                let text = Some(text.into_owned());
                self.put(Done { value, depth: 0, plain, text }, at)
            }
            Event::SequenceStart(_, anchor, _) => self.begin(anchor, Content::List(Vec::new())),
            Event::MappingStart(_, anchor, _) => {
                let (fields, key, merged) = (Object::new(), None, Vec::new());
                self.begin(anchor, Content::Table { fields, key, merged })
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(at),
            Event::Alias(anchor) => {
                // An anchor around its own alias is known to the parser, not to us.
                let Some(anchored) = self.anchors.get(&anchor) else {
                    return Err(invalid("the alias stands for what it is itself a part of", at));
                };
                let (size, depth) = (anchored.size, anchored.depth);
                if self.open.len() + depth > MAX_DEPTH {
                    return Err(too_deep());
                }
                self.spend(size)?;
                let value = self.anchors.get(&anchor).map_or(Value::Null, |it| it.value.clone());
                let text = scalar::key(&value);
                self.put(Done { value, depth, plain: false, text }, at)
            }
            Event::DocumentStart(..) => {
                self.anchors.clear();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn begin(&mut self, anchor: usize, content: Content) -> Result<()> {
        if self.open.len() >= MAX_DEPTH {
            return Err(too_deep());
        }
        let left_before = self.left;
        self.spend(ENTRY + TABLE_BYTES)?;
        self.open.push(Node { anchor, left_before, depth: 0, content });
        Ok(())
    }

    fn end(&mut self, at: Marker) -> Result<()> {
        let Some(node) = self.open.pop() else { return Ok(()) };
        let value = match node.content {
            Content::List(items) => Value::Array(items),
            Content::Table { mut fields, merged, .. } => {
                // What the table says itself comes first, then the earliest merge.
                for (key, value) in merged.into_iter().flatten() {
                    fields.entry(key).or_insert(value);
                }
                Value::Object(fields)
            }
        };
        let depth = node.depth + 1;
        self.remember(node.anchor, &value, node.left_before, depth)?;
        self.put(Done { value, depth, plain: false, text: None }, at)
    }

    /// Keep what an alias may stand for; that is one more copy of it.
    fn remember(
        &mut self,
        anchor: usize,
        value: &Value,
        before: usize,
        depth: usize,
    ) -> Result<()> {
        if anchor == 0 {
            return Ok(());
        }
        let size = before - self.left;
        self.spend(size + TABLE_BYTES)?;
        self.anchors.insert(anchor, Anchored { value: value.clone(), size, depth });
        Ok(())
    }

    fn put(&mut self, done: Done, at: Marker) -> Result<()> {
        let Some(node) = self.open.last_mut() else {
            self.documents.push(done.value);
            return Ok(());
        };
        node.depth = node.depth.max(done.depth);
        let (fields, key, merged) = match &mut node.content {
            Content::List(items) => {
                items.push(done.value);
                return Ok(());
            }
            Content::Table { fields, key, merged } => (fields, key, merged),
        };
        match key.take() {
            None => *key = Some(key_of(done, fields, at)?),
            Some(Key::Text(name)) => {
                fields.insert(name, done.value);
            }
            Some(Key::Merge) => merge(done.value, merged, at)?,
        }
        Ok(())
    }

    fn spend(&mut self, bytes: usize) -> Result<()> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| too_large(self.limit))?;
        Ok(())
    }
}

fn key_of(done: Done, fields: &Object, at: Marker) -> Result<Key> {
    let Some(text) = done.text else {
        return Err(invalid("a key is a list or a table", at)
            .hint("only text, numbers, booleans and null can be keys"));
    };
    if done.plain && text == "<<" {
        return Ok(Key::Merge);
    }
    if fields.contains_key(&text) {
        return Err(invalid(&format!("the key {:?} is there twice", shorten(&text)), at));
    }
    Ok(Key::Text(text))
}

fn merge(value: Value, merged: &mut Vec<Object>, at: Marker) -> Result<()> {
    let refuse = || invalid("<< needs a table or a list of tables", at);
    match value {
        Value::Object(table) => merged.push(table),
        Value::Array(items) => {
            for item in items {
                let Value::Object(table) = item else { return Err(refuse()) };
                merged.push(table);
            }
        }
        _ => return Err(refuse()),
    }
    Ok(())
}

fn explain(error: &ScanError) -> Problem {
    match error.kind() {
        ErrorKind::RecursionLimitExceeded => too_deep(),
        _ => invalid(&error.info(), *error.marker()),
    }
}

fn invalid(message: &str, at: Marker) -> Problem {
    let (line, column) = (at.line(), at.col() + 1);
    Problem::bad_request(format!("invalid YAML: {message}, at line {line}, column {column}"))
}

fn too_large(limit: usize) -> Problem {
    Problem::limit(format!("the YAML decodes to more than {}", size(limit)))
        .hint("work on less at a time, or raise limits.value")
}

fn too_deep() -> Problem {
    Problem::limit(format!("the YAML is nested deeper than {MAX_DEPTH} levels"))
}
