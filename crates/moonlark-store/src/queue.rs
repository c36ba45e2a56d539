//! What waits to be written: bounded, in order, cheap to add to.
//!
//! Adding wakes the writer only when it sleeps with nothing to do, or when
//! somebody waits for the entry: else it looks by itself, a moment later, and
//! finds many at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use moonlark_core::Result;
use moonlark_core::journal::Entry;
use moonlark_core::tool::BoxFuture;
use parking_lot::{Condvar, Mutex};
use tokio::sync::{Notify, oneshot};

/// Entries, and bytes of them, that may wait before calls do.
const MOST: usize = 20_000;
const BYTES: usize = 64 * 1024 * 1024;
/// Entries that are written in one go.
const BATCH: usize = 4096;
/// How long the writer waits for more to come: a transaction costs as much as
/// dozens of entries in it.
const LINGER: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    added: Condvar,
    room: Notify,
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    weight: usize,
    writer: Writer,
    /// Somebody waits for an entry to be durable.
    urgent: bool,
    closed: bool,
    /// Nothing can be written at the moment: nobody waits for room.
    broken: bool,
    /// Entries that were given up.
    lost: u64,
}

#[derive(Default, Clone, Copy, PartialEq)]
enum Writer {
    #[default]
    Busy,
    /// It has something to write, and waits for more.
    Lingering,
    Idle,
}

/// An entry and who waits for it; no entry for whoever waits for all before.
pub(crate) struct Item {
    pub(crate) entry: Option<Entry>,
    pub(crate) waits: Option<oneshot::Sender<Result<()>>>,
    /// Whether whoever waits needs it to survive a loss of power.
    pub(crate) durable: bool,
    weight: usize,
}

impl Item {
    pub(crate) fn new(entry: Option<Entry>, waits: Option<oneshot::Sender<Result<()>>>) -> Item {
        let weight = entry.as_ref().map_or(0, Entry::weight);
        Item { entry, waits, durable: false, weight }
    }

    /// An entry that must survive a loss of power before whoever waits goes on.
    pub(crate) fn durable(entry: Entry, waits: oneshot::Sender<Result<()>>) -> Item {
        Item { durable: true, ..Item::new(Some(entry), Some(waits)) }
    }
}

impl Queue {
    pub(crate) fn add(&self, item: Item) {
        let urgent = item.waits.is_some();
        let mut state = self.state.lock();
        // Calls wait for room, so only those that were refused at once can be too
        // many: what did not happen need not be on record.
        if state.closed || state.is_overfull() {
            state.lost += u64::from(item.entry.is_some());
            return;
        }
        state.weight += item.weight;
        state.items.push_back(item);
        state.urgent |= urgent;
        while state.broken && state.is_full() {
            state.give_up_oldest();
        }
        let wake = match state.writer {
            Writer::Busy => false,
            Writer::Lingering => urgent || state.items.len() == BATCH,
            Writer::Idle => true,
        };
        if wake {
            state.writer = Writer::Busy;
        }
        drop(state);
        if wake {
            self.added.notify_one();
        }
    }

    /// Nothing if there is room, else what to wait for.
    pub(crate) fn room(self: &Arc<Self>) -> Option<BoxFuture<()>> {
        if !self.state.lock().is_short_of_room() {
            return None;
        }
        let queue = self.clone();
        Some(Box::pin(async move {
            loop {
                let freed = queue.room.notified();
                if !queue.state.lock().is_short_of_room() {
                    return;
                }
                freed.await;
            }
        }))
    }

    /// The next entries to write, as they came; none after `patience` without
    /// any, or when the queue is closed and empty.
    pub(crate) fn take(&self, patience: Duration) -> Vec<Item> {
        let mut state = self.state.lock();
        if state.items.is_empty() && !state.closed {
            state.writer = Writer::Idle;
            self.added.wait_for(&mut state, patience);
        }
        let more = |state: &State| state.items.len() < BATCH && !state.items.is_empty();
        if more(&state) && !state.urgent && !state.closed {
            state.writer = Writer::Lingering;
            self.added.wait_for(&mut state, LINGER);
        }
        state.writer = Writer::Busy;
        let count = state.items.len().min(BATCH);
        let taken: Vec<Item> = state.items.drain(..count).collect();
        state.weight -= taken.iter().map(|item| item.weight).sum::<usize>();
        state.urgent = state.items.iter().any(|item| item.waits.is_some());
        drop(state);
        self.room.notify_waiters();
        taken
    }

    /// No more entries: the writer ends when it has written what there is.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.added.notify_one();
    }

    pub(crate) fn is_done(&self) -> bool {
        let state = self.state.lock();
        state.closed && state.items.is_empty()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Whether what is added can be written. While it cannot, calls do not wait
    /// for room, and the oldest entries make it.
    pub(crate) fn set_broken(&self, broken: bool) {
        self.state.lock().broken = broken;
        self.room.notify_waiters();
    }

    pub(crate) fn count_lost(&self, entries: usize) {
        self.state.lock().lost += entries as u64;
    }

    /// Bytes of the entries that wait.
    pub(crate) fn weight(&self) -> usize {
        self.state.lock().weight
    }

    /// Entries that wait, and that were given up.
    pub(crate) fn counts(&self) -> (usize, u64) {
        let state = self.state.lock();
        (state.items.len(), state.lost)
    }
}

impl State {
    fn is_full(&self) -> bool {
        self.items.len() >= MOST || self.weight >= BYTES
    }

    fn is_overfull(&self) -> bool {
        self.items.len() >= 4 * MOST || self.weight >= 4 * BYTES
    }

    fn is_short_of_room(&self) -> bool {
        self.is_full() && !self.broken && !self.closed
    }

    fn give_up_oldest(&mut self) {
        if let Some(item) = self.items.pop_front() {
            self.weight -= item.weight;
            self.lost += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use moonlark_core::journal::Id;

    use super::*;

    fn item() -> Item {
        Item::new(Some(Entry::RunWentOn(Id::new())), None)
    }

    #[tokio::test]
    async fn calls_wait_when_the_queue_is_full_and_go_on_when_it_is_not() {
        let queue = Arc::new(Queue::default());
        for _ in 0..MOST {
            assert!(queue.room().is_none());
            queue.add(item());
        }
        let room = queue.room().unwrap();
        let waiting = tokio::spawn(room);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        assert_eq!(queue.take(Duration::ZERO).len(), BATCH);
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn while_nothing_can_be_written_nobody_waits_and_the_oldest_go() {
        let queue = Arc::new(Queue::default());
        (0..MOST).for_each(|_| queue.add(item()));
        let waiting = tokio::spawn(queue.room().unwrap());
        queue.set_broken(true);
        waiting.await.unwrap();
        assert!(queue.room().is_none());
        (0..10).for_each(|_| queue.add(item()));
        assert_eq!(queue.counts(), (MOST - 1, 11));
    }

    #[test]
    fn what_nobody_waits_with_is_bounded_too() {
        let queue = Queue::default();
        (0..5 * MOST).for_each(|_| queue.add(item()));
        assert_eq!(queue.counts(), (4 * MOST, MOST as u64));
    }

    #[test]
    fn a_closed_queue_is_emptied_and_takes_no_more() {
        let queue = Queue::default();
        queue.add(item());
        queue.close();
        queue.add(item());
        assert!(!queue.is_done());
        assert_eq!(queue.take(Duration::from_secs(60)).len(), 1);
        assert!(queue.is_done());
        assert_eq!(queue.counts(), (0, 1));
    }
}
