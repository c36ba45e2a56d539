//! Edit check: a text is read again after an edit, and has to say what it said before,
//! and the change. Otherwise the change is refused.

use std::ops::Range;

use serde_json::{Map, Value as Json};

use super::config_syntax::ConfigSyntax;
use super::syntax_tree::{SyntaxNode, TextFault};

/// `new`, if it is `text` with `value` at `path`, or without anything there. In a
/// list, a key means the item with that `name`. A refusal is about the offset `at`.
pub(super) fn check_edit(
    syntax: ConfigSyntax,
    text: &str,
    new: Option<String>,
    path: &[&str],
    value: Option<&Json>,
    at: usize,
) -> Result<String, TextFault> {
    let json = |root: Option<SyntaxNode>| root.map_or(Json::Null, |root| root.to_json());
    let mut meant = json(syntax.parse(text)?);
    match value {
        Some(value) => put_json(&mut meant, path, value),
        None => remove_json(&mut meant, path),
    }
    let says_that =
        |new: &String| syntax.parse(new).is_ok_and(|root| is_same_json(&json(root), &meant));
    let message = "this is written in a way that cannot be changed without touching more";
    new.filter(says_that).ok_or_else(|| TextFault::new_edit_fault(at, message))
}

pub(super) fn replace_range(text: &str, range: Range<usize>, new: &str) -> String {
    format!("{}{new}{}", &text[..range.start], &text[range.end..])
}

/// The beginning of the line that `at` is in.
pub(super) fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

/// `value` under the keys of `path`.
pub(super) fn nest_value(path: &[&str], value: &Json) -> Json {
    path.iter().rev().fold(value.clone(), |value, key| {
        Json::Object(Map::from_iter([((*key).to_owned(), value)]))
    })
}

/// The change, on the value.
pub(super) fn put_json(whole: &mut Json, path: &[&str], value: &Json) {
    let Some((key, rest)) = path.split_first() else {
        *whole = value.clone();
        return;
    };
    match whole {
        Json::Array(items) => match items.iter_mut().find(|item| item["name"] == **key) {
            Some(item) => put_json(item, rest, value),
            None => items.push(nest_value(rest, value)),
        },
        Json::Object(members) => {
            put_json(members.entry(*key).or_insert(Json::Null), rest, value);
        }
        _ => *whole = nest_value(path, value),
    }
}

pub(super) fn remove_json(whole: &mut Json, path: &[&str]) {
    let Some((key, rest)) = path.split_first() else { return };
    match whole {
        Json::Array(items) if rest.is_empty() => items.retain(|item| item["name"] != **key),
        Json::Array(items) => {
            if let Some(item) = items.iter_mut().find(|item| item["name"] == **key) {
                remove_json(item, rest);
            }
        }
        Json::Object(members) if rest.is_empty() => {
            members.shift_remove(*key);
        }
        Json::Object(members) => {
            if let Some(inner) = members.get_mut(*key) {
                remove_json(inner, rest);
            }
        }
        _ => {}
    }
}

/// What is empty counts as nothing: an object without members may be left out, and be
/// written in several ways.
pub(super) fn is_same_json(said: &Json, meant: &Json) -> bool {
    match (said, meant) {
        (Json::Object(said), Json::Object(meant)) => {
            let has_all = |one: &Map<String, Json>, other: &Map<String, Json>| {
                let in_other = |key: &String| other.get(key).unwrap_or(&Json::Null).clone();
                one.iter().all(|(key, value)| is_same_json(value, &in_other(key)))
            };
            has_all(said, meant) && has_all(meant, said)
        }
        (Json::Array(said), Json::Array(meant)) => {
            said.len() == meant.len()
                && said.iter().zip(meant).all(|(said, it)| is_same_json(said, it))
        }
        (said, meant) => said == meant || (is_empty_json(said) && is_empty_json(meant)),
    }
}

pub(super) fn is_empty_json(value: &Json) -> bool {
    match value {
        Json::Null => true,
        Json::Object(members) => members.values().all(is_empty_json),
        Json::Array(items) => items.is_empty(),
        _ => false,
    }
}
