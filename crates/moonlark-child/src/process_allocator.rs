//! The allocator of the binary: mimalloc in the process that serves, that of the system
//! in its helpers.
//!
//! Scripts are many small values on several threads, which mimalloc hands out with less
//! work and gives back to the system. Helper processes keep the system's allocator: the
//! kernel limits their memory by what they have mapped, and mimalloc maps ahead.
//!
//! Neither asks for huge pages: the few megabytes that a server holds when it is idle would
//! be spread over three times as many.
//!
//! Which it is, is decided by the first allocation, from the command line, because
//! memory has to go back to where it came from.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};

use mimalloc::MiMalloc;

/// The modes of the binary for helper processes begin with this.
const HELPER_MODE_PREFIX: &[u8] = b"__";
/// Bytes of the command line that are looked at; the path of the binary is shorter.
const MAX_COMMAND_LINE_BYTES: usize = 8192;

const ALLOCATOR_UNDECIDED: u8 = 0;
const SYSTEM_ALLOCATOR: u8 = 1;
const MIMALLOC_ALLOCATOR: u8 = 2;

static CHOSEN_ALLOCATOR: AtomicU8 = AtomicU8::new(ALLOCATOR_UNDECIDED);
/// The exit code of this process when there is no memory; 0 to let callers deal with it.
static OUT_OF_MEMORY_EXIT_CODE: AtomicI32 = AtomicI32::new(0);

/// See the top of this file.
pub struct ProcessAllocator;

/// From now on, end this process with `code` when there is no memory: for processes
/// whose limit the kernel keeps, where not all code looks whether it got any.
pub fn exit_when_out_of_memory(code: i32) {
    OUT_OF_MEMORY_EXIT_CODE.store(code, Ordering::Relaxed);
}

unsafe extern "C" {
    /// Of mimalloc: give back what is free in the heap of this thread, and in the arenas of
    /// all threads.
    fn mi_collect(force: bool);
}

/// Give memory that is free back to the system, as far as this thread can: what is free in
/// heaps of other threads stays.
pub(crate) fn release_free_memory() {
    if is_mimalloc() {
        // SAFETY: may be called at any time, and touches nothing that is in use.
        unsafe { mi_collect(true) }
    }
    // What native parts have freed.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: touches nothing but the allocator's own lists.
    unsafe {
        libc::malloc_trim(0);
    }
}

// SAFETY: all memory comes from and goes to one allocator, decided before the first.
unsafe impl GlobalAlloc for ProcessAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on as it came.
        exit_if_null(unsafe {
            if is_mimalloc() { MiMalloc.alloc(layout) } else { System.alloc(layout) }
        })
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: passed on as it came.
        exit_if_null(unsafe {
            if is_mimalloc() { MiMalloc.alloc_zeroed(layout) } else { System.alloc_zeroed(layout) }
        })
    }

    #[inline]
    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: passed on as it came.
        exit_if_null(unsafe {
            if is_mimalloc() {
                MiMalloc.realloc(old, layout, size)
            } else {
                System.realloc(old, layout, size)
            }
        })
    }

    #[inline]
    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: passed on as it came.
        unsafe {
            if is_mimalloc() { MiMalloc.dealloc(old, layout) } else { System.dealloc(old, layout) }
        }
    }
}

#[inline]
fn is_mimalloc() -> bool {
    match CHOSEN_ALLOCATOR.load(Ordering::Relaxed) {
        ALLOCATOR_UNDECIDED => choose_allocator() == MIMALLOC_ALLOCATOR,
        chosen => chosen == MIMALLOC_ALLOCATOR,
    }
}

/// Allocates nothing. Several threads come to the same answer.
#[cold]
fn choose_allocator() -> u8 {
    let mut text = [0; MAX_COMMAND_LINE_BYTES];
    let chosen = match read_command_line(&mut text) {
        Some(read) if !is_helper_mode(read) => {
            allow_huge_pages(false);
            MIMALLOC_ALLOCATOR
        }
        _ => SYSTEM_ALLOCATOR,
    };
    CHOSEN_ALLOCATOR.store(chosen, Ordering::Relaxed);
    chosen
}

/// Whether the kernel may give this process, and those it starts, huge pages that nobody
/// asked for.
pub(crate) fn allow_huge_pages(is_allowed: bool) {
    #[cfg(target_os = "linux")]
    {
        let (is_disabled, unused) = (libc::c_ulong::from(!is_allowed), 0 as libc::c_ulong);
        // SAFETY: a setting of this process.
        unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, is_disabled, unused, unused, unused) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = is_allowed;
}

fn is_helper_mode(command_line: &[u8]) -> bool {
    command_line
        .split(|byte| *byte == 0)
        .nth(1)
        .is_some_and(|mode| mode.starts_with(HELPER_MODE_PREFIX))
}

/// The arguments of this process, each with a zero at its end; none where the system
/// does not say.
fn read_command_line(text: &mut [u8]) -> Option<&[u8]> {
    // SAFETY: plain system calls with a path and a buffer of ours.
    let length = unsafe {
        let file = libc::open(c"/proc/self/cmdline".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return None;
        }
        let length = libc::read(file, text.as_mut_ptr().cast(), text.len());
        libc::close(file);
        length
    };
    text.get(..usize::try_from(length).ok()?)
}

#[inline]
fn exit_if_null(memory: *mut u8) -> *mut u8 {
    if memory.is_null() {
        let code = OUT_OF_MEMORY_EXIT_CODE.load(Ordering::Relaxed);
        if code != 0 {
            // SAFETY: ends the process.
            unsafe { libc::_exit(code) }
        }
    }
    memory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helpers_are_known_by_their_mode() {
        for (line, expected) in [
            (&b"moonlark\0__worker\0"[..], true),
            (b"/opt/moonlark\0__check\0more\0", true),
            (b"moonlark\0serve\0", false),
            (b"moonlark\0", false),
            (b"moonlark\0serve\0__worker\0", false),
            (b"__moonlark\0stdio\0", false),
            (b"", false),
        ] {
            assert_eq!(is_helper_mode(line), expected, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn the_command_line_of_this_process_is_read() {
        let mut text = [0; MAX_COMMAND_LINE_BYTES];
        let read = read_command_line(&mut text).unwrap();
        let first = std::env::args().next().unwrap();
        assert_eq!(read.split(|byte| *byte == 0).next(), Some(first.as_bytes()));
    }
}
