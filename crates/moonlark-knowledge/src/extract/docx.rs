//! Word documents: a ZIP of XML.
//!
//! Read as a stream with a bound on what is unpacked, so that neither a small
//! file that unpacks to gigabytes nor deep nesting costs anything.

mod story;

use std::collections::HashMap;
use std::io::{BufReader, Cursor, Read};

use moonlark_core::{Problem, Result};
use quick_xml::events::{BytesStart, Event};
use quick_xml::reader::Reader;
use zip::ZipArchive;
use zip::result::ZipError;

use super::draft::Draft;
use super::{ExtractLimits, Reading, too_long};
use story::Story;

type Archive<'a> = ZipArchive<Cursor<&'a [u8]>>;

/// More entries than any document has: the directory itself is not a place for
/// surprises.
const MOST_ENTRIES: usize = 50_000;

pub(super) fn read(bytes: &[u8], limits: &ExtractLimits) -> Result<Reading> {
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(|error| broken(&error))?;
    if archive.len() > MOST_ENTRIES {
        return Err(Problem::limit(format!("it has more than {MOST_ENTRIES} parts")));
    }
    let mut unpacked = Unpacked { left: limits.text as u64, most: limits.text };
    let mut styles = HashMap::new();
    unpacked.each(&mut archive, "word/styles.xml", Styles::new(&mut styles))?;
    let mut core = Properties::default();
    unpacked.each(&mut archive, "docProps/core.xml", &mut core)?;
    let mut story = Story::new(Draft::new(limits.text), &styles);
    if !unpacked.each(&mut archive, "word/document.xml", &mut story)? {
        return Ok(Reading::Skipped("it is an archive".to_owned()));
    }
    for notes in ["word/footnotes.xml", "word/endnotes.xml"] {
        unpacked.each(&mut archive, notes, &mut story)?;
    }
    let mut extracted = story.finish()?;
    extracted.title = core.title.or(extracted.title);
    extracted.author = core.author;
    Ok(Reading::Text(Box::new(extracted)))
}

/// Takes a part of the document, event by event.
trait Take {
    fn take(&mut self, event: &Event<'_>) -> Result<()>;
}

impl<T: Take + ?Sized> Take for &mut T {
    fn take(&mut self, event: &Event<'_>) -> Result<()> {
        (**self).take(event)
    }
}

/// How much may still be unpacked of this document.
struct Unpacked {
    left: u64,
    most: usize,
}

impl Unpacked {
    /// Whether there is such a part.
    fn each(
        &mut self,
        archive: &mut Archive<'_>,
        name: &str,
        mut taker: impl Take,
    ) -> Result<bool> {
        let entry = match archive.by_name(name) {
            Ok(entry) => entry,
            Err(ZipError::FileNotFound) => return Ok(false),
            Err(error) => return Err(broken(&error)),
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
                Ok(event) => taker.take(&event)?,
                Err(error) => break Err(error),
            }
        };
        self.left = counted.get_ref().limit().saturating_sub(1);
        if counted.get_ref().limit() == 0 {
            return Err(too_long(self.most));
        }
        read.map_err(|error| broken(&error))?;
        Ok(true)
    }
}

/// What a paragraph of some style is.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Style {
    Heading(u8),
    List,
}

/// Which styles are headings, by the names that Word has for them in every
/// language: documents refer to them by ids that differ.
struct Styles<'a> {
    known: &'a mut HashMap<String, Style>,
    id: String,
}

/// Styles that are remembered; a document has some hundred.
const MOST_STYLES: usize = 10_000;

impl<'a> Styles<'a> {
    fn new(known: &'a mut HashMap<String, Style>) -> Self {
        Styles { known, id: String::new() }
    }

    fn is(&mut self, style: Style) {
        if self.known.len() < MOST_STYLES {
            self.known.insert(self.id.clone(), style);
        }
    }
}

impl Take for Styles<'_> {
    fn take(&mut self, event: &Event<'_>) -> Result<()> {
        let (Event::Start(tag) | Event::Empty(tag)) = event else { return Ok(()) };
        match tag.local_name().as_ref() {
            "style" => self.id = attribute(tag, "styleId").unwrap_or_default(),
            "name" => {
                let name = attribute(tag, "val").unwrap_or_default().to_ascii_lowercase();
                let level = match name.as_str() {
                    "title" => Some(1),
                    name => name.strip_prefix("heading ").and_then(|level| level.parse().ok()),
                };
                level.into_iter().for_each(|level| self.is(Style::Heading(level)));
            }
            "outlineLvl" => {
                let level: Option<u8> = attribute(tag, "val").and_then(|it| it.parse().ok());
                let level = level.filter(|it| *it < 9).map(|it| it + 1);
                level.into_iter().for_each(|level| self.is(Style::Heading(level)));
            }
            // Headings may be numbered too.
            "numPr" if !self.known.contains_key(&self.id) => self.is(Style::List),
            _ => {}
        }
        Ok(())
    }
}

#[derive(Default)]
struct Properties {
    title: Option<String>,
    author: Option<String>,
    inside: String,
}

impl Take for Properties {
    fn take(&mut self, event: &Event<'_>) -> Result<()> {
        match event {
            Event::Start(tag) => self.inside = tag.local_name().as_ref().to_owned(),
            Event::End(_) => self.inside.clear(),
            Event::Text(_) | Event::GeneralRef(_) => {
                let field = match self.inside.as_str() {
                    "title" => &mut self.title,
                    "creator" => &mut self.author,
                    _ => return Ok(()),
                };
                let said = field.get_or_insert_default();
                if said.len() < 1000 {
                    said.push_str(&words(event));
                }
            }
            _ => {}
        }
        for field in [&mut self.title, &mut self.author] {
            if matches!(event, Event::End(_))
                && field.as_ref().is_some_and(|it| it.trim().is_empty())
            {
                *field = None;
            }
        }
        Ok(())
    }
}

/// The characters of an event that has some.
fn words(event: &Event<'_>) -> String {
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

fn attribute(tag: &BytesStart<'_>, local: &str) -> Option<String> {
    let found = tag.attributes().flatten().find(|it| it.key.local_name().as_ref() == local)?;
    Some(found.normalized_value(quick_xml::XmlVersion::default()).ok()?.into_owned())
}

fn broken(error: &dyn std::error::Error) -> Problem {
    Problem::bad_request(format!("the Word document is damaged: {error}"))
        .hint("open it in a word processor and save it again")
}
