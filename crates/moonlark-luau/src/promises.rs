//! The calls that an agent's script has started without waiting for them.
//!
//! Each runs as a task of its own, so that it goes on while the script waits
//! for something else or computes. The tasks do not keep this alive: when the
//! run is over, whatever has not ended is cancelled.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};
use std::task::Waker;

use futures::FutureExt;
use moonlark_core::{Problem, Result, Value};
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

#[derive(Default)]
pub(crate) struct Promises(Mutex<State>);

#[derive(Default)]
struct State {
    /// By number.
    slots: Vec<Slot>,
    /// Those that have ended since the script last looked.
    ended: Vec<usize>,
    /// The task that runs the script.
    waker: Option<Waker>,
}

enum Slot {
    Starting,
    Running { _task: AbortOnDropHandle<()> },
    Ended(Result<Value>),
    Taken,
}

impl Promises {
    /// Start a call; never more than `most` in one run.
    pub(crate) fn start(
        self: &Arc<Self>,
        call: impl Future<Output = Result<Value>> + Send + 'static,
        most: usize,
    ) -> Result<usize> {
        let number = {
            let mut state = self.0.lock();
            if state.slots.len() >= most {
                return Err(Problem::limit(format!("more than {most} tool calls in one call"))
                    .hint("raise limits.calls"));
            }
            state.slots.push(Slot::Starting);
            state.slots.len() - 1
        };
        let promises = Arc::downgrade(self);
        let task = tokio::spawn(async move {
            let ended = AssertUnwindSafe(call).catch_unwind().await;
            let failed = || Problem::internal("the call failed inside Moonlark");
            end(&promises, number, ended.unwrap_or_else(|_| Err(failed())));
        });
        let task = AbortOnDropHandle::new(task);
        let mut state = self.0.lock();
        // It may have ended already.
        if let Slot::Starting = state.slots[number] {
            state.slots[number] = Slot::Running { _task: task };
        }
        Ok(number)
    }

    /// The numbers of those that have ended since it was last asked.
    pub(crate) fn ended(&self) -> Vec<usize> {
        std::mem::take(&mut self.0.lock().ended)
    }

    /// How one has ended; can be asked once.
    pub(crate) fn take(&self, number: usize) -> Option<Result<Value>> {
        let mut state = self.0.lock();
        let slot = state.slots.get_mut(number)?;
        match std::mem::replace(slot, Slot::Taken) {
            Slot::Ended(result) => Some(result),
            other => {
                *slot = other;
                None
            }
        }
    }

    /// How many have not ended.
    pub(crate) fn open(&self) -> usize {
        let is_open = |slot: &&Slot| matches!(slot, Slot::Starting | Slot::Running { .. });
        self.0.lock().slots.iter().filter(is_open).count()
    }

    pub(crate) fn set_waker(&self, waker: &Waker) {
        let mut state = self.0.lock();
        match &mut state.waker {
            Some(current) => current.clone_from(waker),
            none => *none = Some(waker.clone()),
        }
    }
}

impl Drop for Promises {
    /// The last first: one that is cancelled gives its turn to the next that
    /// waits, which must not be there any more.
    fn drop(&mut self) {
        let slots = &mut self.0.get_mut().slots;
        while let Some(slot) = slots.pop() {
            drop(slot);
        }
    }
}

fn end(promises: &Weak<Promises>, number: usize, result: Result<Value>) {
    // The run may be over.
    let Some(promises) = promises.upgrade() else { return };
    let mut state = promises.0.lock();
    let old = std::mem::replace(&mut state.slots[number], Slot::Ended(result));
    state.ended.push(number);
    let waker = state.waker.clone();
    drop(state);
    drop(old);
    if let Some(waker) = waker {
        waker.wake();
    }
}
