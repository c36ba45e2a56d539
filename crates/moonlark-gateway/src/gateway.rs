//! The gateway: the published catalog, and the records of calls.
//!
//! A call is opened here, on the snapshot of that moment, and made by
//! [`Gateway::invoke`] (`invocation.rs`), the only way to a tool's body.

mod call_observer;
mod call_options;
mod gateway_builder;
pub(crate) mod invocation;
mod published_snapshot;
mod startup_wait;

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use crate::admission::{AdmissionPermit, AdmissionQueue};
use crate::approval::ApprovalLedger;
use crate::artifacts::ArtifactStore;
use crate::call::{Call, CallEventSink, Caller};
use crate::journal::JournalRecorder;
use crate::learned_shapes::LearnedShapes;
use crate::metrics::GatewayMetrics;
use crate::mock::TestMocks;
use crate::policy::{CallPolicy, RuleTerms};
use crate::server_identity::ServerIdentity;
use crate::timer_heartbeat::TimerHeartbeat;
use crate::trace::CallTracer;
use moonlark_core::catalog::Catalog;
use moonlark_core::problem::Result;
use moonlark_core::source_resources::SourceEvent;
use moonlark_core::tool::CallScope;

pub use call_options::CallOptions;
pub use gateway_builder::{CallRecords, GatewayBuilder};
pub use invocation::{CallTarget, Invocation, run_until_deadline};
use published_snapshot::PublishedSnapshot;
pub use published_snapshot::SnapshotUpdate;

/// Cheap to clone; all clones are the same gateway.
#[derive(Clone)]
pub struct Gateway(Arc<GatewayInner>);

struct GatewayInner {
    published: ArcSwap<PublishedSnapshot>,
    version: watch::Sender<u64>,
    news: broadcast::Sender<SourceEvent>,
    /// For the calls from outside that are in progress.
    admission: Arc<AdmissionQueue>,
    artifacts: ArtifactStore,
    learned: LearnedShapes,
    heartbeat: TimerHeartbeat,
    metrics: GatewayMetrics,
    records: OnceLock<CallRecords>,
    /// Until when first answers wait for sources; none once they no longer do.
    settling: watch::Sender<Option<Instant>>,
}

impl Gateway {
    /// A gateway without a journal, approvals or traces, for `runs` calls at once.
    pub fn new(catalog: Catalog, runs: usize) -> Self {
        Self::builder(catalog).max_running_calls(runs).build()
    }

    pub fn builder(catalog: Catalog) -> GatewayBuilder {
        GatewayBuilder::new(catalog)
    }

