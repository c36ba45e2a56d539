//! The start of a run: anew, as a plan, as one that carries out a plan, or resumed; and
//! how its end goes on record.
//!
//! All that must be the same when a run is resumed is decided here, and goes on
//! record before anything is called.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use moonlark_core::content::ToolAnswer;
use moonlark_core::module::unknown_parameter_problem;
use moonlark_core::record_id::RecordId;
use moonlark_core::{Problem, ProblemCode, Result, Value};
use moonlark_gateway::CallOutcome;
use moonlark_gateway::journal::{
    JournalEntry, JournalRecorder, RedactionScopes, RunBegan, RunEnded, RunRecord,
};
use moonlark_gateway::metrics::{GatewayMetrics, RunTimer};
use moonlark_gateway::run::{
    LostCallDecisions, LostCallPolicy, NewCallPolicy, RunFork, RunPlan, calls_in_doubt_problem,
};
use moonlark_gateway::{Call, Run};
use tokio::time::Instant;

use super::ExecuteSettings;
use super::plan_encoding;
use crate::run_trace::RunTracer;
use crate::saved_script::reading_script_name;

/// How often it is looked whether another has carried out a plan: at first, and
/// in the end.
const MIN_JOIN_POLL_INTERVAL: Duration = Duration::from_millis(20);
const MAX_JOIN_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// A run that is about to go on, or the answer of one that has ended.
pub(super) enum RunStart {
    Run(StartedRun),
    Ended(Result<ToolAnswer>),
}

pub(super) struct StartedRun {
    pub(super) run: Arc<Run>,
    pub(super) script: String,
    pub(super) time: Duration,
    /// It was there before, and its script was checked then.
    pub(super) again: bool,
    /// It is looked at.
    pub(super) tracer: Option<Arc<RunTracer>>,
    /// What the type check looks at, where that is not the script itself.
    pub(super) checked: Option<Arc<str>>,
    /// It is a part of another run, which gets its value and nothing beside.
    pub(super) is_part: bool,
    recorder: Option<Arc<dyn JournalRecorder>>,
    running: RunTimer,
    ended: bool,
}

/// What `execute` was asked for.
pub(super) async fn begin_run(
    settings: &ExecuteSettings,
    call: &Call,
    args: &Value,
) -> Result<RunStart> {
    refuse_unknown_parameters(args)?;
    let text = |name: &str| args.get(name).and_then(Value::as_str);
    let script = text("script").filter(|script| !script.is_empty() || text("resume").is_none());
    let time = settings.script_timeout(args.get("timeout"))?;
    if let Some(source) = text("fork") {
        return fork_run(call, source.parse()?, time, args).await;
    }
    if let Some(name) = ["new_calls", "trace"].into_iter().find(|name| args.get(name).is_some()) {
        return Err(Problem::bad_request(format!("{name} is for a fork"))
            .with_hint("name the run to fork: fork = \"ID\""));
    }
    match (script, text("resume")) {
        (Some(script), None) => {
            let mut seed = [0; 32];
            call.fill_random(&mut seed)?;
            let plan = args.get("plan") == Some(&Value::Bool(true));
            let began = RunBegan { plan, ..new_run_began(call, script, seed, time) };
            let run = Run::new(&began, call.limits());
            Ok(RunStart::Run(StartedRun::new(run, began, time, call).await))
        }
        (None, Some(id)) => {
            let decided = read_decisions(args.get("lost"), args.get("answers"))?;
            let again = args.get("again") == Some(&Value::Bool(true));
            resume_run(call, id.parse()?, time, decided, again).await
        }
        (None, None) => Err(Problem::bad_request("missing required parameter: script")
            .with_hint("write {\"script\": \"return 1\"}")),
        (Some(_), Some(_)) => Err(Problem::bad_request("execute takes either a script or resume")
            .with_hint("leave one of them out")),
    }
}

/// What callers write for `script` that have other tools in mind.
const SCRIPT_PARAMETER_ALIASES: [&str; 10] =
    ["code", "lua", "luau", "source", "program", "text", "input", "command", "query", "body"];

