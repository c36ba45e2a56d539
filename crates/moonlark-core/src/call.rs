//! One invocation: who called, until when, with what permissions, from which
//! snapshot of the catalog. Calls form a tree; limits that count (tool calls,
//! log output) are counted at its root.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;

use crate::catalog::Catalog;
use crate::client::{Client, Question};
use crate::gateway::{Gateway, Permit};
use crate::grant::Grants;
use crate::limits::{Limits, MAX_CALL_DEPTH, Usage};
use crate::mock::Mocks;
use crate::problem::{Code, Problem, Result};
use crate::run::{Run, Step, Stepping};
use crate::tool::{Scope, Tool};
use crate::value::{Object, Value, shorten};

/// Cheap to clone; dropping the last clone ends nothing by itself.
#[derive(Clone)]
pub struct Call(Arc<Inner>);

struct Inner {
    root: Arc<Root>,
    /// The tool being called; empty at the root.
    tool: String,
    scope: Arc<Scope>,
    catalog: Arc<Catalog>,
    /// Without the time its caller was asked for something.
    deadline: Instant,
    depth: u32,
    /// The agent's script that this is part of.
    run: Option<Part>,
}

/// A call's place in a run.
#[derive(Clone)]
struct Part {
    run: Arc<Run>,
    /// The call of the script that this is, or is below; none for the script.
    step: Option<usize>,
}

/// What the whole tree of calls shares.
struct Root {
    gateway: Gateway,
    caller: Caller,
    client: Option<Arc<dyn Client>>,
    /// How much later the deadlines are because the caller was asked, in µs.
    asked: AtomicU64,
    pauses: Mutex<Pauses>,
    usage: Usage,
    events: Option<Events>,
    progress: Mutex<Throttle>,
    /// In a test: what stands in for the world.
    mocks: Option<Mocks>,
    _permit: Permit,
}

/// Which way in a call came, and who made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Caller {
    /// `mcp`, `rest` or `cli`.
    pub surface: &'static str,
    /// The client's own name for itself, where it gave one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}

impl Caller {
    pub fn new(surface: &'static str) -> Self {
        Self { surface, client: None }
    }
}

/// What happens during a call, for whoever watches it.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    Log {
        level: Level,
        message: String,
        fields: Option<Value>,
    },
    /// What a source that speaks the caller's protocol logs, in its own words.
    Relayed {
        level: String,
        logger: Option<String>,
        data: Value,
    },
    Progress {
        done: f64,
        total: Option<f64>,
        message: Option<String>,
    },
    /// A call of an agent's script has ended.
    Step(Step),
}

pub type Events = Arc<dyn Fn(Event) + Send + Sync>;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Debug,
    Info,
    Warn,
    Error,
}

impl Level {
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        }
    }
}

impl Call {
    pub(crate) fn root(
        gateway: Gateway,
        catalog: Arc<Catalog>,
        caller: Caller,
        client: Option<Arc<dyn Client>>,
        events: Option<Events>,
        mocks: Option<Mocks>,
        permit: Permit,
    ) -> Call {
        Call(Arc::new(Inner {
            root: Arc::new(Root {
                gateway,
                caller,
                client,
                asked: AtomicU64::new(0),
                pauses: Mutex::default(),
                usage: Usage::default(),
                events,
                progress: Mutex::new(Throttle::default()),
                mocks,
                _permit: permit,
            }),
            tool: String::new(),
            scope: Arc::default(),
            catalog,
            // Each tool sets its own; this only has to be later than any.
            deadline: Instant::now() + Duration::from_secs(24 * 3600),
            depth: 0,
            run: None,
        }))
    }

    /// The call that runs `tool`, one level down.
    pub(crate) fn enter(&self, tool: &Tool) -> Result<Call> {
        if self.0.depth >= MAX_CALL_DEPTH {
            return Err(Problem::limit(format!(
                "tools call each other more than {MAX_CALL_DEPTH} levels deep"
            )));
        }
        if self.0.depth > 0 {
            self.0.root.usage.count_call(self.limits())?;
        }
        let deadline = Instant::now() + tool.scope.limits.timeout - self.0.root.asked();
        Ok(Call(Arc::new(Inner {
            root: self.0.root.clone(),
            tool: tool.name.clone(),
            scope: tool.scope.clone(),
            catalog: self.0.catalog.clone(),
            deadline: deadline.min(self.0.deadline),
            depth: self.0.depth + 1,
            run: self.0.run.clone(),
        })))
    }

