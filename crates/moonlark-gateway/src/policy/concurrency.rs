//! Concurrency limit: how many may run at once; the others wait in line.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Keys after which those that nobody uses are dropped.
const SEMAPHORE_SWEEP_THRESHOLD: usize = 1000;

/// One line for each key.
pub(super) struct KeyedSemaphore {
    most: usize,
    lines: Mutex<HashMap<String, Weak<Semaphore>>>,
}

/// A turn that a call has, and those of the calls it was made by.
pub(crate) struct ConcurrencyPermit {
    line: Arc<Semaphore>,
    _turn: OwnedSemaphorePermit,
    before: Option<Arc<ConcurrencyPermit>>,
}

impl ConcurrencyPermit {
    fn holds_semaphore(&self, line: &Arc<Semaphore>) -> bool {
        let mut all = std::iter::successors(Some(self), |held| held.before.as_deref());
        all.any(|held| Arc::ptr_eq(&held.line, line))
    }
}

impl KeyedSemaphore {
    pub(super) fn new(most: usize) -> Self {
        Self { most: most.clamp(1, Semaphore::MAX_PERMITS), lines: Mutex::default() }
    }

    /// Wait for a turn. What is made by a call that has one of the same line
    /// goes on with that: it would wait for itself.
    pub(super) async fn acquire_permit(
        &self,
        key: String,
        before: Option<Arc<ConcurrencyPermit>>,
    ) -> Option<Arc<ConcurrencyPermit>> {
        let line = self.semaphore_for(key);
        if before.as_ref().is_some_and(|held| held.holds_semaphore(&line)) {
            return before;
        }
        // It is never closed.
        let turn = line.clone().acquire_owned().await.ok()?;
        Some(Arc::new(ConcurrencyPermit { line, _turn: turn, before }))
    }

    fn semaphore_for(&self, key: String) -> Arc<Semaphore> {
        let mut lines = self.lines.lock();
        if let Some(line) = lines.get(&key).and_then(Weak::upgrade) {
            return line;
        }
        if lines.len() >= SEMAPHORE_SWEEP_THRESHOLD {
            lines.retain(|_, line| line.strong_count() > 0);
        }
        let line = Arc::new(Semaphore::new(self.most));
        lines.insert(key, Arc::downgrade(&line));
        line
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn now(
        turns: &KeyedSemaphore,
        key: &str,
        before: Option<Arc<ConcurrencyPermit>>,
    ) -> Option<Arc<ConcurrencyPermit>> {
        turns.acquire_permit(key.to_owned(), before).now_or_never().flatten()
    }

    #[tokio::test]
    async fn more_than_may_run_wait_and_are_let_in_in_order() {
        let turns = KeyedSemaphore::new(1);
        let first = now(&turns, "a", None).unwrap();
        assert!(now(&turns, "b", None).is_some(), "another key has a line of its own");
        let mut second = Box::pin(turns.acquire_permit("a".to_owned(), None));
        let mut third = Box::pin(turns.acquire_permit("a".to_owned(), None));
        assert!((&mut second).now_or_never().is_none());
        assert!((&mut third).now_or_never().is_none());
        drop(first);
        assert!((&mut third).now_or_never().is_none(), "the second is first");
        let second = second.await.unwrap();
        assert!((&mut third).now_or_never().is_none());
        drop(second);
        assert!(third.await.is_some());
    }

    #[tokio::test]
    async fn a_call_does_not_wait_for_the_one_that_made_it() {
        let turns = KeyedSemaphore::new(1);
        let other = KeyedSemaphore::new(1);
        let outer = now(&turns, "a", None);
        let middle = now(&other, "a", outer);
        assert!(now(&turns, "a", middle.clone()).is_some());
        assert!(now(&turns, "a", None).is_none());
        drop(middle);
        assert!(now(&turns, "a", None).is_some());
    }
}
