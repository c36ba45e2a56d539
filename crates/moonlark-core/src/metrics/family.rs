//! What was counted, at one moment, in a form that every format can be made of.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{BOUNDS, Figures, Metrics, Times, outcome_word};
use crate::gateway::Gateway;
use crate::tool::Source;

/// One figure, for all that it is counted apart for.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    pub name: &'static str,
    /// What it says, in a sentence without its full stop.
    pub help: &'static str,
    pub kind: Kind,
    pub samples: Vec<Sample>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// As it is now.
    Gauge,
    /// How many took how long, in seconds.
    Histogram,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    pub labels: Vec<(&'static str, String)>,
    pub value: Measured,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Measured {
    Number(f64),
    /// How many there are in each class of [`BOUNDS`], and above.
    Spread {
        classes: Vec<u64>,
        sum: f64,
    },
}

impl Family {
    pub fn new(name: &'static str, kind: Kind, help: &'static str) -> Self {
        Self { name, help, kind, samples: Vec::new() }
    }

    /// One figure that is not counted apart for anything.
    pub fn one(name: &'static str, kind: Kind, help: &'static str, value: f64) -> Self {
        Self::new(name, kind, help).with(Vec::new(), value)
    }

    #[must_use]
    pub fn with(mut self, labels: Vec<(&'static str, String)>, value: f64) -> Self {
        self.samples.push(Sample { labels, value: Measured::Number(value) });
        self
    }

    fn add(&mut self, labels: &[(&'static str, String)], value: Measured) {
        self.samples.push(Sample { labels: labels.to_vec(), value });
    }
}

impl Gateway {
    /// Everything that can be said without asking anybody.
    pub fn figures(&self) -> Vec<Family> {
        let mut all = self.metrics().families();
        all.extend(self.places().families());
        all.extend(sources(self));
        all.extend(journal(self));
        let more = self.metrics().more.lock().clone();
        all.extend(more.iter().flat_map(|figures| figures()));
        all
    }
}

impl Metrics {
    fn families(&self) -> Vec<Family> {
        let mut calls = Family::new(
            "moonlark_calls_total",
            Kind::Counter,
            "Calls of tools that have ended, by the source of the tool and how they ended",
        );
        let mut times = Family::new(
            "moonlark_call_duration_seconds",
            Kind::Histogram,
            "How long calls took that were made, by the source of the tool",
        );
        let mut now = Family::new(
            "moonlark_calls_in_flight",
            Kind::Gauge,
            "Calls that are being made, by the source of the tool",
        );
        let known = self.sources.lock().clone();
        for of in &known {
            let labels = labels(&of.source);
            of.figures.outcomes(&labels, &mut calls);
            times.add(&labels, of.figures.times.spread());
            now.add(&labels, number(&of.figures.in_progress));
        }
        let mut runs = Family::new(
            "moonlark_runs_total",
            Kind::Counter,
            "Agents' scripts that have ended, by how they ended",
        );
        self.runs.outcomes(&[], &mut runs);
        let mut run_times = Family::new(
            "moonlark_run_duration_seconds",
            Kind::Histogram,
            "How long agents' scripts took, with the time they waited for people",
        );
        run_times.add(&[], self.runs.times.spread());
        let mut running = Family::new(
            "moonlark_runs_in_progress",
            Kind::Gauge,
            "Agents' scripts that are running or wait for a decision",
        );
        running.add(&[], number(&self.runs.in_progress));
        vec![calls, times, now, runs, run_times, running]
    }
}

impl Figures {
    /// What never happened is left out.
    fn outcomes(&self, labels: &[(&'static str, String)], family: &mut Family) {
        for (index, counter) in self.outcomes.iter().enumerate() {
            let count = counter.load(Ordering::Relaxed);
            if count > 0 {
                let outcome = ("outcome", outcome_word(index).to_owned());
                let labels: Vec<_> = labels.iter().cloned().chain([outcome]).collect();
                family.add(&labels, Measured::Number(count as f64));
            }
        }
    }
}

impl Times {
    fn spread(&self) -> Measured {
        let classes = self.classes.iter().map(|class| class.load(Ordering::Relaxed)).collect();
        Measured::Spread { classes, sum: self.nanos.load(Ordering::Relaxed) as f64 / 1e9 }
    }
}

/// The upper ends of the classes, in seconds.
pub fn bounds() -> impl Iterator<Item = f64> {
    BOUNDS.iter().map(|micros| *micros as f64 / 1e6)
}

fn labels(source: &Source) -> Vec<(&'static str, String)> {
    vec![("source", source.name.clone()), ("kind", source.kind.as_str().to_owned())]
}

fn number(counter: &AtomicU64) -> Measured {
    Measured::Number(counter.load(Ordering::Relaxed) as f64)
}

/// Servers and APIs, and how they are doing.
fn sources(gateway: &Gateway) -> Vec<Family> {
    let catalog = gateway.catalog();
    let mut up = Family::new(
        "moonlark_source_up",
        Kind::Gauge,
        "Whether an upstream server or an API can be used: 1, or 0",
    );
    let mut connects = Family::new(
        "moonlark_source_connects_total",
        Kind::Counter,
        "Connections to an upstream server that were made; all after the first were made again",
    );
    let mut failures = Family::new(
        "moonlark_source_failures_total",
        Kind::Counter,
        "Connections to an upstream server that failed, or were lost",
    );
    for health in catalog.health() {
        let label = || vec![("source", health.source.clone())];
        up = up.with(label(), f64::from(u8::from(health.state == "ready")));
    }
    for (server, links) in gateway.metrics().links.lock().iter() {
        let label = || vec![("source", server.clone())];
        connects = connects.with(label(), links.made as f64);
        failures = failures.with(label(), links.failed as f64);
    }
    let tools = catalog.tools().len() as f64;
    let tools = Family::one("moonlark_tools", Kind::Gauge, "Tools in the catalog", tools);
    vec![up, connects, failures, tools]
}

fn journal(gateway: &Gateway) -> Vec<Family> {
    let Some(recorder) = gateway.recorder() else { return Vec::new() };
    let backlog = recorder.backlog();
    let up = f64::from(u8::from(recorder.problem().is_none()));
    vec![
        Family::one(
            "moonlark_journal_up",
            Kind::Gauge,
            "Whether the journal can be written: 1, or 0",
            up,
        ),
        Family::one(
            "moonlark_journal_waiting",
            Kind::Gauge,
            "Entries of the journal that wait to be written",
            backlog.waiting as f64,
        ),
        Family::one(
            "moonlark_journal_waiting_bytes",
            Kind::Gauge,
            "About how much memory those entries take",
            backlog.bytes as f64,
        ),
        Family::one(
            "moonlark_journal_entries_total",
            Kind::Counter,
            "Entries that were written to the journal",
            backlog.written as f64,
        ),
        Family::one(
            "moonlark_journal_lost_total",
            Kind::Counter,
            "Entries that could not be written and were given up",
            backlog.lost as f64,
        ),
    ]
}
