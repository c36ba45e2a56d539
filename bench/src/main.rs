//! `cargo x bench`: what Moonlark costs, against floors measured in the same run.
//!
//! Absolute times belong to a machine and a moment; what counts is the ratio to
//! the least that the same work can cost there: a bare axum route, a bare rmcp
//! server, a bare Luau VM. Servers run as child processes of the release
//! profile, Moonlark and its floor in turns, and the median of the rounds counts.

// What the product must not do is nothing to tools.
#![allow(clippy::disallowed_methods)]

mod bootstrap;
mod calls;
mod echo;
mod engines;
mod fib;
mod floor_axum;
mod floor_rmcp;
mod http;
mod knowledge;
mod machine;
mod old_clients;
mod openapi;
mod peers;
mod plain_bm25;
mod porter_fts5;
mod process;
mod report;
mod retrieval;
mod rounds;
mod run;
mod run_check;
mod run_path;
mod scale;
mod scripts;
mod search;
mod server;
mod soak;
mod start;
mod stdio;
mod tokens;
mod tokens_repeated;
mod tokens_server;
mod trust;
mod trust_load;
mod upstream;
mod upstream_load;
mod upstream_pass;
mod upstream_path;
mod upstream_relay;
mod waiting;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand, ValueEnum};

use report::{ReportPage, Section};

/// What Moonlark costs, against floors measured in the same run.
#[derive(Parser)]
#[command(name = "cargo x bench", max_term_width = 100)]
struct BenchCli {
    #[command(subcommand)]
    benchmark: Benchmark,
}

fn main() -> ExitCode {
    // The benchmark of checks starts this very program.
    moonlark_luau::check::check_scripts_if_asked(moonlark_host::host_modules);
    match BenchCli::parse().benchmark.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Subcommand)]
enum Benchmark {
    /// Script tools over REST and MCP, in process, waiting, computing, and many of them.
    Tools {
        /// Only these parts.
        #[arg(long, value_delimiter = ',', value_name = "PART")]
        only: Vec<Part>,
        #[command(flatten)]
        options: Options,
    },
    /// A tool of an upstream server: directly, through Moonlark, a bare rmcp gateway, a byte relay.
    Upstream {
        /// A binary of mcp-proxy to compare with over HTTP (`cargo install mcp-proxy`).
        #[arg(long, value_name = "FILE")]
        mcp_proxy: Option<PathBuf>,
        #[command(flatten)]
        options: Options,
    },
    /// Agent scripts: by `execute`, beside a client that makes the same calls itself.
    Run {
        #[command(flatten)]
        options: Options,
    },
    /// APIs: reading their documents, and a call of an operation against a bare request.
    Openapi {
        #[command(flatten)]
        options: Options,
    },
    /// Start to the first answer, idle memory, an edited script, memory after bursts.
    Start {
        #[command(flatten)]
        options: Options,
    },
    /// Beside ToolScript, Context Harness, starlark-mcp and my-cool-proxy, which you have built.
    Peers(peers::Peers),
    /// A steady load of everything for minutes, and what the process holds after each.
    Soak(soak::Soak),
    /// Write which functions a server runs at its start, for the linker. Needs valgrind.
    LinkOrder,
    /// Rules and the journal on the path of a call, and a server under ten times its load.
    Trust {
        #[command(flatten)]
        options: Options,
    },
    /// How well `search_docs` ranks, against plain BM25, and how fast.
    Search(search::Search),
    /// How well the knowledge base answers, beside plain BM25 and Context Harness.
    Knowledge(knowledge::Knowledge),
    /// What agents read, in tokens: the raw lists of real servers, and code mode instead.
    Tokens(tokens::Tokens),
    /// A trivial handler in Luau and in Starlark, and what loading costs.
    Engines {
        #[command(flatten)]
        options: Options,
    },
    /// What a benchmark runs as a child process.
    #[command(hide = true)]
    FloorAxum,
    /// What a benchmark runs as a child process.
    #[command(hide = true)]
    FloorRmcp(floor_rmcp::FloorRmcp),
    /// What a benchmark runs as a child process.
    #[command(hide = true)]
    PassThrough(upstream_pass::PassThrough),
    /// What a benchmark runs as a child process.
    #[command(hide = true)]
    Relay(upstream_relay::Relay),
    /// What a benchmark runs as a child process.
    #[command(hide = true)]
    Listed(tokens_server::Listed),
}

