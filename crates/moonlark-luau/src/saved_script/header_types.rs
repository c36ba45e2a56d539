//! Types as headers write them, those of Luau and `integer`, read as JSON Schema.

use moonlark_core::nearest::nearest_name;
use moonlark_core::{Problem, Result};
use serde_json::{Map, Value as Json, json};

/// How deep types may be in each other.
const MAX_HEADER_TYPE_DEPTH: usize = 16;

const TYPE_NAMES: [(&str, &str); 5] = [
    ("string", "string"),
    ("integer", "integer"),
    ("number", "number"),
    ("boolean", "boolean"),
    ("any", ""),
];

/// A type at the beginning of a text.
#[derive(Debug, PartialEq)]
pub(super) struct ReadType<'a> {
    pub(super) schema: Json,
    /// It ends in `?`.
    pub(super) optional: bool,
    /// What comes behind it.
    pub(super) rest: &'a str,
}

pub(super) fn read_type(text: &str) -> Result<ReadType<'_>> {
    let mut reader = TypeReader { rest: text, depth: 0 };
    let (schema, optional) = reader.read_union()?;
    Ok(ReadType { schema, optional, rest: reader.rest.trim_start() })
}

struct TypeReader<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> TypeReader<'a> {
    fn read_union(&mut self) -> Result<(Json, bool)> {
        let (mut all, mut optional) = (Vec::new(), false);
        self.take("|");
        loop {
            if self.take_word("nil") {
                optional = true;
            } else {
                all.push(self.read_one()?);
            }
            while self.take("?") {
                optional = true;
            }
            if !self.take("|") {
                break;
            }
        }
        Ok((join_alternatives(all), optional))
    }

    fn read_one(&mut self) -> Result<Json> {
        self.depth += 1;
        if self.depth > MAX_HEADER_TYPE_DEPTH {
            return Err(Problem::bad_script("the type is too deep"));
        }
        let read = if self.take("{") {
            self.read_table()?
        } else if self.take("(") {
            let (inner, _) = self.read_union()?;
            self.require_token(")")?;
            inner
        } else if self.rest.trim_start().starts_with(['"', '\'']) {
            json!({"type": "string", "enum": [self.read_text()?]})
        } else {
            self.read_name()?
        };
        self.depth -= 1;
        Ok(read)
    }

    /// `{T}`, `{ [string]: T }` or `{ a: T, b: T? }`.
    fn read_table(&mut self) -> Result<Json> {
        if self.take("}") {
            return Ok(json!({"type": "object"}));
        }
        if self.take("[") {
            if !self.take_word("string") {
                return Err(Problem::bad_script("the keys of a table are string"));
            }
            self.require_token("]")?;
            self.require_token(":")?;
            let (of, _) = self.read_union()?;
            self.require_token("}")?;
            return Ok(json!({"type": "object", "additionalProperties": of}));
        }
        let before = self.rest;
        if let Some(first) = self.take_identifier()
            && self.take(":")
        {
            return self.read_fields(first);
        }
        self.rest = before;
        let (of, _) = self.read_union()?;
        self.require_token("}")?;
        Ok(json!({"type": "array", "items": of}))
    }

    fn read_fields(&mut self, first: &str) -> Result<Json> {
        let (mut fields, mut required) = (Map::new(), Vec::new());
        let mut name = first;
        loop {
            let (of, optional) = self.read_union()?;
            if !optional {
                required.push(name.to_owned());
            }
            fields.insert(name.to_owned(), of);
            let more = self.take(",") || self.take(";");
            if self.take("}") {
                break;
            }
            if !more {
                return Err(missing_problem("}"));
            }
            name = self.take_identifier().ok_or_else(|| missing_problem("}"))?;
            self.require_token(":")?;
        }
        let mut schema = json!({"type": "object", "properties": fields});
        if !required.is_empty() {
            schema["required"] = json!(required);
        }
        Ok(schema)
    }

    fn read_name(&mut self) -> Result<Json> {
        let Some(name) = self.take_identifier() else {
            return Err(Problem::bad_script("the type is missing"));
        };
        match TYPE_NAMES.iter().find(|(known, _)| *known == name) {
            Some((_, "")) => Ok(json!({})),
            Some((_, kind)) => Ok(json!({"type": kind})),
            None => {
                let known = TYPE_NAMES.iter().map(|(known, _)| *known);
                let hint = match nearest_name(name, known) {
                    Some(near) => format!("did you mean {near}?"),
                    None => "the types are string, integer, number, boolean, any, {T}, \
                             {[string]: T}, { a: T, b: T? } and \"a\" | \"b\""
                        .to_owned(),
                };
                Err(Problem::bad_script(format!("there is no type {name}")).with_hint(hint))
            }
        }
    }

    fn read_text(&mut self) -> Result<&'a str> {
        let rest = self.rest.trim_start();
        let quote = &rest[..1];
        let Some(end) = rest[1..].find(quote) else { return Err(missing_problem(quote)) };
        self.rest = &rest[end + 2..];
        Ok(&rest[1..=end])
    }

    fn take(&mut self, token: &str) -> bool {
        match self.rest.trim_start().strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn require_token(&mut self, token: &str) -> Result<()> {
        if self.take(token) { Ok(()) } else { Err(missing_problem(token)) }
    }

    fn take_word(&mut self, word: &str) -> bool {
        let before = self.rest;
        if self.take_identifier() == Some(word) {
            return true;
        }
        self.rest = before;
        false
    }

    fn take_identifier(&mut self) -> Option<&'a str> {
        let rest = self.rest.trim_start();
        let end = rest.find(|it: char| !it.is_ascii_alphanumeric() && it != '_');
        let (name, behind) = rest.split_at(end.unwrap_or(rest.len()));
        if name.is_empty() || name.starts_with(|it: char| it.is_ascii_digit()) {
            return None;
        }
        self.rest = behind;
        Some(name)
    }
}

