//! Layout-preserving YAML edits: everything around the change, comments included, stays
//! as it is.
//!
//! Indentation is meaning in YAML, and the crates that edit it keep lists of documents
//! that they break. So a change here is a few lines that go in or out, and it counts
//! only if the new text, read again, says exactly what was meant; otherwise it is
//! refused, and the user makes it by hand.

mod yaml_style;

use std::ops::Range;

use serde_json::Value as Json;

use super::config_syntax::ConfigSyntax;
use super::edit_check::{check_edit, line_start, nest_value, remove_json, replace_range};
use super::syntax_tree::{SyntaxNode, SyntaxNodeKind, TextFault};
use super::yaml_text::parse;
pub(super) use yaml_style::render_flow;
use yaml_style::{YamlStyle, quote_string, render_scalar};

/// `text` with `value` at `path`; in a list, a key means the item with that `name`.
/// Objects on the way are made where they are missing; the same text when the value is
/// there already.
pub(crate) fn put_value(text: &str, path: &[&str], value: &Json) -> Result<String, TextFault> {
    let style = YamlStyle::from_text(text);
    let Some(root) = parse(text)? else {
        let gap = if text.is_empty() || text.ends_with('\n') { "" } else { style.newline };
        let whole = style.render_block(&nest_value(path, value), 0);
        let new = Some(format!("{text}{gap}{whole}"));
        return check_edit(ConfigSyntax::Yaml, text, new, path, Some(value), 0);
    };
    let mut node = &root;
    for (depth, key) in path.iter().enumerate() {
        let rest = nest_value(&path[depth + 1..], value);
        if let Some(next) = node.find_path(&[key]) {
            node = next;
            continue;
        }
        let new = match &node.kind {
            _ if depth > 0 && node.is_empty() && !is_inside_flow(text, &root, &path[..depth]) => {
                let whole = match &node.kind {
                    SyntaxNodeKind::Array(_) => Json::Array(vec![rest]),
                    _ => nest_value(&path[depth..], value),
                };
                fill_empty_value(text, &root, &path[..depth], &whole, &style)
            }
            SyntaxNodeKind::Object(_) => insert_value(text, node, Some(key), &rest, &style),
            SyntaxNodeKind::Array(_) if depth > 0 => insert_value(text, node, None, &rest, &style),
            SyntaxNodeKind::Array(_) | SyntaxNodeKind::Scalar(_) => {
                let what = if depth == 0 { "the whole file" } else { path[depth - 1] };
                let message = format!("{what} should be a mapping here");
                return Err(TextFault::new(node.span.start, message));
            }
        };
        return check_edit(ConfigSyntax::Yaml, text, new, path, Some(value), node.span.start);
    }
    if node.to_json() == *value {
        return Ok(text.to_owned());
    }
    let new = replace_value(text, &root, path, value, &style);
    check_edit(ConfigSyntax::Yaml, text, new, path, Some(value), node.span.start)
}

/// `text` without what is at `path`; the same text when there is nothing.
pub(crate) fn remove_value(text: &str, path: &[&str]) -> Result<String, TextFault> {
    let Some(root) = parse(text)? else { return Ok(text.to_owned()) };
    let Some(parents) = path.split_last().map(|(_, parents)| parents) else {
        return Ok(text.to_owned());
    };
    let (Some(parent), Some(node)) = (root.find_path(parents), root.find_path(path)) else {
        return Ok(text.to_owned());
    };
    let new = if parent.entry_names().len() == 1 && child_count(parent) == 1 {
        remove_only_child(text, &root, parents, parent)
    } else if is_flow_style(text, parent) {
        let mut left = parent.to_json();
        remove_json(&mut left, &path[parents.len()..]);
        Some(replace_range(text, parent.span.clone(), &render_flow(&left)))
    } else {
        let lines = node_lines(text, parent, node);
        lines.map(|lines| replace_range(text, lines, ""))
    };
    check_edit(ConfigSyntax::Yaml, text, new, path, None, node.span.start)
}

