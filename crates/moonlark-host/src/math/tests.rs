use std::path::Path;

use moonlark_core::Value;

use crate::test_calls::{call_value, scope};

async fn run<const N: usize>(function: &str, args: [(&str, Value); N]) -> String {
    let scope = scope(Path::new("."), &[]);
    match call_value(scope, &format!("math.{function}"), Value::from_fields(args)).await {
        Ok(Value::Int(int)) => format!("{int}"),
        Ok(Value::Float(float)) => format!("{float:?}"),
        Ok(other) => format!("{other:?}"),
        Err(problem) => problem.message,
    }
}

async fn of(function: &str, x: impl Into<Value>) -> String {
    run(function, [("x", x.into())]).await
}

#[tokio::test]
async fn infinity_and_nan_come_out_only_where_they_went_in() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    assert_eq!(of("sqrt", inf).await, "inf");
    assert_eq!(of("sqrt", nan).await, "NaN");
    assert_eq!(of("log", inf).await, "inf");
    assert_eq!(of("exp", -inf).await, "0.0");
    assert_eq!(of("atan", inf).await, "1.5707963267948966");
    assert_eq!(of("isnan", nan).await, "Bool(true)");
    assert_eq!(of("isinf", -inf).await, "Bool(true)");
    assert_eq!(of("sin", inf).await, "math.sin: sin of infinity has no result");
    assert_eq!(of("log", -1i64).await, "math.log: log of -1 has no result");
    assert_eq!(of("exp", 1e9).await, "math.exp: exp of 1000000000 is too large for a number");
    assert_eq!(
        run("pow", [("x", Value::Int(0)), ("y", Value::Int(-1))]).await,
        "math.pow: 0 to the power of -1 has no result"
    );
    assert_eq!(of("floor", nan).await, "math.floor: NaN has no nearest integer");
    assert_eq!(of("round", -inf).await, "math.round: -infinity has no nearest integer");
    assert_eq!(
        run("hypot", [("x", 1e308.into()), ("y", 1e308.into())]).await,
        "1.4142135623730951e308"
    );
}

#[tokio::test]
async fn logarithms_have_a_base_above_zero_other_than_one() {
    let log = |x: f64, base: f64| run("log", [("x", x.into()), ("base", base.into())]);
    assert_eq!(log(8.0, 2.0).await, "3.0");
    assert_eq!(log(9.0, 3.0).await, "2.0");
    assert_eq!(log(0.0, 10.0).await, "math.log: log of 0 to base 10 has no result");
    assert_eq!(log(-8.0, -2.0).await, "math.log: log of -8 to base -2 has no result");
    assert_eq!(log(5.0, 0.0).await, "math.log: log of 5 to base 0 has no result");
    assert!(log(5.0, 1.0).await.starts_with("math.log: log of 5 to base 1 "));
    assert_eq!(log(1.0, 1.0).await, "math.log: log of 1 to base 1 has no result");
    assert_eq!(log(f64::NAN, 2.0).await, "NaN");
}

#[tokio::test]
async fn integers_keep_64_bits() {
    let max = i64::MAX;
    assert_eq!(of("floor", max).await, max.to_string());
    assert_eq!(of("abs", -max).await, max.to_string());
    assert_eq!(
        run("pow", [("x", Value::Int(3)), ("y", Value::Int(39))]).await,
        "4052555153018976267"
    );
    assert_eq!(run("pow", [("x", Value::Int(-1)), ("y", Value::Int(max))]).await, "-1");
    assert_eq!(run("pow", [("x", Value::Int(-1)), ("y", Value::Int(max - 1))]).await, "1");
    assert_eq!(run("pow", [("x", Value::Int(0)), ("y", Value::Int(max))]).await, "0");
    assert_eq!(
        run("pow", [("x", Value::Int(2)), ("y", Value::Int(max))]).await,
        "math.pow: 2 to the power of 9223372036854775807 does not fit 64 bits"
    );
    assert_eq!(run("gcd", [("a", Value::Int(max)), ("b", Value::Int(0))]).await, max.to_string());
    assert_eq!(run("gcd", [("a", 4.0.into()), ("b", Value::Int(6))]).await, "2");
    assert_eq!(
        run("gcd", [("a", Value::Int(i64::MIN)), ("b", Value::Int(0))]).await,
        "math.gcd: 9223372036854775808 does not fit 64 bits"
    );
}
