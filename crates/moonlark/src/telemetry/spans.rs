//! Spans on their way out: bounded, so that a collector that is slow or gone
//! costs some memory and some spans, never a call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use moonlark_core::metrics::family::{Family, Kind};
use moonlark_core::trace::{Span, Trace, TraceId, Tracer};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::settings::Sampler;

/// Spans that may wait; what comes then is lost, and counted.
pub(super) const MOST: usize = 4096;
/// Spans that are sent at once.
pub(super) const BATCH: usize = 512;

pub(super) struct Spans {
    sampler: Sampler,
    waiting: Mutex<Vec<Span>>,
    /// There is one, where there was none.
    some: Notify,
    /// There are enough to be sent.
    enough: Notify,
    sent: AtomicU64,
    lost: AtomicU64,
}

impl Spans {
    pub(super) fn new(sampler: Sampler) -> Arc<Spans> {
        Arc::new(Spans {
            sampler,
            waiting: Mutex::default(),
            some: Notify::new(),
            enough: Notify::new(),
            sent: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        })
    }

    /// The oldest of them.
    pub(super) fn take(&self) -> Vec<Span> {
        let mut waiting = self.waiting.lock();
        let count = waiting.len().min(BATCH);
        waiting.drain(..count).collect()
    }

    pub(super) async fn some(&self) {
        if self.waiting.lock().is_empty() {
            self.some.notified().await;
        }
    }

    pub(super) async fn enough(&self) {
        if self.waiting.lock().len() < BATCH {
            self.enough.notified().await;
        }
    }

    pub(super) fn count_sent(&self, spans: u64) {
        self.sent.fetch_add(spans, Ordering::Relaxed);
    }

    pub(super) fn count_lost(&self, spans: u64) {
        self.lost.fetch_add(spans, Ordering::Relaxed);
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Those that were lost, and those that still wait.
    pub(super) fn unsent(&self) -> u64 {
        self.lost() + self.waiting.lock().len() as u64
    }

    pub(super) fn figures(&self) -> Vec<Family> {
        let spans = |outcome: &str| vec![("outcome", outcome.to_owned())];
        let sent = self.sent.load(Ordering::Relaxed);
        vec![
            Family::new(
                "moonlark_telemetry_spans_total",
                Kind::Counter,
                "Spans that were sent to the collector, or lost because it did not take them",
            )
            .with(spans("sent"), sent as f64)
            .with(spans("lost"), self.lost() as f64),
            Family::one(
                "moonlark_telemetry_spans_waiting",
                Kind::Gauge,
                "Spans that wait to be sent",
                self.waiting.lock().len() as f64,
            ),
        ]
    }
}

impl Tracer for Spans {
    fn keeps(&self, came_in: Option<&Trace>, id: &TraceId) -> bool {
        self.sampler.keeps(came_in.map(|trace| trace.sampled), id)
    }

    fn ended(&self, span: Span) {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= MOST {
            drop(waiting);
            return self.count_lost(1);
        }
        waiting.push(span);
        let count = waiting.len();
        drop(waiting);
        match count {
            1 => self.some.notify_one(),
            BATCH => self.enough.notify_one(),
            _ => {}
        }
    }
}
