//! Parameter styles of OpenAPI, which are those of RFC 6570: how a value stands in a
//! path, a query, a header or a cookie.

use moonlark_core::{Problem, Result, Value};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParamStyle {
    Simple,
    Label,
    Matrix,
    Form,
    /// Between items: a space, a bar or, in Swagger 2.0, a tab.
    Delimited(char),
    DeepObject,
    /// As JSON text.
    Json,
}

/// How one parameter is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ParamEncoding {
    pub(crate) style: ParamStyle,
    pub(crate) explode: bool,
    /// Leave `:/?#[]@!$&'()*+,;=` as they are.
    pub(crate) reserved: bool,
}

impl ParamEncoding {
    /// In a path, with what stands before it in the styles that have that.
    pub(crate) fn encode_in_path(self, name: &str, value: &Value) -> Result<String> {
        let encode = |text: &str| percent_encode(text, self.reserved);
        let name = encode(name);
        Ok(match (self.style, shape_value(name.as_str(), value)?) {
            (ParamStyle::Json, _) => encode(&json_text(value)?),
            (ParamStyle::Label, ParamShape::One(text)) => format!(".{}", encode(&text)),
            (ParamStyle::Label, ParamShape::List(items)) => {
                let between = if self.explode { "." } else { "," };
                format!(".{}", join_items(items.iter().map(|it| encode(it)), between))
            }
            (ParamStyle::Label, ParamShape::Fields(fields)) => {
                let (inner, between) = if self.explode { ("=", ".") } else { (",", ",") };
                format!(".{}", join_pairs(&fields, inner, between, encode))
            }
            (ParamStyle::Matrix, ParamShape::One(text)) => format!(";{name}={}", encode(&text)),
            (ParamStyle::Matrix, ParamShape::List(items)) if self.explode => {
                items.iter().map(|it| format!(";{name}={}", encode(it))).collect()
            }
            (ParamStyle::Matrix, ParamShape::List(items)) => {
                format!(";{name}={}", join_items(items.iter().map(|it| encode(it)), ","))
            }
            (ParamStyle::Matrix, ParamShape::Fields(fields)) if self.explode => {
                format!(";{}", join_pairs(&fields, "=", ";", encode))
            }
            (ParamStyle::Matrix, ParamShape::Fields(fields)) => {
                format!(";{name}={}", join_pairs(&fields, ",", ",", encode))
            }
            (_, shape) => self.encode_simple(&shape, encode),
        })
    }

    /// In a header: nothing is encoded, and nothing may end the line.
    pub(crate) fn encode_in_header(self, name: &str, value: &Value) -> Result<String> {
        let text = match self.style {
            ParamStyle::Json => json_text(value)?,
            _ => self.encode_simple(&shape_value(name, value)?, str::to_owned),
        };
        if text.chars().any(|it| it.is_control() && it != '\t') {
            Err(Problem::bad_request(format!(
                "parameter '{name}' goes into a header, which cannot hold line breaks"
            )))
        } else {
            Ok(text)
        }
    }

    /// In a query or a cookie: `name=value`, encoded.
    pub(crate) fn encode_pairs(self, name: &str, value: &Value) -> Result<Vec<String>> {
        let encode = |text: &str| percent_encode(text, self.reserved);
        let key = encode(name);
        if self.style == ParamStyle::Json {
            return Ok(vec![format!("{key}={}", encode(&json_text(value)?))]);
        }
        if self.style == ParamStyle::DeepObject {
            let mut found = Vec::new();
            encode_deep_object(&key, value, 0, &mut found)?;
            return Ok(found);
        }
        let between = match self.style {
            ParamStyle::Delimited(letter) => percent_encode_char(letter),
            _ => ",".to_owned(),
        };
        let encode_all = |items: &[String]| items.iter().map(|it| encode(it)).collect::<Vec<_>>();
        let texts = match shape_value(name, value)? {
            ParamShape::One(text) => vec![encode(&text)],
            ParamShape::Fields(fields) if self.explode => {
                let pair = |(field, text): &(String, String)| {
                    format!("{}={}", encode(field), encode(text))
                };
                return Ok(fields.iter().map(pair).collect());
            }
            ParamShape::List(items) if self.explode || items.is_empty() => encode_all(&items),
            ParamShape::List(items) => vec![encode_all(&items).join(&between)],
            ParamShape::Fields(fields) if fields.is_empty() => Vec::new(),
            ParamShape::Fields(fields) => vec![join_pairs(&fields, &between, &between, encode)],
        };
        Ok(texts.into_iter().map(|text| format!("{key}={text}")).collect())
    }

