//! Size estimates: about how many bytes arguments and answers take in memory, on record,
//! in a cache.

use moonlark_core::content::{Content, ToolAnswer};
use moonlark_core::problem::{Problem, Result};
use moonlark_core::value::{Object, Value};

/// What each part takes besides its text.
pub struct ValueCosts {
    /// A text, bytes, or a list.
    sized_bytes: usize,
    plain_bytes: usize,
    object_bytes: usize,
    field_bytes: usize,
    problem_bytes: usize,
}

impl ValueCosts {
    /// In memory, while an entry of the journal waits to be written.
    pub(super) const QUEUED_COSTS: ValueCosts = ValueCosts {
        sized_bytes: 32,
        plain_bytes: 32,
        object_bytes: 64,
        field_bytes: 40,
        problem_bytes: 256,
    };
    /// On record, where they are kept exactly.
    pub const RECORDED_COSTS: ValueCosts = ValueCosts {
        sized_bytes: 3,
        plain_bytes: 5,
        object_bytes: 3,
        field_bytes: 3,
        problem_bytes: 0,
    };
    /// In memory, for as long as an answer is cached.
    pub(crate) const CACHED_COSTS: ValueCosts = ValueCosts {
        sized_bytes: size_of::<Value>(),
        plain_bytes: size_of::<Value>(),
        object_bytes: size_of::<Value>(),
        field_bytes: size_of::<Value>(),
        problem_bytes: 0,
    };

    /// Values are no deeper than [`MAX_VALUE_DEPTH`](moonlark_core::value::MAX_VALUE_DEPTH) here.
    pub fn value_bytes(&self, value: &Value) -> usize {
        match value {
            Value::Str(text) => self.sized_bytes + text.len(),
            Value::Bytes(bytes) => self.sized_bytes + bytes.len(),
            Value::Array(items) => self.sized_bytes + self.sum_bytes(items),
            Value::Object(fields) => self.fields_bytes(fields),
            _ => self.plain_bytes,
        }
    }

    pub fn result_bytes(&self, result: &Result<ToolAnswer>) -> usize {
        match result {
            Ok(answer) => self.answer_bytes(answer),
            Err(Problem { message, content, data, .. }) => {
                let content = content.as_deref().map_or(0, |it| self.content_bytes(it));
                let data = data.as_deref().map_or(0, |it| self.value_bytes(it));
                self.problem_bytes + message.len() + content + data
            }
        }
    }

    pub(crate) fn answer_bytes(&self, answer: &ToolAnswer) -> usize {
        match answer {
            ToolAnswer::Value(value) => self.value_bytes(value),
            ToolAnswer::Raw(fields) => self.fields_bytes(fields),
            ToolAnswer::Content(content) => self.content_bytes(content),
        }
    }

    fn content_bytes(&self, content: &Content) -> usize {
        let values = content.blocks.iter().chain(&content.structured);
        self.fields_bytes(&content.extra) + self.sum_bytes(values)
    }

    fn fields_bytes(&self, fields: &Object) -> usize {
        let names = fields.keys().map(|key| self.field_bytes + key.len()).sum::<usize>();
        self.object_bytes + names + self.sum_bytes(fields.values())
    }

    fn sum_bytes<'a>(&self, values: impl IntoIterator<Item = &'a Value>) -> usize {
        values.into_iter().map(|value| self.value_bytes(value)).sum()
    }
}
