//! The memory limit of a job, which the kernel keeps.
//!
//! Not everything in the interpreter looks whether it got the memory it asked
//! for, so a worker that gets none ends right there.

use std::sync::atomic::{AtomicUsize, Ordering};

/// What the process had when it was new.
static FRESH_BYTES: AtomicUsize = AtomicUsize::new(0);
/// What a job may take beyond what was there when the limit was set; 0 when
/// there is no limit.
static ALLOWED_BYTES: AtomicUsize = AtomicUsize::new(0);

/// A worker that has grown by this much is replaced.
const MAX_WORKER_GROWTH_BYTES: usize = 32 * 1024 * 1024;

/// The exit code of a worker that ran out of memory.
pub(crate) const OUT_OF_MEMORY_EXIT_CODE: i32 = 86;

/// Nothing a script does may leave traces or reach further than this process.
pub(super) fn harden_process() {
    moonlark_child::exit_when_out_of_memory(OUT_OF_MEMORY_EXIT_CODE);
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
pub(super) fn limit_memory(bytes: usize) {
    if ALLOWED_BYTES.load(Ordering::Relaxed) != bytes {
        reset_memory_limit(bytes);
    }
}

/// The same after something was loaded that is there to stay.
pub(super) fn reset_memory_limit(bytes: usize) {
    let now = private_bytes();
    // Where the system does not tell, there is nothing to limit from.
    if now == 0 {
        return;
    }
    let _ = FRESH_BYTES.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    set_data_limit(now.saturating_add(bytes));
    ALLOWED_BYTES.store(bytes, Ordering::Relaxed);
}

pub(super) fn lift_memory_limit() {
    set_data_limit(usize::MAX);
    ALLOWED_BYTES.store(0, Ordering::Relaxed);
}

/// Whether the process is about as small as when it was new.
pub(super) fn is_small() -> bool {
    private_bytes() < FRESH_BYTES.load(Ordering::Relaxed).saturating_add(MAX_WORKER_GROWTH_BYTES)
}

/// Private writable memory, which is what the limit is about.
fn private_bytes() -> usize {
    statm_bytes(5)
}

/// A field of what the system says about this process, in bytes.
fn statm_bytes(field: usize) -> usize {
    let Ok(statm) = std::fs::read_to_string("/proc/self/statm") else { return 0 };
    let pages: usize =
        statm.split(' ').nth(field).and_then(|pages| pages.trim().parse().ok()).unwrap_or(0);
    // SAFETY: asks for a constant.
    pages * usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

fn set_data_limit(bytes: usize) {
    let limit = libc::rlimit {
        rlim_cur: if bytes == usize::MAX { libc::RLIM_INFINITY } else { bytes as libc::rlim_t },
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: a plain system call; the soft limit may move below the hard one.
    unsafe { libc::setrlimit(libc::RLIMIT_DATA, &limit) };
}
