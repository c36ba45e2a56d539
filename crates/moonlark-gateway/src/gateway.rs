//! The one path: every call of every tool goes through here.
//!
//! snapshot → find → grant → schema and defaults → rule → deadline → limits of the
//! rule → body → redaction → record. Surfaces and scripts cannot differ, because they have no other way
//! to reach a tool's body.

mod call_observer;
mod call_outcome;
mod published_catalog;
mod startup_wait;

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::FutureExt;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use crate::admission::{AdmissionLimits, AdmissionPermit, AdmissionQueue};
use crate::approval::{self, ApprovalLedger};
use crate::artifacts::ArtifactStore;
use crate::call::{Call, CallEventSink, Caller};
use crate::call_client::CallClient;
use crate::journal::{self, JournalRecorder};
use crate::learned_shapes::LearnedShapes;
use crate::metrics::{self, GatewayMetrics};
use crate::mock::TestMocks;
use crate::policy::{self, CallPolicy, RuleTerms};
use crate::run::{self, ReplayDecision};
use crate::server_identity::{ListedSchemas, ServerIdentity};
use crate::timer_heartbeat::TimerHeartbeat;
use crate::tool_body::{BodyFn, ToolRuntime};
use crate::trace::CallTracer;
use call_observer::CallObserver;
use call_outcome::{log_outcome, timeout_problem};
use moonlark_core::catalog::Catalog;
use moonlark_core::content::ToolAnswer;
use moonlark_core::portable_schema::SentArguments;
use moonlark_core::problem::{Problem, ProblemCode, Result};
use moonlark_core::source_resources::SourceEvent;
use moonlark_core::tool::{BoxFuture, CallScope, SourceKind, Tool};
use moonlark_core::value::Value;
use published_catalog::PublishedCatalog;

/// News of sources that a slow listener may be behind; it misses older ones.
const SOURCE_EVENT_CAPACITY: usize = 256;
/// How often a call whose deadline has moved looks where it is now.
const DEADLINE_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Cheap to clone; all clones are the same gateway.
#[derive(Clone)]
pub struct Gateway(Arc<GatewayInner>);

struct GatewayInner {
    published: ArcSwap<PublishedCatalog>,
    version: watch::Sender<u64>,
    news: broadcast::Sender<SourceEvent>,
    /// For the calls from outside that are in progress.
    places: Arc<AdmissionQueue>,
    artifacts: ArtifactStore,
    learned: LearnedShapes,
    pulse: TimerHeartbeat,
    /// Who keeps the journal, if anybody does.
    recorder: OnceLock<Arc<dyn JournalRecorder>>,
    /// Who keeps what people decide on, if anybody does.
    approvals: OnceLock<Arc<dyn ApprovalLedger>>,
    metrics: GatewayMetrics,
    identity: ArcSwap<ServerIdentity>,
    /// Who takes what is seen of calls, if anybody does.
    tracer: OnceLock<Arc<dyn CallTracer>>,
    /// Until when first answers wait for sources; none once they no longer do.
    settling: watch::Sender<Option<Instant>>,
}

/// A call that is done, or one to wait for.
pub enum StartedCall {
    Done(Result<Value>),
    Running(BoxFuture<Result<Value>>),
}

impl Gateway {
    pub fn new(catalog: Catalog, runs: usize) -> Self {
        Gateway(Arc::new(GatewayInner {
            published: ArcSwap::from_pointee(PublishedCatalog::new(
                Arc::new(catalog),
                Arc::default(),
            )),
            version: watch::Sender::new(1),
            news: broadcast::Sender::new(SOURCE_EVENT_CAPACITY),
            places: AdmissionQueue::new(AdmissionLimits {
                runs,
                queued: 0,
                queue_time: Duration::ZERO,
            }),
            artifacts: ArtifactStore::default(),
            learned: LearnedShapes::default(),
            pulse: TimerHeartbeat::default(),
            recorder: OnceLock::new(),
            approvals: OnceLock::new(),
            metrics: GatewayMetrics::default(),
            identity: ArcSwap::default(),
            tracer: OnceLock::new(),
            settling: watch::Sender::new(None),
        }))
    }

    /// All that there is: for the operator, never for a caller.
    pub fn catalog(&self) -> Arc<Catalog> {
        self.0.published.load().catalog.clone()
    }

    /// What exists for this caller.
    pub fn catalog_for(&self, caller: &Caller) -> Arc<Catalog> {
        self.0.published.load().catalog_for(caller)
    }

