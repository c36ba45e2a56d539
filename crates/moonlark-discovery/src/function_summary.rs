//! Function summary, as short as a call can be written from: signature on one line, the
//! types that it names, one sentence.

use std::collections::HashSet;

use moonlark_core::schema::required_names;
use moonlark_core::sdk::{SdkFunction, SdkSource};
use moonlark_core::visible_text::visible_in_line;
use moonlark_gateway::Call;
use moonlark_render::luau::sdk_docs::{ObservedResult, SdkFunctionDocs, sdk_function_docs};

use crate::SDK_NAME_PREFIX;

/// A type of a result that takes more is not worth its tokens in a search.
const MAX_RESULT_TYPE_BYTES: usize = 400;
/// The same for the types that a signature names.
const MAX_SIGNATURE_TYPES_BYTES: usize = 1200;
/// Of the parameters of a function whose types are left out.
const MAX_PARAMETER_NAMES_BYTES: usize = 1000;
/// Of a description.
const MAX_SENTENCE_BYTES: usize = 160;

pub(crate) fn summarize_function(
    source: &SdkSource,
    function: &SdkFunction,
    call: &Call,
) -> String {
    let learned = observed_result(function, call);
    let docs = sdk_function_docs(source, function, learned.as_ref());
    let (line, dropped) = one_line_signature(&docs);
    let mut text = line.strip_prefix("function ").unwrap_or(&line).to_owned();
    if docs.learned.is_some() && !dropped {
        text.push_str(" -- result as seen so far");
    }
    let about = first_sentence(&function.tool.description, MAX_SENTENCE_BYTES);
    if !about.is_empty() {
        text.push_str(&format!("\n  {about}"));
    }
    let types = list_named_types(&docs, &line);
    if types.len() <= MAX_SIGNATURE_TYPES_BYTES {
        text.push_str(&types);
    } else {
        let name = format!("{}.{}", source.name, function.name);
        text.push_str(&format!("\n  (its types: get_function_docs {name})"));
    }
    text
}

/// The same where that takes too long: its parameters by name, the required ones first.
pub(crate) fn summarize_briefly(source: &SdkSource, function: &SdkFunction) -> String {
    let input = &function.tool.input;
    let required: HashSet<&str> = required_names(input.json()).collect();
    let (mut names, optional): (Vec<&str>, Vec<&str>) =
        input.parameter_names().partition(|name| required.contains(name));
    names.extend(optional);
    let mut shown = String::new();
    let mut left = 0_usize;
    for name in names {
        let mark = if required.contains(name) { "" } else { "?" };
        let one = format!("{}{mark}", visible_in_line(name));
        if left > 0 || shown.len() + one.len() > MAX_PARAMETER_NAMES_BYTES {
            left += 1;
            continue;
        }
        if !shown.is_empty() {
            shown.push_str(", ");
        }
        shown.push_str(&one);
    }
    let mut text = format!("{}(args: {{ {shown} }})", sdk_path(source, function));
    let about = first_sentence(&function.tool.description, MAX_SENTENCE_BYTES);
    if !about.is_empty() {
        text.push_str(&format!("\n  {about}"));
    }
    let more = if left > 0 { format!("{left} more parameters, ") } else { String::new() };
    let name = format!("{}.{}", source.name, function.name);
    text.push_str(&format!("\n  ({more}its types: get_function_docs {name})"));
    text
}

/// `sdk.github.create_issue`
pub(crate) fn sdk_path(source: &SdkSource, function: &SdkFunction) -> String {
    format!("{SDK_NAME_PREFIX}{}.{}", source.name, function.name)
}

/// What the results of a function have been so far for this caller, if it does not
/// say itself.
pub(crate) fn observed_result(function: &SdkFunction, call: &Call) -> Option<ObservedResult> {
    let shape = call.gateway().learned_shapes().find_shape(&function.tool, call.caller())?;
    Some(ObservedResult { schema: shape.to_schema(), calls: shape.calls().into() })
}

/// The signature, with `any` for a result that takes too long to say; whether
/// that was so.
fn one_line_signature(docs: &SdkFunctionDocs) -> (String, bool) {
    let line = collapse_type(&docs.signature);
    let Some(result) = find_result_type(&line) else { return (line, false) };
    let named = docs.types.iter().filter(|(name, _)| mentions_name(&line[result..], name));
    let size =
        line.len() - result + named.map(|(_, body)| collapse_type(body).len()).sum::<usize>();
    if size > MAX_RESULT_TYPE_BYTES {
        (format!("{}any", &line[..result]), true)
    } else {
        (line, false)
    }
}

/// Where the type of the result begins: behind the parenthesis that closes the
/// arguments.
pub(crate) fn find_result_type(line: &str) -> Option<usize> {
    let open = line.find('(')?;
    let mut depth = 0usize;
    let close = unquoted_letters(&line[open..]).find(|(_, letter)| {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth == 0
    });
    let at = open + close?.0;
    line[at..].starts_with("): ").then_some(at + 3)
}

/// The letters of a line that stand in no string, and where.
fn unquoted_letters(line: &str) -> impl Iterator<Item = (usize, char)> {
    let (mut quoted, mut escaped) = (false, false);
    line.char_indices().filter(move |(_, letter)| {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => return !quoted,
        }
        false
    })
}

