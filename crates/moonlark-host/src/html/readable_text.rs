//! The text of a part of a page, as a reader would see it.

use ego_tree::NodeRef;
use ego_tree::iter::Edge;
use scraper::Node;

/// Blocks on lines of their own, white space as one space, cells apart by tabs.
/// What the page does not show is left out, unless it is the part itself.
pub(super) fn extract_text(part: NodeRef<'_, Node>) -> String {
    let mut out = ReadableTextWriter::default();
    let mut skipping = None;
    for edge in part.traverse() {
        let (node, opens) = match edge {
            Edge::Open(node) => (node, true),
            Edge::Close(node) => (node, false),
        };
        if let Some(skipped) = skipping {
            if !opens && skipped == node.id() {
                skipping = None;
            }
            continue;
        }
        match node.value() {
            Node::Text(text) if opens => out.write_text(text),
            Node::Element(element) => {
                let kind = ElementLayout::from_tag_name(element.name());
                if kind == ElementLayout::Hidden && opens && node != part {
                    skipping = Some(node.id());
                } else {
                    out.write_element(kind, opens);
                }
            }
            _ => {}
        }
    }
    out.into_text()
}

#[derive(Clone, Copy, PartialEq)]
enum ElementLayout {
    Inline,
    Block,
    Break,
    Cell,
    /// White space is kept.
    Verbatim,
    Hidden,
}

impl ElementLayout {
    fn from_tag_name(name: &str) -> ElementLayout {
        match name {
            "address" | "article" | "aside" | "blockquote" | "body" | "center" | "dd"
            | "details" | "dialog" | "dir" | "div" | "dl" | "dt" | "fieldset" | "figcaption"
            | "figure" | "footer" | "form" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "header"
            | "hgroup" | "hr" | "html" | "legend" | "li" | "main" | "menu" | "nav" | "ol"
            | "optgroup" | "option" | "p" | "search" | "section" | "summary" | "table"
            | "caption" | "tbody" | "thead" | "tfoot" | "tr" | "ul" => ElementLayout::Block,
            "br" => ElementLayout::Break,
            "td" | "th" => ElementLayout::Cell,
            "pre" | "textarea" | "listing" | "xmp" | "plaintext" => ElementLayout::Verbatim,
            "head" | "script" | "style" | "noscript" | "template" | "iframe" | "noframes"
            | "noembed" => ElementLayout::Hidden,
            _ => ElementLayout::Inline,
        }
    }
}

#[derive(Default)]
struct ReadableTextWriter {
    out: String,
    /// White space that counts once something follows.
    gap: PendingWhitespace,
    verbatim: usize,
}

#[derive(Default, Clone, Copy, PartialEq, PartialOrd)]
enum PendingWhitespace {
    #[default]
    None,
    Space,
    Tab,
    Line,
}

impl ReadableTextWriter {
    fn write_element(&mut self, kind: ElementLayout, opens: bool) {
        match kind {
            ElementLayout::Inline => {}
            ElementLayout::Block => self.widen_gap(PendingWhitespace::Line),
            ElementLayout::Cell => self.widen_gap(PendingWhitespace::Tab),
            ElementLayout::Break if opens => {
                // Two of them leave a line empty.
                if self.gap == PendingWhitespace::Line || self.out.is_empty() {
                    self.out.push('\n');
                }
                self.gap = PendingWhitespace::Line;
            }
            ElementLayout::Break => {}
            // Of a script, when it is what was asked for, every space counts.
            ElementLayout::Verbatim | ElementLayout::Hidden => {
                self.widen_gap(PendingWhitespace::Line);
                self.verbatim =
                    if opens { self.verbatim + 1 } else { self.verbatim.saturating_sub(1) };
            }
        }
    }

    fn write_text(&mut self, text: &str) {
        if self.verbatim > 0 {
            self.write_word(text);
            return;
        }
        if text.starts_with(|first: char| first.is_ascii_whitespace()) {
            self.widen_gap(PendingWhitespace::Space);
        }
        for word in text.split_ascii_whitespace() {
            self.write_word(word);
            self.gap = PendingWhitespace::Space;
        }
        if !text.ends_with(|last: char| last.is_ascii_whitespace())
            && self.gap == PendingWhitespace::Space
        {
            self.gap = PendingWhitespace::None;
        }
    }

    fn write_word(&mut self, word: &str) {
        if word.is_empty() {
            return;
        }
        match self.gap {
            _ if self.out.is_empty() => {}
            PendingWhitespace::None => {}
            PendingWhitespace::Space => self.out.push(' '),
            PendingWhitespace::Tab => self.out.push('\t'),
            PendingWhitespace::Line => self.out.push('\n'),
        }
        self.gap = PendingWhitespace::None;
        self.out.push_str(word);
    }

    fn widen_gap(&mut self, gap: PendingWhitespace) {
        if self.gap < gap {
            self.gap = gap;
        }
    }

    fn into_text(self) -> String {
        self.out.trim_matches(['\n', ' ', '\t', '\r']).to_owned()
    }
}
