//! Admission control: how many calls from outside may be in progress, and how many may
//! wait, in order and for a bounded time.
//!
//! A caller that has shown who it is may take three of four places, and half of
//! the line: whatever one does, there is room for others.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::call::{Caller, LOCAL_CALLER};
use crate::metrics::family::MetricFamily;
use moonlark_core::limits::format_seconds;
use moonlark_core::problem::{Problem, ProblemCode, Result};

/// What the operator decides about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdmissionLimits {
    /// Calls in progress at once.
    pub runs: usize,
    /// Calls that wait for one of those to end.
    pub queued: usize,
    /// How long they wait.
    pub queue_time: Duration,
}

pub(crate) struct AdmissionQueue {
    free: Semaphore,
    limits: Mutex<AdmissionLimits>,
    /// Places that go away as soon as they are free: there are fewer now.
    owed: AtomicUsize,
    waiting: AtomicUsize,
    /// Those that were refused.
    shed: AtomicU64,
    /// Those of the callers that are told apart and have a call.
    callers: Mutex<HashMap<Arc<str>, Weak<CallerAdmission>>>,
}

/// The places and the part of the line that one caller may take.
struct CallerAdmission {
    free: Arc<Semaphore>,
    waiting: AtomicUsize,
    max_waiting: usize,
}

/// Callers after which those without a call are dropped.
const CALLER_SWEEP_THRESHOLD: usize = 1000;

impl AdmissionQueue {
    pub(crate) fn new(limits: AdmissionLimits) -> Arc<AdmissionQueue> {
        let runs = limits.runs.min(Semaphore::MAX_PERMITS);
        Arc::new(AdmissionQueue {
            free: Semaphore::new(runs),
            limits: Mutex::new(AdmissionLimits { runs, ..limits }),
            owed: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            shed: AtomicU64::new(0),
            callers: Mutex::default(),
        })
    }

    pub(crate) fn set_limits(&self, new: AdmissionLimits) {
        let runs = new.runs.min(Semaphore::MAX_PERMITS);
        let mut limits = self.limits.lock();
        if runs < limits.runs {
            let fewer = limits.runs - runs;
            self.owed.fetch_add(fewer - self.free.forget_permits(fewer), Ordering::AcqRel);
        } else {
            let settled = (limits.runs..runs).filter(|_| !self.retire_owed_permit()).count();
            self.free.add_permits(settled);
        }
        let new = AdmissionLimits { runs, ..new };
        if std::mem::replace(&mut *limits, new) != new {
            // What each caller has of them follows, from its next call on.
            drop(limits);
            self.callers.lock().clear();
        }
    }

    /// Whether a place that is free now was owed.
    fn retire_owed_permit(&self) -> bool {
        let less = |owed: usize| owed.checked_sub(1);
        self.owed.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok()
    }

    /// A place at once, or none.
    pub(crate) fn try_admit(self: &Arc<Self>, caller: &Caller) -> Result<AdmissionPermit> {
        let own = self.caller_admission(caller);
        self.try_acquire_permit(own.as_ref()).ok_or_else(|| self.shed_call())
    }

    fn try_acquire_permit(
        self: &Arc<Self>,
        own: Option<&Arc<CallerAdmission>>,
    ) -> Option<AdmissionPermit> {
        let share = match own {
            Some(own) => Some((own.free.clone().try_acquire_owned().ok()?, own.clone())),
            None => None,
        };
        self.free.try_acquire().ok()?.forget();
        Some(AdmissionPermit { all: Some(self.clone()), _share: share })
    }

    /// A place, after those who came before.
    pub(crate) async fn wait_for_permit(
        self: &Arc<Self>,
        caller: &Caller,
    ) -> Result<AdmissionPermit> {
        let own = self.caller_admission(caller);
        if let Some(place) = self.try_acquire_permit(own.as_ref()) {
            return Ok(place);
        }
        let AdmissionLimits { queued, queue_time, .. } = *self.limits.lock();
        let Some(_waiting) = self.join_queue(own.as_deref(), queued) else {
            return Err(self.shed_call());
        };
        let turn = async {
            // It is never closed.
            let share = match &own {
                Some(own) => Some((own.free.clone().acquire_owned().await.ok()?, own.clone())),
                None => None,
            };
            self.free.acquire().await.ok()?.forget();
            Some(AdmissionPermit { all: Some(self.clone()), _share: share })
        };
        let turn = tokio::time::timeout(queue_time, turn).await;
        turn.ok().flatten().ok_or_else(|| self.shed_call())
    }

