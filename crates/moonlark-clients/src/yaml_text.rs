//! YAML as clients keep it, as a tree with the place of everything.
//!
//! This file only reads, one document, with the types of YAML 1.2. `<<` is a key like
//! any other, as it is for the clients. What changes such a text is in `yaml_edit`.

use std::collections::HashMap;
use std::ops::Range;

use granit_parser::{Event, Marker, Parser, ScalarStyle, Span};
use serde_json::{Number, Value as Json};

use super::syntax_tree::{SyntaxMember, SyntaxNode, SyntaxNodeKind, TextFault};

/// Deeper than any settings, and shallow enough for the stack.
const MAX_YAML_DEPTH: usize = 128;

/// An alias repeats all that it stands for: a few lines can stand for gigabytes.
const MAX_ALIASED_BYTES: usize = 1024 * 1024;

/// The document in `text`; none when there is nothing but space and comments.
pub(crate) fn parse(text: &str) -> Result<Option<SyntaxNode>, TextFault> {
    let options = granit_parser::options! {
        flow_nesting_limit: MAX_YAML_DEPTH,
        block_nesting_limit: MAX_YAML_DEPTH,
        emit_comments: false,
    };
    let mut builder = YamlTreeBuilder { text, ..YamlTreeBuilder::default() };
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| {
            // Only what kind of error: its text may quote what is there.
            TextFault::new(byte_offset(error.marker()), format!("not valid YAML: {}", error.kind()))
        })?;
        builder.on_event(event, &span)?;
    }
    Ok(builder.root)
}

#[derive(Default)]
struct YamlTreeBuilder<'a> {
    text: &'a str,
    root: Option<SyntaxNode>,
    /// What is open, outermost first.
    open: Vec<OpenYamlNode>,
    anchors: HashMap<usize, Json>,
    aliased_bytes: usize,
}

/// A list or an object that is not closed yet.
struct OpenYamlNode {
    start: usize,
    anchor: usize,
    kind: SyntaxNodeKind,
    key: Option<(String, Range<usize>)>,
}

impl YamlTreeBuilder<'_> {
    fn on_event(&mut self, event: Event<'_>, span: &Span) -> Result<(), TextFault> {
        let bytes = byte_offset(&span.start)..byte_offset(&span.end);
        match event {
            Event::Scalar(value, style, anchor, tag) => {
                let scalar = match (style, tag) {
                    (ScalarStyle::Plain, None) => parse_plain_scalar(&value),
                    _ => Json::String(value.into_owned()),
                };
                let empty = bytes.is_empty() && style == ScalarStyle::Plain;
                let scalar = if empty { Json::Null } else { scalar };
                self.store_anchor(anchor, &scalar);
                self.add_node(SyntaxNode { span: bytes, kind: SyntaxNodeKind::Scalar(scalar) })
            }
            Event::Alias(anchor) => {
                let value = self.anchors.get(&anchor).cloned().unwrap_or_default();
                self.aliased_bytes += value.to_string().len();
                if self.aliased_bytes > MAX_ALIASED_BYTES {
                    return Err(TextFault::new(bytes.start, "aliases repeat more than a megabyte"));
                }
                self.add_node(SyntaxNode { span: bytes, kind: SyntaxNodeKind::Scalar(value) })
            }
            Event::SequenceStart(_, anchor, _) => {
                self.open_node(bytes, anchor, SyntaxNodeKind::Array(vec![]))
            }
            Event::MappingStart(_, anchor, _) => {
                self.open_node(bytes, anchor, SyntaxNodeKind::Object(vec![]))
            }
            Event::SequenceEnd | Event::MappingEnd => self.close_node(bytes),
            Event::DocumentStart(..) if self.root.is_some() => {
                Err(TextFault::new(bytes.start, "there is more than one document in it"))
            }
            _ => Ok(()),
        }
    }

    fn open_node(
        &mut self,
        at: Range<usize>,
        anchor: usize,
        kind: SyntaxNodeKind,
    ) -> Result<(), TextFault> {
        if self.open.len() >= MAX_YAML_DEPTH {
            let message = format!("this is nested more than {MAX_YAML_DEPTH} deep");
            return Err(TextFault::new(at.start, message));
        }
        self.open.push(OpenYamlNode { start: at.start, anchor, kind, key: None });
        Ok(())
    }

    fn close_node(&mut self, at: Range<usize>) -> Result<(), TextFault> {
        let Some(done) = self.open.pop() else { return Ok(()) };
        // In brackets it ends with them; otherwise with the last that is in it.
        let last = match &done.kind {
            SyntaxNodeKind::Object(members) => members.last().map(|it| it.value.span.end),
            SyntaxNodeKind::Array(items) => items.last().map(|item| item.span.end),
            SyntaxNodeKind::Scalar(_) => None,
        };
        let in_brackets = at.len() == 1;
        let end = if in_brackets { at.end } else { last.unwrap_or(at.end) };
        let node = SyntaxNode { span: done.start..end.max(done.start), kind: done.kind };
        if done.anchor > 0 {
            self.store_anchor(done.anchor, &node.to_json());
        }
        self.add_node(node)
    }

    fn store_anchor(&mut self, anchor: usize, value: &Json) {
        if anchor > 0 {
            self.anchors.insert(anchor, value.clone());
        }
    }

    fn add_node(&mut self, node: SyntaxNode) -> Result<(), TextFault> {
        let Some(parent) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match &mut parent.kind {
            SyntaxNodeKind::Array(items) => items.push(node),
            SyntaxNodeKind::Object(members) => match parent.key.take() {
                None => {
                    let fault = || TextFault::new(node.span.start, "this key is not a text");
                    let key = match &node.kind {
                        SyntaxNodeKind::Scalar(Json::String(key)) => key.clone(),
                        SyntaxNodeKind::Scalar(Json::Null) => return Err(fault()),
                        // `on: 1`, `8080: x`: as it is written.
                        SyntaxNodeKind::Scalar(_) => {
                            self.text.get(node.span.clone()).ok_or_else(fault)?.to_owned()
                        }
                        _ => return Err(fault()),
                    };
                    parent.key = Some((key, node.span));
                }
                Some((key, key_span)) => {
                    if members.iter().any(|member| member.key == key) {
                        let message = "this key is there twice";
                        return Err(TextFault::new(key_span.start, message));
                    }
                    members.push(SyntaxMember { key, key_span, value: node });
                }
            },
            SyntaxNodeKind::Scalar(_) => {}
        }
        Ok(())
    }
}

