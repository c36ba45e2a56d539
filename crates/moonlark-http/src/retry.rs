//! When to try again: what a server says in `Retry-After`, or else ever longer pauses.

use std::time::Duration;

use http::HeaderMap;
use http::header::RETRY_AFTER;
use jiff::Timestamp;

/// How long the server asks to wait, if it says so in a way that can be read.
pub fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    parse_retry_after(headers.get(RETRY_AFTER)?.to_str().ok()?.trim(), Timestamp::now())
}

/// The same in whole seconds, never fewer than asked for.
pub fn retry_after_seconds(headers: &HeaderMap) -> Option<u32> {
    let wait = retry_after(headers)?;
    let whole = wait.as_secs() + u64::from(wait.subsec_nanos() > 0);
    Some(u32::try_from(whole).unwrap_or(u32::MAX))
}

/// The pause before the next try after `tries` earlier ones: `first`, and then twice as
/// long each time, up to `max`.
pub fn backoff_pause(first: Duration, max: Duration, tries: u32) -> Duration {
    first.saturating_mul(1 << tries.min(16)).min(max)
}

/// Seconds, or a date.
fn parse_retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    // No standard has fractions, but some services send them.
    if let Ok(seconds) = text.parse() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let then = jiff::fmt::rfc2822::parse(text).ok()?.timestamp();
    Some(Duration::try_from(then.duration_since(now)).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now: Timestamp = "2023-11-14T22:13:20Z".parse().unwrap();
        let after = |text: &str| parse_retry_after(text, now).map(|wait| wait.as_secs());
        assert_eq!(after("120"), Some(120));
        assert_eq!(after("Tue, 14 Nov 2023 22:14:20 GMT"), Some(60));
        assert_eq!(after("Tue, 14 Nov 2023 22:00:00 GMT"), Some(0));
        for wrong in ["soon", "", "-1", "inf", "NaN"] {
            assert_eq!(after(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn whole_seconds_are_rounded_up_and_bounded() {
        let seconds = |text: &str| {
            retry_after_seconds(&HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]))
        };
        assert_eq!(seconds("7"), Some(7));
        assert_eq!(seconds("0.5"), Some(1));
        assert_eq!(seconds("99999999999"), Some(u32::MAX));
    }

    #[test]
    fn pauses_double_up_to_the_longest() {
        let pause = |tries| {
            backoff_pause(Duration::from_millis(250), Duration::from_secs(10), tries).as_millis()
        };
        assert_eq!(
            [pause(0), pause(1), pause(5), pause(6), pause(99)],
            [250, 500, 8000, 10000, 10000]
        );
    }
}
