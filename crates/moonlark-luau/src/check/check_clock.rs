//! The CPU-time limit of one check, in the process that makes it.
//!
//! Types can grow without end. A thread beside the check looks at the clock: after
//! half of the time it asks Luau's checker to stop, which that looks for only now and
//! then. When all of the time is over, it hands over what was found without types, and
//! ends the process.
//!
//! Processor time, so that a busy machine makes no script look slow.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use luau_analysis::FrontendCancellationToken;

use super::check_protocol::write_frame;
use super::script_checker::JudgedScript;

/// How the process ends when there is nothing to hand over.
pub(super) const OUT_OF_TIME_EXIT_CODE: i32 = 124;
/// The shortest time that the thread sleeps.
const MIN_CLOCK_SLEEP: Duration = Duration::from_millis(10);

/// Watches one check at a time.
#[derive(Clone)]
pub(super) struct CheckClock {
    watched: Arc<(Mutex<ClockState>, Condvar)>,
}

#[derive(Default)]
struct ClockState {
    check: Option<WatchedCheck>,
    /// When the thread looks again by itself; none while it waits to be woken. Most checks
    /// end long before, and cost no change of thread.
    next_look: Option<Instant>,
}

struct WatchedCheck {
    /// What the process had used when it began.
    processor_time: Duration,
    limit: Duration,
    /// Asks the type checker to stop.
    stop_typing: Arc<FrontendCancellationToken>,
    untyped: Option<JudgedScript>,
}

impl CheckClock {
    /// Start the thread. Without one, only the kernel's own limit is left.
    pub(super) fn start() -> CheckClock {
        let clock = CheckClock { watched: Arc::default() };
        let watching = clock.clone();
        let _ = std::thread::Builder::new()
            .name("moonlark-clock".to_owned())
            .spawn(move || watching.watch_checks());
        clock
    }

    /// A check begins. What comes back is set when its types have taken too long.
    pub(super) fn begin_check(&self, limit: Duration) -> Arc<FrontendCancellationToken> {
        let stop_typing = Arc::new(FrontendCancellationToken::new());
        let check = WatchedCheck {
            processor_time: used_processor_time(),
            limit,
            stop_typing: stop_typing.clone(),
            untyped: None,
        };
        self.watch_check(check);
        stop_typing
    }

    /// Until what comes back is dropped, nothing counts as time of the check.
    pub(super) fn pause_check(&self) -> PausedCheck<'_> {
        let check = self.lock_watched().check.take();
        PausedCheck { clock: self, check, since: used_processor_time() }
    }

    fn watch_check(&self, check: WatchedCheck) {
        let mut state = self.lock_watched();
        let first_look = Instant::now() + check.limit / 2;
        state.check = Some(check);
        if state.next_look.is_none_or(|next| next > first_look) {
            self.watched.1.notify_one();
        }
    }

    /// What was found without types, in case there is no time for them.
    pub(super) fn keep_untyped_findings(&self, judged: &JudgedScript) {
        if let Some(check) = self.lock_watched().check.as_mut() {
            check.untyped = Some(judged.clone());
        }
    }

    /// From here on the process is not ended any more.
    pub(super) fn end_check(&self) {
        self.lock_watched().check = None;
    }

    fn watch_checks(&self) {
        let mut state = self.lock_watched();
        loop {
            state = match state.check.as_ref().map(WatchedCheck::time_left) {
                None => {
                    state.next_look = None;
                    self.watched.1.wait(state).unwrap_or_else(PoisonError::into_inner)
                }
                // Handing over under the lock: the check cannot report meanwhile.
                Some(None) => stop_process(state.check.take()),
                // There is one thread that computes: its time does not pass faster.
                Some(Some(left)) => {
                    let left = left.max(MIN_CLOCK_SLEEP);
                    state.next_look = Some(Instant::now() + left);
                    let sleep = self.watched.1.wait_timeout(state, left);
                    sleep.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn lock_watched(&self) -> MutexGuard<'_, ClockState> {
        self.watched.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A check that goes on when this is dropped.
pub(super) struct PausedCheck<'x> {
    clock: &'x CheckClock,
    check: Option<WatchedCheck>,
    /// Processor time of this process then.
    since: Duration,
}

impl Drop for PausedCheck<'_> {
    fn drop(&mut self) {
        if let Some(mut check) = self.check.take() {
            check.processor_time += used_processor_time().saturating_sub(self.since);
            self.clock.watch_check(check);
        }
    }
}

impl WatchedCheck {
    /// How long until the next step is due; None when all of the time is over.
    fn time_left(&self) -> Option<Duration> {
        let used = used_processor_time().saturating_sub(self.processor_time);
        let for_types = self.limit / 2;
        if used < for_types {
            return Some(for_types - used);
        }
        self.stop_typing.cancel();
        self.limit.checked_sub(used).filter(|left| !left.is_zero())
    }
}

fn stop_process(check: Option<WatchedCheck>) -> ! {
    let Some(judged) = check.and_then(|check| check.untyped) else {
        std::process::exit(OUT_OF_TIME_EXIT_CODE)
    };
    let told = write_frame(&mut std::io::stdout(), &judged.into_report(false));
    std::process::exit(if told.is_ok() { 0 } else { OUT_OF_TIME_EXIT_CODE })
}

/// Processor time of this process so far.
pub(super) fn used_processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    // It begins at zero and only grows.
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spend(time: Duration) {
        let began = used_processor_time();
        while used_processor_time() - began < time {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn what_is_done_while_a_check_is_paused_is_not_part_of_its_time() {
        let limit = Duration::from_millis(400);
        let clock = CheckClock::start();
        let stop = clock.begin_check(limit);
        let paused = clock.pause_check();
        spend(limit);
        drop(paused);
        let left = clock.lock_watched().check.as_ref().and_then(WatchedCheck::time_left);
        clock.end_check();
        assert!(left.is_some_and(|left| left > limit / 4), "{left:?}");
        assert!(!stop.requested());
    }
}
