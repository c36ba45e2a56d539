//! Builds a gateway: its catalog, its rules, how many calls it takes, and who keeps the
//! record of them.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::{broadcast, watch};

use super::published_snapshot::PublishedSnapshot;
use super::{Gateway, GatewayInner};
use crate::admission::{AdmissionLimits, AdmissionQueue};
use crate::approval::ApprovalLedger;
use crate::artifacts::{ArtifactArchive, ArtifactStore};
use crate::journal::JournalRecorder;
use crate::learned_shapes::LearnedShapes;
use crate::metrics::GatewayMetrics;
use crate::policy::CallPolicy;
use crate::timer_heartbeat::TimerHeartbeat;
use crate::trace::CallTracer;
use moonlark_core::catalog::Catalog;

/// News of sources that a slow listener may be behind; it misses older ones.
const SOURCE_EVENT_CAPACITY: usize = 256;
/// Calls at once, where nobody says how many.
const DEFAULT_RUNNING_CALLS: usize = 64;

pub struct GatewayBuilder {
    catalog: Catalog,
    policy: CallPolicy,
    admission: AdmissionLimits,
    records: Option<CallRecords>,
}

/// Who keeps what happened; each of them only if there is one.
#[derive(Default)]
pub struct CallRecords {
    /// The journal.
    pub recorder: Option<Arc<dyn JournalRecorder>>,
    /// What people decide on.
    pub approvals: Option<Arc<dyn ApprovalLedger>>,
    /// What is seen of calls.
    pub tracer: Option<Arc<dyn CallTracer>>,
    /// Where artifacts are kept beyond this process.
    pub artifacts: Option<Arc<dyn ArtifactArchive>>,
}

impl GatewayBuilder {
    pub(super) fn new(catalog: Catalog) -> Self {
        let admission =
            AdmissionLimits { runs: DEFAULT_RUNNING_CALLS, queued: 0, queue_time: Duration::ZERO };
        let policy = CallPolicy::default();
        Self { catalog, policy, admission, records: None }
    }

    /// How many calls may be in progress at once.
    #[must_use]
    pub fn max_running_calls(mut self, calls: usize) -> Self {
        self.admission.runs = calls;
        self
    }

    #[must_use]
    pub fn policy(mut self, policy: CallPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Who keeps what happened, where that is known from the start.
    #[must_use]
    pub fn records(mut self, records: CallRecords) -> Self {
        self.records = Some(records);
        self
    }

    pub fn build(self) -> Gateway {
        let snapshot =
            PublishedSnapshot::new(Arc::new(self.catalog), Arc::new(self.policy), Arc::default());
        Gateway(Arc::new(GatewayInner {
            published: ArcSwap::from_pointee(snapshot),
            version: watch::Sender::new(1),
            news: broadcast::Sender::new(SOURCE_EVENT_CAPACITY),
            admission: AdmissionQueue::new(self.admission),
            artifacts: ArtifactStore::default(),
            learned: LearnedShapes::default(),
            heartbeat: TimerHeartbeat::default(),
            metrics: GatewayMetrics::default(),
            records: self.records.map(OnceLock::from).unwrap_or_default(),
            settling: watch::Sender::new(None),
        }))
    }
}
