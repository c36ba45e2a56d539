//! Promises: calls that an agent's script has made and not yet awaited.
//!
//! Those it does not wait for run as tasks of their own, so that they go on
//! while the script computes; the others are polled by whoever runs the script.
//! Either way the script is given answers one at a time, and only when all of it
//! waits, in the order that the [`ActiveCall`] keeps: so what a script sees does not
//! depend on when its host looks. The tasks do not keep this alive: when the run
//! is over, whatever has not ended is cancelled.

use std::collections::HashMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use futures::FutureExt;
use moonlark_child::spawn_owned;
use moonlark_core::tool::BoxFuture;
use moonlark_core::{Problem, Result, Value};
use moonlark_gateway::Run;
use moonlark_gateway::run::CallSite;
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

/// Calls of host functions in one run; each goes on record.
const MAX_HOST_CALLS_PER_RUN: usize = 10_000;

/// How often a call is looked at again whose end is about to be noted by another thread.
const MAX_END_YIELDS: usize = 200;

pub(crate) struct RunPromises {
    run: Arc<Run>,
    state: Mutex<RunPromisesState>,
}

#[derive(Default)]
struct RunPromisesState {
    /// By number.
    slots: Vec<PromiseSlot>,
    /// Their numbers by place.
    places: HashMap<CallSite, usize>,
    /// Those that whoever runs the script polls, with their numbers.
    polled: Vec<(usize, BoxFuture<Result<Value>>)>,
    /// Those that the script does not wait for.
    started: usize,
    /// The task that runs the script.
    waker: Option<Waker>,
}

struct PromiseSlot {
    at: CallSite,
    stage: PromiseStage,
}

enum PromiseStage {
    /// The script does not wait for it. It has a task as soon as that is spawned.
    Started(Option<AbortOnDropHandle<()>>),
    Polled,
    Ended {
        result: Result<Value>,
        /// The script knows that it has ended.
        is_told: bool,
    },
    Taken,
}

impl RunPromises {
    pub(crate) fn new(run: Arc<Run>) -> Arc<RunPromises> {
        Arc::new(RunPromises { run, state: Mutex::default() })
    }

    /// Start a call that the script does not wait for; never more than `most`.
    pub(crate) fn start_call(
        self: &Arc<Self>,
        at: CallSite,
        call: impl Future<Output = Result<Value>> + Send + 'static,
        most: usize,
    ) -> Result<usize> {
        let number = {
            let mut state = self.state.lock();
            if state.started >= most {
                self.run.abandon_recorded_call(&at);
                return Err(Problem::limit_exceeded(format!(
                    "more than {most} tool calls in one call"
                ))
                .with_hint("do less in one script, or raise limits.calls in moonlark.toml"));
            }
            state.started += 1;
            state.add_slot(at, PromiseStage::Started(None))
        };
        let promises = Arc::downgrade(self);
        let task = spawn_owned(async move {
            let ended = AssertUnwindSafe(call).catch_unwind().await;
            let failed = || Problem::internal("the call failed inside Moonlark");
            finish_call(&promises, number, ended.unwrap_or_else(|_| Err(failed())));
        });
        let mut state = self.state.lock();
        // It may have ended already.
        if let PromiseStage::Started(handle) = &mut state.slots[number].stage {
            *handle = Some(task);
        }
        Ok(number)
    }

    /// Begin a call that the script waits for; never more than `most` at once.
    pub(crate) fn wait_for_call(
        &self,
        at: CallSite,
        mut call: BoxFuture<Result<Value>>,
        most: usize,
        waker: &Waker,
    ) -> Result<usize> {
        {
            let state = self.state.lock();
            // Waits that a script started and then abandoned still count.
            if state.polled.len() >= most {
                self.run.abandon_recorded_call(&at);
                return Err(too_many_waits_problem(most));
            }
            if state.slots.len() - state.started >= MAX_HOST_CALLS_PER_RUN {
                self.run.abandon_recorded_call(&at);
                let message = format!("more than {MAX_HOST_CALLS_PER_RUN} calls in one run");
                return Err(Problem::limit_exceeded(message).with_hint("do less in one script"));
            }
        }
        // Begun here and now: what a script calls first is sent first.
        let polled = call.as_mut().poll(&mut Context::from_waker(waker));
        let mut state = self.state.lock();
        Ok(match polled {
            Poll::Ready(result) => {
                self.run.answer_order(&at);
                state.add_slot(at, PromiseStage::Ended { result, is_told: false })
            }
            Poll::Pending => {
                let number = state.add_slot(at, PromiseStage::Polled);
                state.polled.push((number, call));
                number
            }
        })
    }

    /// The next call whose answer the script is given, now that all of it waits;
    /// a Problem if it must not go on.
    pub(crate) fn poll_next_answer(&self, context: &mut Context) -> Poll<Result<usize>> {
        loop {
            if let Some(problem) = self.run.stop_problem() {
                return Poll::Ready(Err(problem.clone()));
            }
            if let Some(at) = self.run.next_answer() {
                let mut state = self.state.lock();
                match state.places.get(&at).copied() {
                    Some(number) if state.slots[number].mark_told() => {
                        drop(state);
                        self.run.hand_over_answer();
                        return Poll::Ready(Ok(number));
                    }
                    // It is about to.
                    Some(_) => {}
                    None => {
                        let problem = self.run.missing_site_problem(&at);
                        return Poll::Ready(Err(self.run.stop_with(problem)));
                    }
                }
            }
            if !self.poll_calls(context) && !self.run.release_recorded_answer() {
                return Poll::Pending;
            }
        }
    }

