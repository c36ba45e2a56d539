//! The Starlark engine: worker processes, kept ready, one job at a time each.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use moonlark_core::files::Files;
use moonlark_core::gateway::Started;
use moonlark_core::module::Function;
use moonlark_core::tool::BoxFuture;
use moonlark_core::{Call, Level, Module, Problem, Result, Value};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::process::Process;
pub(crate) use crate::wire::Script;
use crate::wire::{Job, Kind, Order, Report};

/// Processes at once. More calls than that wait for their turn.
const MOST: usize = 64;
/// Of those, for one extension: its calls wait for each other before anybody
/// else's do.
pub(crate) const MOST_OF_ONE: usize = 16;
/// More processes, for what extensions call: were they to wait for a turn, all
/// turns could be held by callers that wait.
const MOST_INSIDE: usize = 64;

/// Extensions that load at once. Whoever loads many starts them one after another;
/// those that take long must not keep the others from being loaded.
const LOADS: usize = 20;
/// Processes kept for the next calls.
const KEPT: usize = 16;
/// How long, when no call comes.
const REST: Duration = Duration::from_secs(30);
/// Processes always kept ready.
const READY: usize = 1;

tokio::task_local! {
    /// Set while a call is answered that a Starlark script made.
    static INSIDE: ();
}

/// Cheap to clone; all clones are the same engine.
#[derive(Clone)]
pub struct Starlark(Arc<Inner>);

struct Inner {
    /// Our own binary.
    program: PathBuf,
    functions: Vec<Function>,
    /// Last used last, with when that was.
    idle: Mutex<Vec<(Process, Instant)>>,
    /// Somebody looks after those that are not needed any more.
    tidying: AtomicBool,
    starting: AtomicUsize,
    turns: Semaphore,
    inside: Semaphore,
    loads: Semaphore,
    units: AtomicU64,
}

impl Starlark {
    /// `program` is a Moonlark binary: it serves as its own worker.
    pub fn new(program: PathBuf, modules: &[Module]) -> Starlark {
        Starlark(Arc::new(Inner {
            program,
            functions: functions(modules).cloned().collect(),
            idle: Mutex::default(),
            tidying: AtomicBool::new(false),
            starting: AtomicUsize::new(0),
            turns: Semaphore::new(MOST),
            inside: Semaphore::new(MOST_INSIDE),
            loads: Semaphore::new(LOADS),
            units: AtomicU64::new(0),
        }))
    }

    /// A version of a script, which workers that have loaded it can keep.
    pub(crate) fn script(&self, folder: String, main: String) -> Script {
        Script { unit: self.0.units.fetch_add(1, Ordering::Relaxed), folder, main }
    }

    /// One of the places for extensions that load.
    pub(crate) async fn turn_to_load(&self) -> Option<SemaphorePermit<'_>> {
        self.0.loads.acquire().await.ok()
    }

    /// Do one job in a worker. Dropping the future kills the worker.
    pub(crate) async fn run(
        &self,
        call: &Call,
        script: &Script,
        kind: Kind,
        files: &Files,
    ) -> Result<Value> {
        let _turn = self.turn().await?;
        let limits = call.limits();
        let job = Job {
            script: script.clone(),
            kind,
            memory: limits.memory,
            value: limits.value,
            steps: limits.steps,
        };
        let mut worker = self.take()?;
        let mut order = Order::Job(job);
        let mut again = false;
        loop {
            let alive = worker.send(&order).await?.is_some();
            let report = if alive { worker.receive().await? } else { None };
            let Some(report) = report else {
                let death = worker.post_mortem(limits.memory).await;
                // It had asked for nothing yet, so nothing has happened.
                if death.by_others && !again && matches!(order, Order::Job(_)) {
                    again = true;
                    worker = Process::start(&self.0.program)?;
                    continue;
                }
                return Err(death.problem);
            };
            let answer = match report {
                Report::Done { reply, clean } => {
                    if clean {
                        self.give_back(worker);
                    }
                    return reply.map_err(Problem::from);
                }
                report => INSIDE.scope((), self.answer(call, report, files)).await,
            };
            order = Order::Answer(answer.map_err(Into::into));
        }
    }

    async fn turn(&self) -> Result<SemaphorePermit<'_>> {
        if is_inside() {
            return self.0.inside.try_acquire().map_err(|_| {
                Problem::unavailable("too many extensions call each other at the moment")
                    .hint("try again, or load() the other extension's functions instead")
            });
        }
        let turn = self.0.turns.acquire().await;
        turn.map_err(|_| Problem::internal("the engine has stopped"))
    }

    /// What the script asked for, by the gateway.
    async fn answer(&self, call: &Call, report: Report, files: &Files) -> Result<Value> {
        let wait = |started: Started| -> BoxFuture<Result<Value>> {
            match started {
                Started::Done(result) => Box::pin(std::future::ready(result)),
                Started::Running(future) => future,
            }
        };
        match report {
            Report::Host { function, args } => match self.0.functions.get(function) {
                Some(function) => wait(call.gateway().start(call, &function.tool, args)).await,
                None => Err(Problem::internal("a script asked for an unknown host function")),
            },
            Report::Tool { name, args } => {
                wait(call.gateway().start_named(call, &name, args)).await
            }
            Report::Print { text } => call.log(Level::Info, &text, None).map(|()| Value::Null),
            Report::Read { path } => files(&path).map(Value::from),
            Report::Done { .. } => Ok(Value::Null),
        }
    }

    fn take(&self) -> Result<Process> {
        let kept = self.0.idle.lock().pop();
        let worker = match kept {
            Some((worker, _)) => worker,
            None => Process::start(&self.0.program)?,
        };
        self.prepare();
        Ok(worker)
    }

    fn give_back(&self, worker: Process) {
        let mut idle = self.0.idle.lock();
        if idle.len() < KEPT {
            idle.push((worker, Instant::now()));
        }
        if idle.len() > READY && !self.0.tidying.swap(true, Ordering::Relaxed) {
            tokio::spawn(tidy(Arc::downgrade(&self.0)));
        }
    }

    /// See to it that the next call finds a worker ready.
    fn prepare(&self) {
        let ready = self.0.idle.lock().len() + self.0.starting.load(Ordering::Relaxed);
        if ready >= READY {
            return;
        }
        self.0.starting.fetch_add(1, Ordering::Relaxed);
        let engine = self.clone();
        tokio::spawn(async move {
            let started = Process::start(&engine.0.program);
            engine.0.starting.fetch_sub(1, Ordering::Relaxed);
            if let Ok(worker) = started {
                engine.give_back(worker);
            }
        });
    }
}

/// End processes that nobody has needed for a while.
async fn tidy(engine: Weak<Inner>) {
    loop {
        tokio::time::sleep(REST).await;
        let Some(engine) = engine.upgrade() else { return };
        let mut idle = engine.idle.lock();
        let spare = idle.len().saturating_sub(READY);
        let rested = idle.iter().take(spare).take_while(|(_, since)| since.elapsed() >= REST);
        let rested = rested.count();
        let ended: Vec<_> = idle.drain(..rested).collect();
        if idle.len() <= READY {
            engine.tidying.store(false, Ordering::Relaxed);
            drop(idle);
            drop(ended);
            return;
        }
    }
}

/// Whether this is part of a call that a Starlark script made.
pub(crate) fn is_inside() -> bool {
    INSIDE.try_with(|()| ()).is_ok()
}

/// All host functions in the order by which worker and engine number them.
pub(crate) fn functions(modules: &[Module]) -> impl Iterator<Item = &Function> {
    modules.iter().flat_map(|module| &module.functions)
}
