//! What a server sends, as values. It is read from the binary format, and never
//! trusted: what does not add up is a Problem.

mod numeric;
mod time_values;

use std::net::{Ipv4Addr, Ipv6Addr};

use moonlark_core::{Problem, Result, Value};
use tokio_postgres::types::{FromSql, Kind, Type};

use crate::json::decode_json_within;

/// The bytes of a value as they came.
pub(super) struct RawColumnValue<'a>(pub(super) &'a [u8]);

impl<'a> FromSql<'a> for RawColumnValue<'a> {
    fn from_sql(
        _: &Type,
        bytes: &'a [u8],
    ) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(RawColumnValue(bytes))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// Whether [`value`] reads this type.
pub(super) fn is_decodable(kind: &Type) -> bool {
    match kind.kind() {
        Kind::Enum(_) => true,
        Kind::Domain(inner) | Kind::Array(inner) => is_decodable(inner),
        Kind::Simple | Kind::Pseudo => find_decoder(kind).is_some(),
        _ => false,
    }
}

/// A value that is not NULL; `left` bytes are left for what it becomes.
pub(super) fn decode_value(bytes: &[u8], kind: &Type, left: usize) -> Result<Value> {
    match kind.kind() {
        Kind::Enum(_) => decode_text(bytes),
        Kind::Domain(inner) => return decode_value(bytes, inner, left),
        Kind::Array(inner) => return decode_array(bytes, inner, left),
        _ if matches!(*kind, Type::JSON) => return decode_json_within(bytes, left),
        // The first byte is the version of the format.
        _ if matches!(*kind, Type::JSONB) => {
            return decode_json_within(bytes.get(1..).unwrap_or_default(), left);
        }
        _ => find_decoder(kind).and_then(|read| read(bytes)),
    }
    .ok_or_else(|| malformed_value_problem(kind))
}

fn malformed_value_problem(kind: &Type) -> Problem {
    Problem::unavailable(format!("the server sent a {} that makes no sense", kind.name()))
        .with_retryable(false)
}

type ColumnDecoder = fn(&[u8]) -> Option<Value>;

fn find_decoder(kind: &Type) -> Option<ColumnDecoder> {
    let read: ColumnDecoder = match *kind {
        Type::BOOL => |bytes| Some(Value::Bool(read_fixed::<1>(bytes)? != [0])),
        Type::INT2 => |bytes| Some(Value::Int(i16::from_be_bytes(read_fixed(bytes)?).into())),
        Type::INT4 => |bytes| Some(Value::Int(i32::from_be_bytes(read_fixed(bytes)?).into())),
        Type::INT8 => |bytes| Some(Value::Int(i64::from_be_bytes(read_fixed(bytes)?))),
        Type::OID => |bytes| Some(Value::Int(u32::from_be_bytes(read_fixed(bytes)?).into())),
        Type::FLOAT4 => |bytes| Some(widen_float(f32::from_be_bytes(read_fixed(bytes)?))),
        Type::FLOAT8 => |bytes| Some(Value::Float(f64::from_be_bytes(read_fixed(bytes)?))),
        Type::NUMERIC => numeric::decode_numeric,
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN | Type::XML => {
            decode_text
        }
        Type::CHAR | Type::BYTEA => |bytes| Some(Value::text_or_bytes(bytes.to_vec())),
        Type::DATE => time_values::decode_date,
        Type::TIME => time_values::decode_time,
        Type::TIMETZ => time_values::decode_time_with_zone,
        Type::TIMESTAMP => |bytes| time_values::decode_timestamp(bytes, ""),
        Type::TIMESTAMPTZ => |bytes| time_values::decode_timestamp(bytes, "Z"),
        Type::INTERVAL => time_values::decode_interval,
        Type::UUID => |bytes| Some(uuid::Uuid::from_bytes(read_fixed(bytes)?).to_string().into()),
        Type::INET | Type::CIDR => decode_network,
        // These two are read where the limit is known.
        Type::JSON | Type::JSONB => |_| None,
        Type::VOID => |_| Some(Value::Null),
        _ if kind.name() == "citext" => decode_text,
        _ => return None,
    };
    Some(read)
}

fn decode_text(bytes: &[u8]) -> Option<Value> {
    Some(Value::text_or_bytes(bytes.to_vec()))
}

