//! Values into the parameters of a statement, by the types it needs.
//!
//! Most are sent as text, which the server reads as it reads literals, so every
//! type works. What cannot be meant is refused here, by number.

use std::fmt;

use moonlark_core::{Problem, Result, Value};
use tokio_postgres::types::{Format, IsNull, Kind, ToSql, Type, to_sql_checked};

use crate::args::kind_with_article;
use crate::crypto::encode_hex;
use crate::sql::check_param_count;

/// One parameter as it is sent.
pub(super) enum PostgresParam {
    Null,
    Text(String),
    Binary(Vec<u8>),
}

pub(super) fn encode_params(values: &[Value], types: &[Type]) -> Result<Vec<PostgresParam>> {
    check_param_count(types.len(), values.len())?;
    let numbered = values.iter().zip(types).enumerate();
    numbered.map(|(index, (value, kind))| encode_param(index + 1, value, kind)).collect()
}

fn encode_param(number: usize, value: &Value, kind: &Type) -> Result<PostgresParam> {
    let mismatch = || {
        Problem::bad_request(format!(
            "parameter {number} is {}, but the statement needs {}",
            describe_value(value),
            kind.name()
        ))
        .with_hint(format!("pass another value, or cast in the statement, as in ${number}::text"))
    };
    let text = |text: String| Ok(PostgresParam::Text(text));
    match kind.kind() {
        _ if *value == Value::Null => return Ok(PostgresParam::Null),
        Kind::Domain(inner) => return encode_param(number, value, inner),
        Kind::Array(inner) => {
            return match value {
                Value::Array(items) => text(encode_array(number, items, inner)?),
                // An empty table, which some languages write for both.
                Value::Object(object) if object.is_empty() => text("{}".to_owned()),
                Value::Str(literal) => text(literal.clone()),
                _ => Err(mismatch()),
            };
        }
        _ => {}
    }
    match (kind.clone(), value) {
        (Type::BYTEA, Value::Str(bytes)) => Ok(PostgresParam::Binary(bytes.clone().into_bytes())),
        (Type::BYTEA, Value::Bytes(bytes)) => Ok(PostgresParam::Binary(bytes.clone())),
        (_, Value::Bytes(_)) => Err(mismatch()),
        (Type::BOOL, Value::Bool(flag)) => text(flag.to_string()),
        (Type::JSON | Type::JSONB, Value::Str(json)) => text(json.clone()),
        (Type::JSON | Type::JSONB, value) => {
            text(value.encode_json(&format!("parameter {number}"))?)
        }
        (Type::INT2 | Type::INT4 | Type::INT8 | Type::OID, value) => match value {
            Value::Int(int) => text(int.to_string()),
            Value::Float(float) if float.fract() == 0.0 && float.abs() < MAX_SAFE_INTEGER => {
                text(format!("{float:.0}"))
            }
            Value::Str(digits) if digits.trim().parse::<i64>().is_ok() => text(digits.clone()),
            _ => Err(mismatch()),
        },
        (Type::FLOAT4 | Type::FLOAT8 | Type::NUMERIC, value) => match value {
            Value::Int(int) => text(int.to_string()),
            Value::Float(float) => text(float.to_string()),
            Value::Str(digits) if digits.trim().parse::<f64>().is_ok() => text(digits.clone()),
            _ => Err(mismatch()),
        },
        (_, Value::Str(literal)) => text(literal.clone()),
        _ => Err(mismatch()),
    }
}

/// Floats up to here are whole numbers without doubt.
const MAX_SAFE_INTEGER: f64 = 9_007_199_254_740_992.0;

/// `{1,NULL,{"a","b"}}`. Values nest no deeper than wherever they came from.
fn encode_array(number: usize, items: &[Value], inner: &Type) -> Result<String> {
    let json = matches!(*inner, Type::JSON | Type::JSONB);
    let mut out = String::from("{");
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        match item {
            Value::Array(items) if !json => {
                out.push_str(&encode_array(number, items, inner)?);
                continue;
            }
            _ => {}
        }
        match encode_param(number, item, inner)? {
            PostgresParam::Null => out.push_str("NULL"),
            PostgresParam::Text(text) => push_quoted(&mut out, &text),
            PostgresParam::Binary(bytes) => {
                push_quoted(&mut out, &format!("\\x{}", encode_hex(&bytes)));
            }
        }
    }
    out.push('}');
    Ok(out)
}

fn push_quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
}

fn describe_value(value: &Value) -> String {
    match value {
        Value::Bytes(_) => "bytes that are not text".to_owned(),
        Value::Float(_) => "a number with a fraction".to_owned(),
        other => kind_with_article(other),
    }
}

impl ToSql for PostgresParam {
    fn to_sql(
        &self,
        _: &Type,
        out: &mut bytes::BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            PostgresParam::Null => return Ok(IsNull::Yes),
            PostgresParam::Text(text) => out.extend_from_slice(text.as_bytes()),
            PostgresParam::Binary(bytes) => out.extend_from_slice(bytes),
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        match self {
            PostgresParam::Binary(_) => Format::Binary,
            _ => Format::Text,
        }
    }

    to_sql_checked!();
}

/// The trait wants it; what a script passes is nobody's to print.
impl fmt::Debug for PostgresParam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Param")
    }
}
