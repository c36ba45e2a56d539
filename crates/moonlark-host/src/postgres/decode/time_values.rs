//! Times and dates as ISO 8601 text. PostgreSQL knows years that `jiff` does not.

use jiff::{Span, civil::date};
use moonlark_core::Value;

use super::{read_fixed, take_bytes};

/// Microseconds.
const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;

/// Days since 2000.
pub(super) fn decode_date(bytes: &[u8]) -> Option<Value> {
    Some(match i32::from_be_bytes(read_fixed(bytes)?) {
        i32::MAX => "infinity".into(),
        i32::MIN => "-infinity".into(),
        days => format_date(days.into()).into(),
    })
}

/// Microseconds since midnight.
pub(super) fn decode_time(bytes: &[u8]) -> Option<Value> {
    let micros = i64::from_be_bytes(read_fixed(bytes)?);
    (0..=MICROS_PER_DAY).contains(&micros).then(|| format_clock(micros).into())
}

/// The same, and how many seconds it is west of Greenwich.
pub(super) fn decode_time_with_zone(mut bytes: &[u8]) -> Option<Value> {
    let micros = i64::from_be_bytes(take_bytes(&mut bytes)?);
    let west = i32::from_be_bytes(read_fixed(bytes)?);
    let (sign, away) = if west > 0 { ('-', west) } else { ('+', west.checked_neg()?) };
    let mut zone = format!("{sign}{:02}:{:02}", away / 3600, away / 60 % 60);
    if away % 60 != 0 {
        zone.push_str(&format!(":{:02}", away % 60));
    }
    (0..=MICROS_PER_DAY).contains(&micros).then(|| format!("{}{zone}", format_clock(micros)).into())
}

/// Microseconds since 2000; `zone` is written behind.
pub(super) fn decode_timestamp(bytes: &[u8], zone: &str) -> Option<Value> {
    Some(match i64::from_be_bytes(read_fixed(bytes)?) {
        i64::MAX => "infinity".into(),
        i64::MIN => "-infinity".into(),
        micros => {
            let (days, rest) =
                (micros.div_euclid(MICROS_PER_DAY), micros.rem_euclid(MICROS_PER_DAY));
            format!("{}T{}{zone}", format_date(days), format_clock(rest)).into()
        }
    })
}

/// Microseconds, days and months, each with a sign of its own.
pub(super) fn decode_interval(mut bytes: &[u8]) -> Option<Value> {
    let micros = i64::from_be_bytes(take_bytes(&mut bytes)?);
    let days = i32::from_be_bytes(take_bytes(&mut bytes)?);
    let months = i32::from_be_bytes(read_fixed(bytes)?);
    let part = |amount: i64, unit: char| match amount {
        0 => String::new(),
        amount => format!("{amount}{unit}"),
    };
    let (years, months) = (part((months / 12).into(), 'Y'), part((months % 12).into(), 'M'));
    let mut text = format!("P{years}{months}{}", part(days.into(), 'D'));
    if micros != 0 {
        let hours = part(micros / (3600 * MICROS_PER_SECOND), 'H');
        let minutes = part(micros / (60 * MICROS_PER_SECOND) % 60, 'M');
        text.push_str(&format!("T{hours}{minutes}"));
        let rest = micros % (60 * MICROS_PER_SECOND);
        if rest != 0 {
            let sign = if rest < 0 { "-" } else { "" };
            let rest = rest.abs();
            text.push_str(&format!(
                "{sign}{}{}S",
                rest / MICROS_PER_SECOND,
                format_fraction(rest % MICROS_PER_SECOND)
            ));
        }
    }
    Some(if text == "P" { "PT0S".into() } else { text.into() })
}

fn format_clock(micros: i64) -> String {
    let seconds = micros / MICROS_PER_SECOND;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{hour:02}:{minute:02}:{second:02}{}", format_fraction(micros % MICROS_PER_SECOND))
}

fn format_fraction(micros: i64) -> String {
    match micros {
        0 => String::new(),
        micros => format!(".{micros:06}").trim_end_matches('0').to_owned(),
    }
}

/// The date `days` after 2000-01-01.
fn format_date(days: i64) -> String {
    /// After which the calendar repeats: 400 years.
    const DAYS_PER_ERA: i64 = 146_097;
    let (era, day) = (days.div_euclid(DAYS_PER_ERA), days.rem_euclid(DAYS_PER_ERA));
    let date = date(2000, 1, 1).saturating_add(Span::new().days(day));
    let (year, month, day) = (era * 400 + i64::from(date.year()), date.month(), date.day());
    match year {
        0..=9999 => format!("{year:04}-{month:02}-{day:02}"),
        // Years with more digits, and those before our era, show their sign.
        _ => format!("{year:+05}-{month:02}-{day:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (days, expected) in [
            (0, "2000-01-01"),
            (-1, "1999-12-31"),
            (59, "2000-02-29"),
            (60, "2000-03-01"),
            (366, "2001-01-01"),
            (-10_957, "1970-01-01"),
            (-730_119, "0001-01-01"),
            (-730_120, "0000-12-31"),
            (-2_451_545 + 38, "-4712-01-01"),
            (2_921_939, "9999-12-31"),
            (2_921_940, "+10000-01-01"),
        ] {
            assert_eq!(format_date(days), expected, "{days}");
        }
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut date = date(1, 1, 1);
        for days in (-730_119..2_900_000).step_by(17) {
            assert_eq!(format_date(days), date.to_string());
            date = date.checked_add(Span::new().days(17)).unwrap();
        }
    }
}
