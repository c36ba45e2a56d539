//! Metrics of calls: by source and outcome, never by arguments.
//!
//! Counting takes no lock and no memory: a tool knows the figures of its source
//! from its first call on, and there are at most [`MAX_COUNTED_SOURCES`] of those. How they
//! look to whoever collects them is in [`family`].

pub mod family;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::call_outcome::CallOutcome;
use crate::gateway::Gateway;
use crate::tool_body::ToolRuntime;
use family::MetricFamily;
use moonlark_core::problem::ProblemCode;
use moonlark_core::tool::{Source, Tool};

/// Sources with figures of their own; what is beyond is counted together.
const MAX_COUNTED_SOURCES: usize = 500;
/// The name of those together.
const OTHER_SOURCES_NAME: &str = "others";
/// How something can end: well, or with a code.
const OUTCOME_COUNT: usize = ProblemCode::ALL_CODES.len() + 1;

/// Upper ends of the classes of durations, in microseconds; there is one more
/// class above them.
pub const DURATION_BUCKETS_MICROS: [u64; 18] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000, 60_000_000,
];

/// Everything that one gateway counts.
#[derive(Default)]
pub struct GatewayMetrics {
    sources: Mutex<Vec<Arc<SourceMetrics>>>,
    links: Mutex<BTreeMap<String, LinkCounts>>,
    runs: OperationMetrics,
    /// What others count.
    more: Mutex<Vec<Arc<MetricsCollector>>>,
}

type MetricsCollector = dyn Fn() -> Vec<MetricFamily> + Send + Sync;

/// The connections to one upstream server.
#[derive(Default, Clone, Copy)]
struct LinkCounts {
    made: u64,
    failed: u64,
}

/// The calls of all tools of one source.
pub(crate) struct SourceMetrics {
    source: Source,
    figures: OperationMetrics,
}

/// One kind of thing that begins, takes its time and ends.
#[derive(Default)]
struct OperationMetrics {
    in_progress: AtomicU64,
    outcomes: [AtomicU64; OUTCOME_COUNT],
    times: DurationHistogram,
}

/// How long things took.
#[derive(Default)]
struct DurationHistogram {
    classes: [AtomicU64; DURATION_BUCKETS_MICROS.len() + 1],
    nanos: AtomicU64,
}

impl GatewayMetrics {
    /// An agent's script begins to run.
    pub fn start_run(gateway: &Gateway) -> RunTimer {
        gateway.metrics().runs.count_begin();
        RunTimer { gateway: gateway.clone(), since: Instant::now(), ended: false }
    }

    /// Figures that somebody else keeps, asked for when all are.
    pub fn add_collector(&self, figures: impl Fn() -> Vec<MetricFamily> + Send + Sync + 'static) {
        self.more.lock().push(Arc::new(figures));
    }

    /// A connection to an upstream server was made.
    pub fn record_connection(&self, server: &str) {
        self.count_link(server, |links| links.made += 1);
    }

    /// One could not be made, or was lost.
    pub fn record_disconnection(&self, server: &str) {
        self.count_link(server, |links| links.failed += 1);
    }

    fn count_link(&self, server: &str, count: impl FnOnce(&mut LinkCounts)) {
        let mut links = self.links.lock();
        if links.len() < MAX_COUNTED_SOURCES || links.contains_key(server) {
            count(links.entry(server.to_owned()).or_default());
        }
    }

    /// A call is made.
    pub(crate) fn count_begun_call(&self, tool: &Tool) {
        self.tool_metrics(tool).figures.count_begin();
    }

    pub(crate) fn count_ended_call(&self, tool: &Tool, outcome: CallOutcome, took: Duration) {
        self.tool_metrics(tool).figures.count_end(outcome_index(outcome), took);
    }

    /// A call that was refused before it began.
    pub(crate) fn count_refused_call(&self, tool: &Tool, outcome: CallOutcome) {
        self.tool_metrics(tool).figures.count_outcome(outcome_index(outcome));
    }

    /// The figures that calls of `tool` belong to.
    fn tool_metrics<'t>(&self, tool: &'t Tool) -> &'t SourceMetrics {
        let runtime = ToolRuntime::of_tool(tool);
        runtime.source_metrics.get_or_init(|| self.source_metrics(&tool.source))
    }

    /// The same for tools that are loaded again, so nothing starts anew.
    fn source_metrics(&self, source: &Source) -> Arc<SourceMetrics> {
        let mut known = self.sources.lock();
        let find = |known: &[Arc<SourceMetrics>], wanted: &Source| {
            known.iter().find(|it| it.source == *wanted).cloned()
        };
        let others = Source { kind: source.kind, name: OTHER_SOURCES_NAME.to_owned() };
        let wanted = if known.len() < MAX_COUNTED_SOURCES { source } else { &others };
        find(&known, source).or_else(|| find(&known, wanted)).unwrap_or_else(|| {
            let figures = OperationMetrics::default();
            let new = Arc::new(SourceMetrics { source: wanted.clone(), figures });
            known.push(new.clone());
            new
        })
    }
}

impl OperationMetrics {
    fn count_begin(&self) {
        self.in_progress.fetch_add(1, Ordering::Relaxed);
    }

    fn count_end(&self, outcome: usize, took: Duration) {
        self.in_progress.fetch_sub(1, Ordering::Relaxed);
        self.count_outcome(outcome);
        self.times.observe_duration(took);
    }

    fn count_outcome(&self, outcome: usize) {
        if let Some(counter) = self.outcomes.get(outcome) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl DurationHistogram {
    fn observe_duration(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let class = DURATION_BUCKETS_MICROS.partition_point(|bound| bound * 1000 < nanos);
        self.classes[class].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }
}

/// A run that goes on. One that is dropped was cancelled.
pub struct RunTimer {
    gateway: Gateway,
    since: Instant,
    ended: bool,
}

impl RunTimer {
    pub fn end_run(&mut self, outcome: CallOutcome) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let runs = &self.gateway.metrics().runs;
        runs.count_end(outcome_index(outcome), self.since.elapsed());
    }
}

impl Drop for RunTimer {
    fn drop(&mut self) {
        self.end_run(CallOutcome::Cancelled);
    }
}

/// Where it is counted: first what went well, then every code.
fn outcome_index(outcome: CallOutcome) -> usize {
    outcome.problem_code().map_or(0, |code| code as usize + 1)
}

fn outcome_name(index: usize) -> &'static str {
    index
        .checked_sub(1)
        .and_then(|code| ProblemCode::ALL_CODES.get(code))
        .map_or("ok", |code| code.as_str())
}

#[cfg(test)]
mod tests;