/// The types that a line names, and those that they name, one line each.
fn list_named_types(docs: &SdkFunctionDocs, line: &str) -> String {
    let mut text = String::new();
    let mut shown: Vec<bool> = vec![false; docs.types.len()];
    // Each round finds what the one before has named.
    for _ in 0..docs.types.len() {
        let mut found = false;
        for (at, (name, body)) in docs.types.iter().enumerate() {
            if !shown[at] && (mentions_name(line, name) || mentions_name(&text, name)) {
                (shown[at], found) = (true, true);
                text.push_str(&format!("\n  type {name} = {}", collapse_type(body)));
            }
        }
        if !found || text.len() > MAX_SIGNATURE_TYPES_BYTES {
            break;
        }
    }
    text
}

/// Whether a text has a name in it that is not part of a longer one.
pub(crate) fn mentions_name(text: &str, name: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    text.match_indices(name).any(|(at, _)| {
        !text[..at].ends_with(is_part) && !text[at + name.len()..].starts_with(is_part)
    })
}

/// A type on one line, without what is said about its fields.
fn collapse_type(body: &str) -> String {
    if !body.contains('\n') {
        return body.to_owned();
    }
    let lines: Vec<&str> = body.lines().map(|line| strip_comment(line).trim()).collect();
    let text = lines.join(" ");
    text.strip_suffix(", }").map(|text| format!("{text} }}")).unwrap_or(text)
}

fn strip_comment(line: &str) -> &str {
    let comment = unquoted_letters(line).find(|(at, _)| line[*at..].starts_with("--"));
    comment.map_or(line, |(at, _)| &line[..at])
}

/// The first paragraph that says something: a heading above it, such as the summary
/// of an operation that has a description too, counts as one; markup does not.
fn first_paragraph(text: &str) -> &str {
    let is_said = |it: &&str| {
        let mut words = it.split_whitespace().peekable();
        let is_tag = |word: &str| word.starts_with('<') && word.ends_with('>');
        words.peek().is_some() && !words.all(is_tag) && !is_heading(it)
    };
    let mut paragraphs = text.split("\n\n").map(str::trim);
    paragraphs.clone().find(is_said).or_else(|| paragraphs.next()).unwrap_or(text)
}

/// One line that begins with `#`, or that is underlined.
fn is_heading(paragraph: &str) -> bool {
    let mut lines = paragraph.lines();
    let (first, second) = (lines.next().unwrap_or_default(), lines.next());
    let underline = |it: &str| !it.is_empty() && it.chars().all(|it| it == '=' || it == '-');
    match second {
        None => first.starts_with('#'),
        Some(second) => underline(second.trim()) && lines.next().is_none(),
    }
}

/// The first sentence of a description, on one line.
pub(crate) fn first_sentence(text: &str, longest: usize) -> String {
    let mut line = String::new();
    // Some descriptions are documents, with tags and a heading at first.
    let is_markup = |word: &&str| {
        word.chars().all(|it| it == '#') || (word.starts_with('<') && word.ends_with('>'))
    };
    for word in first_paragraph(text).split_whitespace().skip_while(is_markup) {
        if !line.is_empty() {
            // An abbreviation or a number is no end; a word of some length is.
            let ended = line.ends_with(['.', '!', '?', '。'])
                && line.trim_end_matches('.').chars().rev().take(4).all(char::is_alphabetic)
                && word.starts_with(|letter: char| !letter.is_lowercase());
            if ended {
                return line;
            }
            line.push(' ');
        }
        line.push_str(word);
        if line.len() > longest {
            let end = line.floor_char_boundary(longest);
            let end = line[..end].rfind(' ').filter(|space| *space > longest / 2).unwrap_or(end);
            line.truncate(end);
            line.push('…');
            return line;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sentence_says_what_it_is() {
        for (text, expected) in [
            ("Read a file. It must exist.", "Read a file."),
            (
                "Uses v1.2 of e.g. the API\nfor reading. Then more",
                "Uses v1.2 of e.g. the API for reading.",
            ),
            ("  Short  ", "Short"),
            ("<usage>\n# Read\nfiles. Now", "Read files."),
            ("GitHub API Root\n\nGet Hypermedia links to resources.", "GitHub API Root"),
            (
                "# Everything Server – Server Instructions\n\n## Audience\n\nThese instructions are for models. And so on.",
                "These instructions are for models.",
            ),
            ("Title\n=====\n\nWhat it does", "What it does"),
            ("# Only a heading", "Only a heading"),
            ("", ""),
            ("a long description without any end", "a long…"),
            ("ああああああああああああ", "あああ…"),
        ] {
            assert_eq!(
                first_sentence(text, if text.starts_with(['a', 'あ']) { 10 } else { 160 }),
                expected
            );
        }
    }

    #[test]
    fn types_are_collapsed_to_one_line() {
        let body = "{\n    name: string, -- What it is called\n    sep: \"--\" | \"-\",\n}";
        assert_eq!(collapse_type(body), "{ name: string, sep: \"--\" | \"-\" }");
        assert_eq!(collapse_type("\"a\" | \"b\""), "\"a\" | \"b\"");
    }

    #[test]
    fn the_result_begins_behind_the_arguments() {
        let result = |line: &str| find_result_type(line).map(|at| line[at..].to_owned());
        assert_eq!(result("function sdk.a.b(): any").as_deref(), Some("any"));
        let line = "function sdk.a.b(args: { c: (\"x)\" | \"\\\"\")? }): { d: number }";
        assert_eq!(result(line).as_deref(), Some("{ d: number }"));
        assert_eq!(result("no function"), None);
    }
}
