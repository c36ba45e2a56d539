//! CSS selectors, matched in a bounded number of steps.
//!
//! `a ~ b` looks at all earlier siblings of every b and `:has()` at all that is
//! below, so a short selector can take the square of a page. The matcher sees
//! the tree through [`CountedElement`], which counts, and shows an empty world once
//! the steps are used up.

use std::cell::Cell;

use cssparser::Parser as CssParser;
use html5ever::Namespace;
use moonlark_core::{Problem, Result};
use scraper::error::SelectorErrorKind;
use scraper::selector::{CssLocalName, CssString, NonTSPseudoClass, Parser, PseudoElement, Simple};
use scraper::{CaseSensitivity, Element, ElementRef, Html};
use selectors::OpaqueElement;
use selectors::attr::{AttrSelectorOperation, NamespaceConstraint};
use selectors::bloom::BloomFilter;
use selectors::matching::{
    ElementSelectorFlags, MatchingContext, MatchingForInvalidation, MatchingMode,
    NeedsSelectorFlags, QuirksMode, SelectorCaches, matches_selector,
};
use selectors::parser::{ParseRelative, SelectorList};

const MAX_SELECTOR_BYTES: usize = 4096;
/// `:not(:is(…))` is parsed by recursion.
const MAX_SELECTOR_NESTING: usize = 16;
/// About a second for the worst of them.
const MAX_SELECTOR_STEPS: usize = 20_000_000;

pub(super) struct BoundedSelector(SelectorList<Simple>);

impl BoundedSelector {
    pub(super) fn parse(source: &str) -> Result<BoundedSelector> {
        if source.len() > MAX_SELECTOR_BYTES || nesting_depth(source) > MAX_SELECTOR_NESTING {
            return Err(Problem::bad_request("the selector is too large")
                .with_hint("select in steps, or go through the elements in the script"));
        }
        SelectorList::parse(&Parser, &mut CssParser::new(source), ParseRelative::No)
            .map(BoundedSelector)
            .map_err(|error| {
                let why = SelectorErrorKind::from(error);
                Problem::bad_request(format!("the selector is not valid: {why}"))
            })
    }

    /// The elements that match, in document order.
    pub(super) fn select_elements<'a>(&self, page: &'a Html) -> Result<Vec<ElementRef<'a>>> {
        let steps = Cell::new(0);
        let mut caches = SelectorCaches::default();
        let mut found = Vec::new();
        for element in page.tree.root().descendants().filter_map(ElementRef::wrap) {
            let mut context = MatchingContext::new(
                MatchingMode::Normal,
                None,
                &mut caches,
                QuirksMode::NoQuirks,
                NeedsSelectorFlags::No,
                MatchingForInvalidation::No,
            );
            let watched = CountedElement { element, steps: &steps };
            if self.0.slice().iter().any(|it| matches_selector(it, 0, None, &watched, &mut context))
            {
                found.push(element);
            }
            if steps.get() > MAX_SELECTOR_STEPS {
                return Err(Problem::limit_exceeded(
                    "the selector takes too many steps on this page",
                )
                .with_hint("avoid ~ and :has(), or select in a part of the page"));
            }
        }
        Ok(found)
    }
}

fn nesting_depth(source: &str) -> usize {
    let (mut depth, mut most) = (0usize, 0);
    for byte in source.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        most = most.max(depth);
    }
    most
}

#[derive(Debug, Clone)]
struct CountedElement<'a> {
    element: ElementRef<'a>,
    steps: &'a Cell<usize>,
}

impl<'a> CountedElement<'a> {
    /// Count, and say whether there are steps left.
    fn count_steps(&self, steps: usize) -> bool {
        self.steps.set(self.steps.get().saturating_add(steps));
        self.steps.get() <= MAX_SELECTOR_STEPS
    }

    fn step_to(&self, to: impl FnOnce(&ElementRef<'a>) -> Option<ElementRef<'a>>) -> Option<Self> {
        if !self.count_steps(1) {
            return None;
        }
        to(&self.element).map(|element| CountedElement { element, steps: self.steps })
    }

    /// Looking through attributes takes their number and length.
    fn count_attribute_steps(&self) -> bool {
        let lengths = self.element.value().attrs.iter().map(|(_, value)| 1 + value.len() / 8);
        self.count_steps(1 + lengths.sum::<usize>())
    }
}

impl Element for CountedElement<'_> {
    type Impl = Simple;

    fn opaque(&self) -> OpaqueElement {
        self.element.opaque()
    }
    fn parent_element(&self) -> Option<Self> {
        self.step_to(Element::parent_element)
    }
    fn parent_node_is_shadow_root(&self) -> bool {
        false
    }
    fn containing_shadow_host(&self) -> Option<Self> {
        None
    }
    fn is_pseudo_element(&self) -> bool {
        false
    }
    fn prev_sibling_element(&self) -> Option<Self> {
        self.step_to(Element::prev_sibling_element)
    }
    fn next_sibling_element(&self) -> Option<Self> {
        self.step_to(Element::next_sibling_element)
    }
    fn first_element_child(&self) -> Option<Self> {
        self.step_to(Element::first_element_child)
    }
    fn is_html_element_in_html_document(&self) -> bool {
        self.element.is_html_element_in_html_document()
    }
    fn has_local_name(&self, name: &CssLocalName) -> bool {
        self.count_steps(1) && self.element.has_local_name(name)
    }
    fn has_namespace(&self, namespace: &Namespace) -> bool {
        self.count_steps(1) && self.element.has_namespace(namespace)
    }
    fn is_same_type(&self, other: &Self) -> bool {
        self.count_steps(1) && self.element.is_same_type(&other.element)
    }
    fn attr_matches(
        &self,
        namespace: &NamespaceConstraint<&Namespace>,
        name: &CssLocalName,
        operation: &AttrSelectorOperation<&CssString>,
    ) -> bool {
        self.count_attribute_steps() && self.element.attr_matches(namespace, name, operation)
    }
    fn match_non_ts_pseudo_class(
        &self,
        class: &NonTSPseudoClass,
        _: &mut MatchingContext<'_, Simple>,
    ) -> bool {
        match *class {}
    }
    fn match_pseudo_element(
        &self,
        element: &PseudoElement,
        _: &mut MatchingContext<'_, Simple>,
    ) -> bool {
        match *element {}
    }
    fn apply_selector_flags(&self, _: ElementSelectorFlags) {}
    fn is_link(&self) -> bool {
        self.element.is_link()
    }
    fn is_html_slot_element(&self) -> bool {
        false
    }
    fn has_id(&self, id: &CssLocalName, case: CaseSensitivity) -> bool {
        self.count_attribute_steps() && self.element.has_id(id, case)
    }
    fn has_class(&self, name: &CssLocalName, case: CaseSensitivity) -> bool {
        self.count_attribute_steps() && Element::has_class(&self.element, name, case)
    }
    fn has_custom_state(&self, _: &CssLocalName) -> bool {
        false
    }
    fn imported_part(&self, _: &CssLocalName) -> Option<CssLocalName> {
        None
    }
    fn is_part(&self, _: &CssLocalName) -> bool {
        false
    }
    fn is_empty(&self) -> bool {
        let children = self.element.children().count();
        self.count_steps(children) && self.element.is_empty()
    }
    fn is_root(&self) -> bool {
        self.element.is_root()
    }
    fn add_element_unique_hashes(&self, _: &mut BloomFilter) -> bool {
        false
    }
}
