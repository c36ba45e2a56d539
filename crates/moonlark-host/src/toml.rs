//! `toml`: values to TOML and back.

use moonlark_core::limits::format_size;
use moonlark_core::value::{MAX_VALUE_DEPTH, Object, ValuePath, shorten_text};
use moonlark_core::{Module, Problem, Result, Value};
use moonlark_gateway::Call;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use crate::args::{ScriptTable, check_result_size, line_and_column};

pub(crate) fn module() -> Module {
    Module::new(
        "toml",
        "Encode and decode TOML. Dates and times are text in the form of RFC 3339, and are \
         written as strings.",
    )
    .pure()
    .function("decode", "Decode a TOML document.", decode)
    .example(
        json!({"text": "name = 'x'\n[server]\nports = [80, 443]\nsince = 2026-01-31\n"}),
        json!({"name": "x", "server": {"ports": [80, 443], "since": "2026-01-31"}}),
    )
    .fails(json!({"text": "a = 1\nb ="}), "at line 2, column 4")
    .function("encode", "Encode a table as a TOML document.", encode)
    .example(
        json!({"value": {"server": {"port": 80}, "name": "x"}}),
        json!("name = \"x\"\n\n[server]\nport = 80\n"),
    )
    .fails(json!({"value": {"a": [1, null]}}), "value.a[1] is null, which TOML cannot hold")
    .fails(json!({"value": 1}), "expected a table")
}

/// The library holds many times the text while it reads, and nobody writes
/// this much configuration.
const MAX_TOML_BYTES: usize = 4 * 1024 * 1024;
/// What an entry takes at least, once it is decoded.
const TOML_ENTRY_OVERHEAD_BYTES: usize = 48;
/// What the library holds for each word, sign and space of the text.
const TOML_TOKEN_BYTES: usize = 64;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TomlDecodeArgs {
    /// A TOML document.
    text: String,
}

fn decode(call: &Call, args: TomlDecodeArgs) -> Result<Value> {
    let text = args.text.strip_prefix('\u{feff}').unwrap_or(&args.text);
    let most = MAX_TOML_BYTES.min(call.limits().value);
    if text.len() > most {
        return Err(Problem::limit_exceeded(format!(
            "the TOML is larger than {}",
            format_size(most)
        )));
    }
    // Beside them, an error has copies of the text and of what is wrong with it.
    let needed = text.len().saturating_mul(6) + count_tokens(text).saturating_mul(TOML_TOKEN_BYTES);
    if needed > call.limits().memory {
        let most = format_size(call.limits().memory);
        let message = format!("reading the TOML would take more than {most} of memory");
        return Err(Problem::limit_exceeded(message)
            .with_hint("work on less at a time, or raise limits.memory"));
    }
    let table = DeTable::parse(text).map_err(|error| {
        // A key that is wrong stands in it, however long it is.
        let message = error.message();
        let message = message[..message.floor_char_boundary(500)].replace('\n', ", ");
        invalid_toml_problem(text, error.span().map_or(0, |span| span.start), &message)
    })?;
    let mut reader = TomlReader { text, call, depth: 0, size: 0 };
    reader.read_table(table.into_inner())
}

/// About as many as the library makes of it: words, runs of spaces, and every
/// other character.
fn count_tokens(text: &str) -> usize {
    let class = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | 0x80.. => 1,
        b' ' | b'\t' => 2,
        _ => 0,
    };
    let (mut count, mut before) = (0, 0);
    for &byte in text.as_bytes() {
        let this = class(byte);
        count += usize::from(this == 0 || this != before);
        before = this;
    }
    count
}

/// Turns what was parsed into values and counts them.
struct TomlReader<'a> {
    text: &'a str,
    call: &'a Call,
    depth: usize,
    size: usize,
}

