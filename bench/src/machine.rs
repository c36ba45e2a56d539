//! The machine, the day and the commit, as far as they matter to the figures.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

pub(super) fn describe() -> Result<String> {
    let cpus = std::fs::read_to_string("/proc/cpuinfo")?;
    let model = cpus
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map_or("unknown CPU", |(_, model)| model.trim());
    let cores = std::thread::available_parallelism()?;
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let kernel = kernel.split(|c: char| c != '.' && !c.is_ascii_digit()).next().unwrap_or_default();
    let rustc = first_line("rustc", &["--version"])?;
    let rustc = rustc.split_whitespace().nth(1).unwrap_or("of an unknown version");
    let date = first_line("date", &["--utc", "+%F"])?;
    let commit = first_line("git", &["describe", "--always", "--dirty", "--exclude=*"])?;
    let virtual_machine = cpus.lines().any(|line| {
        line.starts_with("flags") && line.split_whitespace().any(|flag| flag == "hypervisor")
    });
    let kind = if virtual_machine { " of a virtual machine" } else { "" };
    let disturbed = match DISTURBED.load(Ordering::Relaxed) {
        0 => "",
        _ => " Other work ran on it at the same time.",
    };
    Ok(format!(
        "Measured {date} at commit {commit}. The machine: {model}, {cores} cores{kind}, Linux \
         {kernel}, rustc {rustc}, release profile. Server and load generator share the \
         cores.{disturbed}"
    ))
}

fn first_line(program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program).args(args).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or("unknown").to_owned())
}

/// Share of all cores that others may use for the machine to count as quiet.
const QUIET: f64 = 0.1;
/// How long to wait for quiet, over the whole run.
const PATIENCE: Duration = Duration::from_secs(120);

/// Milliseconds waited in vain so far.
static WAITED: AtomicU64 = AtomicU64::new(0);
/// Rounds that began while others were busy.
static DISTURBED: AtomicU64 = AtomicU64::new(0);

/// Wait, with patience, until nobody else uses the machine. Called between
/// rounds, when our own processes are idle.
pub(super) fn quiet() {
    let began = Instant::now();
    let before = Duration::from_millis(WAITED.load(Ordering::Relaxed));
    let mut is_quiet = true;
    while busy(Duration::from_millis(100)).is_some_and(|share| share > QUIET) {
        if before + began.elapsed() > PATIENCE {
            is_quiet = false;
            break;
        }
    }
    let waited = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    // The first look always takes its time and counts for nothing.
    WAITED.fetch_add(waited.saturating_sub(100), Ordering::Relaxed);
    if !is_quiet && DISTURBED.fetch_add(1, Ordering::Relaxed) == 0 {
        eprintln!("the machine is busy with something else: expect noise");
    }
}

/// The share of all cores that is in use during `time`.
fn busy(time: Duration) -> Option<f64> {
    let (busy, all) = ticks()?;
    std::thread::sleep(time);
    let (busy_after, all_after) = ticks()?;
    Some((busy_after - busy) as f64 / (all_after - all).max(1) as f64)
}

/// Ticks in use and all ticks since the machine started, over all cores.
fn ticks() -> Option<(u64, u64)> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let ticks: Vec<u64> =
        stat.lines().next()?.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    let idle: u64 = ticks.get(3..5)?.iter().sum();
    let all: u64 = ticks.iter().take(8).sum();
    Some((all - idle, all))
}
