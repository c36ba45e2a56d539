//! `math`: what Starlark lacks. Luau has its own.
//!
//! An integer stays one where the result is whole, and nothing is rounded in
//! silence. A result that does not exist, or that is too large for a number, is
//! a Problem; infinity and NaN come out only where one of them went in.

mod number;
mod round;

use std::f64::consts;

use moonlark_core::module::Language;
use moonlark_core::{Call, Module, Problem, Result};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use number::Number;

pub(crate) fn module() -> Module {
    let module = Module::new(
        "math",
        "Powers, roots, logarithms, rounding and angles in radians, for Starlark; Luau scripts \
         use Luau's own math. A result that does not exist, such as sqrt(-1), is an error.",
    )
    .pure()
    .only_for(Language::Starlark)
    .constant("pi", "The circumference of a circle of diameter 1.", consts::PI.into())
    .constant("e", "The base of natural logarithms.", consts::E.into())
    .constant("inf", "Infinity.", f64::INFINITY.into())
    .constant("nan", "Not a number.", f64::NAN.into());
    angles(rounding(powers(module)))
        .function("gcd", "The greatest common divisor of two integers.", gcd)
        .example(json!({"a": 12, "b": -18}), json!(6))
        .fails(json!({"a": 1.5, "b": 2}), "expected an integer")
        .function("isnan", "Whether x is not a number.", isnan)
        .example(json!({"x": 1}), json!(false))
        .fails(json!({"x": "1"}), "expected a number")
        .function("isinf", "Whether x is infinity or minus infinity.", isinf)
        .example(json!({"x": 1.5}), json!(false))
        .fails(json!({"x": false}), "expected a number")
}

fn powers(module: Module) -> Module {
    module
        .function("pow", "x to the power of y; an integer if both are and y is not negative.", pow)
        .example(json!({"x": 2, "y": 10}), json!(1024))
        .example(json!({"x": 2, "y": -1}), json!(0.5))
        .fails(json!({"x": 2, "y": 64}), "does not fit 64 bits")
        .fails(json!({"x": -8, "y": 0.5}), "has no result")
        .function("sqrt", "The square root of x.", |_, X { x }| float("sqrt", x, f64::sqrt))
        .example(json!({"x": 9}), json!(3.0))
        .fails(json!({"x": -1}), "sqrt of -1 has no result")
        .function("exp", "e to the power of x.", |_, X { x }| float("exp", x, f64::exp))
        .example(json!({"x": 0}), json!(1.0))
        .fails(json!({"x": 1000}), "exp of 1000 is too large for a number")
        .function("log", "The logarithm of x, natural unless a base is given.", log)
        .positional(&["base"])
        .example(json!({"x": 1}), json!(0.0))
        .example(json!({"x": 1000, "base": 10}), json!(3.0))
        .fails(json!({"x": 0}), "log of 0 has no result")
        .function("hypot", "The length of the hypotenuse over x and y.", hypot)
        .example(json!({"x": 3, "y": 4}), json!(5.0))
        .fails(json!({"x": 3}), "y")
}

fn rounding(module: Module) -> Module {
    module
        .function("floor", "The largest integer that is not above x.", |_, X { x }| {
            x.whole(f64::floor)
        })
        .example(json!({"x": -1.5}), json!(-2))
        .fails(json!({"x": 1e300}), "does not fit 64 bits")
        .function("ceil", "The smallest integer that is not below x.", |_, X { x }| {
            x.whole(f64::ceil)
        })
        .example(json!({"x": 1.2}), json!(2))
        .fails(json!({"x": "1.2"}), "expected a number")
        .function(
            "round",
            "The nearest integer, or the nearest number of so many decimal digits. What is \
             halfway goes away from zero.",
            round,
        )
        .positional(&["digits"])
        .example(json!({"x": 2.5}), json!(3))
        .example(json!({"x": 2.345, "digits": 1}), json!(2.3))
        .example(json!({"x": 1250, "digits": -2}), json!(1300))
        .fails(json!({"x": 1e19}), "does not fit 64 bits")
        .function("abs", "x without its sign.", abs)
        .example(json!({"x": -3}), json!(3))
        .example(json!({"x": -1.5}), json!(1.5))
        .fails(json!({"x": i64::MIN}), "does not fit 64 bits")
}

