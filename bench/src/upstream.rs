//! A tool of an upstream server: called directly, through Moonlark, through a
//! bare rmcp pass-through, and through a relay that only copies bytes, in turns.
//!
//! The server is native and answers at once, so that what is between is what is
//! measured.

use anyhow::Result;

use super::report::{self, Row, Section};
use super::rounds::median;
use super::upstream_load::Sample;
use super::upstream_path::{Path, Transport};
use super::{Effort, machine, old_clients};

const CLIENTS: [usize; 3] = [1, 8, 32];

/// The ways, in the order of every round.
const DIRECT: usize = 0;
const OURS: usize = 1;
const RMCP: usize = 2;
const RELAY: usize = 3;
/// If it is there.
const PEER: usize = 4;

/// One sample of every way.
type Round = Vec<Sample>;

/// More than this is not added to a call of a single client, in microseconds.
const ADDED: f64 = 60.0;
/// At least this share of what the pass-through reaches.
const SHARE: f64 = 0.80;

pub(super) fn run(effort: Effort, mcp_proxy: Option<&std::path::Path>) -> Result<Vec<Section>> {
    let mut sections = over(Transport::Http, effort, mcp_proxy)?;
    sections.extend(over(Transport::Stdio, effort, None)?);
    sections.extend(old_clients::with_upstream_tool(effort)?);
    Ok(sections)
}

fn over(
    transport: Transport,
    effort: Effort,
    mcp_proxy: Option<&std::path::Path>,
) -> Result<Vec<Section>> {
    let mut ways = vec![
        Path::direct(transport)?,
        Path::through_moonlark(transport)?,
        Path::through_rmcp(transport)?,
        Path::through_relay(transport)?,
    ];
    let mut sections = Vec::from(transport.sections());
    if let Some(binary) = mcp_proxy {
        ways.push(Path::through_mcp_proxy(binary)?);
        sections.push(against_mcp_proxy());
    }
    for clients in CLIENTS {
        let what = match transport {
            Transport::Http if clients == 1 => "1 client".to_owned(),
            Transport::Http => format!("{clients} clients"),
            Transport::Stdio => format!("{clients} in flight"),
        };
        eprintln!("upstream over {}, {what} …", transport.name());
        let rounds = in_turns(&mut ways, clients, effort)?;
        let figures: Vec<Figures> = (0..ways.len()).map(|way| Figures::of(&rounds, way)).collect();
        let ours = &figures[OURS];
        let beyond = |way: usize| median(rounds.iter().map(|it| it[OURS].p50 - it[way].p50));
        let share = median(rounds.iter().map(|it| it[OURS].per_second / it[RMCP].per_second));

        let row = |ratio, floor: usize| {
            let floor = &figures[floor];
            Row::new(&what).ratio(ratio).figures(ours.speed(), floor.speed()).cpu(format!(
                "{} : {}",
                ours.cpu(),
                floor.cpu()
            ))
        };
        let added = beyond(DIRECT);
        let against_direct = row(format!("{added:+.0} µs"), DIRECT);
        let mut rows = vec![
            match clients {
                1 => against_direct.goal(format!("≤ {ADDED:.0} µs"), added <= ADDED),
                _ => against_direct,
            },
            row(format!("{:+.0} µs", beyond(RELAY)), RELAY),
            row(report::percent(share), RMCP)
                .goal(format!("≥ {}", report::percent(SHARE)), share >= SHARE),
        ];
        if mcp_proxy.is_some() {
            let adds = |way: usize| figures[way].adds.unwrap_or_default();
            let ratio = adds(OURS) / adds(PEER);
            let row = row(format!("{ratio:.2}×"), PEER);
            rows.push(row.goal("≤ 1×", ratio <= 1.0));
        }
        for (section, row) in sections.iter_mut().zip(rows) {
            section.rows.push(row);
        }
    }
    Ok(sections)
}

