//! Retry delays: what a server says in `Retry-After`, or else ever longer pauses.

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

/// Ever longer pauses between tries: each twice as long as the one before, up to a bound.
/// Every pause is between half and all of that, so that many who failed at the same time
/// do not come back at the same time.
#[derive(Debug, Clone)]
pub struct RetryBackoff {
    first: Duration,
    max: Duration,
    next: Duration,
}

impl RetryBackoff {
    pub const fn new(first: Duration, max: Duration) -> RetryBackoff {
        RetryBackoff { first, max, next: first }
    }

    /// How long to wait before the next try.
    pub fn next_pause(&mut self) -> Duration {
        let pause = self.next.min(self.max);
        self.next = pause.saturating_mul(2);
        add_jitter(pause)
    }

    /// It worked: the next pause is a short one again.
    pub fn reset(&mut self) {
        self.next = self.first;
    }
}

fn add_jitter(pause: Duration) -> Duration {
    let mut byte = [128];
    // Without chance it is the middle.
    let _ = getrandom::fill(&mut byte);
    pause.mul_f64(0.5 + f64::from(byte[0]) / 510.0)
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
    fn pauses_double_up_to_the_longest_and_are_never_shorter_than_half() {
        let mut backoff = RetryBackoff::new(Duration::from_millis(250), Duration::from_secs(10));
        for expected in [250, 500, 1000, 2000, 4000, 8000, 10000, 10000] {
            let pause = backoff.next_pause().as_millis();
            assert!((expected / 2..=expected).contains(&pause), "{pause} of {expected}");
        }
        backoff.reset();
        assert!(backoff.next_pause() <= Duration::from_millis(250));
    }
}
