//! What the system knows of processes that are not our children.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::harness::PATIENCE;

/// Gone, or ended and only waiting to be noticed.
pub fn is_dead(pid: u32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    status.rsplit(") ").next().unwrap().starts_with(['Z', 'X'])
}

/// Wait for the end of a process that is not our child.
pub fn wait_for_death(pid: u32) {
    // SAFETY: it takes two numbers.
    let handle = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32;
    if handle >= 0 {
        let mut event = libc::pollfd { fd: handle, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which lives as long as the call; then our own handle.
        let ready = unsafe { libc::poll(&mut event, 1, PATIENCE.as_millis() as i32) };
        // SAFETY: the handle was opened above and is used nowhere else.
        unsafe { libc::close(handle) };
        assert_eq!(ready, 1, "{pid} lives on");
    }
    assert!(is_dead(pid), "{pid} lives on");
}

/// Processes that live and whose environment holds `mark`.
pub fn marked(mark: &str) -> Vec<u32> {
    let pid = |path: PathBuf| path.file_name()?.to_str()?.parse().ok();
    let holds = |pid: &u32| {
        std::fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|environ| String::from_utf8_lossy(&environ).contains(mark))
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| pid(entry.path())).filter(holds).filter(|pid| !is_dead(*pid)).collect()
}

/// A field of `/proc/PID/status`, in kilobytes if it is memory.
pub fn status(pid: u32, field: &str) -> i64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_matches(|c: char| !c.is_ascii_digit()).parse().unwrap()
}

/// What it has open, as the targets of its descriptors.
pub fn open_files(pid: u32) -> Vec<String> {
    let all = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let target = |path: PathBuf| Some(std::fs::read_link(path).ok()?.display().to_string());
    all.filter_map(|entry| target(entry.path())).collect()
}

pub fn signal(pid: u32, signal: i32) {
    // SAFETY: two numbers, and the process is one that this test has caused.
    assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
}

/// A pipe with a name: whoever opens it to read waits for somebody to write.
pub fn fifo(path: &Path) {
    let name = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the name is a string that ends, and lives as long as the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
}
