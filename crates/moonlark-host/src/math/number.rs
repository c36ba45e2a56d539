//! Numbers as arguments and results: integers and floats stay apart.

use std::borrow::Cow;
use std::fmt;

use moonlark_core::{Problem, Result, Value};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum MathNumber {
    Int(i64),
    Float(f64),
}

impl MathNumber {
    pub(super) fn to_f64(self) -> f64 {
        match self {
            MathNumber::Int(int) => int as f64,
            MathNumber::Float(float) => float,
        }
    }

    pub(super) fn is_nan(self) -> bool {
        self.to_f64().is_nan()
    }

    /// The integer that `round` makes of it.
    pub(super) fn round_to_i64(self, round: fn(f64) -> f64) -> Result<i64> {
        match self {
            MathNumber::Int(int) => Ok(int),
            MathNumber::Float(float) if !float.is_finite() => {
                Err(Problem::bad_request(format!("{self} has no nearest integer")))
            }
            MathNumber::Float(float) => {
                let whole = round(float);
                float_to_i64(whole)
                    .ok_or_else(|| integer_overflow_problem(&MathNumber::Float(whole)))
            }
        }
    }

    /// The integer that it is already.
    pub(super) fn to_exact_i64(self, name: &str) -> Result<i64> {
        match self {
            MathNumber::Int(int) => Ok(int),
            MathNumber::Float(float) if float.fract() == 0.0 => {
                float_to_i64(float).ok_or_else(|| integer_overflow_problem(&self))
            }
            MathNumber::Float(_) => {
                Err(Problem::bad_request(format!("{name}: expected an integer, got {self}")))
            }
        }
    }
}

/// A float without fraction as an integer.
fn float_to_i64(whole: f64) -> Option<i64> {
    // 2^63 is a float; the largest i64 is not.
    const I64_RANGE_END: f64 = 9_223_372_036_854_775_808.0;
    (-I64_RANGE_END..I64_RANGE_END).contains(&whole).then_some(whole as i64)
}

pub(super) fn integer_overflow_problem(number: &dyn fmt::Display) -> Problem {
    Problem::bad_request(format!("{number} does not fit 64 bits"))
}

/// The result, unless it is one that no argument explains.
pub(super) fn check_float_result(
    what: impl Fn() -> String,
    args: &[MathNumber],
    result: f64,
) -> Result<f64> {
    if result.is_nan() && !args.iter().any(|arg| arg.is_nan()) {
        return Err(Problem::bad_request(format!("{} has no result", what())));
    }
    if result.is_infinite() && args.iter().all(|arg| arg.to_f64().is_finite()) {
        return Err(Problem::bad_request(format!("{} is too large for a number", what())));
    }
    Ok(result)
}

impl fmt::Display for MathNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            MathNumber::Int(int) => write!(f, "{int}"),
            MathNumber::Float(float) if float.is_nan() => f.write_str("NaN"),
            MathNumber::Float(f64::INFINITY) => f.write_str("infinity"),
            MathNumber::Float(f64::NEG_INFINITY) => f.write_str("-infinity"),
            // Plain digits would be three hundred of them.
            MathNumber::Float(float) if float.abs() >= 1e21 => write!(f, "{float:e}"),
            MathNumber::Float(float) => write!(f, "{float}"),
        }
    }
}

impl From<MathNumber> for Value {
    fn from(number: MathNumber) -> Self {
        match number {
            MathNumber::Int(int) => Value::Int(int),
            MathNumber::Float(float) => Value::Float(float),
        }
    }
}

impl<'de> Deserialize<'de> for MathNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Int(int) => Ok(MathNumber::Int(int)),
            Value::Float(float) => Ok(MathNumber::Float(float)),
            other => Err(D::Error::custom(format!("expected a number, got {}", other.kind()))),
        }
    }
}

impl JsonSchema for MathNumber {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Number".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "number"})
    }
}