    pub(crate) fn with_scope(&self, scope: Arc<Scope>) -> Call {
        Call(Arc::new(Inner {
            root: self.0.root.clone(),
            tool: String::new(),
            deadline: Instant::now() + scope.limits.timeout,
            scope,
            catalog: self.0.catalog.clone(),
            // Below a surface: what it calls needs a grant.
            depth: 1,
            run: None,
        }))
    }

    /// The same call on a newer snapshot.
    #[must_use]
    pub fn with_catalog(&self, catalog: Arc<Catalog>) -> Call {
        Call(Arc::new(Inner {
            root: self.0.root.clone(),
            tool: self.0.tool.clone(),
            scope: self.0.scope.clone(),
            catalog,
            deadline: self.0.deadline,
            depth: self.0.depth,
            run: self.0.run.clone(),
        }))
    }

    /// The same call with less time.
    #[must_use]
    pub fn within(&self, time: Duration) -> Call {
        let deadline = Instant::now() + time - self.0.root.asked();
        Call(Arc::new(Inner {
            root: self.0.root.clone(),
            tool: self.0.tool.clone(),
            scope: self.0.scope.clone(),
            catalog: self.0.catalog.clone(),
            deadline: deadline.min(self.0.deadline),
            depth: self.0.depth,
            run: self.0.run.clone(),
        }))
    }

    /// The same call as the script of `run`: what it calls is on record there.
    #[must_use]
    pub fn for_run(&self, run: Arc<Run>) -> Call {
        self.part(Part { run, step: None })
    }

    fn part(&self, part: Part) -> Call {
        Call(Arc::new(Inner {
            root: self.0.root.clone(),
            tool: self.0.tool.clone(),
            scope: self.0.scope.clone(),
            catalog: self.0.catalog.clone(),
            deadline: self.0.deadline,
            depth: self.0.depth,
            run: Some(part),
        }))
    }

    /// The agent's script that this call is, or is below.
    pub fn run(&self) -> Option<&Arc<Run>> {
        self.0.run.as_ref().map(|part| &part.run)
    }

    /// The run that this call was made by, if the script itself made it.
    pub(crate) fn made_by_run(&self) -> Option<&Arc<Run>> {
        self.0.run.as_ref().filter(|part| part.step.is_none()).map(|part| &part.run)
    }

    /// This call as a step of its run.
    pub(crate) fn step(&self, stepping: &Stepping) -> Call {
        match &self.0.run {
            Some(part) => self.part(Part { run: part.run.clone(), step: Some(stepping.index) }),
            None => self.clone(),
        }
    }

    /// A step has ended: for whoever watches.
    pub(crate) fn stepped(&self, stepping: Stepping, outcome: &'static str) {
        let (step, overall) = stepping.end(outcome);
        let Some(events) = &self.0.root.events else { return };
        let message = step.tool.clone();
        events(Event::Step(step));
        if let Some((done, total)) = overall {
            self.report(done, Some(total), Some(message));
        }
    }

    pub fn gateway(&self) -> &Gateway {
        &self.0.root.gateway
    }

