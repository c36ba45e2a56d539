//! The time in which the caller is asked for something: a person's, and no tool's.
//!
//! Deadlines are far away while anything is asked, and afterwards later by as long as it
//! took. Time in which several things are asked counts once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long a person may take to answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(600);

#[derive(Default)]
pub(super) struct Pauses {
    /// How much later deadlines are, in µs; read for every call.
    moved: AtomicU64,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    count: u32,
    /// When the last of them began; deadlines moved to be [`PATIENCE`] later than
    /// they were then.
    begun: Option<Instant>,
}

/// Something is being asked, until this is dropped.
pub(super) struct Pause<'a>(&'a Pauses);

impl Pauses {
    /// How much later deadlines are than if nothing had been asked.
    pub(super) fn moved(&self) -> Duration {
        Duration::from_micros(self.moved.load(Ordering::Relaxed))
    }

    /// How much of that has passed. What begins now has its own time beside it, also
    /// where something is being asked just now.
    pub(super) fn passed(&self) -> Duration {
        if self.moved().is_zero() {
            return Duration::ZERO;
        }
        self.passed_by(Instant::now())
    }

    fn passed_by(&self, now: Instant) -> Duration {
        let open = self.open.lock();
        self.moved().saturating_sub(open.unused(now))
    }

    pub(super) fn begin(&self) -> Pause<'_> {
        self.begin_at(Instant::now());
        Pause(self)
    }

    fn begin_at(&self, now: Instant) {
        let mut open = self.open.lock();
        let more = PATIENCE - open.unused(now);
        self.moved.fetch_add(micros(more), Ordering::Relaxed);
        *open = Open { count: open.count + 1, begun: Some(now) };
    }

    fn end_at(&self, now: Instant) {
        let mut open = self.open.lock();
        let unused = open.unused(now);
        open.count -= 1;
        if open.count == 0 {
            self.moved.fetch_sub(micros(unused), Ordering::Relaxed);
        }
    }
}

impl Open {
    /// What deadlines are later by for the sake of what may still come.
    fn unused(&self, now: Instant) -> Duration {
        match self.begun.filter(|_| self.count > 0) {
            Some(begun) => PATIENCE.saturating_sub(now.duration_since(begun)),
            None => Duration::ZERO,
        }
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.0.end_at(Instant::now());
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_something_is_asked_counts_once_and_only_while_it_is() {
        let (pauses, begin) = (Pauses::default(), Instant::now());
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let seconds = |time: Duration| time.as_secs();
        assert_eq!(seconds(pauses.moved()), 0);
        pauses.begin_at(at(10));
        assert_eq!(seconds(pauses.moved()), 600);
        // Another, for which there is as much time.
        pauses.begin_at(at(15));
        assert_eq!(seconds(pauses.moved()), 605);
        pauses.end_at(at(17));
        assert_eq!(seconds(pauses.moved()), 605);
        pauses.end_at(at(20));
        assert_eq!(seconds(pauses.moved()), 10);
        pauses.begin_at(at(50));
        pauses.end_at(at(52));
        assert_eq!(seconds(pauses.moved()), 12);
        // One that took all the time there is, and more.
        pauses.begin_at(at(100));
        pauses.end_at(at(1000));
        assert_eq!(seconds(pauses.moved()), 612);
    }

    #[test]
    fn what_begins_while_something_is_asked_keeps_its_time_when_that_is_answered() {
        let (pauses, begin) = (Pauses::default(), Instant::now());
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let deadline = |now: Instant| now + Duration::from_secs(30) - pauses.passed_by(now);
        let before = deadline(at(0));
        pauses.begin_at(at(5));
        let during = deadline(at(8));
        pauses.begin_at(at(9));
        let during_both = deadline(at(10));
        pauses.end_at(at(11));
        pauses.end_at(at(25));
        let after = deadline(at(26));
        let left = |deadline: Instant| (deadline + pauses.moved() - begin).as_secs();
        // Its thirty seconds, and what was asked since it began: 20, 17, 15 and 0.
        assert_eq!([before, during, during_both, after].map(left), [50, 55, 55, 56]);
    }
}