/// The number that a reader sees: 0.1 stays 0.1.
fn widen_float(float: f32) -> Value {
    Value::Float(float.to_string().parse().unwrap_or_else(|_| f64::from(float)))
}

fn read_fixed<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.try_into().ok()
}

/// The next `N` bytes.
fn take_bytes<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*first)
}

fn decode_network(bytes: &[u8]) -> Option<Value> {
    let [family, bits, is_cidr, _, address @ ..] = bytes else { return None };
    let (address, most) = match (family, address.len()) {
        (2, 4) => (Ipv4Addr::from(read_fixed::<4>(address)?).to_string(), 32),
        (3, 16) => (Ipv6Addr::from(read_fixed::<16>(address)?).to_string(), 128),
        _ => return None,
    };
    Some(if *bits == most && *is_cidr == 0 {
        address.into()
    } else {
        format!("{address}/{bits}").into()
    })
}

/// PostgreSQL has no arrays of more dimensions.
const MAX_ARRAY_DIMENSIONS: usize = 6;

fn decode_array(mut bytes: &[u8], inner: &Type, left: usize) -> Result<Value> {
    let bad = || malformed_value_problem(inner);
    let dimensions = take_bytes(&mut bytes).map(u32::from_be_bytes).ok_or_else(bad)? as usize;
    // Whether there are NULLs, and the type of the elements.
    take_bytes::<8>(&mut bytes).ok_or_else(bad)?;
    if dimensions > MAX_ARRAY_DIMENSIONS {
        return Err(bad());
    }
    let mut lengths = Vec::new();
    for _ in 0..dimensions {
        lengths.push(take_bytes(&mut bytes).map(u32::from_be_bytes).ok_or_else(bad)?);
        // Where it begins to count.
        take_bytes::<4>(&mut bytes).ok_or_else(bad)?;
    }
    match lengths.as_slice() {
        [] => Ok(Value::Array(Vec::new())),
        lengths => decode_elements(&mut bytes, lengths, inner, left),
    }
}

fn decode_elements(bytes: &mut &[u8], lengths: &[u32], inner: &Type, left: usize) -> Result<Value> {
    let bad = || malformed_value_problem(inner);
    let Some((length, deeper)) = lengths.split_first() else { return Err(bad()) };
    let mut items = Vec::new();
    for _ in 0..*length {
        // A length that promises more than there is ends here.
        if bytes.is_empty() {
            return Err(bad());
        }
        items.push(match deeper {
            [] => match take_bytes(bytes).map(i32::from_be_bytes).ok_or_else(bad)? {
                -1 => Value::Null,
                size => {
                    let size = usize::try_from(size).map_err(|_| bad())?;
                    let (element, rest) = bytes.split_at_checked(size).ok_or_else(bad)?;
                    *bytes = rest;
                    decode_value(element, inner, left)?
                }
            },
            deeper => decode_elements(bytes, deeper, inner, left)?,
        });
    }
    Ok(Value::Array(items))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever a server sends, it is a value or a Problem.
    #[test]
    fn no_bytes_make_a_reader_panic() {
        let types = [
            Type::BOOL,
            Type::INT2,
            Type::INT8,
            Type::FLOAT4,
            Type::NUMERIC,
            Type::TEXT,
            Type::DATE,
            Type::TIME,
            Type::TIMETZ,
            Type::TIMESTAMP,
            Type::TIMESTAMPTZ,
            Type::INTERVAL,
            Type::UUID,
            Type::INET,
            Type::JSON,
            Type::JSONB,
            Type::INT4_ARRAY,
            Type::TEXT_ARRAY,
            Type::JSONB_ARRAY,
        ];
        for kind in types {
            assert!(is_decodable(&kind));
            for length in 0..40 {
                for byte in [0, 1, 2, 0x20, 0x7f, 0x80, 0xff] {
                    let _ = decode_value(&vec![byte; length], &kind, 1000);
                }
            }
        }
        let huge = [
            0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 23, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 0, 0,
            0, 0, 1,
        ];
        assert!(decode_value(&huge, &Type::INT4_ARRAY, 1000).is_err());
        for kind in
            [Type::POINT, Type::INT4_RANGE, Type::RECORD, Type::BIT, Type::MONEY, Type::REGCLASS]
        {
            assert!(!is_decodable(&kind), "{kind}");
        }
    }
}
