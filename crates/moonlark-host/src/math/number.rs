//! Numbers as arguments and results: integers and floats stay apart.

use std::borrow::Cow;
use std::fmt;

use moonlark_core::{Problem, Result, Value};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error};

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    pub(super) fn float(self) -> f64 {
        match self {
            Number::Int(int) => int as f64,
            Number::Float(float) => float,
        }
    }

    pub(super) fn is_nan(self) -> bool {
        self.float().is_nan()
    }

    /// The integer that `round` makes of it.
    pub(super) fn whole(self, round: fn(f64) -> f64) -> Result<i64> {
        match self {
            Number::Int(int) => Ok(int),
            Number::Float(float) if !float.is_finite() => {
                Err(Problem::bad_request(format!("{self} has no nearest integer")))
            }
            Number::Float(float) => {
                let whole = round(float);
                fits(whole).ok_or_else(|| too_large(&Number::Float(whole)))
            }
        }
    }

    /// The integer that it is already.
    pub(super) fn integer(self, name: &str) -> Result<i64> {
        match self {
            Number::Int(int) => Ok(int),
            Number::Float(float) if float.fract() == 0.0 => {
                fits(float).ok_or_else(|| too_large(&self))
            }
            Number::Float(_) => {
                Err(Problem::bad_request(format!("{name}: expected an integer, got {self}")))
            }
        }
    }
}

/// A float without fraction as an integer.
fn fits(whole: f64) -> Option<i64> {
    // 2^63 is a float; the largest i64 is not.
    const END: f64 = 9_223_372_036_854_775_808.0;
    (-END..END).contains(&whole).then_some(whole as i64)
}

pub(super) fn too_large(number: &dyn fmt::Display) -> Problem {
    Problem::bad_request(format!("{number} does not fit 64 bits"))
}

/// The result, unless it is one that no argument explains.
pub(super) fn checked(what: impl Fn() -> String, args: &[Number], result: f64) -> Result<f64> {
    if result.is_nan() && !args.iter().any(|arg| arg.is_nan()) {
        return Err(Problem::bad_request(format!("{} has no result", what())));
    }
    if result.is_infinite() && args.iter().all(|arg| arg.float().is_finite()) {
        return Err(Problem::bad_request(format!("{} is too large for a number", what())));
    }
    Ok(result)
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Number::Int(int) => write!(f, "{int}"),
            Number::Float(float) if float.is_nan() => f.write_str("NaN"),
            Number::Float(f64::INFINITY) => f.write_str("infinity"),
            Number::Float(f64::NEG_INFINITY) => f.write_str("-infinity"),
            // Plain digits would be three hundred of them.
            Number::Float(float) if float.abs() >= 1e21 => write!(f, "{float:e}"),
            Number::Float(float) => write!(f, "{float}"),
        }
    }
}

impl From<Number> for Value {
    fn from(number: Number) -> Self {
        match number {
            Number::Int(int) => Value::Int(int),
            Number::Float(float) => Value::Float(float),
        }
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::Int(int) => Ok(Number::Int(int)),
            Value::Float(float) => Ok(Number::Float(float)),
            other => Err(D::Error::custom(format!("expected a number, got {}", other.kind()))),
        }
    }
}

impl JsonSchema for Number {
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
