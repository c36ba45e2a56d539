//! A tool of an upstream server: called directly, through Moonlark, and through a
//! bare rmcp pass-through, in turns.
//!
//! The server is native and answers at once, so that what is between is what is
//! measured.

use anyhow::Result;

use super::report::{self, Row, Section};
use super::rounds::median;
use super::upstream_load::Sample;
use super::upstream_path::{Path, Transport};
use super::{Effort, machine};

const CLIENTS: [usize; 3] = [1, 8, 32];

/// More than this is not added to a call of a single client, in microseconds.
const ADDED: f64 = 60.0;
/// At least this share of what the pass-through reaches.
const SHARE: f64 = 0.80;

pub(super) fn run(effort: Effort) -> Result<Vec<Section>> {
    let mut sections = over(Transport::Http, effort)?;
    sections.extend(over(Transport::Stdio, effort)?);
    Ok(sections)
}

fn over(transport: Transport, effort: Effort) -> Result<Vec<Section>> {
    let mut ways = [
        Path::direct(transport)?,
        Path::through_moonlark(transport)?,
        Path::through_rmcp(transport)?,
    ];
    let (mut against_direct, mut against_rmcp) = (Vec::new(), Vec::new());
    for clients in CLIENTS {
        let what = match transport {
            Transport::Http if clients == 1 => "1 client".to_owned(),
            Transport::Http => format!("{clients} clients"),
            Transport::Stdio => format!("{clients} in flight"),
        };
        eprintln!("upstream over {}, {what} …", transport.name());
        let rounds = in_turns(&mut ways, clients, effort)?;
        let [direct, ours, rmcp] = [0, 1, 2].map(|way| Figures::of(&rounds, way));
        let added = median(rounds.iter().map(|[direct, ours, _]| ours.p50 - direct.p50));
        let share = median(rounds.iter().map(|[_, ours, rmcp]| ours.per_second / rmcp.per_second));

        let row =
            Row::new(&what).ratio(format!("{added:+.0} µs")).figures(ours.speed(), direct.speed());
        let row = row.cpu(format!("{} : {}", ours.cpu(), direct.cpu()));
        against_direct.push(match clients {
            1 => row.goal(format!("≤ {ADDED:.0} µs"), added <= ADDED),
            _ => row,
        });
        against_rmcp.push(
            Row::new(what)
                .ratio(report::percent(share))
                .figures(ours.speed(), rmcp.speed())
                .cpu(format!("{} : {}", ours.cpu(), rmcp.cpu()))
                .goal(format!("≥ {}", report::percent(SHARE)), share >= SHARE),
        );
    }
    let [direct, rmcp] = transport.sections();
    Ok(vec![
        Section { title: direct.0, about: direct.1, rows: against_direct },
        Section { title: rmcp.0, about: rmcp.1, rows: against_rmcp },
    ])
}

impl Transport {
    /// Title and text of what is compared with a direct call, and with rmcp.
    fn sections(self) -> [(&'static str, &'static str); 2] {
        match self {
            Transport::Http => [
                (
                    "HTTP, against no gateway",
                    "A call of a native echo server: the client's requests go to Moonlark over \
                     HTTP and from there to the server over HTTP. The floor is the same client at \
                     the server itself. The first column is what Moonlark adds to the median time \
                     of a call. CPU is that of client, gateway and server for one call.",
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
                    "stdio, against a bare rmcp pass-through",
                    "The floor is the rmcp pass-through, over pipes too.",
                ),
            ],
        }
    }
}

/// Every way once a round; none is always first.
fn in_turns(ways: &mut [Path; 3], clients: usize, effort: Effort) -> Result<Vec<[Sample; 3]>> {
    let mut rounds = Vec::new();
    for round in 0..effort.rounds as usize {
        machine::quiet();
        let mut samples = [None; 3];
        for turn in 0..3 {
            let way = (round + turn) % 3;
            samples[way] = Some(ways[way].measure(clients, effort)?);
        }
        if let [Some(direct), Some(ours), Some(rmcp)] = samples {
            rounds.push([direct, ours, rmcp]);
        }
    }
    Ok(rounds)
}

/// Medians over the rounds of one way.
struct Figures(Sample);

impl Figures {
    fn of(rounds: &[[Sample; 3]], way: usize) -> Figures {
        let of = |value: fn(&Sample) -> f64| median(rounds.iter().map(|round| value(&round[way])));
        Figures(Sample {
            per_second: of(|sample| sample.per_second),
            p50: of(|sample| sample.p50),
            p99: of(|sample| sample.p99),
            client: of(|sample| sample.client),
            gateway: of(|sample| sample.gateway),
            server: of(|sample| sample.server),
        })
    }

    fn speed(&self) -> String {
        let Sample { per_second, p50, p99, .. } = self.0;
        format!("p50 {}, p99 {}, {per_second:.0}/s", report::micros(p50), report::micros(p99))
    }

    /// Of client, gateway (if there is one) and server.
    fn cpu(&self) -> String {
        let Sample { client, gateway, server, .. } = self.0;
        let gateway = if gateway > 0.0 { format!("{gateway:.0} + ") } else { String::new() };
        format!("{client:.0} + {gateway}{server:.0} µs")
    }
}