#[derive(Args)]
pub struct Options {
    /// Write the report to this file as well.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Rounds of each measurement, in turns with its floor.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    rounds: u32,
    /// Seconds of each round, after a warm-up.
    #[arg(long, default_value_t = 3.0, value_parser = seconds)]
    seconds: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// An echo tool over REST, MCP over HTTP and MCP over stdio.
    Echo,
    /// CPU of a call in process, in a fresh and in a warm VM.
    Call,
    /// 2,000 calls that sleep.
    Waiting,
    /// A script that computes.
    Fib,
    /// Start-up, memory and listings with many tools.
    Scale,
}

/// How long and how often to measure.
#[derive(Clone, Copy)]
struct Effort {
    rounds: u32,
    round: Duration,
    warm_up: Duration,
}

impl Benchmark {
    fn run(self) -> Result<()> {
        ensure!(!cfg!(debug_assertions), "only release builds are measured: use `cargo x bench`");
        match self {
            Benchmark::Tools { only, options } => {
                let wanted = |part: &Part| only.is_empty() || only.contains(part);
                let parts = PARTS.iter().filter(|(part, _)| wanted(part));
                options.measure("tools", parts.map(|(_, run)| Box::new(*run) as Run).collect())
            }
            Benchmark::Upstream { mcp_proxy, options } => {
                let run = move |effort| upstream::run(effort, mcp_proxy.as_deref());
                options.measure("upstream", vec![Box::new(run)])
            }
            Benchmark::Run { options } => options.measure("run", vec![Box::new(run::run)]),
            Benchmark::Start { options } => options.measure("start", vec![Box::new(start::run)]),
            Benchmark::Peers(peers) => peers.run(),
            Benchmark::Soak(soak) => soak.run(),
            Benchmark::LinkOrder => peers::write_link_order(),
            Benchmark::Trust { options } => options.measure("trust", vec![Box::new(trust::run)]),
            Benchmark::Openapi { options } => {
                options.measure("openapi", vec![Box::new(openapi::run)])
            }
            Benchmark::Engines { options } => {
                options.measure("engines", vec![Box::new(engines::run)])
            }
            Benchmark::Search(search) => search.run(),
            Benchmark::Knowledge(knowledge) => knowledge.run(),
            Benchmark::Tokens(tokens) => tokens.run(),
            Benchmark::FloorAxum => floor_axum::run(),
            Benchmark::FloorRmcp(floor) => floor.run(),
            Benchmark::PassThrough(pass) => pass.run(),
            Benchmark::Relay(relay) => relay.run(),
            Benchmark::Listed(listed) => listed.run(),
        }
    }
}

impl Options {
    fn measure(&self, name: &'static str, parts: Vec<Run>) -> Result<()> {
        self.measure_page(&ReportPage::with_floors(name), parts)
    }

    fn measure_page(&self, page: &ReportPage, parts: Vec<Run>) -> Result<()> {
        process::raise_open_files();
        let round = Duration::from_secs_f64(self.seconds);
        let effort = Effort { rounds: self.rounds, round, warm_up: round / 6 };
        let mut sections: Vec<Section> = Vec::new();
        let mut failure = None;
        for run in parts {
            match run(effort) {
                Ok(measured) => sections.extend(measured),
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        let report = report::render(page, &sections, effort)?;
        println!("{report}");
        // What was measured before is worth reading, but no page.
        if let Some(error) = failure {
            return Err(error);
        }
        if let Some(out) = &self.out {
            std::fs::write(out, &report)
                .with_context(|| format!("cannot write {}", out.display()))?;
        }
        Ok(())
    }
}

type Run = Box<dyn Fn(Effort) -> Result<Vec<Section>>>;

type Measure = fn(Effort) -> Result<Vec<Section>>;

const PARTS: [(Part, Measure); 5] = [
    (Part::Echo, echo::run),
    (Part::Call, calls::run),
    (Part::Waiting, waiting::run),
    (Part::Fib, fib::run),
    (Part::Scale, scale::run),
];

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=60.0).contains(&seconds) => Ok(seconds),
        _ => Err("give a number from 0.1 to 60".to_owned()),
    }
}
