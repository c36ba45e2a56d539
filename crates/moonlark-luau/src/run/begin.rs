//! How an agent's script begins: anew, as a plan, as one that carries out a plan,
//! or where it was interrupted. And how its end goes on record.
//!
//! All that must be the same when a run is resumed is decided here, and goes on
//! record before anything is called.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use moonlark_core::content::Answer;
use moonlark_core::journal::{Entry, Id, Recorder, RunBegan, RunEnded, RunRecord, Secrecy};
use moonlark_core::metrics::{Metrics, Running};
use moonlark_core::module::unknown_parameter;
use moonlark_core::run::{Decisions, Lost, Plan, in_doubt};
use moonlark_core::{Call, Code, Problem, Result, Run, Value};
use tokio::time::Instant;

use super::ExecuteSettings;
use super::plan;

/// How often it is looked whether another has carried out a plan: at first, and
/// in the end.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LAST_LOOK: Duration = Duration::from_millis(500);

/// A run that is about to go on, or the answer of one that has ended.
pub(super) enum Beginning {
    Run(Begun),
    Ended(Result<Answer>),
}

pub(super) struct Begun {
    pub(super) run: Arc<Run>,
    pub(super) script: String,
    pub(super) time: Duration,
    /// It was there before, and its script was checked then.
    pub(super) again: bool,
    recorder: Option<Arc<dyn Recorder>>,
    running: Running,
    ended: bool,
}

/// What `execute` was asked for.
pub(super) async fn begin(
    settings: &ExecuteSettings,
    call: &Call,
    args: &Value,
) -> Result<Beginning> {
    refuse_unknown(args)?;
    let text = |name: &str| args.get(name).and_then(Value::as_str);
    let script = text("script").filter(|script| !script.is_empty() || text("resume").is_none());
    let time = settings.time(args.get("timeout"))?;
    match (script, text("resume")) {
        (Some(script), None) => {
            let mut seed = [0; 32];
            call.random(&mut seed)?;
            let plan = args.get("plan") == Some(&Value::Bool(true));
            let began = RunBegan { plan, ..began(call, script, seed, time) };
            let run = Run::of(&began, call.limits());
            Ok(Beginning::Run(Begun::new(run, began, time, call).await))
        }
        (None, Some(id)) => {
            let decided = decisions(args.get("lost"), args.get("answers"))?;
            let again = args.get("again") == Some(&Value::Bool(true));
            resume(call, id.parse()?, time, decided, again).await
        }
        (None, None) => Err(Problem::bad_request("missing required parameter: script")
            .hint("write {\"script\": \"return 1\"}")),
        (Some(_), Some(_)) => Err(Problem::bad_request("execute takes either a script or resume")
            .hint("leave one of them out")),
    }
}

/// What callers write for `script` that have other tools in mind.
const WORDS_FOR_SCRIPT: [&str; 10] =
    ["code", "lua", "luau", "source", "program", "text", "input", "command", "query", "body"];

fn refuse_unknown(args: &Value) -> Result<()> {
    let Value::Object(fields) = args else { return Ok(()) };
    let known = ["script", "timeout", "plan", "resume", "lost", "answers", "again"];
    let Some(other) = fields.keys().find(|name| !known.contains(&name.as_str())) else {
        return Ok(());
    };
    if WORDS_FOR_SCRIPT.contains(&other.as_str()) && !fields.contains_key("script") {
        let message = format!("unknown parameter: {other}; missing required parameter: script");
        return Err(Problem::bad_request(message).hint("did you mean script?"));
    }
    Err(unknown_parameter("execute", other, known.into_iter()))
}

async fn resume(
    call: &Call,
    id: Id,
    time: Duration,
    decided: Decisions,
    again: bool,
) -> Result<Beginning> {
    let Some(recorder) = call.gateway().recorder().cloned() else {
        return Err(Problem::unavailable("no journal is kept, so there is nothing to resume")
            .retryable_if(false));
    };
    let record = recorder.run(id).await?;
    may_resume(call, &record)?;
    if record.began.plan {
        return carry_out(call, &recorder, record, time, decided, again).await;
    }
    if again {
        return Err(Problem::bad_request("again is for a plan, and this is a run")
            .hint("leave it out; execute with its script runs it anew"));
    }
    if let Some(answer) = ended(&record) {
        return Ok(Beginning::Ended(answer));
    }
    go_on(call, &recorder, id, time, decided).await
}

