//! The order of answers in a run: which one its script is given next, and what time it is
//! for it.
//!
//! A run is a function of its script, its seed, its answers and their order. So
//! answers are handed over one at a time, in the order in which the calls ended,
//! and that order is on record. It is counted in microseconds since the run
//! began, each answer later than the one before: the script's clock moves when
//! it is given an answer, so that a run that is resumed sees the same times. A run
//! that follows a plan is given its answers in the order of the plan.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

/// A place in a script's tree of coroutines: `2` is its second call, `m1.3/2`
/// the second call for the third item of its first `map_parallel`.
pub type CallSite = Arc<str>;

pub(super) struct AnswerSequencer {
    began: SystemTime,
    /// When this part of the run began, and how long after its beginning.
    started: Instant,
    before: Duration,
    state: Mutex<AnswerSequencerState>,
    /// Whether everything on record was handed over.
    live: watch::Sender<bool>,
}

#[derive(Default)]
struct AnswerSequencerState {
    /// Those of a plan, whether they are there yet or not; they come first.
    planned: VecDeque<(u64, CallSite)>,
    /// Those to hand over, first things first.
    queue: VecDeque<(u64, CallSite)>,
    /// When each was, or is to be, given that has not been handed over.
    orders: HashMap<CallSite, u64>,
    /// How many are on record from before, and have to be handed over first.
    recorded: usize,
    last: u64,
    /// What the script's clock shows.
    clock: u64,
    /// How often something random was drawn.
    draws: u64,
    /// The script has ended: what ends now has not been answered.
    is_closed: bool,
}

impl AnswerSequencer {
    /// With what is on record, and the order of a plan if there is one.
    pub(super) fn new(
        began: SystemTime,
        recorded: Vec<(u64, CallSite)>,
        mut planned: Vec<(u64, CallSite)>,
    ) -> AnswerSequencer {
        planned.sort_unstable();
        let on_record: HashSet<CallSite> = recorded.iter().map(|(_, at)| at.clone()).collect();
        let mut orders: HashMap<CallSite, u64> =
            planned.iter().map(|(order, at)| (at.clone(), *order)).collect();
        // Whatever comes behind one that is not there was never handed over.
        let first = planned.iter().take_while(|(_, at)| on_record.contains(at)).count();
        let queue: VecDeque<(u64, CallSite)> =
            recorded.into_iter().filter(|(_, at)| !orders.contains_key(at)).collect();
        let behind = if first == planned.len() { queue.len() } else { 0 };
        orders.extend(queue.iter().map(|(order, at)| (at.clone(), *order)));
        let state = AnswerSequencerState {
            recorded: first + behind,
            last: orders.values().copied().max().unwrap_or(0),
            orders,
            queue,
            planned: planned.into(),
            ..AnswerSequencerState::default()
        };
        let live = watch::Sender::new(state.recorded == 0);
        AnswerSequencer {
            began,
            started: Instant::now(),
            before: SystemTime::now().duration_since(began).unwrap_or_default(),
            state: Mutex::new(state),
            live,
        }
    }

    /// A call has ended: which answer it is. The same every time it is asked.
    pub(super) fn order_of(&self, at: &CallSite) -> u64 {
        let mut state = self.state.lock();
        if let Some(order) = state.orders.get(at) {
            return *order;
        }
        let order = saturating_micros(self.before + self.started.elapsed())
            .max(state.last.saturating_add(1));
        state.last = order;
        state.orders.insert(at.clone(), order);
        state.queue.push_back((order, at.clone()));
        order
    }

    /// The same clock, but that it goes on from what is on record, however long ago that was.
    pub(super) fn without_time_since(self) -> AnswerSequencer {
        AnswerSequencer { before: Duration::ZERO, ..self }
    }

    /// The answer at this place is given next, with its number then, or the next one: the
    /// script's clock never goes back.
    pub(super) fn reserve_order(&self, at: &CallSite, then: u64) -> u64 {
        let mut state = self.state.lock();
        if let Some(order) = state.orders.get(at) {
            return *order;
        }
        let order = then.max(state.last.saturating_add(1));
        state.last = order;
        state.orders.insert(at.clone(), order);
        state.queue.push_back((order, at.clone()));
        order
    }

    /// Whether an answer is there, or will be in a moment.
    pub(super) fn has_next(&self) -> bool {
        let state = self.state.lock();
        !state.planned.is_empty() || !state.queue.is_empty()
    }

