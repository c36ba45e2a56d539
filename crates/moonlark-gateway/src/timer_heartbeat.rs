//! A timer that is due before the deadlines of calls.
//!
//! When a timer is set that is due before every other, the runtime wakes the
//! thread that waits for them, to wait for less long. A call's deadline would be
//! such a timer whenever no other call is in progress, and the thread would be
//! woken for every call, only to go on waiting. While calls come, one timer is
//! due within a second, and deadlines later than that disturb nobody.
//!
//! Nothing depends on it: without it, calls end in time all the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct TimerHeartbeat(Arc<AtomicBool>);

/// Set while the timer is; also when its runtime ends first.
struct HeartbeatGuard(Arc<AtomicBool>);

impl TimerHeartbeat {
    /// Before a deadline is set.
    pub(crate) fn ensure_timer(&self) {
        if self.0.load(Ordering::Relaxed) || self.0.swap(true, Ordering::AcqRel) {
            return;
        }
        let beating = HeartbeatGuard(self.0.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            #[expect(clippy::disallowed_methods, reason = "a timer that is over in a moment")]
            runtime.spawn(async move {
                tokio::time::sleep(HEARTBEAT_INTERVAL).await;
                drop(beating);
            });
        }
    }
}

impl Drop for HeartbeatGuard {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_timer_is_set_however_many_deadlines_are() {
        let pulse = TimerHeartbeat::default();
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let before = tasks();
        pulse.ensure_timer();
        pulse.ensure_timer();
        assert_eq!(tasks(), before + 1);
    }

    #[test]
    fn it_beats_again_where_the_first_runtime_has_ended() {
        let pulse = TimerHeartbeat::default();
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime().unwrap().block_on(async { pulse.ensure_timer() });
        assert!(!pulse.0.load(Ordering::Relaxed));
        pulse.ensure_timer();
        assert!(!pulse.0.load(Ordering::Relaxed), "no runtime, no timer");
        runtime().unwrap().block_on(async {
            pulse.ensure_timer();
            assert!(pulse.0.load(Ordering::Relaxed));
        });
    }
}
