//! Text without marks: paragraphs, or a record per line.

use super::{ExtractedDocument, TextBlock, TextBlockKind, lines_with_offsets, trim_range};

/// Paragraphs are apart by empty lines.
pub(super) fn extract_plain_text(text: String) -> ExtractedDocument {
    let mut blocks = Vec::new();
    let mut start = 0;
    for (at, line) in lines_with_offsets(&text) {
        if line.trim().is_empty() {
            blocks.extend(paragraph_block(&text, start..at));
            start = at;
        }
    }
    blocks.extend(paragraph_block(&text, start..text.len()));
    ExtractedDocument::from_blocks(text, blocks)
}

pub(super) fn extract_rows(text: String) -> ExtractedDocument {
    let whole = trim_range(&text, 0..text.len());
    let blocks =
        whole.into_iter().map(|range| TextBlock::new(TextBlockKind::Table, range)).collect();
    ExtractedDocument::from_blocks(text, blocks)
}

fn paragraph_block(text: &str, range: std::ops::Range<usize>) -> Option<TextBlock> {
    trim_range(text, range).map(|range| TextBlock::new(TextBlockKind::Paragraph, range))
}
