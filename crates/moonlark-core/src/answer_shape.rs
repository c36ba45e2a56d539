//! Learned result shapes: what the answers of one tool look like, all together.

mod shape_node;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::content::ToolAnswer;
use crate::value::{Object, Value};
use shape_node::{MAX_SHAPE_DEPTH, ObservationBudget, ShapeNode};

/// Fields and lists in one shape. What has more is held less deep.
const MAX_SHAPE_NODES: usize = 400;
/// The longest text that is tried as JSON.
const MAX_PARSED_TEXT_BYTES: usize = 256 * 1024;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerShape {
    /// Answers it was learned from.
    calls: u32,
    /// Levels that are held; what lies deeper may be anything.
    depth: usize,
    form: ShapeNode,
}

impl AnswerShape {
    /// The shape of one value. A text that is JSON is one whose content is
    /// known as well.
    pub fn from_value(value: &Value) -> AnswerShape {
        let look = &mut ObservationBudget::default();
        Self::new(match value {
            Value::Str(text) => node_from_text(text, look),
            value => ShapeNode::from_value(value, 0, look),
        })
    }

    /// The shape of the value that a script gets for an answer. None if there
    /// is no such value.
    pub fn from_answer(answer: &ToolAnswer) -> Option<AnswerShape> {
        let content = match answer {
            ToolAnswer::Raw(_) => return None,
            ToolAnswer::Value(value) => return Some(AnswerShape::from_value(value)),
            ToolAnswer::Content(content) => content,
        };
        if let Some(structured) = &content.structured {
            return Some(AnswerShape::from_value(structured));
        }
        let look = &mut ObservationBudget::default();
        Some(Self::new(match content.blocks.as_slice() {
            [block] => node_from_block(block, look),
            blocks => {
                let seen = blocks.iter().take(shape_node::MAX_OBSERVED_ITEMS);
                let blocks: Vec<ShapeNode> =
                    seen.map(|block| node_from_block(block, look).into_nested()).collect();
                ShapeNode::list_of(blocks)
            }
        }))
    }

    fn new(form: ShapeNode) -> AnswerShape {
        AnswerShape { calls: 1, depth: MAX_SHAPE_DEPTH, form }.into_bounded()
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
    pub fn merge(&mut self, other: AnswerShape) {
        self.calls = self.calls.saturating_add(other.calls);
        self.depth = self.depth.min(other.depth);
        self.form.merge(other.form);
        self.prune_to_bounds();
    }

    /// The same within the bounds, for one that comes from a file.
    pub fn into_bounded(mut self) -> AnswerShape {
        self.depth = self.depth.clamp(1, MAX_SHAPE_DEPTH);
        self.form.normalize_shape();
        self.prune_to_bounds();
        self
    }

    fn prune_to_bounds(&mut self) {
        self.form.prune_to_depth(self.depth);
        while self.depth > 1 && self.form.count_nodes() > MAX_SHAPE_NODES {
            self.depth -= 1;
            self.form.prune_to_depth(self.depth);
        }
    }

    /// About what it takes in memory and on disk.
    pub fn approx_bytes(&self) -> usize {
        self.form.approx_bytes()
    }
}

fn node_from_text(text: &str, look: &mut ObservationBudget) -> ShapeNode {
    let trimmed = text.trim_ascii();
    let bracketed = (trimmed.starts_with('{') && trimmed.ends_with('}'))
        || (trimmed.starts_with('[') && trimmed.ends_with(']'));
    if !bracketed {
        return ShapeNode::any_text();
    }
    if trimmed.len() > MAX_PARSED_TEXT_BYTES {
        // Very likely JSON, of which nothing is known.
        return ShapeNode::json_text(ShapeNode::default());
    }
    match Value::parse_json(trimmed.as_bytes()) {
        Ok(value) => ShapeNode::json_text(ShapeNode::from_value(&value, 1, look)),
        Err(_) => ShapeNode::any_text(),
    }
}

/// A block of content as scripts see it: a text is its text, and bytes are
/// only named.
fn node_from_block(block: &Value, look: &mut ObservationBudget) -> ShapeNode {
    let Value::Object(fields) = block else { return ShapeNode::from_value(block, 0, look) };
    let kind = fields.get("type").and_then(Value::as_str);
    match (kind, fields.get("text"), fields.get("resource")) {
        (Some("text"), Some(Value::Str(text)), _) => node_from_text(text, look),
        (Some("image" | "audio"), ..) => {
            ShapeNode::from_value(&without_bytes(fields, "data"), 0, look)
        }
        (Some("resource"), _, Some(Value::Object(resource))) if resource.contains_key("blob") => {
            let mut fields = fields.clone();
            fields.insert("resource".to_owned(), without_bytes(resource, "blob"));
            ShapeNode::from_value(&Value::Object(fields), 0, look)
        }
        _ => ShapeNode::from_value(block, 0, look),
    }
}

fn without_bytes(fields: &Object, bytes: &str) -> Value {
    let others = fields.iter().filter(|(key, _)| key.as_str() != bytes);
    let mut seen: Object = others.map(|(key, value)| (key.clone(), value.clone())).collect();
    seen.insert("size".to_owned(), Value::Int(0));
    seen.insert("handle".to_owned(), Value::from(""));
    Value::Object(seen)
}
