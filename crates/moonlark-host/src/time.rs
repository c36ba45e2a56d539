//! `time`: the clock, and times as text.

use std::sync::LazyLock;
use std::time::Instant;

use jiff::civil::DateTime;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use moonlark_core::value::shorten_text;
use moonlark_core::{Module, Problem, Result};
use moonlark_gateway::Call;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::args::NoArgs;

pub(crate) fn module() -> Module {
    Module::new("time", "Read the clock; write and read times. Times are Unix seconds.")
        .pure()
        .function("now", "The time now, in seconds since 1970 with a fraction.", now)
        .varying_example(json!({}))
        .function("format", "Write a time as text, as RFC 3339 unless a format is given.", format)
        .positional_params(&["timestamp", "format", "timezone"])
        .example(json!({"timestamp": 1700000000}), json!("2023-11-14T22:13:20Z"))
        .example(
            json!({"timestamp": 1700000000, "format": "%d.%m.%Y %H:%M", "timezone": "Europe/Berlin"}),
            json!("14.11.2023 23:13"),
        )
        .varying_example(json!({}))
        .fails(json!({"timestamp": 1e300}), "out of range")
        .fails(json!({"timestamp": 0, "format": "%!"}), "format")
        .fails(json!({"timestamp": 0, "timezone": "Moon/Base"}), "no time zone is named Moon/Base")
        .function(
            "parse",
            "Read a time from text. Without a format: RFC 3339, or RFC 2822 as in HTTP and mail; \
             a time without an offset is UTC.",
            parse,
        )
        .positional_params(&["format"])
        .example(json!({"text": "2023-11-14T22:13:20Z"}), json!(1700000000.0))
        .example(json!({"text": "2023-11-14"}), json!(1699920000.0))
        .example(json!({"text": "Tue, 14 Nov 2023 22:13:20 GMT"}), json!(1700000000.0))
        .example(json!({"text": "14.11.2023 23", "format": "%d.%m.%Y %H"}), json!(1700002800.0))
        .fails(json!({"text": "yesterday"}), "cannot read \"yesterday\" as a time")
        .fails(json!({"text": "14", "format": "%Y-%m"}), "cannot read \"14\" as a time")
        .function("monotonic", "Seconds on a clock that is never set back, to measure with.", monotonic)
        .varying_example(json!({}))
}

fn now(call: &Call, _: NoArgs) -> Result<f64> {
    Ok(to_unix_seconds(current_time(call)))
}

/// As the script sees it: a run that is resumed sees the same times again.
fn current_time(call: &Call) -> Timestamp {
    Timestamp::try_from(call.current_time()).unwrap_or_else(|_| Timestamp::now())
}

fn monotonic(call: &Call, _: NoArgs) -> Result<f64> {
    static PROCESS_START: LazyLock<Instant> = LazyLock::new(Instant::now);
    Ok(call.run_clock().unwrap_or_else(|| PROCESS_START.elapsed()).as_secs_f64())
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TimeFormatArgs {
    /// Unix seconds; now when not given.
    timestamp: Option<f64>,
    /// As in strftime, such as `%Y-%m-%d %H:%M:%S`.
    format: Option<String>,
    /// A name such as `Europe/Berlin`; UTC when not given.
    timezone: Option<String>,
}

fn format(call: &Call, args: TimeFormatArgs) -> Result<String> {
    let at = args.timestamp.map_or_else(|| Ok(current_time(call)), timestamp_from_seconds)?;
    let zone = args.timezone.as_deref().map_or(Ok(TimeZone::UTC), find_time_zone)?;
    let Some(format) = args.format else {
        return Ok(match args.timezone {
            None => at.to_string(),
            Some(_) => at.display_with_offset(zone.to_offset(at)).to_string(),
        });
    };
    check_format(&format)?;
    strtime::format(&format, &at.to_zoned(zone))
        .map_err(|error| bad_format_problem(&format, &error))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TimeParseArgs {
    /// A time as text.
    text: String,
    /// As in strptime, such as `%d.%m.%Y`.
    format: Option<String>,
}

fn parse(_: &Call, args: TimeParseArgs) -> Result<f64> {
    let text = args.text.trim();
    let unreadable = |why: String| {
        Problem::bad_request(format!("cannot read {:?} as a time: {why}", shorten_text(text)))
    };
    if text.len() > MAX_TIME_TEXT_BYTES {
        return Err(unreadable("it is too long".to_owned()));
    }
    let Some(format) = args.format else {
        return parse_standard_time(text).map(to_unix_seconds).ok_or_else(|| {
            unreadable("it is neither RFC 3339 nor RFC 2822".to_owned())
                .with_hint("times look like 2023-11-14T22:13:20Z; for others, give a format")
        });
    };
    check_format(&format)?;
    let parsed =
        strtime::parse(&format, text).map_err(|error| unreadable(error_first_line(&error)))?;
    let instant = match parsed.offset() {
        Some(_) => parsed.to_timestamp(),
        None => parsed
            .to_datetime()
            .or_else(|_| parsed.to_date().map(DateTime::from))
            .and_then(civil_to_utc),
    };
    instant.map(to_unix_seconds).map_err(|error| unreadable(error_first_line(&error)))
}

/// Times are short; reasons for not reading one repeat it.
const MAX_TIME_TEXT_BYTES: usize = 200;

fn parse_standard_time(text: &str) -> Option<Timestamp> {
    text.parse::<Timestamp>()
        .or_else(|_| text.parse::<Zoned>().map(|zoned| zoned.timestamp()))
        .or_else(|_| text.parse::<DateTime>().and_then(civil_to_utc))
        .or_else(|_| jiff::fmt::rfc2822::parse(text).map(|zoned| zoned.timestamp()))
        .ok()
}

fn civil_to_utc(civil: DateTime) -> Result<Timestamp, jiff::Error> {
    TimeZone::UTC.to_timestamp(civil)
}

fn timestamp_from_seconds(seconds: f64) -> Result<Timestamp> {
    // A double holds microseconds for the years people write about; what is
    // below that is noise, not time.
    let micros = (seconds * 1e6).round();
    // The cast saturates, and what saturated is out of range as well.
    Timestamp::from_microsecond(micros as i64)
        .ok()
        .filter(|_| micros.is_finite())
        .ok_or_else(|| Problem::bad_request(format!("the timestamp {seconds} is out of range")))
}

fn to_unix_seconds(instant: Timestamp) -> f64 {
    instant.as_microsecond() as f64 / 1e6
}

fn find_time_zone(name: &str) -> Result<TimeZone> {
    TimeZone::get(name).map_err(|_| {
        Problem::bad_request(format!("no time zone is named {}", shorten_text(name)))
            .with_hint("time zones have names such as Europe/Berlin and UTC")
    })
}

/// Widths in a format multiply it, so a long one is not a format but an attack.
fn check_format(format: &str) -> Result<()> {
    if format.len() > 1000 {
        return Err(Problem::bad_request("the format is longer than 1000 bytes"));
    }
    Ok(())
}

fn bad_format_problem(format: &str, error: &jiff::Error) -> Problem {
    let why = error_first_line(error);
    Problem::bad_request(format!("the format {:?} does not work: {why}", shorten_text(format)))
}

fn error_first_line(error: &jiff::Error) -> String {
    error.to_string().lines().next().unwrap_or_default().to_owned()
}
