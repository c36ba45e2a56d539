//! What the answers of one tool look like, all together.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::form::{DEEPEST, Form, Look};
use crate::content::Answer;
use crate::value::{Object, Value};

/// Fields and lists in one shape. What has more is held less deep.
const MOST: usize = 400;
/// The longest text that is tried as JSON.
const TRIED: usize = 256 * 1024;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// Answers it was learned from.
    calls: u32,
    /// Levels that are held; what lies deeper may be anything.
    depth: usize,
    form: Form,
}

impl Shape {
    /// The shape of one value. A text that is JSON is one whose content is
    /// known as well.
    pub fn of(value: &Value) -> Shape {
        let look = &mut Look::default();
        Self::new(match value {
            Value::Str(text) => of_text(text, look),
            value => Form::of(value, 0, look),
        })
    }

    /// The shape of the value that a script gets for an answer. None if there
    /// is no such value.
    pub(super) fn of_answer(answer: &Answer) -> Option<Shape> {
        let content = match answer {
            Answer::Raw(_) => return None,
            Answer::Value(value) => return Some(Shape::of(value)),
            Answer::Content(content) => content,
        };
        if let Some(structured) = &content.structured {
            return Some(Shape::of(structured));
        }
        let look = &mut Look::default();
        Some(Self::new(match content.blocks.as_slice() {
            [block] => of_block(block, look),
            blocks => {
                let seen = blocks.iter().take(super::form::ITEMS);
                let blocks: Vec<Form> = seen.map(|block| of_block(block, look).nested()).collect();
                Form::list(blocks)
            }
        }))
    }

    fn new(form: Form) -> Shape {
        Shape { calls: 1, depth: DEEPEST, form }.bounded()
    }

    /// How many answers it was learned from.
    pub fn calls(&self) -> u32 {
        self.calls
    }

    /// As a JSON Schema. What a text holds that is JSON is its `contentSchema`.
    pub fn to_schema(&self) -> Json {
        self.form.to_schema()
    }

    /// Both: what was in every one is sure, what was in some may be there.
    /// The order does not matter.
    pub(super) fn merge(&mut self, other: Shape) {
        self.calls = self.calls.saturating_add(other.calls);
        self.depth = self.depth.min(other.depth);
        self.form.merge(other.form);
        self.bound();
    }

    /// The same within the bounds, for one that comes from a file.
    pub(super) fn bounded(mut self) -> Shape {
        self.depth = self.depth.clamp(1, DEEPEST);
        self.form.tidy();
        self.bound();
        self
    }

    fn bound(&mut self) {
        self.form.prune(self.depth);
        while self.depth > 1 && self.form.parts() > MOST {
            self.depth -= 1;
            self.form.prune(self.depth);
        }
    }

    /// About what it takes in memory and on disk.
    pub(super) fn bytes(&self) -> usize {
        self.form.bytes()
    }
}

fn of_text(text: &str, look: &mut Look) -> Form {
    let trimmed = text.trim_ascii();
    let bracketed = (trimmed.starts_with('{') && trimmed.ends_with('}'))
        || (trimmed.starts_with('[') && trimmed.ends_with(']'));
    if !bracketed {
        return Form::text();
    }
    if trimmed.len() > TRIED {
        // Very likely JSON, of which nothing is known.
        return Form::json_text(Form::default());
    }
    match Value::parse_json(trimmed.as_bytes()) {
        Ok(value) => Form::json_text(Form::of(&value, 1, look)),
        Err(_) => Form::text(),
    }
}

/// A block of content as scripts see it: a text is its text, and bytes are
/// only named.
fn of_block(block: &Value, look: &mut Look) -> Form {
    let Value::Object(fields) = block else { return Form::of(block, 0, look) };
    let kind = fields.get("type").and_then(Value::as_str);
    match (kind, fields.get("text"), fields.get("resource")) {
        (Some("text"), Some(Value::Str(text)), _) => of_text(text, look),
        (Some("image" | "audio"), ..) => Form::of(&without_bytes(fields, "data"), 0, look),
        (Some("resource"), _, Some(Value::Object(resource))) if resource.contains_key("blob") => {
            let mut fields = fields.clone();
            fields.insert("resource".to_owned(), without_bytes(resource, "blob"));
            Form::of(&Value::Object(fields), 0, look)
        }
        _ => Form::of(block, 0, look),
    }
}

fn without_bytes(fields: &Object, bytes: &str) -> Value {
    let others = fields.iter().filter(|(key, _)| key.as_str() != bytes);
    let mut seen: Object = others.map(|(key, value)| (key.clone(), value.clone())).collect();
    seen.insert("size".to_owned(), Value::Int(0));
    seen.insert("handle".to_owned(), Value::from(""));
    Value::Object(seen)
}
