//! The Markdown builder for formats that become Markdown.

use moonlark_core::Result;

use super::{ExtractedDocument, TextBlock, TextBlockKind, too_long_problem};

#[derive(Debug, Default)]
pub(super) struct ExtractedDocumentBuilder {
    text: String,
    blocks: Vec<TextBlock>,
    most: usize,
}

impl ExtractedDocumentBuilder {
    pub(super) fn new(most: usize) -> ExtractedDocumentBuilder {
        ExtractedDocumentBuilder { most, ..ExtractedDocumentBuilder::default() }
    }

    pub(super) fn push_heading(&mut self, level: u8, title: &str) -> Result<()> {
        let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
        if title.is_empty() {
            return Ok(());
        }
        let level = level.clamp(1, 6);
        let line = format!("{} {title}", "#".repeat(level.into()));
        self.push_block(TextBlockKind::Heading { level, title }, &line)
    }

    /// Text as it is to be shown; white space around it does not count.
    pub(super) fn push_block(&mut self, kind: TextBlockKind, text: &str) -> Result<()> {
        // The first line of a list or of code may be indented on purpose.
        let text = text.trim_end().trim_start_matches(['\n', '\r']);
        if text.trim_start().is_empty() {
            return Ok(());
        }
        if self.text.len() + text.len() > self.most {
            return Err(too_long_problem(self.most));
        }
        let follows =
            |block: &TextBlock| block.kind == TextBlockKind::List && kind == TextBlockKind::List;
        self.text.push_str(match self.blocks.last() {
            None => "",
            Some(last) if follows(last) => "\n",
            Some(_) => "\n\n",
        });
        let start = self.text.len();
        self.text.push_str(text);
        self.blocks.push(TextBlock { kind, range: start..self.text.len() });
        Ok(())
    }

    pub(super) fn push_code(&mut self, text: &str) -> Result<()> {
        let text = text.trim_end().trim_start_matches(['\n', '\r']);
        if text.trim_start().is_empty() {
            Ok(())
        } else {
            self.push_block(TextBlockKind::Code, &format!("```\n{text}\n```"))
        }
    }

    pub(super) fn finish_document(self) -> ExtractedDocument {
        let highest = |block: &TextBlock| match &block.kind {
            TextBlockKind::Heading { level: 1, title } => Some(title.clone()),
            _ => None,
        };
        let title = self.blocks.iter().find_map(highest);
        let ExtractedDocumentBuilder { text, blocks, .. } = self;
        ExtractedDocument { title, text, blocks, ..ExtractedDocument::default() }
    }
}
