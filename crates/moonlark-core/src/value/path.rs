//! Paths into values: `result.items[3].name`.

use std::fmt;

use super::MAX_VALUE_DEPTH;
use crate::limits::format_size;
use crate::problem::{Problem, Result};

/// The way down to the value being converted, for messages such as
/// `result.items[3].name`.
#[derive(Debug)]
pub struct ValuePath {
    root: String,
    steps: Vec<ValuePathStep>,
}

#[derive(Debug)]
enum ValuePathStep {
    Key(String),
    Index(usize),
}

impl ValuePath {
    pub fn new(root: &str) -> Self {
        Self { root: root.to_owned(), steps: Vec::new() }
    }

    pub fn depth(&self) -> usize {
        self.steps.len()
    }

    pub fn push_key(&mut self, key: &str) -> Result<()> {
        self.push_step(ValuePathStep::Key(key.to_owned()))
    }

    /// `index` counts from zero.
    pub fn push_index(&mut self, index: usize) -> Result<()> {
        self.push_step(ValuePathStep::Index(index))
    }

    pub fn pop(&mut self) {
        self.steps.pop();
    }

    fn push_step(&mut self, step: ValuePathStep) -> Result<()> {
        if self.steps.len() >= MAX_VALUE_DEPTH {
            return Err(Problem::limit_exceeded(format!(
                "{} is nested deeper than {MAX_VALUE_DEPTH} levels",
                self.root
            ))
            .with_hint("return a flatter value"));
        }
        self.steps.push(step);
        Ok(())
    }
}

impl fmt::Display for ValuePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.root)?;
        for step in &self.steps {
            match step {
                ValuePathStep::Index(index) => write!(f, "[{index}]")?,
                ValuePathStep::Key(key) if is_plain_key(key) => write!(f, ".{key}")?,
                ValuePathStep::Key(key) => write!(f, "[{:?}]", shorten_text(key))?,
            }
        }
        Ok(())
    }
}

/// The bytes that a value may still have, for whoever copies one.
#[derive(Debug)]
pub struct ValueBudget {
    left: usize,
    limit: usize,
}

impl ValueBudget {
    pub fn new(limit: usize) -> Self {
        Self { left: limit, limit }
    }

    /// Count what is at `path`, before it is copied.
    pub fn spend_bytes(&mut self, bytes: usize, path: &ValuePath) -> Result<()> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(Problem::limit_exceeded(format!(
                "{path} is larger than {}",
                format_size(self.limit)
            ))
            .with_hint("return less, or raise limits.value")),
        }
    }
}

fn is_plain_key(key: &str) -> bool {
    let mut bytes = key.bytes();
    key.len() <= 64
        && bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// At most 100 characters of `text`, for messages.
pub fn shorten_text(text: &str) -> std::borrow::Cow<'_, str> {
    match text.char_indices().nth(100) {
        Some((cut, _)) => format!("{}…", &text[..cut]).into(),
        None => text.into(),
    }
}
