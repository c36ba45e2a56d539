//! `html`: reading pages.
//!
//! Pages are parsed as browsers do, by a library that has no bounds of its own:
//! [`bounded_parser`] gives it some. [`select`] bounds what a selector may cost.

mod bounded_parser;
mod entities;
mod readable_text;
mod select;

use moonlark_core::value::{Object, shorten_text};
use moonlark_core::{Module, Problem, Result, Value};
use moonlark_gateway::Call;
use schemars::JsonSchema;
use scraper::ElementRef;
use serde::Deserialize;
use serde_json::json;
use url::Url;

use crate::args::{check_result_size, check_time_left};

pub(crate) fn module() -> Module {
    Module::new("html", "Read web pages: their text, their links, and what a CSS selector finds.")
        .pure()
        .function(
            "text",
            "The text a reader would see: blocks on lines of their own, cells apart by tabs, \
             scripts and styles left out.",
            text,
        )
        .example(
            json!({"html": "<title>T</title><h1>Hi &amp;\n bye</h1><p>one<br>two<script>x()</script>"}),
            json!("Hi & bye\none\ntwo"),
        )
        .fails(json!({"html": 1}), "html")
        .function("select", "The elements that match a CSS selector, in document order.", select)
        .example(
            json!({"html": "<ul><li class=x>A <b>b</b></li><li>C</li></ul>", "selector": "li.x"}),
            json!([{
                "tag": "li",
                "text": "A b",
                "html": "<li class=\"x\">A <b>b</b></li>",
                "attributes": {"class": "x"},
            }]),
        )
        .fails(json!({"html": "", "selector": "li["}), "the selector is not valid")
        .function("links", "The links of a page, in document order.", links)
        .positional_params(&["base"])
        .example(
            json!({"html": "<a href='../b?c'>See <i>b</i></a>", "base": "https://example.com/x/y"}),
            json!([{"href": "https://example.com/b?c", "text": "See b"}]),
        )
        .example(json!({"html": "<a href='#top'>up</a>"}), json!([{"href": "#top", "text": "up"}]))
        .fails(json!({"html": "", "base": "/x"}), "base is not an absolute URL")
        .function("escape", "Write text so that it stays text in HTML, also in attributes.", escape)
        .example(json!({"text": "a < \"b\" & 'c'"}), json!("a &lt; &quot;b&quot; &amp; &#39;c&#39;"))
        .fails(json!({}), "text")
        .function("unescape", "Replace character references such as &amp; by what they mean.", unescape)
        .example(json!({"text": "1 &lt; 2 &amp;amp; &eacute;&#x1F319;"}), json!("1 < 2 &amp; é🌙"))
        .fails(json!({"text": 5}), "text")
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HtmlTextArgs {
    /// An HTML page, or a part of one.
    html: String,
}

fn text(call: &Call, args: HtmlTextArgs) -> Result<String> {
    let page = bounded_parser::parse_html(call, args.html)?;
    let text = readable_text::extract_text(page.tree.root());
    check_result_size(call, text.len())?;
    Ok(text)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HtmlSelectArgs {
    /// An HTML page, or a part of one.
    html: String,
    /// A CSS selector, such as "table.prices td:first-child".
    selector: String,
}

/// What a selector found.
#[derive(JsonSchema)]
#[schemars(inline)]
struct SelectedElement {
    /// The name of the element, in lower case.
    tag: String,
    /// Its text, as html.text gives it.
    text: String,
    /// The element as HTML, with its tags.
    html: String,
    /// Its attributes.
    #[schemars(with = "std::collections::BTreeMap<String, String>")]
    attributes: Object,
}

impl From<SelectedElement> for Value {
    fn from(found: SelectedElement) -> Self {
        Value::from_fields([
            ("tag", found.tag.into()),
            ("text", found.text.into()),
            ("html", found.html.into()),
            ("attributes", found.attributes.into()),
        ])
    }
}

/// What an entry costs as a table, beside its text.
const HTML_ENTRY_OVERHEAD_BYTES: usize = 128;

fn select(call: &Call, args: HtmlSelectArgs) -> Result<Vec<SelectedElement>> {
    let selector = select::BoundedSelector::parse(&args.selector)?;
    let page = bounded_parser::parse_html(call, args.html)?;
    let (mut all, mut size) = (Vec::new(), 0usize);
    for element in selector.select_elements(&page)? {
        let found = describe_element(element);
        size += HTML_ENTRY_OVERHEAD_BYTES + found.tag.len() + found.text.len() + found.html.len();
        size += found
            .attributes
            .keys()
            .map(|name| HTML_ENTRY_OVERHEAD_BYTES + name.len())
            .sum::<usize>();
        check_result_size(call, size)?;
        all.push(found);
    }
    Ok(all)
}

fn describe_element(element: ElementRef<'_>) -> SelectedElement {
    SelectedElement {
        tag: element.value().name().to_owned(),
        text: readable_text::extract_text(*element),
        html: element.html(),
        attributes: element
            .value()
            .attrs()
            .map(|(name, value)| (name.to_owned(), Value::from(value)))
            .collect(),
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HtmlLinksArgs {
    /// An HTML page, or a part of one.
    html: String,
    /// Where the page is from; links become absolute.
    base: Option<String>,
}

#[derive(JsonSchema)]
#[schemars(inline)]
struct HtmlLink {
    /// Where it leads.
    href: String,
    /// What it says, in one line.
    text: String,
}

impl From<HtmlLink> for Value {
    fn from(link: HtmlLink) -> Self {
        Value::from_fields([("href", link.href.into()), ("text", link.text.into())])
    }
}

fn links(call: &Call, args: HtmlLinksArgs) -> Result<Vec<HtmlLink>> {
    let base = args.base.as_deref().map(parse_base_url).transpose()?;
    let page = bounded_parser::parse_html(call, args.html)?;
    let elements = || page.tree.root().descendants().filter_map(ElementRef::wrap);
    // A page may say itself what its links are relative to.
    let own = elements().find(|element| element.value().name() == "base");
    let own = own.and_then(|element| element.attr("href"));
    let base = base.map(|base| own.and_then(|own| base.join(own).ok()).unwrap_or(base));
    let (mut all, mut size) = (Vec::new(), 0usize);
    for element in elements().filter(|element| matches!(element.value().name(), "a" | "area")) {
        let Some(href) = element.attr("href").map(str::trim_ascii) else { continue };
        let href = match base.as_ref().map(|base| base.join(href)) {
            Some(Ok(url)) => url.to_string(),
            // A link that leads nowhere is still what the page says.
            Some(Err(_)) | None => href.to_owned(),
        };
        let text = readable_text::extract_text(*element).replace(['\n', '\t'], " ");
        // Links can nest in pictures, and what holds no text is still walked through.
        size += HTML_ENTRY_OVERHEAD_BYTES + href.len() + text.len() + element.descendants().count();
        check_result_size(call, size)?;
        all.push(HtmlLink { href, text });
    }
    Ok(all)
}

fn parse_base_url(base: &str) -> Result<Url> {
    Url::parse(base).ok().filter(|url| !url.cannot_be_a_base()).ok_or_else(|| {
        Problem::bad_request(format!("base is not an absolute URL: {:?}", shorten_text(base)))
    })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HtmlEscapeArgs {
    /// Any text.
    text: String,
}

fn escape(call: &Call, args: HtmlEscapeArgs) -> Result<String> {
    check_result_size(call, entities::escaped_length(&args.text))?;
    Ok(entities::escape_entities(&args.text))
}

fn unescape(call: &Call, args: HtmlEscapeArgs) -> Result<String> {
    let text = entities::unescape_entities(&args.text, || check_time_left(call))?;
    check_result_size(call, text.len())?;
    Ok(text)
}

#[cfg(test)]
mod tests;
