//! Connections that are kept for the next call: a few per place, for a while.
//!
//! What a connection is, and whether an idle one still works, only the modules
//! know. Here stands how many there may be, and that nobody waits for one past
//! its deadline.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use moonlark_core::{Call, Problem, Result};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

pub(crate) struct Pool<K, C> {
    /// Connections in use at once, to one place.
    per_place: usize,
    /// Places with connections.
    places: usize,
    state: Mutex<State<K, C>>,
}

struct State<K, C> {
    places: HashMap<K, Place<C>>,
    /// When idle connections are looked through next.
    sweep: Option<Instant>,
}

struct Place<C> {
    slots: Arc<Semaphore>,
    /// The newest last.
    idle: Vec<(Instant, C)>,
    used: Instant,
}

/// How long a connection may be idle.
const IDLE: Duration = Duration::from_secs(30);

/// The right to one connection, and an idle one if there was any.
pub(crate) struct Slot<K: 'static, C: 'static> {
    pool: &'static Pool<K, C>,
    place: K,
    _permit: OwnedSemaphorePermit,
}

impl<K: Hash + Eq + Clone + Send + 'static, C: Send + 'static> Pool<K, C> {
    pub(crate) fn new(places: usize, per_place: usize) -> Self {
        let state = State { places: HashMap::new(), sweep: None };
        Self { per_place, places, state: Mutex::new(state) }
    }

    /// Wait for the right to a connection to `place`; `shown` names it in the
    /// Problem.
    pub(crate) async fn slot(
        &'static self,
        call: &Call,
        place: &K,
        shown: &str,
    ) -> Result<Slot<K, C>> {
        let slots = self.slots(place)?;
        match tokio::time::timeout_at(patience(call), slots.acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Slot { pool: self, place: place.clone(), _permit: permit }),
            _ => Err(Problem::unavailable(format!(
                "all {} connections to {shown} are busy",
                self.per_place
            ))
            .hint("try again later, or make fewer calls at once")),
        }
    }

    fn slots(&self, place: &K) -> Result<Arc<Semaphore>> {
        let mut state = self.state.lock();
        if let Some(known) = state.places.get_mut(place) {
            known.used = Instant::now();
            return Ok(known.slots.clone());
        }
        if state.places.len() >= self.places {
            // The one that nobody has used for the longest time makes room.
            let unused =
                state.places.iter().filter(|(_, known)| Arc::strong_count(&known.slots) == 1);
            let oldest = unused.min_by_key(|(_, known)| known.used).map(|(place, _)| place.clone());
            let Some(oldest) = oldest else {
                return Err(Problem::unavailable(format!(
                    "{} databases are in use at once, which is the limit",
                    self.places
                ))
                .hint("try again later"));
            };
            state.places.remove(&oldest);
        }
        let slots = Arc::new(Semaphore::new(self.per_place));
        let new = Place { slots: slots.clone(), idle: Vec::new(), used: Instant::now() };
        state.places.insert(place.clone(), new);
        Ok(slots)
    }

    /// Close what has been idle for too long, now and later.
    fn sweep(&'static self) {
        let now = Instant::now();
        let mut old = Vec::new();
        let mut state = self.state.lock();
        state.places.retain(|_, known| {
            let first_young = known.idle.iter().position(|(since, _)| now - *since < IDLE);
            old.extend(known.idle.drain(..first_young.unwrap_or(known.idle.len())));
            !known.idle.is_empty() || Arc::strong_count(&known.slots) > 1
        });
        let idle = state.places.values().any(|known| !known.idle.is_empty());
        // A runtime that ended took its sweep with it: then it is long due.
        let due = state.sweep.is_none_or(|at| now > at + IDLE);
        if idle
            && due
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let at = now + IDLE;
            state.sweep = Some(at);
            runtime.spawn(async move {
                tokio::time::sleep_until(at).await;
                self.state.lock().sweep = None;
                self.sweep();
            });
        }
        drop(state);
        // Closing a file may take a moment, which no async thread has.
        if !old.is_empty()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn_blocking(move || drop(old));
        }
    }
}

impl<K: Hash + Eq + Clone + Send + 'static, C: Send + 'static> Slot<K, C> {
    /// A connection that was given back, the newest first.
    pub(crate) fn idle(&self) -> Option<C> {
        let mut state = self.pool.state.lock();
        state.places.get_mut(&self.place)?.idle.pop().map(|(_, connection)| connection)
    }

    /// Keep a connection that is as good as new for the next call.
    pub(crate) fn keep(self, connection: C) {
        if let Some(known) = self.pool.state.lock().places.get_mut(&self.place) {
            known.idle.push((Instant::now(), connection));
        }
        self.pool.sweep();
    }
}

/// Until when a call may wait for a connection: short of its deadline, so that
/// a script can still do something about there being none.
pub(crate) fn patience(call: &Call) -> Instant {
    let now = Instant::now();
    now + call.deadline().saturating_duration_since(now).mul_f64(0.75)
}
