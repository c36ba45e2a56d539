//! One invocation: who called, until when, with what permissions, from which
//! snapshot of the catalog. Calls form a tree; limits that count (tool calls,
//! log output) are counted at its root.

mod caller;
mod pauses;
mod saying;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::approval::Ticket;
use crate::artifacts::Handle;
use crate::catalog::Catalog;
use crate::client::{Client, Question};
use crate::gateway::Gateway;
use crate::grant::Grants;
use crate::journal::Id;
use crate::limits::{Limits, MAX_CALL_DEPTH, Usage};
use crate::mock::Mocks;
use crate::places::Place;
use crate::policy::{Held, Rule};
use crate::problem::{Code, Problem, Result};
use crate::run::{At, Run, Stepping};
use crate::tool::{Scope, Tool};
use crate::trace::{Spanning, Trace, Traced};
use crate::value::{Value, shorten};

pub use caller::{ANONYMOUS, Caller, LOCAL};
use pauses::{PATIENCE, Pauses};
use saying::Throttle;
pub use saying::{Event, Events, Level};

/// Cheap to clone; dropping the last clone ends nothing by itself.
#[derive(Clone)]
pub struct Call(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    root: Arc<Root>,
    /// What the journal knows it by, and the call that made it; none at the root.
    id: Option<Id>,
    parent: Option<Id>,
    /// The tool being called; empty at the root.
    tool: String,
    scope: Arc<Scope>,
    /// The scope of whoever made the call.
    from: Arc<Scope>,
    /// The rule that decides on the call, if one does.
    rule: Option<Arc<Rule>>,
    /// The turns that it, and the calls above it, have.
    held: Option<Arc<Held>>,
    catalog: Arc<Catalog>,
    began: Instant,
    /// Without the time its caller was asked for something.
    deadline: Instant,
    depth: u32,
    /// The agent's script that this is part of.
    run: Option<Part>,
    /// Where it is in a trace, if it is in one.
    trace: Option<Traced>,
}

/// A call's place in a run.
#[derive(Clone)]
struct Part {
    run: Arc<Run>,
    /// Where in the script the call is made that this is about to be.
    at: Option<At>,
    /// The call of the script that this is, or is below; none for the script.
    step: Option<usize>,
}

/// What the whole tree of calls shares.
struct Root {
    gateway: Gateway,
    caller: Caller,
    client: Option<Arc<dyn Client>>,
    pauses: Pauses,
    usage: Usage,
    events: Option<Events>,
    progress: Mutex<Throttle>,
    /// In a test: what stands in for the world.
    mocks: Option<Mocks>,
    /// None while it waits for a decision and its caller has gone on.
    place: Mutex<Option<Place>>,
    /// What somebody has to decide before the call can be made.
    ticket: Mutex<Option<Ticket>>,
    /// Tokens of approvals that came with the call and are not used yet.
    tokens: Mutex<Vec<String>>,
}

