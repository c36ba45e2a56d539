//! Sections: what is under one heading, or under several that have little to say.

use std::ops::Range;

use super::ChunkSettings;
use crate::extract::{TextBlock, TextBlockKind};

#[derive(Debug, Clone, PartialEq)]
pub(super) struct DocumentSection {
    /// The headings it is under, its own included.
    pub(super) path: Vec<String>,
    /// Which of the document's blocks, the headings included.
    pub(super) blocks: Range<usize>,
    /// Bytes.
    size: usize,
    /// It has nothing but its heading.
    bare: bool,
}

pub(super) fn collect_sections(
    blocks: &[TextBlock],
    settings: &ChunkSettings,
) -> Vec<DocumentSection> {
    let mut sections: Vec<DocumentSection> = Vec::new();
    for section in split_by_heading(blocks) {
        match sections.last_mut() {
            // A heading right above another one belongs to what is below it.
            Some(last) if last.bare && section.path.starts_with(&last.path) => {
                last.path = section.path;
                last.blocks.end = section.blocks.end;
                last.size += section.size;
                last.bare = section.bare;
            }
            _ => sections.push(section),
        }
    }
    let tiny = settings.tiny_chunk_bytes();
    let mut joined: Vec<DocumentSection> = Vec::new();
    // Whether all that the last one was joined from was tiny.
    let mut all_tiny = false;
    for section in sections {
        let is_tiny = section.size <= tiny;
        match joined.last_mut() {
            Some(last) if all_tiny && is_tiny && last.size + section.size <= settings.target => {
                let shared = last.path.iter().zip(&section.path).take_while(|(a, b)| a == b);
                let count = shared.count();
                last.path.truncate(count);
                last.blocks.end = section.blocks.end;
                last.size += section.size;
            }
            _ => {
                all_tiny = is_tiny;
                joined.push(section);
            }
        }
    }
    joined
}

fn split_by_heading(blocks: &[TextBlock]) -> Vec<DocumentSection> {
    let mut sections: Vec<DocumentSection> = Vec::new();
    let mut path: Vec<(u8, String)> = Vec::new();
    for (at, block) in blocks.iter().enumerate() {
        let heading = matches!(block.kind, TextBlockKind::Heading { .. });
        if let TextBlockKind::Heading { level, title } = &block.kind {
            while path.last().is_some_and(|(above, _)| above >= level) {
                path.pop();
            }
            path.push((*level, title.clone()));
        }
        match sections.last_mut() {
            Some(last) if !heading => {
                last.blocks.end = at + 1;
                last.size += block.range.len();
                last.bare = false;
            }
            _ => sections.push(DocumentSection {
                path: path.iter().map(|it| it.1.clone()).filter(|it| !it.is_empty()).collect(),
                blocks: at..at + 1,
                size: block.range.len(),
                bare: heading,
            }),
        }
    }
    sections
}
