//! Markdown, line by line: only what chunks follow is looked for, so any text
//! has blocks, and nothing of it can be missing from them.

use std::ops::Range;

use moonlark_core::Value;

use super::{
    ExtractedDocument, TextBlock, TextBlockKind, front_matter, lines_with_offsets, trim_range,
};

/// Bytes of a heading that count as its title.
const MAX_HEADING_TITLE_BYTES: usize = 300;

pub(super) fn extract_markdown(text: String) -> ExtractedDocument {
    let (fields, text) = match front_matter::parse_front_matter(&text) {
        Some((fields, start)) => (Some(fields), text[start..].to_owned()),
        None => (None, text),
    };
    let blocks = MarkdownScanner::new(&text).scan_blocks();
    let mut extracted = ExtractedDocument::from_blocks(text, blocks);
    extracted.title = find_title(&extracted.blocks);
    if let Some(fields) = fields {
        let word = |key| fields.get(key).and_then(Value::as_str).map(str::to_owned);
        extracted.title = word("title").or(extracted.title);
        extracted.author = word("author");
        extracted.metadata = Value::Object(fields);
    }
    extracted
}

/// A heading of the first level, or whatever heading comes before all else.
fn find_title(blocks: &[TextBlock]) -> Option<String> {
    let title = |block: &TextBlock, most: u8| match &block.kind {
        TextBlockKind::Heading { level, title } if *level <= most => Some(title.clone()),
        _ => None,
    };
    blocks.iter().find_map(|block| title(block, 1)).or_else(|| title(blocks.first()?, 6))
}

struct MarkdownScanner<'a> {
    text: &'a str,
    blocks: Vec<TextBlock>,
    open: OpenMarkdownBlock,
    /// Where the open block began.
    start: usize,
    /// Lines of it.
    count: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum OpenMarkdownBlock {
    Nothing,
    Paragraph,
    Table,
    /// With the indentation of its mark, and whether an empty line came last.
    List {
        indent: usize,
        gap: bool,
    },
    /// With the mark that ends it, how often.
    Fence {
        mark: u8,
        count: usize,
    },
}

impl<'a> MarkdownScanner<'a> {
    fn new(text: &'a str) -> Self {
        MarkdownScanner {
            text,
            blocks: Vec::new(),
            open: OpenMarkdownBlock::Nothing,
            start: 0,
            count: 0,
        }
    }

    fn scan_blocks(mut self) -> Vec<TextBlock> {
        for (at, line) in lines_with_offsets(self.text) {
            self.scan_line(at, line);
            self.count += 1;
        }
        self.close_block(self.text.len());
        self.blocks
    }

    fn scan_line(&mut self, at: usize, line: &str) {
        let body = line.trim();
        let indent = line.len() - line.trim_start_matches([' ', '\t']).len();
        if let OpenMarkdownBlock::Fence { mark, count } = self.open {
            if parse_fence(body).is_some_and(|(it, n)| it == mark && n >= count && n == body.len())
            {
                self.close_block(at + line.len());
            }
            return;
        }
        if body.is_empty() {
            return match self.open {
                OpenMarkdownBlock::List { indent, .. } => {
                    self.open = OpenMarkdownBlock::List { indent, gap: true }
                }
                _ => self.close_block(at),
            };
        }
        if let Some((mark, count)) = parse_fence(body) {
            return self.open_block(at, OpenMarkdownBlock::Fence { mark, count });
        }
        if let Some((level, title)) = parse_heading(body).filter(|_| indent < 4) {
            self.close_block(at);
            return self.push_block(TextBlockKind::Heading { level, title }, at..at + line.len());
        }
        if let OpenMarkdownBlock::List { indent: first, gap } = self.open {
            let marked = is_list_item(body);
            if marked && indent <= first + 1 {
                self.open_block(at, OpenMarkdownBlock::List { indent, gap: false });
            } else if marked || indent > first || !gap {
                self.open = OpenMarkdownBlock::List { indent: first, gap: false };
            } else {
                self.open_block(at, block_for_line(body));
            }
            return;
        }
        if self.open == OpenMarkdownBlock::Paragraph && self.count == 1 {
            if let Some(level) = underline_level(body) {
                let title = strip_inline_marks(self.text[self.start..at].trim());
                self.open = OpenMarkdownBlock::Nothing;
                return self.push_block(
                    TextBlockKind::Heading { level, title },
                    self.start..at + line.len(),
                );
            }
            if body.contains('|') && body.contains('-') && is_table_delimiter(body) {
                self.open = OpenMarkdownBlock::Table;
                return;
            }
        }
        if is_list_item(body) {
            return self.open_block(at, OpenMarkdownBlock::List { indent, gap: false });
        }
        match (self.open, block_for_line(body)) {
            (OpenMarkdownBlock::Nothing, kind)
            | (OpenMarkdownBlock::Paragraph, kind @ OpenMarkdownBlock::Table) => {
                self.open_block(at, kind)
            }
            _ => {}
        }
    }

