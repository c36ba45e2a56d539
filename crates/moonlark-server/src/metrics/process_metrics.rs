//! What the system knows of this process, under the names that every exporter
//! uses. Nothing where there is no `/proc`.

use std::fs;
use std::sync::LazyLock;

use moonlark_gateway::metrics::family::MetricFamily;

use crate::unix_time;

/// What Linux counts a process's time in, on every architecture.
const CLOCK_TICKS_PER_SECOND: f64 = 100.0;

/// As good as the start of the process: it is looked at before anything is served.
static START_TIME_SECONDS: LazyLock<f64> = LazyLock::new(|| unix_time().as_secs_f64());

pub(crate) fn note_start() {
    LazyLock::force(&START_TIME_SECONDS);
}

pub(super) fn process_metrics() -> Vec<MetricFamily> {
    let resident = MetricFamily::gauge(
        "process_resident_memory_bytes",
        "Memory of this process that is not swapped out",
    );
    let files = MetricFamily::gauge("process_open_fds", "Open files and sockets of this process");
    let time = MetricFamily::counter(
        "process_cpu_seconds_total",
        "Time that processors spent on this process",
    );
    let start = MetricFamily::gauge(
        "process_start_time_seconds",
        "When this process started to serve, in seconds since 1970",
    );
    let all = [
        (resident, resident_memory_bytes()),
        (files, open_file_count()),
        (time, cpu_seconds()),
        (start, Some(*START_TIME_SECONDS)),
    ];
    all.into_iter().filter_map(|(family, value)| Some(family.with_value(value?))).collect()
}

fn resident_memory_bytes() -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: f64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024.0)
}

fn open_file_count() -> Option<f64> {
    let count = fs::read_dir("/proc/self/fd").ok()?.count();
    // Without the one it is counted by.
    Some(count.saturating_sub(1) as f64)
}

fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name before may have spaces in it; its bracket is the last.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<f64>().ok();
    Some((next()? + next()?) / CLOCK_TICKS_PER_SECOND)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_running_process_has_memory_files_and_time() {
        assert!(resident_memory_bytes().is_some_and(|bytes| bytes > 1e6));
        assert!(open_file_count().is_some_and(|files| files >= 3.0));
        assert!(cpu_seconds().is_some());
    }
}
