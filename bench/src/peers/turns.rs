//! Moonlark and a peer in turns: what one operation took of each, and rows of their ratios.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::report::{Row, micros, millis, times};
use crate::rounds::median;
use crate::{Effort, machine};

use super::process_group::group_cpu;
use super::programs::Peer;

/// One operation. In seconds.
#[derive(Clone, Copy)]
pub(super) struct OperationCost {
    pub(super) cpu: f64,
    pub(super) wall: f64,
}

/// Rounds of Moonlark and of a peer, or of one figure of each.
pub(super) struct PeerRounds(Vec<(OperationCost, OperationCost)>);

/// What a row shows first, and has a goal for.
#[derive(Clone, Copy)]
pub(super) enum Figure {
    Cpu,
    Wall,
}

/// What a figure may be at most.
#[derive(Clone, Copy)]
pub(super) enum PeerGoal {
    /// Of the peer's.
    Ratio(f64),
    /// In seconds.
    Seconds(f64),
}

/// Measure in turns: ours, theirs, theirs, ours, …
pub(super) fn in_peer_turns(
    rounds: u32,
    mut ours: impl FnMut() -> Result<OperationCost>,
    mut theirs: impl FnMut() -> Result<OperationCost>,
) -> Result<PeerRounds> {
    let mut pairs = Vec::new();
    for round in 0..rounds {
        machine::quiet();
        pairs.push(if round % 2 == 0 {
            let first = ours()?;
            (first, theirs()?)
        } else {
            let first = theirs()?;
            (ours()?, first)
        });
    }
    Ok(PeerRounds(pairs))
}

/// Repeat an operation of the gateway `pid` for a round, after a warm-up. It says how long each
/// took.
pub(super) fn repeat_operation(
    pid: u32,
    effort: Effort,
    mut operation: impl FnMut() -> Result<Duration>,
) -> Result<OperationCost> {
    let warm = Instant::now();
    while warm.elapsed() < effort.warm_up {
        operation()?;
    }
    let mut walls = Vec::new();
    let (began, cpu_before) = (Instant::now(), group_cpu(pid)?);
    while began.elapsed() < effort.round {
        walls.push(operation()?.as_secs_f64());
    }
    let cpu = group_cpu(pid)?.saturating_sub(cpu_before);
    Ok(OperationCost { cpu: cpu.as_secs_f64() / walls.len() as f64, wall: median(walls) })
}

impl PeerRounds {
    /// A row of one figure.
    pub(super) fn row(
        &self,
        what: impl Into<String>,
        figure: Figure,
        goal: Option<PeerGoal>,
    ) -> Row {
        let (ours, theirs, ratio) = self.compare(figure);
        let row = Row::new(what).ratio(times(ratio)).figures(duration(ours), duration(theirs));
        match goal {
            Some(PeerGoal::Ratio(most)) => {
                row.goal(goal_text(PeerGoal::Ratio(most)), ratio <= most)
            }
            Some(PeerGoal::Seconds(most)) => {
                row.goal(goal_text(PeerGoal::Seconds(most)), ours <= most)
            }
            None => row,
        }
    }

    /// `wall 148 µs : 74.0 µs = 2.00 ×`
    pub(super) fn beside(&self, figure: Figure) -> String {
        let (ours, theirs, ratio) = self.compare(figure);
        let name = match figure {
            Figure::Cpu => "CPU",
            Figure::Wall => "wall",
        };
        format!("{name} {} : {} = {}", duration(ours), duration(theirs), times(ratio))
    }

    /// Medians of ours, of theirs, and of the ratios of each round, which cancel the drift of the
    /// machine.
    fn compare(&self, figure: Figure) -> (f64, f64, f64) {
        let of = |cost: &OperationCost| match figure {
            Figure::Cpu => cost.cpu,
            Figure::Wall => cost.wall,
        };
        let ours = median(self.0.iter().map(|(ours, _)| of(ours)));
        let theirs = median(self.0.iter().map(|(_, theirs)| of(theirs)));
        (ours, theirs, median(self.0.iter().map(|(ours, theirs)| of(ours) / of(theirs))))
    }
}

/// A row of a peer that is not there.
pub(super) fn row_without_peer(what: impl Into<String>, peer: Peer, goal: Option<PeerGoal>) -> Row {
    let missing = format!("no `{}`", peer.file_name());
    Row::new(what).figures("", missing).not_measured(goal.map(goal_text))
}

fn goal_text(goal: PeerGoal) -> String {
    match goal {
        PeerGoal::Ratio(most) => format!("≤ {most:.1} ×"),
        PeerGoal::Seconds(most) if most < 1e-3 => format!("≤ {:.0} µs", most * 1e6),
        PeerGoal::Seconds(most) => format!("≤ {:.0} ms", most * 1e3),
    }
}

/// From microseconds to seconds.
fn duration(seconds: f64) -> String {
    if seconds < 0.01 { micros(seconds * 1e6) } else { millis(seconds) }
}
