//! Layout-preserving JSON edits: everything around the change, comments included, stays
//! as it is.

use std::ops::Range;

use jsonc_parser::tokens::Token;
use serde_json::Value as Json;

use super::edit_check::{line_start, nest_value, replace_range};
use super::jsonc;
use super::syntax_tree::{SyntaxNode, SyntaxNodeKind, TextFault};

/// `text` with `value` at `path`. Objects on the way are made where they are
/// missing; the same text when the value is there already.
pub(crate) fn put_value(text: &str, path: &[&str], value: &Json) -> Result<String, TextFault> {
    let style = JsoncStyle::from_text(text);
    let Some(root) = jsonc::parse(text)? else {
        let before = if text.trim().is_empty() { "" } else { text.trim_end() };
        let gap = if before.is_empty() { "" } else { style.newline };
        let whole = style.render_block(&nest_value(path, value), "");
        return Ok(format!("{before}{gap}{whole}{}", style.newline));
    };
    let mut node = &root;
    for (depth, key) in path.iter().enumerate() {
        let rest = &path[depth + 1..];
        match &node.kind {
            SyntaxNodeKind::Object(_) => match node.get(key) {
                Some(member) => node = &member.value,
                None => {
                    let root = depth == 0;
                    return insert_member(text, node, root, key, &nest_value(rest, value), &style);
                }
            },
            // `"mcpServers": null` is how some write that there are none.
            SyntaxNodeKind::Scalar(Json::Null) if depth > 0 => {
                return Ok(replace_node(text, node, &nest_value(&path[depth..], value), &style));
            }
            _ => {
                let what = if depth == 0 { "the whole file" } else { path[depth - 1] };
                let fault = format!("{what} should be an object in braces here");
                return Err(TextFault::new(node.span.start, fault));
            }
        }
    }
    if node.to_json() == *value {
        Ok(text.to_owned())
    } else {
        Ok(replace_node(text, node, value, &style))
    }
}

/// `text` without the member at `path`; the same text when there is none.
pub(crate) fn remove_value(text: &str, path: &[&str]) -> Result<String, TextFault> {
    let root = jsonc::parse(text)?;
    let Some((key, parents)) = path.split_last() else { return Ok(text.to_owned()) };
    let Some(object) = root.as_ref().and_then(|root| root.find_path(parents)) else {
        return Ok(text.to_owned());
    };
    let members = object.members();
    let Some(index) = members.iter().rposition(|member| member.key == *key) else {
        return Ok(text.to_owned());
    };
    let member = &members[index];
    if members.len() == 1 && is_blank(text, object.span.start + 1..member.key_span.start) {
        let end =
            comma_after(text, member.value.span.end).map_or(member.value.span.end, |at| at + 1);
        if is_blank(text, end..object.span.end - 1) {
            return Ok(remove_range(text, object.span.start + 1..object.span.end - 1));
        }
    }
    let before = index.checked_sub(1).and_then(|index| members.get(index));
    let comma_before = before.and_then(|before| comma_after(text, before.value.span.end));
    if let Some(at) = comma_before
        && is_blank(text, at + 1..member.key_span.start)
        && !begins_line(text, member.key_span.start)
    {
        return Ok(remove_range(text, at..member.value.span.end));
    }
    let comma = comma_after(text, member.value.span.end);
    let end = comma.map_or(member.value.span.end, |at| at + 1);
    let shorter = remove_range(text, whole_lines(text, member.key_span.start..end));
    match (comma, comma_before) {
        // The one before is the last now.
        (None, Some(at)) => Ok(remove_range(&shorter, at..at + 1)),
        _ => Ok(shorter),
    }
}

/// How this text is laid out.
struct JsoncStyle {
    newline: &'static str,
    /// One level of indentation.
    unit: String,
    /// All of it is on one line.
    one_line: bool,
}

impl JsoncStyle {
    fn from_text(text: &str) -> JsoncStyle {
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        let indented = text
            .lines()
            .find(|line| line.trim_start().starts_with('"') && line.starts_with([' ', '\t']));
        let unit = indented.map_or("  ", leading_space).to_owned();
        JsoncStyle { newline, unit, one_line: !text.trim().contains('\n') }
    }

