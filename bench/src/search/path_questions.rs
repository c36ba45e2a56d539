//! Questions made by rules from the path and the verb of an operation.
//!
//! `PATCH /repos/{owner}/{repo}/issues/{number}` is asked for as "change the issue of
//! the repo": an everyday verb, and the last nouns of the path. No name, summary or
//! description has a part in it.

use moonlark_search::tokenizer::split_name;

/// Nouns beside the last one.
const MAX_PARENT_NOUNS: usize = 2;

pub(super) fn ask_by_path(method: &str, path: &str) -> Option<String> {
    let segments: Vec<&str> = path.split('/').filter(|it| !it.is_empty()).collect();
    let is_parameter = |segment: &str| segment.starts_with('{');
    let nouns: Vec<String> = segments
        .iter()
        .filter(|it| !is_parameter(it) && !is_prefix(it))
        .map(|it| words_of(it))
        .filter(|it| !it.is_empty())
        .collect();
    let (last, parents) = nouns.split_last()?;
    let is_one = segments.last().is_some_and(|it| is_parameter(it));
    let is_many = !is_one && last.ends_with('s') && !last.ends_with("ss");
    let thing = singular(last);
    let mut parents = parents.iter().rev().map(|it| singular(it));
    let asked = match method {
        "GET" if is_many => format!("show all {last}"),
        "GET" => format!("look up the {thing}"),
        "POST" if is_many => format!("make a new {thing}"),
        // What is done is the end of the path: `/quotes/{id}/accept`.
        "POST" if !is_one => match parents.next() {
            Some(parent) => format!("{last} the {parent}"),
            None => format!("do {thing}"),
        },
        "POST" => format!("do {thing}"),
        "PUT" | "PATCH" => format!("change the {thing}"),
        "DELETE" => format!("remove the {thing}"),
        _ => return None,
    };
    let parents = parents.take(MAX_PARENT_NOUNS).map(|parent| format!(" of the {parent}"));
    Some(asked + &parents.collect::<String>())
}

/// Versions, dates and what all paths of an API begin with.
fn is_prefix(segment: &str) -> bool {
    let is_version = |text: &str| text.starts_with(|it: char| it.is_ascii_digit());
    matches!(segment, "api" | "apis" | "rest")
        || segment.starts_with(|it: char| it.is_ascii_digit())
        || segment.strip_prefix('v').is_some_and(is_version)
}

fn words_of(segment: &str) -> String {
    let end = [".json", ".{", "#"].iter().filter_map(|it| segment.find(it)).min();
    let segment = &segment[..end.unwrap_or(segment.len())];
    let plain: String =
        segment.chars().map(|it| if it.is_alphanumeric() { it } else { ' ' }).collect();
    let words: Vec<String> = plain.split_whitespace().map(split_name).collect();
    words.join(" ").to_lowercase()
}

fn singular(noun: &str) -> String {
    let cut = |letters: usize| noun[..noun.len() - letters].to_owned();
    if noun.ends_with("ies") {
        cut(3) + "y"
    } else if noun.ends_with("sses") || noun.ends_with("xes") {
        cut(2)
    } else if noun.ends_with('s') && !noun.ends_with("ss") && !noun.ends_with("us") {
        cut(1)
    } else {
        noun.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_and_a_verb_make_a_question() {
        for (method, path, expected) in [
            (
                "PATCH",
                "/repos/{owner}/{repo}/issues/{number}",
                Some("change the issue of the repo"),
            ),
            ("GET", "/api/v1/namespaces/{namespace}/pods", Some("show all pods of the namespace")),
            ("POST", "/v1/quotes/{quote}/accept", Some("accept the quote")),
            (
                "POST",
                "/2010-04-01/Accounts/{Sid}/Calls.json",
                Some("make a new call of the account"),
            ),
            ("DELETE", "/user/emails", Some("remove the email of the user")),
            ("GET", "/{id}", None),
            ("TRACE", "/pets", None),
        ] {
            assert_eq!(ask_by_path(method, path).as_deref(), expected, "{method} {path}");
        }
    }
}
