//! What the kernel says about a process: CPU time, memory, threads.

use std::time::Duration;

use anyhow::{Context, Result};

/// Fields of `/proc/PID/stat`, counted after the command.
const USER_AND_SYSTEM_FIELD: usize = 11;
const CHILDREN_FIELD: usize = 13;

/// CPU time used so far by all threads of a process.
pub(super) fn cpu(pid: u32) -> Result<Duration> {
    ticks(pid, USER_AND_SYSTEM_FIELD)
}

/// CPU time of children that have ended and were waited for.
pub(super) fn ended_children_cpu(pid: u32) -> Result<Duration> {
    ticks(pid, CHILDREN_FIELD)
}

/// CPU time used so far by all threads of a process, where hundredths of a second are too
/// coarse.
pub(super) fn precise_cpu(pid: u32) -> Result<Duration> {
    let pid_of_clock = libc::pid_t::try_from(pid)?;
    // SAFETY: plain values that the calls fill in.
    let time = unsafe {
        let mut clock: libc::clockid_t = 0;
        let mut time: libc::timespec = std::mem::zeroed();
        let known = libc::clock_getcpuclockid(pid_of_clock, &raw mut clock) == 0
            && libc::clock_gettime(clock, &raw mut time) == 0;
        known.then_some(time)
    };
    let time = time.with_context(|| format!("process {pid} is gone"))?;
    Ok(Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec)?))
}

/// User and system time together.
fn ticks(pid: u32, first_field: usize) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .with_context(|| format!("process {pid} is gone"))?;
    // The command, in parentheses, may hold anything; numbers follow it.
    let numbers = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 = numbers
        .split_whitespace()
        .skip(first_field)
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

/// Resident memory in bytes, where a page that several processes share counts in parts.
pub(super) fn proportional_memory(pid: u32) -> Result<u64> {
    rolled_up(pid, "Pss:")
}

/// Resident memory in bytes that is of no file.
pub(super) fn anonymous_memory(pid: u32) -> Result<u64> {
    rolled_up(pid, "Anonymous:")
}

fn rolled_up(pid: u32, key: &str) -> Result<u64> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
        .with_context(|| format!("process {pid} is gone"))?;
    let line = rollup.lines().find_map(|line| line.strip_prefix(key));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    Ok(kilobytes.with_context(|| format!("no memory of process {pid}"))? * 1024)
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
