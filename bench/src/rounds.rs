//! Rounds in turns, and their medians.

use std::time::Duration;

use anyhow::Result;

use super::{machine, process};

/// One round of requests, or the median over rounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    pub(super) per_second: f64,
    /// CPU of the server for one request, in microseconds.
    pub(super) cpu: f64,
}

/// Moonlark and its floor, measured in turns.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair {
    pub(super) ours: Rate,
    pub(super) floor: Rate,
    /// Medians of the ratios of each round, which cancel the drift of the machine.
    pub(super) speed: f64,
    pub(super) cpu: f64,
}

/// Measure in turns: ours, floor, floor, ours, …
pub(super) fn in_turns(
    rounds: u32,
    mut ours: impl FnMut() -> Result<Rate>,
    mut floor: impl FnMut() -> Result<Rate>,
) -> Result<Pair> {
    let mut pairs = Vec::new();
    for round in 0..rounds {
        machine::quiet();
        pairs.push(if round % 2 == 0 {
            let first = ours()?;
            (first, floor()?)
        } else {
            let first = floor()?;
            (ours()?, first)
        });
    }
    let of = |value: fn(&(Rate, Rate)) -> f64| median(pairs.iter().map(value));
    Ok(Pair {
        ours: Rate { per_second: of(|(o, _)| o.per_second), cpu: of(|(o, _)| o.cpu) },
        floor: Rate { per_second: of(|(_, f)| f.per_second), cpu: of(|(_, f)| f.cpu) },
        speed: of(|(o, f)| o.per_second / f.per_second),
        cpu: of(|(o, f)| o.cpu / f.cpu),
    })
}

pub(super) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}

/// What a process did between two looks at it.
pub(super) struct Look {
    at: std::time::Instant,
    cpu: Duration,
    done: u64,
}

impl Look {
    pub(super) fn at(pid: u32, done: u64) -> Result<Look> {
        Ok(Look { at: std::time::Instant::now(), cpu: process::cpu(pid)?, done })
    }

    pub(super) fn rate_until(&self, later: &Look) -> Rate {
        let done = (later.done - self.done).max(1) as f64;
        Rate {
            per_second: done / (later.at - self.at).as_secs_f64(),
            cpu: (later.cpu - self.cpu).as_secs_f64() * 1e6 / done,
        }
    }
}