    fn encode_simple(self, shape: &ParamShape, encode: impl Fn(&str) -> String) -> String {
        match shape {
            ParamShape::One(text) => encode(text),
            ParamShape::List(items) => join_items(items.iter().map(|it| encode(it)), ","),
            ParamShape::Fields(fields) => {
                let inner = if self.explode { "=" } else { "," };
                join_pairs(fields, inner, ",", encode)
            }
        }
    }
}

/// A value as far as styles can write it.
enum ParamShape {
    One(String),
    List(Vec<String>),
    Fields(Vec<(String, String)>),
}

/// Items and fields that are null are left out. What is deeper has no form in
/// these styles and stands as JSON.
fn shape_value(name: &str, value: &Value) -> Result<ParamShape> {
    let inner = |value: &Value| match value {
        Value::Array(_) | Value::Object(_) => json_text(value),
        value => scalar_text(name, value),
    };
    Ok(match value {
        Value::Array(items) => {
            let items = items.iter().filter(|it| **it != Value::Null);
            ParamShape::List(items.map(inner).collect::<Result<_>>()?)
        }
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, it)| **it != Value::Null);
            let field = |(key, it): (&String, &Value)| Ok((key.clone(), inner(it)?));
            ParamShape::Fields(fields.map(field).collect::<Result<_>>()?)
        }
        value => ParamShape::One(scalar_text(name, value)?),
    })
}

fn scalar_text(name: &str, value: &Value) -> Result<String> {
    match value {
        Value::Null => Ok(String::new()),
        Value::Str(text) => Ok(text.clone()),
        Value::Bytes(_) => {
            Err(Problem::bad_request(format!("parameter '{name}' is not valid UTF-8")))
        }
        value => json_text(value),
    }
}

pub(crate) fn json_text(value: &Value) -> Result<String> {
    // Whole numbers are whole, however they were computed.
    match value {
        Value::Float(number) if number.fract() == 0.0 && number.abs() < 1e15 => {
            Ok(format!("{number:.0}"))
        }
        value => value.encode_json("parameter"),
    }
}

/// `a[b][c]=d`, as deep as a reader could follow. Lists repeat their name.
fn encode_deep_object(
    key: &str,
    value: &Value,
    depth: usize,
    found: &mut Vec<String>,
) -> Result<()> {
    if depth > 8 {
        return Err(Problem::bad_request(format!("parameter '{key}' nests too deep for a query")));
    }
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (field, inner) in fields {
                let key = format!("{key}%5B{}%5D", percent_encode(field, false));
                encode_deep_object(&key, inner, depth + 1, found)?;
            }
        }
        Value::Array(items) => {
            for item in items {
                match item {
                    Value::Array(_) | Value::Object(_) => {
                        found.push(format!("{key}={}", percent_encode(&json_text(item)?, false)));
                    }
                    item => encode_deep_object(key, item, depth + 1, found)?,
                }
            }
        }
        value => found.push(format!("{key}={}", percent_encode(&scalar_text(key, value)?, false))),
    }
    Ok(())
}

fn join_items(items: impl Iterator<Item = String>, between: &str) -> String {
    items.collect::<Vec<_>>().join(between)
}

fn join_pairs(
    fields: &[(String, String)],
    inner: &str,
    between: &str,
    encode: impl Fn(&str) -> String,
) -> String {
    join_items(
        fields.iter().map(|(key, it)| format!("{}{inner}{}", encode(key), encode(it))),
        between,
    )
}

const RESERVED_CHARS: &str = ":/?#[]@!$&'()*+,;=";

/// Percent-encode everything that is not unreserved in RFC 3986.
pub(crate) fn percent_encode(text: &str, keep_reserved: bool) -> String {
    let mut encoded = String::with_capacity(text.len());
    for letter in text.chars() {
        let plain = letter.is_ascii_alphanumeric() || "-._~".contains(letter);
        if plain || (keep_reserved && RESERVED_CHARS.contains(letter)) {
            encoded.push(letter);
        } else {
            encoded.push_str(&percent_encode_char(letter));
        }
    }
    encoded
}

