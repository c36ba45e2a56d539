//! The queue of entries to be written: bounded, fair to callers, cheap to add to.
//!
//! Every caller has a lane of its own, with room in bytes and entries. The writer takes from
//! the lanes in turns, about the same number of bytes from each, so one caller with much to
//! write holds up itself and no other. Entries of one lane stay in their order.
//!
//! Adding wakes the writer only when it sleeps with nothing to do, or when
//! somebody waits for the entry: else it looks by itself, a moment later, and
//! finds many at once.

mod run_budget;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use moonlark_core::Result;
use moonlark_core::record_id::RecordId;
use moonlark_core::tool::BoxFuture;
use moonlark_gateway::journal::{JournalEntry, UpcomingCall, ValueCosts, caller_key};
use parking_lot::{Condvar, Mutex};
use tokio::sync::{Notify, oneshot};

use run_budget::RunBudgets;

/// Entries, and bytes of them, that may wait before calls of the callers with most of them do.
const MAX_QUEUED_ENTRIES: usize = 20_000;
const MAX_QUEUED_BYTES: usize = 64 * 1024 * 1024;
/// The same for one caller, whatever others have.
const MAX_CALLER_ENTRIES: usize = MAX_QUEUED_ENTRIES / 2;
const MAX_CALLER_BYTES: usize = MAX_QUEUED_BYTES / 4;
/// Entries, and bytes of them, that are written in one go. One entry may be larger.
const MAX_BATCH_ENTRIES: usize = 4096;
const MAX_BATCH_BYTES: usize = 4 * 1024 * 1024;
/// What a lane may write in one turn; a larger entry is paid for with later turns.
const TURN_BYTES: usize = 256 * 1024;
/// Empty lanes that are kept, with the memory that they had.
const MAX_IDLE_LANES: usize = 64;
/// How long the writer waits for more to come: a transaction costs as much as
/// dozens of entries in it.
const WRITER_LINGER_TIME: Duration = Duration::from_millis(50);

/// The lane of runs that this process took over, and of whoever waits for no caller's entries.
static COMMON_LANE: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(""));

#[derive(Default)]
pub(crate) struct JournalQueue {
    state: Mutex<JournalQueueState>,
    added: Condvar,
    room: Notify,
}

#[derive(Default)]
struct JournalQueueState {
    lanes: HashMap<Arc<str>, CallerLane>,
    /// The lanes that are not empty, the next to be written first.
    turns: VecDeque<Arc<str>>,
    runs: RunBudgets,
    entries: usize,
    weight: usize,
    /// The same, counting no more of a lane than one caller may have: what one caller adds
    /// beyond that is no reason for others to wait.
    counted_weight: usize,
    /// Entries that somebody waits for.
    awaited: usize,
    /// Entries that are in no log: they survive the process only in the database.
    unlogged: usize,
    writer: QueueWriterState,
    closed: bool,
    /// Nothing can be written at the moment: nobody waits for room.
    broken: bool,
    /// Entries that were given up.
    lost: u64,
    /// The files of the log that have those.
    given_up: Vec<u64>,
}

/// What waits of one caller.
#[derive(Default)]
struct CallerLane {
    items: VecDeque<JournalQueueItem>,
    weight: usize,
    /// Bytes it may still write in its turn; below zero after a large entry.
    credit: i64,
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
    /// What people are shown of it, if that is known already.
    pub(crate) shown: Option<String>,
    /// The file of the log that has it, if one has.
    pub(crate) logged: Option<u64>,
    pub(crate) waits: Option<oneshot::Sender<Result<()>>>,
    /// Whether whoever waits needs it to survive a loss of power.
    pub(crate) durable: bool,
    /// About how many bytes it takes in memory.
    pub(crate) weight: usize,
}

impl JournalQueueItem {
    pub(crate) fn new(
        entry: Option<JournalEntry>,
        waits: Option<oneshot::Sender<Result<()>>>,
    ) -> JournalQueueItem {
        let weight = entry.as_ref().map_or(0, JournalEntry::approx_bytes);
        JournalQueueItem { entry, shown: None, logged: None, waits, durable: false, weight }
    }

    fn is_unlogged(&self) -> bool {
        self.entry.is_some() && self.logged.is_none()
    }

    /// The same, to survive a loss of power before whoever waits goes on.
    pub(crate) fn into_durable(self, waits: oneshot::Sender<Result<()>>) -> JournalQueueItem {
        JournalQueueItem { durable: true, waits: Some(waits), ..self }
    }
}

/// Everything that was taken of somebody until now; written when all of these are.
pub(crate) struct FlushMarkers(Vec<oneshot::Receiver<Result<()>>>);

