//! The text of a part of a page, as a reader would see it.

use ego_tree::NodeRef;
use ego_tree::iter::Edge;
use scraper::Node;

/// Blocks on lines of their own, white space as one space, cells apart by tabs.
/// What the page does not show is left out, unless it is the part itself.
pub(super) fn text(part: NodeRef<'_, Node>) -> String {
    let mut out = Text::default();
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
            Node::Text(text) if opens => out.text(text),
            Node::Element(element) => {
                let kind = Kind::of(element.name());
                if kind == Kind::Hidden && opens && node != part {
                    skipping = Some(node.id());
                } else {
                    out.element(kind, opens);
                }
            }
            _ => {}
        }
    }
    out.finish()
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Inline,
    Block,
    Break,
    Cell,
    /// White space is kept.
    Verbatim,
    Hidden,
}

impl Kind {
    fn of(name: &str) -> Kind {
        match name {
            "address" | "article" | "aside" | "blockquote" | "body" | "center" | "dd"
            | "details" | "dialog" | "dir" | "div" | "dl" | "dt" | "fieldset" | "figcaption"
            | "figure" | "footer" | "form" | "h1" | "h2" | "h3" | "h4" | "h5" | "h6" | "header"
            | "hgroup" | "hr" | "html" | "legend" | "li" | "main" | "menu" | "nav" | "ol"
            | "optgroup" | "option" | "p" | "search" | "section" | "summary" | "table"
            | "caption" | "tbody" | "thead" | "tfoot" | "tr" | "ul" => Kind::Block,
            "br" => Kind::Break,
            "td" | "th" => Kind::Cell,
            "pre" | "textarea" | "listing" | "xmp" | "plaintext" => Kind::Verbatim,
            "head" | "script" | "style" | "noscript" | "template" | "iframe" | "noframes"
            | "noembed" => Kind::Hidden,
            _ => Kind::Inline,
        }
    }
}

#[derive(Default)]
struct Text {
    out: String,
    /// White space that counts once something follows.
    gap: Gap,
    verbatim: usize,
}

#[derive(Default, Clone, Copy, PartialEq, PartialOrd)]
enum Gap {
    #[default]
    None,
    Space,
    Tab,
    Line,
}

impl Text {
    fn element(&mut self, kind: Kind, opens: bool) {
        match kind {
            Kind::Inline => {}
            Kind::Block => self.widen(Gap::Line),
            Kind::Cell => self.widen(Gap::Tab),
            Kind::Break if opens => {
                // Two of them leave a line empty.
                if self.gap == Gap::Line || self.out.is_empty() {
                    self.out.push('\n');
                }
                self.gap = Gap::Line;
            }
            Kind::Break => {}
            // Of a script, when it is what was asked for, every space counts.
            Kind::Verbatim | Kind::Hidden => {
                self.widen(Gap::Line);
                self.verbatim =
                    if opens { self.verbatim + 1 } else { self.verbatim.saturating_sub(1) };
            }
        }
    }

    fn text(&mut self, text: &str) {
        if self.verbatim > 0 {
            self.word(text);
            return;
        }
        if text.starts_with(|first: char| first.is_ascii_whitespace()) {
            self.widen(Gap::Space);
        }
        for word in text.split_ascii_whitespace() {
            self.word(word);
            self.gap = Gap::Space;
        }
        if !text.ends_with(|last: char| last.is_ascii_whitespace()) && self.gap == Gap::Space {
            self.gap = Gap::None;
        }
    }

    fn word(&mut self, word: &str) {
        if word.is_empty() {
            return;
        }
        match self.gap {
            _ if self.out.is_empty() => {}
            Gap::None => {}
            Gap::Space => self.out.push(' '),
            Gap::Tab => self.out.push('\t'),
            Gap::Line => self.out.push('\n'),
        }
        self.gap = Gap::None;
        self.out.push_str(word);
    }

    fn widen(&mut self, gap: Gap) {
        if self.gap < gap {
            self.gap = gap;
        }
    }

    fn finish(self) -> String {
        self.out.trim_matches(['\n', ' ', '\t', '\r']).to_owned()
    }
}
