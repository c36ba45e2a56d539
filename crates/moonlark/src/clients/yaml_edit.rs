//! One change to a YAML text that belongs to somebody else: everything around it,
//! comments and layout included, stays as it is.
//!
//! Indentation is meaning in YAML, and the crates that edit it keep lists of documents
//! that they break. So a change here is a few lines that go in or out, and it counts
//! only if the new text, read again, says exactly what was meant; otherwise it is
//! refused, and the user makes it by hand.

mod style;

use std::ops::Range;

use serde_json::Value as Json;

use super::edit_check::{EditCheck, nested, refusal, take_out};
use super::syntax_tree::{NodeKind, SyntaxNode, TextFault};
use super::yaml_text::parse;
pub(super) use style::line;
use style::{YamlStyle, quoted, scalar};

const YAML: EditCheck = EditCheck { parse };

/// `text` with `value` at `path`; in a list, a key means the item with that `name`.
/// Objects on the way are made where they are missing; the same text when the value is
/// there already.
pub(crate) fn put(text: &str, path: &[&str], value: &Json) -> Result<String, TextFault> {
    let style = YamlStyle::of(text);
    let Some(root) = parse(text)? else {
        let gap = if text.is_empty() || text.ends_with('\n') { "" } else { style.newline };
        let whole = style.block(&nested(path, value), 0);
        return YAML.checked(text, &format!("{text}{gap}{whole}"), path, Some(value), 0);
    };
    let mut node = &root;
    for (depth, key) in path.iter().enumerate() {
        let rest = nested(&path[depth + 1..], value);
        if let Some(next) = node.find(&[key]) {
            node = next;
            continue;
        }
        let new = match &node.kind {
            _ if depth > 0
                && node.is_empty()
                && !is_in_brackets_of(text, &root, &path[..depth]) =>
            {
                let whole = match &node.kind {
                    NodeKind::Array(_) => Json::Array(vec![rest]),
                    _ => nested(&path[depth..], value),
                };
                fill(text, &root, &path[..depth], &whole, &style)
            }
            NodeKind::Object(_) => insert(text, node, Some(key), &rest, &style),
            NodeKind::Array(_) if depth > 0 => insert(text, node, None, &rest, &style),
            NodeKind::Array(_) | NodeKind::Scalar(_) => {
                let what = if depth == 0 { "the whole file" } else { path[depth - 1] };
                let message = format!("{what} should be a mapping here");
                return Err(TextFault::new(node.span.start, message));
            }
        };
        let new = new.ok_or_else(|| refusal(node.span.start))?;
        return YAML.checked(text, &new, path, Some(value), node.span.start);
    }
    if node.to_json() == *value {
        return Ok(text.to_owned());
    }
    let new = replace(text, &root, path, value, &style);
    YAML.checked(
        text,
        &new.ok_or_else(|| refusal(node.span.start))?,
        path,
        Some(value),
        node.span.start,
    )
}

/// `text` without what is at `path`; the same text when there is nothing.
pub(crate) fn remove(text: &str, path: &[&str]) -> Result<String, TextFault> {
    let Some(root) = parse(text)? else { return Ok(text.to_owned()) };
    let Some(parents) = path.split_last().map(|(_, parents)| parents) else {
        return Ok(text.to_owned());
    };
    let (Some(parent), Some(node)) = (root.find(parents), root.find(path)) else {
        return Ok(text.to_owned());
    };
    let new = if parent.names().len() == 1 && children(parent) == 1 {
        empty_out(text, &root, parents, parent)
    } else if is_in_brackets(text, parent) {
        let mut left = parent.to_json();
        take_out(&mut left, &path[parents.len()..]);
        Some(with(text, parent.span.clone(), &line(&left)))
    } else {
        let lines = lines_of(text, parent, node);
        lines.map(|lines| with(text, lines, ""))
    };
    YAML.checked(text, &new.ok_or_else(|| refusal(node.span.start))?, path, None, node.span.start)
}

