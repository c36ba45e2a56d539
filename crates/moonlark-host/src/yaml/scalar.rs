//! Plain scalars by the core schema of YAML 1.2.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use granit_parser::Tag;
use moonlark_core::Value;
use moonlark_core::value::shorten_text;

/// The value of a word, or why it has none.
pub(super) fn parse_scalar(text: &str, plain: bool, tag: Option<&Tag>) -> Result<Value, String> {
    let wrong = |kind: &str| format!("{:?} is no {kind}", shorten_text(text));
    let Some(tag) = tag else {
        return if plain { parse_plain(text) } else { Ok(Value::from(text)) };
    };
    let meaning = tag.suffix_in_namespace("tag:yaml.org,2002:");
    let is = |name| meaning.as_deref() == Some(name);
    let value = match () {
        () if is("int") => parse_integer(text)?.ok_or_else(|| wrong("integer"))?,
        () if is("float") => match parse_integer(text)? {
            Some(Value::Int(int)) => Value::Float(int as f64),
            _ => parse_float(text)?.ok_or_else(|| wrong("number"))?,
        },
        () if is("bool") => parse_boolean(text).ok_or_else(|| wrong("boolean"))?,
        () if is("null") => parse_null(text).ok_or_else(|| wrong("null"))?,
        () if is("binary") => {
            let packed: String = text.split_ascii_whitespace().collect();
            let bytes = STANDARD.decode(packed).map_err(|_| wrong("Base64"))?;
            Value::text_or_bytes(bytes)
        }
        // Its own meaning is unknown here, so the word speaks for itself.
        () if tag.handle() == "!" && !tag.suffix().is_empty() && plain => parse_plain(text)?,
        () => Value::from(text),
    };
    Ok(value)
}

/// The text of a value as a key.
pub(super) fn key_text(value: &Value) -> Option<String> {
    Some(match value {
        Value::Null => "null".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Int(int) => int.to_string(),
        Value::Float(float) => float.to_string(),
        Value::Str(text) => text.clone(),
        Value::Bytes(_) | Value::Array(_) | Value::Object(_) => return None,
    })
}

fn parse_plain(text: &str) -> Result<Value, String> {
    if let Some(value) = parse_null(text).or_else(|| parse_boolean(text)) {
        return Ok(value);
    }
    if let Some(value) = parse_integer(text)? {
        return Ok(value);
    }
    Ok(parse_float(text)?.unwrap_or_else(|| Value::from(text)))
}

fn parse_null(text: &str) -> Option<Value> {
    matches!(text, "" | "~" | "null" | "Null" | "NULL").then_some(Value::Null)
}

fn parse_boolean(text: &str) -> Option<Value> {
    match text {
        "true" | "True" | "TRUE" => Some(Value::Bool(true)),
        "false" | "False" | "FALSE" => Some(Value::Bool(false)),
        _ => None,
    }
}

fn parse_integer(text: &str) -> Result<Option<Value>, String> {
    let (digits, radix) = match (text.strip_prefix("0x"), text.strip_prefix("0o")) {
        (Some(digits), _) => (digits, 16),
        (_, Some(digits)) => (digits, 8),
        _ => (text, 10),
    };
    let unsigned =
        if radix == 10 { digits.strip_prefix(['-', '+']).unwrap_or(digits) } else { digits };
    if unsigned.is_empty() || !unsigned.chars().all(|digit| digit.is_digit(radix)) {
        return Ok(None);
    }
    match i64::from_str_radix(digits, radix) {
        Ok(int) => Ok(Some(Value::Int(int))),
        Err(_) => Err(format!("the integer {} does not fit 64 bits", shorten_text(text))),
    }
}

fn parse_float(text: &str) -> Result<Option<Value>, String> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
    match unsigned {
        ".inf" | ".Inf" | ".INF" => return Ok(Some(Value::Float(sign * f64::INFINITY))),
        ".nan" | ".NaN" | ".NAN" if unsigned == text => return Ok(Some(Value::Float(f64::NAN))),
        _ => {}
    }
    // Rust reads "infinity" and "nan" too, which here are words.
    let shaped = unsigned.starts_with(|first: char| first.is_ascii_digit() || first == '.')
        && unsigned
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    match text.parse::<f64>() {
        Ok(float) if shaped && float.is_finite() => Ok(Some(Value::Float(float))),
        Ok(_) if shaped => Err(format!("the number {} is out of range", shorten_text(text))),
        _ => Ok(None),
    }
}
