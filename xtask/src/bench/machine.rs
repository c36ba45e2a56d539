//! The machine, as far as it matters to the figures and no further.

use std::process::Command;

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
    let rustc = Command::new("rustc").arg("--version").output()?;
    let rustc = String::from_utf8_lossy(&rustc.stdout);
    let rustc = rustc.split_whitespace().nth(1).unwrap_or("of an unknown version");
    let virtual_machine = cpus.lines().any(|line| {
        line.starts_with("flags") && line.split_whitespace().any(|flag| flag == "hypervisor")
    });
    let kind = if virtual_machine { " of a virtual machine" } else { "" };
    Ok(format!(
        "The machine: {model}, {cores} cores{kind}, Linux {kernel}, rustc {rustc}, release \
         profile. Server and load generator share the cores."
    ))
}
