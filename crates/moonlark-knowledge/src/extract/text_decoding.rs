//! Bytes as text, if they are text.

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

use super::document_format::DocumentFormat;
use crate::source_connector::SourceItem;

/// How much is looked at to tell text from anything else.
const TEXT_SAMPLE_SIZE: usize = 64 * 1024;

/// None when the bytes are no text in any encoding that people use.
pub(super) fn decode_text(
    item: &SourceItem,
    format: DocumentFormat,
    bytes: &[u8],
) -> Option<String> {
    if let Some((encoding, mark)) = Encoding::for_bom(bytes) {
        let (text, _) = encoding.decode_without_bom_handling(&bytes[mark..]);
        return is_readable(&text).then(|| text.into_owned());
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        return is_readable(text).then(|| text.to_owned());
    }
    let said = item.content_type.as_deref().and_then(find_charset).or_else(|| match format {
        DocumentFormat::Html => {
            find_charset(&String::from_utf8_lossy(&bytes[..bytes.len().min(2048)]))
        }
        _ => None,
    });
    if let Some(encoding) = said.filter(|it| *it != UTF_8) {
        let (text, _) = encoding.decode_without_bom_handling(bytes);
        return is_readable(&text).then(|| text.into_owned());
    }
    // A few bytes that are no UTF-8 in the midst of much that is.
    let lossy = String::from_utf8_lossy(bytes);
    let (mut foreign, mut broken) = (0, 0);
    for char in lossy.chars().filter(|char| !char.is_ascii()) {
        foreign += 1;
        broken += usize::from(char == '\u{fffd}');
    }
    if broken * 10 <= foreign {
        return is_readable(&lossy).then(|| lossy.into_owned());
    }
    let (text, _) = WINDOWS_1252.decode_without_bom_handling(bytes);
    (is_readable(&text) && is_western(bytes)).then(|| text.into_owned())
}

/// No zeros, and hardly any control characters.
fn is_readable(text: &str) -> bool {
    let mut controls = 0;
    let mut count = 0;
    for char in text.chars().take(TEXT_SAMPLE_SIZE) {
        count += 1;
        let fine = matches!(char, '\n' | '\r' | '\t' | '\x0c' | '\x1b');
        controls += usize::from(char.is_control() && !fine);
        if char == '\0' {
            return false;
        }
    }
    controls * 50 <= count
}

/// Text of western languages is mostly ASCII; compressed data is not.
fn is_western(bytes: &[u8]) -> bool {
    let start = &bytes[..bytes.len().min(TEXT_SAMPLE_SIZE)];
    let high = start.iter().filter(|byte| !byte.is_ascii()).count();
    high * 5 <= start.len() * 2
}

/// The name after `charset=`, in a media type or the head of a page.
fn find_charset(text: &str) -> Option<&'static Encoding> {
    let lower = text.to_ascii_lowercase();
    let (_, after) = lower.split_once("charset=")?;
    let name = after.trim_start_matches(['"', '\'', ' ']);
    let end = name.find(|char: char| !(char.is_ascii_alphanumeric() || "-_:.".contains(char)));
    Encoding::for_label(&name.as_bytes()[..end.unwrap_or(name.len())])
}
