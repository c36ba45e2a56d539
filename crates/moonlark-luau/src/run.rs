//! Agent scripts: the tool `execute`.
//!
//! compile → wait for sources that connect → check types → a fresh VM → answer. The
//! script's calls are children of this very call, on record in its [`Run`], so
//! the answer can say what was called and said, however the script ended.

mod answer;
mod begin;
mod functions;
mod plan;
mod settled;
#[cfg(test)]
mod tests;
pub(crate) mod values;

use std::sync::Arc;
use std::time::Duration;

use moonlark_core::content::Answer;
use moonlark_core::gateway::in_time;
use moonlark_core::limits::seconds;
use moonlark_core::schema::Schema;
use moonlark_core::tool::{Body, Scope, Shown, Source, SourceKind};
use moonlark_core::trace::What;
use moonlark_core::{Call, Code, Level, Problem, Result, Run, Tool, Value};
use serde_json::{Value as Json, json};
use tokio::time::Instant;

use begin::{Beginning, Begun, begin};
pub(crate) use functions::functions;

use crate::check;
use crate::engine::Luau;
use crate::unit::Unit;
use crate::vm::Vm;

/// What messages call the script.
pub(crate) const SCRIPT: &str = "script";
/// Longest script that is compiled in passing, on the thread of the caller.
const SHORT: usize = 16 * 1024;
/// More than the script has: to say how it ended.
const GRACE: Duration = Duration::from_secs(5);

const DESCRIPTION: &str = "Run a Luau script. sdk.source.fn({…}) calls a function and returns its value. \
     source.fn({…}), without sdk, starts it and returns a promise: p:await(), await_all{…}. \
     map_parallel(list, fn) gives a list. Failures raise; local results, errors = map_parallel(…) takes them. \
     Only what the script returns, and prints, comes back: combine and filter there.";

/// What agents' scripts may do and use.
pub struct ExecuteSettings {
    /// Its timeout is the time a script has that asks for none.
    pub scope: Scope,
    pub check: Check,
    /// The most time that a script may ask for.
    pub max_timeout: Duration,
    /// Bytes of an answer; a longer one is kept, and shown in part.
    pub result: usize,
}

/// What to do with a script that the type checker finds fault with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Check {
    /// Refuse it, before anything is called.
    #[default]
    Error,
    /// Say so in its log.
    Warn,
    Off,
}

impl Luau {
    /// The tool that runs agents' scripts.
    pub fn execute_tool(&self, settings: ExecuteSettings) -> Result<Tool> {
        // Every word of it is in the context of every agent, all the time.
        let mut schema = json!({
            "type": "object",
            "properties": {
                "script": {"type": "string", "description": "Luau; \"\" with resume"},
                "timeout": {"type": "number", "description": "Seconds"},
                "plan": {"type": "boolean", "description": "Only say what it would change"},
                "resume": {"type": "string", "description": "A run or plan to go on with"},
            },
        });
        let mut told =
            json!({"name": "execute", "description": DESCRIPTION, "inputSchema": schema});
        // Clients take no "one of the two" at the top of a schema, and nearly every
        // call has a script.
        told["inputSchema"]["required"] = json!(["script"]);
        // What is checked is more: also what is for people, after a crash. Names that
        // are not there are looked for by `begin`, which knows what is meant.
        schema["properties"]["timeout"]["exclusiveMinimum"] = 0.into();
        schema["properties"]["lost"] = json!({
            "description": "With resume: \"retry\" or \"assume-done\", for all calls that may have \
                            happened or for each place",
        });
        schema["properties"]["answers"] = json!({
            "type": "object",
            "description": "With resume: what calls that may have happened were answered, by place",
        });
        schema["properties"]["again"] = json!({
            "type": "boolean",
            "description": "With resume of a plan: carry it out another time",
        });
        let Json::Object(schema) = schema else { return Err(Problem::internal("no object")) };
        let mut scope = settings.scope.clone();
        scope.limits.timeout = settings.max_timeout.max(scope.limits.timeout) + GRACE;
        let (engine, settings) = (self.clone(), Arc::new(settings));
        let body = Body::answering(move |call, args| {
            execute(engine.clone(), settings.clone(), call, args)
        });
        let source = Source { kind: SourceKind::Builtin, name: "moonlark".to_owned() };
        let mut tool = Tool::new("execute", Arc::new(source), Schema::compile(schema)?, body);
        tool.description = DESCRIPTION.to_owned();
        if let Value::Object(told) = Value::from_json(told)? {
            tool.definition = Some(Arc::new(told));
        }
        tool.shown = Shown::InCodeMode;
        tool.only_calls = scope.grants.only_calls();
        tool.scope = Arc::new(scope);
        Ok(tool)
    }
}

async fn execute(
    engine: Luau,
    settings: Arc<ExecuteSettings>,
    call: Call,
    args: Value,
) -> Result<Answer> {
    let begun = match begin(&settings, &call, &args).await? {
        Beginning::Run(begun) => begun,
        Beginning::Ended(answer) => return answer,
    };
    let run = begun.run.clone();
    let mut running = Box::pin(to_end(engine, settings, call.clone(), begun));
    tokio::select! {
        biased;
        answer = &mut running => answer,
        // Nobody is there to decide: the run goes on when somebody has, without
        // whoever waits for it here.
        ticket = run.waits() => {
            call.leave();
            tokio::spawn(running);
            Err(ticket.problem())
        }
    }
}

