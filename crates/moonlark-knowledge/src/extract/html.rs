//! Web pages: what a reader would see, by the tokens alone.
//!
//! No tree is built, so there is no depth to bound and nothing that a few bytes
//! can multiply. What an unclosed element would swallow in a browser is text
//! here, which is the better mistake.

mod page;

use std::cell::RefCell;
use std::time::Instant;

use html5ever::TokenizerResult;
use html5ever::buffer_queue::BufferQueue;
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::{RawKind, Rawtext, Rcdata, ScriptData};
use html5ever::tokenizer::{Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer};
use moonlark_core::limits::seconds;
use moonlark_core::{Code, Problem, Result};

use super::{ExtractLimits, Extracted};
use page::Page;

/// Bytes between two looks at the clock: the tokenizer compares each attribute
/// of a tag with all before it.
const PIECE: usize = 8 * 1024;

pub(super) fn read(html: &str, limits: &ExtractLimits) -> Result<Extracted> {
    let end = Instant::now() + limits.time;
    let tokenizer = Tokenizer::new(Sink(RefCell::new(Page::default())), Default::default());
    let mut rest = html;
    while !rest.is_empty() {
        let cut = (0..=PIECE.min(rest.len())).rev().find(|at| rest.is_char_boundary(*at));
        let (piece, after) = rest.split_at(cut.unwrap_or(rest.len()));
        rest = after;
        let queue = BufferQueue::default();
        queue.push_back(StrTendril::from(piece));
        // It pauses where a browser would run a script.
        while !matches!(tokenizer.feed(&queue), TokenizerResult::Done) {}
        if Instant::now() > end {
            let spent = seconds(limits.time);
            return Err(Problem::new(
                Code::Timeout,
                format!("it takes longer than {spent} to read"),
            ));
        }
    }
    tokenizer.end();
    tokenizer.sink.0.into_inner().finish(limits.text)
}

struct Sink(RefCell<Page>);

impl TokenSink for Sink {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        let mut page = self.0.borrow_mut();
        match token {
            Token::TagToken(tag) => {
                match tag.kind {
                    TagKind::StartTag => page.start(&tag),
                    TagKind::EndTag => page.end(&tag.name),
                }
                return raw(&tag).map_or(TokenSinkResult::Continue, TokenSinkResult::RawData);
            }
            Token::CharacterTokens(text) => page.text(&text),
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

/// Elements whose content is not made of tags.
fn raw(tag: &Tag) -> Option<RawKind> {
    if tag.kind == TagKind::EndTag {
        return None;
    }
    match &*tag.name {
        "title" | "textarea" => Some(Rcdata),
        "style" | "xmp" | "iframe" | "noembed" | "noframes" => Some(Rawtext),
        "script" => Some(ScriptData),
        _ => None,
    }
}
