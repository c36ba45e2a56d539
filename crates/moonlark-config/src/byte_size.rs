//! Byte sizes, written `"64MB"` or `67108864`.
//!
//! Units are powers of 1024, whether spelt `MB` or `MiB`: operators write limits
//! the way they speak of memory, and the two never need to be told apart here.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// A number of bytes, never zero and never over [`ByteSize::MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(u64);

impl ByteSize {
    /// The schema's `format`, by which the checker recognises a size.
    pub const SCHEMA_FORMAT: &'static str = "size";
    /// The largest integer that TOML can write.
    pub const MAX_BYTES: u64 = i64::MAX as u64;

    pub fn new(bytes: u64) -> Result<Self, &'static str> {
        match bytes {
            0 => Err(ZERO_SIZE),
            1..=Self::MAX_BYTES => Ok(Self(bytes)),
            _ => Err(TOO_LARGE_SIZE),
        }
    }

    pub(super) fn from_integer(bytes: i64) -> Result<Self, &'static str> {
        u64::try_from(bytes).map_err(|_| ZERO_SIZE).and_then(Self::new)
    }

    pub fn bytes(self) -> u64 {
        self.0
    }

    pub(super) const fn from_kib(count: u32) -> Self {
        Self(count as u64 * 1024)
    }

    pub(super) const fn from_mib(count: u32) -> Self {
        Self(count as u64 * 1024 * 1024)
    }
}

/// Why something is not a [`ByteSize`]; reads well after the name of a key.
const NOT_A_SIZE: &str = "is not a size";
const ZERO_SIZE: &str = "must be more than 0 bytes";
const TOO_LARGE_SIZE: &str = "is too large";

/// Largest first, as the shortest exact spelling is looked for in this order.
const BYTE_UNITS: [(&str, u64); 5] =
    [("TB", 1 << 40), ("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10), ("B", 1)];

impl FromStr for ByteSize {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = unit_bytes(unit.trim_start()).ok_or(NOT_A_SIZE)?;

        if number.contains('.') {
            return parse_fraction(number, unit);
        }
        if number.is_empty() {
            return Err(NOT_A_SIZE);
        }
        // Only digits are left, so the one way to fail is being too long.
        let count: u64 = number.parse().map_err(|_| TOO_LARGE_SIZE)?;
        Self::new(count.checked_mul(unit).ok_or(TOO_LARGE_SIZE)?)
    }
}

fn parse_fraction(number: &str, unit: u64) -> Result<ByteSize, &'static str> {
    let count: f64 = number.parse().map_err(|_| NOT_A_SIZE)?;
    // A float cast saturates, so what is too large stays too large.
    ByteSize::new((count * unit as f64) as u64)
}

/// A bare number counts bytes: `${VAR}` can only ever give a string.
fn unit_bytes(unit: &str) -> Option<u64> {
    if unit.is_empty() {
        return Some(1);
    }
    let mut plain = unit.to_ascii_uppercase();
    if plain.len() == 3 {
        plain = plain.replace("IB", "B");
    }
    BYTE_UNITS.iter().find(|(name, _)| *name == plain).map(|(_, bytes)| *bytes)
}

/// The largest unit that divides it, so that it reads back exactly.
impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let exact = BYTE_UNITS.iter().find(|(_, bytes)| self.0.is_multiple_of(*bytes));
        let (name, bytes) = exact.unwrap_or(&("B", 1));
        write!(f, "{}{name}", self.0 / bytes)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ByteSizeVisitor)
    }
}

struct ByteSizeVisitor;

impl Visitor<'_> for ByteSizeVisitor {
    type Value = ByteSize;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of bytes or a string such as \"64MB\"")
    }

    fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<ByteSize, E> {
        ByteSize::new(bytes).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<ByteSize, E> {
        ByteSize::from_integer(bytes).map_err(E::custom)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<ByteSize, E> {
        text.parse().map_err(E::custom)
    }
}

impl JsonSchema for ByteSize {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["integer", "string"],
            "format": Self::SCHEMA_FORMAT,
            "minimum": 1,
            "pattern": r"^\s*([0-9]+\.?[0-9]*|\.[0-9]+)\s*(([KkMmGgTt][Ii]?)?[Bb])?\s*$|\$\{",
            "examples": ["64MB"],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<u64, &str>) {
        assert_eq!(text.parse::<ByteSize>().map(ByteSize::bytes), expected, "{text:?}");
    }

    #[test]
    fn a_size_is_a_number_and_a_unit_of_1024() {
        check("64MB", Ok(64 << 20));
        check("512KB", Ok(512 << 10));
        check("1.5 GB", Ok(3 << 29));
        check("100 B", Ok(100));
        check("2TB", Ok(2 << 40));
        check("64mb", Ok(64 << 20));
        check("64MiB", Ok(64 << 20));
        check("1 kib", Ok(1 << 10));
        check("  7 MB  ", Ok(7 << 20));
        check(".5KB", Ok(512));
        check("123", Ok(123));
        check("9223372036854775807", Ok(ByteSize::MAX_BYTES));
    }

    #[test]
    fn what_is_not_a_size_says_why() {
        check("", Err(NOT_A_SIZE));
        check("MB", Err(NOT_A_SIZE));
        check("64XB", Err(NOT_A_SIZE));
        check("64 M B", Err(NOT_A_SIZE));
        check("1.2.3MB", Err(NOT_A_SIZE));
        check(".", Err(NOT_A_SIZE));
        check("-1MB", Err(NOT_A_SIZE));
        check("1e3MB", Err(NOT_A_SIZE));
        check("64iB", Err(NOT_A_SIZE));
        check("６４MB", Err(NOT_A_SIZE));
        check("0", Err(ZERO_SIZE));
        check("0MB", Err(ZERO_SIZE));
        check("0.4B", Err(ZERO_SIZE));
        check("9223372036854775808", Err(TOO_LARGE_SIZE));
        check("9999999999999999999999", Err(TOO_LARGE_SIZE));
        check("99999999TB", Err(TOO_LARGE_SIZE));
        check("99999999999999999999.5TB", Err(TOO_LARGE_SIZE));
    }

    #[test]
    fn a_size_is_written_in_the_largest_unit_that_keeps_it_exact() {
        for (text, expected) in [
            ("64MB", "64MB"),
            ("1.5GB", "1536MB"),
            ("1024KB", "1MB"),
            ("1025", "1025B"),
            ("9223372036854775807", "9223372036854775807B"),
        ] {
            let size: ByteSize = text.parse().unwrap();
            assert_eq!(size.to_string(), expected);
            assert_eq!(size.to_string().parse(), Ok(size));
        }
    }

    #[test]
    fn integers_and_strings_deserialise() {
        let sizes: Vec<ByteSize> = serde_json::from_str(r#"[1024, "1KB"]"#).unwrap();
        assert_eq!(sizes, [ByteSize(1024), ByteSize(1024)]);
        for bad in ["0", "-5", "\"x\"", "1.5", "true"] {
            assert!(serde_json::from_str::<ByteSize>(bad).is_err(), "{bad}");
        }
    }
}