fn byte_offset(marker: &Marker) -> usize {
    marker.byte_offset().unwrap_or_default()
}

/// What a word without quotes stands for.
pub(super) fn parse_plain_scalar(word: &str) -> Json {
    match word {
        "" | "~" | "null" | "Null" | "NULL" => return Json::Null,
        "true" | "True" | "TRUE" => return Json::Bool(true),
        "false" | "False" | "FALSE" => return Json::Bool(false),
        _ => {}
    }
    let digits = word.strip_prefix(['-', '+']).unwrap_or(word);
    let radix = |prefix: &str, radix: u32| {
        word.strip_prefix(prefix).and_then(|digits| i64::from_str_radix(digits, radix).ok())
    };
    if let Some(number) = radix("0x", 16).or_else(|| radix("0o", 8)) {
        return Json::from(number);
    }
    let is_number = digits.starts_with(|letter: char| letter.is_ascii_digit() || letter == '.')
        && digits.chars().any(|letter| letter.is_ascii_digit())
        && digits.chars().all(|letter| letter.is_ascii_digit() || ".eE+-".contains(letter));
    if !is_number {
        return Json::String(word.to_owned());
    }
    if let Ok(number) = word.trim_start_matches('+').parse::<i64>() {
        return Json::from(number);
    }
    let number = word.parse::<f64>().ok().and_then(Number::from_f64);
    number.map_or_else(|| Json::String(word.to_owned()), Json::Number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn json(text: &str) -> Json {
        parse(text).unwrap().unwrap().to_json()
    }

    #[test]
    fn settings_are_read_with_the_types_of_yaml_1_2() {
        assert_eq!(
            json(
                "# c\na: x # y\nb: [1, 0x10, -2.5, true, ~, 'n', yes]\nc:\n- d: |\n    e\n    f\n- \"8080\"\ng:\n1: h\n"
            ),
            json!({
                "a": "x", "b": [1, 16, -2.5, true, null, "n", "yes"],
                "c": [{"d": "e\nf\n"}, "8080"], "g": null, "1": "h"
            })
        );
        assert_eq!(json("a: &x {k: v}\nb: *x\n"), json!({"a": {"k": "v"}, "b": {"k": "v"}}));
        assert_eq!(
            json("a: 1.2.3\nb: 10:30\nc: +5\nd: 1e3\ne: -x\n").to_string(),
            r#"{"a":"1.2.3","b":"10:30","c":5,"d":1000.0,"e":"-x"}"#
        );
        assert!(parse("# nothing\n").unwrap().is_none());
        assert!(parse("").unwrap().is_none());
    }

    #[test]
    fn every_value_knows_its_place() {
        let text = "ü:\n  a: x # y\n  b:\n    - 1\n    - { c: d } \nz: |\n  e\n\n";
        let root = parse(text).unwrap().unwrap();
        let at = |path: &[&str]| &text[root.find_path(path).unwrap().span.clone()];
        assert_eq!(at(&["ü"]), "a: x # y\n  b:\n    - 1\n    - { c: d }");
        assert_eq!(at(&["ü", "a"]), "x");
        assert_eq!(at(&["z"]), "e\n\n");
    }

    #[test]
    fn what_is_wrong_is_said_with_line_and_column() {
        let fault = |text: &str| parse(text).unwrap_err().to_problem(text, "f").to_line();
        assert!(
            fault("a: 1\nb: [2\n").starts_with("f:2:4: not valid YAML: "),
            "{}",
            fault("a: 1\nb: [2\n")
        );
        assert_eq!(fault("a: 1\n---\nb: 2\n"), "f:2:1: there is more than one document in it");
        assert_eq!(fault("a: 1\na: 2\n"), "f:2:1: this key is there twice");
        assert_eq!(fault("? [a]\n: 1\n"), "f:1:3: this key is not a text");
        assert!(fault(&"[".repeat(10_000)).contains("not valid YAML"));
        let doubling: String =
            (1..40).map(|it| format!("k{it}: &a{it} [*a{0}, *a{0}]\n", it - 1)).collect();
        assert!(
            fault(&format!("k0: &a0 [xxxxxxxxxxxx]\n{doubling}"))
                .contains("aliases repeat more than a megabyte")
        );
    }
}
