//! The one path: every call of every tool goes through here.
//!
//! snapshot → find → grant → schema and defaults → deadline → body → redaction
//! → record. Surfaces and scripts cannot differ, because they have no other way
//! to reach a tool's body.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::FutureExt;
use tokio::sync::{broadcast, watch};
use tokio::time::Instant;

use crate::artifacts::Artifacts;
use crate::call::{Call, Caller, Events};
use crate::catalog::Catalog;
use crate::client::Client;
use crate::content::Answer;
use crate::learned::Learned;
use crate::limits::seconds;
use crate::mock::Mocks;
use crate::offers::News;
use crate::problem::{Code, Problem, Result};
use crate::tool::{Body, BoxFuture, Scope, SourceKind, Tool};
use crate::value::Value;

/// News of sources that a slow listener may be behind; it misses older ones.
const NEWS: usize = 256;
/// How often a call whose deadline has moved looks where it is now.
const LOOK: Duration = Duration::from_millis(500);
/// How long a call waits for the source of its tool to connect.
const CONNECTING: Duration = Duration::from_secs(30);

/// Cheap to clone; all clones are the same gateway.
#[derive(Clone)]
pub struct Gateway(Arc<Inner>);

struct Inner {
    catalog: ArcSwap<Catalog>,
    version: watch::Sender<u64>,
    news: broadcast::Sender<News>,
    running: AtomicUsize,
    /// How many calls from outside may be in progress.
    most: AtomicUsize,
    artifacts: Artifacts,
    learned: Learned,
}

/// A call that is done, or one to wait for.
pub enum Started {
    Done(Result<Value>),
    Running(BoxFuture<Result<Value>>),
}

impl Gateway {
    pub fn new(catalog: Catalog, runs: usize) -> Self {
        Gateway(Arc::new(Inner {
            catalog: ArcSwap::from_pointee(catalog),
            version: watch::Sender::new(1),
            news: broadcast::Sender::new(NEWS),
            running: AtomicUsize::new(0),
            most: AtomicUsize::new(runs),
            artifacts: Artifacts::default(),
            learned: Learned::default(),
        }))
    }

    pub fn catalog(&self) -> Arc<Catalog> {
        self.0.catalog.load_full()
    }

    /// Replace the catalog. Calls in flight finish on the one they began with.
    pub fn publish(&self, catalog: Catalog) {
        self.0.catalog.store(Arc::new(catalog));
        self.0.version.send_modify(|version| *version += 1);
    }

    /// Change how many calls may be in progress at once.
    pub fn set_runs(&self, runs: usize) {
        self.0.most.store(runs, Ordering::Relaxed);
    }

    /// Wakes whenever a new catalog was published.
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
        let most = self.0.most.load(Ordering::Relaxed);
        let permit = Permit(Some(self.0.clone()));
        if self.0.running.fetch_add(1, Ordering::Relaxed) >= most {
            let mut problem = Problem::new(
                Code::RateLimited,
                format!("{most} calls are in progress, which is the limit"),
            )
            .hint("try again in a moment, or raise limits.runs");
            problem.retry_after = Some(1);
            return Err(problem);
        }
        Ok(Call::root(self.clone(), self.catalog(), caller, client, events, None, permit))
    }

    /// A call that is no tool's: what a script does while it loads.
    pub fn scoped(&self, caller: Caller, scope: Arc<Scope>) -> Call {
        // Loading is ours, not a caller's: it takes nobody's place.
        let call = Call::root(self.clone(), self.catalog(), caller, None, None, None, Permit(None));
        call.with_scope(scope)
    }

    /// A call that is a test: what it mocks stands in for the world.
    pub fn test(&self, scope: Arc<Scope>, events: Option<Events>) -> Call {
        let mocks = Some(Mocks::default());
        let caller = Caller::new("test");
        let catalog = self.catalog();
        let call = Call::root(self.clone(), catalog, caller, None, events, mocks, Permit(None));
        call.with_scope(scope)
    }

    /// Call the tool `name` as a child of `parent`, for its plain value.
    pub async fn call(&self, parent: &Call, name: &str, args: Value) -> Result<Value> {
        self.ask(parent, name, args).await.map(Answer::into_plain)
    }

    /// The same, for all that the tool answers: content of any kind.
    pub async fn ask(&self, parent: &Call, name: &str, args: Value) -> Result<Answer> {
        let waited;
        let parent = match parent.catalog().awaits(name) {
            false => parent,
            true => {
                waited = self.when_connected(parent, name).await?;
                &waited
            }
        };
        let tool = parent.catalog().find(name)?;
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
        let (call, args) = admit(parent, tool, args)?;
        run(call, tool.clone(), args).await
    }

    /// The catalog as it is once the source of `name` has connected, or has not.
    pub async fn settled(&self, name: &str) -> Arc<Catalog> {
        let mut changes = self.subscribe();
        let until = Instant::now() + CONNECTING;
        loop {
            changes.mark_unchanged();
            let catalog = self.catalog();
            let waits = catalog.awaits(name);
            if !waits || tokio::time::timeout_at(until, changes.changed()).await.is_err() {
                return catalog;
            }
        }
    }

    /// The call as it is once the source of `name` has connected, or has not.
    async fn when_connected(&self, parent: &Call, name: &str) -> Result<Call> {
        let settled = tokio::time::timeout_at(parent.deadline(), self.settled(name)).await;
        let catalog = settled.unwrap_or_else(|_| self.catalog());
        match catalog.awaits(name) {
            true => Err(catalog.still_connecting(name)),
            false => Ok(parent.with_catalog(catalog)),
        }
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
                let ran = run(call, tool.clone(), args);
                Started::Running(Box::pin(async { ran.await.map(Answer::into_plain) }))
            }
            Err(problem) => Started::Done(Err(problem)),
        }
    }
}

