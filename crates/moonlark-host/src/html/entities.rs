//! Character references.

use std::cell::RefCell;
use std::collections::HashMap;

use html5ever::tokenizer::states::{RawData, RawKind};
use html5ever::tokenizer::{Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};
use moonlark_core::Result;

use super::bounded_parser::feed_tokenizer;

/// How long it is once it is escaped.
pub(super) fn escaped_length(text: &str) -> usize {
    let longer = text.bytes().map(|byte| match byte {
        b'"' => 5,
        b'&' | b'\'' => 4,
        b'<' | b'>' => 3,
        _ => 0,
    });
    text.len() + longer.sum::<usize>()
}

pub(super) fn escape_entities(text: &str) -> String {
    let mut out = String::with_capacity(escaped_length(text));
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
    }
    out
}

/// References that are remembered within one text, which rarely has more.
const MAX_REMEMBERED_REFERENCES: usize = 1024;
/// References that are read between two looks at the clock.
const REFERENCES_BETWEEN_CHECKS: usize = 256;

/// As a browser reads them in text. Whether to go on is asked from time to time: there
/// can be millions.
pub(super) fn unescape_entities(text: &str, go_on: impl Fn() -> Result<()>) -> Result<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut remembered: HashMap<&str, String> = HashMap::new();
    let mut seen = 0_usize;
    while let Some(start) = rest.find('&') {
        seen += 1;
        if seen.is_multiple_of(REFERENCES_BETWEEN_CHECKS) {
            go_on()?;
        }
        out.push_str(&rest[..start]);
        let reference = &rest[start..start + reference_length(&rest[start..])];
        match reference {
            "&" => out.push('&'),
            "&amp;" => out.push('&'),
            "&lt;" => out.push('<'),
            "&gt;" => out.push('>'),
            "&quot;" => out.push('"'),
            "&#39;" => out.push('\''),
            other => match remembered.get(other) {
                Some(known) => out.push_str(known),
                None => {
                    let text = decode_reference(other);
                    out.push_str(&text);
                    if remembered.len() < MAX_REMEMBERED_REFERENCES {
                        remembered.insert(other, text);
                    }
                }
            },
        }
        rest = &rest[start + reference.len()..];
    }
    out.push_str(rest);
    Ok(out)
}

/// No name is longer, and what follows one is plain text.
const MAX_REFERENCE_NAME_BYTES: usize = 40;

/// How long the reference at the beginning of the text is, at most.
fn reference_length(text: &str) -> usize {
    let name = &text[1..];
    let number = name.strip_prefix('#');
    let letters = |text: &str| text.bytes().take_while(u8::is_ascii_alphanumeric).count();
    let length = match number {
        Some(digits) => 1 + letters(digits),
        None => letters(name).min(MAX_REFERENCE_NAME_BYTES),
    };
    1 + length + usize::from(name[length..].starts_with(';'))
}

/// The tokenizer knows all names; in this state it sees no tags.
fn decode_reference(text: &str) -> String {
    let options = TokenizerOpts {
        discard_bom: false,
        initial_state: Some(RawData(RawKind::Rcdata)),
        ..TokenizerOpts::default()
    };
    let tokenizer = Tokenizer::new(CharacterSink::default(), options);
    feed_tokenizer(&tokenizer, text);
    tokenizer.end();
    tokenizer.sink.0.into_inner()
}

#[derive(Default)]
struct CharacterSink(RefCell<String>);

impl TokenSink for CharacterSink {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        match token {
            Token::CharacterTokens(text) => self.0.borrow_mut().push_str(&text),
            Token::NullCharacterToken => self.0.borrow_mut().push('\u{fffd}'),
            _ => {}
        }
        TokenSinkResult::Continue
    }
}
