//! The one path: every call of every tool goes through here.
//!
//! snapshot → find → grant → schema and defaults → rule → deadline → limits of the
//! rule → body → redaction → record. Surfaces and scripts cannot differ, because they have no other way
//! to reach a tool's body.

mod awaiting;
mod observed;
mod published;

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::FutureExt;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use crate::approval::{self, Approvals};
use crate::artifacts::Artifacts;
use crate::call::{Call, Caller, Events};
use crate::catalog::Catalog;
use crate::client::Client;
use crate::content::Answer;
use crate::journal::{self, Recorder};
use crate::learned::Learned;
use crate::limits::seconds;
use crate::metrics::{self, Metrics};
use crate::mock::Mocks;
use crate::offers::News;
use crate::places::{Place, PlaceLimits, Places};
use crate::policy::{self, Policy, Terms};
use crate::problem::{Code, Problem, Result};
use crate::pulse::Pulse;
use crate::run::{self, Before};
use crate::server_identity::ServerIdentity;
use crate::tool::{Body, BoxFuture, Scope, SourceKind, Tool};
use crate::trace::Tracer;
use crate::value::Value;
use observed::Seen;
use published::Published;

/// News of sources that a slow listener may be behind; it misses older ones.
const NEWS: usize = 256;
/// How often a call whose deadline has moved looks where it is now.
const LOOK: Duration = Duration::from_millis(500);

/// Cheap to clone; all clones are the same gateway.
#[derive(Clone)]
pub struct Gateway(Arc<Inner>);

struct Inner {
    published: ArcSwap<Published>,
    version: watch::Sender<u64>,
    news: broadcast::Sender<News>,
    /// For the calls from outside that are in progress.
    places: Arc<Places>,
    artifacts: Artifacts,
    learned: Learned,
    pulse: Pulse,
    /// Who keeps the journal, if anybody does.
    recorder: OnceLock<Arc<dyn Recorder>>,
    /// Who keeps what people decide on, if anybody does.
    approvals: OnceLock<Arc<dyn Approvals>>,
    metrics: Metrics,
    identity: ArcSwap<ServerIdentity>,
    /// Who takes what is seen of calls, if anybody does.
    tracer: OnceLock<Arc<dyn Tracer>>,
    /// Until when first answers wait for sources; none once they no longer do.
    settling: watch::Sender<Option<Instant>>,
}

/// A call that is done, or one to wait for.
pub enum Started {
    Done(Result<Value>),
    Running(BoxFuture<Result<Value>>),
}

