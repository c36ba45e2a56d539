//! A page as it is read: which block is open, what is left out.

use html5ever::tokenizer::Tag;
use moonlark_core::Result;

use crate::extract::document_builder::ExtractedDocumentBuilder;
use crate::extract::{ExtractedDocument, TextBlockKind};

/// Lists in lists that are still indented.
const MAX_HTML_LIST_DEPTH: usize = 8;
/// Bytes of text that a part of a page needs to be taken for all of it.
const MIN_MAIN_TEXT_BYTES: usize = 200;

#[derive(Default)]
pub(super) struct HtmlPage {
    done: Vec<HtmlBlock>,
    /// The block being read.
    buffer: String,
    kind: HtmlBlockKind,
    /// White space that counts once something follows.
    space: bool,
    title: Option<String>,
    in_title: bool,
    /// An element that is not shown, and how many of its kind are open.
    hidden: Option<(String, usize)>,
    lists: Vec<Option<u32>>,
    tables: usize,
    main: usize,
    article: usize,
}

struct HtmlBlock {
    kind: HtmlBlockKind,
    text: String,
    main: bool,
    article: bool,
}

#[derive(Default, Clone, Copy, PartialEq)]
enum HtmlBlockKind {
    #[default]
    Paragraph,
    Heading(u8),
    Item,
    Code,
    Table,
}

