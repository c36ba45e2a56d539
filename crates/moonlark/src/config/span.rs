//! A time, written `"90s"`, `"5min"`, `"1h"`, `"30d"`, or as a number of seconds.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// More than zero and at most ten years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(Duration);

const MAX: u64 = 10 * 365 * 86_400;

/// Largest first, as the shortest exact spelling is looked for in this order.
/// The first name of each is how we write it.
const UNITS: [(&[&str], u64); 5] = [
    (&["d", "day", "days"], 86_400_000),
    (&["h", "hour", "hours"], 3_600_000),
    (&["min", "m", "minute", "minutes"], 60_000),
    (&["s", "sec", "second", "seconds"], 1000),
    (&["ms"], 1),
];

impl Span {
    /// The schema's `format`, by which the checker recognises a time.
    pub const FORMAT: &'static str = "time";

    pub(super) const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    pub fn duration(self) -> Duration {
        self.0
    }

    fn of_millis(millis: f64) -> Result<Self, BadSpan> {
        if !(1.0..=(MAX * 1000) as f64).contains(&millis) {
            return Err(BadSpan::OutOfRange);
        }
        Ok(Self(Duration::from_millis(millis as u64)))
    }
}

/// Why something is not a [`Span`]; reads well after the name of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadSpan {
    NotASpan,
    OutOfRange,
}

impl fmt::Display for BadSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadSpan::NotASpan => "is not a time such as \"90s\", \"5min\", \"1h\" or \"30d\"",
            BadSpan::OutOfRange => "must be at least 1ms and at most ten years",
        })
    }
}

impl std::error::Error for BadSpan {}

impl FromStr for Span {
    type Err = BadSpan;

    fn from_str(text: &str) -> Result<Self, BadSpan> {
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = match unit.trim_start() {
            // `${VAR}` can only ever give a string.
            "" => 1000,
            unit => {
                let known = UNITS.iter().find(|(names, _)| names.contains(&unit));
                known.ok_or(BadSpan::NotASpan)?.1
            }
        };
        let count: f64 = number.parse().map_err(|_| BadSpan::NotASpan)?;
        Self::of_millis(count * unit as f64)
    }
}

/// The largest unit that divides it, so that it reads back exactly.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis() as u64;
        let exact = UNITS.iter().find(|(_, unit)| millis.is_multiple_of(*unit));
        let (names, unit) = exact.unwrap_or(&(&["ms"], 1));
        write!(f, "{}{}", millis / unit, names[0])
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SpanVisitor)
    }
}

struct SpanVisitor;

impl Visitor<'_> for SpanVisitor {
    type Value = Span;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of seconds or a string such as \"90s\"")
    }

    fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<Span, E> {
        Span::of_millis(seconds as f64 * 1000.0).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<Span, E> {
        Span::of_millis(seconds as f64 * 1000.0).map_err(E::custom)
    }

    fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<Span, E> {
        Span::of_millis(seconds * 1000.0).map_err(E::custom)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Span, E> {
        text.parse().map_err(E::custom)
    }
}

impl JsonSchema for Span {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["number", "string"],
            "format": Span::FORMAT,
            "exclusiveMinimum": 0,
            "maximum": MAX,
            "examples": ["60s"],
        })
    }
}

#[cfg(test)]
mod tests {
    use moonlark_core::Value;

    use super::*;

    #[test]
    fn times_are_read_as_people_write_them_and_written_as_briefly() {
        for (text, expected) in [
            ("90s", "90s"),
            ("60s", "1min"),
            ("1.5h", "90min"),
            ("30d", "30d"),
            ("2 days", "2d"),
            ("250ms", "250ms"),
            ("0.5", "500ms"),
            ("300", "5min"),
        ] {
            let span: Span = text.parse().unwrap();
            assert_eq!(span.to_string(), expected, "{text}");
            assert_eq!(span.to_string().parse(), Ok(span));
        }
        for (text, bad) in [
            ("soon", BadSpan::NotASpan),
            ("5 weeks", BadSpan::NotASpan),
            ("", BadSpan::NotASpan),
            ("s", BadSpan::NotASpan),
            ("1.2.3s", BadSpan::NotASpan),
            ("-1s", BadSpan::NotASpan),
            ("0s", BadSpan::OutOfRange),
            ("9999999d", BadSpan::OutOfRange),
        ] {
            assert_eq!(text.parse::<Span>(), Err(bad), "{text}");
        }
    }

    #[test]
    fn numbers_are_seconds() {
        let spans: Vec<Span> = serde_json::from_str(r#"[90, "90s"]"#).unwrap();
        assert_eq!(spans, [Span::seconds(90), Span::seconds(90)]);
        // As a file is read, not as a library reads JSON.
        let part: Span = Value::Float(0.25).read().unwrap();
        assert_eq!(part.to_string(), "250ms");
        for bad in ["0", "-5", "\"x\"", "true"] {
            assert!(serde_json::from_str::<Span>(bad).is_err(), "{bad}");
        }
    }
}
