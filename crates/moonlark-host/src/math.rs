//! `math`: what Starlark lacks. Luau has its own.
//!
//! An integer stays one where the result is whole, and nothing is rounded in
//! silence. A result that does not exist, or that is too large for a number, is
//! a Problem; infinity and NaN come out only where one of them went in.

mod number;
mod round;

use std::f64::consts;

use moonlark_core::module::ScriptLanguage;
use moonlark_core::{Module, Problem, Result};
use moonlark_gateway::Call;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use number::MathNumber;

pub(crate) fn module() -> Module {
    let module = Module::new(
        "math",
        "Powers, roots, logarithms, rounding and angles in radians, for Starlark; Luau scripts \
         use Luau's own math. A result that does not exist, such as sqrt(-1), is an error.",
    )
    .pure()
    .only_for_language(ScriptLanguage::Starlark)
    .constant("pi", "The circumference of a circle of diameter 1.", consts::PI.into())
    .constant("e", "The base of natural logarithms.", consts::E.into())
    .constant("inf", "Infinity.", f64::INFINITY.into())
    .constant("nan", "Not a number.", f64::NAN.into());
    add_angle_functions(add_rounding_functions(add_power_functions(module)))
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

fn add_power_functions(module: Module) -> Module {
    module
        .function("pow", "x to the power of y; an integer if both are and y is not negative.", pow)
        .example(json!({"x": 2, "y": 10}), json!(1024))
        .example(json!({"x": 2, "y": -1}), json!(0.5))
        .fails(json!({"x": 2, "y": 64}), "does not fit 64 bits")
        .fails(json!({"x": -8, "y": 0.5}), "has no result")
        .function("sqrt", "The square root of x.", |_: &Call, MathUnaryArgs { x }| {
            apply_float_function("sqrt", x, f64::sqrt)
        })
        .example(json!({"x": 9}), json!(3.0))
        .fails(json!({"x": -1}), "sqrt of -1 has no result")
        .function("exp", "e to the power of x.", |_: &Call, MathUnaryArgs { x }| {
            apply_float_function("exp", x, f64::exp)
        })
        .example(json!({"x": 0}), json!(1.0))
        .fails(json!({"x": 1000}), "exp of 1000 is too large for a number")
        .function("log", "The logarithm of x, natural unless a base is given.", log)
        .positional_params(&["base"])
        .example(json!({"x": 1}), json!(0.0))
        .example(json!({"x": 1000, "base": 10}), json!(3.0))
        .fails(json!({"x": 0}), "log of 0 has no result")
        .function("hypot", "The length of the hypotenuse over x and y.", hypot)
        .example(json!({"x": 3, "y": 4}), json!(5.0))
        .fails(json!({"x": 3}), "y")
}

fn add_rounding_functions(module: Module) -> Module {
    module
        .function(
            "floor",
            "The largest integer that is not above x.",
            |_: &Call, MathUnaryArgs { x }| x.round_to_i64(f64::floor),
        )
        .example(json!({"x": -1.5}), json!(-2))
        .fails(json!({"x": 1e300}), "does not fit 64 bits")
        .function(
            "ceil",
            "The smallest integer that is not below x.",
            |_: &Call, MathUnaryArgs { x }| x.round_to_i64(f64::ceil),
        )
        .example(json!({"x": 1.2}), json!(2))
        .fails(json!({"x": "1.2"}), "expected a number")
        .function(
            "round",
            "The nearest integer, or the nearest number of so many decimal digits. What is \
             halfway goes away from zero.",
            round,
        )
        .positional_params(&["digits"])
        .example(json!({"x": 2.5}), json!(3))
        .example(json!({"x": 2.345, "digits": 1}), json!(2.3))
        .example(json!({"x": 1250, "digits": -2}), json!(1300))
        .fails(json!({"x": 1e19}), "does not fit 64 bits")
        .function("abs", "x without its sign.", abs)
        .example(json!({"x": -3}), json!(3))
        .example(json!({"x": -1.5}), json!(1.5))
        .fails(json!({"x": i64::MIN}), "does not fit 64 bits")
}

fn add_angle_functions(module: Module) -> Module {
    module
        .function("sin", "The sine of x radians.", |_: &Call, MathUnaryArgs { x }| {
            apply_float_function("sin", x, f64::sin)
        })
        .example(json!({"x": 0}), json!(0.0))
        .fails(json!({"x": "0"}), "expected a number")
        .function("cos", "The cosine of x radians.", |_: &Call, MathUnaryArgs { x }| {
            apply_float_function("cos", x, f64::cos)
        })
        .example(json!({"x": 0}), json!(1.0))
        .fails(json!({"x": []}), "expected a number")
        .function("tan", "The tangent of x radians.", |_: &Call, MathUnaryArgs { x }| {
            apply_float_function("tan", x, f64::tan)
        })
        .example(json!({"x": 0}), json!(0.0))
        .fails(json!({}), "x")
        .function("asin", "The angle whose sine is x.", |_: &Call, MathUnaryArgs { x }| {
            apply_float_function("asin", x, f64::asin)
        })
        .example(json!({"x": 0}), json!(0.0))
        .fails(json!({"x": 2}), "asin of 2 has no result")
        .function("acos", "The angle whose cosine is x.", |_: &Call, MathUnaryArgs { x }| {
            apply_float_function("acos", x, f64::acos)
        })
        .example(json!({"x": 1}), json!(0.0))
        .fails(json!({"x": -1.5}), "acos of -1.5 has no result")
        .function("atan", "The angle whose tangent is x.", |_: &Call, MathUnaryArgs { x }| {
            apply_float_function("atan", x, f64::atan)
        })
        .example(json!({"x": 0}), json!(0.0))
        .fails(json!({"x": true}), "expected a number")
        .function("atan2", "The angle of the point (x, y), from -pi to pi.", atan2)
        .example(json!({"y": 0, "x": 1}), json!(0.0))
        .fails(json!({"y": 1}), "x")
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MathUnaryArgs {
    /// A number.
    x: MathNumber,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MathBinaryArgs {
    /// A number.
    x: MathNumber,
    /// Another number.
    y: MathNumber,
}

fn pow(_: &Call, MathBinaryArgs { x, y }: MathBinaryArgs) -> Result<MathNumber> {
    if let (MathNumber::Int(base), MathNumber::Int(exponent @ 0..)) = (x, y) {
        // Beyond 2^32 only -1, 0 and 1 have a result that fits.
        let power = match u32::try_from(exponent) {
            Ok(exponent) => base.checked_pow(exponent),
            Err(_) if base == -1 && exponent % 2 != 0 => Some(-1),
            Err(_) => (-1..=1).contains(&base).then_some(base.abs()),
        };
        return power.map(MathNumber::Int).ok_or_else(|| {
            Problem::bad_request(format!("{x} to the power of {y} does not fit 64 bits"))
                .with_hint(format!("pass a float for an approximate result: pow({x}.0, {y})"))
        });
    }
    let pole = x.to_f64() == 0.0 && y.to_f64() < 0.0;
    let power = if pole { f64::NAN } else { x.to_f64().powf(y.to_f64()) };
    number::check_float_result(|| format!("{x} to the power of {y}"), &[x, y], power)
        .map(MathNumber::Float)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MathLogArgs {
    /// A number above zero.
    x: MathNumber,
    /// The base, above zero and not 1.
    base: Option<MathNumber>,
}

fn log(_: &Call, MathLogArgs { x, base }: MathLogArgs) -> Result<f64> {
    let Some(base) = base else { return apply_float_function("log", x, f64::ln) };
    // These two are exact where a quotient of logarithms is not.
    let result = match base.to_f64() {
        2.0 => x.to_f64().log2(),
        10.0 => x.to_f64().log10(),
        base => x.to_f64().ln() / base.ln(),
    };
    let exists = x.to_f64() > 0.0 && base.to_f64() > 0.0;
    let result = if exists || x.is_nan() || base.is_nan() { result } else { f64::NAN };
    number::check_float_result(|| format!("log of {x} to base {base}"), &[x, base], result)
}

fn hypot(_: &Call, MathBinaryArgs { x, y }: MathBinaryArgs) -> Result<f64> {
    number::check_float_result(
        || format!("hypot of {x} and {y}"),
        &[x, y],
        x.to_f64().hypot(y.to_f64()),
    )
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MathRoundArgs {
    /// A number.
    x: MathNumber,
    /// Digits after the point; negative ones are before it.
    digits: Option<i64>,
}

fn round(_: &Call, MathRoundArgs { x, digits }: MathRoundArgs) -> Result<MathNumber> {
    round::round_to_digits(x, digits)
}

fn abs(_: &Call, MathUnaryArgs { x }: MathUnaryArgs) -> Result<MathNumber> {
    match x {
        MathNumber::Float(float) => Ok(MathNumber::Float(float.abs())),
        MathNumber::Int(int) => match int.checked_abs() {
            Some(int) => Ok(MathNumber::Int(int)),
            None => Err(number::integer_overflow_problem(&int.unsigned_abs())),
        },
    }
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MathAtan2Args {
    /// How far up.
    y: MathNumber,
    /// How far right.
    x: MathNumber,
}

fn atan2(_: &Call, MathAtan2Args { y, x }: MathAtan2Args) -> Result<f64> {
    Ok(y.to_f64().atan2(x.to_f64()))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MathGcdArgs {
    /// An integer.
    a: MathNumber,
    /// Another integer.
    b: MathNumber,
}

fn gcd(_: &Call, MathGcdArgs { a, b }: MathGcdArgs) -> Result<i64> {
    let (mut a, mut b) = (a.to_exact_i64("a")?.unsigned_abs(), b.to_exact_i64("b")?.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    i64::try_from(a).map_err(|_| number::integer_overflow_problem(&a))
}

fn isnan(_: &Call, MathUnaryArgs { x }: MathUnaryArgs) -> Result<bool> {
    Ok(x.is_nan())
}

fn isinf(_: &Call, MathUnaryArgs { x }: MathUnaryArgs) -> Result<bool> {
    Ok(x.to_f64().is_infinite())
}

fn apply_float_function(name: &str, x: MathNumber, function: fn(f64) -> f64) -> Result<f64> {
    let result = function(x.to_f64());
    // A pole, not an overflow: the two look the same from here on.
    let result = if name == "log" && x.to_f64() == 0.0 { f64::NAN } else { result };
    number::check_float_result(|| format!("{name} of {x}"), &[x], result)
}

#[cfg(test)]
mod tests;