impl HtmlPage {
    pub(super) fn start_element(&mut self, tag: &Tag) {
        let name = &*tag.name;
        if let Some((hidden, count)) = &mut self.hidden {
            if *hidden == name && !tag.self_closing {
                *count += 1;
            }
            // A menu that nobody closed ends where the page itself begins.
            if !(hidden == "nav" && matches!(name, "main" | "article" | "h1")) {
                return;
            }
            self.hidden = None;
        }
        match name {
            "title" if self.title.is_none() => {
                self.flush_block();
                self.in_title = true;
            }
            "script" | "style" | "template" | "noscript" | "svg" | "nav" | "iframe" | "object"
            | "canvas" | "select" | "noembed" | "noframes"
                if !tag.self_closing =>
            {
                self.space = true;
                self.hidden = Some((name.to_owned(), 1));
            }
            "main" => {
                self.flush_block();
                self.main += 1;
            }
            "article" => {
                self.flush_block();
                self.article += 1;
            }
            "h1" | "h2" | "h3" | "h4" | "h5" | "h6" if self.tables == 0 => {
                self.flush_block();
                self.kind = HtmlBlockKind::Heading(name.as_bytes()[1] - b'0');
            }
            "ul" | "menu" => self.open_list(None),
            "ol" => self.open_list(Some(0)),
            "li" if self.tables == 0 => {
                self.flush_block();
                self.kind = HtmlBlockKind::Item;
                let depth = self.lists.len().clamp(1, MAX_HTML_LIST_DEPTH);
                self.buffer.push_str(&"  ".repeat(depth - 1));
                match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number = number.saturating_add(1);
                        self.buffer.push_str(&format!("{number}. "));
                    }
                    _ => self.buffer.push_str("- "),
                }
                self.space = false;
            }
            "pre" | "xmp" | "listing" if self.tables == 0 => {
                self.flush_block();
                self.kind = HtmlBlockKind::Code;
            }
            "table" => {
                if self.tables == 0 {
                    self.flush_block();
                    self.kind = HtmlBlockKind::Table;
                }
                self.tables += 1;
            }
            "tr" if self.tables > 0 => self.start_row(),
            "td" | "th" if self.tables > 0 => self.start_cell(),
            "br" => self.push_line_break(),
            "img" => self.push_image_text(tag),
            _ if is_block_element(name) => self.break_block(),
            _ => {}
        }
    }

    pub(super) fn end_element(&mut self, name: &str) {
        if let Some((hidden, count)) = &mut self.hidden {
            if *hidden == name {
                *count -= 1;
                if *count == 0 {
                    self.hidden = None;
                }
            }
            return;
        }
        match name {
            "title" if self.in_title => {
                let title = std::mem::take(&mut self.buffer);
                self.title = Some(title).filter(|title| !title.trim().is_empty());
                self.in_title = false;
                self.space = false;
            }
            "main" => {
                self.flush_block();
                self.main = self.main.saturating_sub(1);
            }
            "article" => {
                self.flush_block();
                self.article = self.article.saturating_sub(1);
            }
            "ul" | "ol" | "menu" => {
                self.break_block();
                self.lists.pop();
            }
            "table" if self.tables > 0 => {
                self.tables -= 1;
                self.break_block();
            }
            "pre" | "xmp" | "listing" if self.kind == HtmlBlockKind::Code => self.flush_block(),
            _ if is_block_element(name) => self.break_block(),
            _ => {}
        }
    }

    pub(super) fn push_text(&mut self, text: &str) {
        if self.hidden.is_some() {
            return;
        }
        if self.kind == HtmlBlockKind::Code {
            self.buffer.push_str(text);
            return;
        }
        if text.starts_with(|first: char| first.is_ascii_whitespace()) {
            self.space = true;
        }
        for word in text.split_ascii_whitespace() {
            if self.space && !self.buffer.is_empty() && !self.buffer.ends_with([' ', '\n']) {
                self.buffer.push(' ');
            }
            self.buffer.push_str(word);
            self.space = true;
        }
        self.space = text.ends_with(|last: char| last.is_ascii_whitespace());
    }

    pub(super) fn finish_page(mut self, most: usize) -> Result<ExtractedDocument> {
        self.flush_block();
        let length = |of: fn(&HtmlBlock) -> bool| -> usize {
            self.done.iter().filter(|piece| of(piece)).map(|piece| piece.text.len()).sum()
        };
        let all = length(|_| true);
        // What is around it is the same on every page of a site.
        let keep: fn(&HtmlBlock) -> bool =
            if length(|piece| piece.main) >= MIN_MAIN_TEXT_BYTES.min(all) {
                |piece| piece.main
            } else if length(|piece| piece.article) >= MIN_MAIN_TEXT_BYTES.max(all / 2) {
                |piece| piece.article
            } else {
                |_| true
            };
        let mut draft = ExtractedDocumentBuilder::new(most);
        for piece in self.done.iter().filter(|piece| keep(piece)) {
            match piece.kind {
                HtmlBlockKind::Heading(level) => draft.push_heading(level, &piece.text)?,
                HtmlBlockKind::Code => draft.push_code(&piece.text)?,
                HtmlBlockKind::Item => draft.push_block(TextBlockKind::List, &piece.text)?,
                HtmlBlockKind::Table => draft.push_block(TextBlockKind::Table, &piece.text)?,
                HtmlBlockKind::Paragraph => {
                    draft.push_block(TextBlockKind::Paragraph, &piece.text)?
                }
            }
        }
        let mut extracted = draft.finish_document();
        extracted.title = self.title.map(|title| title.trim().to_owned()).or(extracted.title);
        Ok(extracted)
    }

    fn flush_block(&mut self) {
        let text = std::mem::take(&mut self.buffer);
        let kind = std::mem::take(&mut self.kind);
        self.space = false;
        self.tables = 0;
        self.in_title = false;
        let shown = match kind {
            // A mark alone is no item.
            HtmlBlockKind::Item => text.trim().trim_start_matches(|mark: char| {
                mark.is_ascii_digit() || matches!(mark, '-' | '.' | ' ')
            }),
            _ => text.trim(),
        };
        if !shown.is_empty() {
            let (main, article) = (self.main > 0, self.article > 0);
            self.done.push(HtmlBlock { kind, text, main, article });
        }
    }

    /// The beginning or the end of something that stands by itself.
    fn break_block(&mut self) {
        match self.tables {
            0 => match (self.kind, self.buffer.trim()) {
                // `<li><p>` is one item still.
                (HtmlBlockKind::Item, mark)
                    if mark == "-" || mark.ends_with('.') && mark.len() < 12 => {}
                // Elements that mark lines up in code.
                (HtmlBlockKind::Code, _) => {}
                _ => self.flush_block(),
            },
            _ => self.space = true,
        }
    }

    fn open_list(&mut self, numbered: Option<u32>) {
        self.break_block();
        if self.lists.len() < 1000 {
            self.lists.push(numbered);
        }
    }

    fn start_row(&mut self) {
        let end = self.buffer.trim_end_matches([' ', '|']).len();
        self.buffer.truncate(end);
        if !self.buffer.is_empty() && !self.buffer.ends_with('\n') {
            self.buffer.push('\n');
        }
        self.space = false;
    }

    fn start_cell(&mut self) {
        if !self.buffer.is_empty() && !self.buffer.ends_with('\n') {
            self.buffer.push_str(" | ");
        }
        self.space = false;
    }

    fn push_line_break(&mut self) {
        match (self.kind, self.tables) {
            (HtmlBlockKind::Paragraph | HtmlBlockKind::Code | HtmlBlockKind::Item, 0) => {
                self.buffer.push('\n')
            }
            _ => self.space = true,
        }
    }

    fn push_image_text(&mut self, tag: &Tag) {
        let words = tag.attrs.iter().find(|attribute| &*attribute.name.local == "alt");
        if let Some(words) = words.filter(|_| self.kind != HtmlBlockKind::Code) {
            self.space = true;
            self.push_text(&words.value);
            self.space = true;
        }
    }
}

/// Elements that stand by themselves. In order.
#[rustfmt::skip]
const BLOCK_ELEMENTS: [&str; 38] = [
    "address", "aside", "blockquote", "body", "caption", "center", "dd", "details", "dialog", "div",
    "dl", "dt", "fieldset", "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5",
    "h6", "head", "header", "hgroup", "hr", "html", "legend", "li", "option", "p", "section",
    "summary", "table", "tbody", "tfoot", "thead",
];

fn is_block_element(name: &str) -> bool {
    BLOCK_ELEMENTS.contains(&name)
}
