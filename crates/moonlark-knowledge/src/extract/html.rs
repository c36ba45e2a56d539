//! Web pages: what a reader would see, by the tokens alone.
//!
//! No tree is built, so there is no depth to bound and nothing that a few bytes
//! can multiply. What an unclosed element would swallow in a browser is text
//! here, which is the better mistake.

mod html_page;

use std::cell::RefCell;
use std::time::Instant;

use html5ever::TokenizerResult;
use html5ever::buffer_queue::BufferQueue;
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::{RawKind, Rawtext, Rcdata, ScriptData};
use html5ever::tokenizer::{Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer};
use moonlark_core::limits::format_seconds;
use moonlark_core::{Problem, ProblemCode, Result};

use super::{ExtractLimits, ExtractedDocument};
use html_page::HtmlPage;

/// Bytes between two looks at the clock: the tokenizer compares each attribute
/// of a tag with all before it.
const TIME_CHECK_INTERVAL_BYTES: usize = 8 * 1024;

pub(super) fn extract_html(html: &str, limits: &ExtractLimits) -> Result<ExtractedDocument> {
    let end = Instant::now() + limits.time;
    let tokenizer =
        Tokenizer::new(HtmlTokenSink(RefCell::new(HtmlPage::default())), Default::default());
    let mut rest = html;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(TIME_CHECK_INTERVAL_BYTES));
        rest = after;
        let queue = BufferQueue::default();
        queue.push_back(StrTendril::from(piece));
        // It pauses where a browser would run a script.
        while !matches!(tokenizer.feed(&queue), TokenizerResult::Done) {}
        if Instant::now() > end {
            let spent = format_seconds(limits.time);
            return Err(Problem::new(
                ProblemCode::Timeout,
                format!("it takes longer than {spent} to read"),
            ));
        }
    }
    tokenizer.end();
    tokenizer.sink.0.into_inner().finish_page(limits.text)
}

struct HtmlTokenSink(RefCell<HtmlPage>);

impl TokenSink for HtmlTokenSink {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        let mut page = self.0.borrow_mut();
        match token {
            Token::TagToken(tag) => {
                match tag.kind {
                    TagKind::StartTag => page.start_element(&tag),
                    TagKind::EndTag => page.end_element(&tag.name),
                }
                return raw_text_kind(&tag)
                    .map_or(TokenSinkResult::Continue, TokenSinkResult::RawData);
            }
            Token::CharacterTokens(text) => page.push_text(&text),
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

/// Elements whose content is not made of tags.
fn raw_text_kind(tag: &Tag) -> Option<RawKind> {
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
