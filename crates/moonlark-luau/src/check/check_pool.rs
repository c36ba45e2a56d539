//! Worker processes for checks: a few, kept ready, and fair to all callers.
//!
//! A check that is stopped costs its process, which is replaced. However many
//! scripts one caller sends, another's wait for one of them at most. Those of one
//! caller wait for each other, so that each has little time while others wait: enough for
//! what people and models write, and not for what is made to be slow. Callers without a
//! token count as one.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use moonlark_core::Catalog;
use moonlark_core::limits::format_seconds;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::check_protocol::FinishedCheck;
use super::check_worker::{CheckFailure, CheckWorker};

/// More scripts than this do not wait for their check.
const MAX_WAITING_CHECKS: usize = 1024;
/// How long a script waits for a worker.
const CHECK_QUEUE_TIMEOUT: Duration =
    Duration::from_secs(if cfg!(debug_assertions) { 30 } else { 5 });
/// Processor time of one check. An honest script takes a few milliseconds, and several times
/// as many without optimisation.
const MAX_CHECK_TIME: Duration =
    Duration::from_millis(if cfg!(debug_assertions) { 1000 } else { 500 });
/// The same while others of its caller wait, who wait for all that come before them.
const MAX_CROWDED_CHECK_TIME: Duration = Duration::from_millis(50);
/// After this long without a check, one worker is left.
const IDLE_CHECK_WORKER_TIMEOUT: Duration = Duration::from_secs(60);

static CHECK_POOL: LazyLock<CheckPool> = LazyLock::new(|| CheckPool {
    workers: std::thread::available_parallelism().map_or(3, |cores| cores.get().clamp(3, 4)),
    state: Mutex::default(),
});

struct CheckPool {
    /// How many there may be.
    workers: usize,
    state: Mutex<CheckPoolState>,
}

#[derive(Default)]
struct CheckPoolState {
    idle: Vec<CheckWorker>,
    last_used: Option<Instant>,
    /// Whether somebody is there to end idle workers.
    reaping: bool,
    turns: CheckTurns,
}

/// What a worker found, and whether it would be the same another time: not where
/// others who waited left it too little time.
pub(super) struct PooledCheck {
    pub(super) report: FinishedCheck,
    pub(super) repeatable: bool,
}

/// Check a script in a worker process. `caller` is whose turn it is.
pub(super) async fn check_in_worker(
    program: &'static Path,
    script: &str,
    catalog: &Arc<Catalog>,
    caller: &str,
) -> Result<PooledCheck, CheckFailure> {
    let turn = tokio::time::timeout(CHECK_QUEUE_TIMEOUT, CHECK_POOL.wait_for_turn(caller)).await;
    let Ok(Some(_turn)) = turn else {
        let time = format_seconds(CHECK_QUEUE_TIMEOUT);
        return Err(CheckFailure::Lost(format!("no checker was free within {time}")));
    };
    let (idle, limit) = {
        let mut state = CHECK_POOL.state.lock();
        let is_crowded = state.turns.is_waiting(caller);
        (state.idle.pop(), if is_crowded { MAX_CROWDED_CHECK_TIME } else { MAX_CHECK_TIME })
    };
    let worker = match idle {
        Some(worker) => worker,
        None => CheckWorker::start(program).map_err(|error| {
            CheckFailure::Lost(format!(
                "the process that checks scripts cannot be started: {error}"
            ))
        })?,
    };
    let had_all_time = limit == MAX_CHECK_TIME;
    match worker.check_script(script, catalog, limit).await {
        Ok((report, again)) => {
            CHECK_POOL.return_worker(again.or_else(|| CheckWorker::start(program).ok()));
            let repeatable = had_all_time || !report.untyped;
            Ok(PooledCheck { report, repeatable })
        }
        Err(failure) => {
            // Warm before the next script comes.
            CHECK_POOL.return_worker(CheckWorker::start(program).ok());
            Err(match failure {
                CheckFailure::OutOfTime(why) if had_all_time => CheckFailure::Stopped(why),
                CheckFailure::OutOfTime(why) => {
                    CheckFailure::Lost(format!("{why}, and others wait"))
                }
                other => other,
            })
        }
    }
}

