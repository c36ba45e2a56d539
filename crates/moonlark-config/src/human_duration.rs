//! Durations, written `"90s"`, `"5min"`, `"1h"`, `"30d"`, or as a number of seconds.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// More than zero and at most ten years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HumanDuration(Duration);

const MAX_DURATION_SECONDS: u64 = 10 * 365 * 86_400;

/// Largest first, as the shortest exact spelling is looked for in this order.
/// The first name of each is how we write it.
const DURATION_UNITS_MILLIS: [(&[&str], u64); 5] = [
    (&["d", "day", "days"], 86_400_000),
    (&["h", "hour", "hours"], 3_600_000),
    (&["min", "m", "minute", "minutes"], 60_000),
    (&["s", "sec", "second", "seconds"], 1000),
    (&["ms"], 1),
];

impl HumanDuration {
    /// The schema's `format`, by which the checker recognises a time.
    pub const SCHEMA_FORMAT: &'static str = "time";

    pub(super) const fn from_seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    pub fn to_duration(self) -> Duration {
        self.0
    }

    fn from_millis(millis: f64) -> Result<Self, &'static str> {
        if !(1.0..=(MAX_DURATION_SECONDS * 1000) as f64).contains(&millis) {
            return Err(OUT_OF_RANGE_TIME);
        }
        Ok(Self(Duration::from_millis(millis as u64)))
    }
}

/// Why something is not a [`HumanDuration`]; reads well after the name of a key.
const NOT_A_TIME: &str = "is not a time such as \"90s\", \"5min\", \"1h\" or \"30d\"";
const OUT_OF_RANGE_TIME: &str = "must be at least 1ms and at most ten years";

impl FromStr for HumanDuration {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = match unit.trim_start() {
            // `${VAR}` can only ever give a string.
            "" => 1000,
            unit => {
                let known = DURATION_UNITS_MILLIS.iter().find(|(names, _)| names.contains(&unit));
                known.ok_or(NOT_A_TIME)?.1
            }
        };
        let count: f64 = number.parse().map_err(|_| NOT_A_TIME)?;
        Self::from_millis(count * unit as f64)
    }
}

/// The largest unit that divides it, so that it reads back exactly.
impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis() as u64;
        let exact = DURATION_UNITS_MILLIS.iter().find(|(_, unit)| millis.is_multiple_of(*unit));
        let (names, unit) = exact.unwrap_or(&(&["ms"], 1));
        write!(f, "{}{}", millis / unit, names[0])
    }
}

impl Serialize for HumanDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HumanDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(HumanDurationVisitor)
    }
}

struct HumanDurationVisitor;

impl Visitor<'_> for HumanDurationVisitor {
    type Value = HumanDuration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of seconds or a string such as \"90s\"")
    }

    fn visit_u64<E: de::Error>(self, seconds: u64) -> Result<HumanDuration, E> {
        HumanDuration::from_millis(seconds as f64 * 1000.0).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<HumanDuration, E> {
        HumanDuration::from_millis(seconds as f64 * 1000.0).map_err(E::custom)
    }

    fn visit_f64<E: de::Error>(self, seconds: f64) -> Result<HumanDuration, E> {
        HumanDuration::from_millis(seconds * 1000.0).map_err(E::custom)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<HumanDuration, E> {
        text.parse().map_err(E::custom)
    }
}

impl JsonSchema for HumanDuration {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Span".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["number", "string"],
            "format": HumanDuration::SCHEMA_FORMAT,
            "exclusiveMinimum": 0,
            "maximum": MAX_DURATION_SECONDS,
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
            let span: HumanDuration = text.parse().unwrap();
            assert_eq!(span.to_string(), expected, "{text}");
            assert_eq!(span.to_string().parse(), Ok(span));
        }
        for (text, bad) in [
            ("soon", NOT_A_TIME),
            ("5 weeks", NOT_A_TIME),
            ("", NOT_A_TIME),
            ("s", NOT_A_TIME),
            ("1.2.3s", NOT_A_TIME),
            ("-1s", NOT_A_TIME),
            ("0s", OUT_OF_RANGE_TIME),
            ("9999999d", OUT_OF_RANGE_TIME),
        ] {
            assert_eq!(text.parse::<HumanDuration>(), Err(bad), "{text}");
        }
    }

    #[test]
    fn numbers_are_seconds() {
        let spans: Vec<HumanDuration> = serde_json::from_str(r#"[90, "90s"]"#).unwrap();
        assert_eq!(spans, [HumanDuration::from_seconds(90), HumanDuration::from_seconds(90)]);
        // As a file is read, not as a library reads JSON.
        let part: HumanDuration = Value::Float(0.25).deserialize_into().unwrap();
        assert_eq!(part.to_string(), "250ms");
        for bad in ["0", "-5", "\"x\"", "true"] {
            assert!(serde_json::from_str::<HumanDuration>(bad).is_err(), "{bad}");
        }
    }
}