fn percent_encode_char(letter: char) -> String {
    let mut bytes = [0; 4];
    letter.encode_utf8(&mut bytes).bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn value(json: serde_json::Value) -> Value {
        Value::from_json(json).unwrap()
    }

    fn query(style: ParamStyle, explode: bool, json: serde_json::Value) -> String {
        let writing = ParamEncoding { style, explode, reserved: false };
        writing.encode_pairs("color", &value(json)).unwrap().join("&")
    }

    /// The table of examples in the specification.
    #[test]
    fn every_style_writes_what_the_specification_shows() {
        let string = || json!("blue");
        let array = || json!(["blue", "black", "brown"]);
        let object = || json!({"R": 100, "G": 200, "B": 150});
        let path = |style, explode, json| {
            let writing = ParamEncoding { style, explode, reserved: false };
            writing.encode_in_path("color", &value(json)).unwrap()
        };
        for (style, explode, one, list, fields) in [
            (
                ParamStyle::Matrix,
                false,
                ";color=blue",
                ";color=blue,black,brown",
                ";color=R,100,G,200,B,150",
            ),
            (
                ParamStyle::Matrix,
                true,
                ";color=blue",
                ";color=blue;color=black;color=brown",
                ";R=100;G=200;B=150",
            ),
            (ParamStyle::Label, false, ".blue", ".blue,black,brown", ".R,100,G,200,B,150"),
            (ParamStyle::Label, true, ".blue", ".blue.black.brown", ".R=100.G=200.B=150"),
            (ParamStyle::Simple, false, "blue", "blue,black,brown", "R,100,G,200,B,150"),
            (ParamStyle::Simple, true, "blue", "blue,black,brown", "R=100,G=200,B=150"),
        ] {
            assert_eq!(path(style, explode, string()), one);
            assert_eq!(path(style, explode, array()), list);
            assert_eq!(path(style, explode, object()), fields);
        }
        for (style, explode, one, list, fields) in [
            (
                ParamStyle::Form,
                false,
                "color=blue",
                "color=blue,black,brown",
                "color=R,100,G,200,B,150",
            ),
            (
                ParamStyle::Form,
                true,
                "color=blue",
                "color=blue&color=black&color=brown",
                "R=100&G=200&B=150",
            ),
            (
                ParamStyle::Delimited(' '),
                false,
                "color=blue",
                "color=blue%20black%20brown",
                "color=R%20100%20G%20200%20B%20150",
            ),
            (
                ParamStyle::Delimited('|'),
                false,
                "color=blue",
                "color=blue%7Cblack%7Cbrown",
                "color=R%7C100%7CG%7C200%7CB%7C150",
            ),
            (
                ParamStyle::DeepObject,
                true,
                "color=blue",
                "color=blue&color=black&color=brown",
                "color%5BR%5D=100&color%5BG%5D=200&color%5BB%5D=150",
            ),
        ] {
            assert_eq!(query(style, explode, string()), one);
            assert_eq!(query(style, explode, array()), list);
            assert_eq!(query(style, explode, object()), fields);
        }
    }

    #[test]
    fn nothing_in_a_value_can_be_taken_for_syntax() {
        assert_eq!(
            query(ParamStyle::Form, true, json!("a&b=c?d#e/f g%+é")),
            "color=a%26b%3Dc%3Fd%23e%2Ff%20g%25%2B%C3%A9"
        );
        assert_eq!(query(ParamStyle::Form, false, json!(["a,b", "c"])), "color=a%2Cb,c");
        let kept = ParamEncoding { style: ParamStyle::Form, explode: true, reserved: true };
        assert_eq!(kept.encode_pairs("q", &value(json!("a/b c"))).unwrap(), ["q=a/b%20c"]);
        let simple = ParamEncoding { style: ParamStyle::Simple, explode: false, reserved: false };
        assert_eq!(
            simple.encode_in_path("p", &value(json!("../admin?x=1#"))).unwrap(),
            "..%2Fadmin%3Fx%3D1%23"
        );
        assert!(simple.encode_in_header("h", &value(json!("a\r\nEvil: 1"))).is_err());
    }

    #[test]
    fn numbers_and_nothing_are_written_plainly() {
        assert_eq!(
            query(ParamStyle::Form, true, json!([1, 2.5, true, null])),
            "color=1&color=2.5&color=true"
        );
        assert_eq!(json_text(&Value::Float(3.0)).unwrap(), "3");
        assert_eq!(query(ParamStyle::Form, true, json!([])), "");
        assert_eq!(query(ParamStyle::Form, true, json!("")), "color=");
        assert_eq!(
            query(ParamStyle::DeepObject, true, json!({"a": {"b": [1, 2]}, "c": null})),
            "color%5Ba%5D%5Bb%5D=1&color%5Ba%5D%5Bb%5D=2"
        );
    }
}
