//! Memory that was freed goes back to the system when the process has nothing to do.
//!
//! The allocators keep what was freed, for the next burst. That is right while there is
//! work, and otherwise only looks like a leak. A thread looks at the processor time of the
//! process; after the first quiet second it has free memory given back: its own, what is
//! free everywhere in the arenas, and what the other threads hold as soon as they have
//! nothing to do.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use crate::process_allocator::release_free_memory;

/// How often the processor time is looked at.
const IDLE_CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// A process that has used less between two looks is idle.
const MAX_IDLE_CPU_TIME: Duration = Duration::from_millis(20);
/// What has to be done before it is worth giving back memory another time.
const MIN_BUSY_CPU_TIME: Duration = Duration::from_millis(30);
/// How much a process may grow while it is never idle.
const MAX_BUSY_GROWTH_BYTES: usize = 32 << 20;
const MEMORY_THREAD_STACK_BYTES: usize = 64 << 10;

/// Something large was freed.
static IS_REQUESTED: AtomicBool = AtomicBool::new(false);
/// How often memory was given back so far.
static RETURN_COUNT: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// As far as this thread has taken part.
    static SEEN_RETURN_COUNT: Cell<u32> = const { Cell::new(0) };
}

/// Give free memory back whenever this process becomes idle. `wake_threads` has threads
/// that wait look at [`release_thread_memory`] once more.
pub fn return_memory_when_idle(wake_threads: impl Fn() + Send + 'static) {
    limit_kept_memory();
    let watch = move || {
        let mut policy = ReturnPolicy::default();
        let mut growth = GrowthPolicy { smallest: usize::MAX };
        loop {
            std::thread::sleep(IDLE_CHECK_INTERVAL);
            if policy.is_due(used_cpu_time(), IS_REQUESTED.load(Ordering::Relaxed)) {
                IS_REQUESTED.store(false, Ordering::Relaxed);
                RETURN_COUNT.fetch_add(1, Ordering::Relaxed);
                release_free_memory();
                wake_threads();
            } else if growth.is_due(resident_bytes()) {
                release_free_memory();
                growth.smallest = resident_bytes();
            }
        }
    };
    let thread = std::thread::Builder::new().name("memory".into());
    // Without a thread for it, memory stays; nothing else depends on it.
    let _ = thread.stack_size(MEMORY_THREAD_STACK_BYTES).spawn(watch);
}

/// Something large was freed: give it back as soon as there is nothing to do.
pub fn request_memory_return() {
    IS_REQUESTED.store(true, Ordering::Relaxed);
}

/// For a thread that is about to wait: give back what it holds, if that is due.
pub fn release_thread_memory() {
    let count = RETURN_COUNT.load(Ordering::Relaxed);
    if SEEN_RETURN_COUNT.replace(count) != count {
        release_free_memory();
    }
}

/// When it is time, by the processor time used so far.
#[derive(Default)]
struct ReturnPolicy {
    last_look: Duration,
    last_return: Option<Duration>,
}

impl ReturnPolicy {
    fn is_due(&mut self, used: Duration, is_requested: bool) -> bool {
        let before = std::mem::replace(&mut self.last_look, used);
        let is_idle = used.saturating_sub(before) < MAX_IDLE_CPU_TIME;
        let is_busy = |last: Duration| used.saturating_sub(last) >= MIN_BUSY_CPU_TIME;
        let was_busy = self.last_return.is_none_or(is_busy);
        let is_due = is_idle && (was_busy || is_requested);
        if is_due {
            self.last_return = Some(used);
        }
        is_due
    }
}

/// When it is time although there is work: the process has grown.
struct GrowthPolicy {
    /// The least it has held since memory was given back.
    smallest: usize,
}

impl GrowthPolicy {
    fn is_due(&mut self, resident: usize) -> bool {
        let is_grown = resident > self.smallest.saturating_add(MAX_BUSY_GROWTH_BYTES);
        self.smallest = self.smallest.min(resident);
        is_grown
    }
}

/// What the process holds; 0 where the system does not tell.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: usize = statm.split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or(0);
    // SAFETY: asks for a constant.
    pages * usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Processor time of this process so far.
fn used_cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a struct that the call fills in.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Settings of the C library's allocator, which native parts use.
fn limit_kept_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// Said once, these no longer grow with what was freed, so that large blocks are
        /// always the system's again when they are free.
        const MAX_KEPT_BLOCK_BYTES: libc::c_int = 256 << 10;
        // SAFETY: settings, which may be made at any time.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, MAX_KEPT_BLOCK_BYTES);
            libc::mallopt(libc::M_TRIM_THRESHOLD, 4 * MAX_KEPT_BLOCK_BYTES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_once_after_work_and_not_while_there_is_some() {
        let mut policy = ReturnPolicy::default();
        let looks = [25, 900, 905, 910, 915, 925, 940, 941, 941, 2000, 2001, 2002];
        let mut is_due = |used: &u64| policy.is_due(Duration::from_millis(*used), *used == 2002);
        let due: Vec<u64> = looks.into_iter().filter(|used| is_due(used)).collect();
        assert_eq!(due, [905, 940, 2001, 2002]);
    }

    #[test]
    fn a_process_that_is_never_idle_gives_back_what_it_has_grown_by() {
        let mut growth = GrowthPolicy { smallest: usize::MAX };
        let due = [50, 40, 60, 73, 39].map(|megabytes| growth.is_due(megabytes << 20));
        assert_eq!(due, [false, false, false, true, false]);
    }

    #[test]
    fn a_thread_takes_part_once() {
        let count = RETURN_COUNT.fetch_add(1, Ordering::Relaxed) + 1;
        release_thread_memory();
        assert_eq!(SEEN_RETURN_COUNT.get(), count);
        release_thread_memory();
    }
}