/// See to it that there is one worker at least.
pub(super) fn start_first_worker(program: &'static Path) {
    let is_first = {
        let state = CHECK_POOL.state.lock();
        state.idle.is_empty() && state.last_used.is_none()
    };
    if is_first {
        // If it cannot be started, the first check says so.
        CHECK_POOL.return_worker(CheckWorker::start(program).ok());
    }
}

impl CheckPool {
    /// Wait until it is this caller's turn; none if too many wait already.
    async fn wait_for_turn(&'static self, caller: &str) -> Option<CheckTurn> {
        let waiting = self.state.lock().turns.request_turn(caller, self.workers)?;
        let mut turn = CheckTurn { pool: self, caller: caller.into(), waiting };
        if let Some(waiting) = &mut turn.waiting {
            waiting.await.ok()?;
        }
        turn.waiting = None;
        Some(turn)
    }

    fn return_worker(&'static self, worker: Option<CheckWorker>) {
        let Some(worker) = worker else { return };
        let mut state = self.state.lock();
        state.last_used = Some(Instant::now());
        if state.idle.len() < self.workers {
            state.idle.push(worker);
        }
        if !std::mem::replace(&mut state.reaping, true) {
            #[expect(clippy::disallowed_methods, reason = "the pool lasts as long as the process")]
            tokio::spawn(self.end_idle_workers());
        }
    }

    async fn end_idle_workers(&'static self) {
        loop {
            tokio::time::sleep(IDLE_CHECK_WORKER_TIMEOUT).await;
            let mut state = self.state.lock();
            if state.last_used.is_none_or(|last| last.elapsed() >= IDLE_CHECK_WORKER_TIMEOUT) {
                state.idle.truncate(1);
                state.reaping = false;
                return;
            }
        }
    }
}

/// The right to use a worker, until it is dropped.
struct CheckTurn {
    pool: &'static CheckPool,
    caller: Box<str>,
    /// While it is waited for.
    waiting: Option<oneshot::Receiver<()>>,
}

impl Drop for CheckTurn {
    fn drop(&mut self) {
        // Whoever stops waiting may have been given it just then.
        let is_given = self.waiting.as_mut().is_none_or(|waiting| {
            waiting.close();
            waiting.try_recv().is_ok()
        });
        if is_given {
            self.pool.state.lock().turns.release_turn(&self.caller, self.pool.workers);
        }
    }
}

/// Whose turn it is.
#[derive(Default)]
struct CheckTurns {
    running: HashMap<Box<str>, usize>,
    waiting: Vec<WaitingCheck>,
    /// Counts turns, to tell who had one last.
    count: u64,
    last_turn: HashMap<Box<str>, u64>,
}

struct WaitingCheck {
    caller: Box<str>,
    begin: oneshot::Sender<()>,
}

impl CheckTurns {
    /// A turn at once (`Some(None)`), later, or never.
    fn request_turn(
        &mut self,
        caller: &str,
        workers: usize,
    ) -> Option<Option<oneshot::Receiver<()>>> {
        self.waiting.retain(|it| !it.begin.is_closed());
        if self.waiting.is_empty() && self.has_room(caller, workers) {
            self.begin_turn(caller);
            return Some(None);
        }
        if self.waiting.len() >= MAX_WAITING_CHECKS {
            return None;
        }
        let (begin, waiting) = oneshot::channel();
        self.waiting.push(WaitingCheck { caller: caller.into(), begin });
        self.give_turns(workers);
        Some(Some(waiting))
    }

    fn release_turn(&mut self, caller: &str, workers: usize) {
        if let Some(running) = self.running.get_mut(caller) {
            *running -= 1;
            if *running == 0 {
                self.running.remove(caller);
            }
        }
        self.give_turns(workers);
    }

    /// All workers but one are for anybody, the last for another caller.
    fn has_room(&self, caller: &str, workers: usize) -> bool {
        let all: usize = self.running.values().sum();
        all < workers && self.running.get(caller).copied().unwrap_or(0) + 1 < workers.max(2)
    }

