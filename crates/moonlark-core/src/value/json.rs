//! Values as JSON, and JSON as values.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{MAX_VALUE_DEPTH, Value, ValuePath};
use crate::limits::format_size;
use crate::problem::{Problem, Result};

impl Value {
    /// Parse JSON text. Too much of it, too deep or too many values, and integers
    /// beyond 64 bits are Problems, never a crash or a rounded number.
    pub fn parse_json(text: &[u8]) -> Result<Value> {
        Self::parse_json_with(&PARSING_BUDGET, text)
    }

    fn parse_json_with(budget: &ParsingBudget, text: &[u8]) -> Result<Value> {
        // Counted before serde recurses, and with our bound instead of its.
        let JsonTextSize { depth, taken } = measure_json_text(text);
        if depth > MAX_VALUE_DEPTH {
            let message = format!("the JSON is nested deeper than {MAX_VALUE_DEPTH} levels");
            return Err(Problem::limit_exceeded(message));
        }
        if taken > MAX_PARSED_BYTES {
            let most = format_size(MAX_PARSED_BYTES);
            return Err(Problem::limit_exceeded(format!(
                "the JSON has so many values that reading it would take more than {most}"
            ))
            .with_hint("ask for less of it at a time"));
        }
        let _share = budget.reserve_bytes(taken)?;
        serde_json::from_slice(text)
            .map_err(|error| Problem::bad_request(format!("invalid JSON: {error}")))
    }

    /// Whether a text has so many values that it is not read, nor piece by piece.
    pub fn exceeds_parse_limit(text: &[u8]) -> bool {
        measure_json_text(text).taken > MAX_PARSED_BYTES
    }

    pub fn from_json(json: serde_json::Value) -> Result<Value> {
        json_to_value(json, 0)
    }

    /// The JSON form; `what` names the value in the Problem if it has none.
    pub fn into_json(self, what: &str) -> Result<serde_json::Value> {
        let mut path = ValuePath::new(what);
        value_to_json(self, &mut path)
    }

    /// The JSON form for looking at, where bytes can only be shown as such.
    pub fn to_json_lossy(&self) -> serde_json::Value {
        use serde_json::Value as Json;
        match self {
            Value::Null => Json::Null,
            Value::Bool(flag) => Json::Bool(*flag),
            Value::Int(int) => Json::from(*int),
            Value::Float(float) => Json::from(*float),
            Value::Str(text) => Json::String(text.clone()),
            Value::Bytes(bytes) => Json::String(format!("<{} bytes>", bytes.len())),
            Value::Array(items) => Json::Array(items.iter().map(Value::to_json_lossy).collect()),
            Value::Object(object) => Json::Object(
                object.iter().map(|(key, value)| (key.clone(), value.to_json_lossy())).collect(),
            ),
        }
    }

    /// Compact JSON text.
    pub fn encode_json(&self, what: &str) -> Result<String> {
        let mut path = ValuePath::new(what);
        check_json(self, &mut path)?;
        serde_json::to_string(self)
            .map_err(|error| Problem::internal(format!("cannot encode {what} as JSON: {error}")))
    }

    /// The same of at most so many bytes: what has to be escaped is six times its length.
    pub fn encode_json_within(&self, what: &str, max_bytes: usize) -> Result<String> {
        check_json(self, &mut ValuePath::new(what))?;
        let mut text = BoundedText { bytes: Vec::new(), max_bytes };
        let too_large = || {
            Problem::limit_exceeded(format!(
                "{what} as JSON is larger than {}",
                format_size(max_bytes)
            ))
            .with_hint("work on less at a time, or raise limits.value")
        };
        serde_json::to_writer(&mut text, self).map_err(|_| too_large())?;
        String::from_utf8(text.bytes)
            .map_err(|error| Problem::internal(format!("cannot encode {what} as JSON: {error}")))
    }
}

/// Text in the making that ends with an error when it is too long.
struct BoundedText {
    bytes: Vec<u8>,
    max_bytes: usize,
}

