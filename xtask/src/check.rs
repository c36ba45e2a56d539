//! `cargo x check`: everything that must hold before the tests.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{generate, repo, tidy};

pub(crate) fn run() -> Result<()> {
    let mut failed = Vec::new();
    let mut step = |name: &'static str, done: Result<()>| match done {
        Ok(()) => eprintln!("ok      {name}"),
        Err(error) => {
            eprintln!("failed  {name}\n{error:#}\n");
            failed.push(name);
        }
    };
    step("format", cargo(&["fmt", "--all", "--", "--check"]));
    let lints = ["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"];
    step("lints", cargo(&lints));
    step("generated files", generate::compare());
    step("tidiness", tidy::run());
    if failed.is_empty() {
        return Ok(());
    }
    bail!("{} failed", failed.join(", "))
}

fn cargo(args: &[&str]) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(args)
        .current_dir(repo::root())
        .status()
        .context("cannot run cargo")?;
    if status.success() {
        return Ok(());
    }
    bail!("cargo {} failed", args.join(" "))
}