    /// Replace the catalog. Calls in flight finish on the one they began with.
    pub fn publish(&self, catalog: Catalog) {
        let catalog = Arc::new(catalog);
        let with = |now: &Arc<PublishedCatalog>| {
            PublishedCatalog::new(catalog.clone(), now.policy.clone())
        };
        self.0.published.rcu(with);
        self.0.version.send_modify(|version| *version += 1);
    }

    /// Replace the rules, for calls from now on. What they have counted so far
    /// stays counted where they are the same.
    pub fn set_policy(&self, policy: CallPolicy) {
        if !self.policy().has_same_rules(&policy) {
            self.change_policy(|now| policy.continued_from(now));
        }
    }

    /// Replace what single callers may not reach, whatever the rules say.
    pub fn limit_callers(&self, limits: Vec<(String, RuleTerms)>) {
        if !self.policy().has_same_caller_limits(&limits) {
            self.change_policy(|now| now.with_caller_limits(limits.clone()));
        }
    }

    fn change_policy(&self, change: impl Fn(&CallPolicy) -> CallPolicy) {
        let with = |now: &Arc<PublishedCatalog>| {
            PublishedCatalog::new(now.catalog.clone(), Arc::new(change(&now.policy)))
        };
        self.0.published.rcu(with);
        self.0.version.send_modify(|version| *version += 1);
    }

    /// The rules in force.
    pub fn policy(&self) -> Arc<CallPolicy> {
        self.0.published.load().policy.clone()
    }

    /// How this server introduces itself.
    pub fn identity(&self) -> Arc<ServerIdentity> {
        self.0.identity.load_full()
    }

    pub fn set_identity(&self, identity: ServerIdentity) {
        self.0.identity.store(Arc::new(identity));
    }

