//! Percent-encoding (RFC 3986), and queries made of it.

use moonlark_core::value::{Object, ValuePath};
use moonlark_core::{Problem, Result, Value};

const UPPERCASE_HEX_DIGITS: &[u8; 16] = b"0123456789ABCDEF";

/// All but the unreserved characters.
pub(super) fn percent_encode(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &byte in bytes {
        if is_unreserved(byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(UPPERCASE_HEX_DIGITS[usize::from(byte >> 4)]));
            out.push(char::from(UPPERCASE_HEX_DIGITS[usize::from(byte & 15)]));
        }
    }
    out
}

/// How long it is once it is encoded.
pub(super) fn encoded_length(bytes: &[u8]) -> usize {
    bytes.iter().map(|byte| if is_unreserved(*byte) { 1 } else { 3 }).sum()
}

fn is_unreserved(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~')
}

/// Decode, or say where it is not percent-encoding.
pub(super) fn decode_strictly(text: &str) -> Result<Vec<u8>> {
    percent_decode(text.as_bytes(), false).map_err(|at| {
        Problem::bad_request(format!("invalid percent-encoding at byte {}", at + 1))
            .with_hint("a % that stands for itself is written %25")
    })
}

/// Decode as browsers do: what is not percent-encoding stands for itself.
pub(super) fn decode_leniently(text: &str, form: bool) -> Vec<u8> {
    let mut bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    loop {
        match percent_decode(bytes, form) {
            Ok(rest) => {
                out.extend(rest);
                return out;
            }
            Err(at) => {
                out.extend(percent_decode(&bytes[..at], form).unwrap_or_default());
                out.push(b'%');
                bytes = &bytes[at + 1..];
            }
        }
    }
}

/// The bytes, or the place of the first `%` without two digits behind it. In a
/// form, `+` is a space.
fn percent_decode(bytes: &[u8], form: bool) -> Result<Vec<u8>, usize> {
    let digit = |at: usize| char::from(*bytes.get(at)?).to_digit(16);
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'%' => {
                let (Some(high), Some(low)) = (digit(at + 1), digit(at + 2)) else {
                    return Err(at);
                };
                out.push((high * 16 + low) as u8);
                at += 2;
            }
            b'+' if form => out.push(b' '),
            _ => out.push(byte),
        }
        at += 1;
    }
    Ok(out)
}

/// A query as an object; a key that comes again gathers a list.
pub(super) fn parse_query(query: &str) -> Object {
    let mut object = Object::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let key = String::from_utf8_lossy(&decode_leniently(key, true)).into_owned();
        let value = Value::text_or_bytes(decode_leniently(value, true));
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
            assert_eq!(decode_leniently(text, false), expected.as_bytes(), "{text}");
        }
        assert_eq!(decode_leniently("a+b", true), b"a b");
        assert_eq!(
            decode_strictly("a%2").unwrap_err().message,
            "invalid percent-encoding at byte 2"
        );
        assert_eq!(decode_strictly("%ff").unwrap(), [0xff]);
    }

    #[test]
    fn a_query_gathers_repeated_keys() {
        let object = Value::Object(parse_query("a=1&b&a=2&&a=%C3%BC&=x"));
        assert_eq!(object.encode_json("query").unwrap(), r#"{"a":["1","2","ü"],"b":"","":"x"}"#);
    }
}