fn refuse_unknown_parameters(args: &Value) -> Result<()> {
    let Value::Object(fields) = args else { return Ok(()) };
    let known = [
        "script",
        "timeout",
        "plan",
        "resume",
        "fork",
        "new_calls",
        "trace",
        "lost",
        "answers",
        "again",
        "saved",
        "arguments",
    ];
    let Some(other) = fields.keys().find(|name| !known.contains(&name.as_str())) else {
        return Ok(());
    };
    if SCRIPT_PARAMETER_ALIASES.contains(&other.as_str()) && !fields.contains_key("script") {
        let message = format!("unknown parameter: {other}; missing required parameter: script");
        return Err(Problem::bad_request(message).with_hint("did you mean script?"));
    }
    Err(unknown_parameter_problem("execute", other, known.into_iter()))
}

/// A run of its own: this script, or the one of the run, on what that was answered.
async fn fork_run(call: &Call, id: RecordId, time: Duration, args: &Value) -> Result<RunStart> {
    for (name, why) in [
        ("resume", "a fork is a run of its own: resume goes on with one"),
        ("plan", "new_calls = \"plan\" is what a fork does unless another is named"),
        ("lost", "it is for a run that is resumed"),
        ("answers", "it is for a run that is resumed"),
        ("again", "it is for a plan that is carried out"),
    ] {
        if !matches!(args.get(name), None | Some(Value::Null | Value::Bool(false))) {
            let message = format!("execute takes either fork or {name}");
            return Err(Problem::bad_request(message).with_hint(why));
        }
    }
    let policy = match args.get("new_calls").and_then(Value::as_str) {
        None => NewCallPolicy::default(),
        Some(word) => NewCallPolicy::from_word(word).ok_or_else(|| {
            let words = NewCallPolicy::ALL_POLICIES.map(NewCallPolicy::as_str).join(", ");
            Problem::bad_request(format!("new_calls is one of {words}"))
        })?,
    };
    // Whether every line is looked at.
    let tracer = match args.get("trace").and_then(Value::as_str) {
        None => None,
        Some("calls") => Some(false),
        Some("lines") => Some(true),
        Some(_) => return Err(Problem::bad_request("trace is \"calls\" or \"lines\"")),
    };
    let Some(recorder) = call.gateway().recorder().cloned() else {
        return Err(Problem::unavailable("no journal is kept, so there is nothing to fork")
            .with_retryable(false));
    };
    let source = recorder.load_run(id).await?;
    check_may_resume(call, &source)?;
    refuse_incomplete_record(&source)?;
    // A run that carries out a plan has the clock of the plan.
    let clock = match source.began.follows {
        Some(plan) if source.began.fork.is_none() => {
            recorder.load_run(plan).await.map(|plan| plan.began.clock_start()).ok()
        }
        _ => None,
    };
    let clock = clock.unwrap_or_else(|| source.began.clock_start());
    let script = args.get("script").and_then(Value::as_str).filter(|text| !text.is_empty());
    let script = script.unwrap_or(&source.began.script);
    let fork = RunFork { source: id, clock, new_calls: policy };
    let began = RunBegan {
        plan: policy.is_plan(),
        fork: Some(fork.clone()),
        ..new_run_began(call, script, source.began.seed, time)
    };
    if let Some(tracer) = tracer {
        let run = Run::trace_of(&began, &fork, &source, call.limits());
        let mut begun = StartedRun::already_recorded(run, &began, time, call);
        (begun.recorder, begun.tracer) = (None, Some(RunTracer::new(script, tracer)));
        return Ok(RunStart::Run(begun));
    }
    let run = Run::fork_from(&began, &fork, &source, call.limits());
    Ok(RunStart::Run(StartedRun::new(run, began, time, call).await))
}

/// A run whose answers were removed to make room has nothing to run on.
fn refuse_incomplete_record(source: &RunRecord) -> Result<()> {
    let (id, removed) = (source.began.run, source.removed_calls);
    if removed == 0 {
        return Ok(());
    }
    let message = format!("the recorded answers of run {id} are gone: {removed} were removed");
    Err(Problem::new(ProblemCode::NotFound, message).with_hint(
        "the journal makes room when it grows beyond journal.size: raise that, and run the script anew",
    ))
}

