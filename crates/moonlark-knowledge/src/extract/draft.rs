//! Text in the making, for formats that become Markdown.

use moonlark_core::Result;

use super::{Block, Extracted, Kind, too_long};

#[derive(Debug)]
pub(super) struct Draft {
    text: String,
    blocks: Vec<Block>,
    most: usize,
}

impl Draft {
    pub(super) fn new(most: usize) -> Draft {
        Draft { text: String::new(), blocks: Vec::new(), most }
    }

    pub(super) fn heading(&mut self, level: u8, title: &str) -> Result<()> {
        let title = title.split_whitespace().collect::<Vec<_>>().join(" ");
        let level = level.clamp(1, 6);
        let marks = &"######"[..usize::from(level)];
        let line = format!("{marks} {title}");
        match title.is_empty() {
            true => Ok(()),
            false => self.push(Kind::Heading { level, title }, &line),
        }
    }

    /// Text as it is to be shown; white space around it does not count.
    pub(super) fn push(&mut self, kind: Kind, text: &str) -> Result<()> {
        // The first line of a list or of code may be indented on purpose.
        let text = text.trim_end().trim_start_matches(['\n', '\r']);
        if text.trim_start().is_empty() {
            return Ok(());
        }
        if self.text.len() + text.len() > self.most {
            return Err(too_long(self.most));
        }
        let follows = |block: &Block| block.kind == Kind::List && kind == Kind::List;
        match self.blocks.last() {
            None => {}
            Some(last) if follows(last) => self.text.push('\n'),
            Some(_) => self.text.push_str("\n\n"),
        }
        let start = self.text.len();
        self.text.push_str(text);
        self.blocks.push(Block::new(kind, start..self.text.len()));
        Ok(())
    }

    pub(super) fn code(&mut self, text: &str) -> Result<()> {
        let text = text.trim_end().trim_start_matches(['\n', '\r']);
        match text.trim_start().is_empty() {
            true => Ok(()),
            false => self.push(Kind::Code, &format!("```\n{text}\n```")),
        }
    }

    pub(super) fn finish(self) -> Extracted {
        let highest = |block: &Block| match &block.kind {
            Kind::Heading { level: 1, title } => Some(title.clone()),
            _ => None,
        };
        let title = self.blocks.iter().find_map(highest);
        Extracted { title, ..Extracted::of(self.text, self.blocks) }
    }
}