/// Everything that can refuse a call before its body runs.
fn admit(parent: &Call, tool: &Tool, args: Value) -> Result<(Call, Value)> {
    let admitted = may_run(parent, tool, args);
    if let Err(problem) = &admitted {
        record(parent, tool, problem.code.as_str());
    }
    admitted
}

fn may_run(parent: &Call, tool: &Tool, args: Value) -> Result<(Call, Value)> {
    // Built-ins are how `context.search` and its siblings work: part of what
    // every script has.
    if parent.is_nested() && !parent.catalog().is_common(tool) {
        parent.grants().tool(&tool.name)?;
    }
    let args = tool.input.check(args)?;
    Ok((parent.enter(tool)?, args))
}

/// What an agent's script calls is a step of its run, and waits for its turn.
async fn run(call: Call, tool: Arc<Tool>, args: Value) -> Result<Answer> {
    let Some(made_by) = call.made_by_run().cloned() else {
        return run_body(call, tool, args).await;
    };
    let turn = tokio::time::timeout_at(call.deadline(), made_by.turn()).await;
    let _turn = turn.map_err(|_| timed_out(&tool))??;
    let stepping = made_by.begin(&tool.name);
    let result = run_body(call.step(&stepping), tool, args).await;
    let outcome = result.as_ref().map_or_else(|problem| problem.code.as_str(), |_| "ok");
    call.stepped(stepping, outcome);
    result
}

async fn run_body(call: Call, tool: Arc<Tool>, args: Value) -> Result<Answer> {
    let secrets = &tool.scope.secrets;
    let scripted =
        |result: Result<Value>| result.map(|it| secrets.redact_result(it)).and_then(Answer::of);
    let body = async {
        match &tool.body {
            Body::Now(body) => scripted(body(&call, args)),
            Body::Later(body) => scripted(body(call.clone(), args).await),
            Body::Answering(body) => {
                body(call.clone(), args).await.map(|answer| secrets.redact_answer(answer))
            }
        }
    };
    // A panic anywhere below is our defect, but it must cost one call only.
    let body = AssertUnwindSafe(body).catch_unwind();
    let result = match in_time(&call, body).await {
        // The engine may notice first; the words are the same.
        Ok(Ok(Err(problem)))
            if problem.code == Code::Timeout && Instant::now() >= call.deadline() =>
        {
            Err(timed_out(&tool))
        }
        Ok(Ok(result)) => result.and_then(|answer| tool.check_output(answer)),
        Ok(Err(_panic)) => {
            Err(Problem::internal(format!("tool '{}' failed inside Moonlark", tool.name))
                .hint("this is a defect of Moonlark: please report it with the server's log"))
        }
        Err(_elapsed) => Err(timed_out(&tool)),
    };
    let result = result.map_err(|mut problem| {
        tool.scope.secrets.redact_problem(&mut problem);
        problem
    });
    if let Ok(answer) = &result {
        call.gateway().learned().observe(&tool, answer);
    }
    record(&call, &tool, result.as_ref().map_or_else(|problem| problem.code.as_str(), |_| "ok"));
    result
}

/// Until the call's deadline, which moves when the caller is asked something.
/// Who asks may be another task than this one, so nothing wakes it when the
/// deadline moves back: once it has moved, it looks by itself.
pub async fn in_time<F: Future>(call: &Call, body: F) -> Result<F::Output, ()> {
    let mut body = std::pin::pin!(body);
    let mut deadline = call.deadline();
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
fn timed_out(tool: &Tool) -> Problem {
    Problem::new(
        Code::Timeout,
        format!("tool '{}' timed out after {}", tool.name, seconds(tool.scope.limits.timeout)),
    )
}

fn record(call: &Call, tool: &Tool, code: &str) {
    tracing::debug!(
        target: "call",
        tool = tool.name,
        surface = call.caller().surface,
        depth = call.depth(),
        code,
    );
}

/// One of the calls in progress; gives its place back when dropped.
pub(crate) struct Permit(Option<Arc<Inner>>);

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(gateway) = &self.0 {
            gateway.running.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