    /// Whether another script of this caller waits.
    fn is_waiting(&self, caller: &str) -> bool {
        self.waiting.iter().any(|it| &*it.caller == caller && !it.begin.is_closed())
    }

    fn begin_turn(&mut self, caller: &str) {
        self.count += 1;
        *self.running.entry(caller.into()).or_default() += 1;
        self.last_turn.insert(caller.into(), self.count);
    }

    /// The next is whoever has least under way and had a turn longest ago.
    fn give_turns(&mut self, workers: usize) {
        self.waiting.retain(|it| !it.begin.is_closed());
        loop {
            let turn_of = |it: &WaitingCheck| {
                let running = self.running.get(&it.caller).copied().unwrap_or(0);
                (running, self.last_turn.get(&it.caller).copied().unwrap_or(0))
            };
            let room = self.waiting.iter().enumerate();
            let room = room.filter(|(_, it)| self.has_room(&it.caller, workers));
            let Some((next, _)) = room.min_by_key(|(_, it)| turn_of(it)) else { break };
            let WaitingCheck { caller, begin } = self.waiting.remove(next);
            if begin.send(()).is_ok() {
                self.begin_turn(&caller);
            }
        }
        if self.waiting.is_empty() {
            self.last_turn.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which callers are given a turn, one after the other, when turns are given
    /// back in the order they came.
    fn order(asked: &[&str], workers: usize) -> Vec<String> {
        let mut turns = CheckTurns::default();
        let mut given = Vec::new();
        let mut waiting = Vec::new();
        for caller in asked {
            match turns.request_turn(caller, workers).unwrap() {
                None => given.push((*caller).to_owned()),
                Some(later) => waiting.push(((*caller).to_owned(), later)),
            }
        }
        let mut ended = 0;
        loop {
            let arrived = waiting.iter_mut().position(|(_, later)| later.try_recv().is_ok());
            if let Some(arrived) = arrived {
                given.push(waiting.remove(arrived).0);
                continue;
            }
            let Some(done) = given.get(ended) else { break };
            turns.release_turn(done, workers);
            ended += 1;
        }
        assert!(turns.running.is_empty() && turns.waiting.is_empty());
        given
    }

    #[test]
    fn one_caller_leaves_a_worker_for_the_others() {
        let mut turns = CheckTurns::default();
        assert!(turns.request_turn("bob", 2).unwrap().is_none());
        assert!(turns.request_turn("bob", 2).unwrap().is_some());
        assert!(turns.request_turn("alice", 2).unwrap().is_none());
        assert!(turns.request_turn("carol", 2).unwrap().is_some());
    }

    #[test]
    fn a_flood_of_one_caller_delays_another_by_one_turn_at_most() {
        let asked = ["bob", "bob", "bob", "bob", "bob", "bob", "alice", "carol", "alice"];
        assert_eq!(
            order(&asked, 2),
            ["bob", "alice", "carol", "bob", "alice", "bob", "bob", "bob", "bob"]
        );
        assert_eq!(order(&["a", "a", "b", "b"], 4), ["a", "a", "b", "b"]);
    }

    #[test]
    fn a_check_has_little_time_while_others_of_its_caller_wait() {
        let mut turns = CheckTurns::default();
        assert!(turns.request_turn("bob", 2).unwrap().is_none());
        let later = turns.request_turn("bob", 2).unwrap().unwrap();
        assert!(turns.is_waiting("bob") && !turns.is_waiting("alice"));
        drop(later);
        assert!(!turns.is_waiting("bob"));
    }

    #[test]
    fn who_has_gone_away_takes_nobodys_turn() {
        let mut turns = CheckTurns::default();
        assert!(turns.request_turn("bob", 2).unwrap().is_none());
        drop(turns.request_turn("bob", 2).unwrap());
        let mut later = turns.request_turn("bob", 2).unwrap().unwrap();
        turns.release_turn("bob", 2);
        assert!(later.try_recv().is_ok());
        turns.release_turn("bob", 2);
        assert!(turns.running.is_empty());
    }
}
