//! CSV text to rows.
//!
//! As RFC 4180 has it, with any line ending. A quote inside a field that does
//! not begin with one is a plain character; what follows a closing quote, and a
//! quote that nobody closes, are Problems and no guesses.

use moonlark_core::limits::size;
use moonlark_core::{Problem, Result};

use super::{FIELD_BYTES, ROW_BYTES};
use crate::args::line_and_column;

pub(super) struct Reader<'a> {
    text: &'a str,
    delimiter: char,
    at: usize,
    line: usize,
    /// What the rows may take, all together, and what is left of it.
    limit: usize,
    left: usize,
}

#[derive(Debug, PartialEq)]
pub(super) struct Row {
    /// Where it begins.
    pub(super) line: usize,
    pub(super) fields: Vec<String>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str, delimiter: char, limit: usize) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Self { text, delimiter, at: 0, line: 1, limit, left: limit }
    }

    /// Count what is about to be kept: a row can be as long as the text.
    pub(super) fn spend(&mut self, bytes: usize) -> Result<()> {
        self.left = self.left.checked_sub(bytes).ok_or_else(|| {
            Problem::limit(format!("the result is larger than {}", size(self.limit)))
                .hint("work on less at a time, or raise limits.value")
        })?;
        Ok(())
    }

    pub(super) fn row(&mut self) -> Result<Option<Row>> {
        while self.skip_line_end() {}
        if self.rest().is_empty() {
            return Ok(None);
        }
        let mut row = Row { line: self.line, fields: Vec::new() };
        self.spend(ROW_BYTES)?;
        loop {
            let field = if self.rest().starts_with('"') { self.quoted()? } else { self.plain() };
            self.spend(FIELD_BYTES + field.len())?;
            row.fields.push(field);
            if self.rest().starts_with(self.delimiter) {
                self.at += self.delimiter.len_utf8();
            } else if self.skip_line_end() || self.rest().is_empty() {
                return Ok(Some(row));
            } else {
                return Err(Problem::bad_request(format!(
                    "there is text after the closing quote, at {}",
                    line_and_column(self.text, self.at)
                ))
                .hint("write a quote inside a quoted field as two quotes"));
            }
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_line_end(&mut self) -> bool {
        let length = match self.rest().as_bytes() {
            [b'\r', b'\n', ..] => 2,
            [b'\r' | b'\n', ..] => 1,
            _ => return false,
        };
        self.at += length;
        self.line += 1;
        true
    }

    fn plain(&mut self) -> String {
        let rest = self.rest();
        let ends = [self.delimiter, '\r', '\n'];
        let field = &rest[..rest.find(ends).unwrap_or(rest.len())];
        self.at += field.len();
        field.to_owned()
    }

    fn quoted(&mut self) -> Result<String> {
        let start = self.at;
        let mut field = String::new();
        self.at += 1;
        loop {
            let rest = self.rest();
            let Some(end) = rest.find('"') else {
                return Err(Problem::bad_request(format!(
                    "the quote at {} is not closed",
                    line_and_column(self.text, start)
                )));
            };
            field.push_str(&rest[..end]);
            self.at += end + 1;
            if !self.rest().starts_with('"') {
                self.line += line_ends(&field);
                return Ok(field);
            }
            field.push('"');
            self.at += 1;
        }
    }
}

/// `\r\n` is one of them.
fn line_ends(text: &str) -> usize {
    let bytes = text.as_bytes();
    let lone = |at: &usize| bytes[*at] == b'\r' && bytes.get(at + 1) != Some(&b'\n');
    bytes.iter().filter(|byte| **byte == b'\n').count() + (0..bytes.len()).filter(lone).count()
}
