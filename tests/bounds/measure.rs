//! What a call takes: memory, as the allocator and as the kernel count it, time
//! of the processor, and the time in which it had to wait for a processor.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Counts what is allocated, by scripts and by the host alike.
pub struct CountingAllocator;

static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);

fn count_added(bytes: usize) {
    let live = LIVE_BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes;
    if live > PEAK_BYTES.load(Ordering::Relaxed) {
        PEAK_BYTES.fetch_max(live, Ordering::Relaxed);
    }
}

// SAFETY: all memory comes from and goes to the system's allocator.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_added(layout.size());
        // SAFETY: passed on as it came.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_added(layout.size());
        // SAFETY: passed on as it came.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if size > layout.size() {
            count_added(size - layout.size());
        } else {
            LIVE_BYTES.fetch_sub(layout.size() - size, Ordering::Relaxed);
        }
        // SAFETY: passed on as it came.
        unsafe { System.realloc(old, layout, size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: passed on as it came.
        unsafe { System.dealloc(old, layout) }
    }
}

pub fn live_bytes() -> usize {
    LIVE_BYTES.load(Ordering::Relaxed)
}

/// The most since the last time this was asked.
pub fn take_peak_bytes() -> usize {
    PEAK_BYTES.swap(live_bytes(), Ordering::Relaxed)
}

/// What the process holds of the machine's memory, without what it could read
/// from its files again.
pub fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<usize>().unwrap() * 1024
}

/// The processor time of all threads.
pub fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a plain system call into a value of our own.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The processor time of all processes that were started from here: those that run, and
/// those that have ended.
pub fn children_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let children = tasks
        .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok())
        .collect::<String>();
    let running = children.split_whitespace().filter_map(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Behind its name, which may have any letters: in user mode, and in the kernel.
        let mut fields = stat.rsplit(')').next()?.split_whitespace().skip(11);
        let mut ticks = || fields.next()?.parse::<u64>().ok();
        Some(ticks()? + ticks()?)
    });
    // SAFETY: asks for a constant.
    let ticks_per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    let running = Duration::from_secs_f64(running.sum::<u64>() as f64 / ticks_per_second);
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: a plain system call into a value of our own, which is zeros before.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    let part = |it: libc::timeval| Duration::new(it.tv_sec as u64, it.tv_usec as u32 * 1000);
    running + part(usage.ru_utime) + part(usage.ru_stime)
}

/// Give free memory back to the system, as far as the allocator can.
pub fn trim() {
    // SAFETY: touches nothing but the allocator's own lists.
    unsafe { libc::malloc_trim(0) };
}

/// How long the threads of this process were ready to run and had to wait, because
/// the machine was busy with others.
pub fn waited_for_processor() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let waited = tasks.filter_map(|task| {
        let schedule = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        schedule.split(' ').nth(1)?.parse::<u64>().ok()
    });
    Duration::from_nanos(waited.sum())
}

/// A small generator of numbers, the same for the same seed everywhere.
pub struct SeededNumbers(pub u64);

impl SeededNumbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}