    /// The snapshot that this call, and all calls it makes, see.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.0.catalog
    }

    /// In a test: what stands in for the world.
    pub fn mocks(&self) -> Option<&Mocks> {
        self.0.root.mocks.as_ref()
    }

    pub fn caller(&self) -> &Caller {
        &self.0.root.caller
    }

    /// Made by a script, not by a surface.
    pub fn is_nested(&self) -> bool {
        self.0.depth > 0
    }

    pub fn depth(&self) -> u32 {
        self.0.depth
    }

    pub fn tool(&self) -> &str {
        &self.0.tool
    }

    /// Moves while the caller is being asked: a person's time is not the tool's.
    pub fn deadline(&self) -> Instant {
        self.0.deadline + self.0.root.asked()
    }

    /// Whoever made the call, if this one was made by it and no tool is between.
    pub fn direct_client(&self) -> Option<&Arc<dyn Client>> {
        self.0.root.client.as_ref().filter(|_| self.0.depth == 1)
    }

    /// Whoever is at the other end, if it can be talked to.
    pub fn client(&self) -> Option<&Arc<dyn Client>> {
        self.0.root.client.as_ref()
    }

    /// Whether anybody is told what happens during the call.
    pub fn is_watched(&self) -> bool {
        self.0.root.events.is_some()
    }

    /// Tells callers apart; 0 for those that cannot be talked to.
    pub fn owner(&self) -> u64 {
        self.0.root.client.as_ref().map_or(0, |client| client.owner())
    }

    /// Ask the caller for something only it has.
    pub async fn ask(&self, question: Question) -> Result<Value> {
        let root = &self.0.root;
        let Some(client) = root.client.as_ref().filter(|client| client.can(&question)) else {
            let mut problem = Problem::unavailable(format!(
                "{} needs {} of the caller, which it does not offer",
                self.tool(),
                shorten(&question.method)
            ))
            .hint("call it from an MCP client that declares this capability")
            .retryable_if(false);
            let lacking = root.client.as_ref().and_then(|client| client.lacks(&question));
            problem.refusal = lacking.map(Box::new);
            return Err(problem);
        };
        let pause = Pause::begin(root);
        let answer = tokio::time::timeout(PATIENCE, client.ask(question)).await;
        drop(pause);
        answer.unwrap_or_else(|_| {
            Err(Problem::new(Code::Timeout, "the caller did not answer what it was asked"))
        })
    }

    /// Whether the caller can be asked this.
    pub fn can_ask(&self, question: &Question) -> bool {
        self.0.root.client.as_ref().is_some_and(|client| client.can(question))
    }

    /// Pass on what a source logs in the words of the caller's protocol.
    pub fn relay(&self, level: &str, logger: Option<&str>, data: Value) -> Result<()> {
        let Some(events) = &self.0.root.events else { return Ok(()) };
        let text = data.to_json_lossy().to_string();
        self.0.root.usage.count_log(16 + text.len(), self.limits())?;
        let data = match self.0.scope.secrets.redact(&text) {
            Cow::Borrowed(_) => data,
            Cow::Owned(redacted) => {
                Value::parse_json(redacted.as_bytes()).unwrap_or(Value::from(redacted))
            }
        };
        let (level, logger) = (shorten(level).into_owned(), logger.map(|it| shorten(it).into()));
        events(Event::Relayed { level, logger, data });
        Ok(())
    }

    pub fn scope(&self) -> &Arc<Scope> {
        &self.0.scope
    }

    pub fn grants(&self) -> &Grants {
        &self.0.scope.grants
    }

    pub fn limits(&self) -> &Limits {
        &self.0.scope.limits
    }

    /// Log on behalf of the script: to the operator's log and to the caller.
    pub fn log(&self, level: Level, message: &str, fields: Option<Object>) -> Result<()> {
        let fields = fields.map(|fields| Value::Object(fields).to_json_lossy().to_string());
        let size = 16 + message.len() + fields.as_ref().map_or(0, String::len);
        self.0.root.usage.count_log(size, self.limits())?;
        let secrets = &self.0.scope.secrets;
        let message = secrets.redact(message).into_owned();
        let fields = fields.map(|fields| secrets.redact(&fields).into_owned());
        let extra = fields.as_deref().map(|fields| format!(" {fields}")).unwrap_or_default();
        let tool = self.tool();
        if let Some(part) = &self.0.run {
            // The script's own words, or those of a tool that it called.
            let whose = part.step.map(|_| format!("{tool}: ")).unwrap_or_default();
            part.run.say(format!("{whose}{message}{extra}"));
        }
        match level {
            Level::Debug => tracing::debug!(target: "script", "{tool}: {message}{extra}"),
            Level::Info => tracing::info!(target: "script", "{tool}: {message}{extra}"),
            Level::Warn => tracing::warn!(target: "script", "{tool}: {message}{extra}"),
            Level::Error => tracing::error!(target: "script", "{tool}: {message}{extra}"),
        }
        if let Some(events) = &self.0.root.events {
            let fields = fields.and_then(|json| Value::parse_json(json.as_bytes()).ok());
            events(Event::Log { level, message, fields });
        }
        Ok(())
    }

    /// Tell the caller how far the work is. A flood is thinned out, because
    /// only the newest report is worth anything.
    pub fn progress(&self, done: f64, total: Option<f64>, message: Option<&str>) {
        if self.0.root.events.is_none() {
            return;
        }
        // A line on a progress bar, not a way to move data past the limits.
        let message = message.map(|text| shorten(&self.0.scope.secrets.redact(text)).into_owned());
        match &self.0.run {
            None => self.report(done, total, message),
            Some(Part { run, step: None }) => {
                run.reports_itself();
                self.report(done, total, message);
            }
            // One of several: its share of the whole.
            Some(Part { run, step: Some(step) }) => {
                let share = total.filter(|total| *total > 0.0).map_or(0.0, |total| done / total);
                let Some((done, total)) = run.advance(*step, share) else { return };
                let message = message.map_or(self.tool().to_owned(), |message| {
                    format!("{}: {message}", self.tool())
                });
                self.report(done, Some(total), Some(message));
            }
        }
    }

    fn report(&self, done: f64, total: Option<f64>, message: Option<String>) {
        let Some(events) = &self.0.root.events else { return };
        // Sent while it is held: of two that are let through, the lesser is first.
        let mut throttle = self.0.root.progress.lock();
        if throttle.lets_through(done, total) {
            events(Event::Progress { done, total, message });
        }
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Call({} at depth {})", self.0.tool, self.0.depth)
    }
}