impl TomlReader<'_> {
    fn read_table(&mut self, table: DeTable<'_>) -> Result<Value> {
        let mut fields: Vec<_> = table.into_iter().collect();
        // The library sorts by name; people expect the order they wrote.
        fields.sort_by_key(|(key, _)| key.span().start);
        let mut object = Object::new();
        for (key, value) in fields {
            self.charge_bytes(key.get_ref().len())?;
            let value = self.read_value(value)?;
            object.insert(key.into_inner().into_owned(), value);
        }
        Ok(object.into())
    }

    fn read_value(&mut self, value: Spanned<DeValue<'_>>) -> Result<Value> {
        let at = value.span().start;
        self.charge_bytes(0)?;
        Ok(match value.into_inner() {
            DeValue::String(text) => {
                self.charge_bytes(text.len())?;
                Value::Str(text.into_owned())
            }
            DeValue::Integer(int) => Value::Int(parse_integer(&int).ok_or_else(|| {
                let digits = shorten_text(int.as_str());
                invalid_toml_problem(
                    self.text,
                    at,
                    &format!("the integer {digits} does not fit 64 bits"),
                )
            })?),
            DeValue::Float(float) => {
                let number: f64 = float.as_str().parse().unwrap_or(f64::INFINITY);
                if number.is_infinite() && !float.as_str().contains("inf") {
                    return Err(invalid_toml_problem(self.text, at, "the number is out of range"));
                }
                Value::Float(number)
            }
            DeValue::Boolean(flag) => Value::Bool(flag),
            DeValue::Datetime(date) => Value::Str(date.to_string()),
            DeValue::Array(items) => self.read_nested(at, |reader| {
                let items = items.into_iter().map(|item| reader.read_value(item));
                items.collect::<Result<Vec<_>>>().map(Value::Array)
            })?,
            DeValue::Table(table) => self.read_nested(at, |reader| reader.read_table(table))?,
        })
    }

    /// The library bounds each key and each bracket, but not their sum.
    fn read_nested(
        &mut self,
        at: usize,
        read: impl FnOnce(&mut Self) -> Result<Value>,
    ) -> Result<Value> {
        if self.depth >= MAX_VALUE_DEPTH {
            let place = line_and_column(self.text, at);
            return Err(Problem::limit_exceeded(format!(
                "the TOML is nested deeper than {MAX_VALUE_DEPTH} levels, at {place}"
            )));
        }
        self.depth += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn charge_bytes(&mut self, bytes: usize) -> Result<()> {
        self.size += bytes + TOML_ENTRY_OVERHEAD_BYTES;
        check_result_size(self.call, self.size)
    }
}

fn parse_integer(int: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(int.as_str(), int.radix()).ok()
}

fn invalid_toml_problem(text: &str, at: usize, message: &str) -> Problem {
    let place = line_and_column(text, at);
    Problem::bad_request(format!("invalid TOML: {message}, at {place}"))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TomlEncodeArgs {
    /// What to encode; TOML has no null.
    value: ScriptTable,
}

fn encode(call: &Call, args: TomlEncodeArgs) -> Result<String> {
    let value = Value::Object(args.value.0);
    let mut check = TomlEncodeCheck { call, path: ValuePath::new("value"), size: 0 };
    check.check_value(&value, 0)?;
    let text = toml::to_string(&value)
        .map_err(|error| Problem::internal(format!("cannot encode the value as TOML: {error}")))?;
    check_result_size(call, text.len())?;
    Ok(text)
}

/// Finds what TOML cannot hold, and about how long it will be.
struct TomlEncodeCheck<'a> {
    call: &'a Call,
    path: ValuePath,
    size: usize,
}

impl TomlEncodeCheck<'_> {
    /// `header` is the length of the keys on the way here: each table writes
    /// them all again.
    fn check_value(&mut self, value: &Value, header: usize) -> Result<()> {
        let path = &self.path;
        match value {
            Value::Null => {
                return Err(Problem::bad_request(format!(
                    "{path} is null, which TOML cannot hold"
                ))
                .with_hint("leave it out"));
            }
            Value::Bytes(_) => {
                return Err(Problem::bad_request(format!(
                    "{path} is not UTF-8 text, which TOML cannot hold"
                ))
                .with_hint("encode it with base64.encode"));
            }
            Value::Bool(_) | Value::Int(_) | Value::Float(_) => self.charge_bytes(1)?,
            Value::Str(text) => self.charge_bytes(text.len())?,
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    self.path.push_index(index)?;
                    self.check_value(item, header)?;
                    self.path.pop();
                }
            }
            Value::Object(object) => {
                self.charge_bytes(header)?;
                for (key, item) in object {
                    self.charge_bytes(key.len())?;
                    self.path.push_key(key)?;
                    self.check_value(item, header + key.len() + 1)?;
                    self.path.pop();
                }
            }
        }
        Ok(())
    }

    fn charge_bytes(&mut self, bytes: usize) -> Result<()> {
        self.size = self.size.saturating_add(bytes);
        check_result_size(self.call, self.size)
    }
}

#[cfg(test)]
mod tests;