/// `text` with what `copy` has at `path`, as it is written there if it fits.
pub(crate) fn restore(text: &str, path: &[&str], copy: &str) -> Result<String, TextFault> {
    let (Some(root), Some(before)) = (parse(text)?, parse(copy)?) else {
        return Ok(text.to_owned());
    };
    let (Some(now), Some(old)) = (root.find(path), before.find(path)) else {
        return Ok(text.to_owned());
    };
    let column =
        |text: &str, node: &SyntaxNode| node.span.start - line_start(text, node.span.start);
    let value = old.to_json();
    if column(text, now) == column(copy, old) {
        let written = copy[old.span.clone()].trim_end();
        let new = with(text, now.span.start..trimmed_end(text, now.span.clone()), written);
        if let Ok(new) = YAML.checked(text, &new, path, Some(&value), now.span.start) {
            return Ok(new);
        }
    }
    put(text, path, &value)
}

/// A new member, or item, at the end of `node`.
fn insert(
    text: &str,
    node: &SyntaxNode,
    key: Option<&str>,
    value: &Json,
    style: &YamlStyle,
) -> Option<String> {
    if is_in_brackets(text, node) {
        let mut whole = node.to_json();
        match (&mut whole, key) {
            (Json::Array(items), _) => items.push(value.clone()),
            (Json::Object(members), Some(key)) => {
                members.insert(key.to_owned(), value.clone());
            }
            _ => return None,
        }
        // The brackets stay as they are: only the end is new.
        let close = node.span.end - 1;
        let inside = text[node.span.start + 1..close].trim_end();
        let new =
            key.map_or_else(|| line(value), |key| format!("{}: {}", quoted(key), line(value)));
        let comma = if inside.trim().is_empty() || inside.ends_with(',') { "" } else { ", " };
        let end = node.span.start + 1 + inside.len();
        return Some(with(text, end..end, &format!("{comma}{new}")));
    }
    let column = column_of_entries(text, node)?;
    let new = match key {
        Some(key) => style.member(key, value, column),
        None => style.item(value, column),
    };
    let at = end_of_lines(text, node.span.clone(), column);
    let gap = if text[..at].ends_with('\n') { "" } else { style.newline };
    Some(with(text, at..at, &format!("{gap}{new}")))
}

/// A value where there is only a key, or nothing in brackets.
fn fill(
    text: &str,
    root: &SyntaxNode,
    path: &[&str],
    value: &Json,
    style: &YamlStyle,
) -> Option<String> {
    let (key, parents) = path.split_last()?;
    let parent = root.find(parents)?;
    let member = parent.get(key)?;
    let column = column_of_entries(text, parent)?;
    let colon = member.key_span.end + text[member.key_span.end..].find(':')? + 1;
    // A comment behind the key stays there.
    let text = with(text, colon..member.value.span.end.max(colon), "");
    let at = next_line(&text, colon);
    let gap = if text[..at].ends_with('\n') { "" } else { style.newline };
    let new = style.block(value, column + style.unit);
    Some(with(&text, at..at, &format!("{gap}{new}")))
}

fn replace(
    text: &str,
    root: &SyntaxNode,
    path: &[&str],
    value: &Json,
    style: &YamlStyle,
) -> Option<String> {
    let (key, parents) = path.split_last()?;
    let (parent, node) = (root.find(parents)?, root.find(path)?);
    let old = node.span.start..trimmed_end(text, node.span.clone());
    let is_one_line = !text[old.clone()].contains('\n') && !old.is_empty();
    let is_scalar = |value: &Json| !matches!(value, Json::Array(_) | Json::Object(_));
    if is_in_brackets(text, parent) {
        return Some(with(text, old, &line(value)));
    }
    if node.is_empty() && !is_scalar(value) && matches!(parent.kind, NodeKind::Object(_)) {
        return fill(text, root, path, value, style);
    }
    if is_in_brackets(text, node) {
        return Some(with(text, old, &line(value)));
    }
    if is_one_line && is_scalar(value) && matches!(node.kind, NodeKind::Scalar(_)) {
        return Some(with(text, old, &scalar(value)));
    }
    let column = column_of_entries(text, parent)?;
    if matches!(parent.kind, NodeKind::Array(_)) {
        let lines = lines_of(text, parent, node)?;
        return Some(with(text, lines, &style.item(value, column)));
    }
    let key_start = parent.get(key)?.key_span.start;
    let member = style.member(key, value, column);
    // It may stand behind a dash, and what follows it keeps its line.
    let member = member.trim_start().trim_end_matches(['\r', '\n']);
    Some(with(text, key_start..old.end, member))
}