fn against_mcp_proxy() -> Section {
    Section {
        title: "HTTP, against mcp-proxy",
        about: "Measured with `--mcp-proxy FILE`, here with version 0.6 from crates.io. The floor is \
                that gateway, which is known for what little it adds (52 µs where its authors \
                measured, on a machine of another kind), with none of what it can do turned on: no \
                validation, no limits, no record. The first column is what Moonlark adds to the \
                median time of a call as a share of what that adds.",
        rows: Vec::new(),
    }
}

impl Transport {
    /// What is compared with a direct call, with the relay and with rmcp.
    fn sections(self) -> [Section; 3] {
        let texts = match self {
            Transport::Http => [
                (
                    "HTTP, against no gateway",
                    "A call of a native echo server: the client's requests go to Moonlark over \
                     HTTP and from there to the server over HTTP. The floor is the same client at \
                     the server itself. The first column is what Moonlark adds to the median time \
                     of a call; in brackets, here and below, what a way adds to a direct call. CPU \
                     is that of client, gateway and server for one call.",
                ),
                (
                    "HTTP, against a relay of bytes",
                    "The floor is a process that copies bytes between the client's connection and \
                     one to the server, a blocking thread for each direction, and reads none of \
                     them. What it adds, any process in between adds on this machine: it is the \
                     kernel's part, two more wake-ups of a process and two more passes through the \
                     network stack. The first column is how much longer the median call takes \
                     through Moonlark than through that.",
                ),
                (
                    "HTTP, against a bare rmcp pass-through",
                    "The floor is an rmcp server that hands every call to an rmcp client: no \
                     schema, no limits, no record. The first column is calls per second.",
                ),
            ],
            Transport::Stdio => [
                (
                    "stdio, against no gateway",
                    "The same over pipes: the gateway is a child of the client, the server one of \
                     the gateway. All calls in flight share one pipe.",
                ),
                (
                    "stdio, against a relay of bytes",
                    "The floor is the process that copies bytes, between pipes.",
                ),
                (
                    "stdio, against a bare rmcp pass-through",
                    "The floor is the rmcp pass-through, over pipes too.",
                ),
            ],
        };
        texts.map(|(title, about)| Section { title, about, rows: Vec::new() })
    }
}

/// Every way once a round; none is always first.
fn in_turns(ways: &mut [Path], clients: usize, effort: Effort) -> Result<Vec<Round>> {
    let mut rounds = Vec::new();
    for round in 0..effort.rounds as usize {
        machine::quiet();
        let mut samples = Vec::new();
        for turn in 0..ways.len() {
            let way = (round + turn) % ways.len();
            samples.push((way, ways[way].measure(clients, effort)?));
        }
        samples.sort_by_key(|(way, _)| *way);
        rounds.push(samples.into_iter().map(|(_, sample)| sample).collect());
    }
    Ok(rounds)
}

/// Medians over the rounds of one way.
struct Figures {
    sample: Sample,
    /// To the median of a direct call.
    adds: Option<f64>,
}

impl Figures {
    fn of(rounds: &[Round], way: usize) -> Figures {
        let of = |value: fn(&Sample) -> f64| median(rounds.iter().map(|round| value(&round[way])));
        let added = || median(rounds.iter().map(|round| round[way].p50 - round[DIRECT].p50));
        let adds = (way != DIRECT).then(added);
        let sample = Sample {
            per_second: of(|sample| sample.per_second),
            p50: of(|sample| sample.p50),
            p99: of(|sample| sample.p99),
            client: of(|sample| sample.client),
            gateway: of(|sample| sample.gateway),
            server: of(|sample| sample.server),
        };
        Figures { sample, adds }
    }

    fn speed(&self) -> String {
        let Sample { per_second, p50, p99, .. } = self.sample;
        let adds = self.adds.map(|adds| format!(" ({adds:+.0})")).unwrap_or_default();
        let (p50, p99) = (report::micros(p50), report::micros(p99));
        format!("p50 {p50}{adds}, p99 {p99}, {per_second:.0}/s")
    }

    /// Of client, gateway (if there is one) and server.
    fn cpu(&self) -> String {
        let Sample { client, gateway, server, .. } = self.sample;
        let gateway = if gateway > 0.0 { format!("{gateway:.0} + ") } else { String::new() };
        format!("{client:.0} + {gateway}{server:.0} µs")
    }
}
