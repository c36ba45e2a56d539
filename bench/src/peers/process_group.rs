//! A gateway and all that it started, the echo server behind it aside: its CPU time, its memory.

use std::time::Duration;

use anyhow::Result;

use crate::process;
use crate::upstream_path::processes;

/// CPU time used so far, that of workers which have ended among it.
pub(super) fn group_cpu(gateway: u32) -> Result<Duration> {
    let mut total = process::precise_cpu(gateway)? + process::ended_children_cpu(gateway)?;
    for worker in workers(gateway)? {
        // One that has just ended counts with its parent.
        total += process::precise_cpu(worker).unwrap_or_default();
        total += process::ended_children_cpu(worker).unwrap_or_default();
    }
    Ok(total)
}

/// In bytes, with pages that are shared counted once.
pub(super) fn group_memory(gateway: u32) -> Result<u64> {
    let mut total = process::proportional_memory(gateway)?;
    for worker in workers(gateway)? {
        total += process::proportional_memory(worker).unwrap_or_default();
    }
    Ok(total)
}

fn workers(gateway: u32) -> Result<Vec<u32>> {
    let mut all = processes(gateway)?.gateway;
    all.retain(|pid| *pid != gateway);
    Ok(all)
}
