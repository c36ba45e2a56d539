//! Rate limiter.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// `10/s`, `600/min`, `5000/h` or `3/day`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallRate {
    pub calls: u32,
    pub per: Duration,
}

/// The ways to write a unit; the first is how we write it.
const RATE_UNITS: [(&[&str], u64); 4] = [
    (&["s", "sec", "second"], 1),
    (&["min", "m", "minute"], 60),
    (&["h", "hour"], 3600),
    (&["day", "d"], 86400),
];

impl FromStr for CallRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("{text:?} is no rate such as \"10/s\", \"600/min\" or \"5000/h\"");
        let (calls, per) = text.split_once('/').ok_or_else(bad)?;
        let calls = calls.trim().parse().ok().filter(|it| *it > 0).ok_or_else(bad)?;
        let unit = RATE_UNITS.iter().find(|(names, _)| names.contains(&per.trim()));
        let (_, seconds) = unit.ok_or_else(bad)?;
        Ok(CallRate { calls, per: Duration::from_secs(*seconds) })
    }
}

impl fmt::Display for CallRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = RATE_UNITS.iter().find(|(_, seconds)| *seconds == self.per.as_secs());
        write!(f, "{}/{}", self.calls, unit.map_or("s", |(names, _)| names[0]))
    }
}

impl CallRate {
    /// When the next call may begin: `due` is what this said of the call before. As many
    /// calls as fit into the time may come at once, and then one at a time.
    pub fn next_start(self, due: Option<Instant>, now: Instant) -> Instant {
        let earliest = self.rested_since(now);
        due.map_or(earliest, |due| due.max(earliest))
    }

    /// When the call after one that begins at `start` is due.
    pub fn due_after(self, start: Instant) -> Instant {
        start + self.per / self.calls
    }

    /// Who was due by then has all calls of the time to make.
    fn rested_since(self, now: Instant) -> Instant {
        let burst = self.per.saturating_sub(self.per / self.calls);
        now.checked_sub(burst).unwrap_or(now)
    }
}

/// What is remembered at most. Whoever has not called for a while is forgotten
/// without being let off anything.
const MAX_RATE_LIMITED_KEYS: usize = 10_000;

/// Counts by key, so that a burst is let through and then one at a time.
#[derive(Default)]
pub(super) struct KeyedRateLimiter {
    /// When the next call may come if all that was saved up is used.
    due: Mutex<HashMap<String, Instant>>,
}

impl KeyedRateLimiter {
    /// Count a call, or say how long it is until one is let through.
    pub(super) fn try_pass(
        &self,
        key: String,
        rate: CallRate,
        now: Instant,
    ) -> Result<(), Duration> {
        let mut all = self.due.lock();
        let start = rate.next_start(all.get(&key).copied(), now);
        if start > now {
            return Err(start - now);
        }
        if all.len() >= MAX_RATE_LIMITED_KEYS && !all.contains_key(&key) {
            forget_idle_keys(&mut all, rate.rested_since(now));
        }
        all.insert(key, rate.due_after(start));
        Ok(())
    }
}

/// Forget those that have all saved up again, or else who soonest will.
fn forget_idle_keys(all: &mut HashMap<String, Instant>, earliest: Instant) {
    all.retain(|_, due| *due > earliest);
    if all.len() >= MAX_RATE_LIMITED_KEYS {
        let mut dues: Vec<Instant> = all.values().copied().collect();
        let (_, middle, _) = dues.select_nth_unstable(MAX_RATE_LIMITED_KEYS / 10);
        let middle = *middle;
        all.retain(|_, due| *due > middle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_let_through_and_then_one_at_a_time() {
        let meter = KeyedRateLimiter::default();
        let rate = "4/s".parse().unwrap();
        let now = Instant::now() + Duration::from_secs(10);
        let pass = |after: u64| {
            let at = now + Duration::from_millis(after);
            meter.try_pass("a".to_owned(), rate, at).map_err(|wait| wait.as_millis())
        };
        for after in [0, 0, 1, 2] {
            assert_eq!(pass(after), Ok(()));
        }
        assert_eq!(pass(2), Err(248));
        assert_eq!(pass(249), Err(1), "what is refused is not counted");
        assert_eq!(pass(250), Ok(()));
        assert_eq!(pass(250), Err(250));
        assert_eq!(pass(5000), Ok(()));
    }

    #[test]
    fn keys_are_counted_apart_and_those_at_rest_make_room() {
        let meter = KeyedRateLimiter::default();
        let rate = "1/s".parse().unwrap();
        let now = Instant::now() + Duration::from_secs(10);
        for key in 0..MAX_RATE_LIMITED_KEYS * 2 {
            assert_eq!(meter.try_pass(key.to_string(), rate, now), Ok(()), "{key}");
        }
        assert!(meter.due.lock().len() <= MAX_RATE_LIMITED_KEYS);
        assert!(meter.try_pass((MAX_RATE_LIMITED_KEYS * 2 - 1).to_string(), rate, now).is_err());
        let later = now + Duration::from_secs(2);
        for key in 0..MAX_RATE_LIMITED_KEYS {
            assert_eq!(meter.try_pass(format!("later {key}"), rate, later), Ok(()));
        }
        assert!(meter.due.lock().len() <= MAX_RATE_LIMITED_KEYS);
    }

    #[test]
    fn rates_are_read_as_people_write_them() {
        let rate = |text: &str| text.parse::<CallRate>().map(|it| (it.calls, it.per.as_secs()));
        assert_eq!(rate("10/s"), Ok((10, 1)));
        assert_eq!(rate("600 / min"), Ok((600, 60)));
        assert_eq!(rate("3/day"), Ok((3, 86400)));
        assert!(rate("0/s").is_err() && rate("fast").is_err() && rate("1/week").is_err());
        for text in ["10/s", "600/min", "5000/h", "3/day"] {
            assert_eq!(text.parse::<CallRate>().unwrap().to_string(), text);
        }
    }
}
