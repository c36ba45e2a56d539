//! Source code: what begins at the margin after an empty line is a part.
//!
//! Knows no language. Nearly all of them are written so that this gives
//! functions, types and sections; where it does not, a part is only longer.

use moonlark_core::Value;

use super::{ExtractedDocument, TextBlock, TextBlockKind, lines_with_offsets, trim_range};

/// Bytes of what names a part.
const MAX_DECLARATION_BYTES: usize = 120;

pub(super) fn extract_code(text: String, language: Option<&'static str>) -> ExtractedDocument {
    let mut blocks = Vec::new();
    let mut start = 0;
    let mut after_gap = false;
    for (at, line) in lines_with_offsets(&text) {
        if line.trim().is_empty() {
            after_gap = true;
            continue;
        }
        if after_gap && starts_declaration(line) {
            blocks.extend(code_block(&text, start..at, language));
            start = at;
        }
        after_gap = false;
    }
    blocks.extend(code_block(&text, start..text.len(), language));
    let named = language.map(|language| Value::from_fields([("language", language.into())]));
    let metadata = named.unwrap_or_default();
    ExtractedDocument { text, blocks, metadata, ..ExtractedDocument::default() }
}

/// At the margin, and not the end of something.
fn starts_declaration(line: &str) -> bool {
    let Some(first) = line.chars().next() else { return false };
    !first.is_whitespace()
        && !matches!(first, '}' | ')' | ']' | '{')
        && !matches!(line.trim_end(), "end" | "fi" | "done" | "esac" | "else" | "else:")
}

fn code_block(
    text: &str,
    range: std::ops::Range<usize>,
    language: Option<&str>,
) -> Option<TextBlock> {
    let range = trim_range(text, range)?;
    let data = matches!(language, Some("json" | "xml"));
    let title = if data { None } else { declaration_title(&text[range.clone()]) };
    let kind = match title {
        Some(title) => TextBlockKind::Part { title },
        None => TextBlockKind::Code,
    };
    Some(TextBlock { kind, range })
}

/// The first line that says something to the compiler.
fn declaration_title(part: &str) -> Option<String> {
    let mut inside = None;
    for line in part.lines() {
        let line = line.trim();
        // Doc comments over several lines.
        if let Some(end) = inside {
            if line.contains(end) {
                inside = None;
            }
            continue;
        }
        if let Some(end) = comment_end_marker(line) {
            inside = (!line[3.min(line.len())..].contains(end)).then_some(end);
            continue;
        }
        if line.is_empty() || is_comment(line) {
            continue;
        }
        if is_import(line) {
            return None;
        }
        let line = line.trim_end_matches(['{', ':', '(', '[', '=', ' ', '\t']);
        let end = line.floor_char_boundary(MAX_DECLARATION_BYTES);
        return (end > 0).then(|| line[..end].trim_end().to_owned());
    }
    None
}

fn comment_end_marker(line: &str) -> Option<&'static str> {
    match line {
        _ if line.starts_with("/*") => Some("*/"),
        _ if line.starts_with("\"\"\"") => Some("\"\"\""),
        _ if line.starts_with("'''") => Some("'''"),
        _ if line.starts_with("--[[") => Some("]]"),
        _ if line.starts_with("<!--") => Some("-->"),
        _ => None,
    }
}

fn is_comment(line: &str) -> bool {
    let marks = ["//", "#", "--", ";", "%", "@", "* "];
    // `#` also begins what C defines, and that is worth its name.
    marks.iter().any(|mark| line.starts_with(mark)) && !line.starts_with("#define")
}

fn is_import(line: &str) -> bool {
    ["use ", "import ", "from ", "package ", "require", "pub use ", "mod ", "using ", "const {"]
        .iter()
        .any(|word| line.starts_with(word))
}
