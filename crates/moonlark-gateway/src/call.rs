//! One invocation: who called, until when, with what permissions, from which
//! snapshot of the catalog. Calls form a tree; limits that count (tool calls,
//! log output) are counted at its root.

mod call_events;
mod caller;
mod pauses;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::admission::AdmissionPermit;
use crate::artifacts::ArtifactHandle;
use crate::call_client::{CallClient, ClientQuestion};
use crate::call_outcome::CallOutcome;
use crate::gateway::{CallOptions, Gateway};
use crate::mock::TestMocks;
use crate::policy::{self, ConcurrencyPermit, PolicyRule};
use crate::run::{CallSite, Run, SavedRunRequest, StepGuard, check_still_allowed};
use crate::trace::{CallTrace, SpanGuard, TraceContext};
use moonlark_core::approval_ticket::ApprovalTicket;
use moonlark_core::catalog::Catalog;
use moonlark_core::grant::GrantSet;
use moonlark_core::limits::{CallLimits, CallUsage, MAX_CALL_DEPTH};
use moonlark_core::problem::{Problem, ProblemCode, Result};
use moonlark_core::record_id::RecordId;
use moonlark_core::secret::SecretText;
use moonlark_core::tool::{CallScope, SourceKind, Tool};
use moonlark_core::value::{Value, shorten_text};

use call_events::ProgressThrottle;
pub use call_events::{CallEvent, CallEventSink, LogLevel};
pub use caller::{ANONYMOUS_CALLER, Caller, LOCAL_CALLER};
use pauses::{DeadlinePauses, USER_ANSWER_TIMEOUT};

/// Cheap to clone; dropping the last clone ends nothing by itself.
#[derive(Clone)]
pub struct Call(Arc<CallInner>);

#[derive(Clone)]
struct CallInner {
    root: Arc<CallRoot>,
    /// What the journal knows it by, and the call that made it; none at the root.
    id: Option<RecordId>,
    parent: Option<RecordId>,
    /// The tool being called; empty at the root.
    tool: String,
    scope: Arc<CallScope>,
    /// The scope of whoever made the call.
    from: Arc<CallScope>,
    /// The rule that decides on the call, if one does.
    rule: Option<Arc<PolicyRule>>,
    /// The turns that it, and the calls above it, have.
    held: Option<Arc<ConcurrencyPermit>>,
    catalog: Arc<Catalog>,
    began: Instant,
    /// Without the time its caller was asked for something.
    deadline: Instant,
    depth: u32,
    /// The agent's script that this is part of.
    run: Option<RunContext>,
    /// How the saved script is to run that this call is of, or is about to make.
    asked: Option<SavedRunRequest>,
    /// It is of a saved script which says that it only reads.
    is_of_reading_script: bool,
    /// Where it is in a trace, if it is in one.
    trace: Option<CallTrace>,
}

/// A call's place in a run.
#[derive(Clone)]
struct RunContext {
    run: Arc<Run>,
    /// Where in the script the call is made that this is about to be.
    at: Option<CallSite>,
    /// The call of the script that this is, or is below; none for the script.
    step: Option<usize>,
    /// Where in the script this very call was made; none for those below it.
    made_at: Option<CallSite>,
}

/// What the whole tree of calls shares.
struct CallRoot {
    gateway: Gateway,
    caller: Caller,
    client: Option<Arc<dyn CallClient>>,
    pauses: DeadlinePauses,
    usage: CallUsage,
    events: Option<CallEventSink>,
    progress: Mutex<ProgressThrottle>,
    /// In a test: what stands in for the world.
    mocks: Option<TestMocks>,
    /// None while it waits for a decision and its caller has gone on.
    permit: Mutex<Option<AdmissionPermit>>,
    /// What somebody has to decide before the call can be made.
    ticket: Mutex<Option<ApprovalTicket>>,
    /// Tokens of approvals that came with the call and are not used yet.
    tokens: Mutex<Vec<SecretText>>,
    /// The run that it began or went on with first.
    first_run: OnceLock<RecordId>,
}

