//! Markdown, line by line: only what chunks follow is looked for, so any text
//! has blocks, and nothing of it can be missing from them.

use std::ops::Range;

use moonlark_core::Value;

use super::{Block, Extracted, Kind, front, lines, trimmed};

/// Bytes of a heading that count as its title.
const LONGEST: usize = 300;

pub(super) fn read(text: String) -> Extracted {
    let (fields, text) = match front::matter(&text) {
        Some((fields, start)) => (Some(fields), text[start..].to_owned()),
        None => (None, text),
    };
    let blocks = Scanner::new(&text).run();
    let mut extracted = Extracted::of(text, blocks);
    extracted.title = first_title(&extracted.blocks);
    if let Some(fields) = fields {
        let word = |key| fields.get(key).and_then(Value::as_str).map(str::to_owned);
        extracted.title = word("title").or(extracted.title);
        extracted.author = word("author");
        extracted.metadata = Value::Object(fields);
    }
    extracted
}

/// A heading of the first level, or whatever heading comes before all else.
fn first_title(blocks: &[Block]) -> Option<String> {
    let title = |block: &Block, most: u8| match &block.kind {
        Kind::Heading { level, title } if *level <= most => Some(title.clone()),
        _ => None,
    };
    blocks.iter().find_map(|block| title(block, 1)).or_else(|| title(blocks.first()?, 6))
}

struct Scanner<'a> {
    text: &'a str,
    blocks: Vec<Block>,
    open: Open,
    /// Where the open block began.
    start: usize,
    /// Lines of it.
    count: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Open {
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

impl<'a> Scanner<'a> {
    fn new(text: &'a str) -> Self {
        Scanner { text, blocks: Vec::new(), open: Open::Nothing, start: 0, count: 0 }
    }

    fn run(mut self) -> Vec<Block> {
        for (at, line) in lines(self.text) {
            self.line(at, line);
            self.count += 1;
        }
        self.close(self.text.len());
        self.blocks
    }

    fn line(&mut self, at: usize, line: &str) {
        let body = line.trim();
        let indent = line.len() - line.trim_start_matches([' ', '\t']).len();
        if let Open::Fence { mark, count } = self.open {
            if fence(body).is_some_and(|(it, n)| it == mark && n >= count && n == body.len()) {
                self.close(at + line.len());
            }
            return;
        }
        if body.is_empty() {
            return match self.open {
                Open::List { indent, .. } => self.open = Open::List { indent, gap: true },
                _ => self.close(at),
            };
        }
        if let Some((mark, count)) = fence(body) {
            return self.begin(at, Open::Fence { mark, count });
        }
        if let Some((level, title)) = heading(body).filter(|_| indent < 4) {
            self.close(at);
            return self.add(Kind::Heading { level, title }, at..at + line.len());
        }
        if let Open::List { indent: first, gap } = self.open {
            let marked = is_item(body);
            if marked && indent <= first + 1 {
                self.begin(at, Open::List { indent, gap: false });
            } else if marked || indent > first || !gap {
                self.open = Open::List { indent: first, gap: false };
            } else {
                self.begin(at, kind_of(body));
            }
            return;
        }
        if self.open == Open::Paragraph && self.count == 1 {
            if let Some(level) = underline(body) {
                let title = bare(self.text[self.start..at].trim());
                self.open = Open::Nothing;
                return self.add(Kind::Heading { level, title }, self.start..at + line.len());
            }
            if body.contains('|') && body.contains('-') && delimits(body) {
                self.open = Open::Table;
                return;
            }
        }
        if is_item(body) {
            return self.begin(at, Open::List { indent, gap: false });
        }
        match (self.open, kind_of(body)) {
            (Open::Nothing, kind) | (Open::Paragraph, kind @ Open::Table) => self.begin(at, kind),
            _ => {}
        }
    }

    fn begin(&mut self, at: usize, open: Open) {
        self.close(at);
        self.open = open;
        self.start = at;
        self.count = 0;
    }

    fn close(&mut self, end: usize) {
        let kind = match self.open {
            Open::Nothing => return,
            Open::Paragraph => Kind::Paragraph,
            Open::Table => Kind::Table,
            Open::List { .. } => Kind::List,
            Open::Fence { .. } => Kind::Code,
        };
        self.open = Open::Nothing;
        self.add(kind, self.start..end);
    }

    fn add(&mut self, kind: Kind, range: Range<usize>) {
        self.blocks.extend(trimmed(self.text, range).map(|range| Block::new(kind, range)));
    }
}

fn kind_of(body: &str) -> Open {
    if body.starts_with('|') { Open::Table } else { Open::Paragraph }
}

/// The mark of a fence, and how many of them.
fn fence(body: &str) -> Option<(u8, usize)> {
    let mark = *body.as_bytes().first().filter(|mark| matches!(mark, b'`' | b'~'))?;
    let count = body.bytes().take_while(|byte| *byte == mark).count();
    // What has a mark again is code within a line.
    (count >= 3 && !(mark == b'`' && body[count..].contains('`'))).then_some((mark, count))
}

fn heading(body: &str) -> Option<(u8, String)> {
    let level = body.bytes().take_while(|byte| *byte == b'#').count();
    let rest = &body[level..];
    let is_one = (1..=6).contains(&level) && (rest.is_empty() || rest.starts_with([' ', '\t']));
    let title = is_one.then(|| bare(rest.trim().trim_end_matches('#').trim_end()))?;
    Some((level as u8, title))
}

fn underline(body: &str) -> Option<u8> {
    let all = |mark| body.len() >= 2 && body.bytes().all(|byte| byte == mark);
    match body {
        _ if all(b'=') => Some(1),
        _ if all(b'-') => Some(2),
        _ => None,
    }
}

/// The line below the head of a table.
fn delimits(body: &str) -> bool {
    body.bytes().all(|byte| matches!(byte, b'|' | b'-' | b':' | b' ' | b'\t'))
}

fn is_item(body: &str) -> bool {
    if body.starts_with("- ") || body.starts_with("* ") || body.starts_with("+ ") {
        return true;
    }
    let digits = body.bytes().take_while(u8::is_ascii_digit).count();
    (1..=9).contains(&digits)
        && (body[digits..].starts_with(". ") || body[digits..].starts_with(") "))
}

/// A heading without the marks within it: emphasis, code, links, anchors.
fn bare(title: &str) -> String {
    let end = (0..=LONGEST.min(title.len())).rev().find(|end| title.is_char_boundary(*end));
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
