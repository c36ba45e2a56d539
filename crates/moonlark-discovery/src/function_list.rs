//! `list_functions`: sources, tags and functions.

use std::collections::BTreeMap;

use moonlark_core::sdk::{SdkFunction, SdkSource};
use moonlark_core::tool::SourceKind;
use moonlark_core::visible_text::visible_in_line;
use moonlark_core::{Catalog, Problem, Result, Value};
use moonlark_gateway::Call;

use crate::function_index;
use crate::function_search::find_source;
use crate::function_summary::{first_sentence, sdk_path};

/// Functions on one page.
const FUNCTIONS_PER_PAGE: usize = 50;
/// Of what is said about a source or a function in a list.
const MAX_LIST_LINE_BYTES: usize = 100;
/// Of what a server says about itself.
const MAX_INSTRUCTIONS_BYTES: usize = 1000;

pub(crate) fn list_functions(call: &Call, args: &Value) -> Result<String> {
    let text = |key: &str| args.get(key).and_then(Value::as_str).filter(|it| !it.is_empty());
    let (source, tag, cursor) = (text("source"), text("tag"), text("cursor"));
    let catalog = call.catalog();
    if source.is_none() && tag.is_none() {
        return Ok(list_sources(catalog));
    }
    let source = source.map(|source| find_source(catalog.sdk(), source)).transpose()?;
    let wanted = |(of, function): &(&SdkSource, &SdkFunction)| {
        let tags = || function_index::tool_tags(&function.tool);
        source.is_none_or(|source| std::ptr::eq(*of, source))
            && tag.is_none_or(|tag| tags().iter().any(|it| it.eq_ignore_ascii_case(tag)))
    };
    let found: Vec<_> = function_index::all_functions(catalog).filter(wanted).collect();
    let start = match cursor {
        None => 0,
        Some(cursor) => {
            let start = cursor.parse().ok().filter(|start| *start < found.len());
            start.ok_or_else(|| Problem::bad_request("this cursor is from no earlier answer"))?
        }
    };
    let mut page = String::new();
    if let (Some(source), 0) = (source, start) {
        page.push_str(&source_heading(catalog, source));
    }
    if found.is_empty() {
        page.push_str(&unknown_tag_message(catalog, source));
    }
    for (source, function) in found.iter().skip(start).take(FUNCTIONS_PER_PAGE) {
        page.push_str(&function_line(source, function));
    }
    let next = start + FUNCTIONS_PER_PAGE;
    if found.len() > next {
        page.push_str(&format!("{} more: cursor \"{next}\"\n", found.len() - next));
    }
    page.truncate(page.trim_end().len());
    Ok(page)
}

/// Every source, with a few words about it.
pub(crate) fn list_sources(catalog: &Catalog) -> String {
    let mut text = String::new();
    for source in catalog.sdk().sources() {
        let about = match source_instructions(catalog, source) {
            Some(theirs) => first_sentence(theirs, MAX_LIST_LINE_BYTES),
            None => first_function_names(source),
        };
        text.push_str(&format!("sdk.{}: {}: {about}\n", source.name, function_count_text(source)));
    }
    if text.is_empty() {
        text.push_str("There are no functions.\n");
    }
    text.truncate(text.trim_end().len());
    text.push_str(&still_connecting_note(catalog));
    text
}

/// The sources that have yet to say what they have.
pub(crate) fn still_connecting_note(catalog: &Catalog) -> String {
    let waiting: Vec<&str> =
        catalog.connecting_sources().iter().map(|it| it.source.as_str()).collect();
    if waiting.is_empty() {
        String::new()
    } else {
        format!("\nStill connecting: {}. Ask again in a moment.", waiting.join(", "))
    }
}

/// A source, and what its server says about itself.
pub(crate) fn source_heading(catalog: &Catalog, source: &SdkSource) -> String {
    let original = if source.original == source.name {
        String::new()
    } else {
        format!(" ({})", source.original)
    };
    let mut text = format!("sdk.{}{original}: {}\n", source.name, function_count_text(source));
    if let Some(theirs) = source_instructions(catalog, source) {
        // Further to the right than what is listed: none of it passes for a function.
        for line in shorten_instructions(theirs).lines() {
            text.push_str(format!("    {line}").trim_end());
            text.push('\n');
        }
        text.push('\n');
    }
    text.push_str(&list_source_tags(source));
    text
}

/// The beginning of what a server says about itself, up to the end of a paragraph or
/// of a sentence.
fn shorten_instructions(theirs: &str) -> String {
    if theirs.len() <= MAX_INSTRUCTIONS_BYTES {
        return theirs.to_owned();
    }
    let head = &theirs[..theirs.floor_char_boundary(MAX_INSTRUCTIONS_BYTES)];
    let ends = ["\n\n", ".\n", ". ", "\n"].iter().filter_map(|mark| {
        let at = head.rfind(mark)?;
        (at > MAX_INSTRUCTIONS_BYTES / 2).then_some(at + usize::from(mark.starts_with('.')))
    });
    let end = ends.into_iter().next().unwrap_or(head.len());
    format!("{} […]", head[..end].trim_end())
}

