//! CSV text to rows.
//!
//! As RFC 4180 has it, with any line ending. A quote inside a field that does
//! not begin with one is a plain character; what follows a closing quote, and a
//! quote that nobody closes, are Problems and no guesses.

use moonlark_core::{Problem, Result};

use super::{CSV_FIELD_OVERHEAD_BYTES, CSV_ROW_OVERHEAD_BYTES};
use crate::args::{line_and_column, result_too_large_problem};

pub(super) struct CsvReader<'a> {
    text: &'a str,
    delimiter: char,
    at: usize,
    line: usize,
    /// What the rows may take, all together, and what is left of it.
    limit: usize,
    left: usize,
}

#[derive(Debug, PartialEq)]
pub(super) struct CsvRow {
    /// Where it begins.
    pub(super) line: usize,
    pub(super) fields: Vec<String>,
}

impl<'a> CsvReader<'a> {
    pub(super) fn new(text: &'a str, delimiter: char, limit: usize) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Self { text, delimiter, at: 0, line: 1, limit, left: limit }
    }

    /// Count what is about to be kept: a row can be as long as the text.
    pub(super) fn charge_bytes(&mut self, bytes: usize) -> Result<()> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(|| result_too_large_problem(self.limit))?;
        Ok(())
    }

    pub(super) fn read_row(&mut self) -> Result<Option<CsvRow>> {
        while self.skip_line_end() {}
        if self.remaining_text().is_empty() {
            return Ok(None);
        }
        let mut row = CsvRow { line: self.line, fields: Vec::new() };
        self.charge_bytes(CSV_ROW_OVERHEAD_BYTES)?;
        loop {
            let field = if self.remaining_text().starts_with('"') {
                self.read_quoted_field()?
            } else {
                self.read_plain_field()
            };
            self.charge_bytes(CSV_FIELD_OVERHEAD_BYTES + field.len())?;
            row.fields.push(field);
            if self.remaining_text().starts_with(self.delimiter) {
                self.at += self.delimiter.len_utf8();
            } else if self.skip_line_end() || self.remaining_text().is_empty() {
                return Ok(Some(row));
            } else {
                return Err(Problem::bad_request(format!(
                    "there is text after the closing quote, at {}",
                    line_and_column(self.text, self.at)
                ))
                .with_hint("write a quote inside a quoted field as two quotes"));
            }
        }
    }

    fn remaining_text(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn skip_line_end(&mut self) -> bool {
        let length = match self.remaining_text().as_bytes() {
            [b'\r', b'\n', ..] => 2,
            [b'\r' | b'\n', ..] => 1,
            _ => return false,
        };
        self.at += length;
        self.line += 1;
        true
    }

    fn read_plain_field(&mut self) -> String {
        let rest = self.remaining_text();
        let ends = [self.delimiter, '\r', '\n'];
        let field = &rest[..rest.find(ends).unwrap_or(rest.len())];
        self.at += field.len();
        field.to_owned()
    }

    fn read_quoted_field(&mut self) -> Result<String> {
        let start = self.at;
        let mut field = String::new();
        self.at += 1;
        loop {
            let rest = self.remaining_text();
            let Some(end) = rest.find('"') else {
                return Err(Problem::bad_request(format!(
                    "the quote at {} is not closed",
                    line_and_column(self.text, start)
                )));
            };
            field.push_str(&rest[..end]);
            self.at += end + 1;
            if !self.remaining_text().starts_with('"') {
                self.line += count_line_ends(&field);
                return Ok(field);
            }
            field.push('"');
            self.at += 1;
        }
    }
}

/// `\r\n` is one of them.
fn count_line_ends(text: &str) -> usize {
    let bytes = text.as_bytes();
    let lone = |at: &usize| bytes[*at] == b'\r' && bytes.get(at + 1) != Some(&b'\n');
    bytes.iter().filter(|byte| **byte == b'\n').count() + (0..bytes.len()).filter(lone).count()
}
