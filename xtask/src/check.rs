//! `cargo x check`: everything that must hold before the tests.

use anyhow::{Result, bail};

use crate::cargo::{generate, run_cargo};
use crate::{code_map, tidy};

pub(crate) fn run() -> Result<()> {
    let mut failed = Vec::new();
    let mut step = |name: &'static str, done: Result<()>| match done {
        Ok(()) => eprintln!("ok      {name}"),
        Err(error) => {
            eprintln!("failed  {name}\n{error:#}\n");
            failed.push(name);
        }
    };
    step("format", run_cargo(&["fmt", "--all", "--", "--check"]));
    let lints = ["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"];
    step("lints", run_cargo(&lints));
    step("code map", code_map::generate_code_map(true));
    step("generated files", generate(true));
    step("tidiness", tidy::run());
    if failed.is_empty() {
        return Ok(());
    }
    bail!("{} failed", failed.join(", "))
}
