//! The one way in to a tool's body: [`Gateway::invoke`].
//!
//! find → replay → grant → schema and defaults → rule → deadline → approval → limits of
//! the rule → body → redaction → record. Surfaces and scripts cannot differ, because they
//! have no other way, and none of them chooses which of these steps apply.

use std::future::IntoFuture;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use tokio::time::Instant;

use super::Gateway;
use super::call_observer::CallObserver;
use crate::approval;
use crate::call::Call;
use crate::call_outcome::CallOutcome;
use crate::journal;
use crate::policy;
use crate::run::{self, ReplayDecision};
use crate::server_identity::ListedSchemas;
use crate::tool_body::{BodyFn, ToolRuntime};
use moonlark_core::content::ToolAnswer;
use moonlark_core::limits::format_seconds;
use moonlark_core::portable_schema::SentArguments;
use moonlark_core::problem::{Problem, ProblemCode, Result};
use moonlark_core::tool::{BoxFuture, SourceKind, Tool};
use moonlark_core::value::Value;

/// How often a call whose deadline has moved looks where it is now.
const DEADLINE_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// What is to be called.
pub enum CallTarget<'a> {
    /// A tool by its name, which need not be there yet.
    Named(&'a str),
    /// A tool that was found in the call's catalog.
    Found(&'a Arc<Tool>),
}

impl<'a> From<&'a str> for CallTarget<'a> {
    fn from(name: &'a str) -> Self {
        CallTarget::Named(name)
    }
}

impl<'a> From<&'a String> for CallTarget<'a> {
    fn from(name: &'a String) -> Self {
        CallTarget::Named(name)
    }
}

impl<'a> From<&'a Arc<Tool>> for CallTarget<'a> {
    fn from(tool: &'a Arc<Tool>) -> Self {
        CallTarget::Found(tool)
    }
}

/// A call that is done, or one to wait for. Awaiting it does either.
#[must_use]
pub enum Invocation {
    Done(Result<ToolAnswer>),
    Running(BoxFuture<Result<ToolAnswer>>),
}

impl IntoFuture for Invocation {
    type Output = Result<ToolAnswer>;
    type IntoFuture = BoxFuture<Result<ToolAnswer>>;

    fn into_future(self) -> Self::IntoFuture {
        match self {
            Invocation::Done(answer) => Box::pin(std::future::ready(answer)),
            Invocation::Running(answer) => answer,
        }
    }
}

impl Invocation {
    fn run(answer: impl Future<Output = Result<ToolAnswer>> + Send + 'static) -> Self {
        Invocation::Running(Box::pin(answer))
    }
}

impl Gateway {
    /// Call a tool as a child of `parent`. Host functions that need not wait are done when
    /// this returns, and run inside their caller: its grants, limits and deadline are
    /// theirs. Everything else gets a call of its own.
    pub fn invoke<'a>(
        &self,
        parent: &Call,
        target: impl Into<CallTarget<'a>>,
        args: Value,
    ) -> Invocation {
        match target.into() {
            CallTarget::Named(name) => self.invoke_named(parent, name, args),
            CallTarget::Found(tool) => self.invoke_found(parent, tool, args),
        }
    }

    /// The same, for the plain value of the answer.
    pub async fn call<'a>(
        &self,
        parent: &Call,
        target: impl Into<CallTarget<'a>>,
        args: Value,
    ) -> Result<Value> {
        self.invoke(parent, target, args).await.map(ToolAnswer::into_plain_value)
    }

    fn invoke_named(&self, parent: &Call, name: &str, args: Value) -> Invocation {
        // A mock stands in for a tool that need not exist.
        if let Some(answer) = mocked_answer(parent, name, name, &args) {
            return Invocation::Done(answer);
        }
        // A tool's script does not wait for other scripts: one of them may wait for it.
        let awaits_scripts = parent.catalog().is_loading() && !parent.is_nested();
        if !awaits_scripts && !parent.catalog().awaits_tool(name) {
            return self.invoke_ready(parent, name, args);
        }
        let (gateway, parent, name) = (self.clone(), parent.clone(), name.to_owned());
        Invocation::run(async move {
            let parent = if awaits_scripts {
                gateway.when_loaded(&parent, &name).await?
            } else {
                gateway.when_connected(&parent, &name).await?
            };
            gateway.invoke_ready(&parent, &name, args).await
        })
    }

    /// The same once the tool is there, if it ever will be.
    fn invoke_ready(&self, parent: &Call, name: &str, mut args: Value) -> Invocation {
        // Scripts and the command line reach what is hidden from agents.
        let from_agent = !parent.is_nested() && matches!(parent.caller().surface, "mcp" | "rest");
        let found = if from_agent {
            parent.catalog().find_tool_for_agents(name)
        } else {
            parent.catalog().find_tool(name)
        };
        let tool = match found {
            Ok(tool) => tool,
            Err(problem) => return Invocation::Done(Err(problem)),
        };
        // Other surfaces list schemas as they were written.
        let lists_portable = from_agent
            && parent.caller().surface == "mcp"
            && self.identity().schemas == ListedSchemas::Portable;
        let sent = if lists_portable { SentArguments::restore(tool, &mut args) } else { None };
        let settles = tool.describes_sources && self.is_settling();
        if sent.is_none() && !settles {
            return self.invoke_found(parent, tool, args);
        }
        let (gateway, parent, tool) = (self.clone(), parent.clone(), tool.clone());
        Invocation::run(async move {
            let parent = if settles { gateway.when_settled(&parent).await } else { parent };
            let answer = gateway.invoke_found(&parent, &tool, args).await;
            match sent {
                Some(sent) => answer.map_err(|problem| sent.describe_problem(problem)),
                None => answer,
            }
        })
    }

    fn invoke_found(&self, parent: &Call, tool: &Arc<Tool>, args: Value) -> Invocation {
        let source = if is_host_function(tool) { &tool.source.name } else { &tool.name };
        if let Some(answer) = mocked_answer(parent, source, &tool.name, &args) {
            return Invocation::Done(answer);
        }
        if is_host_function(tool) && parent.call_site().is_none() {
            return start_host_function(parent, tool, args);
        }
        let (parent, tool) = (parent.clone(), tool.clone());
        Invocation::run(async move { call_on_record(parent, tool, args).await })
    }
}

