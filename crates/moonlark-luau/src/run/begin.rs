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
use moonlark_core::run::{Decisions, Lost, Plan, in_doubt};
use moonlark_core::{Call, Code, Problem, Result, Run, Value};

use super::ExecuteSettings;
use super::plan;

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
    let text = |name: &str| args.get(name).and_then(Value::as_str);
    let time = settings.time(args.get("timeout"))?;
    match (text("script"), text("resume")) {
        (Some(script), None) => {
            let mut seed = [0; 32];
            call.random(&mut seed)?;
            let plan = args.get("plan") == Some(&Value::Bool(true));
            let began = RunBegan { plan, ..began(call, script, seed, time) };
            let run = Run::of(&began, call.limits());
            Ok(Beginning::Run(Begun::new(run, began, time, call).await))
        }
        (None, Some(id)) => {
            let decided = decisions(args.get("lost"))?;
            resume(call, id.parse()?, time, decided).await
        }
        _ => Err(Problem::bad_request("execute takes either a script or resume")
            .hint("write {\"script\": \"return 1\"}")),
    }
}

async fn resume(call: &Call, id: Id, time: Duration, decided: Decisions) -> Result<Beginning> {
    let Some(recorder) = call.gateway().recorder().cloned() else {
        return Err(Problem::unavailable("no journal is kept, so there is nothing to resume")
            .retryable_if(false));
    };
    let record = recorder.run(id).await?;
    may_resume(call, &record)?;
    if record.began.plan {
        return carry_out(call, record, time).await;
    }
    if let Some(answer) = record.ended.as_ref().and_then(|ended| ended.answer.clone()) {
        return Ok(Beginning::Ended(answer));
    }
    let record = recorder.take_over(id).await?;
    let plan = match record.began.follows {
        Some(plan) => Some(plan_of(&recorder.run(plan).await?)?),
        None => None,
    };
    let doubt = in_doubt(&record, &decided);
    let run = Run::again(&record, decided, plan, call.limits());
    let recorder = Some(recorder);
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

/// A word for all calls that may have happened, or one for each place.
fn decisions(lost: Option<&Value>) -> Result<Decisions> {
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

/// A run of its own: the script again, and what is in the plan is done.
async fn carry_out(call: &Call, plan: RunRecord, time: Duration) -> Result<Beginning> {
    let RunBegan { run, script, seed, .. } = &plan.began;
    let began = RunBegan { follows: Some(*run), ..began(call, script, *seed, time) };
    let run = Run::following(&began, plan_of(&plan)?, call.limits());
    let mut begun = Begun::new(run, began, time, call).await;
    begun.again = true;
    Ok(Beginning::Run(begun))
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
        let recorder = call.gateway().recorder().cloned();
        let script = began.script.clone();
        if let Some(recorder) = &recorder {
            if let Some(room) = recorder.room() {
                room.await;
            }
            recorder.record(Entry::RunBegan(began));
        }
        let running = Metrics::run_began(call.gateway());
        Begun { run, script, time, again: false, recorder, running, ended: false }
    }

    /// The run has ended, with what `execute` answers. One that was stopped has no
    /// answer on record, because it can go on.
    pub(super) fn end(mut self, answer: &Result<Answer>, on_record: Option<Value>) {
        let stopped = self.run.stopped().filter(|_| !self.run.is_plan());
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
