//! The text of a Word document: paragraphs, headings, lists, tables.

use std::collections::HashMap;

use moonlark_core::Result;
use quick_xml::events::{BytesStart, Event};

use super::{DocxStyle, XmlEventSink, event_text, find_attribute, outline_level};
use crate::extract::document_builder::ExtractedDocumentBuilder;
use crate::extract::{ExtractedDocument, TextBlockKind};

/// Lists in lists that are still indented.
const MAX_DOCX_LIST_DEPTH: usize = 8;

#[derive(Default)]
pub(super) struct DocxBodyReader {
    draft: ExtractedDocumentBuilder,
    /// By their ids.
    styles: HashMap<String, DocxStyle>,
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

impl DocxBodyReader {
    pub(super) fn new(
        draft: ExtractedDocumentBuilder,
        styles: HashMap<String, DocxStyle>,
    ) -> DocxBodyReader {
        DocxBodyReader { draft, styles, ..DocxBodyReader::default() }
    }

    pub(super) fn finish_document(mut self) -> Result<ExtractedDocument> {
        self.tables = 0;
        self.finish_paragraph()?;
        self.finish_table()?;
        Ok(self.draft.finish_document())
    }

    fn start_element(&mut self, tag: &BytesStart<'_>) {
        match tag.local_name().as_ref() {
            "t" => self.shown = true,
            "tab" => self.buffer.push('\t'),
            "br" | "cr" => self.buffer.push('\n'),
            "noBreakHyphen" => self.buffer.push('-'),
            "pStyle" => {
                let id = find_attribute(tag, "val").unwrap_or_default();
                match self.styles.get(&id) {
                    Some(DocxStyle::Heading(level)) => self.heading = Some(*level),
                    Some(DocxStyle::List) => self.list = Some(0),
                    None => {}
                }
            }
            "outlineLvl" => self.heading = outline_level(tag),
            "numPr" => self.list = Some(0),
            "ilvl" => {
                let depth = find_attribute(tag, "val").and_then(|it| it.parse().ok());
                self.list = Some(depth.unwrap_or(0));
            }
            "tbl" => self.tables += 1,
            _ => {}
        }
    }

    fn end_element(&mut self, name: &str) -> Result<()> {
        match name {
            "t" => self.shown = false,
            "p" => self.finish_paragraph()?,
            "tc" if self.tables == 1 => self.rows.push_str(" | "),
            "tr" if self.tables == 1 => {
                let end = self.rows.trim_end_matches([' ', '|']).len();
                self.rows.truncate(end);
                self.rows.push('\n');
            }
            "tbl" => {
                self.tables = self.tables.saturating_sub(1);
                if self.tables == 0 {
                    self.finish_table()?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn finish_paragraph(&mut self) -> Result<()> {
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
            (Some(level), _) => self.draft.push_heading(level, text),
            (None, Some(depth)) => {
                let indent = "  ".repeat(depth.min(MAX_DOCX_LIST_DEPTH));
                self.draft.push_block(TextBlockKind::List, &format!("{indent}- {text}"))
            }
            _ => self.draft.push_block(TextBlockKind::Paragraph, text),
        }
    }

    fn finish_table(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.rows);
        self.draft.push_block(TextBlockKind::Table, &rows)
    }
}

impl XmlEventSink for DocxBodyReader {
    fn accept_event(&mut self, event: &Event<'_>) -> Result<()> {
        match event {
            Event::Start(tag) if self.fallback > 0 || tag.local_name().as_ref() == "Fallback" => {
                self.fallback += 1;
            }
            Event::End(_) if self.fallback > 0 => self.fallback -= 1,
            _ if self.fallback > 0 => {}
            Event::Start(tag) => self.start_element(tag),
            Event::Empty(tag) => {
                self.start_element(tag);
                // Neither text nor a table: they say that they end right here.
                match tag.local_name().as_ref() {
                    "t" => self.shown = false,
                    "tbl" => self.tables = self.tables.saturating_sub(1),
                    _ => {}
                }
            }
            Event::End(tag) => self.end_element(tag.local_name().as_ref())?,
            _ if self.shown => self.buffer.push_str(&event_text(event)),
            _ => {}
        }
        Ok(())
    }
}
