//! Markdown as blocks, which chunks follow. Any text has blocks, and nothing of it is missing
//! from them.

use moonlark_core::Value;
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use super::plain_text::extract_plain_text;
use super::{ExtractedDocument, TextBlock, TextBlockKind, front_matter, trimmed_block};

/// Bytes of a heading that count as its title.
const MAX_HEADING_TITLE_BYTES: usize = 300;

/// Quotes and lists that one line opens within each other. The parser looks at all that are open
/// for every line, so thousands of them would make it slow.
const MAX_NESTED_CONTAINERS: usize = 100;

pub(super) fn extract_markdown(text: String) -> ExtractedDocument {
    let (fields, text) = match front_matter::parse_front_matter(&text) {
        Some((fields, start)) => (Some(fields), text[start..].to_owned()),
        None => (None, text),
    };
    let mut extracted = if text.lines().any(is_too_nested) {
        extract_plain_text(text)
    } else {
        let blocks = scan_blocks(&text);
        ExtractedDocument { text, blocks, ..ExtractedDocument::default() }
    };
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

/// The blocks of the outermost level; of lists, their items.
fn scan_blocks(text: &str) -> Vec<TextBlock> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_HEADING_ATTRIBUTES;
    let (mut blocks, mut end, mut depth) = (Vec::new(), 0, 0_usize);
    let mut title: Option<String> = None;
    for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
        let kind = match event {
            Event::Start(tag) => {
                depth += 1;
                match (depth, tag) {
                    (1, Tag::Heading { .. }) => {
                        title = Some(String::new());
                        continue;
                    }
                    (1, Tag::List(_)) => continue,
                    (1, Tag::CodeBlock(_)) => TextBlockKind::Code,
                    (1, Tag::Table(_)) => TextBlockKind::Table,
                    (1, _) => TextBlockKind::Paragraph,
                    (2, Tag::Item) => TextBlockKind::List,
                    _ => continue,
                }
            }
            Event::End(tag) => {
                depth = depth.saturating_sub(1);
                match (depth, tag, title.take()) {
                    (0, TagEnd::Heading(level), Some(title)) => {
                        let end = title.floor_char_boundary(MAX_HEADING_TITLE_BYTES);
                        let title = title[..end].trim().to_owned();
                        TextBlockKind::Heading { level: level as u8, title }
                    }
                    (_, _, unfinished) => {
                        title = unfinished;
                        continue;
                    }
                }
            }
            Event::Text(words) | Event::Code(words) => {
                title.iter_mut().for_each(|title| title.push_str(&words));
                continue;
            }
            Event::SoftBreak | Event::HardBreak => {
                title.iter_mut().for_each(|title| title.push(' '));
                continue;
            }
            _ => continue,
        };
        // Definitions of links, and lines that divide, are text too.
        let start = range.start.max(end);
        blocks.extend(trimmed_block(text, TextBlockKind::Paragraph, end..start));
        end = range.end.max(end);
        blocks.extend(trimmed_block(text, kind, start..end));
    }
    blocks.extend(trimmed_block(text, TextBlockKind::Paragraph, end..text.len()));
    blocks
}

fn is_too_nested(line: &str) -> bool {
    let is_mark = |letter: char| letter.is_ascii_digit() || " \t>-*+.)".contains(letter);
    let marks = &line[..line.len() - line.trim_start_matches(is_mark).len()];
    let items = marks.split([' ', '\t', '>']).filter(|mark| {
        matches!(*mark, "-" | "*" | "+") || (mark.len() > 1 && mark.ends_with(['.', ')']))
    });
    marks.matches('>').count() + items.count() > MAX_NESTED_CONTAINERS
}
