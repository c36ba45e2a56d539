//! The queue of spans to export: bounded, so that a collector that is slow or gone costs
//! some memory and some spans, never a call.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use moonlark_gateway::metrics::family::MetricFamily;
use moonlark_gateway::trace::{CallTracer, EndedSpan, TraceContext, TraceId};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::telemetry_settings::TraceSampler;

/// Spans that may wait; what comes then is lost, and counted.
pub(super) const MAX_QUEUED_SPANS: usize = 4096;
/// Spans that are sent at once.
pub(super) const SPAN_BATCH_SIZE: usize = 512;

pub(super) struct SpanQueue {
    sampler: TraceSampler,
    waiting: Mutex<Vec<EndedSpan>>,
    /// There is one, where there was none.
    some: Notify,
    /// There are enough to be sent.
    enough: Notify,
    sent: AtomicU64,
    lost: AtomicU64,
}

impl SpanQueue {
    pub(super) fn new(sampler: TraceSampler) -> Arc<SpanQueue> {
        Arc::new(SpanQueue {
            sampler,
            waiting: Mutex::default(),
            some: Notify::new(),
            enough: Notify::new(),
            sent: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        })
    }

    /// The oldest of them.
    pub(super) fn take_batch(&self) -> Vec<EndedSpan> {
        let mut waiting = self.waiting.lock();
        let count = waiting.len().min(SPAN_BATCH_SIZE);
        waiting.drain(..count).collect()
    }

    pub(super) async fn wait_for_span(&self) {
        if self.waiting.lock().is_empty() {
            self.some.notified().await;
        }
    }

    pub(super) async fn wait_for_batch(&self) {
        if self.waiting.lock().len() < SPAN_BATCH_SIZE {
            self.enough.notified().await;
        }
    }

    pub(super) fn count_sent(&self, spans: u64) {
        self.sent.fetch_add(spans, Ordering::Relaxed);
    }

    pub(super) fn count_lost(&self, spans: u64) {
        self.lost.fetch_add(spans, Ordering::Relaxed);
    }

    pub(super) fn lost_count(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Those that were lost, and those that still wait.
    pub(super) fn unsent_count(&self) -> u64 {
        self.lost_count() + self.waiting.lock().len() as u64
    }

    pub(super) fn metric_families(&self) -> Vec<MetricFamily> {
        let spans = |outcome: &str| vec![("outcome", outcome.to_owned())];
        let sent = self.sent.load(Ordering::Relaxed);
        vec![
            MetricFamily::counter(
                "moonlark_telemetry_spans_total",
                "Spans that were sent to the collector, or lost because it did not take them",
            )
            .with_sample(spans("sent"), sent as f64)
            .with_sample(spans("lost"), self.lost_count() as f64),
            MetricFamily::gauge("moonlark_telemetry_spans_waiting", "Spans that wait to be sent")
                .with_value(self.waiting.lock().len() as f64),
        ]
    }
}

impl CallTracer for SpanQueue {
    fn should_sample(&self, came_in: Option<&TraceContext>, id: &TraceId) -> bool {
        self.sampler.should_sample(came_in.map(|trace| trace.sampled), id)
    }

    fn record_span(&self, span: EndedSpan) {
        let mut waiting = self.waiting.lock();
        if waiting.len() >= MAX_QUEUED_SPANS {
            drop(waiting);
            return self.count_lost(1);
        }
        waiting.push(span);
        let count = waiting.len();
        drop(waiting);
        match count {
            1 => self.some.notify_one(),
            SPAN_BATCH_SIZE => self.enough.notify_one(),
            _ => {}
        }
    }
}
