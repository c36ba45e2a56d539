//! A timeout in seconds, whole or fractional.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

/// More than zero and at most a day: beyond that a timeout is no protection,
/// and a number that no [`Duration`] can hold never gets further than here.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Deserialize)]
#[serde(try_from = "f64")]
pub struct Seconds(f64);

const MAX: u32 = 86_400;

impl Seconds {
    pub(super) const fn new(seconds: u32) -> Self {
        Self(seconds as f64)
    }

    pub fn as_f64(self) -> f64 {
        self.0
    }

    pub fn duration(self) -> Duration {
        Duration::from_secs_f64(self.0)
    }
}

impl TryFrom<f64> for Seconds {
    type Error = BadSeconds;

    fn try_from(seconds: f64) -> Result<Self, BadSeconds> {
        if seconds > 0.0 && seconds <= f64::from(MAX) { Ok(Self(seconds)) } else { Err(BadSeconds) }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadSeconds;

impl fmt::Display for BadSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "must be more than 0 and at most {MAX}")
    }
}

impl std::error::Error for BadSeconds {}

/// `30`, not `30.0`, as a person would write it.
impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_plainly(&self.0, serializer)
    }
}

/// A number of seconds that has been checked to be a small one.
pub(super) fn serialize_plainly<S: Serializer>(
    seconds: &f64,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    if seconds.fract() == 0.0 {
        serializer.serialize_u32(*seconds as u32)
    } else {
        serializer.serialize_f64(*seconds)
    }
}

impl JsonSchema for Seconds {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Seconds".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": MAX,
            "examples": [30],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_positive_finite_and_at_most_a_day() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 86_401.0] {
            assert_eq!(Seconds::try_from(bad), Err(BadSeconds), "{bad}");
        }
        let half = Seconds::try_from(0.5).unwrap();
        assert_eq!(half.duration(), Duration::from_millis(500));
        assert_eq!(Seconds::try_from(5e-324).unwrap().duration(), Duration::ZERO);
    }

    #[test]
    fn whole_seconds_are_written_without_a_fraction() {
        assert_eq!(serde_json::to_string(&Seconds::new(30)).unwrap(), "30");
        assert_eq!(serde_json::to_string(&Seconds(1.5)).unwrap(), "1.5");
    }
}