/// `text` with what `copy` has at `path`, as it is written there if it fits.
pub(crate) fn restore_value(text: &str, path: &[&str], copy: &str) -> Result<String, TextFault> {
    let (Some(root), Some(before)) = (parse(text)?, parse(copy)?) else {
        return Ok(text.to_owned());
    };
    let (Some(now), Some(old)) = (root.find_path(path), before.find_path(path)) else {
        return Ok(text.to_owned());
    };
    let column =
        |text: &str, node: &SyntaxNode| node.span.start - line_start(text, node.span.start);
    let value = old.to_json();
    if column(text, now) == column(copy, old) {
        let written = copy[old.span.clone()].trim_end();
        let (start, end) = (now.span.start, trimmed_end(text, now.span.clone()));
        let new = Some(replace_range(text, start..end, written));
        let new = check_edit(ConfigSyntax::Yaml, text, new, path, Some(&value), start);
        if new.is_ok() {
            return new;
        }
    }
    put_value(text, path, &value)
}

/// A new member, or item, at the end of `node`.
fn insert_value(
    text: &str,
    node: &SyntaxNode,
    key: Option<&str>,
    value: &Json,
    style: &YamlStyle,
) -> Option<String> {
    if is_flow_style(text, node) {
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
        let new = key.map_or_else(
            || render_flow(value),
            |key| format!("{}: {}", quote_string(key), render_flow(value)),
        );
        let comma = if inside.trim().is_empty() || inside.ends_with(',') { "" } else { ", " };
        let end = node.span.start + 1 + inside.len();
        return Some(replace_range(text, end..end, &format!("{comma}{new}")));
    }
    let column = entry_column(text, node)?;
    let new = match key {
        Some(key) => style.render_member(key, value, column),
        None => style.render_item(value, column),
    };
    let at = end_of_block(text, node.span.clone(), column);
    let gap = if text[..at].ends_with('\n') { "" } else { style.newline };
    Some(replace_range(text, at..at, &format!("{gap}{new}")))
}

/// A value where there is only a key, or nothing in brackets.
fn fill_empty_value(
    text: &str,
    root: &SyntaxNode,
    path: &[&str],
    value: &Json,
    style: &YamlStyle,
) -> Option<String> {
    let (key, parents) = path.split_last()?;
    let parent = root.find_path(parents)?;
    let member = parent.get(key)?;
    let column = entry_column(text, parent)?;
    let colon = member.key_span.end + text[member.key_span.end..].find(':')? + 1;
    // A comment behind the key stays there.
    let text = replace_range(text, colon..member.value.span.end.max(colon), "");
    let at = next_line_start(&text, colon);
    let gap = if text[..at].ends_with('\n') { "" } else { style.newline };
    let new = style.render_block(value, column + style.unit);
    Some(replace_range(&text, at..at, &format!("{gap}{new}")))
}

fn replace_value(
    text: &str,
    root: &SyntaxNode,
    path: &[&str],
    value: &Json,
    style: &YamlStyle,
) -> Option<String> {
    let (key, parents) = path.split_last()?;
    let (parent, node) = (root.find_path(parents)?, root.find_path(path)?);
    let old = node.span.start..trimmed_end(text, node.span.clone());
    let is_one_line = !text[old.clone()].contains('\n') && !old.is_empty();
    let is_scalar = |value: &Json| !matches!(value, Json::Array(_) | Json::Object(_));
    if is_flow_style(text, parent) {
        return Some(replace_range(text, old, &render_flow(value)));
    }
    if node.is_empty() && !is_scalar(value) && matches!(parent.kind, SyntaxNodeKind::Object(_)) {
        return fill_empty_value(text, root, path, value, style);
    }
    if is_flow_style(text, node) {
        return Some(replace_range(text, old, &render_flow(value)));
    }
    if is_one_line && is_scalar(value) && matches!(node.kind, SyntaxNodeKind::Scalar(_)) {
        return Some(replace_range(text, old, &render_scalar(value)));
    }
    let column = entry_column(text, parent)?;
    if matches!(parent.kind, SyntaxNodeKind::Array(_)) {
        let lines = node_lines(text, parent, node)?;
        return Some(replace_range(text, lines, &style.render_item(value, column)));
    }
    let key_start = parent.get(key)?.key_span.start;
    let member = style.render_member(key, value, column);
    // It may stand behind a dash, and what follows it keeps its line.
    let member = member.trim_start().trim_end_matches(['\r', '\n']);
    Some(replace_range(text, key_start..old.end, member))
}