fn angles(module: Module) -> Module {
    module
        .function("sin", "The sine of x radians.", |_, X { x }| float("sin", x, f64::sin))
        .example(json!({"x": 0}), json!(0.0))
        .fails(json!({"x": "0"}), "expected a number")
        .function("cos", "The cosine of x radians.", |_, X { x }| float("cos", x, f64::cos))
        .example(json!({"x": 0}), json!(1.0))
        .fails(json!({"x": []}), "expected a number")
        .function("tan", "The tangent of x radians.", |_, X { x }| float("tan", x, f64::tan))
        .example(json!({"x": 0}), json!(0.0))
        .fails(json!({}), "x")
        .function("asin", "The angle whose sine is x.", |_, X { x }| float("asin", x, f64::asin))
        .example(json!({"x": 0}), json!(0.0))
        .fails(json!({"x": 2}), "asin of 2 has no result")
        .function("acos", "The angle whose cosine is x.", |_, X { x }| float("acos", x, f64::acos))
        .example(json!({"x": 1}), json!(0.0))
        .fails(json!({"x": -1.5}), "acos of -1.5 has no result")
        .function("atan", "The angle whose tangent is x.", |_, X { x }| float("atan", x, f64::atan))
        .example(json!({"x": 0}), json!(0.0))
        .fails(json!({"x": true}), "expected a number")
        .function("atan2", "The angle of the point (x, y), from -pi to pi.", atan2)
        .example(json!({"y": 0, "x": 1}), json!(0.0))
        .fails(json!({"y": 1}), "x")
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct X {
    /// A number.
    x: Number,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct XY {
    /// A number.
    x: Number,
    /// Another number.
    y: Number,
}

fn pow(_: &Call, XY { x, y }: XY) -> Result<Number> {
    if let (Number::Int(base), Number::Int(exponent @ 0..)) = (x, y) {
        // Beyond 2^32 only -1, 0 and 1 have a result that fits.
        let power = match u32::try_from(exponent) {
            Ok(exponent) => base.checked_pow(exponent),
            Err(_) if base == -1 && exponent % 2 != 0 => Some(-1),
            Err(_) => (-1..=1).contains(&base).then_some(base.abs()),
        };
        return power.map(Number::Int).ok_or_else(|| {
            Problem::bad_request(format!("{x} to the power of {y} does not fit 64 bits"))
                .hint(format!("pass a float for an approximate result: pow({x}.0, {y})"))
        });
    }
    let pole = x.float() == 0.0 && y.float() < 0.0;
    let power = if pole { f64::NAN } else { x.float().powf(y.float()) };
    number::checked(|| format!("{x} to the power of {y}"), &[x, y], power).map(Number::Float)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Log {
    /// A number above zero.
    x: Number,
    /// The base, above zero and not 1.
    #[serde(default)]
    base: Option<Number>,
}

fn log(_: &Call, Log { x, base }: Log) -> Result<f64> {
    let Some(base) = base else { return float("log", x, f64::ln) };
    // These two are exact where a quotient of logarithms is not.
    let result = match base.float() {
        2.0 => x.float().log2(),
        10.0 => x.float().log10(),
        base => x.float().ln() / base.ln(),
    };
    let exists = x.float() > 0.0 && base.float() > 0.0;
    let result = if exists || x.is_nan() || base.is_nan() { result } else { f64::NAN };
    number::checked(|| format!("log of {x} to base {base}"), &[x, base], result)
}

fn hypot(_: &Call, XY { x, y }: XY) -> Result<f64> {
    number::checked(|| format!("hypot of {x} and {y}"), &[x, y], x.float().hypot(y.float()))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Round {
    /// A number.
    x: Number,
    /// Digits after the point; negative ones are before it.
    #[serde(default)]
    digits: Option<i64>,
}

fn round(_: &Call, Round { x, digits }: Round) -> Result<Number> {
    round::to_digits(x, digits)
}

fn abs(_: &Call, X { x }: X) -> Result<Number> {
    match x {
        Number::Float(float) => Ok(Number::Float(float.abs())),
        Number::Int(int) => match int.checked_abs() {
            Some(int) => Ok(Number::Int(int)),
            None => Err(number::too_large(&int.unsigned_abs())),
        },
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Point {
    /// How far up.
    y: Number,
    /// How far right.
    x: Number,
}

fn atan2(_: &Call, Point { y, x }: Point) -> Result<f64> {
    Ok(y.float().atan2(x.float()))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Pair {
    /// An integer.
    a: Number,
    /// Another integer.
    b: Number,
}

fn gcd(_: &Call, Pair { a, b }: Pair) -> Result<i64> {
    let (mut a, mut b) = (a.integer("a")?.unsigned_abs(), b.integer("b")?.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    i64::try_from(a).map_err(|_| number::too_large(&a))
}

fn isnan(_: &Call, X { x }: X) -> Result<bool> {
    Ok(x.is_nan())
}

fn isinf(_: &Call, X { x }: X) -> Result<bool> {
    Ok(x.float().is_infinite())
}

fn float(name: &str, x: Number, function: fn(f64) -> f64) -> Result<f64> {
    let result = function(x.float());
    // A pole, not an overflow: the two look the same from here on.
    let result = if name == "log" && x.float() == 0.0 { f64::NAN } else { result };
    number::checked(|| format!("{name} of {x}"), &[x], result)
}

#[cfg(test)]
mod tests;