impl Gateway {
    pub fn new(catalog: Catalog, runs: usize) -> Self {
        Gateway(Arc::new(Inner {
            published: ArcSwap::from_pointee(Published::new(Arc::new(catalog), Arc::default())),
            version: watch::Sender::new(1),
            news: broadcast::Sender::new(NEWS),
            places: Places::new(PlaceLimits { runs, queued: 0, queue_time: Duration::ZERO }),
            artifacts: Artifacts::default(),
            learned: Learned::default(),
            pulse: Pulse::default(),
            recorder: OnceLock::new(),
            approvals: OnceLock::new(),
            metrics: Metrics::default(),
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
        let with = |now: &Arc<Published>| Published::new(catalog.clone(), now.policy.clone());
        self.0.published.rcu(with);
        self.0.version.send_modify(|version| *version += 1);
    }

    /// Replace the rules, for calls from now on. What they have counted so far
    /// stays counted where they are the same.
    pub fn set_policy(&self, policy: Policy) {
        if !self.policy().is_same(&policy) {
            self.change_policy(|now| policy.after(now));
        }
    }

    /// Replace what single callers may not reach, whatever the rules say.
    pub fn limit_callers(&self, limits: Vec<(String, Terms)>) {
        if !self.policy().is_limited_by(&limits) {
            self.change_policy(|now| now.limited(limits.clone()));
        }
    }

    fn change_policy(&self, change: impl Fn(&Policy) -> Policy) {
        let with = |now: &Arc<Published>| {
            Published::new(now.catalog.clone(), Arc::new(change(&now.policy)))
        };
        self.0.published.rcu(with);
        self.0.version.send_modify(|version| *version += 1);
    }

    /// The rules in force.
    pub fn policy(&self) -> Arc<Policy> {
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
    pub fn set_places(&self, limits: PlaceLimits) {
        self.0.places.set(limits);
    }

    /// Wakes whenever a new catalog was published, or the rules have changed.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.0.version.subscribe()
    }

    /// A source says something that is part of no call.
    pub fn announce(&self, news: News) {
        // Nobody may be listening.
        let _ = self.0.news.send(news);
    }

    /// Every [`announce`](Self::announce) from now on.
    pub fn news(&self) -> broadcast::Receiver<News> {
        self.0.news.subscribe()
    }

    /// What runs left for later ones to read.
    pub fn artifacts(&self) -> &Artifacts {
        &self.0.artifacts
    }

    /// What tools answer that do not say so.
    pub fn learned(&self) -> &Learned {
        &self.0.learned
    }

    /// Keep a journal from now on; once, before anything is called.
    pub fn keep_journal(&self, recorder: Arc<dyn Recorder>) {
        if self.0.recorder.set(recorder).is_err() {
            tracing::warn!("there is a journal already: the second is not used");
        }
    }

    /// Who keeps the journal, if anybody does.
    pub fn recorder(&self) -> Option<&Arc<dyn Recorder>> {
        self.0.recorder.get()
    }

    /// Let people decide from now on; once, before anything is called.
    pub fn keep_approvals(&self, approvals: Arc<dyn Approvals>) {
        let _ = self.0.approvals.set(approvals);
    }

    /// Who keeps what people decide on, if anybody does.
    pub fn approvals(&self) -> Option<&Arc<dyn Approvals>> {
        self.0.approvals.get()
    }

    /// What is counted.
    pub fn metrics(&self) -> &Metrics {
        &self.0.metrics
    }

    /// Trace calls from now on; once, before anything is called.
    pub fn keep_traces(&self, tracer: Arc<dyn Tracer>) {
        let _ = self.0.tracer.set(tracer);
    }

    /// Who takes what is seen of calls, if anybody does.
    pub fn tracer(&self) -> Option<&Arc<dyn Tracer>> {
        self.0.tracer.get()
    }

    pub(crate) fn places(&self) -> &Places {
        &self.0.places
    }

    pub(crate) async fn place_in_turn(&self, caller: &Caller) -> Result<Place> {
        self.0.places.wait(caller).await
    }

    /// Begin on behalf of a surface: takes the snapshot that this call and all
    /// calls under it will see.
    pub fn open(&self, caller: Caller, events: Option<Events>) -> Result<Call> {
        self.open_for(caller, None, events)
    }

    /// The same, on behalf of a surface that can ask its caller.
    pub fn open_for(
        &self,
        caller: Caller,
        client: Option<Arc<dyn Client>>,
        events: Option<Events>,
    ) -> Result<Call> {
        let place = self.0.places.take(&caller)?;
        Ok(self.root(caller, client, events, None, place))
    }

    /// The same for a surface that can wait for a place.
    pub async fn open_in_turn(
        &self,
        caller: Caller,
        client: Option<Arc<dyn Client>>,
        events: Option<Events>,
    ) -> Result<Call> {
        let place = self.0.places.wait(&caller).await?;
        Ok(self.root(caller, client, events, None, place))
    }

    fn root(
        &self,
        caller: Caller,
        client: Option<Arc<dyn Client>>,
        events: Option<Events>,
        mocks: Option<Mocks>,
        place: Place,
    ) -> Call {
        let catalog = self.catalog_for(&caller);
        Call::root(self.clone(), catalog, caller, client, events, mocks, place)
    }

    /// A call that is no tool's: what a script does while it loads.
    pub fn scoped(&self, caller: Caller, scope: Arc<Scope>) -> Call {
        // Loading is ours, not a caller's: it takes nobody's place.
        self.root(caller, None, None, None, Place::of_nobody()).with_scope(scope)
    }

    /// A call that is a test: what it mocks stands in for the world.
    pub fn test(&self, scope: Arc<Scope>, events: Option<Events>) -> Call {
        let mocks = Some(Mocks::default());
        self.root(Caller::new("test"), None, events, mocks, Place::of_nobody()).with_scope(scope)
    }

    /// Call the tool `name` as a child of `parent`, for its plain value.
    pub async fn call(&self, parent: &Call, name: &str, args: Value) -> Result<Value> {
        self.ask(parent, name, args).await.map(Answer::into_plain)
    }

    /// The same, for all that the tool answers: content of any kind.
    pub async fn ask(&self, parent: &Call, name: &str, args: Value) -> Result<Answer> {
        let waited;
        let parent = if parent.catalog().is_loading() {
            waited = self.when_loaded(parent, name).await?;
            &waited
        } else if parent.catalog().awaits(name) {
            waited = self.when_connected(parent, name).await?;
            &waited
        } else {
            parent
        };
        // Scripts and the command line reach what is hidden from agents.
        let from_agent = !parent.is_nested() && matches!(parent.caller().surface, "mcp" | "rest");
        let tool = match from_agent {
            true => parent.catalog().find_for_agents(name)?,
            false => parent.catalog().find(name)?,
        };
        let mut args = args;
        if from_agent && parent.caller().surface == "mcp" {
            tool.portable_input().keys.restore(&mut args);
        }
        if tool.describes_sources && self.is_settling() {
            let parent = self.when_settled(parent).await;
            return self.ask_tool(&parent, tool, args).await;
        }
        self.ask_tool(parent, tool, args).await
    }

    /// The same, for a tool that is already found.
    pub async fn ask_tool(&self, parent: &Call, tool: &Arc<Tool>, args: Value) -> Result<Answer> {
        if tool.source.kind == SourceKind::Host {
            return match self.start(parent, tool, args) {
                Started::Done(result) => result.map(Answer::Value),
                Started::Running(future) => future.await.map(Answer::Value),
            };
        }
        match run::before(parent, tool, &args).await {
            Before::Make => {}
            Before::Answered(answer) => return answer,
            Before::Given(answer) => return run::given(parent, tool, args, answer, false).await,
            Before::Assumed(answer) => {
                return run::given(parent, tool, args, Ok(answer), true).await;
            }
        }
        let answer = match admit(parent, tool, args) {
            Ok((call, args)) => run_tool(call, tool.clone(), args).await,
            Err(problem) => Err(problem),
        };
        if parent.is_nested() {
            return answer;
        }
        journal::written(parent).await;
        approval::with_ticket(parent, answer)
    }

    /// A host function that an agent's script calls, and that may answer another
    /// time with something else: on record like a call of a tool, so that it is
    /// not asked again when the run is resumed.
    pub async fn ask_host(&self, parent: &Call, tool: &Arc<Tool>, args: Value) -> Result<Value> {
        match run::before(parent, tool, &args).await {
            Before::Make => {}
            Before::Answered(answer) => return answer.map(Answer::into_plain),
            Before::Given(answer) => {
                let given = run::given(parent, tool, args, answer, false).await;
                return given.map(Answer::into_plain);
            }
            Before::Assumed(answer) => {
                let given = run::given(parent, tool, args, Ok(answer), true).await;
                return given.map(Answer::into_plain);
            }
        }
        let body = |args| async {
            match self.start(parent, tool, args) {
                Started::Done(result) => result.map(Answer::Value),
                Started::Running(future) => future.await.map(Answer::Value),
            }
        };
        run::aside(parent, tool, args, body).await.map(Answer::into_plain)
    }

    /// A tool that a test calls as its users do: validated, with defaults, held
    /// to its output. A test needs no grant for that.
    pub async fn ask_in_test(&self, test: &Call, name: &str, args: Value) -> Result<Value> {
        let tool = test.catalog().find(name)?;
        let args = tool.input.check(args)?;
        let call = test.enter(tool)?;
        run_tool(call, tool.clone(), args).await.map(Answer::into_plain)
    }

    /// The same for a script, by the tool's name.
    pub fn start_named(&self, parent: &Call, name: &str, args: Value) -> Started {
        // A mock stands in for a tool that need not exist.
        if let Some(answer) = parent.mocks().and_then(|mocks| mocks.answer(name, name, &args)) {
            return Started::Done(answer);
        }
        if parent.catalog().awaits(name) {
            let (gateway, parent, name) = (self.clone(), parent.clone(), name.to_owned());
            return Started::Running(Box::pin(async move {
                let parent = gateway.when_connected(&parent, &name).await?;
                let tool = parent.catalog().find(&name)?;
                gateway.ask_tool(&parent, tool, args).await.map(Answer::into_plain)
            }));
        }
        match parent.catalog().find(name) {
            Ok(tool) => self.start(parent, tool, args),
            Err(problem) => Started::Done(Err(problem)),
        }
    }

    /// The same, for a tool already found and a caller that cannot wait here.
    /// Host functions run inside their caller: its grants, limits and deadline
    /// are theirs. Everything else gets a call of its own.
    pub fn start(&self, parent: &Call, tool: &Arc<Tool>, args: Value) -> Started {
        if tool.source.kind == SourceKind::Host {
            if let Some(mocks) = parent.mocks()
                && let Some(answer) = mocks.answer(&tool.source.name, &tool.name, &args)
            {
                return Started::Done(answer);
            }
            return match &tool.body {
                Body::Now(body) => Started::Done(body(parent, args)),
                Body::Later(body) => Started::Running(body(parent.clone(), args)),
                Body::Answering(body) => {
                    let answer = body(parent.clone(), args);
                    Started::Running(Box::pin(async { answer.await.map(Answer::into_plain) }))
                }
            };
        }
        match admit(parent, tool, args) {
            Ok((call, args)) => {
                let ran = run_tool(call, tool.clone(), args);
                Started::Running(Box::pin(async { ran.await.map(Answer::into_plain) }))
            }
            Err(problem) => Started::Done(Err(problem)),
        }
    }
}

/// Everything that can refuse a call before its body runs.
fn admit(parent: &Call, tool: &Tool, mut args: Value) -> Result<(Call, Value)> {
    let admitted = may_run(parent, tool, &mut args);
    if let Err(problem) = &admitted {
        record(parent, tool, problem.code.as_str());
        metrics::refused(parent.gateway().metrics(), tool, problem);
        parent.tell_refused(tool, problem.code.as_str());
        journal::refused(parent, tool, &args, problem);
    }
    admitted.map(|call| (call, args))
}

fn may_run(parent: &Call, tool: &Tool, args: &mut Value) -> Result<Call> {
    // Built-ins are how `context.search` and its siblings work: part of what
    // every script has.
    if parent.is_nested() && !parent.catalog().is_common(tool) {
        let names = || policy::own_names(parent.catalog(), tool);
        parent.grants().tool(&tool.name, names)?;
    }
    tool.input.check_in_place(args)?;
    parent.enter(tool)
}

/// What an agent's script calls is a step of its run, and waits for its turn.
async fn run_tool(call: Call, tool: Arc<Tool>, args: Value) -> Result<Answer> {
    let seen = Seen::begin(&call, &tool);
    if let Err(problem) = approval::granted(&call, &tool, &args).await {
        journal::refused(&call, &tool, &args, &problem);
        return seen.end(Err(problem));
    }
    let Some(made_by) = call.made_by_run().cloned() else {
        let body = |args| run_body(&call, &tool, args);
        return seen.end(journal::on_record(&call, &tool, args, None, body).await);
    };
    let turn = tokio::time::timeout_at(call.deadline(), made_by.turn()).await;
    let _turn = match turn.unwrap_or_else(|_| Err(timed_out(&call, &tool))) {
        Ok(turn) => turn,
        Err(problem) => {
            journal::refused(&call, &tool, &args, &problem);
            return seen.end(Err(problem));
        }
    };
    let at = call.spot().map(|(_, at)| at.clone());
    let stepping = made_by.begin(&tool.name, at);
    let step = call.step(&stepping);
    let body = |args| run_body(&step, &tool, args);
    let result = journal::on_record(&step, &tool, args, Some(&stepping), body).await;
    let outcome = result.as_ref().map_or_else(|problem| problem.code.as_str(), |_| "ok");
    call.stepped(stepping, outcome);
    seen.end(result)
}

async fn run_body(call: &Call, tool: &Arc<Tool>, args: Value) -> Result<Answer> {
    let secrets = &tool.scope.secrets;
    let scripted =
        |result: Result<Value>| result.map(|it| secrets.redact_result(it)).and_then(Answer::of);
    let body = async |call: Call, args| match &tool.body {
        Body::Now(body) => scripted(body(&call, args)),
        Body::Later(body) => scripted(body(call, args).await),
        Body::Answering(body) => body(call, args).await.map(|answer| secrets.redact_answer(answer)),
    };
    let body = policy::governed(call, tool, args, body);
    // A panic anywhere below is our defect, but it must cost one call only.
    let body = AssertUnwindSafe(body).catch_unwind();
    let result = match in_time(call, body).await {
        // The engine may notice first; the words are the same.
        Ok(Ok(Err(problem)))
            if problem.code == Code::Timeout && Instant::now() >= call.deadline() =>
        {
            Err(timed_out(call, tool))
        }
        Ok(Ok(result)) => result.and_then(|answer| tool.check_output(answer)),
        Ok(Err(_panic)) => {
            Err(Problem::internal(format!("tool '{}' failed inside Moonlark", tool.name))
                .hint("this is a defect of Moonlark: please report it with the server's log"))
        }
        Err(_elapsed) => Err(timed_out(call, tool)),
    };
    let result = result.map_err(|mut problem| {
        tool.scope.secrets.redact_problem(&mut problem);
        problem
    });
    if let Ok(answer) = &result {
        call.gateway().learned().observe(tool, call.caller(), answer);
    }
    record(call, tool, result.as_ref().map_or_else(|problem| problem.code.as_str(), |_| "ok"));
    result
}

/// Until the call's deadline, which moves when the caller is asked something.
/// Who asks may be another task than this one, so nothing wakes it when the
/// deadline moves back: once it has moved, it looks by itself.
pub async fn in_time<F: Future>(call: &Call, body: F) -> Result<F::Output, ()> {
    let mut body = std::pin::pin!(body);
    let mut deadline = call.deadline();
    call.gateway().0.pulse.beat();
    let mut timer = std::pin::pin!(tokio::time::sleep_until(deadline));
    std::future::poll_fn(|context| {
        if let Poll::Ready(output) = body.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        loop {
            let moved = call.deadline();
            if moved != deadline {
                deadline = moved;
                timer.as_mut().reset(moved.min(Instant::now() + LOOK));
            }
            std::task::ready!(timer.as_mut().poll(context));
            if Instant::now() >= call.deadline() {
                return Poll::Ready(Err(()));
            }
            timer.as_mut().reset(call.deadline().min(Instant::now() + LOOK));
        }
    })
    .await
}

/// The Problem of a call that ran past its deadline.
fn timed_out(call: &Call, tool: &Tool) -> Problem {
    Problem::new(
        Code::Timeout,
        format!("tool '{}' timed out after {}", tool.name, seconds(call.limits().timeout)),
    )
}

fn record(call: &Call, tool: &Tool, code: &str) {
    tracing::debug!(
        target: "call",
        tool = tool.name,
        surface = call.caller().surface,
        depth = call.depth(),
        code,
        trace_id = call.trace().map(|trace| tracing::field::display(trace.id_text())),
    );
}