    /// All that there is: for the operator, never for a caller.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.0.published.load().catalog.clone()
    }

    /// What exists for this caller.
    pub fn catalog_for(&self, caller: &Caller) -> Arc<Catalog> {
        self.0.published.load().catalog_for(caller)
    }

    /// Put what is new in force: limits first, then catalog, rules and identity at one moment.
    /// Calls in flight finish on what they began with.
    pub fn publish(&self, update: impl Into<SnapshotUpdate>) {
        let update = update.into();
        if let Some(limits) = update.admission {
            self.0.admission.set_limits(limits);
        }
        if let Some(bytes) = update.max_artifact_bytes {
            self.0.artifacts.set_max_bytes(bytes);
        }
        let (catalog, identity) = (update.catalog.map(Arc::new), update.identity.map(Arc::new));
        self.replace_snapshot(|now| {
            now.updated_with(catalog.as_ref(), update.policy.as_ref(), identity.as_ref())
        });
    }

    /// Replace what single callers may not reach, whatever the rules say.
    pub fn limit_callers(&self, limits: Vec<(String, RuleTerms)>) {
        self.replace_snapshot(|now| now.with_caller_limits(&limits));
    }

    /// With what `next` makes of it, or as it is if that is nothing new.
    fn replace_snapshot(&self, next: impl Fn(&PublishedSnapshot) -> Option<PublishedSnapshot>) {
        let before = self.0.published.rcu(|now| next(now).map_or_else(|| now.clone(), Arc::new));
        if !Arc::ptr_eq(&before, &self.0.published.load()) {
            self.0.version.send_modify(|version| *version += 1);
        }
    }

    /// The rules in force.
    pub fn policy(&self) -> Arc<CallPolicy> {
        self.0.published.load().policy.clone()
    }

    /// How this server introduces itself.
    pub fn identity(&self) -> Arc<ServerIdentity> {
        self.0.published.load().identity.clone()
    }

    /// Wakes whenever a new catalog was published, or the rules have changed.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.version.subscribe()
    }

    /// A source says something that is part of no call.
    pub fn announce_event(&self, news: SourceEvent) {
        // Nobody may be listening.
        let _ = self.0.news.send(news);
    }

    /// Every [`announce_event`](Self::announce_event) from now on.
    pub fn subscribe_to_events(&self) -> broadcast::Receiver<SourceEvent> {
        self.0.news.subscribe()
    }

    /// What runs left for later ones to read.
    pub fn artifacts(&self) -> &ArtifactStore {
        &self.0.artifacts
    }

    /// What tools answer that do not say so.
    pub fn learned_shapes(&self) -> &LearnedShapes {
        &self.0.learned
    }

    /// Keep records from now on: once, before anything is called. A command that ends before
    /// it serves anybody has opened no journal.
    pub fn keep_records(&self, mut records: CallRecords) {
        if let Some(archive) = records.artifacts.take() {
            self.0.artifacts.keep_in(archive);
        }
        if self.0.records.set(records).is_err() {
            tracing::warn!("records are kept already: the second journal is not used");
        }
    }

    /// Who keeps the journal, if anybody does.
    pub fn recorder(&self) -> Option<&Arc<dyn JournalRecorder>> {
        self.0.records.get()?.recorder.as_ref()
    }

    /// Who keeps what people decide on, if anybody does.
    pub fn approval_ledger(&self) -> Option<&Arc<dyn ApprovalLedger>> {
        self.0.records.get()?.approvals.as_ref()
    }

    /// What is counted.
    pub fn metrics(&self) -> &GatewayMetrics {
        &self.0.metrics
    }

    /// Who takes what is seen of calls, if anybody does.
    pub fn tracer(&self) -> Option<&Arc<dyn CallTracer>> {
        self.0.records.get()?.tracer.as_ref()
    }

    pub(crate) fn admission_queue(&self) -> &AdmissionQueue {
        &self.0.admission
    }

    pub(crate) async fn wait_for_admission(&self, caller: &Caller) -> Result<AdmissionPermit> {
        self.0.admission.wait_for_permit(caller).await
    }

    /// Begin on behalf of a surface: takes the snapshot that this call and all calls under
    /// it will see. Refused where no permit is free.
    pub fn open_call(&self, options: impl Into<CallOptions>) -> Result<Call> {
        let options = options.into();
        let permit = self.0.admission.try_admit(&options.caller)?;
        Ok(self.new_root_call(options, None, permit))
    }

    /// The same for a surface that can wait for a permit.
    pub async fn open_call_when_admitted(&self, options: impl Into<CallOptions>) -> Result<Call> {
        let options = options.into();
        let permit = self.0.admission.wait_for_permit(&options.caller).await?;
        Ok(self.new_root_call(options, None, permit))
    }

    fn new_root_call(
        &self,
        options: CallOptions,
        mocks: Option<TestMocks>,
        permit: AdmissionPermit,
    ) -> Call {
        let catalog = self.catalog_for(&options.caller);
        Call::new_root(self.clone(), catalog, options, mocks, permit)
    }

    /// A call that is no tool's: what a script does while it loads. Loading does not count
    /// against any caller's admission limit.
    pub fn open_scoped_call(&self, caller: Caller, scope: Arc<CallScope>) -> Call {
        self.new_root_call(caller.into(), None, AdmissionPermit::new_uncounted()).with_scope(scope)
    }

    /// A call that is a test: what it mocks stands in for the world.
    pub fn open_test_call(&self, scope: Arc<CallScope>, events: Option<CallEventSink>) -> Call {
        let options = CallOptions::from(Caller::new("test")).with_events(events);
        let mocks = Some(TestMocks::default());
        self.new_root_call(options, mocks, AdmissionPermit::new_uncounted()).with_scope(scope)
    }
}
