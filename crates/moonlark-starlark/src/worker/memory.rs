//! How much memory a job may take: a limit that the kernel keeps.
//!
//! Not everything in the interpreter looks whether it got the memory it asked
//! for, so a worker that gets none ends right there.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// What the process had when it was new.
static FRESH: AtomicUsize = AtomicUsize::new(0);
/// What a job may take beyond what was there when the limit was set; 0 when
/// there is no limit.
static ALLOWED: AtomicUsize = AtomicUsize::new(0);

/// A worker that has grown by this much is replaced.
const GROWTH: usize = 32 * 1024 * 1024;

/// The exit code of a worker that ran out of memory.
pub(crate) const OUT_OF_MEMORY: i32 = 86;

/// Whether this process is a worker.
static WORKER: AtomicBool = AtomicBool::new(false);

/// The allocator of the binary: that of the system, but for workers.
pub struct Allocator;

// SAFETY: all memory comes from and goes to the system's allocator.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on as it came.
        given(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on as it came.
        given(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: passed on as it came.
        given(unsafe { System.realloc(old, layout, size) })
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: passed on as it came.
        unsafe { System.dealloc(old, layout) }
    }
}

#[inline]
fn given(memory: *mut u8) -> *mut u8 {
    if memory.is_null() && WORKER.load(Ordering::Relaxed) {
        // SAFETY: ends the process.
        unsafe { libc::_exit(OUT_OF_MEMORY) }
    }
    memory
}

/// Give memory that was freed back to the system from time to time: what one
/// large call has taken would otherwise stay with the process for good.
pub fn return_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        use std::time::Duration;
        const LOOK_INTERVAL: Duration = Duration::from_secs(5);
        /// Said once, these no longer grow with what was freed, so that large
        /// blocks are always the system's again when they are free.
        const MAX_KEPT_BLOCK_BYTES: libc::c_int = 256 << 10;
        // SAFETY: settings of the allocator, before it is used by other threads.
        unsafe {
            libc::mallopt(libc::M_MMAP_THRESHOLD, MAX_KEPT_BLOCK_BYTES);
            libc::mallopt(libc::M_TRIM_THRESHOLD, 4 * MAX_KEPT_BLOCK_BYTES);
        }
        // Without a thread for it, memory stays; nothing else depends on it.
        let _ =
            std::thread::Builder::new().name("memory".into()).stack_size(64 << 10).spawn(|| {
                let mut smallest = usize::MAX;
                loop {
                    std::thread::sleep(LOOK_INTERVAL);
                    let resident = resident_bytes();
                    if resident > smallest.saturating_add(GROWTH) {
                        // SAFETY: touches nothing but the allocator's own lists.
                        unsafe { libc::malloc_trim(0) };
                        smallest = resident_bytes();
                    }
                    smallest = smallest.min(resident);
                }
            });
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn resident_bytes() -> usize {
    pages_of(1)
}

/// Nothing a script does may leave traces or reach further than this process.
pub(super) fn harden() {
    WORKER.store(true, Ordering::Relaxed);
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls with values of our own.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        #[cfg(target_os = "linux")]
        {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            // Whatever else the server itself inherited: not a script's.
            libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0);
        }
    }
}

/// Allow a job `bytes` more than there is now. When the last job was allowed as
/// much, nothing changes: what it left is used again.
pub(super) fn limit(bytes: usize) {
    if ALLOWED.load(Ordering::Relaxed) != bytes {
        limit_anew(bytes);
    }
}

/// The same after something was loaded that is there to stay.
pub(super) fn limit_anew(bytes: usize) {
    let now = in_use();
    // Where the system does not tell, there is nothing to limit from.
    if now == 0 {
        return;
    }
    let _ = FRESH.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    set(now.saturating_add(bytes));
    ALLOWED.store(bytes, Ordering::Relaxed);
}

pub(super) fn unlimited() {
    set(usize::MAX);
    ALLOWED.store(0, Ordering::Relaxed);
}

/// Whether the process is about as small as when it was new.
pub(super) fn is_small() -> bool {
    in_use() < FRESH.load(Ordering::Relaxed).saturating_add(GROWTH)
}

/// Private writable memory, which is what the limit is about.
fn in_use() -> usize {
    pages_of(5)
}

/// A field of what the system says about this process, in bytes.
fn pages_of(field: usize) -> usize {
    let Ok(statm) = std::fs::read_to_string("/proc/self/statm") else { return 0 };
    let pages: usize =
        statm.split(' ').nth(field).and_then(|pages| pages.trim().parse().ok()).unwrap_or(0);
    // SAFETY: asks for a constant.
    pages * usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

fn set(bytes: usize) {
    let limit = libc::rlimit {
        rlim_cur: if bytes == usize::MAX { libc::RLIM_INFINITY } else { bytes as libc::rlim_t },
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: a plain system call; the soft limit may move below the hard one.
    unsafe { libc::setrlimit(libc::RLIMIT_DATA, &limit) };
}
