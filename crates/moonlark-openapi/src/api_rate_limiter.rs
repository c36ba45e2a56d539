//! The rate limit of an API: so many at once, so many in a time.

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

pub use moonlark_gateway::policy::CallRate;

pub(crate) struct ApiRateLimiter {
    rate: Option<CallRate>,
    /// When the next call may begin if all that is saved up was used.
    due: Mutex<Option<Instant>>,
    at_once: Option<Semaphore>,
}

impl ApiRateLimiter {
    pub(crate) fn new(rate: Option<CallRate>, at_once: Option<usize>) -> Self {
        Self { rate, due: Mutex::new(None), at_once: at_once.map(|it| Semaphore::new(it.max(1))) }
    }

    /// Wait for a turn; it ends when what is returned is dropped.
    pub(crate) async fn wait_turn(&self) -> Option<SemaphorePermit<'_>> {
        let permit = match &self.at_once {
            // It is never closed.
            Some(places) => places.acquire().await.ok(),
            None => None,
        };
        if let Some(until) = self.reserve_start(Instant::now()) {
            tokio::time::sleep_until(until).await;
        }
        permit
    }

    /// Take a place in the row: now, or when it is its turn.
    fn reserve_start(&self, now: Instant) -> Option<Instant> {
        let rate = self.rate?;
        let mut due = self.due.lock();
        let start = rate.next_start(*due, now);
        *due = Some(rate.due_after(start));
        (start > now).then_some(start)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_is_let_through_and_then_one_at_a_time() {
        let pace = ApiRateLimiter::new("4/s".parse().ok(), None);
        let now = Instant::now() + Duration::from_secs(10);
        let waits: Vec<u128> = (0..6)
            .map(|_| pace.reserve_start(now).map_or(0, |it| it.duration_since(now).as_millis()))
            .collect();
        assert_eq!(waits, [0, 0, 0, 0, 250, 500]);
    }
}
