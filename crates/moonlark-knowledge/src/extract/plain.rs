//! Text without marks: paragraphs, or a record per line.

use super::{Block, Extracted, Kind, lines, trimmed};

/// Paragraphs are apart by empty lines.
pub(super) fn read(text: String) -> Extracted {
    let mut blocks = Vec::new();
    let mut start = 0;
    for (at, line) in lines(&text) {
        if line.trim().is_empty() {
            blocks.extend(paragraph(&text, start..at));
            start = at;
        }
    }
    blocks.extend(paragraph(&text, start..text.len()));
    Extracted::of(text, blocks)
}

pub(super) fn rows(text: String) -> Extracted {
    let whole = trimmed(&text, 0..text.len());
    let blocks = whole.into_iter().map(|range| Block::new(Kind::Table, range)).collect();
    Extracted::of(text, blocks)
}

fn paragraph(text: &str, range: std::ops::Range<usize>) -> Option<Block> {
    trimmed(text, range).map(|range| Block::new(Kind::Paragraph, range))
}