/// A saved script, with its arguments in it, is to run. One that another run calls is a run
/// that belongs to the place of that call: if it was begun before, it goes on.
pub(super) async fn begin_saved_run(
    call: &Call,
    script: &str,
    time: Duration,
    plan: bool,
) -> Result<RunStart> {
    let mut seed = [0; 32];
    let Some((parent, at)) = call.made_at_site() else {
        call.fill_random(&mut seed)?;
        let began = RunBegan { plan, ..new_run_began(call, script, seed, time) };
        let run = Run::new(&began, call.limits());
        return Ok(RunStart::Run(StartedRun::new(run, began, time, call).await));
    };
    let (parent, id) = (parent.clone(), parent.child_id(at));
    let as_part = |start: RunStart| match start {
        RunStart::Run(mut begun) => {
            begun.run.set_parent(&parent);
            begun.is_part = true;
            RunStart::Run(begun)
        }
        ended => ended,
    };
    if let Some(recorder) = call.gateway().recorder() {
        match recorder.load_run(id).await {
            Ok(record) => {
                if let Some(answer) = recorded_answer(&record) {
                    return Ok(RunStart::Ended(answer));
                }
                let decided = LostCallDecisions::default();
                let start = continue_run(call, recorder, id, time, decided).await;
                // What cannot go on by itself stops all that it is a part of: another time, it can.
                if let Ok(RunStart::Ended(Err(problem))) | Err(problem) = &start {
                    parent.stop_with(problem.clone());
                }
                return start.map(as_part);
            }
            Err(problem) if problem.code == ProblemCode::NotFound => {}
            Err(problem) => return Err(problem),
        }
    }
    call.fill_random(&mut seed)?;
    let began = RunBegan { run: id, ..new_run_began(call, script, seed, time) };
    let run = Run::new(&began, call.limits());
    Ok(as_part(RunStart::Run(StartedRun::new(run, began, time, call).await)))
}

async fn resume_run(
    call: &Call,
    id: RecordId,
    time: Duration,
    decided: LostCallDecisions,
    again: bool,
) -> Result<RunStart> {
    let Some(recorder) = call.gateway().recorder().cloned() else {
        return Err(Problem::unavailable("no journal is kept, so there is nothing to resume")
            .with_retryable(false));
    };
    let record = recorder.load_run(id).await?;
    check_may_resume(call, &record)?;
    // A fork that has planned nothing has an answer and no plan.
    let has_answered = record.began.fork.is_some()
        && matches!(recorded_answer(&record), Some(Ok(ToolAnswer::Content(_))));
    if record.began.plan && !has_answered {
        return carry_out_plan(call, &recorder, record, time, decided, again).await;
    }
    if again {
        return Err(Problem::bad_request("again is for a plan, and this is a run")
            .with_hint("leave it out; execute with its script runs it anew"));
    }
    if let Some(answer) = recorded_answer(&record) {
        return Ok(RunStart::Ended(answer));
    }
    continue_run(call, &recorder, id, time, decided).await
}

/// The answer of a run that is over.
fn recorded_answer(record: &RunRecord) -> Option<Result<ToolAnswer>> {
    record.ended.as_ref()?.answer.clone()
}

/// A run that has stopped, from where it was.
async fn continue_run(
    call: &Call,
    recorder: &Arc<dyn JournalRecorder>,
    id: RecordId,
    time: Duration,
    decided: LostCallDecisions,
) -> Result<RunStart> {
    let record = recorder.take_over_run(id).await?;
    let plan = match record.began.follows {
        Some(plan) => Some(recorded_plan(&recorder.load_run(plan).await?)?),
        None => None,
    };
    let doubt = calls_in_doubt_problem(&record, &decided);
    let run = match &record.began.fork {
        Some(fork) => {
            let source = recorder.load_run(fork.source).await?;
            Run::resume_fork(&record, fork, &source, decided, call.limits())
        }
        None => Run::resume_from(&record, decided, plan, call.limits()),
    };
    let recorder = Some(recorder.clone());
    let script = record.began.script;
    let running = GatewayMetrics::start_run(call.gateway());
    let mut begun = StartedRun::unrecorded(run, script, time, running, recorder);
    begun.again = true;
    // Before anything else: the script may come to its end without waiting for it.
    if let Some(problem) = doubt {
        let problem = Err(begun.run.stop_with(problem));
        begun.end_run(&problem, None);
        return Ok(RunStart::Ended(problem));
    }
    Ok(RunStart::Run(begun))
}

