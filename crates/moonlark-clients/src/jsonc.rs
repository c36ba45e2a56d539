//! JSON as people keep it in settings: comments, trailing commas, and where in
//! the text everything is.
//!
//! This file only reads. What changes such a text is in `jsonc_edit`; what the keys
//! mean is known to neither.

use serde_json::Value as Json;

use super::syntax_tree::{SyntaxMember, SyntaxNode, SyntaxNodeKind, TextFault};

/// Deeper than any settings, and shallow enough for the stack.
const MAX_JSONC_DEPTH: usize = 128;

/// The value in `text`; none when there is nothing but space and comments.
pub fn parse(text: &str) -> Result<Option<SyntaxNode>, TextFault> {
    let mut parser = JsoncParser { text, at: 0, depth: 0 };
    parser.skip_trivia()?;
    if parser.peek_byte().is_none() {
        return Ok(None);
    }
    let root = parser.parse_value()?;
    parser.skip_trivia()?;
    match parser.peek_byte() {
        None => Ok(Some(root)),
        Some(_) => Err(parser.fault_here("there is something behind the end of the JSON")),
    }
}

struct JsoncParser<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
}

impl JsoncParser<'_> {
    fn parse_value(&mut self) -> Result<SyntaxNode, TextFault> {
        self.skip_trivia()?;
        let start = self.at;
        let kind = match self.peek_byte() {
            Some(b'{') => self.parse_nested(JsoncParser::parse_object)?,
            Some(b'[') => self.parse_nested(JsoncParser::parse_array)?,
            Some(b'"') => SyntaxNodeKind::Scalar(Json::String(self.parse_string()?)),
            Some(_) => SyntaxNodeKind::Scalar(self.parse_literal()?),
            None => return Err(self.fault_here("a value is missing here")),
        };
        Ok(SyntaxNode { span: start..self.at, kind })
    }

    /// One level down, at the bracket that opens it.
    fn parse_nested(
        &mut self,
        read: fn(&mut Self) -> Result<SyntaxNodeKind, TextFault>,
    ) -> Result<SyntaxNodeKind, TextFault> {
        self.depth += 1;
        if self.depth > MAX_JSONC_DEPTH {
            return Err(self.fault_here(format!("this is nested more than {MAX_JSONC_DEPTH} deep")));
        }
        let kind = read(self)?;
        self.depth -= 1;
        Ok(kind)
    }

    fn parse_object(&mut self) -> Result<SyntaxNodeKind, TextFault> {
        let open = self.at;
        self.at += 1;
        let mut members = Vec::new();
        loop {
            self.skip_trivia()?;
            let start = self.at;
            match self.peek_byte() {
                Some(b'"') => {}
                Some(b'}') => break,
                Some(_) => return Err(self.fault_here("a name in quotes or } is missing here")),
                None => return Err(TextFault::new(open, "this { is never closed")),
            }
            let key = self.parse_string()?;
            let key_span = start..self.at;
            self.skip_trivia()?;
            if self.peek_byte() != Some(b':') {
                return Err(self.fault_here("a : is missing here"));
            }
            self.at += 1;
            let value = self.parse_value()?;
            members.push(SyntaxMember { key, key_span, value });
            self.skip_separator(open, b'}')?;
        }
        self.at += 1;
        Ok(SyntaxNodeKind::Object(members))
    }

    fn parse_array(&mut self) -> Result<SyntaxNodeKind, TextFault> {
        let open = self.at;
        self.at += 1;
        let mut items = Vec::new();
        loop {
            self.skip_trivia()?;
            match self.peek_byte() {
                Some(b']') => break,
                Some(_) => items.push(self.parse_value()?),
                None => return Err(TextFault::new(open, "this [ is never closed")),
            }
            self.skip_separator(open, b']')?;
        }
        self.at += 1;
        Ok(SyntaxNodeKind::Array(items))
    }

    /// Behind a member: a comma, or the end, which stays for the caller.
    fn skip_separator(&mut self, open: usize, close: u8) -> Result<(), TextFault> {
        self.skip_trivia()?;
        match self.peek_byte() {
            Some(b',') => self.at += 1,
            Some(byte) if byte == close => {}
            Some(_) => {
                return Err(
                    self.fault_here(format!("a comma or {} is missing here", close as char))
                );
            }
            None => {
                let open_bracket = if close == b'}' { '{' } else { '[' };
                return Err(TextFault::new(open, format!("this {open_bracket} is never closed")));
            }
        }
        Ok(())
    }

    fn parse_string(&mut self) -> Result<String, TextFault> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        let mut at = start + 1;
        loop {
            match bytes.get(at) {
                Some(b'\\') => at += 2,
                Some(b'"') => break,
                Some(b'\n') | None => {
                    return Err(TextFault::new(start, "this quote is never closed"));
                }
                Some(_) => at += 1,
            }
        }
        self.at = at + 1;
        let text = self.text.get(start..self.at).unwrap_or_default();
        serde_json::from_str(text)
            .map_err(|_| TextFault::new(start, "this text has an escape that JSON does not know"))
    }

    /// A number, `true`, `false` or `null`.
    fn parse_literal(&mut self) -> Result<Json, TextFault> {
        let start = self.at;
        let rest = &self.text[start..];
        let ends = |letter: char| letter.is_whitespace() || ",:]}[{\"/".contains(letter);
        self.at += rest.find(ends).unwrap_or(rest.len());
        match self.text.get(start..self.at) {
            Some("") | None => Err(TextFault::new(start, "a value is missing here")),
            Some(word) => serde_json::from_str(word)
                .map_err(|_| TextFault::new(start, "this is no value; texts need double quotes")),
        }
    }

    fn skip_trivia(&mut self) -> Result<(), TextFault> {
        self.at = after_trivia(self.text, self.at)?;
        Ok(())
    }

    fn peek_byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn fault_here(&self, message: impl Into<String>) -> TextFault {
        TextFault::new(self.at, message)
    }
}

