//! What is counted while calls are made: by source and outcome, never by what
//! was called with.
//!
//! Counting takes no lock and no memory: a tool knows the figures of its source
//! from its first call on, and there are at most [`MOST`] of those. How they
//! look to whoever collects them is in [`family`].

pub mod family;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::gateway::Gateway;
use crate::problem::{Code, Problem};
use crate::tool::{Source, Tool};
use family::Family;

/// Sources with figures of their own; what is beyond is counted together.
const MOST: usize = 500;
/// The name of those together.
const OTHERS: &str = "others";
/// How something can end: well, or with a code.
const OUTCOMES: usize = Code::ALL.len() + 1;

/// Upper ends of the classes of durations, in microseconds; there is one more
/// class above them.
pub const BOUNDS: [u64; 18] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// Everything that one gateway counts.
#[derive(Default)]
pub struct Metrics {
    sources: Mutex<Vec<Arc<OfSource>>>,
    links: Mutex<BTreeMap<String, Links>>,
    runs: Figures,
    /// What others count.
    more: Mutex<Vec<Arc<More>>>,
}

type More = dyn Fn() -> Vec<Family> + Send + Sync;

/// The connections to one upstream server.
#[derive(Default, Clone, Copy)]
struct Links {
    made: u64,
    failed: u64,
}

/// The calls of all tools of one source.
pub(crate) struct OfSource {
    source: Source,
    figures: Figures,
}

/// One kind of thing that begins, takes its time and ends.
#[derive(Default)]
struct Figures {
    in_progress: AtomicU64,
    outcomes: [AtomicU64; OUTCOMES],
    times: Times,
}

/// How long things took.
#[derive(Default)]
struct Times {
    classes: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
}

impl Metrics {
    /// An agent's script begins to run.
    pub fn run_began(gateway: &Gateway) -> Running {
        gateway.metrics().runs.begin();
        Running { gateway: gateway.clone(), since: Instant::now(), ended: false }
    }

    /// Figures that somebody else keeps, asked for when all are.
    pub fn also(&self, figures: impl Fn() -> Vec<Family> + Send + Sync + 'static) {
        self.more.lock().push(Arc::new(figures));
    }

    /// A connection to an upstream server was made.
    pub fn connected(&self, server: &str) {
        self.count_link(server, |links| links.made += 1);
    }

    /// One could not be made, or was lost.
    pub fn disconnected(&self, server: &str) {
        self.count_link(server, |links| links.failed += 1);
    }

    fn count_link(&self, server: &str, count: impl FnOnce(&mut Links)) {
        let mut links = self.links.lock();
        if links.len() < MOST || links.contains_key(server) {
            count(links.entry(server.to_owned()).or_default());
        }
    }

    /// The figures that calls of `tool` belong to.
    fn of<'t>(&self, tool: &'t Tool) -> &'t OfSource {
        tool.figures.get_or_init(|| self.of_source(&tool.source))
    }

    /// The same for tools that are loaded again, so nothing starts anew.
    fn of_source(&self, source: &Source) -> Arc<OfSource> {
        let mut known = self.sources.lock();
        let find = |known: &[Arc<OfSource>], wanted: &Source| {
            known.iter().find(|it| it.source == *wanted).cloned()
        };
        let others = Source { kind: source.kind, name: OTHERS.to_owned() };
        let wanted = if known.len() < MOST { source } else { &others };
        find(&known, source).or_else(|| find(&known, wanted)).unwrap_or_else(|| {
            let figures = Figures::default();
            let new = Arc::new(OfSource { source: wanted.clone(), figures });
            known.push(new.clone());
            new
        })
    }
}

impl Figures {
    fn begin(&self) {
        self.in_progress.fetch_add(1, Ordering::Relaxed);
    }

    fn end(&self, outcome: usize, took: Duration) {
        self.in_progress.fetch_sub(1, Ordering::Relaxed);
        self.count(outcome);
        self.times.note(took);
    }

    fn count(&self, outcome: usize) {
        if let Some(counter) = self.outcomes.get(outcome) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Times {
    fn note(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let class = BOUNDS.partition_point(|bound| bound * 1000 < nanos);
        self.classes[class].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }
}

/// A call that is made. One that is dropped was cancelled.
pub(crate) struct Calling<'t> {
    of: &'t OfSource,
    since: Instant,
    ended: bool,
}

impl<'t> Calling<'t> {
    pub(crate) fn begin(metrics: &Metrics, tool: &'t Tool, since: Instant) -> Self {
        let of = metrics.of(tool);
        of.figures.begin();
        Self { of, since, ended: false }
    }

    /// How long it took.
    pub(crate) fn end(&mut self, problem: Option<&Problem>) -> Duration {
        self.finish(problem.map(|problem| problem.code))
    }

    fn finish(&mut self, code: Option<Code>) -> Duration {
        let took = self.since.elapsed();
        if !std::mem::replace(&mut self.ended, true) {
            self.of.figures.end(outcome(code), took);
        }
        took
    }
}

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.finish(Some(Code::Cancelled));
        }
    }
}

/// A call that was refused before it began.
pub(crate) fn refused(metrics: &Metrics, tool: &Tool, problem: &Problem) {
    metrics.of(tool).figures.count(outcome(Some(problem.code)));
}

/// A run that goes on. One that is dropped was cancelled.
pub struct Running {
    gateway: Gateway,
    since: Instant,
    ended: bool,
}

impl Running {
    /// `outcome` is `ok`, or the word of a code.
    pub fn end(&mut self, outcome: &str) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let code = Code::ALL.iter().position(|code| code.as_str() == outcome);
        let runs = &self.gateway.metrics().runs;
        runs.end(code.map_or(0, |code| code + 1), self.since.elapsed());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end(Code::Cancelled.as_str());
    }
}

/// Where it is counted: first what went well, then every code.
fn outcome(code: Option<Code>) -> usize {
    code.map_or(0, |code| code as usize + 1)
}

fn outcome_word(index: usize) -> &'static str {
    index.checked_sub(1).and_then(|code| Code::ALL.get(code)).map_or("ok", |code| code.as_str())
}

#[cfg(test)]
mod tests;
