//! A connection pool: a few idle connections per target, for a while.
//!
//! What a connection is, and whether an idle one still works, only the modules
//! know. Here stands how many there may be, and that nobody waits for one past
//! its deadline.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use moonlark_core::{Problem, Result};
use moonlark_gateway::Call;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

pub(crate) struct ConnectionPool<K, C> {
    /// Connections in use at once, to one place.
    per_place: usize,
    /// Places with connections.
    places: usize,
    /// How long a connection may be idle.
    idle: Duration,
    state: Mutex<ConnectionPoolState<K, C>>,
}

struct ConnectionPoolState<K, C> {
    places: HashMap<K, PooledConnections<C>>,
    /// When idle connections are looked through next.
    sweep: Option<Instant>,
}

struct PooledConnections<C> {
    slots: Arc<Semaphore>,
    /// The newest last.
    idle: Vec<(Instant, C)>,
    used: Instant,
}

/// The right to one connection, and an idle one if there was any.
pub(crate) struct ConnectionSlot<K: 'static, C: 'static> {
    pool: &'static ConnectionPool<K, C>,
    place: K,
    _permit: OwnedSemaphorePermit,
}

impl<K: Hash + Eq + Clone + Send + 'static, C: Send + 'static> ConnectionPool<K, C> {
    pub(crate) fn new(places: usize, per_place: usize) -> Self {
        let state = ConnectionPoolState { places: HashMap::new(), sweep: None };
        let idle = Duration::from_secs(30);
        Self { per_place, places, idle, state: Mutex::new(state) }
    }

    /// Wait `until` then for the right to a connection to `place`; `shown` names
    /// it in the Problem.
    pub(crate) async fn acquire_slot(
        &'static self,
        until: Instant,
        place: &K,
        shown: &str,
    ) -> Result<ConnectionSlot<K, C>> {
        let slots = self.slots_for(place)?;
        match tokio::time::timeout_at(until, slots.acquire_owned()).await {
            Ok(Ok(permit)) => {
                Ok(ConnectionSlot { pool: self, place: place.clone(), _permit: permit })
            }
            _ => Err(Problem::unavailable(format!(
                "all {} connections to {shown} are busy",
                self.per_place
            ))
            .with_hint("try again later, or make fewer calls at once")),
        }
    }

    fn slots_for(&self, place: &K) -> Result<Arc<Semaphore>> {
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
                .with_hint("try again later"));
            };
            state.places.remove(&oldest);
        }
        let slots = Arc::new(Semaphore::new(self.per_place));
        let new =
            PooledConnections { slots: slots.clone(), idle: Vec::new(), used: Instant::now() };
        state.places.insert(place.clone(), new);
        Ok(slots)
    }

    /// Close what has been idle for too long, now and later.
    fn close_idle_connections(&'static self) {
        let now = Instant::now();
        let mut old = Vec::new();
        let mut state = self.state.lock();
        state.places.retain(|_, known| {
            let first_young = known.idle.iter().position(|(since, _)| now - *since < self.idle);
            old.extend(known.idle.drain(..first_young.unwrap_or(known.idle.len())));
            !known.idle.is_empty() || Arc::strong_count(&known.slots) > 1
        });
        let idle = state.places.values().any(|known| !known.idle.is_empty());
        // A runtime that ended took its sweep with it: then it is long due.
        let due = state.sweep.is_none_or(|at| now > at + self.idle);
        if idle
            && due
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let at = now + self.idle;
            state.sweep = Some(at);
            #[expect(
                clippy::disallowed_methods,
                reason = "pools last as long as the process; it ends when nothing is idle"
            )]
            runtime.spawn(async move {
                tokio::time::sleep_until(at).await;
                self.state.lock().sweep = None;
                self.close_idle_connections();
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

impl<K: Hash + Eq + Clone + Send + 'static, C: Send + 'static> ConnectionSlot<K, C> {
    /// A connection that was given back, the newest first.
    pub(crate) fn take_idle(&self) -> Option<C> {
        let mut state = self.pool.state.lock();
        state.places.get_mut(&self.place)?.idle.pop().map(|(_, connection)| connection)
    }

    /// Keep a connection that is as good as new for the next call.
    pub(crate) fn return_connection(self, connection: C) {
        if let Some(known) = self.pool.state.lock().places.get_mut(&self.place) {
            known.idle.push((Instant::now(), connection));
        }
        self.pool.close_idle_connections();
    }
}

/// Until when a call may wait for a connection: short of its deadline, so that
/// a script can still do something about there being none.
pub(crate) fn connection_wait_deadline(call: &Call) -> Instant {
    let now = Instant::now();
    now + call.deadline().saturating_duration_since(now).mul_f64(0.75)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Numbers = ConnectionPool<&'static str, u32>;

    fn pool(idle: Duration) -> &'static Numbers {
        Box::leak(Box::new(ConnectionPool { idle, ..ConnectionPool::new(2, 2) }))
    }

    async fn slot(
        pool: &'static Numbers,
        place: &'static str,
    ) -> Result<ConnectionSlot<&'static str, u32>> {
        pool.acquire_slot(Instant::now() + Duration::from_millis(20), &place, place).await
    }

    #[tokio::test]
    async fn there_are_so_many_connections_and_no_more() {
        let pool = pool(Duration::from_secs(30));
        let (one, two) = (slot(pool, "a").await.unwrap(), slot(pool, "a").await.unwrap());
        let full = slot(pool, "a").await.err().unwrap();
        assert_eq!(full.message, "all 2 connections to a are busy");
        one.return_connection(1);
        assert_eq!(slot(pool, "a").await.unwrap().take_idle(), Some(1));
        drop(two);
        assert_eq!(slot(pool, "a").await.unwrap().take_idle(), None);
    }

    #[tokio::test]
    async fn the_place_unused_for_longest_makes_room() {
        let pool = pool(Duration::from_secs(30));
        slot(pool, "a").await.unwrap().return_connection(1);
        slot(pool, "b").await.unwrap().return_connection(2);
        let c = slot(pool, "c").await.unwrap();
        assert_eq!(slot(pool, "b").await.unwrap().take_idle(), Some(2));
        let b = slot(pool, "b").await.unwrap();
        let full = slot(pool, "a").await.err().unwrap();
        assert_eq!(full.message, "2 databases are in use at once, which is the limit");
        drop((b, c));
        assert_eq!(slot(pool, "a").await.unwrap().take_idle(), None);
    }

    #[tokio::test]
    async fn what_is_idle_for_too_long_is_closed() {
        let pool = pool(Duration::from_millis(30));
        slot(pool, "a").await.unwrap().return_connection(1);
        let started = Instant::now();
        while !pool.state.lock().places.is_empty() {
            assert!(started.elapsed() < Duration::from_secs(10));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