impl Call {
    pub(crate) fn root(
        gateway: Gateway,
        catalog: Arc<Catalog>,
        caller: Caller,
        client: Option<Arc<dyn Client>>,
        events: Option<Events>,
        mocks: Option<Mocks>,
        place: Place,
    ) -> Call {
        let began = Instant::now();
        Call(Arc::new(Inner {
            root: Arc::new(Root {
                gateway,
                caller,
                client,
                pauses: Pauses::default(),
                usage: Usage::default(),
                events,
                progress: Mutex::new(Throttle::default()),
                mocks,
                place: Mutex::new(Some(place)),
                ticket: Mutex::default(),
                tokens: Mutex::default(),
            }),
            id: None,
            parent: None,
            tool: String::new(),
            scope: Arc::default(),
            from: Arc::default(),
            rule: None,
            held: None,
            catalog,
            began,
            // Each tool sets its own; this only has to be later than any.
            deadline: began + Duration::from_secs(24 * 3600),
            depth: 0,
            run: None,
            trace: None,
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
        let (rule, scope) = match self.0.catalog.ruling(tool)? {
            Some(ruling) => (Some(ruling.rule), ruling.scope),
            None => (None, tool.scope.clone()),
        };
        let began = Instant::now();
        let deadline = began + scope.limits.timeout - self.0.root.pauses.passed();
        Ok(Call(Arc::new(Inner {
            root: self.0.root.clone(),
            id: self.gateway().recorder().map(|_| Id::new()),
            parent: self.0.id,
            tool: tool.name.clone(),
            scope,
            from: self.0.scope.clone(),
            rule,
            held: self.0.held.clone(),
            catalog: self.0.catalog.clone(),
            began,
            deadline: deadline.min(self.0.deadline),
            depth: self.0.depth + 1,
            run: self.0.run.clone(),
            trace: Traced::below(self.0.trace.as_ref(), self.gateway().tracer()),
        })))
    }

    pub(crate) fn with_scope(&self, scope: Arc<Scope>) -> Call {
        Call(Arc::new(Inner {
            tool: String::new(),
            deadline: Instant::now() + scope.limits.timeout,
            scope,
            // Below a surface: what it calls needs a grant.
            depth: 1,
            run: None,
            rule: None,
            ..Inner::clone(&self.0)
        }))
    }

    /// The same call under a name, which its log lines begin with.
    #[must_use]
    pub fn named(&self, name: &str) -> Call {
        Call(Arc::new(Inner { tool: name.to_owned(), ..Inner::clone(&self.0) }))
    }

    /// The same call with a turn.
    #[must_use]
    pub(crate) fn holding(&self, held: Option<Arc<Held>>) -> Call {
        Call(Arc::new(Inner { held, ..Inner::clone(&self.0) }))
    }

    /// The rule that decides on this call, if one does.
    pub(crate) fn rule(&self) -> Option<&Arc<Rule>> {
        self.0.rule.as_ref()
    }

    pub(crate) fn held(&self) -> Option<&Arc<Held>> {
        self.0.held.as_ref()
    }

    /// The same call on a newer snapshot.
    #[must_use]
    pub fn with_catalog(&self, catalog: Arc<Catalog>) -> Call {
        Call(Arc::new(Inner { catalog, ..Inner::clone(&self.0) }))
    }

    /// The same call as part of a trace that came in, if one did.
    #[must_use]
    pub fn continuing(self, trace: Option<Trace>) -> Call {
        match trace {
            Some(_) => {
                let trace = trace.map(Traced::from);
                Call(Arc::new(Inner { trace, ..Inner::clone(&self.0) }))
            }
            None => self,
        }
    }

    /// The same call: what it makes from now on is below that.
    #[must_use]
    pub fn under(self, spanning: &Spanning) -> Call {
        self.continuing(spanning.trace().cloned())
    }

    /// Where it is in a trace, if it is in one.
    pub fn trace(&self) -> Option<&Trace> {
        self.0.trace.as_ref().map(Traced::trace)
    }

    pub(crate) fn traced(&self) -> Option<&Traced> {
        self.0.trace.as_ref()
    }

    /// The same call with less time.
    #[must_use]
    pub fn within(&self, time: Duration) -> Call {
        let deadline = Instant::now() + time - self.0.root.pauses.passed();
        let deadline = deadline.min(self.0.deadline);
        Call(Arc::new(Inner { deadline, ..Inner::clone(&self.0) }))
    }

    /// The same call as the script of `run`: what it calls is on record there.
    #[must_use]
    pub fn for_run(&self, run: Arc<Run>) -> Call {
        self.part(Part { run, at: None, step: None })
    }

    fn part(&self, part: Part) -> Call {
        Call(Arc::new(Inner { run: Some(part), ..Inner::clone(&self.0) }))
    }

    /// The agent's script that this call is, or is below.
    pub fn run(&self) -> Option<&Arc<Run>> {
        self.0.run.as_ref().map(|part| &part.run)
    }

    /// The run that this call was made by, if the script itself made it.
    pub(crate) fn made_by_run(&self) -> Option<&Arc<Run>> {
        self.0.run.as_ref().filter(|part| part.step.is_none()).map(|part| &part.run)
    }

    /// This call, of an agent's script, as it makes one at this place.
    #[must_use]
    pub fn at(&self, at: At) -> Call {
        match &self.0.run {
            Some(part) => self.part(Part { at: Some(at), ..part.clone() }),
            None => self.clone(),
        }
    }

    /// Where in the script of which run the call is made that this is about to
    /// be, if the script itself makes it.
    pub(crate) fn spot(&self) -> Option<(&Arc<Run>, &At)> {
        let part = self.0.run.as_ref().filter(|part| part.step.is_none())?;
        Some((&part.run, part.at.as_ref()?))
    }

    /// A call of a host function as the journal knows it: with an id of its own,
    /// and the rights of the script that makes it.
    pub(crate) fn noted(&self, tool: &Tool) -> Call {
        Call(Arc::new(Inner {
            id: self.gateway().recorder().map(|_| Id::new()),
            parent: self.0.id,
            tool: tool.name.clone(),
            from: self.0.scope.clone(),
            ..Inner::clone(&self.0)
        }))
    }

    /// The time, as whoever made the call sees it: a run has a clock of its own,
    /// so that it sees the same times when it is resumed.
    pub fn now(&self) -> SystemTime {
        self.made_by_run().map_or_else(SystemTime::now, |run| run.now())
    }

    /// The same on a clock that is never set back, if that is the run's.
    pub fn clock(&self) -> Option<Duration> {
        self.made_by_run().map(|run| run.clock())
    }

    /// Random bytes; those of a run are the same when it is resumed.
    pub fn random(&self, bytes: &mut [u8]) -> Result<()> {
        if let Some(run) = self.made_by_run() {
            run.random(bytes);
            return Ok(());
        }
        getrandom::fill(bytes).map_err(|error| {
            Problem::unavailable(format!("the system has no random numbers: {error}"))
        })
    }

    /// The handle of what is put aside of the answer that this call gets.
    pub fn handle(&self, number: u64) -> Result<Handle> {
        match self.spot() {
            Some((run, at)) => Ok(run.handle(at, number)),
            None => Handle::random(),
        }
    }

    /// This call as a step of its run.
    pub(crate) fn step(&self, stepping: &Stepping) -> Call {
        match &self.0.run {
            Some(part) => self.part(Part { run: part.run.clone(), at: None, step: stepping.index }),
            None => self.clone(),
        }
    }

    /// A step has ended: for whoever watches.
    pub(crate) fn stepped(&self, stepping: Stepping, outcome: &'static str) {
        let Some((step, overall)) = stepping.end(outcome) else { return };
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

    /// What the journal knows this call by, if there is one.
    pub fn id(&self) -> Option<Id> {
        self.0.id
    }

    /// The call that made this one.
    pub fn parent(&self) -> Option<Id> {
        self.0.parent
    }

    /// The scope of whoever made this call.
    pub(crate) fn caller_scope(&self) -> &Arc<Scope> {
        &self.0.from
    }

    pub(crate) fn began(&self) -> Instant {
        self.0.began
    }

    /// Moves while the caller is being asked: a person's time is not the tool's.
    pub fn deadline(&self) -> Instant {
        self.0.deadline + self.0.root.pauses.moved()
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
        let pause = root.pauses.begin();
        let answer = tokio::time::timeout(PATIENCE, client.ask(question)).await;
        drop(pause);
        answer.unwrap_or_else(|_| {
            Err(Problem::new(Code::Timeout, "the caller did not answer what it was asked"))
        })
    }

    /// With tokens of approvals that came with it.
    pub fn present(&self, tokens: Vec<String>) {
        *self.0.root.tokens.lock() = tokens;
    }

    pub(crate) fn tokens(&self) -> Vec<String> {
        self.0.root.tokens.lock().clone()
    }

    pub(crate) fn spend(&self, token: Option<String>) {
        if let Some(token) = token {
            self.0.root.tokens.lock().retain(|other| *other != token);
        }
    }

    pub(crate) fn note_ticket(&self, ticket: &Ticket) {
        *self.0.root.ticket.lock() = Some(ticket.clone());
    }

    pub(crate) fn take_ticket(&self) -> Option<Ticket> {
        self.0.root.ticket.lock().take()
    }

    /// The call goes on without its caller: it is not in progress until it has
    /// [come back](Self::come_back).
    pub fn leave(&self) {
        let place = self.0.root.place.lock().take();
        drop(place);
    }

    /// Take a place again, if it was left. Without one if there is none to be
    /// had: what was accepted is done.
    pub(crate) async fn come_back(&self) {
        if self.0.root.place.lock().is_none() {
            let place = self.gateway().place_in_turn(self.caller()).await.ok();
            *self.0.root.place.lock() = place;
        }
    }

    /// Wait for something that a person takes their time for: nobody's time
    /// runs meanwhile, for up to ten minutes.
    pub(crate) async fn while_asking<F: Future>(&self, waiting: F) -> F::Output {
        let _pause = self.0.root.pauses.begin();
        waiting.await
    }

    /// Whether the caller can be asked this.
    pub fn can_ask(&self, question: &Question) -> bool {
        self.0.root.client.as_ref().is_some_and(|client| client.can(question))
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
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Call({} at depth {})", self.0.tool, self.0.depth)
    }
}
