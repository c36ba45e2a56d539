//! Word documents: a ZIP of XML.
//!
//! Read as a stream with a bound on what is unpacked, so that neither a small
//! file that unpacks to gigabytes nor deep nesting costs anything.

mod docx_body;

use std::collections::HashMap;
use std::io::{BufReader, Cursor, Read};

use moonlark_core::{Problem, Result};
use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;
use zip::ZipArchive;
use zip::result::ZipError;

use super::document_builder::ExtractedDocumentBuilder;
use super::{ExtractLimits, ExtractionOutcome, too_long_problem};
use docx_body::DocxBodyReader;

type DocxArchive<'a> = ZipArchive<Cursor<&'a [u8]>>;

/// More entries than any document has: the directory itself is not a place for
/// surprises.
const MAX_ARCHIVE_ENTRIES: usize = 50_000;

pub(super) fn extract_docx(bytes: &[u8], limits: &ExtractLimits) -> Result<ExtractionOutcome> {
    let mut archive =
        ZipArchive::new(Cursor::new(bytes)).map_err(|error| damaged_docx_problem(&error))?;
    if archive.len() > MAX_ARCHIVE_ENTRIES {
        return Err(Problem::limit_exceeded(format!(
            "it has more than {MAX_ARCHIVE_ENTRIES} parts"
        )));
    }
    let mut unpacked = UnpackBudget { left: limits.text as u64, most: limits.text };
    let mut styles = DocxStyleReader::default();
    unpacked.read_part(&mut archive, "word/styles.xml", &mut styles)?;
    let mut core = DocxProperties::default();
    unpacked.read_part(&mut archive, "docProps/core.xml", &mut core)?;
    let draft = ExtractedDocumentBuilder::new(limits.text);
    let mut story = DocxBodyReader::new(draft, styles.known);
    if !unpacked.read_part(&mut archive, "word/document.xml", &mut story)? {
        return Ok(ExtractionOutcome::Skipped("it is an archive".to_owned()));
    }
    for notes in ["word/footnotes.xml", "word/endnotes.xml"] {
        unpacked.read_part(&mut archive, notes, &mut story)?;
    }
    let mut extracted = story.finish_document()?;
    extracted.title = core.title.or(extracted.title);
    extracted.author = core.author;
    Ok(ExtractionOutcome::Text(Box::new(extracted)))
}

/// Takes a part of the document, event by event.
trait XmlEventSink {
    fn accept_event(&mut self, event: &Event<'_>) -> Result<()>;
}

/// How much may still be unpacked of this document.
struct UnpackBudget {
    left: u64,
    most: usize,
}

impl UnpackBudget {
    /// Whether there is such a part.
    fn read_part(
        &mut self,
        archive: &mut DocxArchive<'_>,
        name: &str,
        taker: &mut dyn XmlEventSink,
    ) -> Result<bool> {
        let entry = match archive.by_name(name) {
            Ok(entry) => entry,
            Err(ZipError::FileNotFound) => return Ok(false),
            Err(error) => return Err(damaged_docx_problem(&error)),
        };
        // One byte more than allowed tells that there is more.
        let mut counted = BufReader::new(entry.take(self.left + 1));
        let mut reader = Reader::from_reader(&mut counted);
        reader.config_mut().allow_dangling_amp = true;
        let mut buffer = Vec::new();
        let read = loop {
            buffer.clear();
            match reader.read_event_into(&mut buffer) {
                Ok(Event::Eof) => break Ok(()),
                Ok(event) => taker.accept_event(&event)?,
                Err(error) => break Err(error),
            }
        };
        self.left = counted.get_ref().limit().saturating_sub(1);
        if counted.get_ref().limit() == 0 {
            return Err(too_long_problem(self.most));
        }
        read.map_err(|error| damaged_docx_problem(&error))?;
        Ok(true)
    }
}

/// What a paragraph of some style is.
#[derive(Debug, Clone, Copy, PartialEq)]
enum DocxStyle {
    Heading(u8),
    List,
}

/// Which styles are headings, by the names that Word has for them in every
/// language: documents refer to them by ids that differ.
#[derive(Default)]
struct DocxStyleReader {
    known: HashMap<String, DocxStyle>,
    id: String,
}

/// Styles that are remembered; a document has some hundred.
const MAX_DOCX_STYLES: usize = 10_000;

impl DocxStyleReader {
    fn set_style(&mut self, style: DocxStyle) {
        if self.known.len() < MAX_DOCX_STYLES {
            self.known.insert(self.id.clone(), style);
        }
    }
}

impl XmlEventSink for DocxStyleReader {
    fn accept_event(&mut self, event: &Event<'_>) -> Result<()> {
        let (Event::Start(tag) | Event::Empty(tag)) = event else { return Ok(()) };
        match tag.local_name().as_ref() {
            "style" => self.id = find_attribute(tag, "styleId").unwrap_or_default(),
            "name" => {
                let name = find_attribute(tag, "val").unwrap_or_default().to_ascii_lowercase();
                let level = match name.as_str() {
                    "title" => Some(1),
                    name => name.strip_prefix("heading ").and_then(|level| level.parse().ok()),
                };
                level.into_iter().for_each(|level| self.set_style(DocxStyle::Heading(level)));
            }
            "outlineLvl" => {
                let level = outline_level(tag).into_iter();
                level.for_each(|level| self.set_style(DocxStyle::Heading(level)));
            }
            // Headings may be numbered too.
            "numPr" if !self.known.contains_key(&self.id) => self.set_style(DocxStyle::List),
            _ => {}
        }
        Ok(())
    }
}

#[derive(Default)]
struct DocxProperties {
    title: Option<String>,
    author: Option<String>,
    inside: String,
}

impl XmlEventSink for DocxProperties {
    fn accept_event(&mut self, event: &Event<'_>) -> Result<()> {
        match event {
            Event::Start(tag) => self.inside = tag.local_name().as_ref().to_owned(),
            Event::End(_) => {
                self.inside.clear();
                for field in [&mut self.title, &mut self.author] {
                    field.take_if(|it| it.trim().is_empty());
                }
            }
            Event::Text(_) | Event::GeneralRef(_) => {
                let field = match self.inside.as_str() {
                    "title" => &mut self.title,
                    "creator" => &mut self.author,
                    _ => return Ok(()),
                };
                let said = field.get_or_insert_default();
                if said.len() < 1000 {
                    said.push_str(&event_text(event));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The characters of an event that has some.
fn event_text(event: &Event<'_>) -> String {
    match event {
        Event::Text(text) => text.xml10_content().into_owned(),
        Event::CData(text) => text.xml10_content().into_owned(),
        Event::GeneralRef(name) => match name.resolve_char_ref() {
            Ok(Some(char)) => char.to_string(),
            _ => quick_xml::escape::resolve_predefined_entity(name).unwrap_or_default().to_owned(),
        },
        _ => String::new(),
    }
}

fn find_attribute(tag: &BytesStart<'_>, local: &str) -> Option<String> {
    let found = tag.attributes().flatten().find(|it| it.key.local_name().as_ref() == local)?;
    Some(found.normalized_value(quick_xml::XmlVersion::default()).ok()?.into_owned())
}

/// The level of a heading that an element gives by its number in the outline.
fn outline_level(tag: &BytesStart<'_>) -> Option<u8> {
    let number: u8 = find_attribute(tag, "val")?.parse().ok()?;
    (number < 9).then_some(number + 1)
}

fn damaged_docx_problem(error: &dyn std::error::Error) -> Problem {
    Problem::bad_request(format!("the Word document is damaged: {error}"))
        .with_hint("open it in a word processor and save it again")
}
