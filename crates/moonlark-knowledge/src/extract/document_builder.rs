//! Text in the making, for formats that become Markdown.

use moonlark_core::Result;

use super::{ExtractedDocument, TextBlock, TextBlockKind, too_long_problem};

#[derive(Debug)]
pub(super) struct ExtractedDocumentBuilder {
    text: String,
    blocks: Vec<TextBlock>,
    most: usize,
}

impl ExtractedDocumentBuilder {
    pub(super) fn new(most: usize) -> ExtractedDocumentBuilder {
        ExtractedDocumentBuilder { text: String::new(), blocks: Vec::new(), most }
    }

    pub(super) fn push_heading(&mut self, level: u8, title: &str) -> Result<()> {
        let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
        let level = level.clamp(1, 6);
        let marks = &"######"[..usize::from(level)];
        let line = format!("{marks} {title}");
        if title.is_empty() {
            Ok(())
        } else {
            self.push_block(TextBlockKind::Heading { level, title }, &line)
        }
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
        match self.blocks.last() {
            None => {}
            Some(last) if follows(last) => self.text.push('\n'),
            Some(_) => self.text.push_str("\n\n"),
        }
        let start = self.text.len();
        self.text.push_str(text);
        self.blocks.push(TextBlock::new(kind, start..self.text.len()));
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
        ExtractedDocument { title, ..ExtractedDocument::from_blocks(self.text, self.blocks) }
    }
}
