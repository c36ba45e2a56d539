//! Agent scripts: the tool `execute`.
//!
//! compile → wait for sources that connect → check types → a VM of the pool → answer. The
//! script's calls are children of this very call, on record in its [`Run`], so
//! the answer can say what was called and said, however the script ended.

mod agent_functions;
pub(crate) mod answer_values;
mod execute_answer;
mod fork_encoding;
mod pending_sources;
mod plan_encoding;
mod run_start;
mod saved_script_call;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use moonlark_core::content::ToolAnswer;
use moonlark_core::limits::format_seconds;
use moonlark_core::schema::Schema;
use moonlark_core::tool::{CallScope, Source, SourceKind, ToolListing};
use moonlark_core::{Problem, ProblemCode, Result, Tool, Value};
use moonlark_gateway::CallOutcome;
use moonlark_gateway::gateway::run_until_deadline;
use moonlark_gateway::run::NewCallPolicy;
use moonlark_gateway::tool_body::ToolBody;
use moonlark_gateway::trace::SpanKind;
use moonlark_gateway::{Call, LogLevel, Run};
use serde_json::{Value as Json, json};
use tokio::time::Instant;

pub(crate) use agent_functions::add_agent_functions;
use run_start::{RunStart, StartedRun, begin_run};

use crate::check;
use crate::engine::LuauEngine;
use crate::run_trace::RunTracer;
use crate::script_unit::ScriptUnit;

/// What messages call the script.
pub(crate) const AGENT_SCRIPT_NAME: &str = "script";
/// Longest script that is compiled in passing, on the thread of the caller.
const MAX_INLINE_COMPILE_BYTES: usize = 16 * 1024;
/// More than the script has: to say how it ended.
const EXECUTE_GRACE_PERIOD: Duration = Duration::from_secs(5);

const EXECUTE_DESCRIPTION: &str = "Run a Luau script. sdk.source.fn({…}) calls a function and returns its value. \
     source.fn({…}), without sdk, starts it and returns a promise: p:await(), await_all{…}. \
     map_parallel(list, fn) gives a list. Failures raise; local results, errors = map_parallel(…) takes them. \
     Only what the script returns, and prints, comes back: combine and filter there.";

/// What agents' scripts may do and use.
pub struct ExecuteSettings {
    /// Its timeout is the time a script has that asks for none.
    pub scope: CallScope,
    pub check: LuauCheckMode,
    /// The most time that a script may ask for.
    pub max_timeout: Duration,
    /// Bytes of an answer; a longer one is kept, and shown in part.
    pub result: usize,
    /// Whether agents are told that scripts can be run by name.
    pub has_saved_scripts: bool,
}

/// What to do with a script that the type checker finds fault with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LuauCheckMode {
    /// Refuse it, before anything is called.
    #[default]
    Error,
    /// Say so in its log.
    Warn,
    Off,
}

impl LuauEngine {
    /// The tool that runs agents' scripts.
    pub fn execute_tool(&self, settings: impl Into<Arc<ExecuteSettings>>) -> Result<Tool> {
        let settings: Arc<ExecuteSettings> = settings.into();
        // Every word of it is in the context of every agent, all the time.
        let mut schema = json!({
            "type": "object",
            "properties": {
                "script": {"type": "string", "description": "Luau; \"\" with resume"},
                "timeout": {"type": "number", "description": "Seconds"},
                "plan": {"type": "boolean", "description": "Only say what it would change"},
                "resume": {"type": "string", "description": "A run or plan to go on with"},
                "fork": {"type": "string", "description": "A run whose answers to use again"},
            },
        });
        // It costs nobody anything where there are none.
        let saved = json!({
            "saved": {"type": "string", "description": "A function of sdk.scripts to run instead"},
            "arguments": {"type": "object", "description": "What it takes"},
        });
        if let (true, Json::Object(saved)) = (settings.has_saved_scripts, saved.clone()) {
            schema["properties"]["script"]["description"] =
                "Luau; \"\" with resume or saved".into();
            schema["properties"]
                .as_object_mut()
                .into_iter()
                .for_each(|it| it.extend(saved.clone()));
        }
        let mut told =
            json!({"name": "execute", "description": EXECUTE_DESCRIPTION, "inputSchema": schema});
        // Clients take no "one of the two" at the top of a schema, and nearly every
        // call has a script.
        told["inputSchema"]["required"] = json!(["script"]);
        // What is checked is more: also what is for people, after a crash. Names that
        // are not there are looked for by `begin`, which knows what is meant.
        schema["properties"]["timeout"]["exclusiveMinimum"] = 0.into();
        if let (Json::Object(saved), Some(fields)) = (saved, schema["properties"].as_object_mut()) {
            fields.extend(saved);
        }
        schema["properties"]["lost"] = json!({
            "description": "With resume: \"retry\" or \"assume-done\", for all calls that may have \
                            happened or for each place",
        });
        schema["properties"]["answers"] = json!({
            "type": "object",
            "description": "With resume: what calls that may have happened were answered, by place",
        });
        schema["properties"]["new_calls"] = json!({
            "enum": NewCallPolicy::ALL_POLICIES.map(NewCallPolicy::as_str),
            "description": "With fork: calls that are not on its record are collected (\"plan\", \
                            unless said otherwise), collected unless they only read (\"read\"), \
                            made (\"make\"), or stop the run (\"error\")",
        });
        schema["properties"]["trace"] = json!({
            "enum": ["calls", "lines"],
            "description": "With fork: make no call, put nothing on record, and say what variables \
                            hold at every call, or at every line",
        });
        schema["properties"]["again"] = json!({
            "type": "boolean",
            "description": "With resume of a plan: carry it out another time",
        });
        let Json::Object(schema) = schema else { return Err(Problem::internal("no object")) };
        let scope = script_tool_scope(&settings);
        let engine = self.clone();
        let body = ToolBody::from_answering_fn(move |call, args| {
            execute_script(engine.clone(), settings.clone(), call, args)
        });
        let source = Source { kind: SourceKind::Builtin, name: "moonlark".to_owned() };
        let mut tool =
            Tool::new("execute", Arc::new(source), Schema::of_builtin_tool(schema)?, body);
        tool.description = EXECUTE_DESCRIPTION.to_owned();
        if let Value::Object(told) = Value::from_json(told)? {
            tool.definition = Some(Arc::new(told));
        }
        tool.shown = ToolListing::InCodeMode;
        tool.only_calls = scope.grants.only_calls_tools();
        tool.scope = Arc::new(scope);
        Ok(tool)
    }
}