/// Where the next thing begins that is neither space nor comment.
pub(super) fn after_trivia(text: &str, mut at: usize) -> Result<usize, TextFault> {
    loop {
        let rest = text.get(at..).unwrap_or_default();
        let space = rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
        let rest = &rest[space..];
        at += space;
        if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if rest.starts_with("/*") {
            let end = rest.get(2..).and_then(|inside| inside.find("*/"));
            at += end.ok_or_else(|| TextFault::new(at, "this comment is never closed"))? + 4;
        } else {
            return Ok(at);
        }
    }
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
            ("{\"a\": 1 \"b\": 2}", "f:1:9: a comma or } is missing here"),
            ("{\"a\": }", "f:1:7: a value is missing here"),
            ("{'a': 1}", "f:1:2: a name in quotes or } is missing here"),
            ("{\"a\": 'x'}", "f:1:7: this is no value; texts need double quotes"),
            ("{\"a\": \"x\n\"}", "f:1:7: this quote is never closed"),
            ("{\"a\": \"\\x\"}", "f:1:7: this text has an escape that JSON does not know"),
            ("{} {}", "f:1:4: there is something behind the end of the JSON"),
            ("{ /* x }", "f:1:3: this comment is never closed"),
            ("{\"a\": 01}", "f:1:7: this is no value; texts need double quotes"),
            ("{,}", "f:1:2: a name in quotes or } is missing here"),
            ("{\"", "f:1:2: this quote is never closed"),
            ("{\"\\", "f:1:2: this quote is never closed"),
            ("/", "f:1:1: a value is missing here"),
        ] {
            assert_eq!(fault(text), said, "{text}");
        }
        assert!(fault(&"[".repeat(100_000)).contains("nested more than 128 deep"));
        assert!(fault(&"{\"a\":".repeat(100_000)).contains("nested more than 128 deep"));
    }
}