impl FlushMarkers {
    /// None where the journal was closed before.
    pub(crate) async fn wait_until_written(self) -> Option<Result<()>> {
        for marker in self.0 {
            match marker.await {
                Ok(Ok(())) => {}
                Ok(Err(problem)) => return Some(Err(problem)),
                Err(_) => return None,
            }
        }
        Some(Ok(()))
    }
}

impl JournalQueue {
    /// Take an entry; never refused but when the queue is closed. Who adds many waits for
    /// room first.
    pub(crate) fn push_item(&self, item: JournalQueueItem) {
        let mut state = self.state.lock();
        let lane = state.lane_of(item.entry.as_ref());
        let wake = state.push(lane, item);
        drop(state);
        self.wake_writer(wake);
    }

    /// Whether both entries of a call that was refused are taken: nobody waits for room with
    /// them, and what did not happen need not be on record.
    pub(crate) fn admit_refused_call(&self, caller: &str) -> bool {
        let mut state = self.state.lock();
        let is_taken = !state.is_overfull(caller);
        state.lost += if is_taken { 0 } else { 2 };
        is_taken
    }

    /// When all is written that was taken until now.
    pub(crate) fn push_flush(&self) -> FlushMarkers {
        let mut state = self.state.lock();
        let lanes: Vec<Arc<str>> = state.turns.iter().cloned().collect();
        self.push_markers(&mut state, lanes)
    }

    /// When all is written that was taken of one caller.
    pub(crate) fn push_caller_flush(&self, caller: Arc<str>) -> FlushMarkers {
        let mut state = self.state.lock();
        let is_common_used = state.lanes.get(&*COMMON_LANE).is_some_and(|it| !it.items.is_empty());
        let common = is_common_used.then(|| COMMON_LANE.clone());
        self.push_markers(&mut state, std::iter::once(caller).chain(common).collect())
    }

    /// When all is written that was taken of one run. One that is not known has ended and was
    /// written, or is just being written.
    pub(crate) fn push_run_flush(&self, run: RecordId) -> FlushMarkers {
        let mut state = self.state.lock();
        let lane = state.runs.lane_of(run).unwrap_or_else(|| COMMON_LANE.clone());
        self.push_markers(&mut state, vec![lane])
    }

    fn push_markers(
        &self,
        state: &mut JournalQueueState,
        mut lanes: Vec<Arc<str>>,
    ) -> FlushMarkers {
        // What the writer has taken is written before anything that is added now.
        if lanes.is_empty() {
            lanes.push(COMMON_LANE.clone());
        }
        let (mut markers, mut wake) = (Vec::with_capacity(lanes.len()), false);
        for lane in lanes {
            let (waits, written) = oneshot::channel();
            wake |= state.push(lane, JournalQueueItem::new(None, Some(waits)));
            markers.push(written);
        }
        self.wake_writer(wake);
        FlushMarkers(markers)
    }

    fn wake_writer(&self, wake: bool) {
        if wake {
            self.added.notify_one();
        }
    }

    /// Nothing if a run can begin, else what to wait for.
    pub(crate) fn wait_for_room(self: &Arc<Self>) -> Option<BoxFuture<()>> {
        let is_short = |state: &JournalQueueState| state.is_crammed() && state.is_written();
        if !is_short(&self.state.lock()) {
            return None;
        }
        Some(self.wait_while(is_short))
    }

    /// Nothing if the call can begin, else what to wait for; a Problem if its run may not put
    /// that much on record.
    pub(crate) fn prepare_call(
        self: &Arc<Self>,
        call: UpcomingCall<'_>,
    ) -> Result<Option<BoxFuture<()>>> {
        let bytes = call.exact_args.map(|args| ValueCosts::RECORDED_COSTS.value_bytes(args));
        let mut state = self.state.lock();
        if let (Some(bytes), Some(run)) = (bytes, call.run) {
            state.runs.count_call(run, call.caller.name(), call.tool, bytes)?;
        }
        if !state.is_short_of_room(call.caller.name()) {
            return Ok(None);
        }
        drop(state);
        let caller = caller_key(call.caller);
        Ok(Some(self.wait_while(move |state| state.is_short_of_room(&caller))))
    }

    /// Count an answer that goes on record exactly; a Problem if it may not.
    pub(crate) fn count_answer(&self, run: RecordId, tool: &str, bytes: usize) -> Result<()> {
        self.state.lock().runs.count_answer(run, tool, bytes)
    }