/// The last of a mapping or list goes: what is left is an empty one.
fn empty_out(
    text: &str,
    root: &SyntaxNode,
    parents: &[&str],
    parent: &SyntaxNode,
) -> Option<String> {
    let empty = if matches!(parent.kind, NodeKind::Array(_)) { "[]" } else { "{}" };
    let old = parent.span.start..trimmed_end(text, parent.span.clone());
    if is_in_brackets(text, parent) {
        return Some(with(text, old, empty));
    }
    let lines = line_start(text, old.start)..next_line(text, old.end);
    let Some((key, above)) = parents.split_last() else {
        return Some(with(text, lines, ""));
    };
    let key_end = root.find(above)?.get(key)?.key_span.end;
    let colon = key_end + text[key_end..].find(':')? + 1;
    let text = with(text, lines, "");
    Some(with(&text, colon..colon, &format!(" {empty}")))
}

/// The lines of one member or item of `parent`, if nothing else is on them.
fn lines_of(text: &str, parent: &SyntaxNode, node: &SyntaxNode) -> Option<Range<usize>> {
    let start = match &parent.kind {
        NodeKind::Array(_) => {
            let start = line_start(text, node.span.start);
            let before = text[start..node.span.start].trim();
            (before == "-").then_some(start)?
        }
        _ => {
            let member = parent.members().iter().find(|it| it.value.span == node.span)?;
            let start = line_start(text, member.key_span.start);
            text[start..member.key_span.start].trim().is_empty().then_some(start)?
        }
    };
    Some(start..next_line(text, trimmed_end(text, node.span.clone())))
}

fn children(node: &SyntaxNode) -> usize {
    match &node.kind {
        NodeKind::Object(members) => members.len(),
        NodeKind::Array(items) => items.len(),
        NodeKind::Scalar(_) => 0,
    }
}

fn is_in_brackets(text: &str, node: &SyntaxNode) -> bool {
    let is_open = text[node.span.start..].starts_with(['{', '[']);
    is_open && !matches!(node.kind, NodeKind::Scalar(_))
}

/// Whether the value at `path` is written inside of other brackets.
fn is_in_brackets_of(text: &str, root: &SyntaxNode, path: &[&str]) -> bool {
    let parents = path.split_last().map_or(path, |(_, parents)| parents);
    root.find(parents).is_some_and(|parent| is_in_brackets(text, parent))
}

/// The column in which the entries of a mapping, or the dashes of a list, begin.
fn column_of_entries(text: &str, node: &SyntaxNode) -> Option<usize> {
    let first = match &node.kind {
        NodeKind::Object(members) => members.first()?.key_span.start,
        NodeKind::Array(items) => {
            let start = items.first()?.span.start;
            line_start(text, start) + text[line_start(text, start)..start].find('-')?
        }
        NodeKind::Scalar(_) => return None,
    };
    Some(first - line_start(text, first))
}

/// Behind the last line of what is at `span`, with comments that are as far in.
fn end_of_lines(text: &str, span: Range<usize>, column: usize) -> usize {
    let mut at = next_line(text, trimmed_end(text, span));
    loop {
        let next = next_line(text, at);
        let line = &text[at..next];
        let inner = line.trim_start_matches(' ');
        // At the left edge a comment is about what follows.
        if column == 0 || line.len() - inner.len() < column || !inner.starts_with('#') {
            return at;
        }
        at = next;
    }
}

fn trimmed_end(text: &str, span: Range<usize>) -> usize {
    span.start + text[span].trim_end().len()
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

/// The beginning of the next line, or the end of the text.
fn next_line(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |newline| at + newline + 1)
}

fn with(text: &str, range: Range<usize>, new: &str) -> String {
    format!("{}{new}{}", &text[..range.start], &text[range.end..])
}

#[cfg(test)]
mod tests;
