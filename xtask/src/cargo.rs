//! Cargo, and the programs of this repository that it builds.

use std::ffi::OsString;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::repo;

/// Run cargo with these arguments in the root of the repository.
pub(crate) fn run_cargo(args: &[&str]) -> Result<()> {
    let status = cargo_command(args).status().context("cannot run cargo")?;
    if status.success() {
        return Ok(());
    }
    bail!("cargo {} failed", args.join(" "))
}

/// `moonlark-generate`: writes the generated files, or compares them.
pub(crate) fn generate(check: bool) -> Result<()> {
    let mut args = vec!["run", "--quiet", "--package", "moonlark-generate", "--"];
    args.extend(check.then_some("--check"));
    run_cargo(&args)
}

/// `moonlark-bench`, and the server that it measures, in the release profile.
pub(crate) fn bench(args: &[OsString]) -> Result<()> {
    let packages = ["--package", "moonlark", "--package", "moonlark-bench"];
    run_cargo(&[&["build", "--quiet", "--release"], packages.as_slice()].concat())?;
    let run = ["run", "--quiet", "--release", "--package", "moonlark-bench", "--"];
    let status = cargo_command(&run).args(args).status().context("cannot run cargo")?;
    if status.success() {
        return Ok(());
    }
    bail!("the benchmark failed")
}

fn cargo_command(args: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(args).current_dir(repo::root());
    command
}