    /// Change how many calls may be in progress at once, and how many may wait.
    pub fn set_admission_limits(&self, limits: AdmissionLimits) {
        self.0.places.set_limits(limits);
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

    /// Keep a journal from now on; once, before anything is called.
    pub fn set_recorder(&self, recorder: Arc<dyn JournalRecorder>) {
        if self.0.recorder.set(recorder).is_err() {
            tracing::warn!("there is a journal already: the second is not used");
        }
    }

    /// Who keeps the journal, if anybody does.
    pub fn recorder(&self) -> Option<&Arc<dyn JournalRecorder>> {
        self.0.recorder.get()
    }

    /// Let people decide from now on; once, before anything is called.
    pub fn set_approval_ledger(&self, approvals: Arc<dyn ApprovalLedger>) {
        let _ = self.0.approvals.set(approvals);
    }

    /// Who keeps what people decide on, if anybody does.
    pub fn approval_ledger(&self) -> Option<&Arc<dyn ApprovalLedger>> {
        self.0.approvals.get()
    }

    /// What is counted.
    pub fn metrics(&self) -> &GatewayMetrics {
        &self.0.metrics
    }

    /// Trace calls from now on; once, before anything is called.
    pub fn set_tracer(&self, tracer: Arc<dyn CallTracer>) {
        let _ = self.0.tracer.set(tracer);
    }

    /// Who takes what is seen of calls, if anybody does.
    pub fn tracer(&self) -> Option<&Arc<dyn CallTracer>> {
        self.0.tracer.get()
    }

    pub(crate) fn admission_queue(&self) -> &AdmissionQueue {
        &self.0.places
    }

    pub(crate) async fn wait_for_admission(&self, caller: &Caller) -> Result<AdmissionPermit> {
        self.0.places.wait_for_permit(caller).await
    }

    /// Begin on behalf of a surface: takes the snapshot that this call and all
    /// calls under it will see.
    pub fn open_call(&self, caller: Caller, events: Option<CallEventSink>) -> Result<Call> {
        self.open_call_for_client(caller, None, events)
    }

    /// The same, on behalf of a surface that can ask its caller.
    pub fn open_call_for_client(
        &self,
        caller: Caller,
        client: Option<Arc<dyn CallClient>>,
        events: Option<CallEventSink>,
    ) -> Result<Call> {
        let place = self.0.places.try_admit(&caller)?;
        Ok(self.new_root_call(caller, client, events, None, place))
    }

    /// The same for a surface that can wait for a place.
    pub async fn open_call_when_admitted(
        &self,
        caller: Caller,
        client: Option<Arc<dyn CallClient>>,
        events: Option<CallEventSink>,
    ) -> Result<Call> {
        let place = self.0.places.wait_for_permit(&caller).await?;
        Ok(self.new_root_call(caller, client, events, None, place))
    }

    fn new_root_call(
        &self,
        caller: Caller,
        client: Option<Arc<dyn CallClient>>,
        events: Option<CallEventSink>,
        mocks: Option<TestMocks>,
        place: AdmissionPermit,
    ) -> Call {
        let catalog = self.catalog_for(&caller);
        Call::new_root(self.clone(), catalog, caller, client, events, mocks, place)
    }

    /// A call that is no tool's: what a script does while it loads.
    pub fn open_scoped_call(&self, caller: Caller, scope: Arc<CallScope>) -> Call {
        // Loading is ours, not a caller's: it takes nobody's place.
        self.new_root_call(caller, None, None, None, AdmissionPermit::new_uncounted())
            .with_scope(scope)
    }

    /// A call that is a test: what it mocks stands in for the world.
    pub fn open_test_call(&self, scope: Arc<CallScope>, events: Option<CallEventSink>) -> Call {
        let mocks = Some(TestMocks::default());
        self.new_root_call(
            Caller::new("test"),
            None,
            events,
            mocks,
            AdmissionPermit::new_uncounted(),
        )
        .with_scope(scope)
    }

    /// Call the tool `name` as a child of `parent`, for its plain value.
    pub async fn call(&self, parent: &Call, name: &str, args: Value) -> Result<Value> {
        self.call_for_answer(parent, name, args).await.map(ToolAnswer::into_plain_value)
    }

    /// The same, for all that the tool answers: content of any kind.
    pub async fn call_for_answer(
        &self,
        parent: &Call,
        name: &str,
        args: Value,
    ) -> Result<ToolAnswer> {
        let waited;
        let parent = if parent.catalog().is_loading() {
            waited = self.when_loaded(parent, name).await?;
            &waited
        } else if parent.catalog().awaits_tool(name) {
            waited = self.when_connected(parent, name).await?;
            &waited
        } else {
            parent
        };
        // Scripts and the command line reach what is hidden from agents.
        let from_agent = !parent.is_nested() && matches!(parent.caller().surface, "mcp" | "rest");
        let tool = if from_agent {
            parent.catalog().find_tool_for_agents(name)?
        } else {
            parent.catalog().find_tool(name)?
        };
        let mut args = args;
        // Other surfaces list schemas as they were written.
        let lists_portable = from_agent
            && parent.caller().surface == "mcp"
            && self.identity().schemas == ListedSchemas::Portable;
        let sent = if lists_portable { SentArguments::restore(tool, &mut args) } else { None };
        let answer = if tool.describes_sources && self.is_settling() {
            let parent = self.when_settled(parent).await;
            self.call_tool(&parent, tool, args).await
        } else {
            self.call_tool(parent, tool, args).await
        };
        match sent {
            Some(sent) => answer.map_err(|problem| sent.describe_problem(problem)),
            None => answer,
        }
    }

    /// The same, for a tool that is already found.
    pub async fn call_tool(
        &self,
        parent: &Call,
        tool: &Arc<Tool>,
        args: Value,
    ) -> Result<ToolAnswer> {
        if tool.source.kind == SourceKind::Host {
            return match self.start_tool(parent, tool, args) {
                StartedCall::Done(result) => result.map(ToolAnswer::Value),
                StartedCall::Running(future) => future.await.map(ToolAnswer::Value),
            };
        }
        match run::decide_replay(parent, tool, &args).await {
            ReplayDecision::Make => {}
            ReplayDecision::Answered(answer) => return answer,
            ReplayDecision::Given(answer) => {
                return run::record_given_answer(parent, tool, args, answer, false).await;
            }
            ReplayDecision::Assumed(answer) => {
                return run::record_given_answer(parent, tool, args, Ok(answer), true).await;
            }
        }
        let answer = match admit_call(parent, tool, args) {
            Ok((call, args)) => run_tool(call, tool.clone(), args).await,
            Err(problem) => Err(problem),
        };
        if parent.is_nested() {
            return answer;
        }
        journal::wait_until_written(parent).await;
        approval::attach_ticket(parent, answer)
    }

    /// A host function that an agent's script calls, and that may answer another
    /// time with something else: on record like a call of a tool, so that it is
    /// not asked again when the run is resumed.
    pub async fn call_host_function(
        &self,
        parent: &Call,
        tool: &Arc<Tool>,
        args: Value,
    ) -> Result<Value> {
        match run::decide_replay(parent, tool, &args).await {
            ReplayDecision::Make => {}
            ReplayDecision::Answered(answer) => return answer.map(ToolAnswer::into_plain_value),
            ReplayDecision::Given(answer) => {
                let given = run::record_given_answer(parent, tool, args, answer, false).await;
                return given.map(ToolAnswer::into_plain_value);
            }
            ReplayDecision::Assumed(answer) => {
                let given = run::record_given_answer(parent, tool, args, Ok(answer), true).await;
                return given.map(ToolAnswer::into_plain_value);
            }
        }
        let body = |args| async {
            match self.start_tool(parent, tool, args) {
                StartedCall::Done(result) => result.map(ToolAnswer::Value),
                StartedCall::Running(future) => future.await.map(ToolAnswer::Value),
            }
        };
        run::record_host_call(parent, tool, args, body).await.map(ToolAnswer::into_plain_value)
    }

    /// A tool that a test calls as its users do: validated, with defaults, held
    /// to its output. A test needs no grant for that.
    pub async fn call_in_test(&self, test: &Call, name: &str, args: Value) -> Result<Value> {
        let tool = test.catalog().find_tool(name)?;
        let args = tool.input.check_arguments(args)?;
        let call = test.enter_tool(tool)?;
        run_tool(call, tool.clone(), args).await.map(ToolAnswer::into_plain_value)
    }

    /// The same for a script, by the tool's name.
    pub fn start_by_name(&self, parent: &Call, name: &str, args: Value) -> StartedCall {
        // A mock stands in for a tool that need not exist.
        if let Some(answer) = parent.mocks().and_then(|mocks| mocks.answer_call(name, name, &args))
        {
            return StartedCall::Done(answer);
        }
        if parent.catalog().awaits_tool(name) {
            let (gateway, parent, name) = (self.clone(), parent.clone(), name.to_owned());
            return StartedCall::Running(Box::pin(async move {
                let parent = gateway.when_connected(&parent, &name).await?;
                let tool = parent.catalog().find_tool(&name)?;
                gateway.call_tool(&parent, tool, args).await.map(ToolAnswer::into_plain_value)
            }));
        }
        match parent.catalog().find_tool(name) {
            Ok(tool) => self.start_tool(parent, tool, args),
            Err(problem) => StartedCall::Done(Err(problem)),
        }
    }

    /// The same, for a tool already found and a caller that cannot wait here.
    /// Host functions run inside their caller: its grants, limits and deadline
    /// are theirs. Everything else gets a call of its own.
    pub fn start_tool(&self, parent: &Call, tool: &Arc<Tool>, args: Value) -> StartedCall {
        if tool.source.kind == SourceKind::Host {
            if let Some(mocks) = parent.mocks()
                && let Some(answer) = mocks.answer_call(&tool.source.name, &tool.name, &args)
            {
                return StartedCall::Done(answer);
            }
            return match &ToolRuntime::of_tool(tool).body {
                BodyFn::Now(body) => StartedCall::Done(body(parent, args)),
                BodyFn::Later(body) => StartedCall::Running(body(parent.clone(), args)),
                BodyFn::Answering(body) => {
                    let answer = body(parent.clone(), args);
                    StartedCall::Running(Box::pin(async {
                        answer.await.map(ToolAnswer::into_plain_value)
                    }))
                }
            };
        }
        match admit_call(parent, tool, args) {
            Ok((call, args)) => {
                let ran = run_tool(call, tool.clone(), args);
                StartedCall::Running(Box::pin(async {
                    ran.await.map(ToolAnswer::into_plain_value)
                }))
            }
            Err(problem) => StartedCall::Done(Err(problem)),
        }
    }
}

/// Everything that can refuse a call before its body runs.
fn admit_call(parent: &Call, tool: &Tool, mut args: Value) -> Result<(Call, Value)> {
    let admitted = enter_if_allowed(parent, tool, &mut args);
    if let Err(problem) = &admitted {
        log_outcome(parent, tool, problem.code.as_str());
        metrics::count_refused(parent.gateway().metrics(), tool, problem);
        parent.trace_refused_call(tool, problem.code.as_str());
        journal::record_refused_call(parent, tool, &args, problem);
    }
    admitted.map(|call| (call, args))
}

fn enter_if_allowed(parent: &Call, tool: &Tool, args: &mut Value) -> Result<Call> {
    // Built-ins are how `context.search` and its siblings work: part of what
    // every script has.
    if parent.is_nested() && !parent.catalog().is_callable_by_all(tool) {
        let names = || policy::unambiguous_names(parent.catalog(), tool);
        parent.grants().check_tool(&tool.name, names)?;
    }
    tool.input.check_arguments_in_place(args)?;
    parent.enter_tool(tool)
}

/// What an agent's script calls is a step of its run, and waits for its turn.
async fn run_tool(call: Call, tool: Arc<Tool>, args: Value) -> Result<ToolAnswer> {
    let seen = CallObserver::start(&call, &tool);
    if let Err(problem) = approval::ensure_approved(&call, &tool, &args).await {
        journal::record_refused_call(&call, &tool, &args, &problem);
        return seen.finish(Err(problem));
    }
    let Some(made_by) = call.made_by_run().cloned() else {
        let body = |args| run_body(&call, &tool, args);
        return seen.finish(journal::record_call(&call, &tool, args, None, body).await);
    };
    let turn = tokio::time::timeout_at(call.deadline(), made_by.acquire_turn()).await;
    let _turn = match turn.unwrap_or_else(|_| Err(timeout_problem(&call, &tool))) {
        Ok(turn) => turn,
        Err(problem) => {
            journal::record_refused_call(&call, &tool, &args, &problem);
            return seen.finish(Err(problem));
        }
    };
    let at = call.call_site().map(|(_, at)| at.clone());
    let stepping = made_by.begin_step(&tool.name, at);
    let step = call.as_step(&stepping);
    let body = |args| run_body(&step, &tool, args);
    let result = journal::record_call(&step, &tool, args, Some(&stepping), body).await;
    let outcome = result.as_ref().map_or_else(|problem| problem.code.as_str(), |_| "ok");
    call.report_step(stepping, outcome);
    seen.finish(result)
}

async fn run_body(call: &Call, tool: &Arc<Tool>, args: Value) -> Result<ToolAnswer> {
    let secrets = &tool.scope.secrets;
    let scripted = |result: Result<Value>| {
        result.map(|it| secrets.redact_result(it)).and_then(ToolAnswer::from_script_result)
    };
    let body = async |call: Call, args| match &ToolRuntime::of_tool(tool).body {
        BodyFn::Now(body) => scripted(body(&call, args)),
        BodyFn::Later(body) => scripted(body(call, args).await),
        BodyFn::Answering(body) => {
            body(call, args).await.map(|answer| secrets.redact_answer(answer))
        }
    };
    let body = policy::run_under_rule(call, tool, args, body);
    // A panic anywhere below is our defect, but it must cost one call only.
    let body = AssertUnwindSafe(body).catch_unwind();
    let result = match run_until_deadline(call, body).await {
        // The engine may notice first; the words are the same.
        Ok(Ok(Err(problem)))
            if problem.code == ProblemCode::Timeout && Instant::now() >= call.deadline() =>
        {
            Err(timeout_problem(call, tool))
        }
        Ok(Ok(result)) => result.and_then(|answer| tool.check_output(answer)),
        Ok(Err(_panic)) => {
            Err(Problem::internal(format!("tool '{}' failed inside Moonlark", tool.name))
                .with_hint("this is a defect of Moonlark: please report it with the server's log"))
        }
        Err(_elapsed) => Err(timeout_problem(call, tool)),
    };
    let result = result.map_err(|mut problem| {
        tool.scope.secrets.redact_problem(&mut problem);
        problem
    });
    if let Ok(answer) = &result {
        call.gateway().learned_shapes().observe_answer(tool, call.caller(), answer);
    }
    log_outcome(call, tool, result.as_ref().map_or_else(|problem| problem.code.as_str(), |_| "ok"));
    result
}

/// Until the call's deadline, which moves when the caller is asked something.
/// Who asks may be another task than this one, so nothing wakes it when the
/// deadline moves back: once it has moved, it looks by itself.
pub async fn run_until_deadline<F: Future>(call: &Call, body: F) -> Result<F::Output, ()> {
    let mut body = std::pin::pin!(body);
    let mut deadline = call.deadline();
    call.gateway().0.pulse.ensure_timer();
    let mut timer = std::pin::pin!(tokio::time::sleep_until(deadline));
    std::future::poll_fn(|context| {
        if let Poll::Ready(output) = body.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        loop {
            let moved = call.deadline();
            if moved != deadline {
                deadline = moved;
                timer.as_mut().reset(moved.min(Instant::now() + DEADLINE_POLL_INTERVAL));
            }
            std::task::ready!(timer.as_mut().poll(context));
            if Instant::now() >= call.deadline() {
                return Poll::Ready(Err(()));
            }
            timer.as_mut().reset(call.deadline().min(Instant::now() + DEADLINE_POLL_INTERVAL));
        }
    })
    .await
}