    fn wait_while(
        self: &Arc<Self>,
        is_short: impl Fn(&JournalQueueState) -> bool + Send + 'static,
    ) -> BoxFuture<()> {
        let queue = self.clone();
        Box::pin(async move {
            loop {
                let freed = queue.room.notified();
                if !is_short(&queue.state.lock()) {
                    return;
                }
                freed.await;
            }
        })
    }

    /// A run that is on record already goes on here. `caller` if it was begun by this
    /// process: else its entries have the common lane.
    pub(crate) fn add_run(&self, run: RecordId, caller: Option<Arc<str>>, bytes: usize) {
        let lane = caller.unwrap_or_else(|| COMMON_LANE.clone());
        self.state.lock().runs.add(run, lane, bytes);
    }

    /// What the file may take: runs have their part of it.
    pub(crate) fn set_journal_size(&self, size: u64) {
        self.state.lock().runs.set_journal_size(size);
    }

    /// The caller whose runs fill the journal, none of which can be removed, if there is one.
    pub(crate) fn set_full_of(&self, caller: Option<Arc<str>>) {
        self.state.lock().runs.full_of = caller;
    }

    /// The next entries to write, of each caller as they came; none after `patience` without
    /// any, or when the queue is closed and empty.
    pub(crate) fn take_batch(&self, patience: Duration) -> Vec<JournalQueueItem> {
        let mut state = self.state.lock();
        if state.entries == 0 && !state.closed {
            state.writer = QueueWriterState::Idle;
            self.added.wait_for(&mut state, patience);
        }
        if state.entries > 0 && !state.fills_batch() && state.awaited == 0 && !state.closed {
            state.writer = QueueWriterState::Lingering;
            self.added.wait_for(&mut state, WRITER_LINGER_TIME);
        }
        state.writer = QueueWriterState::Busy;
        let taken = state.take_turns();
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
        state.closed && state.entries == 0
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Whether what is added can be written. While it cannot, calls do not wait
    /// for room, and the oldest entries of whoever has most make it.
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

    /// Whether all entries that wait, or are being written, are in the log.
    pub(crate) fn is_logged(&self) -> bool {
        self.state.lock().unlogged == 0
    }

    /// The files of the log that have entries that were given up.
    pub(crate) fn take_given_up(&self) -> Vec<u64> {
        std::mem::take(&mut self.state.lock().given_up)
    }

    /// These are in the database, or were given up.
    pub(crate) fn count_written(&self, items: &[JournalQueueItem]) {
        let unlogged = items.iter().filter(|item| item.is_unlogged()).count();
        if unlogged > 0 {
            self.state.lock().unlogged -= unlogged;
        }
    }

    /// Entries that wait, and that were given up.
    pub(crate) fn waiting_and_lost(&self) -> (usize, u64) {
        let state = self.state.lock();
        (state.entries, state.lost)
    }
}

impl JournalQueueState {
    /// Where an entry belongs: with the others of its caller, or of its run.
    fn lane_of(&mut self, entry: Option<&JournalEntry>) -> Arc<str> {
        let run = match entry {
            Some(JournalEntry::CallBegan(began)) => return caller_key(&began.caller),
            Some(JournalEntry::CallEnded(ended)) => return ended.caller.clone(),
            Some(JournalEntry::RunBegan(began)) => {
                let lane = caller_key(&began.caller);
                self.runs.add(began.run, lane.clone(), began.script.len());
                return lane;
            }
            Some(JournalEntry::RunPaused(paused)) => paused.run,
            Some(JournalEntry::RunWentOn(run)) => *run,
            Some(JournalEntry::RunEnded(ended)) => ended.run,
            None => return COMMON_LANE.clone(),
        };
        self.runs.lane_of(run).unwrap_or_else(|| COMMON_LANE.clone())
    }

    /// Whether the writer has to be woken.
    fn push(&mut self, lane: Arc<str>, item: JournalQueueItem) -> bool {
        if self.closed {
            self.lost += u64::from(item.entry.is_some());
            return false;
        }
        let is_urgent = item.waits.is_some();
        let filled_before = self.fills_batch();
        self.entries += 1;
        self.awaited += usize::from(is_urgent);
        self.unlogged += usize::from(item.is_unlogged());
        let known = match self.lanes.get_mut(&lane) {
            Some(known) => known,
            None => self.lanes.entry(lane.clone()).or_default(),
        };
        let counted = known.weight.min(MAX_CALLER_BYTES);
        known.weight += item.weight;
        self.weight += item.weight;
        self.counted_weight += known.weight.min(MAX_CALLER_BYTES) - counted;
        if known.items.is_empty() {
            self.turns.push_back(lane);
        }
        known.items.push_back(item);
        while self.broken && self.is_full() && self.give_up_oldest() {}
        let wake = match self.writer {
            QueueWriterState::Busy => false,
            QueueWriterState::Lingering => is_urgent || (self.fills_batch() && !filled_before),
            QueueWriterState::Idle => true,
        };
        if wake {
            self.writer = QueueWriterState::Busy;
        }
        wake
    }

