//! What the kernel says about a process: CPU time, memory, threads.

use std::time::Duration;

use anyhow::{Context, Result};

/// CPU time used so far by all threads of a process.
pub(super) fn cpu(pid: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .with_context(|| format!("process {pid} is gone"))?;
    // The command, in parentheses, may hold anything; numbers follow it.
    let numbers = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 = numbers
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|ticks| ticks.parse::<u64>().ok())
        .sum();
    Ok(Duration::from_secs_f64(ticks as f64 / ticks_per_second()))
}

/// CPU time used so far by all threads of this process.
pub(super) fn own_cpu() -> Duration {
    let time = |time: libc::timeval| {
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_usec.unsigned_abs() as u32 * 1000)
    };
    // SAFETY: a plain struct that the call fills in; zeros are valid for it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Status {
    /// Resident memory in bytes.
    pub(super) resident: u64,
    pub(super) threads: u64,
}

pub(super) fn status(pid: u32) -> Result<Status> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("process {pid} is gone"))?;
    let number = |key: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(key)?.split_whitespace().next()?.parse::<u64>().ok())
            .with_context(|| format!("no {key} of process {pid}"))
    };
    Ok(Status { resident: number("VmRSS:")? * 1024, threads: number("Threads:")? })
}

/// Allow as many open files as the system lets us; children inherit it.
pub(super) fn raise_open_files() {
    // SAFETY: a plain struct that the first call fills in and the second reads.
    unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

fn ticks_per_second() -> f64 {
    // SAFETY: no arguments that could be wrong.
    match unsafe { libc::sysconf(libc::_SC_CLK_TCK) } {
        ticks if ticks > 0 => ticks as f64,
        _ => 100.0,
    }
}