    fn join_queue<'a>(
        &'a self,
        own: Option<&'a CallerAdmission>,
        queued: usize,
    ) -> Option<(QueueCountGuard<'a>, Option<QueueCountGuard<'a>>)> {
        let own = match own {
            Some(own) => Some(try_count_up(&own.waiting, own.max_waiting)?),
            None => None,
        };
        Some((try_count_up(&self.waiting, queued)?, own))
    }

    /// What of it is this caller's; none for those who are not told apart, and for
    /// whoever is at this machine.
    fn caller_admission(&self, caller: &Caller) -> Option<Arc<CallerAdmission>> {
        let name = caller.name.as_ref().filter(|name| ***name != *LOCAL_CALLER)?;
        let mut callers = self.callers.lock();
        if let Some(known) = callers.get(name).and_then(Weak::upgrade) {
            return Some(known);
        }
        if callers.len() >= CALLER_SWEEP_THRESHOLD {
            callers.retain(|_, known| known.strong_count() > 0);
        }
        let AdmissionLimits { runs, queued, .. } = *self.limits.lock();
        let places = CallerAdmission {
            free: Arc::new(Semaphore::new(runs - runs / 4)),
            waiting: AtomicUsize::new(0),
            max_waiting: queued.div_ceil(2),
        };
        let places = Arc::new(places);
        callers.insert(name.clone(), Arc::downgrade(&places));
        Some(places)
    }

    fn shed_call(&self) -> Problem {
        self.shed.fetch_add(1, Ordering::Relaxed);
        self.full_problem()
    }

    pub(crate) fn metric_families(&self) -> Vec<MetricFamily> {
        let limits = *self.limits.lock();
        let all = limits.runs + self.owed.load(Ordering::Acquire);
        let taken = all.saturating_sub(self.free.available_permits());
        vec![
            MetricFamily::gauge(
                "moonlark_outside_calls_in_progress",
                "Calls from outside that are in progress, of the limit limits.runs",
            )
            .with_value(taken as f64),
            MetricFamily::gauge(
                "moonlark_outside_calls_limit",
                "How many of those there may be: limits.runs",
            )
            .with_value(limits.runs as f64),
            MetricFamily::gauge(
                "moonlark_outside_calls_queued",
                "Calls from outside that wait for one of those to end",
            )
            .with_value(self.waiting.load(Ordering::Relaxed) as f64),
            MetricFamily::counter(
                "moonlark_outside_calls_shed_total",
                "Calls from outside that were refused because there was no place for them",
            )
            .with_value(self.shed.load(Ordering::Relaxed) as f64),
        ]
    }

    /// Whoever waits now has a place or has given up after the time to wait.
    fn full_problem(&self) -> Problem {
        let limits = *self.limits.lock();
        let wait = match limits.queued {
            0 => 1,
            _ => u32::try_from(limits.queue_time.as_millis().div_ceil(1000)).unwrap_or(1).max(1),
        };
        let message = format!("{} calls are in progress, which is the limit", limits.runs);
        let time = format_seconds(Duration::from_secs(wait.into()));
        Problem::new(ProblemCode::RateLimited, message)
            .with_hint(format!("try again in {time}, or raise limits.runs"))
            .with_retry_after(wait)
    }
}

/// A place that counts against its caller's part. The part is known for as long as
/// somebody has one.
type CallerPermit = (OwnedSemaphorePermit, Arc<CallerAdmission>);

/// One of those that a number counts.
struct QueueCountGuard<'a>(&'a AtomicUsize);

/// Count one more, unless there are `most`.
fn try_count_up(number: &AtomicUsize, most: usize) -> Option<QueueCountGuard<'_>> {
    let more = |waiting: usize| (waiting < most).then_some(waiting + 1);
    let counted = number.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
    // Made only if it was counted: dropping one counts.
    counted.is_ok().then(|| QueueCountGuard(number))
}

impl Drop for QueueCountGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// One of the calls in progress; gives its place back when dropped.
pub(crate) struct AdmissionPermit {
    all: Option<Arc<AdmissionQueue>>,
    _share: Option<CallerPermit>,
}

