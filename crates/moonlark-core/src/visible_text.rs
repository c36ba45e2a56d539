//! Text from outside as it may be shown to a person: nothing in it can move a
//! terminal's cursor, change its colours, hide a part or turn its direction.
//!
//! Control characters, the marks that change the direction of text and characters that
//! nobody sees (Default_Ignorable_Code_Point of Unicode, and blanks that are no spaces)
//! are written as `\u{…}`. Line ends and tabs stay in a text that has
//! lines of its own ([`visible_text`]). In a text that stands in a line with others
//! ([`visible_in_line`]) they are written as `\n`, since what follows could pass for
//! another line. Joiners and variation selectors stay where they change how a letter
//! looks: one beside an emoji, or beside a letter of a script that is written with them.

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
        // The second set of control characters, line and paragraph separators.
        '\u{80}'..='\u{9f}' | '\u{2028}' | '\u{2029}' => true,
        // Interlinear annotation, controls of hieroglyphs.
        '\u{fff9}'..='\u{fffb}' | '\u{13430}'..='\u{13440}' => true,
        // Blank glyphs: Braille, the null notehead, the filler of Khitan.
        '\u{2800}' | '\u{1d159}' | '\u{16fe4}' => true,
        letter => is_default_ignorable(letter) && !changes_appearance(text, at, letter),
    }
}

/// Default_Ignorable_Code_Point of Unicode 17: characters that are not drawn.
fn is_default_ignorable(letter: char) -> bool {
    matches!(letter,
        // Soft hyphen, grapheme joiner, Arabic letter mark.
        '\u{ad}' | '\u{34f}' | '\u{61c}'
        // Fillers of Hangul, vowels of Khmer that are not written.
        | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' | '\u{17b4}' | '\u{17b5}'
        // Variation selectors and the vowel separator of Mongolian.
        | '\u{180b}'..='\u{180f}'
        // Zero-width space, joiners, direction marks; embeddings and overrides.
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        // Word joiner, invisible operators, isolates, deprecated formatting.
        | '\u{2060}'..='\u{206f}'
        // Variation selectors, byte order mark, places for more of the kind.
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff0}'..='\u{fff8}'
        // Controls of shorthand and of musical notation.
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        // Tags, a whole alphabet that nobody sees, and more variation selectors.
        | '\u{e0000}'..='\u{e0fff}'
    )
}

/// Whether a joiner or a variation selector makes its neighbours look different. Only
/// the first of several in a row does, so that none can be hidden behind another.
fn changes_appearance(text: &str, at: usize, letter: char) -> bool {
    let mut earlier = text[..at].chars().rev();
    let before = earlier.next();
    let after = text[at + letter.len_utf8()..].chars().next();
    let is = |neighbour: Option<char>, kind: fn(char) -> bool| neighbour.is_some_and(kind);
    match letter {
        '\u{200c}' | '\u{200d}' => {
            if is(before, is_default_ignorable) {
                // An emoji in colour that is joined to another one.
                let in_colour = before == Some('\u{fe0f}') && is(earlier.next(), is_emoji);
                return letter == '\u{200d}' && in_colour && is(after, is_emoji);
            }
            let joins_emoji = letter == '\u{200d}' && is(before, is_emoji) && is(after, is_emoji);
            joins_emoji || is(before, is_joined_letter) || is(after, is_joined_letter)
        }
        // Emoji as text or in colour, and keys such as 1️⃣.
        '\u{fe0e}' | '\u{fe0f}' => {
            let is_key = is(before, |it| matches!(it, '0'..='9' | '#' | '*'));
            is(before, is_emoji) || (is_key && after == Some('\u{20e3}'))
        }
        // Dotted letters of Myanmar, and Phags-pa.
        '\u{fe00}' => is(
            before,
            |it| matches!(it, '\u{1000}'..='\u{109f}' | '\u{aa60}'..='\u{aa7f}' | '\u{a840}'..='\u{a87f}'),
        ),
        '\u{180b}'..='\u{180d}' | '\u{180f}' => {
            is(before, |it| matches!(it, '\u{1820}'..='\u{18aa}'))
        }
        _ => false,
    }
}

/// Emoji, with the symbols among which they are.
fn is_emoji(letter: char) -> bool {
    matches!(letter,
        '\u{a9}' | '\u{ae}' | '\u{203c}' | '\u{2049}' | '\u{2122}' | '\u{2139}' | '\u{24c2}'
        | '\u{2190}'..='\u{21ff}' | '\u{2300}'..='\u{23ff}' | '\u{25a0}'..='\u{27bf}'
        | '\u{2934}' | '\u{2935}' | '\u{2b00}'..='\u{2bff}'
        | '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}'
        | '\u{1f000}'..='\u{1faff}'
    )
}

