//! `yaml`: values to YAML and back.
//!
//! A library parses and writes. What the events of the parser mean is decided
//! in [`yaml_composer`] and [`scalar`], so that nothing is rounded or lost, and what
//! it costs is bounded there.

mod scalar;
mod yaml_composer;

use moonlark_core::value::ValuePath;
use moonlark_core::{Module, Problem, Result, Value};
use moonlark_gateway::Call;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::json;
use serde_saphyr::DoubleQuoted;

use crate::args::{check_result_size, check_time_left};

pub(crate) fn module() -> Module {
    Module::new(
        "yaml",
        "Encode and decode YAML 1.2: only true and false are booleans, anchors and merge keys \
         are followed, tags of your own are not. A key that is a number, a boolean or null becomes the text \
         it is written as; a key that is a list or a table is an error.",
    )
    .pure()
    .function("decode", "Decode a YAML document; an empty one is null.", decode)
    .example(
        json!({"text": "name: x\nports: [80, 443]\nenabled: yes\n1: one\n"}),
        json!({"name": "x", "ports": [80, 443], "enabled": "yes", "1": "one"}),
    )
    .example(
        json!({"text": "base: &base {a: 1, b: 2}\nmore: {<<: *base, b: 3}\n"}),
        json!({"base": {"a": 1, "b": 2}, "more": {"a": 1, "b": 3}}),
    )
    .fails(json!({"text": "a: 1\nb: [1, 2"}), "invalid YAML")
    .fails(json!({"text": "a: 1\na: 2\n"}), "at line 2, column 1")
    .function("decode_all", "Decode every document of a YAML stream.", decode_all)
    .example(json!({"text": "a: 1\n---\n- 2\n"}), json!([{"a": 1}, [2]]))
    .fails(json!({"text": "a: 1\n---\n]\n"}), "at line 3")
    .function("encode", "Encode a value as a YAML document.", encode)
    .example(
        json!({"value": {"name": "x", "on": "yes", "ports": [80, 443]}}),
        json!("name: x\n\"on\": \"yes\"\nports:\n  - 80\n  - 443\n"),
    )
    .fails(json!({}), "value")
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct YamlDecodeArgs {
    /// YAML text.
    text: String,
}

fn decode(call: &Call, args: YamlDecodeArgs) -> Result<Value> {
    let mut documents = read_documents(call, &args.text)?;
    if documents.len() > 1 {
        return Err(Problem::bad_request(format!(
            "the text has {} documents, not one",
            documents.len()
        ))
        .with_hint("use yaml.decode_all"));
    }
    Ok(documents.pop().unwrap_or_default())
}

fn decode_all(call: &Call, args: YamlDecodeArgs) -> Result<Vec<Value>> {
    read_documents(call, &args.text)
}

fn read_documents(call: &Call, text: &str) -> Result<Vec<Value>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    yaml_composer::compose_documents(text, call.limits().value)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct YamlEncodeArgs {
    /// What to encode.
    value: Value,
}

fn encode(call: &Call, args: YamlEncodeArgs) -> Result<String> {
    check_encodable(&args.value, &mut ValuePath::new("value"))?;
    let options = serde_saphyr::ser_options! {
        // Older readers take yes and off for booleans, so those are quoted.
        yaml_12: false,
        compact_list_indent: false,
        prefer_block_scalars: false,
    };
    let limit = call.limits().value;
    let mut out =
        CappedTextWriter { text: String::new(), limit, full: false, write_count: 0, call };
    let written =
        serde_saphyr::to_fmt_writer_with_options(&mut out, &YamlNode(&args.value), options);
    if out.full {
        check_result_size(call, usize::MAX)?;
    }
    if written.is_err() {
        check_time_left(call)?;
    }
    match written {
        Ok(()) => Ok(out.text),
        Err(error) => Err(Problem::internal(format!("cannot encode the value as YAML: {error}"))),
    }
}

/// Bytes that are no text have a form in YAML that few can read; and depth.
fn check_encodable(value: &Value, path: &mut ValuePath) -> Result<()> {
    match value {
        Value::Bytes(_) => {
            return Err(Problem::bad_request(format!(
                "{path} is not UTF-8 text, which YAML cannot hold"
            ))
            .with_hint("encode it with base64.encode"));
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                path.push_index(index)?;
                check_encodable(item, path)?;
                path.pop();
            }
        }
        Value::Object(object) => {
            for (key, item) in object {
                path.push_key(key)?;
                check_encodable(item, path)?;
                path.pop();
            }
        }
        _ => {}
    }
    Ok(())
}

/// A value as it is written. The library decides for each text whether it needs quotes,
/// and looks at all of it several times for that: a long one is quoted without asking.
struct YamlNode<'a>(&'a Value);

/// Texts up to this long are written without quotes where they need none.
const MAX_UNQUOTED_BYTES: usize = 1024;
/// How often it is looked whether the call still has time.
const WRITES_PER_TIME_CHECK: usize = 64;

impl Serialize for YamlNode<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self.0 {
            Value::Str(text) => YamlText(text).serialize(serializer),
            Value::Array(items) => serializer.collect_seq(items.iter().map(YamlNode)),
            Value::Object(object) => serializer
                .collect_map(object.iter().map(|(key, item)| (YamlText(key), YamlNode(item)))),
            other => other.serialize(serializer),
        }
    }
}

struct YamlText<'a>(&'a str);

impl Serialize for YamlText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        if self.0.len() > MAX_UNQUOTED_BYTES {
            DoubleQuoted(self.0).serialize(serializer)
        } else {
            serializer.serialize_str(self.0)
        }
    }
}

/// Indentation multiplies the size of deep values, so it is counted as it is
/// written; and so is the time.
struct CappedTextWriter<'a> {
    text: String,
    limit: usize,
    full: bool,
    write_count: usize,
    call: &'a Call,
}

impl std::fmt::Write for CappedTextWriter<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.write_count += 1;
        if self.write_count.is_multiple_of(WRITES_PER_TIME_CHECK) {
            check_time_left(self.call).map_err(|_| std::fmt::Error)?;
        }
        if self.text.len() + text.len() > self.limit {
            self.full = true;
            return Err(std::fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