/// The script from its first line to its answer.
async fn to_end(
    engine: Luau,
    settings: Arc<ExecuteSettings>,
    call: Call,
    begun: Begun,
) -> Result<Answer> {
    let (run, time) = (begun.run.clone(), begun.time);
    let spanning = call.spanning(|| What::Run(run.id()));
    let call = call.within(time).for_run(run.clone()).under(&spanning);
    let check = if begun.again { Check::Off } else { settings.check };
    let script = begun.script.clone();
    let ended = in_time(&call, run_script(&engine, check, call.clone(), script)).await;
    let ended = match ended {
        // What it would change is known up to where it was stopped.
        Ok(ended) if run.is_plan() && (ended.is_ok() || run.stopped().is_some()) => {
            Ok(plan::shown(&run, call.caller().surface))
        }
        Ok(Err(problem)) if run.stopped().is_some() => {
            Err(run.stopped().cloned().unwrap_or(problem))
        }
        Err(()) => Err(timed_out(time, settings.max_timeout, &run)),
        // The engine may notice first, or a call that had no more time either.
        Ok(Err(_)) if Instant::now() >= call.deadline() => {
            Err(timed_out(time, settings.max_timeout, &run))
        }
        Ok(ended) => ended,
    };
    let whole = (run.is_plan() && ended.is_ok()).then(|| plan::written(&run));
    let answer = answer::of(ended, &begun.script, &run, &call, settings.result);
    begun.end(&answer, whole);
    spanning.end(answer.as_ref().map_or_else(|problem| problem.code.as_str(), |_| "ok"));
    answer
}

impl ExecuteSettings {
    /// The time that a script gets.
    fn time(&self, asked: Option<&Value>) -> Result<Duration> {
        let asked = match asked {
            Some(Value::Int(seconds)) => *seconds as f64,
            Some(Value::Float(seconds)) => *seconds,
            _ => return Ok(self.scope.limits.timeout),
        };
        // Also where it is no time at all: beyond what a duration can hold.
        match Duration::try_from_secs_f64(asked) {
            Ok(time) if time <= self.max_timeout => Ok(time),
            _ => {
                let most = seconds(self.max_timeout);
                Err(Problem::bad_request(format!("timeout: a script may take at most {most}"))
                    .hint("ask for less, or have execute.max_timeout raised in moonlark.toml"))
            }
        }
    }
}

async fn run_script(engine: &Luau, check: Check, call: Call, script: String) -> Result<Value> {
    let unit = Arc::new(compile(script).await?);
    let call = settled::settled(call, unit.main().text()).await?;
    checked(check, unit.main().text(), &call).await?;
    let (engine_, call_) = (engine.clone(), call.clone());
    let (ended, open) = engine
        .run(move |guard| async move {
            let mut vm = Vm::new(engine_.agents_prelude()?)?;
            guard.watch(vm.interrupt());
            let ended = vm.agents(&unit, &call_).await;
            guard.done();
            Ok(ended)
        })
        .await?;
    if open > 0 {
        let calls = if open == 1 { "1 call".to_owned() } else { format!("{open} calls") };
        let said = format!("{calls} had not ended when the script did: cancelled");
        // Too much may have been said already; then this is not said.
        let _ = call.log(Level::Warn, &said, None);
    }
    ended
}

async fn compile(script: String) -> Result<Unit> {
    if script.len() <= SHORT {
        return Unit::of_text(SCRIPT, script);
    }
    let compiled = tokio::task::spawn_blocking(move || Unit::of_text(SCRIPT, script)).await;
    compiled.unwrap_or_else(|_| Err(Problem::internal("the compiler failed")))
}

/// Refuse a script that the type checker finds fault with, or log what it says.
async fn checked(mode: Check, script: &str, call: &Call) -> Result<()> {
    if mode == Check::Off {
        return Ok(());
    }
    let checked = check::check_script(script, call.catalog(), call.caller().name()).await;
    if mode == Check::Error
        && let Some(problem) = check::problem(&checked.findings, SCRIPT)
    {
        return Err(problem);
    }
    for it in &checked.advice {
        let hint = it.hint.as_deref().unwrap_or_default();
        let said = format!("{SCRIPT}:{}: {}; {hint}", it.line, it.message);
        call.log(Level::Warn, &said, None)?;
    }
    if let Some(why) = &checked.unchecked {
        call.log(Level::Warn, &format!("{SCRIPT}: runs without a full check: {why}"), None)?;
    }
    checked.findings.iter().try_for_each(|it| {
        let said = format!("{SCRIPT}:{}:{}: {}", it.line, it.column, it.message);
        call.log(Level::Warn, &said, None)
    })
}

fn timed_out(time: Duration, most: Duration, run: &Run) -> Problem {
    let message = format!("the script timed out after {}", seconds(time));
    let waited: Vec<String> = run
        .steps()
        .into_iter()
        .filter(|step| matches!(step.outcome, "" | "cancelled" | "timeout"))
        .map(|step| step.tool)
        .collect();
    let hint = match waited.as_slice() {
        [] => String::new(),
        [one] => format!("it was waiting for {one}; "),
        [one, rest @ ..] => format!("it was waiting for {one} and {} more; ", rest.len()),
    };
    let longer = if time < most {
        format!("ask for a longer timeout, of up to {}", seconds(most))
    } else {
        "have execute.max_timeout raised in moonlark.toml".to_owned()
    };
    let hint = format!("{hint}do less in one script, or {longer}");
    Problem::new(Code::Timeout, message).hint(hint)
}
