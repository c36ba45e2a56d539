//! `cargo x bench`: what Moonlark costs, against floors measured in the same run.
//!
//! Absolute times belong to a machine and a moment; what counts is the ratio to
//! the least that the same work can cost there: a bare axum route, a bare rmcp
//! server, a bare Luau VM. Servers run as child processes of the release
//! profile, Moonlark and its floor in turns, and the median of the rounds counts.

mod calls;
mod echo;
mod engines;
mod fib;
pub mod floor_axum;
pub mod floor_rmcp;
mod http;
mod knowledge;
mod machine;
mod openapi;
mod plain_bm25;
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
mod stdio;
mod tokens;
pub mod tokens_server;
mod trust;
mod trust_load;
mod upstream;
mod upstream_load;
pub mod upstream_pass;
mod upstream_path;
pub mod upstream_relay;
mod waiting;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand, ValueEnum};

use report::Section;

#[derive(Subcommand)]
pub enum Bench {
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
    /// The release binaries are built and this is one of them.
    #[arg(long, hide = true)]
    built: bool,
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

impl Bench {
    pub fn run(self) -> Result<()> {
        let (name, options, parts) = match &self {
            // These count instead of measuring against a floor.
            Bench::Search(_) | Bench::Knowledge(_) | Bench::Tokens(_) => return self.count(),
            Bench::Tools { only, options } => {
                let wanted = |part: &Part| only.is_empty() || only.contains(part);
                let parts = PARTS.iter().filter(|(part, _)| wanted(part));
                ("tools", options, parts.map(|(_, run)| Box::new(*run) as Run).collect())
            }
            Bench::Upstream { mcp_proxy, options } => {
                let peer = mcp_proxy.clone();
                let run = move |effort| upstream::run(effort, peer.as_deref());
                ("upstream", options, vec![Box::new(run) as Run])
            }
            Bench::Run { options } => ("run", options, vec![Box::new(run::run) as Run]),
            Bench::Trust { options } => ("trust", options, vec![Box::new(trust::run) as Run]),
            Bench::Openapi { options } => ("openapi", options, vec![Box::new(openapi::run) as Run]),
            Bench::Engines { options } => ("engines", options, vec![Box::new(engines::run) as Run]),
        };
        if options.built { options.measure(name, parts) } else { Options::build_and_run() }
    }

    fn count(self) -> Result<()> {
        match self {
            Bench::Search(search) => search.run(),
            Bench::Knowledge(knowledge) => knowledge.run(),
            Bench::Tokens(tokens) => tokens.run(),
            _ => Ok(()),
        }
    }
}

impl Options {
    /// Measure release builds only, whatever profile this was started in.
    fn build_and_run() -> Result<()> {
        let built = Command::new(env!("CARGO"))
            .args(["build", "--release", "--package", "moonlark", "--package", "xtask"])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .context("cannot start cargo")?;
        ensure!(built.success(), "the release build failed");
        let this = std::env::current_exe()?;
        let target = this.parent().and_then(Path::parent).context("not in a target folder")?;
        let ran = Command::new(target.join("release").join("xtask"))
            .args(std::env::args_os().skip(1))
            .arg("--built")
            .status()
            .context("cannot start the release build")?;
        ensure!(ran.success(), "the benchmark failed");
        Ok(())
    }

    fn measure(&self, name: &str, parts: Vec<Run>) -> Result<()> {
        process::raise_open_files();
        let round = Duration::from_secs_f64(self.seconds);
        let effort = Effort { rounds: self.rounds, round, warm_up: round / 6 };
        let mut sections: Vec<Section> = Vec::new();
        for run in parts {
            sections.extend(run(effort)?);
        }
        let report = report::render(name, &sections, effort)?;
        println!("{report}");
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
