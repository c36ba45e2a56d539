//! Rounding to decimal digits, exactly: what is halfway is decided by the
//! number itself and not by a product that was rounded on the way.

use moonlark_core::Result;

use super::number::{MathNumber, integer_overflow_problem};

/// No float has more digits after the point than this.
const MAX_FRACTION_DIGITS: i64 = 1074;

pub(super) fn round_to_digits(x: MathNumber, digits: Option<i64>) -> Result<MathNumber> {
    match (x, digits.unwrap_or(0)) {
        (MathNumber::Int(_), 0..) => Ok(x),
        (MathNumber::Float(float), 1..) if !float.is_finite() => Ok(x),
        (MathNumber::Float(float), digits @ 1..) => {
            Ok(MathNumber::Float(round_after_point(float, digits)))
        }
        (_, 0) => x.round_to_i64(f64::round).map(MathNumber::Int),
        (_, digits) => round_before_point(x.round_to_i64(f64::trunc)?, digits.unsigned_abs()),
    }
}

fn round_after_point(float: f64, digits: i64) -> f64 {
    if digits >= MAX_FRACTION_DIGITS {
        return float;
    }
    let places = digits as usize;
    // Written out in full, so this is the number and not its nearest relative.
    let exact = format!("{:.*}", MAX_FRACTION_DIGITS as usize, float.abs());
    let rest = exact.split_once('.').map_or("", |(_, fraction)| &fraction[places..]);
    let halfway = rest.starts_with('5') && rest[1..].bytes().all(|byte| byte == b'0');
    // Formatting rounds a tie to the even digit; the next float is no tie.
    let magnitude = if halfway { float.abs().next_up() } else { float.abs() };
    let rounded = format!("{magnitude:.places$}").parse().unwrap_or(float.abs());
    f64::copysign(rounded, float)
}

fn round_before_point(whole: i64, digits: u64) -> Result<MathNumber> {
    // Half of 10^20 is beyond 64 bits already, so everything rounds to zero.
    let Some(unit) = u32::try_from(digits).ok().and_then(|digits| 10i128.checked_pow(digits))
    else {
        return Ok(MathNumber::Int(0));
    };
    let (whole, half) = (i128::from(whole), unit / 2);
    let magnitude = (whole.abs() + half) / unit * unit;
    let rounded = whole.signum() * magnitude;
    i64::try_from(rounded).map(MathNumber::Int).map_err(|_| integer_overflow_problem(&rounded))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn float(x: f64, digits: i64) -> String {
        match round_to_digits(MathNumber::Float(x), Some(digits)) {
            Ok(MathNumber::Float(float)) => format!("{float:?}"),
            Ok(MathNumber::Int(int)) => int.to_string(),
            Err(problem) => problem.message,
        }
    }

    fn int(x: i64, digits: i64) -> String {
        match round_to_digits(MathNumber::Int(x), Some(digits)) {
            Ok(number) => number.to_string(),
            Err(problem) => problem.message,
        }
    }

    #[test]
    fn ties_go_away_from_zero_and_are_real_ones() {
        for (x, digits, expected) in [
            (0.125, 2, "0.13"),
            (-0.125, 2, "-0.13"),
            (0.5, 0, "1"),
            (-2.5, 0, "-3"),
            (0.49999999999999994, 0, "0"),
            // Below the half in binary, whatever a product says.
            (1.115, 2, "1.11"),
            (2.675, 2, "2.67"),
            (1.005, 2, "1.0"),
            (-0.04, 1, "-0.0"),
            (1e300, 5, "1e300"),
            (5e-324, 300, "0.0"),
            (5e-324, 2000, "5e-324"),
            (f64::INFINITY, 2, "inf"),
            (1234.5, -2, "1200"),
            (-1250.0, -2, "-1300"),
            (1249.9, -2, "1200"),
        ] {
            assert_eq!(float(x, digits), expected, "{x} to {digits}");
        }
    }

    #[test]
    fn integers_stay_integers() {
        assert_eq!(int(15, 3), "15");
        assert_eq!(int(15, -1), "20");
        assert_eq!(int(-15, -1), "-20");
        assert_eq!(int(i64::MIN, 0), i64::MIN.to_string());
        assert_eq!(int(i64::MIN, i64::MIN), "0");
        assert_eq!(int(i64::MAX, -30), "0");
        assert_eq!(int(i64::MAX, -1), "9223372036854775810 does not fit 64 bits");
        assert_eq!(
            int(6_000_000_000_000_000_000, -19),
            "10000000000000000000 does not fit 64 bits"
        );
    }
}
