//! What waits to be written: bounded, in order, cheap to add to.
//!
//! Adding wakes the writer only when it sleeps with nothing to do, or when
//! somebody waits for the entry: else it looks by itself, a moment later, and
//! finds many at once.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use moonlark_core::Result;
use moonlark_core::journal::JournalEntry;
use moonlark_core::tool::BoxFuture;
use parking_lot::{Condvar, Mutex};
use tokio::sync::{Notify, oneshot};

/// Entries, and bytes of them, that may wait before calls do.
const MAX_QUEUED_ENTRIES: usize = 20_000;
const MAX_QUEUED_BYTES: usize = 64 * 1024 * 1024;
/// Entries that are written in one go.
const MAX_BATCH_ENTRIES: usize = 4096;
/// How long the writer waits for more to come: a transaction costs as much as
/// dozens of entries in it.
const WRITER_LINGER_TIME: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(crate) struct JournalQueue {
    state: Mutex<JournalQueueState>,
    added: Condvar,
    room: Notify,
}

#[derive(Default)]
struct JournalQueueState {
    items: VecDeque<JournalQueueItem>,
    weight: usize,
    writer: QueueWriterState,
    /// Somebody waits for an entry to be durable.
    urgent: bool,
    closed: bool,
    /// Nothing can be written at the moment: nobody waits for room.
    broken: bool,
    /// Entries that were given up.
    lost: u64,
}

#[derive(Default, Clone, Copy, PartialEq)]
enum QueueWriterState {
    #[default]
    Busy,
    /// It has something to write, and waits for more.
    Lingering,
    Idle,
}

/// An entry and who waits for it; no entry for whoever waits for all before.
pub(crate) struct JournalQueueItem {
    pub(crate) entry: Option<JournalEntry>,
    pub(crate) waits: Option<oneshot::Sender<Result<()>>>,
    /// Whether whoever waits needs it to survive a loss of power.
    pub(crate) durable: bool,
    weight: usize,
}

impl JournalQueueItem {
    pub(crate) fn new(
        entry: Option<JournalEntry>,
        waits: Option<oneshot::Sender<Result<()>>>,
    ) -> JournalQueueItem {
        let weight = entry.as_ref().map_or(0, JournalEntry::approx_bytes);
        JournalQueueItem { entry, waits, durable: false, weight }
    }

    /// An entry that must survive a loss of power before whoever waits goes on.
    pub(crate) fn new_durable(
        entry: JournalEntry,
        waits: oneshot::Sender<Result<()>>,
    ) -> JournalQueueItem {
        JournalQueueItem { durable: true, ..JournalQueueItem::new(Some(entry), Some(waits)) }
    }
}

impl JournalQueue {
    pub(crate) fn push_item(&self, item: JournalQueueItem) {
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
            QueueWriterState::Busy => false,
            QueueWriterState::Lingering => urgent || state.items.len() == MAX_BATCH_ENTRIES,
            QueueWriterState::Idle => true,
        };
        if wake {
            state.writer = QueueWriterState::Busy;
        }
        drop(state);
        if wake {
            self.added.notify_one();
        }
    }

    /// Nothing if there is room, else what to wait for.
    pub(crate) fn wait_for_room(self: &Arc<Self>) -> Option<BoxFuture<()>> {
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
    pub(crate) fn take_batch(&self, patience: Duration) -> Vec<JournalQueueItem> {
        let mut state = self.state.lock();
        if state.items.is_empty() && !state.closed {
            state.writer = QueueWriterState::Idle;
            self.added.wait_for(&mut state, patience);
        }
        let more = |state: &JournalQueueState| {
            state.items.len() < MAX_BATCH_ENTRIES && !state.items.is_empty()
        };
        if more(&state) && !state.urgent && !state.closed {
            state.writer = QueueWriterState::Lingering;
            self.added.wait_for(&mut state, WRITER_LINGER_TIME);
        }
        state.writer = QueueWriterState::Busy;
        let count = state.items.len().min(MAX_BATCH_ENTRIES);
        let taken: Vec<JournalQueueItem> = state.items.drain(..count).collect();
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
    pub(crate) fn queued_bytes(&self) -> usize {
        self.state.lock().weight
    }

    /// Entries that wait, and that were given up.
    pub(crate) fn waiting_and_lost(&self) -> (usize, u64) {
        let state = self.state.lock();
        (state.items.len(), state.lost)
    }
}

impl JournalQueueState {
    fn is_full(&self) -> bool {
        self.items.len() >= MAX_QUEUED_ENTRIES || self.weight >= MAX_QUEUED_BYTES
    }

    fn is_overfull(&self) -> bool {
        self.items.len() >= 4 * MAX_QUEUED_ENTRIES || self.weight >= 4 * MAX_QUEUED_BYTES
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
    use moonlark_core::journal::RecordId;

    use super::*;

    fn item() -> JournalQueueItem {
        JournalQueueItem::new(Some(JournalEntry::RunWentOn(RecordId::new())), None)
    }

    #[tokio::test]
    async fn calls_wait_when_the_queue_is_full_and_go_on_when_it_is_not() {
        let queue = Arc::new(JournalQueue::default());
        for _ in 0..MAX_QUEUED_ENTRIES {
            assert!(queue.wait_for_room().is_none());
            queue.push_item(item());
        }
        let room = queue.wait_for_room().unwrap();
        let waiting = tokio::spawn(room);
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        assert_eq!(queue.take_batch(Duration::ZERO).len(), MAX_BATCH_ENTRIES);
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn while_nothing_can_be_written_nobody_waits_and_the_oldest_go() {
        let queue = Arc::new(JournalQueue::default());
        (0..MAX_QUEUED_ENTRIES).for_each(|_| queue.push_item(item()));
        let waiting = tokio::spawn(queue.wait_for_room().unwrap());
        queue.set_broken(true);
        waiting.await.unwrap();
        assert!(queue.wait_for_room().is_none());
        (0..10).for_each(|_| queue.push_item(item()));
        assert_eq!(queue.waiting_and_lost(), (MAX_QUEUED_ENTRIES - 1, 11));
    }

    #[test]
    fn what_nobody_waits_with_is_bounded_too() {
        let queue = JournalQueue::default();
        (0..5 * MAX_QUEUED_ENTRIES).for_each(|_| queue.push_item(item()));
        assert_eq!(queue.waiting_and_lost(), (4 * MAX_QUEUED_ENTRIES, MAX_QUEUED_ENTRIES as u64));
    }

    #[test]
    fn a_closed_queue_is_emptied_and_takes_no_more() {
        let queue = JournalQueue::default();
        queue.push_item(item());
        queue.close();
        queue.push_item(item());
        assert!(!queue.is_done());
        assert_eq!(queue.take_batch(Duration::from_secs(60)).len(), 1);
        assert!(queue.is_done());
        assert_eq!(queue.waiting_and_lost(), (0, 1));
    }
}
