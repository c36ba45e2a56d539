//! Where in a value: `result.items[3].name`.

use std::fmt;

use super::MAX_DEPTH;
use crate::limits::size;
use crate::problem::{Problem, Result};

/// The way down to the value being converted, for messages such as
/// `result.items[3].name`.
#[derive(Debug)]
pub struct Path {
    root: String,
    steps: Vec<Step>,
}

#[derive(Debug)]
enum Step {
    Key(String),
    Index(usize),
}

impl Path {
    pub fn new(root: &str) -> Self {
        Self { root: root.to_owned(), steps: Vec::new() }
    }

    pub fn depth(&self) -> usize {
        self.steps.len()
    }

    pub fn push_key(&mut self, key: &str) -> Result<()> {
        self.push(Step::Key(key.to_owned()))
    }

    /// `index` counts from zero.
    pub fn push_index(&mut self, index: usize) -> Result<()> {
        self.push(Step::Index(index))
    }

    pub fn pop(&mut self) {
        self.steps.pop();
    }

    fn push(&mut self, step: Step) -> Result<()> {
        if self.steps.len() >= MAX_DEPTH {
            return Err(Problem::limit(format!(
                "{} is nested deeper than {MAX_DEPTH} levels",
                self.root
            ))
            .hint("return a flatter value"));
        }
        self.steps.push(step);
        Ok(())
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.root)?;
        for step in &self.steps {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) if is_name(key) => write!(f, ".{key}")?,
                Step::Key(key) => write!(f, "[{:?}]", shorten(key))?,
            }
        }
        Ok(())
    }
}

/// The bytes that a value may still have, for whoever copies one.
#[derive(Debug)]
pub struct Budget {
    left: usize,
    limit: usize,
}

impl Budget {
    pub fn new(limit: usize) -> Self {
        Self { left: limit, limit }
    }

    /// Count what is at `path`, before it is copied.
    pub fn spend(&mut self, bytes: usize, path: &Path) -> Result<()> {
        match self.left.checked_sub(bytes) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => Err(Problem::limit(format!("{path} is larger than {}", size(self.limit)))
                .hint("return less, or raise limits.value")),
        }
    }
}

fn is_name(key: &str) -> bool {
    let mut bytes = key.bytes();
    key.len() <= 64
        && bytes.next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// At most 100 characters of `text`, for messages.
pub fn shorten(text: &str) -> std::borrow::Cow<'_, str> {
    match text.char_indices().nth(100) {
        Some((cut, _)) => format!("{}…", &text[..cut]).into(),
        None => text.into(),
    }
}