    /// Poll what is to be polled; whether any of it has ended.
    fn poll_calls(&self, context: &mut Context) -> bool {
        let calls = std::mem::take(&mut self.state.lock().polled);
        let (mut left, mut any) = (Vec::with_capacity(calls.len()), false);
        for (number, mut call) in calls {
            match call.as_mut().poll(context) {
                Poll::Ready(result) => {
                    any = true;
                    let mut state = self.state.lock();
                    let slot = &mut state.slots[number];
                    self.run.answer_order(&slot.at);
                    slot.stage = PromiseStage::Ended { result, is_told: false };
                }
                Poll::Pending => left.push((number, call)),
            }
        }
        self.state.lock().polled = left;
        any
    }

    /// The answer of a call that the script was told of; once.
    pub(crate) fn take_answer(&self, number: usize) -> Option<Result<Value>> {
        let mut state = self.state.lock();
        let stage = &mut state.slots.get_mut(number)?.stage;
        match std::mem::replace(stage, PromiseStage::Taken) {
            PromiseStage::Ended { result, is_told: true } => Some(result),
            other => {
                *stage = other;
                None
            }
        }
    }

    /// Why a call failed whose answer the script has not taken. Asked when it has ended.
    pub(crate) fn find_failure(&self, number: usize) -> Option<Problem> {
        self.run.close_answers();
        for _ in 0..MAX_END_YIELDS {
            let state = self.state.lock();
            let slot = state.slots.get(number)?;
            match &slot.stage {
                PromiseStage::Ended { result, is_told } => {
                    let is_answered = *is_told || self.run.is_answered(&slot.at);
                    return result.as_ref().err().filter(|_| is_answered).cloned();
                }
                PromiseStage::Started(_) if self.run.held_answer(&slot.at).is_some() => {
                    return self.run.held_answer(&slot.at)?.err();
                }
                // Its end is on record, and another thread is about to note it here.
                PromiseStage::Started(_) if self.run.is_answered(&slot.at) => {}
                _ => return None,
            }
            drop(state);
            std::thread::yield_now();
        }
        None
    }

    /// How many of those that the script does not wait for have not ended. Asked when it has
    /// ended itself.
    pub(crate) fn count_open_calls(&self) -> usize {
        self.run.close_answers();
        // One that ends after the script was not answered, even if that is known by now.
        let is_open = |slot: &&PromiseSlot| match slot.stage {
            PromiseStage::Started(_) | PromiseStage::Ended { is_told: false, .. } => {
                !self.run.is_answered(&slot.at)
            }
            _ => false,
        };
        self.state.lock().slots.iter().filter(is_open).count()
    }

    /// Whether a call was made at this place.
    pub(crate) fn has_call_at(&self, place: &str) -> bool {
        self.state.lock().places.contains_key(place)
    }

    /// Where the call of this number was made.
    pub(crate) fn call_site(&self, number: usize) -> Option<CallSite> {
        self.state.lock().slots.get(number).map(|slot| slot.at.clone())
    }

    pub(crate) fn set_waker(&self, waker: &Waker) {
        let mut state = self.state.lock();
        match &mut state.waker {
            Some(current) => current.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }
}

impl RunPromisesState {
    fn add_slot(&mut self, at: CallSite, stage: PromiseStage) -> usize {
        self.places.insert(at.clone(), self.slots.len());
        self.slots.push(PromiseSlot { at, stage });
        self.slots.len() - 1
    }
}

impl PromiseSlot {
    /// Tell the script, if it has ended.
    fn mark_told(&mut self) -> bool {
        match &mut self.stage {
            PromiseStage::Ended { is_told, .. } => !std::mem::replace(is_told, true),
            _ => false,
        }
    }
}

impl Drop for RunPromises {
    /// The last first: one that is cancelled gives its turn to the next that
    /// waits, which must not be there any more.
    fn drop(&mut self) {
        let RunPromisesState { slots, polled, .. } = self.state.get_mut();
        while let Some(slot) = slots.pop() {
            drop(slot);
            polled.pop_if(|(number, _)| *number == slots.len());
        }
    }
}

pub(crate) fn too_many_waits_problem(most: usize) -> Problem {
    Problem::limit_exceeded(format!("more than {most} host calls wait at once"))
        .with_hint("wait for some of them first, or raise limits.parallel in moonlark.toml")
}

fn finish_call(promises: &Weak<RunPromises>, number: usize, result: Result<Value>) {
    // The run may be over.
    let Some(promises) = promises.upgrade() else { return };
    let mut state = promises.state.lock();
    promises.run.answer_order_if_open(&state.slots[number].at);
    let old = std::mem::replace(
        &mut state.slots[number].stage,
        PromiseStage::Ended { result, is_told: false },
    );
    let waker = state.waker.clone();
    drop(state);
    drop(old);
    if let Some(waker) = waker {
        waker.wake();
    }
}