/// The answer of a run that is over.
fn ended(record: &RunRecord) -> Option<Result<Answer>> {
    record.ended.as_ref()?.answer.clone()
}

/// A run that has stopped, from where it was.
async fn go_on(
    call: &Call,
    recorder: &Arc<dyn Recorder>,
    id: Id,
    time: Duration,
    decided: Decisions,
) -> Result<Beginning> {
    let record = recorder.take_over(id).await?;
    let plan = match record.began.follows {
        Some(plan) => Some(plan_of(&recorder.run(plan).await?)?),
        None => None,
    };
    let doubt = in_doubt(&record, &decided);
    let run = Run::again(&record, decided, plan, call.limits());
    let recorder = Some(recorder.clone());
    let script = record.began.script;
    let running = Metrics::run_began(call.gateway());
    let begun = Begun { run, script, time, again: true, recorder, running, ended: false };
    // Before anything else: the script may come to its end without waiting for it.
    if let Some(problem) = doubt {
        let problem = Err(begun.run.stop(problem));
        begun.end(&problem, None);
        return Ok(Beginning::Ended(problem));
    }
    Ok(Beginning::Run(begun))
}

/// A word for all calls that may have happened, or one for each place; and the
/// answers that calls at some places are to have had.
fn decisions(lost: Option<&Value>, answers: Option<&Value>) -> Result<Decisions> {
    let mut decided = words(lost)?;
    match answers {
        None | Some(Value::Null) => {}
        Some(Value::Object(answers)) => {
            for (at, answer) in answers {
                decided.places.insert(at.clone(), Lost::AnsweredWith(answer.clone()));
            }
        }
        Some(_) => {
            return Err(Problem::bad_request("answers is a table with an answer for each place")
                .hint("write {\"2\": {\"id\": 7}}"));
        }
    }
    Ok(decided)
}

fn words(lost: Option<&Value>) -> Result<Decisions> {
    let decision = |word: Option<&str>| match word {
        Some("retry") => Ok(Lost::Retry),
        Some("assume-done") => Ok(Lost::AssumeDone),
        _ => Err(Problem::bad_request(
            "lost is \"retry\", \"assume-done\", or one of them for each place",
        )),
    };
    match lost {
        None | Some(Value::Null) => Ok(Decisions::default()),
        Some(Value::Object(places)) => {
            let places = places.iter().map(|(at, word)| Ok((at.clone(), decision(word.as_str())?)));
            Ok(Decisions { places: places.collect::<Result<_>>()?, ..Decisions::default() })
        }
        Some(word) => Ok(Decisions { others: decision(word.as_str())?, ..Decisions::default() }),
    }
}

/// Whoever began a run may go on with it, and whoever is at this machine.
fn may_resume(call: &Call, record: &RunRecord) -> Result<()> {
    let (now, then) = (call.caller(), &record.began.caller);
    let at_home = now.name.is_none() && !matches!(now.surface, "mcp" | "rest");
    if at_home || now.name() == then.name() {
        return Ok(());
    }
    // To others it is as if it were not there.
    let id = record.began.run;
    Err(Problem::new(Code::NotFound, format!("there is no run {id}"))
        .hint("`moonlark runs` lists them"))
}

/// A run of its own: the script again, and what is in the plan is done. Once: who
/// asks another time, because the answer was late or lost, gets that of the run
/// that did it, or goes on with it.
async fn carry_out(
    call: &Call,
    recorder: &Arc<dyn Recorder>,
    plan: RunRecord,
    time: Duration,
    decided: Decisions,
    again: bool,
) -> Result<Beginning> {
    let RunBegan { run: planned, script, seed, .. } = &plan.began;
    let began = RunBegan { follows: Some(*planned), ..began(call, script, *seed, time) };
    let run = Run::following(&began, plan_of(&plan)?, call.limits());
    if let Some(earlier) = recorder.carry_out(began.clone(), again).await? {
        return join(call, recorder, earlier, time, decided).await;
    }
    let mut begun = Begun::on_record(run, &began, time, call);
    begun.again = true;
    Ok(Beginning::Run(begun))
}

