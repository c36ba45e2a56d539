//! Text extraction: from what a connector brought to text with its structure.
//!
//! Knows formats, not sources: the same bytes give the same text, whoever
//! brought them. Blocks are ranges of the text, in order, and nothing but white
//! space lies between them. What they become is `chunk`'s business.

mod document_builder;
mod document_format;
mod docx;
mod front_matter;
mod html;
mod markdown;
mod pdf;
mod plain_text;
mod source_code;
mod text_decoding;

use std::ops::Range;
use std::time::Duration;

use moonlark_core::limits::format_size;
use moonlark_core::{Problem, Result, Value};

use crate::source_connector::{ItemContent, SourceItem};
use document_format::DocumentFormat;
pub(crate) use document_format::file_extension;
pub use pdf::run_pdf_reader_if_requested;

/// What a document is made of.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExtractedDocument {
    /// What it calls itself, or else the last part of its `source_id`.
    pub title: Option<String>,
    pub author: Option<String>,
    pub content_type: String,
    /// What it says about itself: an object, or null. The source knows better.
    pub metadata: Value,
    /// All of it, as a reader would see it. Markdown and source code stay as
    /// they are; other formats become Markdown.
    pub text: String,
    pub blocks: Vec<TextBlock>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextBlock {
    pub kind: TextBlockKind,
    /// Bytes of the text.
    pub range: Range<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TextBlockKind {
    /// 1 is the highest level. The title is without marks.
    Heading {
        level: u8,
        title: String,
    },
    Paragraph,
    /// One item of a list, with what is below it.
    List,
    Code,
    Table,
    /// A part of source code that begins at the margin, and what it declares.
    Part {
        title: String,
    },
}

/// What came of a document.
#[derive(Debug, Clone, PartialEq)]
pub enum ExtractionOutcome {
    Text(Box<ExtractedDocument>),
    /// Nothing to read, and why.
    Skipped(String),
}

/// What reading one document may take.
#[derive(Debug, Clone)]
pub struct ExtractLimits {
    /// Bytes of text, and of what is unpacked on the way to it.
    pub text: usize,
    pub pages: usize,
    pub time: Duration,
    /// Bytes of memory, for formats that are read in a process of their own.
    pub memory: usize,
}

impl Default for ExtractLimits {
    fn default() -> Self {
        Self {
            text: 64 * 1024 * 1024,
            pages: 10_000,
            time: Duration::from_secs(60),
            memory: 512 * 1024 * 1024,
        }
    }
}

/// Computes, and may start a process and wait for it: not for an async thread.
pub fn extract_document(item: &SourceItem, limits: &ExtractLimits) -> Result<ExtractionOutcome> {
    let (format, read) = match &item.content {
        ItemContent::Text(text) => {
            let format = document_format::detect_text_format(item);
            (format, extract_text(item, format, text.clone(), limits)?)
        }
        ItemContent::Bytes(bytes) => match document_format::detect_bytes_format(item, bytes) {
            Err(reason) => return Ok(ExtractionOutcome::Skipped(reason)),
            Ok(format @ DocumentFormat::Pdf) => (format, pdf::extract_pdf(bytes, limits)?),
            Ok(format @ DocumentFormat::Docx) => (format, docx::extract_docx(bytes, limits)?),
            Ok(format) => match text_decoding::decode_text(item, format, bytes) {
                Some(text) => (format, extract_text(item, format, text, limits)?),
                None => return Ok(ExtractionOutcome::Skipped("it is not text".to_owned())),
            },
        },
    };
    let ExtractionOutcome::Text(mut extracted) = read else { return Ok(read) };
    if extracted.blocks.is_empty() {
        return Ok(ExtractionOutcome::Skipped("there is no text in it".to_owned()));
    }
    extracted.content_type = document_format::media_type(item, format);
    extracted.title = extracted.title.take().or_else(|| title_from_source_id(&item.source_id));
    Ok(ExtractionOutcome::Text(extracted))
}

fn extract_text(
    item: &SourceItem,
    format: DocumentFormat,
    text: String,
    limits: &ExtractLimits,
) -> Result<ExtractionOutcome> {
    if text.len() > limits.text {
        return Err(too_long_problem(limits.text));
    }
    Ok(ExtractionOutcome::Text(Box::new(match format {
        DocumentFormat::Markdown => markdown::extract_markdown(text),
        DocumentFormat::Html => html::extract_html(&text, limits)?,
        DocumentFormat::Code => {
            source_code::extract_code(text, document_format::language_from_name(&item.source_id))
        }
        DocumentFormat::Rows => plain_text::extract_rows(text),
        _ => plain_text::extract_plain_text(text),
    })))
}

fn too_long_problem(most: usize) -> Problem {
    Problem::limit_exceeded(format!("its text is longer than {}", format_size(most)))
}

/// The last part of a path or URL.
fn title_from_source_id(source_id: &str) -> Option<String> {
    let path = source_id.split(['?', '#']).next().unwrap_or(source_id);
    path.rsplit('/').find(|part| !part.is_empty()).map(str::to_owned)
}

/// Lines with where they begin, ends of lines included.
fn lines_with_offsets(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    text.split_inclusive('\n').map(move |line| {
        at += line.len();
        (at - line.len(), line)
    })
}

/// The range without white space around it; none if there is nothing else.
fn trim_range(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let part = &text[range.clone()];
    let start = range.start + (part.len() - part.trim_start().len());
    let end = range.end - (part.len() - part.trim_end().len());
    (start < end).then_some(start..end)
}

fn trimmed_block(text: &str, kind: TextBlockKind, range: Range<usize>) -> Option<TextBlock> {
    trim_range(text, range).map(|range| TextBlock { kind, range })
}

#[cfg(test)]
mod tests;