/// A word for all calls that may have happened, or one for each place; and the
/// answers that calls at some places are to have had.
fn read_decisions(lost: Option<&Value>, answers: Option<&Value>) -> Result<LostCallDecisions> {
    let mut decided = read_lost_decisions(lost)?;
    match answers {
        None | Some(Value::Null) => {}
        Some(Value::Object(answers)) => {
            for (at, answer) in answers {
                decided.places.insert(at.clone(), LostCallPolicy::AnsweredWith(answer.clone()));
            }
        }
        Some(_) => {
            return Err(Problem::bad_request("answers is a table with an answer for each place")
                .with_hint("write {\"2\": {\"id\": 7}}"));
        }
    }
    Ok(decided)
}

fn read_lost_decisions(lost: Option<&Value>) -> Result<LostCallDecisions> {
    let decision = |word: Option<&str>| match word {
        Some("retry") => Ok(LostCallPolicy::Retry),
        Some("assume-done") => Ok(LostCallPolicy::AssumeDone),
        _ => Err(Problem::bad_request(
            "lost is \"retry\", \"assume-done\", or one of them for each place",
        )),
    };
    match lost {
        None | Some(Value::Null) => Ok(LostCallDecisions::default()),
        Some(Value::Object(places)) => {
            let places = places.iter().map(|(at, word)| Ok((at.clone(), decision(word.as_str())?)));
            Ok(LostCallDecisions {
                places: places.collect::<Result<_>>()?,
                ..LostCallDecisions::default()
            })
        }
        Some(word) => Ok(LostCallDecisions {
            others: decision(word.as_str())?,
            ..LostCallDecisions::default()
        }),
    }
}

/// Whoever began a run may go on with it, and whoever is at this machine.
fn check_may_resume(call: &Call, record: &RunRecord) -> Result<()> {
    let (now, then) = (call.caller(), &record.began.caller);
    let at_home = now.name.is_none() && !matches!(now.surface, "mcp" | "rest");
    if at_home || now.name() == then.name() {
        return Ok(());
    }
    // To others it is as if it were not there.
    let id = record.began.run;
    Err(Problem::new(ProblemCode::NotFound, format!("there is no run {id}"))
        .with_hint("`moonlark runs` lists them"))
}

/// A run of its own: the script again, and what is in the plan is done. Once: who
/// asks another time, because the answer was late or lost, gets that of the run
/// that did it, or goes on with it.
async fn carry_out_plan(
    call: &Call,
    recorder: &Arc<dyn JournalRecorder>,
    plan: RunRecord,
    time: Duration,
    decided: LostCallDecisions,
    again: bool,
) -> Result<RunStart> {
    let RunBegan { run: planned, script, seed, .. } = &plan.began;
    let began = RunBegan { follows: Some(*planned), ..new_run_began(call, script, *seed, time) };
    let run = Run::follow_plan(&began, recorded_plan(&plan)?, call.limits());
    if let Some(earlier) = recorder.claim_plan_run(began.clone(), again).await? {
        return join_plan_run(call, recorder, earlier, time, decided).await;
    }
    let mut begun = StartedRun::already_recorded(run, &began, time, call);
    begun.again = true;
    Ok(RunStart::Run(begun))
}

/// The answer of a run that carries out a plan, when it has one; or the rest of
/// it, if it has stopped.
async fn join_plan_run(
    call: &Call,
    recorder: &Arc<dyn JournalRecorder>,
    id: RecordId,
    time: Duration,
    decided: LostCallDecisions,
) -> Result<RunStart> {
    let mut pause = MIN_JOIN_POLL_INTERVAL;
    loop {
        let record = recorder.load_run(id).await?;
        if let Some(answer) = recorded_answer(&record) {
            return Ok(RunStart::Ended(answer));
        }
        match continue_run(call, recorder, id, time, decided.clone()).await {
            // Somebody else is at it, here or in another process.
            Err(problem) if problem.code == ProblemCode::BadRequest && record.paused.is_none() => {
                if Instant::now() + pause >= call.deadline() {
                    return Err(problem);
                }
            }
            other => return other,
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MAX_JOIN_POLL_INTERVAL);
    }
}

