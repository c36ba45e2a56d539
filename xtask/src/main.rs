//! `cargo x`: what the repository does to itself.

mod bench;
mod check;
mod generate;
mod repo;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo x", about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

/// Chores of this repository.
#[derive(Subcommand)]
enum Task {
    /// Write the files that come from code: types, schema, reference pages.
    Generate(generate::Generate),
    /// Check what a machine can check of ARCHITECTURE.md and the house rules.
    Tidy,
    /// Everything that must hold before the tests: format, lints, generated files, tidiness.
    Check,
    /// What Moonlark costs, against floors measured in the same run.
    #[command(subcommand)]
    Bench(bench::Bench),
    /// What `bench` runs as a child process.
    #[command(hide = true)]
    BenchFloorAxum,
    /// What `bench` runs as a child process.
    #[command(hide = true)]
    BenchFloorRmcp(bench::floor_rmcp::FloorRmcp),
    /// What `bench` runs as a child process.
    #[command(hide = true)]
    BenchPassThrough(bench::upstream_pass::PassThrough),
    /// What `bench` runs as a child process.
    #[command(hide = true)]
    BenchRelay(bench::upstream_relay::Relay),
    /// What `bench` runs as a child process.
    #[command(hide = true)]
    BenchListed(bench::tokens_server::Listed),
}

fn main() -> ExitCode {
    // The benchmark of checks starts this very program.
    moonlark_luau::check::check_scripts_if_asked(moonlark_host::all);
    let done = match Cli::parse().task {
        Task::Generate(generate) => generate.run(),
        Task::Tidy => tidy::run(),
        Task::Check => check::run(),
        Task::Bench(bench) => bench.run(),
        Task::BenchFloorAxum => bench::floor_axum::run(),
        Task::BenchFloorRmcp(floor) => floor.run(),
        Task::BenchPassThrough(pass) => pass.run(),
        Task::BenchRelay(relay) => relay.run(),
        Task::BenchListed(listed) => listed.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
