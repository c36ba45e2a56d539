//! JSON as people keep it in settings: comments, trailing commas, and where in
//! the text everything is.
//!
//! This file only reads, with `jsonc-parser`. What changes such a text is in `jsonc_edit`; what
//! the keys mean is known to neither.

use jsonc_parser::ast::{ObjectPropName, Value as AstValue};
use jsonc_parser::common::{Range, Ranged};
use jsonc_parser::errors::{ParseError, ParseErrorKind};
use jsonc_parser::tokens::Token;
use jsonc_parser::{
    CollectOptions, ParseOptions, ParseStringErrorKind, Scanner, ScannerOptions, parse_to_ast,
};
use serde_json::Value as Json;

use super::syntax_tree::{SyntaxMember, SyntaxNode, SyntaxNodeKind, TextFault};

/// Deeper than any settings, and shallow enough for the stack.
const MAX_JSONC_DEPTH: usize = 128;

/// Of what goes beyond JSON, only what most clients take.
const PARSE_OPTIONS: ParseOptions = ParseOptions {
    allow_comments: true,
    allow_trailing_commas: true,
    allow_loose_object_property_names: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// The value in `text`; none when there is nothing but space and comments.
pub fn parse(text: &str) -> Result<Option<SyntaxNode>, TextFault> {
    check_tokens(text)?;
    let parsed = parse_to_ast(text, &CollectOptions::default(), &PARSE_OPTIONS)
        .map_err(|error| fault_from_error(text, &error))?;
    parsed.value.map(|root| node_from_ast(&root)).transpose()
}

/// The next token behind `start` that is no comment, and where it begins.
pub(super) fn next_token(text: &str, start: usize) -> Option<(Token<'_>, usize)> {
    let mut scanner = jsonc_scanner(text.get(start..)?);
    loop {
        match scanner.scan().ok()?? {
            Token::CommentLine(_) | Token::CommentBlock(_) => {}
            token => return Some((token, start + scanner.token_start())),
        }
    }
}

fn jsonc_scanner(text: &str) -> Scanner<'_> {
    let options = ScannerOptions {
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    Scanner::new(text, &options)
}

/// What the parser would not see: nesting, before it recurses, and a quote that is closed only
/// on a later line, where it would blame what follows.
fn check_tokens(text: &str) -> Result<(), TextFault> {
    let (mut scanner, mut depth) = (jsonc_scanner(text), 0_usize);
    while let Some(token) = scanner.scan().map_err(|error| fault_from_error(text, &error))? {
        match token {
            Token::OpenBrace | Token::OpenBracket => depth += 1,
            Token::CloseBrace | Token::CloseBracket => depth = depth.saturating_sub(1),
            Token::String(_) if text[scanner.token_start()..scanner.token_end()].contains('\n') => {
                return Err(TextFault::new(scanner.token_start(), "this quote is never closed"));
            }
            _ => {}
        }
        if depth > MAX_JSONC_DEPTH {
            let message = format!("this is nested more than {MAX_JSONC_DEPTH} deep");
            return Err(TextFault::new(scanner.token_start(), message));
        }
    }
    Ok(())
}

fn node_from_ast(value: &AstValue) -> Result<SyntaxNode, TextFault> {
    let kind = match value {
        AstValue::Object(object) => {
            let members = object.properties.iter().map(|member| {
                let (key, key_range) = match &member.name {
                    ObjectPropName::String(name) => (name.value.to_string(), name.range),
                    ObjectPropName::Word(name) => (name.value.to_owned(), name.range),
                };
                let value = node_from_ast(&member.value)?;
                Ok(SyntaxMember { key, key_span: key_range.start..key_range.end, value })
            });
            SyntaxNodeKind::Object(members.collect::<Result<_, _>>()?)
        }
        AstValue::Array(array) => {
            let items = array.elements.iter().map(|item| node_from_ast(item));
            SyntaxNodeKind::Array(items.collect::<Result<_, _>>()?)
        }
        AstValue::StringLit(string) => SyntaxNodeKind::Scalar(string.value.clone().into()),
        AstValue::BooleanLit(boolean) => SyntaxNodeKind::Scalar(boolean.value.into()),
        AstValue::NullKeyword(_) => SyntaxNodeKind::Scalar(Json::Null),
        AstValue::NumberLit(number) => {
            let parsed = serde_json::from_str::<serde_json::Number>(number.value).ok();
            // Another crate may have numbers of any size switched on.
            let finite = parsed.filter(|it| it.as_f64().is_some_and(f64::is_finite));
            let too_large = || TextFault::new(number.range.start, "this number is too large");
            SyntaxNodeKind::Scalar(finite.ok_or_else(too_large)?.into())
        }
    };
    let Range { start, end } = value.range();
    Ok(SyntaxNode { span: start..end, kind })
}

/// In words that quote nothing of the text.
fn fault_from_error(text: &str, error: &ParseError) -> TextFault {
    let start = error.range().start;
    let message = match error.kind() {
        ParseErrorKind::UnterminatedObject => "this { is never closed",
        ParseErrorKind::UnterminatedArray => "this [ is never closed",
        ParseErrorKind::UnterminatedCommentBlock => "this comment is never closed",
        ParseErrorKind::String(ParseStringErrorKind::UnterminatedStringLiteral) => {
            "this quote is never closed"
        }
        ParseErrorKind::String(_) => "this text has an escape that JSON does not know",
        ParseErrorKind::ExpectedComma => {
            let next = next_token(text, start).map_or(start, |(_, next)| next);
            return TextFault::new(next, "a comma is missing here");
        }
        ParseErrorKind::ExpectedColonAfterObjectKey => "a : is missing here",
        ParseErrorKind::UnexpectedTokenInObject | ParseErrorKind::ExpectedStringObjectProperty => {
            "a name in quotes or } is missing here"
        }
        ParseErrorKind::MultipleRootJsonValues => "there is something behind the end of the JSON",
        ParseErrorKind::ExpectedObjectValue
        | ParseErrorKind::UnexpectedCloseBrace
        | ParseErrorKind::UnexpectedCloseBracket
        | ParseErrorKind::UnexpectedColon
        | ParseErrorKind::UnexpectedComma => "a value is missing here",
        _ => "this is no value; texts need double quotes",
    };
    TextFault::new(start, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn json(text: &str) -> Json {
        parse(text).unwrap().unwrap().to_json()
    }

    fn fault(text: &str) -> String {
        let fault = parse(text).unwrap_err();
        fault.to_problem(text, "f").to_line()
    }

    #[test]
    fn comments_and_trailing_commas_are_no_part_of_the_value() {
        assert_eq!(
            json(
                "// a\n{ \"a\": [1, -2.5e3, true, null,], /* } */ \"b\": {\"c\": \"x // y\",}, }//z"
            ),
            json!({"a": [1, serde_json::from_str::<Json>("-2.5e3").unwrap(), true, null], "b": {"c": "x // y"}})
        );
        assert_eq!(json(r#"{"ü\u00e4\n": "\"\\"}"#), json!({"üä\n": "\"\\"}));
        assert_eq!(json(r#"{"a": 1, "a": 2}"#), json!({"a": 2}));
        assert!(parse("").unwrap().is_none());
        assert!(parse(" // nothing\n/* here */").unwrap().is_none());
    }

    #[test]
    fn every_value_knows_its_place() {
        let text = "{ \"a\" : [ 1 ] , \"b\":\"x\"}";
        let root = parse(text).unwrap().unwrap();
        assert_eq!(&text[root.find_path(&["a"]).unwrap().span.clone()], "[ 1 ]");
        assert_eq!(&text[root.find_path(&["b"]).unwrap().span.clone()], "\"x\"");
        assert_eq!(&text[root.get("a").unwrap().key_span.clone()], "\"a\"");
        assert!(root.find_path(&["a", "b"]).is_none());
    }

    #[test]
    fn what_is_wrong_is_said_with_line_and_column() {
        for (text, said) in [
            ("{", "f:1:1: this { is never closed"),
            ("{\n  \"a\": [1, 2\n", "f:2:8: this [ is never closed"),
            ("{\n  \"ü\" 1}", "f:2:7: a : is missing here"),
            ("{\"a\": 1 \"b\": 2}", "f:1:9: a comma is missing here"),
            ("[1 // x\n 2]", "f:2:2: a comma is missing here"),
            ("{\"a\": \"x,\n \"b\": 1}", "f:1:7: this quote is never closed"),
            ("{\"a\": }", "f:1:7: a value is missing here"),
            ("{'a': 1}", "f:1:2: this is no value; texts need double quotes"),
            ("{a: 1}", "f:1:2: a name in quotes or } is missing here"),
            ("{\"a\": 'x'}", "f:1:7: this is no value; texts need double quotes"),
            ("{\"a\": \"x\n\"}", "f:1:7: this quote is never closed"),
            ("{\"a\": \"\\x\"}", "f:1:8: this text has an escape that JSON does not know"),
            ("{} {}", "f:1:4: there is something behind the end of the JSON"),
            ("{ /* x }", "f:1:3: this comment is never closed"),
            ("{\"a\": 01}", "f:1:8: a comma is missing here"),
            ("[1e999]", "f:1:2: this number is too large"),
            ("[0x1]", "f:1:2: this is no value; texts need double quotes"),
            ("[1}", "f:1:3: a value is missing here"),
            ("{,}", "f:1:2: a name in quotes or } is missing here"),
            ("{\"", "f:1:2: this quote is never closed"),
            ("{\"\\", "f:1:2: this quote is never closed"),
            ("/", "f:1:1: this is no value; texts need double quotes"),
        ] {
            assert_eq!(fault(text), said, "{text}");
        }
        let too_deep = "f:1:129: this is nested more than 128 deep";
        assert_eq!(fault(&"[".repeat(100_000)), too_deep);
        assert_eq!(fault(&format!("{}{}", "[".repeat(129), "]".repeat(129))), too_deep);
        assert!(parse(&format!("{}{}", "[".repeat(128), "]".repeat(128))).is_ok());
        assert!(fault(&"{\"a\":".repeat(100_000)).contains("nested more than 128 deep"));
    }
}