fn recorded_plan(record: &RunRecord) -> Result<RunPlan> {
    let id = record.began.run;
    let answer = record.ended.as_ref().and_then(|ended| ended.answer.as_ref());
    match answer {
        Some(Ok(ToolAnswer::Value(planned))) => {
            Ok(RunPlan::from_record(record, plan_encoding::decode_plan(planned)?))
        }
        Some(_) => {
            Err(Problem::bad_request(format!("run {id} has failed, so there is no plan to follow"))
                .with_hint("make the plan again: execute with plan = true"))
        }
        None => Err(Problem::bad_request(format!("the plan {id} was never finished"))
            .with_hint("make it again: execute with plan = true")),
    }
}

fn new_run_began(call: &Call, script: &str, seed: [u8; 32], time: Duration) -> RunBegan {
    // As the journal keeps it: the script must see the same time again.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Duration::from_micros(u64::try_from(now.as_micros()).unwrap_or(u64::MAX));
    RunBegan {
        run: RecordId::new(),
        call: call.id(),
        caller: call.caller().clone(),
        at: UNIX_EPOCH + now,
        script: script.to_owned(),
        timeout: Some(time),
        seed,
        plan: false,
        follows: None,
        fork: None,
        secrets: RedactionScopes([call.scope().clone(), Arc::default()]),
    }
}

impl StartedRun {
    async fn new(run: Arc<Run>, began: RunBegan, time: Duration, call: &Call) -> StartedRun {
        let begun = StartedRun::already_recorded(run, &began, time, call);
        if let Some(recorder) = &begun.recorder {
            if let Some(room) = recorder.wait_for_room() {
                room.await;
            }
            recorder.record_entry(JournalEntry::RunBegan(began));
        }
        begun
    }

    /// One whose beginning is on record.
    fn already_recorded(
        run: Arc<Run>,
        began: &RunBegan,
        time: Duration,
        call: &Call,
    ) -> StartedRun {
        let recorder = call.gateway().recorder().cloned();
        let script = began.script.clone();
        let running = GatewayMetrics::start_run(call.gateway());
        StartedRun::unrecorded(run, script, time, running, recorder)
    }

    fn unrecorded(
        run: Arc<Run>,
        script: String,
        time: Duration,
        running: RunTimer,
        recorder: Option<Arc<dyn JournalRecorder>>,
    ) -> StartedRun {
        if let Some(name) = reading_script_name(&script) {
            run.hold_to_reading(name);
        }
        StartedRun {
            run,
            script,
            time,
            again: false,
            tracer: None,
            checked: None,
            is_part: false,
            recorder,
            running,
            ended: false,
        }
    }

    /// The run has ended, with what `execute` answers. One that was stopped has no
    /// answer on record, because it can go on; nor has one that failed with an
    /// answer that somebody gave, who may give another.
    pub(super) fn end_run(mut self, answer: &Result<ToolAnswer>, on_record: Option<Value>) {
        let failed = answer.as_ref().err().filter(|_| self.run.has_assumed_answers());
        let stopped = self.run.stop_problem().filter(|_| !self.run.is_plan()).or(failed);
        let answer = match stopped {
            Some(_) => None,
            None => Some(on_record.map_or_else(|| answer.clone(), |it| Ok(ToolAnswer::Value(it)))),
        };
        match (stopped.cloned(), answer) {
            (Some(problem), _) => self.record_end(problem.code.into(), Some(problem.message), None),
            (None, Some(Err(problem))) => {
                let message = Some(problem.message.clone());
                self.record_end(problem.code.into(), message, Some(Err(problem)));
            }
            (None, answer) => self.record_end(CallOutcome::Ok, None, answer),
        }
    }

    fn record_end(
        &mut self,
        outcome: CallOutcome,
        message: Option<String>,
        answer: Option<Result<ToolAnswer>>,
    ) {
        self.ended = true;
        self.running.end_run(outcome);
        let Some(recorder) = &self.recorder else { return };
        let (run, took) = (self.run.id(), self.run.elapsed());
        recorder.record_entry(JournalEntry::RunEnded(RunEnded {
            run,
            took,
            outcome,
            message,
            answer,
        }));
    }
}

impl Drop for StartedRun {
    fn drop(&mut self) {
        if !self.ended {
            self.record_end(CallOutcome::Cancelled, None, None);
        }
    }
}
