//! Sanitized text from servers and API documents: without invisible characters, and of
//! bounded length.

use std::borrow::Cow;

use crate::limits::format_size;
use serde_json::Value as Json;

/// Of the description of a tool.
pub const MAX_DESCRIPTION_BYTES: usize = 8 * 1024;
/// Of the description of one parameter or field, and of a title.
pub const MAX_FIELD_TEXT_BYTES: usize = 2 * 1024;
/// Of a tag that operations are filed under.
pub const MAX_TAG_BYTES: usize = 128;
/// Of what a server tells its users about itself.
pub const MAX_INSTRUCTIONS_BYTES: usize = 32 * 1024;

/// The text without invisible control characters, and its first `max_bytes` with a
/// note if it is longer.
pub fn clean_text(text: &str, max_bytes: usize) -> Cow<'_, str> {
    let visible: Cow<'_, str> = if text.contains(is_invisible) {
        text.chars().filter(|it| !is_invisible(*it)).collect::<String>().into()
    } else {
        text.into()
    };
    if visible.len() <= max_bytes {
        return visible;
    }
    let end = visible.floor_char_boundary(max_bytes);
    let left_out = format_size(visible.len() - end);
    format!("{}… ({left_out} left out)", visible[..end].trim_end()).into()
}

/// Controls that terminals act on, marks that turn the direction of the text, and
/// letters that only machines read.
fn is_invisible(letter: char) -> bool {
    match letter {
        '\n' | '\t' => false,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}' => true,
        other => other.is_control(),
    }
}

/// The text of a schema as JSON has it.
pub fn clean_json_text(text: &str) -> Json {
    Json::String(clean_text(text, MAX_FIELD_TEXT_BYTES).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_sees_is_taken_out_and_what_is_long_is_cut() {
        for (text, expected) in [
            ("a\tb\nc", "a\tb\nc"),
            ("\u{1b}[31mred\u{7}\r", "[31mred"),
            ("a\u{202e}b\u{2066}c\u{e0041}d\u{9b}e", "abcde"),
            ("größe 👩‍👩‍👧", "größe 👩‍👩‍👧"),
        ] {
            assert_eq!(clean_text(text, 100), expected);
        }
        assert_eq!(clean_text("ääää", 5), "ää… (4 bytes left out)");
    }
}