/// What the functions of a large source are filed under: with many of them there is
/// no other way to browse.
fn list_source_tags(source: &SdkSource) -> String {
    const MAX_LISTED_TAGS: usize = 60;
    if source.functions.len() <= FUNCTIONS_PER_PAGE {
        return String::new();
    }
    let counts = count_tags(&source.functions);
    if counts.is_empty() {
        return String::new();
    }
    let shown: Vec<String> = counts
        .iter()
        .take(MAX_LISTED_TAGS)
        .map(|(tag, count)| format!("{} ({count})", visible_in_line(tag)))
        .collect();
    let more = if counts.len() > MAX_LISTED_TAGS { ", …" } else { "" };
    format!("Tags (functions): {}{more}\n", shown.join(", "))
}

/// One function: its name, and one sentence.
pub(crate) fn function_line(source: &SdkSource, function: &SdkFunction) -> String {
    let about = first_sentence(&function.tool.description, MAX_LIST_LINE_BYTES);
    let colon = if about.is_empty() { "" } else { ": " };
    format!("{}{colon}{about}\n", sdk_path(source, function))
}

fn function_count_text(source: &SdkSource) -> String {
    match source.functions.len() {
        1 => "1 function".to_owned(),
        many => format!("{many} functions"),
    }
}

fn first_function_names(source: &SdkSource) -> String {
    const MAX_LISTED_NAMES: usize = 5;
    let names: Vec<&str> =
        source.functions.iter().map(|it| it.name.as_str()).take(MAX_LISTED_NAMES).collect();
    let more = if source.functions.len() > MAX_LISTED_NAMES { ", …" } else { "" };
    format!("{}{more}", names.join(", "))
}

fn source_instructions<'a>(catalog: &'a Catalog, source: &SdkSource) -> Option<&'a str> {
    if source.kind != SourceKind::Upstream {
        return None;
    }
    let offers = catalog.source_resources().iter().find(|it| it.source.name == source.original)?;
    offers.instructions.as_deref().map(str::trim).filter(|it| !it.is_empty())
}

fn unknown_tag_message(catalog: &Catalog, source: Option<&SdkSource>) -> String {
    const MAX_SUGGESTED_TAGS: usize = 30;
    let within = |(of, _): &(&SdkSource, &SdkFunction)| {
        source.is_none_or(|source| std::ptr::eq(*of, source))
    };
    let functions = function_index::all_functions(catalog).filter(within);
    let counts = count_tags(functions.map(|(_, function)| function));
    let tags: Vec<_> = counts.into_keys().take(MAX_SUGGESTED_TAGS).map(visible_in_line).collect();
    if tags.is_empty() {
        "No function has a tag.\n".to_owned()
    } else {
        format!("No function has this tag. There are {}.\n", tags.join(", "))
    }
}

/// In order, with how many functions have each.
fn count_tags<'a>(
    functions: impl IntoIterator<Item = &'a SdkFunction>,
) -> BTreeMap<&'a str, usize> {
    let mut counts = BTreeMap::new();
    for tag in functions.into_iter().flat_map(|it| function_index::tool_tags(&it.tool)) {
        *counts.entry(tag).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::test_catalog::{ask, many, world};

    #[tokio::test]
    async fn sources_come_first_then_their_functions() {
        let world = world();
        assert_eq!(
            ask(&world, "list_functions", json!({})).await,
            "sdk.git_hub: 2 functions: create_issue, list_issues\nsdk.files: 1 function: read_file"
        );
        assert_eq!(
            ask(&world, "list_functions", json!({"source": "git-hub"})).await,
            "sdk.git_hub (git-hub): 2 functions\nsdk.git_hub.create_issue: Create an issue.\nsdk.git_hub.list_issues: List issues of a repository."
        );
        assert_eq!(
            ask(&world, "list_functions", json!({"tag": "Reading"})).await,
            "sdk.git_hub.list_issues: List issues of a repository."
        );
        assert_eq!(
            ask(&world, "list_functions", json!({"tag": "nothing"})).await,
            "No function has this tag. There are reading."
        );
    }

    #[test]
    fn instructions_end_where_a_sentence_does() {
        assert_eq!(super::shorten_instructions("Short."), "Short.");
        let long = format!("{} Then this. {}", "First.".repeat(120), "word ".repeat(200));
        let short = super::shorten_instructions(&long);
        assert!(short.ends_with("Then this. […]"), "{short}");
        let words = super::shorten_instructions(&"ä".repeat(2000));
        assert!(words.ends_with("ä […]") && words.len() < 1010, "{}", words.len());
    }

    #[tokio::test]
    async fn long_lists_come_in_pages() {
        let world = many(120);
        let first = ask(&world, "list_functions", json!({"source": "many"})).await;
        assert!(first.ends_with("70 more: cursor \"50\""), "{first}");
        let last = ask(&world, "list_functions", json!({"source": "many", "cursor": "100"})).await;
        assert_eq!(last.lines().count(), 20);
        for cursor in ["120", "-1", "x"] {
            let args = json!({"source": "many", "cursor": cursor});
            assert_eq!(
                ask(&world, "list_functions", args).await,
                "error[bad_request]: this cursor is from no earlier answer"
            );
        }
    }
}
