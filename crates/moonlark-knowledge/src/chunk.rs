//! Documents in pieces that one can find and read: chunks.
//!
//! A chunk follows the structure that `extract` found. It is a stretch of the
//! text, begins and ends where a block does, and stays within a section. Only a
//! block that is too long is cut, and only there chunks overlap. Sizes are
//! bytes: a Chinese character counts as three, and says about as much.

mod cut;
mod section;

use std::ops::Range;

use crate::extract::{Block, Extracted, Kind};
use section::Section;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkSettings {
    /// What a chunk has if there is enough text.
    pub target: usize,
    /// What a chunk has at most, so as not to cut a block.
    pub most: usize,
    /// What two pieces of one block have in common.
    pub overlap: usize,
}

impl Default for ChunkSettings {
    fn default() -> Self {
        Self { target: 1200, most: 2000, overlap: 150 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// The headings it is under, the highest first; of source code what it is
    /// part of.
    pub heading: Vec<String>,
    /// Never empty, and without empty lines around it.
    pub text: String,
    /// Which bytes of the document's text it is.
    pub range: Range<usize>,
    /// It is a piece of a block, and begins with the end of the piece before if
    /// it is not the first.
    pub cut: bool,
}

pub fn chunk(document: &Extracted, settings: &ChunkSettings) -> Vec<Chunk> {
    let settings = settings.usable();
    let mut chunks = Vec::new();
    for section in section::all(&document.blocks, &settings) {
        let mut pack =
            Pack { document, section: &section, settings: &settings, open: None, done: vec![] };
        for block in &document.blocks[section.blocks.clone()] {
            pack.add(block);
        }
        chunks.extend(pack.finish());
    }
    chunks
}

impl ChunkSettings {
    /// What is below this is too little for a chunk of its own, if there is
    /// something beside it.
    fn tiny(&self) -> usize {
        self.target / 4
    }

    /// Whatever was asked for, cutting makes progress.
    fn usable(&self) -> ChunkSettings {
        let target = self.target.max(64);
        let most = self.most.max(target);
        ChunkSettings { target, most, overlap: self.overlap.min(target / 4) }
    }
}

/// The chunks of one section in the making.
struct Pack<'a> {
    document: &'a Extracted,
    section: &'a Section,
    settings: &'a ChunkSettings,
    open: Option<Open>,
    done: Vec<Open>,
}

#[derive(Clone)]
struct Open {
    range: Range<usize>,
    cut: bool,
    /// Only headings so far.
    bare: bool,
    /// What the parts of source code in it declare.
    parts: Vec<String>,
}

impl Open {
    fn size(&self) -> usize {
        self.range.len()
    }
}

impl Pack<'_> {
    fn add(&mut self, block: &Block) {
        let (tiny, target, most) = (self.settings.tiny(), self.settings.target, self.settings.most);
        let new = of(block);
        let Some(mut open) = self.open.take() else { return self.begin(new, block) };
        let together = block.range.end - open.range.start;
        let small = open.bare || open.size() < tiny;
        if together <= target || (small && together <= most) {
            open.range.end = block.range.end;
            open.bare &= new.bare;
            open.parts.extend(new.parts);
            self.open = Some(open);
        } else if open.bare {
            // A heading is not left behind.
            let joined = Open { range: open.range.start..block.range.end, ..new };
            self.begin(joined, block);
        } else {
            self.done.push(open);
            self.begin(new, block);
        }
    }

    fn begin(&mut self, open: Open, block: &Block) {
        if open.size() <= self.settings.most {
            self.open = Some(open);
            return;
        }
        let mut pieces = cut::pieces(
            &self.document.text,
            open.range.clone(),
            matches!(block.kind, Kind::Paragraph | Kind::Heading { .. }),
            self.settings,
        );
        // The last may be joined by what follows.
        let last = pieces.pop();
        let piece = |range| Open { range, cut: true, ..open.clone() };
        self.done.extend(pieces.into_iter().map(piece));
        self.open = last.map(piece);
    }

    fn finish(mut self) -> impl Iterator<Item = Chunk> {
        if let Some(last) = self.open.take() {
            match self.done.last_mut() {
                Some(before)
                    if last.size() < self.settings.tiny() / 2
                        && last.range.end - before.range.start <= self.settings.most =>
                {
                    before.range.end = last.range.end;
                    before.parts.extend(last.parts);
                }
                _ => self.done.push(last),
            }
        }
        let (document, path) = (self.document, &self.section.path);
        self.done.into_iter().filter_map(move |open| {
            let part = &document.text[open.range.clone()];
            // The first line of code may be indented on purpose.
            let text = part.trim_end().trim_start_matches(['\n', '\r']);
            let start = open.range.start + (part.trim_end().len() - text.len());
            let mut heading = path.clone();
            let [first, rest @ ..] = &open.parts[..] else {
                return whole(heading, text, start, &open);
            };
            if rest.iter().all(|part| part == first) {
                heading.push(first.clone());
            }
            whole(heading, text, start, &open)
        })
    }
}

fn whole(heading: Vec<String>, text: &str, start: usize, open: &Open) -> Option<Chunk> {
    if text.trim_start().is_empty() {
        return None;
    }
    let range = start..start + text.len();
    Some(Chunk { heading, text: text.to_owned(), range, cut: open.cut })
}

fn of(block: &Block) -> Open {
    let parts = match &block.kind {
        Kind::Part { title } => vec![title.clone()],
        _ => Vec::new(),
    };
    let bare = matches!(block.kind, Kind::Heading { .. });
    Open { range: block.range.clone(), cut: false, bare, parts }
}

#[cfg(test)]
mod tests;