impl AdmissionPermit {
    /// For what is ours, such as loading a script: it counts against nobody.
    pub(crate) fn new_uncounted() -> AdmissionPermit {
        AdmissionPermit { all: None, _share: None }
    }
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        if let Some(places) = &self.all
            && !places.retire_owed_permit()
        {
            places.free.add_permits(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn places(runs: usize, queued: usize, millis: u64) -> Arc<AdmissionQueue> {
        AdmissionQueue::new(limits(runs, queued, millis))
    }

    static NOBODY: Caller = Caller { surface: "rest", name: None, client: None };

    fn limits(runs: usize, queued: usize, millis: u64) -> AdmissionLimits {
        AdmissionLimits { runs, queued, queue_time: Duration::from_millis(millis) }
    }

    #[tokio::test]
    async fn who_came_first_is_let_in_first_and_nobody_goes_past_the_line() {
        let places = places(1, 2, 60_000);
        let first = places.try_admit(&NOBODY).unwrap();
        let (mut second, mut third) =
            (Box::pin(places.wait_for_permit(&NOBODY)), Box::pin(places.wait_for_permit(&NOBODY)));
        assert!((&mut second).now_or_never().is_none());
        assert!((&mut third).now_or_never().is_none());
        let refused = places.wait_for_permit(&NOBODY).now_or_never().unwrap().err().unwrap();
        assert_eq!((refused.code, refused.retry_after), (ProblemCode::RateLimited, Some(60)));
        assert_eq!(places.waiting.load(Ordering::Relaxed), 2, "who is refused never waited");
        let figures: Vec<_> =
            places.metric_families().iter().map(|it| it.samples[0].clone()).collect();
        let figures = figures.iter().map(|it| &it.value).collect::<Vec<_>>();
        assert_eq!(format!("{figures:?}"), "[Number(1.0), Number(1.0), Number(2.0), Number(1.0)]");
        drop(first);
        assert!(places.try_admit(&NOBODY).is_err(), "it is the second's");
        assert!((&mut third).now_or_never().is_none());
        let second = second.now_or_never().unwrap().unwrap();
        drop(second);
        assert!(third.now_or_never().unwrap().is_ok());
        assert!(places.try_admit(&NOBODY).is_ok());
    }

    #[tokio::test]
    async fn who_waits_too_long_or_goes_away_leaves_the_line() {
        let places = places(1, 1, 5);
        let _first = places.try_admit(&NOBODY).unwrap();
        assert_eq!(places.wait_for_permit(&NOBODY).await.err().unwrap().retry_after, Some(1));
        let mut gone = Box::pin(places.wait_for_permit(&NOBODY));
        assert!((&mut gone).now_or_never().is_none());
        assert_eq!(places.waiting.load(Ordering::Relaxed), 1);
        drop(gone);
        assert_eq!(places.waiting.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn fewer_places_hold_once_those_taken_are_free_again() {
        let places = places(3, 0, 0);
        let mut taken: Vec<AdmissionPermit> =
            (0..3).map(|_| places.try_admit(&NOBODY).unwrap()).collect();
        places.set_limits(limits(1, 0, 0));
        taken.truncate(1);
        assert!(places.try_admit(&NOBODY).is_err());
        places.set_limits(limits(2, 0, 0));
        let second = places.try_admit(&NOBODY).unwrap();
        assert!(places.try_admit(&NOBODY).is_err());
        places.set_limits(limits(1, 0, 0));
        places.set_limits(limits(2, 0, 0));
        drop((taken, second));
        let taken: Vec<AdmissionPermit> =
            (0..2).map(|_| places.try_admit(&NOBODY).unwrap()).collect();
        assert!(places.try_admit(&NOBODY).is_err());
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
                let _place = places.wait_for_permit(&NOBODY).await.ok()?;
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

    #[tokio::test]
    async fn a_caller_leaves_places_and_a_part_of_the_line_to_others() {
        let places = places(4, 4, 60_000);
        let (bob, alice) = (NOBODY.clone().with_name("bob"), NOBODY.clone().with_name("alice"));
        let mut bobs: Vec<AdmissionPermit> =
            (0..3).map(|_| places.try_admit(&bob).unwrap()).collect();
        assert!(places.try_admit(&bob).is_err(), "the fourth place is not for him");
        let mut line: Vec<_> = (0..2).map(|_| Box::pin(places.wait_for_permit(&bob))).collect();
        assert!(line.iter_mut().all(|it| it.now_or_never().is_none()));
        assert!(
            places.wait_for_permit(&bob).now_or_never().unwrap().is_err(),
            "half of the line is his"
        );
        let hers = places.try_admit(&alice).unwrap();
        let mut second = Box::pin(places.wait_for_permit(&alice));
        assert!((&mut second).now_or_never().is_none());
        drop(bobs.pop());
        // He came first, and has room within his part again.
        let his = line[0].as_mut().now_or_never();
        let her = second.now_or_never();
        assert!(his.is_some() != her.is_some());
        drop((his, her, hers, line, bobs));
        assert!((0..3).map(|_| places.try_admit(&bob)).all(|it| it.is_ok()), "one at a time");
    }
}
