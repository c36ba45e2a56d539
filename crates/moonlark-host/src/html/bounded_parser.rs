//! A page as a tree, with bounds.
//!
//! The library follows browsers in everything, also in what a few bytes can
//! cause: it looks through all open elements for each tag, through all
//! attributes for each attribute, and opens formatting elements again in every
//! paragraph. So the depth and the size of the tree are looked at after each
//! token, and a clock catches what grows elsewhere.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use html5ever::TokenizerResult;
use html5ever::buffer_queue::BufferQueue;
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{Token, TokenSink, TokenSinkResult, Tokenizer};
use html5ever::tree_builder::{TreeBuilder, TreeSink};
use moonlark_core::limits::{format_seconds, format_size};
use moonlark_core::{Problem, Result};
use moonlark_gateway::Call;
use scraper::{Html, HtmlTreeSink, Node};

/// Browsers flatten what is deeper.
const MAX_ELEMENT_DEPTH: usize = 512;
/// What a node or an attribute takes at least.
const HTML_NODE_OVERHEAD_BYTES: usize = 192;
const MAX_PARSE_TIME: Duration = Duration::from_secs(2);
/// Bytes between two looks at the clock.
const BYTES_BETWEEN_CLOCK_CHECKS: usize = 8 * 1024;

/// The text is given away: it would be held beside the tree made of it.
pub(super) fn parse_html(call: &Call, html: String) -> Result<Html> {
    let limit = call.limits().value;
    if html.len() > limit {
        return Err(html_too_large_problem(limit));
    }
    let guard = BoundedTreeSink {
        builder: TreeBuilder::new(HtmlTreeSink::new(Html::new_document()), Default::default()),
        limit,
        end: Instant::now() + MAX_PARSE_TIME.min(call.limits().timeout),
        nodes: Cell::new(0),
        cost: Cell::new(0),
        tokens: Cell::new(0),
        stopped: RefCell::new(None),
    };
    let tokenizer = Tokenizer::new(guard, Default::default());
    let mut rest = html.as_str();
    while !rest.is_empty() && tokenizer.sink.is_running() {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(BYTES_BETWEEN_CLOCK_CHECKS));
        rest = after;
        feed_tokenizer(&tokenizer, piece);
        tokenizer.sink.check_clock();
    }
    drop(html);
    if tokenizer.sink.is_running() {
        tokenizer.end();
    }
    match tokenizer.sink.stopped.take() {
        Some(problem) => Err(problem),
        None => Ok(tokenizer.sink.builder.sink.finish()),
    }
}

/// The tokenizer pauses where a browser would run a script.
pub(super) fn feed_tokenizer<S: TokenSink>(tokenizer: &Tokenizer<S>, text: &str) {
    let queue = BufferQueue::default();
    queue.push_back(StrTendril::from(text));
    while !matches!(tokenizer.feed(&queue), TokenizerResult::Done) {}
}

type HtmlTreeBuilder = TreeBuilder<<HtmlTreeSink as TreeSink>::Handle, HtmlTreeSink>;

/// Stands between the tokenizer and the tree.
struct BoundedTreeSink {
    builder: HtmlTreeBuilder,
    limit: usize,
    end: Instant,
    /// Nodes that were looked at.
    nodes: Cell<usize>,
    /// Bytes they take.
    cost: Cell<usize>,
    tokens: Cell<usize>,
    stopped: RefCell<Option<Problem>>,
}

impl BoundedTreeSink {
    fn is_running(&self) -> bool {
        self.stopped.borrow().is_none()
    }

    fn stop_with(&self, problem: Problem) {
        self.stopped.borrow_mut().get_or_insert(problem);
    }

    fn check_clock(&self) {
        if Instant::now() > self.end {
            self.stop_with(
                Problem::limit_exceeded(format!(
                    "the HTML takes longer than {} to read",
                    format_seconds(MAX_PARSE_TIME)
                ))
                .with_hint("take a part of the page, such as with regex.find"),
            );
        }
    }

    fn check_tree_size(&self) {
        let page = self.builder.sink.0.borrow();
        let nodes = page.tree.nodes();
        let count = nodes.len();
        let new = count - self.nodes.replace(count);
        let Some(last) = page.tree.nodes().next_back().filter(|_| new > 0) else { return };
        let cost = |node: &Node| {
            HTML_NODE_OVERHEAD_BYTES * (1 + node.as_element().map_or(0, |it| it.attrs.len()))
        };
        let added: usize = nodes.rev().take(new).map(|node| cost(node.value())).sum();
        self.cost.set(self.cost.get() + added);
        if self.cost.get() > self.limit {
            self.stop_with(html_too_large_problem(self.limit));
        }
        if last.ancestors().nth(MAX_ELEMENT_DEPTH).is_some() {
            self.stop_with(Problem::limit_exceeded(format!(
                "the HTML is nested deeper than {MAX_ELEMENT_DEPTH} elements"
            )));
        }
    }
}

impl TokenSink for BoundedTreeSink {
    type Handle = <HtmlTreeBuilder as TokenSink>::Handle;

    fn process_token(&self, token: Token, line: u64) -> TokenSinkResult<Self::Handle> {
        if !self.is_running() {
            return TokenSinkResult::Continue;
        }
        let result = self.builder.process_token(token, line);
        self.check_tree_size();
        self.tokens.set(self.tokens.get() + 1);
        if self.tokens.get().is_multiple_of(64) {
            self.check_clock();
        }
        result
    }

    fn end(&self) {
        self.builder.end();
    }

    fn adjusted_current_node_present_but_not_in_html_namespace(&self) -> bool {
        self.builder.adjusted_current_node_present_but_not_in_html_namespace()
    }
}

fn html_too_large_problem(limit: usize) -> Problem {
    Problem::limit_exceeded(format!(
        "the HTML takes more than {} once it is read",
        format_size(limit)
    ))
    .with_hint("work on less at a time, or raise limits.value")
}