/// Letters and marks of scripts whose letters are joined, or kept apart, by joiners.
fn is_joined_letter(letter: char) -> bool {
    let is_joined_script = matches!(letter,
        // Arabic, Syriac, Thaana, N'Ko, Mandaic.
        '\u{600}'..='\u{7ff}' | '\u{840}'..='\u{8ff}'
        // The scripts of India and Sri Lanka, Tibetan, Myanmar.
        | '\u{900}'..='\u{dff}' | '\u{f00}'..='\u{109f}'
        // Khmer, Mongolian, and the smaller scripts of South-East Asia.
        | '\u{1780}'..='\u{18af}' | '\u{1900}'..='\u{1c4f}' | '\u{1cd0}'..='\u{1cff}'
        | '\u{a800}'..='\u{a8ff}' | '\u{a930}'..='\u{aa7f}' | '\u{aae0}'..='\u{aaff}'
        | '\u{abc0}'..='\u{abff}'
        // Presentation forms of Arabic.
        | '\u{fb50}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}'
        // Manichaean, Psalter Pahlavi, Hanifi Rohingya, Sogdian; descendants of Brahmi; Adlam.
        | '\u{10ac0}'..='\u{10aff}' | '\u{10b80}'..='\u{10baf}' | '\u{10d00}'..='\u{10d3f}'
        | '\u{10f30}'..='\u{10fdf}' | '\u{11000}'..='\u{11fff}' | '\u{1e900}'..='\u{1e95f}'
    );
    is_joined_script && !letter.is_numeric() && !is_default_ignorable(letter)
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
    fn characters_that_nobody_sees_are_written_out() {
        let ranges: [(u32, u32); 21] = [
            (0xad, 0xad),
            (0x34f, 0x34f),
            (0x61c, 0x61c),
            (0x115f, 0x1160),
            (0x17b4, 0x17b5),
            (0x180b, 0x180f),
            (0x200b, 0x200f),
            (0x202a, 0x202e),
            (0x2060, 0x206f),
            (0x2800, 0x2800),
            (0x3164, 0x3164),
            (0xfe00, 0xfe0f),
            (0xfeff, 0xfeff),
            (0xffa0, 0xffa0),
            (0xfff0, 0xfffb),
            (0x13430, 0x13440),
            (0x16fe4, 0x16fe4),
            (0x1bca0, 0x1bca3),
            (0x1d159, 0x1d159),
            (0x1d173, 0x1d17a),
            (0xe0000, 0xe0fff),
        ];
        for code in ranges.into_iter().flat_map(|(first, last)| first..=last) {
            let letter = char::from_u32(code).unwrap();
            assert_eq!(visible_text(&format!("a{letter}b")), format!("a\\u{{{code:x}}}b"));
            assert_eq!(visible_text(&letter.to_string()), format!("\\u{{{code:x}}}"));
        }
    }

    #[test]
    fn joiners_and_variation_selectors_stay_only_where_they_change_how_letters_look() {
        for (text, shown) in [
            // Emoji: joined, in colour, as text, keys.
            ("👩\u{200d}💻 🏳\u{fe0f}\u{200d}🌈", "👩\u{200d}💻 🏳\u{fe0f}\u{200d}🌈"),
            ("🧑🏽\u{200d}💻 ☎\u{fe0e}", "🧑🏽\u{200d}💻 ☎\u{fe0e}"),
            ("1\u{fe0f}\u{20e3} ❤\u{fe0f}", "1\u{fe0f}\u{20e3} ❤\u{fe0f}"),
            // Persian, with a word of another script too; Hindi; Sinhala; Mongolian.
            ("می\u{200c}خواهم PDF\u{200c}ها", "می\u{200c}خواهم PDF\u{200c}ها"),
            ("क्\u{200d}ष ශ්\u{200d}රී", "क्\u{200d}ष ශ්\u{200d}රී"),
            ("ᠨ\u{180b}", "ᠨ\u{180b}"),
            // Elsewhere nobody sees them.
            ("mal\u{200c}l\u{200d}ory\u{fe0f}", "mal\\u{200c}l\\u{200d}ory\\u{fe0f}"),
            ("100\u{fe0f}0 👩\u{200d}a", "100\\u{fe0f}0 👩\\u{200d}a"),
            ("a\u{180b} \u{200c} é\u{200d}", "a\\u{180b} \\u{200c} é\\u{200d}"),
            // And behind the first, nothing more changes.
            ("❤\u{fe0f}\u{fe0f}\u{fe0e}", "❤\u{fe0f}\\u{fe0f}\\u{fe0e}"),
            ("ی\u{200c}\u{200d}\u{200c}خ", "ی\u{200c}\\u{200d}\\u{200c}خ"),
            ("👩\u{200d}\u{200d}💻", "👩\\u{200d}\\u{200d}💻"),
            ("a\u{fe0f}\u{200d}💻", "a\\u{fe0f}\\u{200d}💻"),
            ("٣\u{200d}٤", "٣\\u{200d}٤"),
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