/// What a test has for this call in the place of the world. A test that calls a tool as
/// its users do means the tool itself.
fn mocked_answer(
    parent: &Call,
    source: &str,
    tool: &str,
    args: &Value,
) -> Option<Result<ToolAnswer>> {
    let mocks = parent.mocks().filter(|_| parent.is_nested())?;
    Some(mocks.answer_call(source, tool, args)?.map(ToolAnswer::Value))
}

fn is_host_function(tool: &Tool) -> bool {
    tool.source.kind == SourceKind::Host
}

fn start_host_function(parent: &Call, tool: &Arc<Tool>, args: Value) -> Invocation {
    match &ToolRuntime::of_tool(tool).body {
        BodyFn::Now(body) => Invocation::Done(body(parent, args).map(ToolAnswer::Value)),
        BodyFn::Later(body) => {
            let value = body(parent.clone(), args);
            Invocation::run(async { value.await.map(ToolAnswer::Value) })
        }
        BodyFn::Answering(body) => Invocation::Running(body(parent.clone(), args)),
    }
}

/// Make the call, unless the run that it belongs to has its answer already.
async fn call_on_record(parent: Call, tool: Arc<Tool>, args: Value) -> Result<ToolAnswer> {
    match run::decide_replay(&parent, &tool, &args).await {
        ReplayDecision::Make => {}
        ReplayDecision::Answered(answer) => return answer,
        ReplayDecision::Given(args, answer) => {
            return run::record_given_answer(&parent, &tool, args, answer, false).await;
        }
        ReplayDecision::Assumed(answer) => {
            return run::record_given_answer(&parent, &tool, args, Ok(answer), true).await;
        }
    }
    if is_host_function(&tool) {
        let body = |args| start_host_function(&parent, &tool, args).into_future();
        return run::record_host_call(&parent, &tool, args, body).await;
    }
    let answer = match admit_call(&parent, &tool, args) {
        Ok((call, args)) => run_tool(call, tool, args).await,
        Err(problem) => Err(problem),
    };
    if parent.is_nested() {
        return answer;
    }
    journal::wait_until_written(&parent).await;
    approval::attach_ticket(&parent, answer)
}

/// Everything that can refuse a call before its body runs.
fn admit_call(parent: &Call, tool: &Tool, mut args: Value) -> Result<(Call, Value)> {
    let admitted = enter_if_allowed(parent, tool, &mut args);
    if let Err(problem) = &admitted {
        log_outcome(parent, tool, problem.code.into());
        parent.gateway().metrics().count_refused_call(tool, problem.code.into());
        parent.trace_refused_call(tool, problem.code.into());
        journal::record_refused_call(parent, tool, &args, problem);
    }
    admitted.map(|call| (call, args))
}

fn enter_if_allowed(parent: &Call, tool: &Tool, args: &mut Value) -> Result<Call> {
    check_grant(parent, tool)?;
    tool.input.check_arguments_in_place(args)?;
    parent.enter_tool(tool)
}

fn check_grant(parent: &Call, tool: &Tool) -> Result<()> {
    // Built-ins are how `context.search` and its siblings work: part of what
    // every script has.
    if parent.is_nested() && !parent.catalog().is_callable_by_all(tool) {
        let names = || policy::unambiguous_names(parent.catalog(), tool);
        parent.grants().check_tool(&tool.name, names)?;
    }
    Ok(())
}

/// Whether grants and rules let this caller call a tool, whatever the arguments are.
pub(crate) fn check_may_call(parent: &Call, tool: &Tool) -> Result<()> {
    check_grant(parent, tool)?;
    policy::ruling_for(parent.catalog(), tool).map(drop)
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
    call.report_step(stepping, CallOutcome::from_result(&result));
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
    log_outcome(call, tool, CallOutcome::from_result(&result));
    result
}

/// The Problem of a call that ran past its deadline.
fn timeout_problem(call: &Call, tool: &Tool) -> Problem {
    let limit = format_seconds(call.limits().timeout);
    Problem::new(ProblemCode::Timeout, format!("tool '{}' timed out after {limit}", tool.name))
}

fn log_outcome(call: &Call, tool: &Tool, outcome: CallOutcome) {
    tracing::debug!(
        target: "call",
        tool = tool.name,
        surface = call.caller().surface,
        depth = call.depth(),
        code = outcome.as_str(),
        trace_id = call.trace().map(|trace| tracing::field::display(trace.id_hex())),
    );
}

/// Until the call's deadline, which moves when the caller is asked something.
/// Who asks may be another task than this one, so nothing wakes it when the
/// deadline moves back: once it has moved, it looks by itself.
pub async fn run_until_deadline<F: Future>(call: &Call, body: F) -> Result<F::Output, ()> {
    let mut body = std::pin::pin!(body);
    let mut deadline = call.deadline();
    call.gateway().0.heartbeat.ensure_timer();
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