fn missing_problem(token: &str) -> Problem {
    Problem::bad_script(format!("the type does not end: {token} is missing"))
}

/// One schema of several; texts are one list.
fn join_alternatives(mut all: Vec<Json>) -> Json {
    if all.len() == 1 {
        return all.remove(0);
    }
    if all.is_empty() {
        return json!({"type": "null"});
    }
    let texts: Vec<Json> =
        all.iter().filter_map(|it| it["enum"].as_array()).flatten().cloned().collect();
    all.retain(|it| it.get("enum").is_none());
    if !texts.is_empty() {
        all.push(json!({"type": "string", "enum": texts}));
    }
    if all.len() == 1 { all.remove(0) } else { json!({"anyOf": all}) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_become_schemas() {
        for (text, schema, optional) in [
            ("string", json!({"type": "string"}), false),
            ("integer?", json!({"type": "integer"}), true),
            ("any", json!({}), false),
            ("{number}", json!({"type": "array", "items": {"type": "number"}}), false),
            ("{}", json!({"type": "object"}), false),
            (
                "{[string]: boolean}",
                json!({"type": "object", "additionalProperties": {"type": "boolean"}}),
                false,
            ),
            (
                "{ a: string, b: {integer}?, }",
                json!({
                    "type": "object",
                    "properties": {
                        "a": {"type": "string"},
                        "b": {"type": "array", "items": {"type": "integer"}},
                    },
                    "required": ["a"],
                }),
                false,
            ),
            ("\"a\" | 'b' | nil", json!({"type": "string", "enum": ["a", "b"]}), true),
            (
                "string | {string}",
                json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
                false,
            ),
        ] {
            let read = read_type(text).unwrap();
            assert_eq!(read, ReadType { schema, optional, rest: "" }, "{text}");
        }
        assert_eq!(read_type("string = 1").unwrap().rest, "= 1");
    }

    #[test]
    fn what_is_no_type_is_said() {
        for text in
            ["", "?", "{", "{string", "{[number]: string}", "{a: string", "\"a", "table", "(string"]
        {
            assert!(read_type(text).is_err(), "{text}");
        }
        assert!(read_type(&"{".repeat(1000)).is_err());
    }
}