impl Call {
    pub(crate) fn new_root(
        gateway: Gateway,
        catalog: Arc<Catalog>,
        options: CallOptions,
        mocks: Option<TestMocks>,
        permit: AdmissionPermit,
    ) -> Call {
        let CallOptions { caller, client, events } = options;
        let began = Instant::now();
        Call(Arc::new(CallInner {
            root: Arc::new(CallRoot {
                gateway,
                caller,
                client,
                pauses: DeadlinePauses::default(),
                usage: CallUsage::default(),
                events,
                progress: Mutex::new(ProgressThrottle::default()),
                mocks,
                permit: Mutex::new(Some(permit)),
                ticket: Mutex::default(),
                tokens: Mutex::default(),
                first_run: OnceLock::new(),
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
            asked: None,
            is_of_reading_script: false,
            trace: None,
        }))
    }

    /// The call that runs `tool`, one level down.
    pub(crate) fn enter_tool(&self, tool: &Tool) -> Result<Call> {
        if self.0.depth >= MAX_CALL_DEPTH {
            return Err(Problem::limit_exceeded(format!(
                "tools call each other more than {MAX_CALL_DEPTH} levels deep"
            )));
        }
        if self.0.depth > 0 {
            self.0.root.usage.count_call(self.limits())?;
        }
        let (rule, scope) = match policy::ruling_for(&self.0.catalog, tool)? {
            Some(ruling) => (Some(ruling.rule), ruling.scope),
            None => (None, tool.scope.clone()),
        };
        let began = Instant::now();
        let deadline = began + scope.limits.timeout - self.0.root.pauses.elapsed_pause();
        Ok(Call(Arc::new(CallInner {
            root: self.0.root.clone(),
            id: self.gateway().recorder().map(|_| RecordId::new()),
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
            run: self.0.run.clone().map(|part| RunContext { made_at: None, ..part }),
            asked: self.0.asked,
            is_of_reading_script: tool.source.kind == SourceKind::Saved && tool.effects.read_only,
            trace: CallTrace::child_of(self.0.trace.as_ref(), self.gateway().tracer()),
        })))
    }

    pub(crate) fn with_scope(&self, scope: Arc<CallScope>) -> Call {
        Call(Arc::new(CallInner {
            tool: String::new(),
            deadline: Instant::now() + scope.limits.timeout,
            scope,
            // Below a surface: what it calls needs a grant.
            depth: 1,
            run: None,
            rule: None,
            asked: None,
            ..CallInner::clone(&self.0)
        }))
    }

    /// In a test: the call of somebody who uses a tool as any caller would, without the
    /// grants of a script.
    #[must_use]
    pub fn as_user_of_tools(&self) -> Call {
        Call(Arc::new(CallInner { depth: 0, ..CallInner::clone(&self.0) }))
    }

    /// The same call under a name, which its log lines begin with.
    #[must_use]
    pub fn with_name(&self, name: &str) -> Call {
        Call(Arc::new(CallInner { tool: name.to_owned(), ..CallInner::clone(&self.0) }))
    }

    /// The same call with a turn.
    #[must_use]
    pub(crate) fn with_concurrency_permit(&self, held: Option<Arc<ConcurrencyPermit>>) -> Call {
        Call(Arc::new(CallInner { held, ..CallInner::clone(&self.0) }))
    }

    /// The rule that decides on this call, if one does.
    pub(crate) fn rule(&self) -> Option<&Arc<PolicyRule>> {
        self.0.rule.as_ref()
    }

    pub(crate) fn concurrency_permit(&self) -> Option<&Arc<ConcurrencyPermit>> {
        self.0.held.as_ref()
    }

    /// The same call on a newer snapshot.
    #[must_use]
    pub fn with_catalog(&self, catalog: Arc<Catalog>) -> Call {
        Call(Arc::new(CallInner { catalog, ..CallInner::clone(&self.0) }))
    }

    /// The same call as part of a trace that came in, if one did.
    #[must_use]
    pub fn with_trace(self, trace: Option<TraceContext>) -> Call {
        match trace {
            Some(_) => {
                let trace = trace.map(CallTrace::from);
                Call(Arc::new(CallInner { trace, ..CallInner::clone(&self.0) }))
            }
            None => self,
        }
    }

    /// The same call: what it makes from now on is below that.
    #[must_use]
    pub fn in_span(self, spanning: &SpanGuard) -> Call {
        self.with_trace(spanning.trace().cloned())
    }

    /// Where it is in a trace, if it is in one.
    pub fn trace(&self) -> Option<&TraceContext> {
        self.0.trace.as_ref().map(CallTrace::context)
    }

    pub(crate) fn call_trace(&self) -> Option<&CallTrace> {
        self.0.trace.as_ref()
    }

    /// The same call with less time.
    #[must_use]
    pub fn with_timeout(&self, time: Duration) -> Call {
        let deadline = Instant::now() + time - self.0.root.pauses.elapsed_pause();
        let deadline = deadline.min(self.0.deadline);
        Call(Arc::new(CallInner { deadline, ..CallInner::clone(&self.0) }))
    }

    /// The same call as the script of `run`: what it calls is on record there.
    #[must_use]
    pub fn for_run(&self, run: Arc<Run>) -> Call {
        self.0.root.first_run.get_or_init(|| run.id());
        let part = RunContext { run, at: None, step: None, made_at: None };
        Call(Arc::new(CallInner { run: Some(part), asked: None, ..CallInner::clone(&self.0) }))
    }

    /// The same call, about to make one of a saved script that is to run like this.
    #[must_use]
    pub fn with_saved_run_request(&self, asked: SavedRunRequest) -> Call {
        Call(Arc::new(CallInner { asked: Some(asked), ..CallInner::clone(&self.0) }))
    }

    /// The run that what came from outside began or went on with: what it is on record as.
    pub fn first_run(&self) -> Option<RecordId> {
        self.0.root.first_run.get().copied()
    }

    /// How the saved script is to run that this call is of, if that was said.
    pub fn saved_run_request(&self) -> Option<SavedRunRequest> {
        self.0.asked
    }

    /// Whether it is of a saved script which says that it only reads, and has to be held to
    /// that: whoever wrote it is not trusted to.
    pub fn is_of_reading_script(&self) -> bool {
        self.0.is_of_reading_script
    }

    /// The run whose script made this very call, and where.
    pub fn made_at_site(&self) -> Option<(&Arc<Run>, &CallSite)> {
        let part = self.0.run.as_ref()?;
        Some((&part.run, part.made_at.as_ref()?))
    }

    fn with_run_context(&self, part: RunContext) -> Call {
        Call(Arc::new(CallInner { run: Some(part), ..CallInner::clone(&self.0) }))
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
    pub fn at_call_site(&self, at: CallSite) -> Call {
        match &self.0.run {
            Some(part) => self.with_run_context(RunContext { at: Some(at), ..part.clone() }),
            None => self.clone(),
        }
    }

    /// Where in the script of which run the call is made that this is about to
    /// be, if the script itself makes it.
    pub(crate) fn call_site(&self) -> Option<(&Arc<Run>, &CallSite)> {
        let part = self.0.run.as_ref().filter(|part| part.step.is_none())?;
        Some((&part.run, part.at.as_ref()?))
    }

    /// For a fork: its script is about to make this call, and has made all before it.
    pub fn claim_recorded_answer(&self, tool: &Tool, args: &Value) {
        if let Some((run, at)) = self.call_site().filter(|(run, _)| run.is_fork()) {
            run.claim_recorded_call(at, tool, args);
            if let Err(problem) = check_still_allowed(self, tool, args) {
                run.withhold_recorded_call(at, &problem);
            }
        }
    }

    /// A call of a host function as the journal knows it: with an id of its own,
    /// and the rights of the script that makes it.
    pub(crate) fn as_host_call(&self, tool: &Tool) -> Call {
        Call(Arc::new(CallInner {
            id: self.gateway().recorder().map(|_| RecordId::new()),
            parent: self.0.id,
            tool: tool.name.clone(),
            from: self.0.scope.clone(),
            ..CallInner::clone(&self.0)
        }))
    }

    /// The time, as whoever made the call sees it: a run has a clock of its own,
    /// so that it sees the same times when it is resumed.
    pub fn current_time(&self) -> SystemTime {
        self.made_by_run().map_or_else(SystemTime::now, |run| run.current_time())
    }

    /// The same on a clock that is never set back, if that is the run's.
    pub fn run_clock(&self) -> Option<Duration> {
        self.made_by_run().map(|run| run.script_clock())
    }

    /// Random bytes; those of a run are the same when it is resumed.
    pub fn fill_random(&self, bytes: &mut [u8]) -> Result<()> {
        if let Some(run) = self.made_by_run() {
            run.fill_random(bytes);
            return Ok(());
        }
        getrandom::fill(bytes).map_err(|error| {
            Problem::unavailable(format!("the system has no random numbers: {error}"))
        })
    }

    /// The handle of what is put aside of the answer that this call gets.
    pub fn new_artifact_handle(&self, number: u64) -> Result<ArtifactHandle> {
        match self.call_site() {
            Some((run, at)) => Ok(run.artifact_handle(at, number)),
            None => ArtifactHandle::new_random(),
        }
    }

    /// This call as a step of its run.
    pub(crate) fn as_step(&self, stepping: &StepGuard) -> Call {
        match &self.0.run {
            Some(part) => self.with_run_context(RunContext {
                run: part.run.clone(),
                at: None,
                step: stepping.index,
                made_at: stepping.site().cloned(),
            }),
            None => self.clone(),
        }
    }

    /// A step has ended: for whoever watches.
    pub(crate) fn report_step(&self, stepping: StepGuard, outcome: CallOutcome) {
        let Some((step, overall)) = stepping.end_step(outcome) else { return };
        let Some(events) = &self.0.root.events else { return };
        let message = step.tool.clone();
        events(CallEvent::Step(step));
        if let Some((done, total)) = overall {
            self.send_progress(done, Some(total), Some(message));
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
    pub fn mocks(&self) -> Option<&TestMocks> {
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
    pub fn id(&self) -> Option<RecordId> {
        self.0.id
    }

    /// The call that made this one.
    pub fn parent_id(&self) -> Option<RecordId> {
        self.0.parent
    }

    /// The scope of whoever made this call.
    pub(crate) fn caller_scope(&self) -> &Arc<CallScope> {
        &self.0.from
    }

    pub(crate) fn started_at(&self) -> Instant {
        self.0.began
    }

    /// Moves while the caller is being asked: a person's time is not the tool's.
    pub fn deadline(&self) -> Instant {
        self.0.deadline + self.0.root.pauses.deadline_shift()
    }

    /// Whoever made the call, if this one was made by it and no tool is between.
    pub fn direct_client(&self) -> Option<&Arc<dyn CallClient>> {
        self.0.root.client.as_ref().filter(|_| self.0.depth == 1)
    }

    /// Whoever is at the other end, if it can be talked to.
    pub fn client(&self) -> Option<&Arc<dyn CallClient>> {
        self.0.root.client.as_ref()
    }

    /// Whether anybody is told what happens during the call.
    pub fn is_watched(&self) -> bool {
        self.0.root.events.is_some()
    }

    /// Tells callers apart; 0 for those that cannot be talked to.
    pub fn owner_id(&self) -> u64 {
        self.0.root.client.as_ref().map_or(0, |client| client.owner_id())
    }

    /// Ask the caller for something only it has.
    pub async fn ask_caller(&self, question: ClientQuestion) -> Result<Value> {
        let root = &self.0.root;
        let Some(client) = root.client.as_ref().filter(|client| client.can_answer(&question))
        else {
            let mut problem = Problem::unavailable(format!(
                "{} needs {} of the caller, which it does not offer",
                self.tool(),
                shorten_text(&question.method)
            ))
            .with_hint("call it from an MCP client that declares this capability")
            .with_retryable(false);
            let lacking =
                root.client.as_ref().and_then(|client| client.missing_capability(&question));
            problem.refusal = lacking.map(Box::new);
            return Err(problem);
        };
        let pause = root.pauses.start_pause();
        let answer = tokio::time::timeout(USER_ANSWER_TIMEOUT, client.ask_question(question)).await;
        drop(pause);
        answer.unwrap_or_else(|_| {
            Err(Problem::new(ProblemCode::Timeout, "the caller did not answer what it was asked"))
        })
    }

    /// With tokens of approvals that came with it.
    pub fn present_approval_tokens(&self, tokens: Vec<SecretText>) {
        *self.0.root.tokens.lock() = tokens;
    }

    pub(crate) fn approval_tokens(&self) -> Vec<SecretText> {
        self.0.root.tokens.lock().clone()
    }

    pub(crate) fn use_approval_token(&self, token: Option<SecretText>) {
        if let Some(token) = token {
            self.0.root.tokens.lock().retain(|other| *other != token);
        }
    }

    pub(crate) fn set_pending_ticket(&self, ticket: &ApprovalTicket) {
        *self.0.root.ticket.lock() = Some(ticket.clone());
    }

    pub(crate) fn take_pending_ticket(&self) -> Option<ApprovalTicket> {
        self.0.root.ticket.lock().take()
    }

    /// The call goes on without its caller: it is not in progress until it has
    /// taken a place again ([`Call::reacquire_admission`]).
    pub fn release_admission(&self) {
        let permit = self.0.root.permit.lock().take();
        drop(permit);
    }

    /// Take a place again, if it was left. Without one if there is none to be
    /// had: what was accepted is done.
    pub(crate) async fn reacquire_admission(&self) {
        if self.0.root.permit.lock().is_none() {
            let permit = self.gateway().wait_for_admission(self.caller()).await.ok();
            *self.0.root.permit.lock() = permit;
        }
    }

    /// Wait for something that a person takes their time for: nobody's time
    /// runs meanwhile, for up to ten minutes.
    pub(crate) async fn while_paused<F: Future>(&self, waiting: F) -> F::Output {
        let _pause = self.0.root.pauses.start_pause();
        waiting.await
    }

    /// Whether the caller can be asked this.
    pub fn can_ask_caller(&self, question: &ClientQuestion) -> bool {
        self.0.root.client.as_ref().is_some_and(|client| client.can_answer(question))
    }

    pub fn scope(&self) -> &Arc<CallScope> {
        &self.0.scope
    }

    pub fn grants(&self) -> &GrantSet {
        &self.0.scope.grants
    }

    pub fn limits(&self) -> &CallLimits {
        &self.0.scope.limits
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Call({} at depth {})", self.0.tool, self.0.depth)
    }
}