    /// What is written next: of each lane in its turn, until it is enough.
    fn take_turns(&mut self) -> Vec<JournalQueueItem> {
        let mut taken = Vec::with_capacity(self.entries.min(MAX_BATCH_ENTRIES));
        let mut bytes = 0;
        while bytes < MAX_BATCH_BYTES && taken.len() < MAX_BATCH_ENTRIES {
            let Some(name) = self.turns.pop_front() else { break };
            let Some(lane) = self.lanes.get_mut(&name) else { continue };
            lane.credit += TURN_BYTES as i64;
            while lane.credit > 0
                && bytes < MAX_BATCH_BYTES
                && taken.len() < MAX_BATCH_ENTRIES
                && let Some(item) = lane.pop_front(&mut self.counted_weight)
            {
                lane.credit -= item.weight as i64 + ENTRY_COST;
                bytes += item.weight;
                self.entries -= 1;
                self.weight -= item.weight;
                self.awaited -= usize::from(item.waits.is_some());
                if let Some(JournalEntry::RunEnded(ended)) = &item.entry {
                    self.runs.remove(ended.run);
                }
                taken.push(item);
            }
            if !lane.items.is_empty() {
                lane.credit = lane.credit.min(0);
                self.turns.push_back(name);
                continue;
            }
            lane.credit = 0;
            if self.lanes.len() > MAX_IDLE_LANES {
                self.lanes.remove(&name);
            }
        }
        taken
    }

    fn fills_batch(&self) -> bool {
        self.entries >= MAX_BATCH_ENTRIES || self.weight >= MAX_BATCH_BYTES
    }

    fn is_written(&self) -> bool {
        !self.broken && !self.closed
    }

    fn is_full(&self) -> bool {
        self.entries >= MAX_QUEUED_ENTRIES || self.counted_weight >= MAX_QUEUED_BYTES
    }

    /// So full that everybody waits.
    fn is_crammed(&self) -> bool {
        self.entries >= 2 * MAX_QUEUED_ENTRIES || self.counted_weight >= 2 * MAX_QUEUED_BYTES
    }

    /// Whether calls of this caller wait: it has what one caller may have, or all together
    /// have what there may be and it has no less of it than others.
    fn is_short_of_room(&self, caller: &str) -> bool {
        if !self.is_written() {
            return false;
        }
        let Some(lane) = self.lanes.get(caller) else { return self.is_crammed() };
        let lanes = self.turns.len();
        let is_largest =
            lane.items.len() * lanes >= self.entries || lane.weight * lanes >= self.weight;
        lane.items.len() >= MAX_CALLER_ENTRIES
            || lane.weight >= MAX_CALLER_BYTES
            || (self.is_full() && is_largest)
            || self.is_crammed()
    }

    fn is_overfull(&self, caller: &str) -> bool {
        let own = self.lanes.get(caller).is_some_and(|lane| {
            lane.items.len() >= 4 * MAX_CALLER_ENTRIES || lane.weight >= 4 * MAX_CALLER_BYTES
        });
        own || self.is_crammed()
    }

    /// Whether there was one.
    fn give_up_oldest(&mut self) -> bool {
        let largest = self.lanes.iter_mut().max_by_key(|(_, lane)| (lane.weight, lane.items.len()));
        let Some((name, lane)) = largest else { return false };
        let Some(item) = lane.pop_front(&mut self.counted_weight) else { return false };
        if lane.items.is_empty() {
            self.turns.retain(|turn| turn != name);
        }
        self.entries -= 1;
        self.weight -= item.weight;
        self.awaited -= usize::from(item.waits.is_some());
        self.unlogged -= usize::from(item.is_unlogged());
        self.given_up.extend(item.logged);
        self.lost += 1;
        if let Some(JournalEntry::RunEnded(ended)) = &item.entry {
            self.runs.remove(ended.run);
        }
        true
    }
}

/// What an entry costs in a lane's turn besides its bytes.
const ENTRY_COST: i64 = 64;

impl CallerLane {
    fn pop_front(&mut self, counted_weight: &mut usize) -> Option<JournalQueueItem> {
        let item = self.items.pop_front()?;
        let counted = self.weight.min(MAX_CALLER_BYTES);
        self.weight -= item.weight;
        *counted_weight -= counted - self.weight.min(MAX_CALLER_BYTES);
        Some(item)
    }
}

#[cfg(test)]
mod tests;
