//! From a parser's events to values.
//!
//! No recursion, and every value is paid for when it is made: an alias repeats
//! all it stands for, so a few lines can stand for gigabytes.

use std::collections::HashMap;

use granit_parser::{ErrorKind, Event, Marker, Parser, ScalarStyle, ScanError};
use moonlark_core::limits::format_size;
use moonlark_core::value::{MAX_VALUE_DEPTH, Object, shorten_text};
use moonlark_core::{Problem, Result, Value};

use super::scalar;

/// The documents of a stream, which together stay within `limit` bytes.
pub(super) fn compose_documents(text: &str, limit: usize) -> Result<Vec<Value>> {
    if text.len() > limit {
        return Err(yaml_too_large_problem(limit));
    }
    let options = granit_parser::options! {
        flow_nesting_limit: MAX_VALUE_DEPTH,
        block_nesting_limit: MAX_VALUE_DEPTH,
        emit_comments: false,
    };
    let mut composer = YamlComposer { limit, left: limit, ..YamlComposer::default() };
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| explain_scan_error(&error))?;
        composer.accept_event(event, span.start)?;
    }
    Ok(composer.documents)
}

#[derive(Default)]
struct YamlComposer {
    limit: usize,
    left: usize,
    documents: Vec<Value>,
    /// What is open, outermost first.
    open: Vec<OpenCollection>,
    anchors: HashMap<usize, AnchoredValue>,
}

/// A list or a table that is not closed yet.
struct OpenCollection {
    anchor: usize,
    /// What of the limit was left before it.
    left_before: usize,
    /// Levels below it.
    depth: usize,
    content: CollectionContent,
}

enum CollectionContent {
    List(Vec<Value>),
    Table { fields: Object, key: Option<YamlKey>, merged: Vec<Object> },
}

enum YamlKey {
    Text(String),
    /// `<<`
    Merge,
}

/// What an alias can stand for.
#[derive(Clone)]
struct AnchoredValue {
    value: Value,
    size: usize,
    depth: usize,
}

/// A value that is complete, and what it costs to have it once more.
struct ComposedValue {
    value: Value,
    depth: usize,
    /// Written without quotes, so that `<<` means what it says.
    plain: bool,
    /// As it is written, if it is one word.
    text: Option<String>,
}

/// What a value takes beside its text, wherever it is held, as a key or not.
const YAML_ENTRY_OVERHEAD_BYTES: usize = 56;
/// What a list or a table takes, however little is in it.
const YAML_COLLECTION_OVERHEAD_BYTES: usize = 48;

