//! How many calls from outside may be in progress, and how many may wait for
//! that: in order, for a bounded time, without a thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::limits::seconds;
use crate::metrics::family::{Family, Kind};
use crate::problem::{Code, Problem, Result};

/// What the operator decides about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceLimits {
    /// Calls in progress at once.
    pub runs: usize,
    /// Calls that wait for one of those to end.
    pub queued: usize,
    /// How long they wait.
    pub queue_time: Duration,
}

pub(crate) struct Places {
    free: Semaphore,
    limits: Mutex<PlaceLimits>,
    /// Places that go away as soon as they are free: there are fewer now.
    owed: AtomicUsize,
    waiting: AtomicUsize,
    /// Those that were refused.
    shed: AtomicU64,
    /// The limits again, for those who do not change them.
    queued: AtomicUsize,
    queue_time: AtomicU64,
}

impl Places {
    pub(crate) fn new(limits: PlaceLimits) -> Arc<Places> {
        let runs = limits.runs.min(Semaphore::MAX_PERMITS);
        Arc::new(Places {
            free: Semaphore::new(runs),
            limits: Mutex::new(PlaceLimits { runs, ..limits }),
            owed: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            shed: AtomicU64::new(0),
            queued: AtomicUsize::new(limits.queued),
            queue_time: AtomicU64::new(millis(limits.queue_time)),
        })
    }

    pub(crate) fn set(&self, new: PlaceLimits) {
        let runs = new.runs.min(Semaphore::MAX_PERMITS);
        let mut limits = self.limits.lock();
        if runs < limits.runs {
            let fewer = limits.runs - runs;
            self.owed.fetch_add(fewer - self.free.forget_permits(fewer), Ordering::AcqRel);
        } else {
            let settled = (limits.runs..runs).filter(|_| !self.settle()).count();
            self.free.add_permits(settled);
        }
        *limits = PlaceLimits { runs, ..new };
        self.queued.store(new.queued, Ordering::Relaxed);
        self.queue_time.store(millis(new.queue_time), Ordering::Relaxed);
    }

    /// Whether a place that is free now was owed.
    fn settle(&self) -> bool {
        let less = |owed: usize| owed.checked_sub(1);
        self.owed.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }

    /// A place at once, or none.
    pub(crate) fn take(self: &Arc<Self>) -> Result<Place> {
        self.free_place().ok_or_else(|| self.shed())
    }

    fn free_place(self: &Arc<Self>) -> Option<Place> {
        self.free.try_acquire().ok()?.forget();
        Some(Place(Some(self.clone())))
    }

    /// A place, after those who came before.
    pub(crate) async fn wait(self: &Arc<Self>) -> Result<Place> {
        if let Some(place) = self.free_place() {
            return Ok(place);
        }
        let Some(_waiting) = self.stand_in_line() else { return Err(self.shed()) };
        let time = Duration::from_millis(self.queue_time.load(Ordering::Relaxed));
        match tokio::time::timeout(time, self.free.acquire()).await {
            Ok(Ok(permit)) => {
                permit.forget();
                Ok(Place(Some(self.clone())))
            }
            // It is never closed.
            Ok(Err(_)) | Err(_) => Err(self.shed()),
        }
    }

    fn stand_in_line(&self) -> Option<Waiting<'_>> {
        let most = self.queued.load(Ordering::Relaxed);
        let more = |waiting: usize| (waiting < most).then_some(waiting + 1);
        let stands = self.waiting.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        // Made only if it stands there: dropping one counts.
        stands.is_ok().then(|| Waiting(self))
    }

    fn shed(&self) -> Problem {
        self.shed.fetch_add(1, Ordering::Relaxed);
        self.full()
    }

    pub(crate) fn families(&self) -> Vec<Family> {
        let limits = *self.limits.lock();
        let all = limits.runs + self.owed.load(Ordering::Acquire);
        let taken = all.saturating_sub(self.free.available_permits());
        let one = Family::one;
        vec![
            one(
                "moonlark_outside_calls_in_progress",
                Kind::Gauge,
                "Calls from outside that are in progress, of the limit limits.runs",
                taken as f64,
            ),
            one(
                "moonlark_outside_calls_limit",
                Kind::Gauge,
                "How many of those there may be: limits.runs",
                limits.runs as f64,
            ),
            one(
                "moonlark_outside_calls_queued",
                Kind::Gauge,
                "Calls from outside that wait for one of those to end",
                self.waiting.load(Ordering::Relaxed) as f64,
            ),
            one(
                "moonlark_outside_calls_shed_total",
                Kind::Counter,
                "Calls from outside that were refused because there was no place for them",
                self.shed.load(Ordering::Relaxed) as f64,
            ),
        ]
    }

    /// Whoever waits now has a place or has given up after the time to wait.
    fn full(&self) -> Problem {
        let limits = *self.limits.lock();
        let wait = match limits.queued {
            0 => 1,
            _ => u32::try_from(limits.queue_time.as_millis().div_ceil(1000)).unwrap_or(1).max(1),
        };
        let mut problem = Problem::new(
            Code::RateLimited,
            format!("{} calls are in progress, which is the limit", limits.runs),
        )
        .hint(format!(
            "try again in {}, or raise limits.runs",
            seconds(Duration::from_secs(wait.into()))
        ));
        problem.retry_after = Some(wait);
        problem
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

struct Waiting<'a>(&'a Places);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

