//! Text from outside as it may be shown to a person: nothing in it can move a
//! terminal's cursor, change its colours, hide a part or turn its direction.
//!
//! Control characters, the marks that change the direction of text and characters
//! without a width are written as `\u{…}`. Line ends and tabs stay in a text that has
//! lines of its own ([`visible_text`]). In a text that stands in a line with others
//! ([`visible_in_line`]) they are written as `\n`, since what follows could pass for
//! another line. The joiners that emoji and some scripts need stay everywhere.

use std::borrow::Cow;
use std::fmt::Write;

/// The text with everything that a terminal would obey, or not show, written out.
pub fn visible_text(text: &str) -> Cow<'_, str> {
    escape_matching(text, |out, letter| {
        // A String takes everything.
        let _ = write!(out, "\\u{{{:x}}}", u32::from(letter));
    })
}

/// The same for a text that stands in a line with others: it stays in that line.
pub fn visible_in_line(text: &str) -> Cow<'_, str> {
    let visible = visible_text(text);
    if !visible.contains(['\n', '\r', '\t']) {
        return visible;
    }
    Cow::Owned(visible.replace('\r', "\\r").replace('\n', "\\n").replace('\t', " "))
}

/// Bytes of a name that is shown in a line with others.
const MAX_LINE_BYTES: usize = 256;

/// A name from outside for a place in one line, and not longer than a line.
pub fn visible_line(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_LINE_BYTES);
    let cut = if end < text.len() { "…" } else { "" };
    format!("{}{cut}", visible_in_line(&text[..end]))
}

/// A text with lines of its own below a first line: the others are indented, so that
/// none of them passes for a line of whoever shows it.
pub fn indent_after_first(text: &str, indent: &str) -> String {
    visible_text(text).replace('\n', &format!("\n{indent}"))
}

/// The same for a text that is JSON: what is written out is so as JSON does it, so
/// that the text stays JSON, with the same values.
pub fn visible_json(text: &str) -> Cow<'_, str> {
    escape_matching(text, |out, letter| {
        for unit in letter.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    })
}

fn escape_matching(text: &str, escape: impl Fn(&mut String, char)) -> Cow<'_, str> {
    let Some((first, _)) =
        text.char_indices().find(|(at, letter)| affects_terminal(text, *at, *letter))
    else {
        return Cow::Borrowed(text);
    };
    let mut out = String::with_capacity(text.len() + 16);
    out.push_str(&text[..first]);
    for (at, letter) in text[first..].char_indices().map(|(at, letter)| (first + at, letter)) {
        if affects_terminal(text, at, letter) {
            escape(&mut out, letter);
        } else {
            out.push(letter);
        }
    }
    Cow::Owned(out)
}

/// Whether a terminal would do something else than draw the letter at this place.
fn affects_terminal(text: &str, at: usize, letter: char) -> bool {
    match letter {
        '\n' | '\t' => false,
        // As a part of a line end it moves nothing.
        '\r' => text.as_bytes().get(at + 1) != Some(&b'\n'),
        letter if letter.is_ascii() => letter.is_ascii_control(),
        // The second set of control characters.
        '\u{80}'..='\u{9f}' => true,
        // Soft hyphen, Arabic letter mark, fillers that look like nothing.
        '\u{ad}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{3164}' | '\u{ffa0}' => {
            true
        }
        // No width: space, direction marks. The joiners between them stay.
        '\u{200b}' | '\u{200e}' | '\u{200f}' => true,
        // Line and paragraph separators, embeddings and overrides.
        '\u{2028}'..='\u{202e}' => true,
        // Word joiner, invisible operators, isolates, deprecated formatting.
        '\u{2060}'..='\u{206f}' => true,
        // Byte order mark, interlinear annotation.
        '\u{feff}' | '\u{fff9}'..='\u{fffb}' => true,
        // Tags: a whole alphabet that nobody sees.
        '\u{e0000}'..='\u{e0fff}' => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_written_out() {
        for (text, shown) in [
            ("plain", "plain"),
            ("a\tb\nc\r\nd", "a\tb\nc\r\nd"),
            ("over\rwritten", "over\\u{d}written"),
            ("end\r", "end\\u{d}"),
            ("\x1b[2J\x1b]0;title\x07", "\\u{1b}[2J\\u{1b}]0;title\\u{7}"),
            ("\u{9b}31m\u{7f}", "\\u{9b}31m\\u{7f}"),
            ("pay\u{202e}001\u{202c}", "pay\\u{202e}001\\u{202c}"),
            (
                "a\u{2066}b\u{2069}\u{200e}\u{200f}\u{61c}",
                "a\\u{2066}b\\u{2069}\\u{200e}\\u{200f}\\u{61c}",
            ),
            ("adm\u{200b}in\u{feff}", "adm\\u{200b}in\\u{feff}"),
            ("\u{e0041}", "\\u{e0041}"),
            ("Grüße 東京 👩\u{200d}💻 é", "Grüße 東京 👩\u{200d}💻 é"),
        ] {
            assert_eq!(visible_text(text), shown);
        }
    }

    #[test]
    fn json_stays_json_with_the_same_values() {
        let value =
            serde_json::json!({"a": "\u{9b}\u{202e}\u{e0041}\u{7f}\x1b ü", "b\u{200b}": [1]});
        let text = value.to_string();
        let shown = visible_json(&text);
        assert_eq!(shown, r#"{"a":"\u009b\u202e\udb40\udc41\u007f\u001b ü","b\u200b":[1]}"#);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }

    #[test]
    fn what_stands_in_a_line_stays_in_it() {
        for (text, shown) in [
            ("plain", "plain"),
            ("good\n2026-11-18  ok  \u{1b}[2KFORGED", "good\\n2026-11-18  ok  \\u{1b}[2KFORGED"),
            ("1\r\n2\r3", "1\\r\\n2\\u{d}3"),
            ("a\tb", "a b"),
            (
                "1\u{b}2\u{c}3\u{85}4\u{2028}5\u{2029}6",
                "1\\u{b}2\\u{c}3\\u{85}4\\u{2028}5\\u{2029}6",
            ),
        ] {
            assert_eq!(visible_in_line(text), shown);
            assert_eq!(visible_line(text), shown);
        }
        assert_eq!(visible_line(&"ä".repeat(500)), format!("{}…", "ä".repeat(128)));
    }

    #[test]
    fn later_lines_of_a_text_are_indented() {
        assert_eq!(indent_after_first("a\nhint: b\n\u{1b}", "    "), "a\n    hint: b\n    \\u{1b}");
    }
}
