//! The text of a Word document: paragraphs, headings, lists, tables.

use std::collections::HashMap;

use moonlark_core::Result;
use quick_xml::events::{BytesStart, Event};

use super::{Style, Take, attribute, words};
use crate::extract::draft::Draft;
use crate::extract::{Extracted, Kind};

/// Lists in lists that are still indented.
const DEEPEST: usize = 8;

pub(super) struct Story<'a> {
    draft: Draft,
    /// By their ids.
    styles: &'a HashMap<String, Style>,
    buffer: String,
    /// What the paragraph is.
    heading: Option<u8>,
    list: Option<usize>,
    /// Inside of `w:t`: all other text is not for readers.
    shown: bool,
    /// Open elements below one that says the same in an older way.
    fallback: usize,
    tables: usize,
    rows: String,
}

impl<'a> Story<'a> {
    pub(super) fn new(draft: Draft, styles: &'a HashMap<String, Style>) -> Self {
        Story {
            draft,
            styles,
            buffer: String::new(),
            heading: None,
            list: None,
            shown: false,
            fallback: 0,
            tables: 0,
            rows: String::new(),
        }
    }

    pub(super) fn finish(mut self) -> Result<Extracted> {
        self.tables = 0;
        self.paragraph()?;
        self.table()?;
        Ok(self.draft.finish())
    }

    fn start(&mut self, tag: &BytesStart<'_>) {
        match tag.local_name().as_ref() {
            "t" => self.shown = true,
            "tab" => self.buffer.push('\t'),
            "br" | "cr" => self.buffer.push('\n'),
            "noBreakHyphen" => self.buffer.push('-'),
            "pStyle" => {
                let id = attribute(tag, "val").unwrap_or_default();
                match self.styles.get(&id) {
                    Some(Style::Heading(level)) => self.heading = Some(*level),
                    Some(Style::List) => self.list = Some(0),
                    None => {}
                }
            }
            "outlineLvl" => {
                let level: Option<u8> = attribute(tag, "val").and_then(|it| it.parse().ok());
                self.heading = level.filter(|it| *it < 9).map(|it| it + 1);
            }
            "numPr" => self.list = Some(0),
            "ilvl" => {
                let depth = attribute(tag, "val").and_then(|it| it.parse().ok());
                self.list = Some(depth.unwrap_or(0));
            }
            "tbl" => self.tables += 1,
            _ => {}
        }
    }

    fn end(&mut self, name: &str) -> Result<()> {
        match name {
            "t" => self.shown = false,
            "p" => self.paragraph()?,
            "tc" if self.tables == 1 => self.rows.push_str(" | "),
            "tr" if self.tables == 1 => {
                let end = self.rows.trim_end_matches([' ', '|']).len();
                self.rows.truncate(end);
                self.rows.push('\n');
            }
            "tbl" => {
                self.tables = self.tables.saturating_sub(1);
                if self.tables == 0 {
                    self.table()?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn paragraph(&mut self) -> Result<()> {
        let text = std::mem::take(&mut self.buffer);
        let (heading, list) = (self.heading.take(), self.list.take());
        let text = text.trim();
        if self.tables > 0 {
            // A cell is on one line, however many paragraphs it has.
            for word in text.split_whitespace() {
                if !self.rows.is_empty() && !self.rows.ends_with([' ', '\n']) {
                    self.rows.push(' ');
                }
                self.rows.push_str(word);
            }
            return Ok(());
        }
        match (heading, list) {
            _ if text.is_empty() => Ok(()),
            (Some(level), _) => self.draft.heading(level, text),
            (None, Some(depth)) => {
                let indent = "  ".repeat(depth.min(DEEPEST));
                self.draft.push(Kind::List, &format!("{indent}- {text}"))
            }
            _ => self.draft.push(Kind::Paragraph, text),
        }
    }

    fn table(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.rows);
        self.draft.push(Kind::Table, &rows)
    }
}

impl Take for Story<'_> {
    fn take(&mut self, event: &Event<'_>) -> Result<()> {
        match event {
            Event::Start(tag) if self.fallback > 0 || tag.local_name().as_ref() == "Fallback" => {
                self.fallback += 1;
            }
            Event::End(_) if self.fallback > 0 => self.fallback -= 1,
            _ if self.fallback > 0 => {}
            Event::Start(tag) => self.start(tag),
            Event::Empty(tag) => {
                self.start(tag);
                // Neither text nor a table: they say that they end right here.
                match tag.local_name().as_ref() {
                    "t" => self.shown = false,
                    "tbl" => self.tables = self.tables.saturating_sub(1),
                    _ => {}
                }
            }
            Event::End(tag) => self.end(tag.local_name().as_ref())?,
            _ if self.shown => self.buffer.push_str(&words(event)),
            _ => {}
        }
        Ok(())
    }
}
