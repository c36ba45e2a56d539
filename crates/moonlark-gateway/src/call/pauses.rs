//! Pauses of a call: the time in which its caller is asked for something does not count
//! against its deadline.
//!
//! Deadlines are far away while anything is asked, and afterwards later by as long as it
//! took. Time in which several things are asked counts once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How long a person may take to answer.
pub(super) const USER_ANSWER_TIMEOUT: Duration = Duration::from_secs(600);

#[derive(Default)]
pub(super) struct DeadlinePauses {
    /// How much later deadlines are, in µs; read for every call.
    moved: AtomicU64,
    open: Mutex<OpenPauses>,
}

#[derive(Default)]
struct OpenPauses {
    count: u32,
    /// When the last of them began; deadlines moved to be [`USER_ANSWER_TIMEOUT`] later than
    /// they were then.
    begun: Option<Instant>,
}

/// Something is being asked, until this is dropped.
pub(super) struct PauseGuard<'a>(&'a DeadlinePauses);

impl DeadlinePauses {
    /// How much later deadlines are than if nothing had been asked.
    pub(super) fn deadline_shift(&self) -> Duration {
        Duration::from_micros(self.moved.load(Ordering::Relaxed))
    }

    /// How much of that has passed. What begins now has its own time beside it, also
    /// where something is being asked just now.
    pub(super) fn elapsed_pause(&self) -> Duration {
        if self.deadline_shift().is_zero() {
            return Duration::ZERO;
        }
        self.elapsed_pause_at(Instant::now())
    }

    fn elapsed_pause_at(&self, now: Instant) -> Duration {
        let open = self.open.lock();
        self.deadline_shift().saturating_sub(open.unused_time(now))
    }

    pub(super) fn start_pause(&self) -> PauseGuard<'_> {
        self.start_pause_at(Instant::now());
        PauseGuard(self)
    }

    fn start_pause_at(&self, now: Instant) {
        let mut open = self.open.lock();
        let more = USER_ANSWER_TIMEOUT - open.unused_time(now);
        self.moved.fetch_add(saturating_micros(more), Ordering::Relaxed);
        *open = OpenPauses { count: open.count + 1, begun: Some(now) };
    }

    fn end_pause_at(&self, now: Instant) {
        let mut open = self.open.lock();
        let unused = open.unused_time(now);
        open.count -= 1;
        if open.count == 0 {
            self.moved.fetch_sub(saturating_micros(unused), Ordering::Relaxed);
        }
    }
}

impl OpenPauses {
    /// What deadlines are later by for the sake of what may still come.
    fn unused_time(&self, now: Instant) -> Duration {
        match self.begun.filter(|_| self.count > 0) {
            Some(begun) => USER_ANSWER_TIMEOUT.saturating_sub(now.duration_since(begun)),
            None => Duration::ZERO,
        }
    }
}

impl Drop for PauseGuard<'_> {
    fn drop(&mut self) {
        self.0.end_pause_at(Instant::now());
    }
}

fn saturating_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_something_is_asked_counts_once_and_only_while_it_is() {
        let (pauses, begin) = (DeadlinePauses::default(), Instant::now());
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let seconds = |time: Duration| time.as_secs();
        assert_eq!(seconds(pauses.deadline_shift()), 0);
        pauses.start_pause_at(at(10));
        assert_eq!(seconds(pauses.deadline_shift()), 600);
        // Another, for which there is as much time.
        pauses.start_pause_at(at(15));
        assert_eq!(seconds(pauses.deadline_shift()), 605);
        pauses.end_pause_at(at(17));
        assert_eq!(seconds(pauses.deadline_shift()), 605);
        pauses.end_pause_at(at(20));
        assert_eq!(seconds(pauses.deadline_shift()), 10);
        pauses.start_pause_at(at(50));
        pauses.end_pause_at(at(52));
        assert_eq!(seconds(pauses.deadline_shift()), 12);
        // One that took all the time there is, and more.
        pauses.start_pause_at(at(100));
        pauses.end_pause_at(at(1000));
        assert_eq!(seconds(pauses.deadline_shift()), 612);
    }

    #[test]
    fn what_begins_while_something_is_asked_keeps_its_time_when_that_is_answered() {
        let (pauses, begin) = (DeadlinePauses::default(), Instant::now());
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let deadline = |now: Instant| now + Duration::from_secs(30) - pauses.elapsed_pause_at(now);
        let before = deadline(at(0));
        pauses.start_pause_at(at(5));
        let during = deadline(at(8));
        pauses.start_pause_at(at(9));
        let during_both = deadline(at(10));
        pauses.end_pause_at(at(11));
        pauses.end_pause_at(at(25));
        let after = deadline(at(26));
        let left = |deadline: Instant| (deadline + pauses.deadline_shift() - begin).as_secs();
        // Its thirty seconds, and what was asked since it began: 20, 17, 15 and 0.
        assert_eq!([before, during, during_both, after].map(left), [50, 55, 55, 56]);
    }
}