    fn open_block(&mut self, at: usize, open: OpenMarkdownBlock) {
        self.close_block(at);
        self.open = open;
        self.start = at;
        self.count = 0;
    }

    fn close_block(&mut self, end: usize) {
        let kind = match self.open {
            OpenMarkdownBlock::Nothing => return,
            OpenMarkdownBlock::Paragraph => TextBlockKind::Paragraph,
            OpenMarkdownBlock::Table => TextBlockKind::Table,
            OpenMarkdownBlock::List { .. } => TextBlockKind::List,
            OpenMarkdownBlock::Fence { .. } => TextBlockKind::Code,
        };
        self.open = OpenMarkdownBlock::Nothing;
        self.push_block(kind, self.start..end);
    }

    fn push_block(&mut self, kind: TextBlockKind, range: Range<usize>) {
        self.blocks.extend(trim_range(self.text, range).map(|range| TextBlock::new(kind, range)));
    }
}

fn block_for_line(body: &str) -> OpenMarkdownBlock {
    if body.starts_with('|') { OpenMarkdownBlock::Table } else { OpenMarkdownBlock::Paragraph }
}

/// The mark of a fence, and how many of them.
fn parse_fence(body: &str) -> Option<(u8, usize)> {
    let mark = *body.as_bytes().first().filter(|mark| matches!(mark, b'`' | b'~'))?;
    let count = body.bytes().take_while(|byte| *byte == mark).count();
    // What has a mark again is code within a line.
    (count >= 3 && !(mark == b'`' && body[count..].contains('`'))).then_some((mark, count))
}

fn parse_heading(body: &str) -> Option<(u8, String)> {
    let level = body.bytes().take_while(|byte| *byte == b'#').count();
    let rest = &body[level..];
    let is_one = (1..=6).contains(&level) && (rest.is_empty() || rest.starts_with([' ', '\t']));
    let title = is_one.then(|| strip_inline_marks(rest.trim().trim_end_matches('#').trim_end()))?;
    Some((level as u8, title))
}

fn underline_level(body: &str) -> Option<u8> {
    let all = |mark| body.len() >= 2 && body.bytes().all(|byte| byte == mark);
    match body {
        _ if all(b'=') => Some(1),
        _ if all(b'-') => Some(2),
        _ => None,
    }
}

/// The line below the head of a table.
fn is_table_delimiter(body: &str) -> bool {
    body.bytes().all(|byte| matches!(byte, b'|' | b'-' | b':' | b' ' | b'\t'))
}

fn is_list_item(body: &str) -> bool {
    if body.starts_with("- ") || body.starts_with("* ") || body.starts_with("+ ") {
        return true;
    }
    let digits = body.bytes().take_while(u8::is_ascii_digit).count();
    (1..=9).contains(&digits)
        && (body[digits..].starts_with(". ") || body[digits..].starts_with(") "))
}

/// A heading without the marks within it: emphasis, code, links, anchors.
fn strip_inline_marks(title: &str) -> String {
    let end = (0..=MAX_HEADING_TITLE_BYTES.min(title.len()))
        .rev()
        .find(|end| title.is_char_boundary(*end));
    let title = &title[..end.unwrap_or(0)];
    let title = match title.rsplit_once(" {#") {
        Some((before, anchor)) if anchor.ends_with('}') => before.trim_end(),
        _ => title,
    };
    let mut out = String::with_capacity(title.len());
    let mut rest = title;
    while let Some(at) = rest.find(['`', '*', '[', ']', '\\']) {
        out.push_str(&rest[..at]);
        let mark = rest.as_bytes()[at];
        rest = &rest[at + 1..];
        match mark {
            b']' if rest.starts_with('(') => match rest.find(')') {
                Some(end) => rest = &rest[end + 1..],
                None => out.push(']'),
            },
            // The character after it is meant as it stands.
            b'\\' => {
                let next = rest.chars().next();
                out.extend(next);
                rest = &rest[next.map_or(0, char::len_utf8)..];
            }
            _ => {}
        }
    }
    out.push_str(rest);
    out.trim().to_owned()
}