impl YamlComposer {
    fn accept_event(&mut self, event: Event<'_>, at: Marker) -> Result<()> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let left_before = self.left;
                self.charge_bytes(text.len() + YAML_ENTRY_OVERHEAD_BYTES)?;
                let plain = style == ScalarStyle::Plain;
                let value = scalar::parse_scalar(&text, plain, tag.as_deref())
                    .map_err(|why| invalid_yaml_problem(&why, at))?;
                self.remember_anchor(anchor, &value, left_before, 0)?;
                let text = Some(text.into_owned());
                self.add_value(ComposedValue { value, depth: 0, plain, text }, at)
            }
            Event::SequenceStart(_, anchor, _) => {
                self.open_collection(anchor, CollectionContent::List(Vec::new()))
            }
            Event::MappingStart(_, anchor, _) => {
                let (fields, key, merged) = (Object::new(), None, Vec::new());
                self.open_collection(anchor, CollectionContent::Table { fields, key, merged })
            }
            Event::SequenceEnd | Event::MappingEnd => self.close_collection(at),
            Event::Alias(anchor) => {
                // An anchor around its own alias is known to the parser, not to us.
                let Some(anchored) = self.anchors.get(&anchor) else {
                    return Err(invalid_yaml_problem(
                        "the alias stands for what it is itself a part of",
                        at,
                    ));
                };
                let (size, depth) = (anchored.size, anchored.depth);
                if self.open.len() + depth > MAX_VALUE_DEPTH {
                    return Err(yaml_too_deep_problem());
                }
                self.charge_bytes(size)?;
                let value = self.anchors.get(&anchor).map_or(Value::Null, |it| it.value.clone());
                let text = scalar::key_text(&value);
                self.add_value(ComposedValue { value, depth, plain: false, text }, at)
            }
            Event::DocumentStart(..) => {
                self.anchors.clear();
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn open_collection(&mut self, anchor: usize, content: CollectionContent) -> Result<()> {
        if self.open.len() >= MAX_VALUE_DEPTH {
            return Err(yaml_too_deep_problem());
        }
        let left_before = self.left;
        self.charge_bytes(YAML_ENTRY_OVERHEAD_BYTES + YAML_COLLECTION_OVERHEAD_BYTES)?;
        self.open.push(OpenCollection { anchor, left_before, depth: 0, content });
        Ok(())
    }

    fn close_collection(&mut self, at: Marker) -> Result<()> {
        let Some(node) = self.open.pop() else { return Ok(()) };
        let value = match node.content {
            CollectionContent::List(items) => Value::Array(items),
            CollectionContent::Table { mut fields, merged, .. } => {
                // What the table says itself comes first, then the earliest merge.
                for (key, value) in merged.into_iter().flatten() {
                    fields.entry(key).or_insert(value);
                }
                Value::Object(fields)
            }
        };
        let depth = node.depth + 1;
        self.remember_anchor(node.anchor, &value, node.left_before, depth)?;
        self.add_value(ComposedValue { value, depth, plain: false, text: None }, at)
    }

    /// Keep what an alias may stand for; that is one more copy of it.
    fn remember_anchor(
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
        self.charge_bytes(size + YAML_COLLECTION_OVERHEAD_BYTES)?;
        self.anchors.insert(anchor, AnchoredValue { value: value.clone(), size, depth });
        Ok(())
    }

    fn add_value(&mut self, done: ComposedValue, at: Marker) -> Result<()> {
        let Some(node) = self.open.last_mut() else {
            self.documents.push(done.value);
            return Ok(());
        };
        node.depth = node.depth.max(done.depth);
        let (fields, key, merged) = match &mut node.content {
            CollectionContent::List(items) => {
                items.push(done.value);
                return Ok(());
            }
            CollectionContent::Table { fields, key, merged } => (fields, key, merged),
        };
        match key.take() {
            None => *key = Some(key_from_value(done, fields, at)?),
            Some(YamlKey::Text(name)) => {
                fields.insert(name, done.value);
            }
            Some(YamlKey::Merge) => collect_merged_tables(done.value, merged, at)?,
        }
        Ok(())
    }

    fn charge_bytes(&mut self, bytes: usize) -> Result<()> {
        self.left =
            self.left.checked_sub(bytes).ok_or_else(|| yaml_too_large_problem(self.limit))?;
        Ok(())
    }
}

fn key_from_value(done: ComposedValue, fields: &Object, at: Marker) -> Result<YamlKey> {
    let Some(text) = done.text else {
        return Err(invalid_yaml_problem("a key is a list or a table", at)
            .with_hint("only text, numbers, booleans and null can be keys"));
    };
    if done.plain && text == "<<" {
        return Ok(YamlKey::Merge);
    }
    if fields.contains_key(&text) {
        return Err(invalid_yaml_problem(
            &format!("the key {:?} is there twice", shorten_text(&text)),
            at,
        ));
    }
    Ok(YamlKey::Text(text))
}

fn collect_merged_tables(value: Value, merged: &mut Vec<Object>, at: Marker) -> Result<()> {
    let refuse = || invalid_yaml_problem("<< needs a table or a list of tables", at);
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

fn explain_scan_error(error: &ScanError) -> Problem {
    match error.kind() {
        ErrorKind::RecursionLimitExceeded => yaml_too_deep_problem(),
        _ => invalid_yaml_problem(&error.info(), *error.marker()),
    }
}

fn invalid_yaml_problem(message: &str, at: Marker) -> Problem {
    let (line, column) = (at.line(), at.col() + 1);
    Problem::bad_request(format!("invalid YAML: {message}, at line {line}, column {column}"))
}

fn yaml_too_large_problem(limit: usize) -> Problem {
    Problem::limit_exceeded(format!("the YAML decodes to more than {}", format_size(limit)))
        .with_hint("work on less at a time, or raise limits.value")
}

fn yaml_too_deep_problem() -> Problem {
    Problem::limit_exceeded(format!("the YAML is nested deeper than {MAX_VALUE_DEPTH} levels"))
}