/// What a tool may do that runs agents' scripts, which have a time of their own.
fn script_tool_scope(settings: &ExecuteSettings) -> CallScope {
    let mut scope = settings.scope.clone();
    scope.limits.timeout = settings.max_timeout.max(scope.limits.timeout) + EXECUTE_GRACE_PERIOD;
    scope
}

async fn execute_script(
    engine: LuauEngine,
    settings: Arc<ExecuteSettings>,
    call: Call,
    args: Value,
) -> Result<ToolAnswer> {
    if args.get("saved").is_some_and(|saved| *saved != Value::Null) {
        return saved_script_call::call_saved_script(&settings, &call, &args).await;
    }
    match begin_run(&settings, &call, &args).await? {
        RunStart::Run(begun) => execute_run(engine, settings, call, begun).await,
        RunStart::Ended(answer) => answer,
    }
}

/// A run that has begun, for somebody who waits for it until it waits for a decision.
async fn execute_run(
    engine: LuauEngine,
    settings: Arc<ExecuteSettings>,
    call: Call,
    begun: StartedRun,
) -> Result<ToolAnswer> {
    let run = begun.run.clone();
    let mut running = Box::pin(run_to_end(engine, settings, call.clone(), begun));
    tokio::select! {
        biased;
        answer = &mut running => answer,
        // Nobody is there to decide: the run goes on when somebody has, without
        // whoever waits for it here.
        ticket = run.next_pending_ticket() => {
            call.release_admission();
            #[expect(
                clippy::disallowed_methods,
                reason = "it may wait for days; if the process ends first, the next resumes it"
            )]
            tokio::spawn(running);
            Err(ticket.into_problem())
        }
    }
}

/// The script from its first line to its answer.
async fn run_to_end(
    engine: LuauEngine,
    settings: Arc<ExecuteSettings>,
    call: Call,
    begun: StartedRun,
) -> Result<ToolAnswer> {
    let run = begun.run.clone();
    let time = run.recorded_time().map_or(begun.time, |time| time.min(settings.max_timeout));
    let spanning = call.start_span(|| SpanKind::Run(run.id()));
    let call = call.with_timeout(time).for_run(run.clone()).in_span(&spanning);
    let check = if begun.again { LuauCheckMode::Off } else { settings.check };
    let (script, tracer) = (begun.script.clone(), begun.tracer.clone());
    if let Some(tracer) = &tracer {
        tracer.set_secrets(run.shown_secrets().clone());
    }
    let checked = begun.checked.clone();
    let running = run_script(&engine, check, call.clone(), script, checked, tracer.clone());
    let ended = run_until_deadline(&call, running).await;
    let late = match &ended {
        Ok(ended) => ended.is_err() && Instant::now() >= call.deadline(),
        Err(()) => true,
    };
    let ended = match ended {
        // What it would change is known up to where it was stopped.
        Ok(ended) if run.is_result_unknown() && (ended.is_ok() || run.stop_problem().is_some()) => {
            Ok(plan_encoding::present_plan(&run, call.caller().surface))
        }
        Ok(Err(problem)) if run.stop_problem().is_some() => {
            Err(run.stop_problem().cloned().unwrap_or(problem))
        }
        Err(()) => Err(script_timeout_problem(time, settings.max_timeout, &run)),
        // The engine may notice first, or a call that had no more time either.
        Ok(Err(_)) if late => Err(script_timeout_problem(time, settings.max_timeout, &run)),
        Ok(ended) => ended,
    };
    let whole =
        (run.is_result_unknown() && ended.is_ok()).then(|| plan_encoding::encode_plan(&run));
    let mut answer = if begun.is_part {
        saved_script_call::answer_to_script(ended, &call)
    } else {
        execute_answer::build_answer(ended, &begun.script, &run, &call, settings.result)
    };
    if let Some(tracer) = tracer {
        if late {
            tracer.note_cut();
        }
        execute_answer::add_trace(&mut answer, &tracer, &begun.script, &run);
    }
    begun.end_run(&answer, whole);
    spanning.end_with(CallOutcome::from_result(&answer));
    answer
}

