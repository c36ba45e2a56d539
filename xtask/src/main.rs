//! `cargo x`: what the repository does to itself.
//!
//! This program reads text and starts others. What needs the product is a program of its
//! own: `moonlark-generate` and `moonlark-bench`.

// What the product must not do is nothing to tools.
#![allow(clippy::disallowed_methods)]

mod cargo;
mod check;
mod code_map;
mod repo;
mod tidy;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo x", about, max_term_width = 100)]
struct XtaskCli {
    #[command(subcommand)]
    task: XtaskCommand,
}

/// Chores of this repository.
#[derive(Subcommand)]
enum XtaskCommand {
    /// Write the files that come from code: types, schema, reference pages.
    Generate {
        /// Write nothing; fail when a file is not what it should be.
        #[arg(long)]
        check: bool,
    },
    /// Check what a machine can check of ARCHITECTURE.md and the house rules.
    Tidy,
    /// Print which of our crates depends on which.
    Deps,
    /// Everything that must hold before the tests: format, lints, generated files, tidiness.
    Check,
    /// What Moonlark costs, against floors measured in the same run.
    #[command(disable_help_flag = true)]
    Bench {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
        args: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    let done = match XtaskCli::parse().task {
        XtaskCommand::Generate { check } => {
            code_map::generate_code_map(check).and_then(|()| cargo::generate(check))
        }
        XtaskCommand::Tidy => tidy::run(),
        XtaskCommand::Deps => code_map::print_crate_graph(),
        XtaskCommand::Check => check::run(),
        XtaskCommand::Bench { args } => cargo::bench(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