/// The last of a mapping or list goes: what is left is an empty one.
fn remove_only_child(
    text: &str,
    root: &SyntaxNode,
    parents: &[&str],
    parent: &SyntaxNode,
) -> Option<String> {
    let empty = if matches!(parent.kind, SyntaxNodeKind::Array(_)) { "[]" } else { "{}" };
    let old = parent.span.start..trimmed_end(text, parent.span.clone());
    if is_flow_style(text, parent) {
        return Some(replace_range(text, old, empty));
    }
    let lines = line_start(text, old.start)..next_line_start(text, old.end);
    let Some((key, above)) = parents.split_last() else {
        return Some(replace_range(text, lines, ""));
    };
    let key_end = root.find_path(above)?.get(key)?.key_span.end;
    let colon = key_end + text[key_end..].find(':')? + 1;
    let text = replace_range(text, lines, "");
    Some(replace_range(&text, colon..colon, &format!(" {empty}")))
}

/// The lines of one member or item of `parent`, if nothing else is on them.
fn node_lines(text: &str, parent: &SyntaxNode, node: &SyntaxNode) -> Option<Range<usize>> {
    let start = match &parent.kind {
        SyntaxNodeKind::Array(_) => {
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
    Some(start..next_line_start(text, trimmed_end(text, node.span.clone())))
}

fn child_count(node: &SyntaxNode) -> usize {
    match &node.kind {
        SyntaxNodeKind::Object(members) => members.len(),
        SyntaxNodeKind::Array(items) => items.len(),
        SyntaxNodeKind::Scalar(_) => 0,
    }
}

fn is_flow_style(text: &str, node: &SyntaxNode) -> bool {
    let is_open = text[node.span.start..].starts_with(['{', '[']);
    is_open && !matches!(node.kind, SyntaxNodeKind::Scalar(_))
}

/// Whether the value at `path` is written inside of other brackets.
fn is_inside_flow(text: &str, root: &SyntaxNode, path: &[&str]) -> bool {
    let parents = path.split_last().map_or(path, |(_, parents)| parents);
    root.find_path(parents).is_some_and(|parent| is_flow_style(text, parent))
}

/// The column in which the entries of a mapping, or the dashes of a list, begin.
fn entry_column(text: &str, node: &SyntaxNode) -> Option<usize> {
    let first = match &node.kind {
        SyntaxNodeKind::Object(members) => members.first()?.key_span.start,
        SyntaxNodeKind::Array(items) => {
            let start = items.first()?.span.start;
            line_start(text, start) + text[line_start(text, start)..start].find('-')?
        }
        SyntaxNodeKind::Scalar(_) => return None,
    };
    Some(first - line_start(text, first))
}

/// Behind the last line of what is at `span`, with comments that are as far in.
fn end_of_block(text: &str, span: Range<usize>, column: usize) -> usize {
    let mut at = next_line_start(text, trimmed_end(text, span));
    loop {
        let next = next_line_start(text, at);
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

/// The beginning of the next line, or the end of the text.
fn next_line_start(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |newline| at + newline + 1)
}

#[cfg(test)]
mod tests;
