//! Metric families: what was counted, at one moment, in a form that every format can be
//! made of.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{
    DURATION_BUCKETS_MICROS, DurationHistogram, GatewayMetrics, OperationMetrics, outcome_name,
};
use crate::gateway::Gateway;
use moonlark_core::source_resources::SourceState;
use moonlark_core::tool::Source;

/// One figure, for all that it is counted apart for.
#[derive(Debug, Clone, PartialEq)]
pub struct MetricFamily {
    pub name: &'static str,
    /// What it says, in a sentence without its full stop.
    pub help: &'static str,
    pub kind: MetricKind,
    pub samples: Vec<MetricSample>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows.
    Counter,
    /// As it is now.
    Gauge,
    /// How many took how long, in seconds.
    Histogram,
}

#[derive(Debug, Clone, PartialEq)]
pub struct MetricSample {
    pub labels: Vec<(&'static str, String)>,
    pub value: MetricValue,
}

#[derive(Debug, Clone, PartialEq)]
pub enum MetricValue {
    Number(f64),
    /// How many there are in each class of [`DURATION_BUCKETS_MICROS`], and above.
    Spread {
        classes: Vec<u64>,
        sum: f64,
    },
}

impl MetricFamily {
    pub fn counter(name: &'static str, help: &'static str) -> Self {
        Self { name, help, kind: MetricKind::Counter, samples: Vec::new() }
    }

    pub fn gauge(name: &'static str, help: &'static str) -> Self {
        Self { kind: MetricKind::Gauge, ..Self::counter(name, help) }
    }

    pub fn histogram(name: &'static str, help: &'static str) -> Self {
        Self { kind: MetricKind::Histogram, ..Self::counter(name, help) }
    }

    /// The one figure of a family that is not counted apart for anything.
    #[must_use]
    pub fn with_value(self, value: f64) -> Self {
        self.with_sample(Vec::new(), value)
    }

