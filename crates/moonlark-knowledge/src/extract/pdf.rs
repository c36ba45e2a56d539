//! PDF, read in a process of its own.
//!
//! The libraries for it panic, loop, recurse and unpack without bounds when a
//! file is made for that. The binary in another role may do all of that: it has
//! a bound on memory, one on time, and nothing to lose.

mod layout;
mod paper;
mod process;

use moonlark_core::{Problem, Result, Value};
use serde::{Deserialize, Serialize};

use super::draft::Draft;
use super::{ExtractLimits, Kind, Reading};
pub use process::read_if_asked;

/// What the process answers.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Paper(Paper),
    /// Nothing to read, and why.
    Skipped(String),
    Damaged(String),
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Paper {
    title: Option<String>,
    author: Option<String>,
    pages: u32,
    /// Pages that could not be read.
    missing: u32,
    blocks: Vec<Piece>,
}

/// A paragraph, or a heading with its level.
#[derive(Debug, Serialize, Deserialize)]
struct Piece {
    level: Option<u8>,
    text: String,
}

pub(super) fn read(bytes: &[u8], limits: &ExtractLimits) -> Result<Reading> {
    let answer = match process::program() {
        Some(program) => process::ask(program, bytes, limits)?,
        // Not the binary: a test, whose files are known.
        None => paper::read(bytes, limits.pages),
    };
    let paper = match answer {
        Answer::Paper(paper) => paper,
        Answer::Skipped(reason) => return Ok(Reading::Skipped(reason)),
        Answer::Damaged(how) => return Err(damaged(&how)),
    };
    let mut draft = Draft::new(limits.text);
    for piece in &paper.blocks {
        match piece.level {
            Some(level) => draft.heading(level, &piece.text)?,
            None => draft.push(Kind::Paragraph, &piece.text)?,
        }
    }
    let mut extracted = draft.finish();
    extracted.title = paper.title.or(extracted.title);
    extracted.author = paper.author;
    extracted.metadata = Value::object([("pages", i64::from(paper.pages).into())]);
    if paper.missing > 0 {
        tracing::warn!("{} of {} pages of a PDF cannot be read", paper.missing, paper.pages);
    }
    Ok(Reading::Text(Box::new(extracted)))
}

fn damaged(how: &str) -> Problem {
    Problem::bad_request(format!("the PDF is damaged: {how}"))
        .hint("open it in a PDF viewer and print it to a new PDF")
}
