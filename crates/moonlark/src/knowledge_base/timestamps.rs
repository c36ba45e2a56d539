//! Timestamps as people and APIs write them.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use moonlark_core::{Problem, Result, Value};

/// RFC 3339, the same without a zone or a time (then UTC and midnight), or
/// seconds since 1970.
pub(crate) fn read_timestamp(value: &Value) -> Option<Timestamp> {
    match value {
        Value::Str(text) => parse_timestamp(text),
        Value::Int(seconds) => Timestamp::from_second(*seconds).ok(),
        Value::Float(seconds) => {
            let nanos = (seconds * 1e9).round();
            // What does not fit is no time, and neither is what is not a number.
            (nanos.abs() < 1e30).then(|| Timestamp::from_nanosecond(nanos as i128).ok())?
        }
        _ => None,
    }
}

fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    let utc = |local: DateTime| local.to_zoned(TimeZone::UTC).ok().map(|it| it.timestamp());
    text.parse().ok().or_else(|| text.parse::<DateTime>().ok().and_then(utc))
}

/// The beginning of a period that somebody asked for.
pub(crate) fn parse_since(text: &str) -> Result<Timestamp> {
    parse_timestamp(text).ok_or_else(|| bad_time_problem("since", text))
}

/// Its end: a day without a time is meant as a whole.
pub(crate) fn parse_until(text: &str) -> Result<Timestamp> {
    let time = parse_timestamp(text).ok_or_else(|| bad_time_problem("until", text))?;
    let whole_day = !text.contains([':', 'T', 't']);
    if !whole_day {
        return Ok(time);
    }
    let last = time.checked_add(24.hours()).and_then(|end| end.checked_sub(1.nanosecond()));
    Ok(last.unwrap_or(time))
}

fn bad_time_problem(what: &str, text: &str) -> Problem {
    let text = moonlark_core::value::shorten_text(text);
    Problem::bad_request(format!("{what} is not a time: {text:?}"))
        .with_hint("write a date such as 2026-01-31, or a time such as 2026-01-31T12:00:00Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_and_apis_write_them() {
        for (text, expected) in [
            ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"),
            ("2026-01-31T13:00:00+01:00", "2026-01-31T12:00:00Z"),
            ("2026-01-31T13:00:00.000+0100", "2026-01-31T12:00:00Z"),
            ("2026-01-31 12:00:00", "2026-01-31T12:00:00Z"),
            ("2026-01-31T12:00:00", "2026-01-31T12:00:00Z"),
            (" 2026-01-31 ", "2026-01-31T00:00:00Z"),
        ] {
            let read = read_timestamp(&Value::from(text)).map(|time| time.to_string());
            assert_eq!(read.as_deref(), Some(expected), "{text}");
        }
        for wrong in ["", "soon", "31.01.2026", "2026-13-01", "12:00"] {
            assert_eq!(read_timestamp(&Value::from(wrong)), None, "{wrong}");
        }
        let half = read_timestamp(&Value::Float(0.5)).map(|time| time.to_string());
        assert_eq!(half.as_deref(), Some("1970-01-01T00:00:00.5Z"));
        for wrong in [f64::NAN, f64::INFINITY, 1e300] {
            assert_eq!(read_timestamp(&Value::Float(wrong)), None);
        }
    }

    #[test]
    fn a_period_ends_with_the_whole_of_its_last_day() {
        let shown = |time: Timestamp| time.to_string();
        assert_eq!(shown(parse_since("2026-01-31").unwrap()), "2026-01-31T00:00:00Z");
        assert_eq!(shown(parse_until("2026-01-31").unwrap()), "2026-01-31T23:59:59.999999999Z");
        assert_eq!(shown(parse_until("2026-01-31T10:00:00Z").unwrap()), "2026-01-31T10:00:00Z");
        assert_eq!(parse_until("never").unwrap_err().message, "until is not a time: \"never\"");
    }
}
