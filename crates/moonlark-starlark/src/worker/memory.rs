//! How much memory a job may take: a limit that the kernel keeps.

use std::sync::atomic::{AtomicUsize, Ordering};

/// What the process had when it was new.
static FRESH: AtomicUsize = AtomicUsize::new(0);

/// A worker that has grown by this much is replaced.
const GROWTH: usize = 32 * 1024 * 1024;

/// Nothing a script does may leave traces or reach further than this process.
pub(super) fn harden() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls with values of our own.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &none);
        #[cfg(target_os = "linux")]
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    }
}

/// Allow the job `bytes` more than there is now.
pub(super) fn limit(bytes: usize) {
    let now = in_use();
    let _ = FRESH.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    set(now.saturating_add(bytes));
}

pub(super) fn unlimited() {
    set(usize::MAX);
}

/// Whether the process is about as small as when it was new.
pub(super) fn is_small() -> bool {
    in_use() < FRESH.load(Ordering::Relaxed).saturating_add(GROWTH)
}

/// Private writable memory, which is what the limit is about.
fn in_use() -> usize {
    let Ok(statm) = std::fs::read_to_string("/proc/self/statm") else { return 0 };
    let pages: usize =
        statm.split(' ').nth(5).and_then(|pages| pages.trim().parse().ok()).unwrap_or(0);
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