/// The answer of a run that carries out a plan, when it has one; or the rest of
/// it, if it has stopped.
async fn join(
    call: &Call,
    recorder: &Arc<dyn Recorder>,
    id: Id,
    time: Duration,
    decided: Decisions,
) -> Result<Beginning> {
    let mut pause = FIRST_LOOK;
    loop {
        let record = recorder.run(id).await?;
        if let Some(answer) = ended(&record) {
            return Ok(Beginning::Ended(answer));
        }
        match go_on(call, recorder, id, time, decided.clone()).await {
            // Somebody else is at it, here or in another process.
            Err(problem) if problem.code == Code::BadRequest && record.paused.is_none() => {
                if Instant::now() + pause >= call.deadline() {
                    return Err(problem);
                }
            }
            other => return other,
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LAST_LOOK);
    }
}

fn plan_of(record: &RunRecord) -> Result<Plan> {
    let id = record.began.run;
    let answer = record.ended.as_ref().and_then(|ended| ended.answer.as_ref());
    match answer {
        Some(Ok(Answer::Value(planned))) => Ok(Plan::of(record, plan::read(planned)?)),
        Some(_) => {
            Err(Problem::bad_request(format!("run {id} has failed, so there is no plan to follow"))
                .hint("make the plan again: execute with plan = true"))
        }
        None => Err(Problem::bad_request(format!("the plan {id} was never finished"))
            .hint("make it again: execute with plan = true")),
    }
}

fn began(call: &Call, script: &str, seed: [u8; 32], time: Duration) -> RunBegan {
    // As the journal keeps it: the script must see the same time again.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = Duration::from_micros(u64::try_from(now.as_micros()).unwrap_or(u64::MAX));
    RunBegan {
        run: Id::new(),
        call: call.id(),
        caller: call.caller().clone(),
        at: UNIX_EPOCH + now,
        script: script.to_owned(),
        timeout: Some(time),
        seed,
        plan: false,
        follows: None,
        secrets: Secrecy([call.scope().clone(), Arc::default()]),
    }
}

impl Begun {
    async fn new(run: Arc<Run>, began: RunBegan, time: Duration, call: &Call) -> Begun {
        let begun = Begun::on_record(run, &began, time, call);
        if let Some(recorder) = &begun.recorder {
            if let Some(room) = recorder.room() {
                room.await;
            }
            recorder.record(Entry::RunBegan(began));
        }
        begun
    }

    /// One whose beginning is on record.
    fn on_record(run: Arc<Run>, began: &RunBegan, time: Duration, call: &Call) -> Begun {
        let recorder = call.gateway().recorder().cloned();
        let script = began.script.clone();
        let running = Metrics::run_began(call.gateway());
        Begun { run, script, time, again: false, recorder, running, ended: false }
    }

    /// The run has ended, with what `execute` answers. One that was stopped has no
    /// answer on record, because it can go on; nor has one that failed with an
    /// answer that somebody gave, who may give another.
    pub(super) fn end(mut self, answer: &Result<Answer>, on_record: Option<Value>) {
        let failed = answer.as_ref().err().filter(|_| self.run.has_assumed());
        let stopped = self.run.stopped().filter(|_| !self.run.is_plan()).or(failed);
        let answer = match stopped {
            Some(_) => None,
            None => Some(on_record.map_or_else(|| answer.clone(), |it| Ok(Answer::Value(it)))),
        };
        match (stopped.cloned(), answer) {
            (Some(problem), _) => self.finish(problem.code.as_str(), Some(problem.message), None),
            (None, Some(Err(problem))) => {
                let message = Some(problem.message.clone());
                self.finish(problem.code.as_str(), message, Some(Err(problem)));
            }
            (None, answer) => self.finish("ok", None, answer),
        }
    }

    fn finish(
        &mut self,
        outcome: &'static str,
        message: Option<String>,
        answer: Option<Result<Answer>>,
    ) {
        self.ended = true;
        self.running.end(outcome);
        let Some(recorder) = &self.recorder else { return };
        let (run, took) = (self.run.id(), self.run.elapsed());
        recorder.record(Entry::RunEnded(RunEnded { run, took, outcome, message, answer }));
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        if !self.ended {
            self.finish("cancelled", None, None);
        }
    }
}
