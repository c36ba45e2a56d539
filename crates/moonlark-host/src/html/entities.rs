//! Character references.

use std::cell::RefCell;

use html5ever::tokenizer::states::{RawData, RawKind};
use html5ever::tokenizer::{Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};

use super::document::feed;

pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
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

/// As a browser reads them in text.
pub(super) fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('&') {
        out.push_str(&rest[..start]);
        let reference = &rest[start..start + reference(&rest[start..])];
        match reference {
            "&" => out.push('&'),
            "&amp;" => out.push('&'),
            "&lt;" => out.push('<'),
            "&gt;" => out.push('>'),
            "&quot;" => out.push('"'),
            "&#39;" => out.push('\''),
            other => out.push_str(&decode(other)),
        }
        rest = &rest[start + reference.len()..];
    }
    out.push_str(rest);
    out
}

/// No name is longer, and what follows one is plain text.
const MOST_NAME: usize = 40;

/// How long the reference at the beginning of the text is, at most.
fn reference(text: &str) -> usize {
    let name = &text[1..];
    let number = name.strip_prefix('#');
    let letters = |text: &str| text.bytes().take_while(u8::is_ascii_alphanumeric).count();
    let length = match number {
        Some(digits) => 1 + letters(digits),
        None => letters(name).min(MOST_NAME),
    };
    1 + length + usize::from(name[length..].starts_with(';'))
}

/// The tokenizer knows all names; in this state it sees no tags.
fn decode(text: &str) -> String {
    let options = TokenizerOpts {
        discard_bom: false,
        initial_state: Some(RawData(RawKind::Rcdata)),
        ..TokenizerOpts::default()
    };
    let tokenizer = Tokenizer::new(Characters::default(), options);
    feed(&tokenizer, text);
    tokenizer.end();
    tokenizer.sink.0.into_inner()
}

#[derive(Default)]
struct Characters(RefCell<String>);

impl TokenSink for Characters {
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
