//! Chunks: documents in pieces that can be found and read.
//!
//! A chunk follows the structure that `extract` found. It is a stretch of the
//! text, begins and ends where a block does, and stays within a section. Only a
//! block that is too long is cut, and only there chunks overlap. Sizes are
//! bytes: a Chinese character counts as three, and says about as much.

mod block_splitter;
mod section;

use std::ops::Range;

use crate::extract::{ExtractedDocument, TextBlock, TextBlockKind};
use section::DocumentSection;

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
pub struct TextChunk {
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

pub fn split_into_chunks(document: &ExtractedDocument, settings: &ChunkSettings) -> Vec<TextChunk> {
    let settings = settings.with_clamped_sizes();
    let mut chunks = Vec::new();
    for section in section::collect_sections(&document.blocks, &settings) {
        let (open, done) = (None, Vec::new());
        let mut pack =
            SectionPacker { document, section: &section, settings: &settings, open, done };
        for block in &document.blocks[section.blocks.clone()] {
            pack.add_block(block);
        }
        chunks.extend(pack.finish_chunks());
    }
    chunks
}

impl ChunkSettings {
    /// What is below this is too little for a chunk of its own, if there is
    /// something beside it.
    fn tiny_chunk_bytes(&self) -> usize {
        self.target / 4
    }

    /// Whatever was asked for, cutting makes progress.
    fn with_clamped_sizes(&self) -> ChunkSettings {
        let target = self.target.max(64);
        let most = self.most.max(target);
        ChunkSettings { target, most, overlap: self.overlap.min(target / 4) }
    }
}

/// The chunks of one section in the making.
struct SectionPacker<'a> {
    document: &'a ExtractedDocument,
    section: &'a DocumentSection,
    settings: &'a ChunkSettings,
    open: Option<ChunkDraft>,
    done: Vec<ChunkDraft>,
}

#[derive(Clone)]
struct ChunkDraft {
    range: Range<usize>,
    cut: bool,
    /// Only headings so far.
    bare: bool,
    /// What the parts of source code in it declare.
    parts: Vec<String>,
}

impl ChunkDraft {
    fn size_bytes(&self) -> usize {
        self.range.len()
    }
}

impl SectionPacker<'_> {
    fn add_block(&mut self, block: &TextBlock) {
        let (tiny, target, most) =
            (self.settings.tiny_chunk_bytes(), self.settings.target, self.settings.most);
        let new = draft_from_block(block);
        let Some(mut open) = self.open.take() else { return self.start_chunk(new, block) };
        let together = block.range.end - open.range.start;
        let small = open.bare || open.size_bytes() < tiny;
        if together <= target || (small && together <= most) {
            open.range.end = block.range.end;
            open.bare &= new.bare;
            open.parts.extend(new.parts);
            self.open = Some(open);
        } else if open.bare {
            // A heading is not left behind.
            let joined = ChunkDraft { range: open.range.start..block.range.end, ..new };
            self.start_chunk(joined, block);
        } else {
            self.done.push(open);
            self.start_chunk(new, block);
        }
    }

    fn start_chunk(&mut self, open: ChunkDraft, block: &TextBlock) {
        if open.size_bytes() <= self.settings.most {
            self.open = Some(open);
            return;
        }
        let mut pieces = block_splitter::split_block_range(
            &self.document.text,
            open.range.clone(),
            matches!(block.kind, TextBlockKind::Paragraph | TextBlockKind::Heading { .. }),
            self.settings,
        );
        // The last may be joined by what follows.
        let last = pieces.pop();
        let piece = |range| ChunkDraft { range, cut: true, ..open.clone() };
        self.done.extend(pieces.into_iter().map(piece));
        self.open = last.map(piece);
    }

    fn finish_chunks(mut self) -> impl Iterator<Item = TextChunk> {
        if let Some(last) = self.open.take() {
            match self.done.last_mut() {
                Some(before)
                    if last.size_bytes() < self.settings.tiny_chunk_bytes() / 2
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
            if let [first, rest @ ..] = &open.parts[..]
                && rest.iter().all(|part| part == first)
            {
                heading.push(first.clone());
            }
            let range = start..start + text.len();
            let chunk = TextChunk { heading, text: text.to_owned(), range, cut: open.cut };
            (!text.trim_start().is_empty()).then_some(chunk)
        })
    }
}

fn draft_from_block(block: &TextBlock) -> ChunkDraft {
    let parts = match &block.kind {
        TextBlockKind::Part { title } => vec![title.clone()],
        _ => Vec::new(),
    };
    let bare = matches!(block.kind, TextBlockKind::Heading { .. });
    ChunkDraft { range: block.range.clone(), cut: false, bare, parts }
}

#[cfg(test)]
mod tests;