    /// Which answer it is, unless it came when the script had ended.
    pub(super) fn order_before_close(&self, at: &CallSite) -> Option<u64> {
        let is_late = {
            let state = self.state.lock();
            state.is_closed && !state.orders.contains_key(at)
        };
        (!is_late).then(|| self.order_of(at))
    }

    /// The script has ended.
    pub(super) fn close(&self) {
        self.state.lock().is_closed = true;
    }

    /// Whether a call has an answer that the script was not given.
    pub(super) fn has_order(&self, at: &CallSite) -> bool {
        self.state.lock().orders.contains_key(at)
    }

    /// Where the answer belongs that the script is given next.
    pub(super) fn next_site(&self) -> Option<CallSite> {
        let state = self.state.lock();
        state.planned.front().or(state.queue.front()).map(|(_, at)| at.clone())
    }

    /// The script is given that answer.
    pub(super) fn hand_over_next(&self) {
        let mut state = self.state.lock();
        let next = state.planned.pop_front();
        let Some((order, at)) = next.or_else(|| state.queue.pop_front()) else { return };
        state.orders.remove(&at);
        state.clock = state.clock.max(order);
        if state.recorded > 0 {
            state.recorded -= 1;
            if state.recorded == 0 {
                drop(state);
                self.live.send_replace(true);
            }
        }
    }

    pub(super) fn is_replaying(&self) -> bool {
        !*self.live.borrow()
    }

    /// Until everything on record was handed over.
    pub(super) async fn wait_until_live(&self) {
        // The sender is here, so it cannot be gone.
        let _ = self.live.subscribe().wait_for(|live| *live).await;
    }

    /// The script looks at its clock, which thereby moves a little: whoever waits
    /// for it by looking must not wait for ever.
    pub(super) fn read_clock(&self) -> Duration {
        let mut state = self.state.lock();
        state.clock = state.clock.saturating_add(1);
        Duration::from_micros(state.clock)
    }

    pub(super) fn began_at(&self) -> SystemTime {
        self.began
    }

    /// Which draw this is.
    pub(super) fn next_draw(&self) -> u64 {
        let mut state = self.state.lock();
        state.draws += 1;
        state.draws
    }
}

fn saturating_micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(place: &str) -> CallSite {
        place.into()
    }

    #[tokio::test]
    async fn what_is_on_record_comes_first_and_the_clock_follows() {
        let began = SystemTime::now();
        let recorded = vec![(7, at("1")), (u64::MAX / 2, at("2"))];
        let answers = AnswerSequencer::new(began, recorded, vec![]);
        let third = answers.order_of(&at("3"));
        assert_eq!(third, u64::MAX / 2 + 1);
        assert_eq!(answers.order_of(&at("2")), u64::MAX / 2);
        assert_eq!(answers.next_site(), Some(at("1")));
        assert_eq!(answers.read_clock(), Duration::from_micros(1));
        answers.hand_over_next();
        assert_eq!(answers.read_clock(), Duration::from_micros(8));
        assert_eq!(answers.read_clock(), Duration::from_micros(9));
        assert!(answers.is_replaying());
        answers.hand_over_next();
        assert!(!answers.is_replaying());
        answers.wait_until_live().await;
        assert_eq!(answers.next_site(), Some(at("3")));
    }

    #[tokio::test]
    async fn the_order_of_a_plan_is_kept_and_nothing_waits_for_what_is_not_there() {
        let planned = vec![(9, at("3")), (5, at("1")), (7, at("2"))];
        // The second was lost, and the third had not been handed over by then.
        let recorded = vec![(5, at("1")), (9, at("3"))];
        let answers = AnswerSequencer::new(SystemTime::now(), recorded, planned);
        assert_eq!(answers.next_site(), Some(at("1")));
        assert!(answers.is_replaying());
        answers.hand_over_next();
        assert!(!answers.is_replaying());
        assert_eq!(answers.next_site(), Some(at("2")));
        assert_eq!((answers.order_of(&at("3")), answers.order_of(&at("2"))), (9, 7));
        let other = answers.order_of(&at("4"));
        assert!(other > 9);
        answers.hand_over_next();
        answers.hand_over_next();
        assert_eq!(answers.read_clock(), Duration::from_micros(10));
        assert_eq!(answers.next_site(), Some(at("4")));
    }
}
