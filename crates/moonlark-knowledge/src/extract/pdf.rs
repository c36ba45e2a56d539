//! PDF, read in a process of its own.
//!
//! The libraries for it panic, loop, recurse and unpack without bounds when a
//! file is made for that. The binary in another role may do all of that: it has
//! a bound on memory, one on time, and nothing to lose.

mod pdf_layout;
mod pdf_process;
mod pdf_reader;

use moonlark_core::{Problem, Result, Value};
use serde::{Deserialize, Serialize};

use super::document_builder::ExtractedDocumentBuilder;
use super::{ExtractLimits, ExtractionOutcome, TextBlockKind};
pub use pdf_process::run_pdf_reader_if_requested;

/// What the process answers.
#[derive(Debug, Serialize, Deserialize)]
enum PdfAnswer {
    Paper(PdfContent),
    /// Nothing to read, and why.
    Skipped(String),
    Damaged(String),
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct PdfContent {
    title: Option<String>,
    author: Option<String>,
    pages: u32,
    /// Pages that could not be read.
    missing: u32,
    blocks: Vec<PdfBlock>,
}

/// A paragraph, or a heading with its level.
#[derive(Debug, Serialize, Deserialize)]
struct PdfBlock {
    level: Option<u8>,
    text: String,
}

pub(super) fn extract_pdf(bytes: &[u8], limits: &ExtractLimits) -> Result<ExtractionOutcome> {
    let answer = match pdf_process::reader_program() {
        Some(program) => pdf_process::read_in_child(program, bytes, limits)?,
        // Not the binary: a test, whose files are known.
        None => pdf_reader::read_pdf(bytes, limits.pages),
    };
    let paper = match answer {
        PdfAnswer::Paper(paper) => paper,
        PdfAnswer::Skipped(reason) => return Ok(ExtractionOutcome::Skipped(reason)),
        PdfAnswer::Damaged(how) => return Err(damaged_pdf_problem(&how)),
    };
    let mut draft = ExtractedDocumentBuilder::new(limits.text);
    for piece in &paper.blocks {
        match piece.level {
            Some(level) => draft.push_heading(level, &piece.text)?,
            None => draft.push_block(TextBlockKind::Paragraph, &piece.text)?,
        }
    }
    let mut extracted = draft.finish_document();
    extracted.title = paper.title.or(extracted.title);
    extracted.author = paper.author;
    extracted.metadata = Value::from_fields([("pages", i64::from(paper.pages).into())]);
    if paper.missing > 0 {
        tracing::warn!("{} of {} pages of a PDF cannot be read", paper.missing, paper.pages);
    }
    Ok(ExtractionOutcome::Text(Box::new(extracted)))
}

fn damaged_pdf_problem(how: &str) -> Problem {
    Problem::bad_request(format!("the PDF is damaged: {how}"))
        .with_hint("open it in a PDF viewer and print it to a new PDF")
}