/// How long a person may take to answer.
const PATIENCE: Duration = Duration::from_secs(600);

impl Root {
    fn asked(&self) -> Duration {
        Duration::from_micros(self.asked.load(Ordering::Relaxed))
    }
}

/// The caller is being asked: deadlines are far away meanwhile, and afterwards
/// later by as long as it took. Time in which several things are asked counts
/// once.
struct Pause<'a>(&'a Root);

#[derive(Default)]
struct Pauses {
    open: u32,
    /// When the last of them began; deadlines moved to be [`PATIENCE`] later
    /// than they were then.
    begun: Option<Instant>,
}

impl<'a> Pause<'a> {
    fn begin(root: &'a Root) -> Self {
        let mut pauses = root.pauses.lock();
        let now = Instant::now();
        let more = match pauses.begun.filter(|_| pauses.open > 0) {
            Some(begun) => now.duration_since(begun),
            None => PATIENCE,
        };
        root.asked.fetch_add(micros(more), Ordering::Relaxed);
        *pauses = Pauses { open: pauses.open + 1, begun: Some(now) };
        Self(root)
    }
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        let mut pauses = self.0.pauses.lock();
        pauses.open -= 1;
        if pauses.open == 0
            && let Some(begun) = pauses.begun
        {
            let unused = PATIENCE.saturating_sub(begun.elapsed());
            self.0.asked.fetch_sub(micros(unused), Ordering::Relaxed);
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A hundred reports at once, then at most twenty a second, and only upwards,
/// as MCP demands.
#[derive(Default)]
struct Throttle {
    sent: AtomicU32,
    last: Option<Instant>,
    highest: Option<f64>,
}

impl Throttle {
    fn lets_through(&mut self, done: f64, total: Option<f64>) -> bool {
        if self.highest.is_some_and(|highest| done <= highest) {
            return false;
        }
        let free = self.sent.fetch_add(1, Ordering::Relaxed) < 100;
        let due = self.last.is_none_or(|last| last.elapsed() > Duration::from_millis(50));
        let complete = total == Some(done);
        if free || due || complete {
            self.last = Some(Instant::now());
            self.highest = Some(done);
            return true;
        }
        false
    }
}