/// One of the calls in progress; gives its place back when dropped. What is
/// ours takes nobody's.
pub(crate) struct Place(pub(crate) Option<Arc<Places>>);

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(places) = &self.0
            && !places.settle()
        {
            places.free.add_permits(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn places(runs: usize, queued: usize, millis: u64) -> Arc<Places> {
        Places::new(limits(runs, queued, millis))
    }

    fn limits(runs: usize, queued: usize, millis: u64) -> PlaceLimits {
        PlaceLimits { runs, queued, queue_time: Duration::from_millis(millis) }
    }

    #[tokio::test]
    async fn who_came_first_is_let_in_first_and_nobody_goes_past_the_line() {
        let places = places(1, 2, 60_000);
        let first = places.take().unwrap();
        let (mut second, mut third) = (Box::pin(places.wait()), Box::pin(places.wait()));
        assert!((&mut second).now_or_never().is_none());
        assert!((&mut third).now_or_never().is_none());
        let refused = places.wait().now_or_never().unwrap().err().unwrap();
        assert_eq!((refused.code, refused.retry_after), (Code::RateLimited, Some(60)));
        assert_eq!(places.waiting.load(Ordering::Relaxed), 2, "who is refused never waited");
        let figures: Vec<_> = places.families().iter().map(|it| it.samples[0].clone()).collect();
        let figures = figures.iter().map(|it| &it.value).collect::<Vec<_>>();
        assert_eq!(format!("{figures:?}"), "[Number(1.0), Number(1.0), Number(2.0), Number(1.0)]");
        drop(first);
        assert!(places.take().is_err(), "it is the second's");
        assert!((&mut third).now_or_never().is_none());
        let second = second.now_or_never().unwrap().unwrap();
        drop(second);
        assert!(third.now_or_never().unwrap().is_ok());
        assert!(places.take().is_ok());
    }

    #[tokio::test]
    async fn who_waits_too_long_or_goes_away_leaves_the_line() {
        let places = places(1, 1, 5);
        let _first = places.take().unwrap();
        assert_eq!(places.wait().await.err().unwrap().retry_after, Some(1));
        let mut gone = Box::pin(places.wait());
        assert!((&mut gone).now_or_never().is_none());
        assert_eq!(places.waiting.load(Ordering::Relaxed), 1);
        drop(gone);
        assert_eq!(places.waiting.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn fewer_places_hold_once_those_taken_are_free_again() {
        let places = places(3, 0, 0);
        let mut taken: Vec<Place> = (0..3).map(|_| places.take().unwrap()).collect();
        places.set(limits(1, 0, 0));
        taken.truncate(1);
        assert!(places.take().is_err());
        places.set(limits(2, 0, 0));
        let second = places.take().unwrap();
        assert!(places.take().is_err());
        places.set(limits(1, 0, 0));
        places.set(limits(2, 0, 0));
        drop((taken, second));
        let taken: Vec<Place> = (0..2).map(|_| places.take().unwrap()).collect();
        assert!(places.take().is_err());
        drop(taken);
    }

    /// Ten times as much as there is room for, on several threads.
    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn under_ten_times_the_load_all_that_is_accepted_is_done() {
        let places = places(10, 50, 60_000);
        let inside = Arc::new(AtomicUsize::new(0));
        let calls = (0..100).map(|_| {
            let (places, inside) = (places.clone(), inside.clone());
            tokio::spawn(async move {
                let _place = places.wait().await.ok()?;
                assert!(inside.fetch_add(1, Ordering::AcqRel) < 10);
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                inside.fetch_sub(1, Ordering::AcqRel);
                Some(())
            })
        });
        let calls: Vec<_> = calls.collect();
        let mut done = 0;
        for call in calls {
            done += usize::from(call.await.unwrap().is_some());
        }
        assert!(done >= 60, "{done}");
        assert_eq!(places.free.available_permits(), 10);
    }
}
