//! Percent-encoding (RFC 3986), and queries made of it.

use moonlark_core::value::{Object, ValuePath};
use moonlark_core::{Problem, Result, Value};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};

/// All but the unreserved characters.
const RESERVED_CHARACTERS: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

pub(super) fn percent_encode(bytes: &[u8]) -> String {
    percent_encoding::percent_encode(bytes, RESERVED_CHARACTERS).to_string()
}

/// How long it is once it is encoded.
pub(super) fn encoded_length(bytes: &[u8]) -> usize {
    percent_encoding::percent_encode(bytes, RESERVED_CHARACTERS).map(str::len).sum()
}

/// Decode, or say where it is not percent-encoding.
pub(super) fn decode_strictly(text: &str) -> Result<Vec<u8>> {
    let bytes = text.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    let mut escapes = text.match_indices('%').map(|(at, _)| at);
    match escapes.find(|at| !is_digit(at + 1) || !is_digit(at + 2)) {
        None => Ok(decode_leniently(text)),
        Some(at) => {
            Err(Problem::bad_request(format!("invalid percent-encoding at byte {}", at + 1))
                .with_hint("a % that stands for itself is written %25"))
        }
    }
}

/// Decode as browsers do: what is not percent-encoding stands for itself.
pub(super) fn decode_leniently(text: &str) -> Vec<u8> {
    percent_encoding::percent_decode_str(text).collect()
}

/// A query as an object; a key that comes again gathers a list.
pub(super) fn parse_query(query: &str) -> Object {
    let mut object = Object::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        // In a form, + is a space.
        let decode = |text: &str| decode_leniently(&text.replace('+', " "));
        let key = String::from_utf8_lossy(&decode(key)).into_owned();
        let value = Value::text_or_bytes(decode(value));
        match object.get_mut(&key) {
            None => {
                object.insert(key, value);
            }
            Some(Value::Array(values)) => values.push(value),
            Some(first) => *first = Value::Array(vec![std::mem::take(first), value]),
        }
    }
    object
}

/// An object as a query; `what` names it in the Problem.
pub(crate) fn build_query_string(what: &str, params: &Object) -> Result<String> {
    let mut path = ValuePath::new(what);
    let mut out = String::new();
    for (key, value) in params {
        path.push_key(key)?;
        match value {
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    path.push_index(index)?;
                    push_query_pair(&mut out, key, item, &path)?;
                    path.pop();
                }
            }
            single => push_query_pair(&mut out, key, single, &path)?,
        }
        path.pop();
    }
    Ok(out)
}

fn push_query_pair(out: &mut String, key: &str, value: &Value, path: &ValuePath) -> Result<()> {
    let unfit = |kind: &str| {
        Err(Problem::bad_request(format!("{path} is {kind}, which a query cannot hold")))
    };
    let value = match value {
        Value::Null => return Ok(()),
        Value::Bool(flag) => flag.to_string(),
        Value::Int(int) => int.to_string(),
        Value::Float(float) if float.is_finite() => float.to_string(),
        Value::Float(_) => return unfit("not a finite number"),
        Value::Str(text) => percent_encode(text.as_bytes()),
        Value::Bytes(bytes) => percent_encode(bytes),
        Value::Array(_) => return unfit("a list in a list"),
        Value::Object(_) => return unfit("a table"),
    };
    if !out.is_empty() {
        out.push('&');
    }
    out.push_str(&percent_encode(key.as_bytes()));
    out.push('=');
    out.push_str(&value);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_encoded_right_stands_for_itself_or_is_named() {
        for (text, expected) in
            [("a%20b", "a b"), ("100%", "100%"), ("%zz%41", "%zzA"), ("%%41", "%A")]
        {
            assert_eq!(decode_leniently(text), expected.as_bytes(), "{text}");
        }
        assert_eq!(decode_leniently("a+b"), b"a+b");
        for (text, at) in [("%%41", 1), ("%41%4", 4), ("%4g", 1), ("%", 1)] {
            let message = format!("invalid percent-encoding at byte {at}");
            assert_eq!(decode_strictly(text).unwrap_err().message, message, "{text}");
        }
        let all: String = (0..128_u8).map(char::from).collect();
        assert_eq!(encoded_length(all.as_bytes()), percent_encode(all.as_bytes()).len());
        assert_eq!(percent_encode("aZ09-._~ü+ ".as_bytes()), "aZ09-._~%C3%BC%2B%20");
        assert_eq!(
            decode_strictly("a%2").unwrap_err().message,
            "invalid percent-encoding at byte 2"
        );
        assert_eq!(decode_strictly("%ff").unwrap(), [0xff]);
    }

    #[test]
    fn a_query_gathers_repeated_keys() {
        let object = Value::Object(parse_query("a=1&b&a=2&&a=%C3%BC+%2B&=x"));
        let expected = r#"{"a":["1","2","ü +"],"b":"","":"x"}"#;
        assert_eq!(object.encode_json("query").unwrap(), expected);
    }
}
