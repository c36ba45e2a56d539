//! Text without marks: paragraphs, or a record per line.

use super::{ExtractedDocument, TextBlockKind, lines_with_offsets, trimmed_block};

/// Paragraphs are apart by empty lines.
pub(super) fn extract_plain_text(text: String) -> ExtractedDocument {
    let mut blocks = Vec::new();
    let mut start = 0;
    for (at, line) in lines_with_offsets(&text) {
        if line.trim().is_empty() {
            blocks.extend(trimmed_block(&text, TextBlockKind::Paragraph, start..at));
            start = at;
        }
    }
    blocks.extend(trimmed_block(&text, TextBlockKind::Paragraph, start..text.len()));
    ExtractedDocument { text, blocks, ..ExtractedDocument::default() }
}

pub(super) fn extract_rows(text: String) -> ExtractedDocument {
    let blocks = trimmed_block(&text, TextBlockKind::Table, 0..text.len()).into_iter().collect();
    ExtractedDocument { text, blocks, ..ExtractedDocument::default() }
}