    #[must_use]
    pub fn with_sample(mut self, labels: Vec<(&'static str, String)>, value: f64) -> Self {
        self.samples.push(MetricSample { labels, value: MetricValue::Number(value) });
        self
    }

    fn add_sample(&mut self, labels: &[(&'static str, String)], value: MetricValue) {
        self.samples.push(MetricSample { labels: labels.to_vec(), value });
    }
}

impl Gateway {
    /// Everything that can be said without asking anybody.
    pub fn collect_metrics(&self) -> Vec<MetricFamily> {
        let mut all = self.metrics().collect_families();
        all.extend(self.admission_queue().metric_families());
        all.extend(source_families(self));
        all.extend(journal_families(self));
        let more = self.metrics().more.lock().clone();
        all.extend(more.iter().flat_map(|figures| figures()));
        all
    }
}

impl GatewayMetrics {
    fn collect_families(&self) -> Vec<MetricFamily> {
        let mut calls = MetricFamily::counter(
            "moonlark_calls_total",
            "Calls of tools that have ended, by the source of the tool and how they ended",
        );
        let mut times = MetricFamily::histogram(
            "moonlark_call_duration_seconds",
            "How long calls took that were made, by the source of the tool",
        );
        let mut now = MetricFamily::gauge(
            "moonlark_calls_in_flight",
            "Calls that are being made, by the source of the tool",
        );
        let known = self.sources.lock().clone();
        for of in &known {
            let labels = source_labels(&of.source);
            of.figures.add_outcomes(&labels, &mut calls);
            times.add_sample(&labels, of.figures.times.to_metric_value());
            now.add_sample(&labels, counter_value(&of.figures.in_progress));
        }
        let mut runs = MetricFamily::counter(
            "moonlark_runs_total",
            "Agents' scripts that have ended, by how they ended",
        );
        self.runs.add_outcomes(&[], &mut runs);
        let mut run_times = MetricFamily::histogram(
            "moonlark_run_duration_seconds",
            "How long agents' scripts took, with the time they waited for people",
        );
        run_times.add_sample(&[], self.runs.times.to_metric_value());
        let mut running = MetricFamily::gauge(
            "moonlark_runs_in_progress",
            "Agents' scripts that are running or wait for a decision",
        );
        running.add_sample(&[], counter_value(&self.runs.in_progress));
        vec![calls, times, now, runs, run_times, running]
    }
}

impl OperationMetrics {
    /// What never happened is left out.
    fn add_outcomes(&self, labels: &[(&'static str, String)], family: &mut MetricFamily) {
        for (index, counter) in self.outcomes.iter().enumerate() {
            let count = counter.load(Ordering::Relaxed);
            if count > 0 {
                let outcome = ("outcome", outcome_name(index).to_owned());
                let labels: Vec<_> = labels.iter().cloned().chain([outcome]).collect();
                family.add_sample(&labels, MetricValue::Number(count as f64));
            }
        }
    }
}

impl DurationHistogram {
    fn to_metric_value(&self) -> MetricValue {
        let classes = self.classes.iter().map(|class| class.load(Ordering::Relaxed)).collect();
        MetricValue::Spread { classes, sum: self.nanos.load(Ordering::Relaxed) as f64 / 1e9 }
    }
}

/// The upper ends of the classes, in seconds.
pub fn bucket_bounds_seconds() -> impl Iterator<Item = f64> {
    DURATION_BUCKETS_MICROS.iter().map(|micros| *micros as f64 / 1e6)
}

fn source_labels(source: &Source) -> Vec<(&'static str, String)> {
    vec![("source", source.name.clone()), ("kind", source.kind.as_str().to_owned())]
}

fn counter_value(counter: &AtomicU64) -> MetricValue {
    MetricValue::Number(counter.load(Ordering::Relaxed) as f64)
}

/// Servers and APIs, and how they are doing.
fn source_families(gateway: &Gateway) -> Vec<MetricFamily> {
    let catalog = gateway.catalog();
    let mut up = MetricFamily::gauge(
        "moonlark_source_up",
        "Whether an upstream server or an API can be used: 1, or 0",
    );
    let mut connects = MetricFamily::counter(
        "moonlark_source_connects_total",
        "Connections to an upstream server that were made; all after the first were made again",
    );
    let mut failures = MetricFamily::counter(
        "moonlark_source_failures_total",
        "Connections to an upstream server that failed, or were lost",
    );
    for health in catalog.health() {
        let label = || vec![("source", health.source.clone())];
        up = up.with_sample(label(), f64::from(u8::from(health.state == SourceState::Ready)));
    }
    for (server, links) in gateway.metrics().links.lock().iter() {
        let label = || vec![("source", server.clone())];
        connects = connects.with_sample(label(), links.made as f64);
        failures = failures.with_sample(label(), links.failed as f64);
    }
    let tool_count = catalog.tools().len() as f64;
    let tools =
        MetricFamily::gauge("moonlark_tools", "Tools in the catalog").with_value(tool_count);
    vec![up, connects, failures, tools]
}

fn journal_families(gateway: &Gateway) -> Vec<MetricFamily> {
    let Some(recorder) = gateway.recorder() else { return Vec::new() };
    let backlog = recorder.backlog();
    let up = f64::from(u8::from(recorder.current_problem().is_none()));
    vec![
        MetricFamily::gauge("moonlark_journal_up", "Whether the journal can be written: 1, or 0")
            .with_value(up),
        MetricFamily::gauge(
            "moonlark_journal_waiting",
            "Entries of the journal that wait to be written",
        )
        .with_value(backlog.waiting as f64),
        MetricFamily::gauge(
            "moonlark_journal_waiting_bytes",
            "About how much memory those entries take",
        )
        .with_value(backlog.bytes as f64),
        MetricFamily::counter(
            "moonlark_journal_entries_total",
            "Entries that were written to the journal",
        )
        .with_value(backlog.written as f64),
        MetricFamily::counter(
            "moonlark_journal_lost_total",
            "Entries that could not be written and were given up",
        )
        .with_value(backlog.lost as f64),
    ]
}