impl std::io::Write for BoundedText {
    fn write(&mut self, piece: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() + piece.len() > self.max_bytes {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(piece);
        Ok(piece.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What a text may take in memory once it is read. A list of small objects takes
/// fifty times its length.
const MAX_PARSED_BYTES: usize = 160 << 20;
/// The same for all texts that are read at this moment.
const MAX_PARSING_BYTES: usize = 512 << 20;
static PARSING_BUDGET: ParsingBudget = ParsingBudget { taken: AtomicUsize::new(0) };

struct ParsingBudget {
    /// By all texts that are read at this moment, in bytes.
    taken: AtomicUsize,
}

/// What one text takes while it is read, out of what all may.
struct ParsingShare<'a> {
    budget: &'a ParsingBudget,
    bytes: usize,
}

impl ParsingBudget {
    fn reserve_bytes(&self, bytes: usize) -> Result<ParsingShare<'_>> {
        let share = ParsingShare { budget: self, bytes };
        if self.taken.fetch_add(bytes, Ordering::Relaxed) + bytes > MAX_PARSING_BYTES {
            let message = "too much JSON is being read at this moment";
            return Err(Problem::unavailable(message).with_hint("try again in a moment"));
        }
        Ok(share)
    }
}

impl Drop for ParsingShare<'_> {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// About what they take: an object, a list, and what follows a comma.
const OBJECT_BYTES: usize = 384;
const LIST_BYTES: usize = 128;
const NEXT_ITEM_BYTES: usize = 96;

struct JsonTextSize {
    /// Of the deepest value.
    depth: usize,
    /// About what it takes in memory, in bytes.
    taken: usize,
}

fn measure_json_text(text: &[u8]) -> JsonTextSize {
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    let mut shape = JsonTextSize { depth: 0, taken: text.len() };
    for &byte in text {
        if quoted {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => quoted = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => quoted = true,
            b',' => shape.taken += NEXT_ITEM_BYTES,
            b'[' | b'{' => {
                depth += 1;
                shape.depth = shape.depth.max(depth);
                shape.taken += if byte == b'{' { OBJECT_BYTES } else { LIST_BYTES };
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    shape
}

fn json_to_value(json: serde_json::Value, depth: usize) -> Result<Value> {
    use serde_json::Value as Json;
    if depth > MAX_VALUE_DEPTH {
        return Err(Problem::limit_exceeded(format!(
            "the value is nested deeper than {MAX_VALUE_DEPTH} levels"
        )));
    }
    Ok(match json {
        Json::Null => Value::Null,
        Json::Bool(flag) => Value::Bool(flag),
        Json::Number(number) => number_value(&number)?,
        Json::String(text) => Value::Str(text),
        Json::Array(items) => Value::Array(
            items.into_iter().map(|item| json_to_value(item, depth + 1)).collect::<Result<_>>()?,
        ),
        Json::Object(map) => Value::Object(
            map.into_iter()
                .map(|(key, value)| Ok((key, json_to_value(value, depth + 1)?)))
                .collect::<Result<_>>()?,
        ),
    })
}

pub(super) fn number_value(number: &serde_json::Number) -> Result<Value> {
    if let Some(int) = number.as_i64() {
        return Ok(Value::Int(int));
    }
    if number.as_u64().is_some() {
        return Err(too_large_integer_problem(number));
    }
    match number.as_f64() {
        Some(float) if float.is_finite() => Ok(Value::Float(float)),
        _ => Err(Problem::bad_request(format!("the number {number} is out of range"))),
    }
}

pub(super) fn too_large_integer_problem(number: impl fmt::Display) -> Problem {
    Problem::bad_request(format!("the integer {number} does not fit 64 bits"))
        .with_hint("send it as a string")
}

fn value_to_json(value: Value, path: &mut ValuePath) -> Result<serde_json::Value> {
    use serde_json::Value as Json;
    Ok(match value {
        Value::Null => Json::Null,
        Value::Bool(flag) => Json::Bool(flag),
        Value::Int(int) => Json::from(int),
        Value::Float(float) => match serde_json::Number::from_f64(float) {
            Some(number) => Json::Number(number),
            None => return Err(not_json_number_problem(float, path)),
        },
        Value::Str(text) => Json::String(text),
        Value::Bytes(_) => return Err(not_text_problem(path)),
        Value::Array(items) => {
            let mut array = Vec::with_capacity(items.len());
            for (index, item) in items.into_iter().enumerate() {
                path.push_index(index)?;
                array.push(value_to_json(item, path)?);
                path.pop();
            }
            Json::Array(array)
        }
        Value::Object(object) => {
            let mut map = serde_json::Map::with_capacity(object.len());
            for (key, item) in object {
                path.push_key(&key)?;
                let item = value_to_json(item, path)?;
                path.pop();
                map.insert(key, item);
            }
            Json::Object(map)
        }
    })
}

/// What `into_json` refuses, without building anything.
fn check_json(value: &Value, path: &mut ValuePath) -> Result<()> {
    match value {
        Value::Float(float) if !float.is_finite() => Err(not_json_number_problem(*float, path)),
        Value::Bytes(_) => Err(not_text_problem(path)),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                // Scalars, the bulk of any value, need no path entry.
                if !matches!(item, Value::Null | Value::Bool(_) | Value::Int(_) | Value::Str(_)) {
                    path.push_index(index)?;
                    check_json(item, path)?;
                    path.pop();
                }
            }
            Ok(())
        }
        Value::Object(object) => {
            for (key, item) in object {
                if !matches!(item, Value::Null | Value::Bool(_) | Value::Int(_) | Value::Str(_)) {
                    path.push_key(key)?;
                    check_json(item, path)?;
                    path.pop();
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn not_json_number_problem(float: f64, path: &ValuePath) -> Problem {
    let name = match float {
        f if f.is_nan() => "NaN",
        f if f > 0.0 => "infinity",
        _ => "-infinity",
    };
    Problem::tool_error(format!("{path} is {name}, which JSON cannot hold"))
        .with_hint("leave it out, or return a string instead")
}

fn not_text_problem(path: &ValuePath) -> Problem {
    Problem::tool_error(format!("{path} is not UTF-8 text, which JSON cannot hold"))
        .with_hint("encode it with base64.encode")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_that_would_take_far_more_than_its_length_is_refused() {
        let many = |one: &str, length: usize| {
            format!("[{one}{}]", format!(",{one}").repeat(length / (one.len() + 1)))
        };
        let refused = Value::parse_json(many(r#"{"a":1}"#, 10 << 20).as_bytes()).unwrap_err();
        assert_eq!(refused.code, crate::ProblemCode::Limit);
        assert!(refused.message.ends_with("would take more than 160 MB"), "{refused}");
        // As many letters are nothing unusual.
        let long = format!("[{:?}]", "x,{[".repeat(3 << 20));
        assert!(Value::parse_json(long.as_bytes()).is_ok());
    }

    #[test]
    fn texts_that_are_read_at_once_share_a_budget() {
        let budget = ParsingBudget { taken: AtomicUsize::new(0) };
        let taken = || budget.taken.load(Ordering::Relaxed);
        let parse = |text: &str| Value::parse_json_with(&budget, text.as_bytes());
        let largest = || budget.reserve_bytes(MAX_PARSED_BYTES);
        // Three of the largest texts fit; what is refused takes nothing.
        let mut shares: Vec<ParsingShare> = (0..3).map(|_| largest().unwrap()).collect();
        assert_eq!(
            largest().err().unwrap().to_string(),
            "error[unavailable]: too much JSON is being read at this moment\nhint: try again in a moment"
        );
        assert_eq!(taken(), 3 * MAX_PARSED_BYTES);
        // A small text fits beside them, up to the last byte.
        assert_eq!(parse("[1]").unwrap().to_json_lossy(), serde_json::json!([1]));
        shares.push(budget.reserve_bytes(MAX_PARSING_BYTES - taken()).unwrap());
        assert_eq!(parse("1").unwrap_err().code, crate::ProblemCode::Unavailable);
        // Every share comes back, that of a text that is no JSON too.
        drop(shares);
        assert_eq!(taken(), 0);
        assert!(parse("[1").is_err());
        assert!(parse("[1, 2]").is_ok());
        assert_eq!(taken(), 0);
    }

    fn round_trip(json: &str) -> String {
        match Value::parse_json(json.as_bytes()) {
            Ok(value) => value.encode_json("value").unwrap_or_else(|p| p.to_string()),
            Err(problem) => problem.to_string(),
        }
    }

    #[test]
    fn a_value_is_small() {
        assert!(std::mem::size_of::<Value>() <= 32, "{}", std::mem::size_of::<Value>());
    }

    #[test]
    fn json_round_trips_or_is_a_problem() {
        for same in [
            "null",
            "true",
            "0",
            "-1",
            "1.5",
            "9007199254740993",
            "-9223372036854775808",
            "\"\"",
            "\"ä\"",
            "[]",
            "{}",
            "[null]",
            "{\"b\":1,\"a\":[{}]}",
            "[1e300]",
        ] {
            let expected = if same == "[1e300]" { "[1e+300]" } else { same };
            assert_eq!(round_trip(same), expected);
        }
        assert_eq!(
            round_trip("18446744073709551615"),
            "error[bad_request]: invalid JSON: the integer 18446744073709551615 does not fit 64 bits at line 1 column 20"
        );
        assert!(round_trip(&"[".repeat(100_000)).contains("nested deeper than 128"));
        assert!(round_trip("{").starts_with("error[bad_request]: invalid JSON"));
        assert!(round_trip("1e400").starts_with("error[bad_request]: invalid JSON"));
    }

    #[test]
    fn what_json_cannot_hold_is_named_with_its_path() {
        let value = Value::from_fields([("items", Value::Array(vec![Value::Bytes(vec![0xff])]))]);
        assert_eq!(
            value.encode_json("result").unwrap_err().message,
            "result.items[0] is not UTF-8 text, which JSON cannot hold"
        );
        let value = Value::from_fields([("a b", Value::Float(f64::NAN))]);
        assert_eq!(
            value.into_json("result").unwrap_err().message,
            "result[\"a b\"] is NaN, which JSON cannot hold"
        );
    }
}