impl ExecuteSettings {
    /// The time that a script gets.
    fn script_timeout(&self, asked: Option<&Value>) -> Result<Duration> {
        let asked = match asked {
            Some(Value::Int(seconds)) => *seconds as f64,
            Some(Value::Float(seconds)) => *seconds,
            _ => return Ok(self.scope.limits.timeout),
        };
        // Also where it is no time at all: beyond what a duration can hold.
        match Duration::try_from_secs_f64(asked) {
            Ok(time) if time <= self.max_timeout => Ok(time),
            _ => {
                let most = format_seconds(self.max_timeout);
                Err(Problem::bad_request(format!("timeout: a script may take at most {most}"))
                    .with_hint("ask for less, or have execute.max_timeout raised in moonlark.toml"))
            }
        }
    }
}

async fn run_script(
    engine: &LuauEngine,
    check: LuauCheckMode,
    call: Call,
    script: String,
    checked: Option<Arc<str>>,
    tracer: Option<Arc<RunTracer>>,
) -> Result<Value> {
    let unit = Arc::new(compile_script(script, tracer.is_some()).await?);
    let call = pending_sources::wait_for_sources(call, unit.main().text()).await?;
    let checked = checked.as_deref().unwrap_or(unit.main().text());
    check_before_run(check, checked, &call).await?;
    let (engine_, call_) = (engine.clone(), call.clone());
    let (ended, open) = engine
        .run_preemptible(move |guard| async move {
            let mut vm = engine_.agent_vms()?.lease_vm(guard)?;
            let (ended, open) = vm.run_agent_script(&unit, &call_, tracer).await;
            Ok((vm.finish_run(ended), open))
        })
        .await?;
    if open > 0 {
        let calls = if open == 1 { "1 call".to_owned() } else { format!("{open} calls") };
        let said = format!("{calls} had not ended when the script did: cancelled");
        // Too much may have been said already; then this is not said.
        let _ = call.log_message(LogLevel::Warn, &said, None);
    }
    ended
}

async fn compile_script(script: String, to_trace: bool) -> Result<ScriptUnit> {
    let compile = if to_trace { ScriptUnit::from_text_to_trace } else { ScriptUnit::from_text };
    if script.len() <= MAX_INLINE_COMPILE_BYTES {
        return compile(AGENT_SCRIPT_NAME, script);
    }
    let compiled = tokio::task::spawn_blocking(move || compile(AGENT_SCRIPT_NAME, script)).await;
    compiled.unwrap_or_else(|_| Err(Problem::internal("the compiler failed")))
}

/// Refuse a script that the type checker finds fault with, or log what it says.
async fn check_before_run(mode: LuauCheckMode, script: &str, call: &Call) -> Result<()> {
    if mode == LuauCheckMode::Off {
        return Ok(());
    }
    let checked = check::check_script(script, call.catalog(), call.caller().name()).await;
    if mode == LuauCheckMode::Error
        && let Some(problem) = check::problem_from_findings(&checked.findings, AGENT_SCRIPT_NAME)
    {
        return Err(problem);
    }
    let warn = |at: String, said: String| {
        call.log_message(LogLevel::Warn, &format!("{AGENT_SCRIPT_NAME}:{at} {said}"), None)
    };
    for it in &checked.advice {
        let hint = it.hint.as_deref().unwrap_or_default();
        warn(format!("{}:", it.line), format!("{}; {hint}", it.message))?;
    }
    if let Some(why) = &checked.unchecked {
        warn(String::new(), format!("runs without a full check: {why}"))?;
    }
    checked
        .findings
        .iter()
        .try_for_each(|it| warn(format!("{}:{}:", it.line, it.column), it.message.clone()))
}

fn script_timeout_problem(time: Duration, most: Duration, run: &Run) -> Problem {
    let message = format!("the script timed out after {}", format_seconds(time));
    let waited: Vec<String> = run
        .steps()
        .into_iter()
        .filter(|step| {
            use CallOutcome::{Cancelled, Failed, Running};
            matches!(step.outcome, Running | Cancelled | Failed(ProblemCode::Timeout))
        })
        .map(|step| step.tool)
        .collect();
    let hint = match waited.as_slice() {
        [] => String::new(),
        [one] => format!("it was waiting for {one}; "),
        [one, rest @ ..] => format!("it was waiting for {one} and {} more; ", rest.len()),
    };
    let longer = if time < most {
        format!("ask for a longer timeout, of up to {}", format_seconds(most))
    } else {
        "have execute.max_timeout raised in moonlark.toml".to_owned()
    };
    let hint = format!("{hint}do less in one script, or {longer}");
    Problem::new(ProblemCode::Timeout, message).with_hint(hint)
}
