//! How many scripts are loaded at the same time.
//!
//! Most are loaded within milliseconds, and a few at a time are enough. One that
//! takes longer, or never ends, must not keep others from being loaded: after a
//! moment it goes on beside them.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// How long a load counts against `quick`.
const QUICK_LOAD_TIME: Duration = Duration::from_millis(100);

/// Lua scripts, each in a VM of its own.
const MAX_QUICK_LUA_LOADS: usize = 16;
const MAX_SLOW_LUA_LOADS: usize = 256;
/// Extensions, each in a process of its own while it loads. Starting one takes as long as
/// loading dozens: few are loaded one after the other.
const MIN_QUICK_STARLARK_LOADS: usize = 1;
const MAX_QUICK_STARLARK_LOADS: usize = 4;
const MAX_SLOW_STARLARK_LOADS: usize = 16;
/// Extensions that are worth another process.
const STARLARK_LOADS_PER_WORKER: usize = 64;

pub(super) struct ScriptLoadLimiter {
    quick: Semaphore,
    /// How many quick ones there are now, and may be.
    width: Mutex<usize>,
    max_width: usize,
    slow: Semaphore,
    quick_time: Duration,
}

impl ScriptLoadLimiter {
    pub(super) fn for_lua() -> Self {
        Self::with_limits(MAX_QUICK_LUA_LOADS, MAX_QUICK_LUA_LOADS, MAX_SLOW_LUA_LOADS)
    }

    pub(super) fn for_starlark() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let most = MAX_QUICK_STARLARK_LOADS.min(cores);
        Self::with_limits(MIN_QUICK_STARLARK_LOADS, most, MAX_SLOW_STARLARK_LOADS)
    }

    fn with_limits(quick: usize, max_width: usize, slow: usize) -> Self {
        let width = Mutex::new(quick);
        let (quick, slow) = (Semaphore::new(quick), Semaphore::new(slow));
        Self { quick, width, max_width, slow, quick_time: QUICK_LOAD_TIME }
    }

    /// So many are about to be loaded: from now on more at a time, if that is worth it.
    pub(super) fn widen_for(&self, loads: usize) {
        let mut width = self.width.lock();
        let wanted = (loads / STARLARK_LOADS_PER_WORKER).min(self.max_width);
        self.quick.add_permits(wanted.saturating_sub(*width));
        *width = wanted.max(*width);
    }

    /// Do one load when it is its turn.
    pub(super) async fn run_load<T>(&self, load: impl Future<Output = T>) -> T {
        // Neither is ever closed.
        let quick = self.quick.acquire().await.ok();
        let mut load = std::pin::pin!(load);
        tokio::select! {
            biased;
            loaded = &mut load => return loaded,
            () = tokio::time::sleep(self.quick_time) => {}
        }
        let slow = self.slow.try_acquire();
        if slow.is_ok() {
            drop(quick);
            load.await
        } else {
            let loaded = load.await;
            drop(quick);
            loaded
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn turns(quick: usize, slow: usize) -> ScriptLoadLimiter {
        let limiter = ScriptLoadLimiter::with_limits(quick, quick, slow);
        ScriptLoadLimiter { quick_time: Duration::from_millis(1), ..limiter }
    }

    #[test]
    fn many_loads_are_worth_more_at_a_time_than_a_few() {
        let turns = ScriptLoadLimiter::with_limits(1, 3, 1);
        for (loads, expected) in [(0, 1), (10, 1), (130, 2), (10, 2), (1000, 3)] {
            turns.widen_for(loads);
            assert_eq!(turns.quick.available_permits(), expected, "{loads} loads");
        }
    }

    #[tokio::test]
    async fn loads_that_never_end_let_others_be_loaded() {
        let turns = turns(2, 3);
        let endless = async || turns.run_load(std::future::pending::<()>()).await;
        let others = async {
            for _ in 0..10 {
                turns.run_load(tokio::task::yield_now()).await;
            }
        };
        tokio::select! {
            biased;
            _ = futures::future::join_all((0..4).map(|_| endless())) => {}
            () = others => {}
        }
    }

    #[tokio::test]
    async fn no_more_are_loaded_at_once_than_there_are_turns() {
        let turns = turns(1, 2);
        let begun = Cell::new(0);
        let endless = async || {
            let load = async {
                begun.set(begun.get() + 1);
                std::future::pending::<()>().await
            };
            turns.run_load(load).await;
        };
        let all = futures::future::join_all((0..9).map(|_| endless()));
        let begun_three = async {
            while begun.get() < 3 {
                tokio::task::yield_now().await;
            }
            // Those that hold a turn keep it.
            tokio::time::sleep(turns.quick_time * 10).await;
        };
        tokio::select! {
            _ = all => {}
            () = begun_three => {}
        }
        assert_eq!(begun.get(), 3);
    }
}
