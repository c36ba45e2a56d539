//! A timeout in seconds, whole or fractional.

use std::borrow::Cow;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

/// More than zero and at most a day: beyond that a timeout is no protection,
/// and a number that no [`Duration`] can hold never gets further than here.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Deserialize)]
#[serde(try_from = "f64")]
pub struct TimeoutSeconds(f64);

const MAX_TIMEOUT_SECONDS: u32 = 86_400;

impl TimeoutSeconds {
    pub(super) const fn new(seconds: u32) -> Self {
        Self(seconds as f64)
    }

    pub fn as_f64(self) -> f64 {
        self.0
    }

    pub fn to_duration(self) -> Duration {
        Duration::from_secs_f64(self.0)
    }
}

impl TryFrom<f64> for TimeoutSeconds {
    type Error = String;

    fn try_from(seconds: f64) -> Result<Self, String> {
        if seconds > 0.0 && seconds <= f64::from(MAX_TIMEOUT_SECONDS) {
            Ok(Self(seconds))
        } else {
            Err(format!("must be more than 0 and at most {MAX_TIMEOUT_SECONDS}"))
        }
    }
}

/// `30`, not `30.0`, as a person would write it.
impl Serialize for TimeoutSeconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize_seconds(&self.0, serializer)
    }
}

/// A number of seconds that has been checked to be a small one.
pub(super) fn serialize_seconds<S: Serializer>(
    seconds: &f64,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    if seconds.fract() == 0.0 {
        serializer.serialize_u32(*seconds as u32)
    } else {
        serializer.serialize_f64(*seconds)
    }
}

impl JsonSchema for TimeoutSeconds {
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
            "maximum": MAX_TIMEOUT_SECONDS,
            "examples": [30],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_positive_finite_and_at_most_a_day() {
        let why = "must be more than 0 and at most 86400".to_owned();
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY, 86_401.0] {
            assert_eq!(TimeoutSeconds::try_from(bad), Err(why.clone()), "{bad}");
        }
        let half = TimeoutSeconds::try_from(0.5).unwrap();
        assert_eq!(half.to_duration(), Duration::from_millis(500));
        assert_eq!(TimeoutSeconds::try_from(5e-324).unwrap().to_duration(), Duration::ZERO);
    }

    #[test]
    fn whole_seconds_are_written_without_a_fraction() {
        assert_eq!(serde_json::to_string(&TimeoutSeconds::new(30)).unwrap(), "30");
        assert_eq!(serde_json::to_string(&TimeoutSeconds(1.5)).unwrap(), "1.5");
    }
}