    /// Objects member by member, each on its line; lists of plain values, such
    /// as arguments, stay on one.
    fn render_block(&self, value: &Json, indent: &str) -> String {
        match value {
            Json::Object(members) if !members.is_empty() => {
                let inner = format!("{indent}{}", self.unit);
                let members: Vec<String> = members
                    .iter()
                    .map(|(key, value)| {
                        format!("{inner}{}", self.render_member(key, value, &inner))
                    })
                    .collect();
                let lines = members.join(&format!(",{}", self.newline));
                format!("{{{}{lines}{}{indent}}}", self.newline, self.newline)
            }
            other => render_line(other),
        }
    }

    fn render_member(&self, key: &str, value: &Json, indent: &str) -> String {
        format!("{}: {}", Json::from(key), self.render_block(value, indent))
    }
}

/// A value on one line.
fn render_line(value: &Json) -> String {
    match value {
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(render_line).collect();
            format!("[{}]", items.join(", "))
        }
        Json::Object(members) if !members.is_empty() => {
            let member = |(key, value): (&String, &Json)| render_line_member(key, value);
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

fn render_line_member(key: &str, value: &Json) -> String {
    format!("{}: {}", Json::from(key), render_line(value))
}

fn replace_node(text: &str, node: &SyntaxNode, value: &Json, style: &JsoncStyle) -> String {
    let new = if style.one_line {
        render_line(value)
    } else {
        style.render_block(value, leading_space(line_of(text, node.span.start)))
    };
    replace_range(text, node.span.clone(), &new)
}

/// A new member at the end of `object`.
fn insert_member(
    text: &str,
    object: &SyntaxNode,
    is_root: bool,
    key: &str,
    value: &Json,
    style: &JsoncStyle,
) -> Result<String, TextFault> {
    let (open, close) = (object.span.start, object.span.end - 1);
    let outer = leading_space(line_of(text, open));
    let indent = format!("{outer}{}", style.unit);
    let close_begins_line = begins_line(text, close) && close > 0 && line_start(text, close) > open;
    let Some(last) = object.members().last() else {
        if is_blank(text, open + 1..close) {
            let inside = if style.one_line && !is_root {
                render_line_member(key, value)
            } else {
                let member = style.render_member(key, value, &indent);
                format!("{0}{indent}{member}{0}{outer}", style.newline)
            };
            return Ok(replace_range(text, open + 1..close, &inside));
        }
        // Nothing but comments: they stay in front.
        if close_begins_line {
            let member = style.render_member(key, value, &indent);
            let at = line_start(text, close);
            return Ok(replace_range(text, at..at, &format!("{indent}{member}{}", style.newline)));
        }
        return Ok(replace_range(
            text,
            close..close,
            &format!("{} ", render_line_member(key, value)),
        ));
    };

    let end = last.value.span.end;
    if !begins_line(text, last.key_span.start) {
        return Ok(replace_range(text, end..end, &format!(", {}", render_line_member(key, value))));
    }
    let indent = leading_space(line_of(text, last.key_span.start));
    let member = style.render_member(key, value, indent);
    // A trailing comma stays one: the new member gets its own.
    let (after, missing, trailing) = match comma_after(text, end) {
        Some(comma) => (comma + 1, "", ","),
        None => (end, ",", ""),
    };
    if close_begins_line {
        let at = line_start(text, close);
        let lines = format!("{indent}{member}{trailing}{}", style.newline);
        return Ok(replace_range(&replace_range(text, at..at, &lines), end..end, missing));
    }
    let lines = format!("{missing}{}{indent}{member}{trailing}", style.newline);
    Ok(replace_range(text, after..after, &lines))
}

/// The comma behind a value that ends at `end`, if there is one.
fn comma_after(text: &str, end: usize) -> Option<usize> {
    let (token, at) = jsonc::next_token(text, end)?;
    (token == Token::Comma).then_some(at)
}

/// The lines of `range` with their end, if nothing else is on them.
fn whole_lines(text: &str, range: Range<usize>) -> Range<usize> {
    let rest = text[range.end..].find('\n').map(|at| range.end + at + 1);
    match rest {
        Some(end) if begins_line(text, range.start) && is_blank(text, range.end..end) => {
            line_start(text, range.start)..end
        }
        _ => range,
    }
}

fn remove_range(text: &str, range: Range<usize>) -> String {
    replace_range(text, range, "")
}

fn is_blank(text: &str, range: Range<usize>) -> bool {
    text.get(range).is_some_and(|part| part.trim().is_empty())
}

fn begins_line(text: &str, at: usize) -> bool {
    is_blank(text, line_start(text, at)..at)
}

fn line_of(text: &str, at: usize) -> &str {
    &text[line_start(text, at)..]
}

fn leading_space(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PATH: [&str; 2] = ["m", "x"];

    fn check_put(text: &str, expected: &str) -> String {
        let value = json!({"c": "d", "e": ["f", "g"]});
        let new = put_value(text, &PATH, &value).unwrap();
        assert_eq!(new, expected);
        assert_eq!(jsonc::parse(&new).unwrap().unwrap().find_path(&PATH).unwrap().to_json(), value);
        assert_eq!(put_value(&new, &PATH, &value).unwrap(), new, "a second time changes nothing");
        new
    }

    /// Putting it in and taking it out again leaves what was there.
    fn check(text: &str, expected: &str) {
        let new = check_put(text, expected);
        assert_eq!(remove_value(&new, &PATH).unwrap(), text);
    }

    #[test]
    fn a_new_member_goes_in_as_the_text_is_laid_out() {
        check(
            "{\n  \"m\": {}\n}\n",
            "{\n  \"m\": {\n    \"x\": {\n      \"c\": \"d\",\n      \"e\": [\"f\", \"g\"]\n    }\n  }\n}\n",
        );
        check(
            "{\n\t\"m\": {\n\t\t\"a\": 1 // one\n\t\t// end\n\t}\n}",
            "{\n\t\"m\": {\n\t\t\"a\": 1, // one\n\t\t// end\n\t\t\"x\": {\n\t\t\t\"c\": \"d\",\n\t\t\t\"e\": [\"f\", \"g\"]\n\t\t}\n\t}\n}",
        );
        check(
            "{\r\n    \"m\": {\r\n        \"a\": 1,\r\n    },\r\n}\r\n",
            "{\r\n    \"m\": {\r\n        \"a\": 1,\r\n        \"x\": {\r\n            \"c\": \"d\",\r\n            \"e\": [\"f\", \"g\"]\r\n        },\r\n    },\r\n}\r\n",
        );
        check(r#"{"m":{"a":1},"b":2}"#, r#"{"m":{"a":1, "x": {"c": "d", "e": ["f", "g"]}},"b":2}"#);
        check(r#"{"m":{},"b":2}"#, r#"{"m":{"x": {"c": "d", "e": ["f", "g"]}},"b":2}"#);
        check(
            "{\n  \"m\": { // mine\n  }\n}",
            "{\n  \"m\": { // mine\n    \"x\": {\n      \"c\": \"d\",\n      \"e\": [\"f\", \"g\"]\n    }\n  }\n}",
        );
        check(
            "{\n  \"m\": {\"a\": 1, /* b */ }\n}",
            "{\n  \"m\": {\"a\": 1, \"x\": {\"c\": \"d\", \"e\": [\"f\", \"g\"]}, /* b */ }\n}",
        );
    }

    #[test]
    fn objects_on_the_way_are_made() {
        let whole = "{\n  \"m\": {\n    \"x\": {\n      \"c\": \"d\",\n      \"e\": [\"f\", \"g\"]\n    }\n  }\n}";
        check_put("", &format!("{whole}\n"));
        check_put(" \n", &format!("{whole}\n"));
        check_put("{}", whole);
        check_put("// mine\n", &format!("// mine\n{whole}\n"));
        check_put("{\n  \"m\": null\n}", whole);
        check_put(
            "{\n  \"a\": 1 }",
            "{\n  \"a\": 1,\n  \"m\": {\n    \"x\": {\n      \"c\": \"d\",\n      \"e\": [\"f\", \"g\"]\n    }\n  } }",
        );
    }

    #[test]
    fn a_value_that_is_there_is_replaced_where_it_is() {
        assert_eq!(
            put_value("{\n  // first\n  \"m\": { \"x\": 1 } // last\n}", &PATH, &json!("y"))
                .unwrap(),
            "{\n  // first\n  \"m\": { \"x\": \"y\" } // last\n}"
        );
        assert_eq!(
            put_value("{\"m\": {\"x\": 1, \"x\": 2}}", &PATH, &json!(3)).unwrap(),
            "{\"m\": {\"x\": 1, \"x\": 3}}"
        );
    }

    #[test]
    fn what_is_no_object_is_not_overwritten() {
        for (text, message) in [
            ("[]", "the whole file should be an object in braces here"),
            ("null", "the whole file should be an object in braces here"),
            ("{\"m\": []}", "m should be an object in braces here"),
            ("{\"m\": \"x\"}", "m should be an object in braces here"),
        ] {
            assert_eq!(put_value(text, &PATH, &json!(1)).unwrap_err().message, message);
        }
        assert!(put_value("{\"m\": ", &PATH, &json!(1)).is_err());
    }

    #[test]
    fn a_member_is_taken_out_wherever_it_is() {
        for (text, expected) in [
            ("{\"m\": {\"x\": 1}}", "{\"m\": {}}"),
            ("{\"m\": {\"x\": 1, \"a\": 2}}", "{\"m\": { \"a\": 2}}"),
            ("{\"m\": {\"a\": 2, \"x\": 1}}", "{\"m\": {\"a\": 2}}"),
            ("{\"m\": {\n  \"x\": 1,\n  \"a\": 2\n}}", "{\"m\": {\n  \"a\": 2\n}}"),
            (
                "{\"m\": {\n  \"a\": 2, // two\n  \"x\": 1 // one\n}}",
                "{\"m\": {\n  \"a\": 2 // two\n   // one\n}}",
            ),
            ("{\"m\": {\n  // x\n  \"x\": 1\n}}", "{\"m\": {\n  // x\n}}"),
            ("{\"m\": {\"y\": 1}}", "{\"m\": {\"y\": 1}}"),
            ("{\"m\": 1}", "{\"m\": 1}"),
            ("", ""),
        ] {
            let new = remove_value(text, &PATH).unwrap();
            assert_eq!(new, expected);
            assert!(jsonc::parse(&new).is_ok());
        }
    }

    #[test]
    fn no_layout_is_broken_and_no_comment_lost() {
        let opens = ["{", "{ ", "{\n    ", "{ // o\n    ", "{/*o*/", "{\n    /*o*/\n    "];
        let seps = [",", ", ", ",\n    ", " // s\n    , ", ", /*s*/ ", ", // s\n    "];
        let tails = [
            "",
            " ",
            "\n  ",
            ",",
            ",\n  ",
            " // t\n  ",
            ", // t\n  ",
            "/*t*/",
            ", /*t*/ ",
            "\n  /*t*/",
        ];
        let value = json!({"c": [1]});
        let json = |text: &str| jsonc::parse(text).unwrap().unwrap().to_json();
        let all = opens.len() * seps.len() * tails.len() * 3;
        for index in 0..all {
            let (count, rest) = (index % 3, index / 3);
            let (open, rest) = (opens[rest % opens.len()], rest / opens.len());
            let (sep, tail) = (seps[rest % seps.len()], tails[rest / seps.len()]);
            if count == 0 && tail.starts_with(',') {
                continue;
            }
            let members = ["\"a\": {}", "\"b\": \"x, // y\""][..count].join(sep);
            for outer in
                [["{\n  \"m\": ", "\n}\n"], ["{\"m\":", "}"], ["// f\n{\"l\": 1, \"m\": ", ", }"]]
            {
                let text = format!("{}{open}{members}{tail}}}{}", outer[0], outer[1]);
                let new = put_value(&text, &PATH, &value).unwrap();
                let mut expected = json(&text);
                expected["m"]["x"] = value.clone();
                assert_eq!(json(&new), expected, "{text}\n{new}");
                assert_eq!(put_value(&new, &PATH, &value).unwrap(), new);
                let back = remove_value(&new, &PATH).unwrap();
                assert_eq!(json(&back), json(&text), "{text}\n{new}\n{back}");
                for mark in ["//", "/*"] {
                    let count = |text: &str| text.matches(mark).count();
                    assert_eq!(
                        [count(&new), count(&back)],
                        [count(&text); 2],
                        "{text}\n{new}\n{back}"
                    );
                }
            }
        }
    }
}
