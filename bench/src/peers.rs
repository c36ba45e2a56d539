//! `cargo x bench peers`: Moonlark beside programs of the same kind that others wrote, in turns.
//!
//! Whoever runs it has built them. Each is started as it is meant to be, with a configuration
//! of its own, and does the same work as Moonlark for the same client. A peer that is not there
//! leaves its rows without figures.

mod burst_rows;
mod instructions;
mod link_order;
mod process_group;
mod programs;
mod projects;
mod rest_rows;
mod script_rows;
mod session_client;
mod starlark_rows;
mod start_rows;
mod turns;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};

use crate::report::{ReportPage, Section};
use crate::{Effort, Options, Run};

use programs::{PEERS, PeerPrograms};

pub use link_order::write_link_order;

#[derive(Args)]
pub struct Peers {
    /// The folder with the executables `toolscript`, `ctx` (Context Harness), `starlark-mcp` and
    /// `my-cool-proxy`, or links to them. Rows of those that are missing are not measured.
    #[arg(long, value_name = "DIR")]
    peers: PathBuf,
    /// Only these parts.
    #[arg(long, value_delimiter = ',', value_name = "PART")]
    only: Vec<PeerPart>,
    /// Count instructions in user space too, with valgrind's callgrind. Takes minutes.
    #[arg(long)]
    instructions: bool,
    #[command(flatten)]
    options: Options,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PeerPart {
    /// Agent scripts: beside ToolScript.
    Scripts,
    /// A Lua tool over REST: beside Context Harness.
    Rest,
    /// A Starlark tool, and an edited one: beside starlark-mcp.
    Starlark,
    /// Start to the first answer, and idle memory.
    Start,
    /// Memory of 1,000 runs at once: beside my-cool-proxy.
    Burst,
}

/// What every part is given.
struct PeerBench {
    programs: PeerPrograms,
    effort: Effort,
    with_instructions: bool,
}

impl Peers {
    pub fn run(self) -> Result<()> {
        let programs = PeerPrograms::in_folder(&self.peers)?;
        for peer in PEERS {
            if programs.find(peer).is_none() {
                let (name, file) = (peer.name(), peer.file_name());
                eprintln!("{name} is not measured: there is no {file} in {}", self.peers.display());
            }
        }
        if self.instructions {
            instructions::require_valgrind()?;
        }
        let wanted = |part: &PeerPart| self.only.is_empty() || self.only.contains(part);
        let run_part = |measure: MeasurePart| -> Run {
            let (programs, with_instructions) = (programs.clone(), self.instructions);
            Box::new(move |effort| {
                measure(&PeerBench { programs: programs.clone(), effort, with_instructions })
            })
        };
        let parts = PEER_PARTS.iter().filter(|(part, _)| wanted(part));
        let parts: Vec<Run> = parts.map(|(_, measure)| run_part(*measure)).collect();
        ensure!(!parts.is_empty(), "nothing to measure");
        self.options.measure_page(&ReportPage::with_peers("peers", HOW_TO_GET_PEERS), parts)
    }
}

type MeasurePart = fn(&PeerBench) -> Result<Vec<Section>>;

const PEER_PARTS: [(PeerPart, MeasurePart); 5] = [
    (PeerPart::Scripts, script_rows::measure),
    (PeerPart::Rest, rest_rows::measure),
    (PeerPart::Starlark, starlark_rows::measure),
    (PeerPart::Start, start_rows::measure),
    (PeerPart::Burst, burst_rows::measure),
];

/// The end of the page.
const HOW_TO_GET_PEERS: &str = "\
## How to measure

Get each peer from its project, build it as its project says, in the release profile, and put the
executables, or links to them, into one folder under these names. Then run
`cargo x bench peers --peers DIR`, with `--instructions` if valgrind is installed.

| file | program | measured with |
|---|---|---|
| `toolscript` | [ToolScript](https://github.com/alennartz/toolscript) | 0.1.0 at commit 0f87558 |
| `ctx` | [Context Harness](https://github.com/parallax-labs/context-harness) | 0.8.0, without its optional models and vector index |
| `starlark-mcp` | [starlark-mcp](https://github.com/connyay/starlark-mcp) | 0.1.0 at commit f1b9f98 |
| `my-cool-proxy` | npm package `@karashiiro/my-cool-proxy` | 1.6.2, on Node 20 |

All of them, and Moonlark, are spoken to by the same client, which speaks MCP 2025-06-18 (REST for
Lua tools), and call the same native echo server. Each has a folder with a configuration of its own
and is left at its defaults otherwise, except that both gateways may make 1,000 calls in a script.
Moonlark has its journal, its type check and its limits on, as it has by default. CPU is that of
the gateway and of every process that it started, the echo server aside, as the kernel counts it;
wall time is the median of the answers as the client saw them. Instructions are those in user
space, counted by callgrind, of the same processes: what twice as many operations take more,
divided by their number.

The Rust crate `mcp-proxy`, which passes calls on and runs no scripts,
is measured by [`cargo x bench upstream --mcp-proxy FILE`](benchmarks-upstream.md).
";
