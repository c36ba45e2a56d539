//! What a server sends, as values. It is read from the binary format, and never
//! trusted: what does not add up is a Problem.

mod numeric;
mod time;

use std::net::{Ipv4Addr, Ipv6Addr};

use moonlark_core::{Problem, Result, Value};
use tokio_postgres::types::{FromSql, Kind, Type};

use crate::json::decode_within;

/// The bytes of a value as they came.
pub(super) struct Raw<'a>(pub(super) &'a [u8]);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(
        _: &Type,
        bytes: &'a [u8],
    ) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Raw(bytes))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// Whether [`value`] reads this type.
pub(super) fn is_known(kind: &Type) -> bool {
    match kind.kind() {
        Kind::Enum(_) => true,
        Kind::Domain(inner) | Kind::Array(inner) => is_known(inner),
        Kind::Simple | Kind::Pseudo => reader(kind).is_some(),
        _ => false,
    }
}

/// A value that is not NULL; `left` bytes are left for what it becomes.
pub(super) fn value(bytes: &[u8], kind: &Type, left: usize) -> Result<Value> {
    match kind.kind() {
        Kind::Enum(_) => text(bytes),
        Kind::Domain(inner) => return value(bytes, inner, left),
        Kind::Array(inner) => return array(bytes, inner, left),
        _ if matches!(*kind, Type::JSON) => return decode_within(bytes, left),
        // The first byte is the version of the format.
        _ if matches!(*kind, Type::JSONB) => {
            return decode_within(bytes.get(1..).unwrap_or_default(), left);
        }
        _ => reader(kind).and_then(|read| read(bytes)),
    }
    .ok_or_else(|| malformed(kind))
}

fn malformed(kind: &Type) -> Problem {
    Problem::unavailable(format!("the server sent a {} that makes no sense", kind.name()))
        .retryable_if(false)
}

type Read = fn(&[u8]) -> Option<Value>;

fn reader(kind: &Type) -> Option<Read> {
    let read: Read = match *kind {
        Type::BOOL => |bytes| Some(Value::Bool(fixed::<1>(bytes)? != [0])),
        Type::INT2 => |bytes| Some(Value::Int(i16::from_be_bytes(fixed(bytes)?).into())),
        Type::INT4 => |bytes| Some(Value::Int(i32::from_be_bytes(fixed(bytes)?).into())),
        Type::INT8 => |bytes| Some(Value::Int(i64::from_be_bytes(fixed(bytes)?))),
        Type::OID => |bytes| Some(Value::Int(u32::from_be_bytes(fixed(bytes)?).into())),
        Type::FLOAT4 => |bytes| Some(widen(f32::from_be_bytes(fixed(bytes)?))),
        Type::FLOAT8 => |bytes| Some(Value::Float(f64::from_be_bytes(fixed(bytes)?))),
        Type::NUMERIC => numeric::read,
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN | Type::XML => text,
        Type::CHAR | Type::BYTEA => |bytes| Some(Value::text_or_bytes(bytes.to_vec())),
        Type::DATE => time::date,
        Type::TIME => time::time,
        Type::TIMETZ => time::time_with_zone,
        Type::TIMESTAMP => time::timestamp,
        Type::TIMESTAMPTZ => time::instant,
        Type::INTERVAL => time::interval,
        Type::UUID => |bytes| Some(uuid::Uuid::from_bytes(fixed(bytes)?).to_string().into()),
        Type::INET | Type::CIDR => network,
        // These two are read where the limit is known.
        Type::JSON | Type::JSONB => |_| None,
        Type::VOID => |_| Some(Value::Null),
        _ if kind.name() == "citext" => text,
        _ => return None,
    };
    Some(read)
}

fn text(bytes: &[u8]) -> Option<Value> {
    Some(Value::text_or_bytes(bytes.to_vec()))
}

/// The number that a reader sees: 0.1 stays 0.1.
fn widen(float: f32) -> Value {
    Value::Float(float.to_string().parse().unwrap_or_else(|_| f64::from(float)))
}

fn fixed<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.try_into().ok()
}

/// The next `N` bytes.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(*first)
}

fn network(bytes: &[u8]) -> Option<Value> {
    let [family, bits, is_cidr, _, address @ ..] = bytes else { return None };
    let (address, most) = match (family, address.len()) {
        (2, 4) => (Ipv4Addr::from(fixed::<4>(address)?).to_string(), 32),
        (3, 16) => (Ipv6Addr::from(fixed::<16>(address)?).to_string(), 128),
        _ => return None,
    };
    Some(match *bits == most && *is_cidr == 0 {
        true => address.into(),
        false => format!("{address}/{bits}").into(),
    })
}

/// PostgreSQL has no arrays of more dimensions.
const DIMENSIONS: usize = 6;

fn array(mut bytes: &[u8], inner: &Type, left: usize) -> Result<Value> {
    let bad = || malformed(inner);
    let dimensions = take(&mut bytes).map(u32::from_be_bytes).ok_or_else(bad)? as usize;
    // Whether there are NULLs, and the type of the elements.
    take::<8>(&mut bytes).ok_or_else(bad)?;
    if dimensions > DIMENSIONS {
        return Err(bad());
    }
    let mut lengths = Vec::new();
    for _ in 0..dimensions {
        lengths.push(take(&mut bytes).map(u32::from_be_bytes).ok_or_else(bad)?);
        // Where it begins to count.
        take::<4>(&mut bytes).ok_or_else(bad)?;
    }
    match lengths.as_slice() {
        [] => Ok(Value::Array(Vec::new())),
        lengths => elements(&mut bytes, lengths, inner, left),
    }
}

fn elements(bytes: &mut &[u8], lengths: &[u32], inner: &Type, left: usize) -> Result<Value> {
    let bad = || malformed(inner);
    let Some((length, deeper)) = lengths.split_first() else { return Err(bad()) };
    let mut items = Vec::new();
    for _ in 0..*length {
        // A length that promises more than there is ends here.
        if bytes.is_empty() {
            return Err(bad());
        }
        items.push(match deeper {
            [] => match take(bytes).map(i32::from_be_bytes).ok_or_else(bad)? {
                -1 => Value::Null,
                size => {
                    let size = usize::try_from(size).map_err(|_| bad())?;
                    let (element, rest) = bytes.split_at_checked(size).ok_or_else(bad)?;
                    *bytes = rest;
                    value(element, inner, left)?
                }
            },
            deeper => elements(bytes, deeper, inner, left)?,
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
            assert!(is_known(&kind));
            for length in 0..40 {
                for byte in [0, 1, 2, 0x20, 0x7f, 0x80, 0xff] {
                    let _ = value(&vec![byte; length], &kind, 1000);
                }
            }
        }
        let huge = [
            0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 23, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 0, 0, 0, 0,
            0, 0, 1,
        ];
        assert!(value(&huge, &Type::INT4_ARRAY, 1000).is_err());
        for kind in
            [Type::POINT, Type::INT4_RANGE, Type::RECORD, Type::BIT, Type::MONEY, Type::REGCLASS]
        {
            assert!(!is_known(&kind), "{kind}");
        }
    }
}
