//! `json`: values to JSON text and back.

use std::io::{self, Write};

use moonlark_core::limits::format_size;
use moonlark_core::value::TextOrBytes;
use moonlark_core::{Module, Problem, Result, Value};
use moonlark_gateway::Call;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::args::{ScriptList, check_result_size};

pub(crate) fn module() -> Module {
    Module::new("json", "Encode and decode JSON.")
        .pure()
        .constant("null", "JSON's null, where a missing value will not do.", Value::Null)
        .function("encode", "Encode a value as JSON text.", encode)
        .example(json!({"value": {"a": [1, 2.5, null]}}), json!(r#"{"a":[1,2.5,null]}"#))
        .example(json!({"value": [1], "pretty": true}), json!("[\n  1\n]"))
        .fails(json!({"value": 1, "indent": 2}), "indent")
        .function("decode", "Decode JSON text.", decode)
        .example(json!({"text": "{\"a\": [1, 2.5, null]}"}), json!({"a": [1, 2.5, null]}))
        .fails(json!({"text": "{\"a\": "}), "invalid JSON")
        .function("parse", "Decode JSON text; the same as json.decode.", decode)
        .example(json!({"text": "[true]"}), json!([true]))
        .fails(json!({"text": "nope"}), "invalid JSON")
        .function("array", "Mark a list as an array, so that it stays one when it is empty.", array)
        .positional_params(&["items"])
        .example(json!({}), json!([]))
        .example(json!({"items": ["a"]}), json!(["a"]))
        .fails(json!({"items": {"a": 1}}), "expected a list")
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct JsonEncodeArgs {
    /// What to encode.
    value: Value,
    /// Indent with two spaces, one entry per line.
    #[serde(default)]
    pretty: bool,
}

fn encode(call: &Call, args: JsonEncodeArgs) -> Result<String> {
    let text = if args.pretty {
        encode_pretty(args.value.into_json("value")?, call.limits().value)?
    } else {
        args.value.encode_json_within("value", call.limits().value)?
    };
    check_result_size(call, text.len())?;
    Ok(text)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct JsonDecodeArgs {
    /// JSON text.
    text: TextOrBytes,
}

fn decode(call: &Call, args: JsonDecodeArgs) -> Result<Value> {
    decode_json_within(&args.text.0, call.limits().value)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct JsonArrayArgs {
    /// The entries; none for an empty array.
    items: Option<ScriptList>,
}

fn array(_: &Call, args: JsonArrayArgs) -> Result<ScriptList> {
    Ok(args.items.unwrap_or_default())
}

/// What a value, a field and a list or table take beside their text, once they
/// are decoded: `[0,0,0]` is a few bytes of text and many times that as values.
const JSON_VALUE_OVERHEAD_BYTES: usize = 32;
const JSON_FIELD_OVERHEAD_BYTES: usize = 64;
const JSON_COLLECTION_OVERHEAD_BYTES: usize = 48;

/// Decode JSON whose text and entries together stay within `limit` bytes.
pub(crate) fn decode_json_within(text: &[u8], limit: usize) -> Result<Value> {
    if text.len() > limit || estimate_decoded_bytes(text) > limit {
        return Err(Problem::limit_exceeded(format!(
            "the JSON decodes to more than {}",
            format_size(limit)
        ))
        .with_hint("fetch less at a time, or raise limits.value"));
    }
    Value::parse_json(text)
}

/// About what the values in the text take, counted by what separates them.
fn estimate_decoded_bytes(text: &[u8]) -> usize {
    let (mut bytes, mut quoted, mut escaped) = (JSON_VALUE_OVERHEAD_BYTES, false, false);
    for &byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b',' => bytes += JSON_VALUE_OVERHEAD_BYTES,
            b':' => bytes += JSON_FIELD_OVERHEAD_BYTES,
            b'[' | b'{' => bytes += JSON_COLLECTION_OVERHEAD_BYTES,
            _ => {}
        }
    }
    bytes
}

/// Indentation multiplies the size of deep values, so it is counted as it is
/// written and not afterwards.
fn encode_pretty(json: serde_json::Value, limit: usize) -> Result<String> {
    let mut out = CappedByteWriter { bytes: Vec::new(), limit };
    let mut serializer = serde_json::Serializer::pretty(&mut out);
    json.serialize(&mut serializer).map_err(|error| {
        if error.is_io() {
            Problem::limit_exceeded(format!("the result is larger than {}", format_size(limit)))
                .with_hint("encode without pretty, or raise limits.value")
        } else {
            Problem::internal(format!("cannot encode the value as JSON: {error}"))
        }
    })?;
    String::from_utf8(out.bytes).map_err(|_| Problem::internal("JSON text was not UTF-8"))
}

struct CappedByteWriter {
    bytes: Vec<u8>,
    limit: usize,
}

impl Write for CappedByteWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.limit {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_grows_by_being_escaped_ends_with_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let scope = crate::test_calls::scope(dir.path(), &[]);
        let text = "\0".repeat(scope.limits.value / 5);
        let args = serde_json::json!({"value": text});
        let problem = crate::test_calls::call(scope, "json.encode", args).await.unwrap_err();
        assert!(problem.message.contains("as JSON is larger than"), "{problem}");
    }

    #[test]
    fn many_small_entries_count_for_what_they_become() {
        let text = format!("[{}0]", "0,".repeat(1000));
        assert!(decode_json_within(text.as_bytes(), 33_000).is_ok());
        let problem = decode_json_within(text.as_bytes(), 20_000).unwrap_err();
        assert_eq!(problem.message, "the JSON decodes to more than 20000 bytes");
        let bytes = |text: &[u8]| estimate_decoded_bytes(text) - JSON_VALUE_OVERHEAD_BYTES;
        assert_eq!(bytes(br#""a,b:\",[""#), 0);
        assert_eq!(
            bytes(br#"["a,b", "\",[", {}]"#),
            2 * JSON_VALUE_OVERHEAD_BYTES + 2 * JSON_COLLECTION_OVERHEAD_BYTES
        );
        assert_eq!(
            bytes(br#"{"a": 1, "b": 2}"#),
            JSON_VALUE_OVERHEAD_BYTES
                + 2 * JSON_FIELD_OVERHEAD_BYTES
                + JSON_COLLECTION_OVERHEAD_BYTES
        );
    }

    #[test]
    fn indentation_stops_at_the_limit() {
        let deep = (0..100).fold(json!([1]), |inner, _| json!([inner]));
        assert!(encode_pretty(deep.clone(), 100_000).is_ok());
        assert_eq!(
            encode_pretty(deep, 1024).unwrap_err().message,
            "the result is larger than 1 KB"
        );
    }
}
