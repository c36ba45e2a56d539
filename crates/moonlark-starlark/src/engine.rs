//! The Starlark engine: worker processes, kept ready, one job at a time each.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use moonlark_child::{spawn_owned, spawn_to_finish};
use moonlark_core::module::ModuleFunction;
use moonlark_core::script_snapshot::ScriptFileReader;
use moonlark_core::{Module, Problem, Result, Tool, Value};
use moonlark_gateway::{Call, LogLevel};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::task::AbortOnDropHandle;

use crate::worker_process::WorkerProcess;
pub(crate) use crate::worker_protocol::StarlarkScriptVersion;
use crate::worker_protocol::{WorkerJob, WorkerJobKind, WorkerOrder, WorkerReport};

/// Processes at once. More calls than that wait for their turn.
const MAX_WORKERS: usize = 64;
/// Of those, for one extension: its calls wait for each other before anybody
/// else's do.
pub(crate) const MAX_WORKERS_PER_EXTENSION: usize = 16;
/// More processes, for what extensions call: were they to wait for a turn, all
/// turns could be held by callers that wait.
const MAX_NESTED_WORKERS: usize = 64;

/// Extensions that load at once. Whoever loads many starts them one after another;
/// those that take long must not keep the others from being loaded.
const MAX_CONCURRENT_LOADS: usize = 20;
/// Processes kept for the next calls.
const MAX_IDLE_WORKERS: usize = 16;
/// How long, when no call comes.
const IDLE_WORKER_TIMEOUT: Duration = Duration::from_secs(30);
/// Processes always kept ready.
const MIN_READY_WORKERS: usize = 1;
/// How long a call has a worker before another is started for the next call: most have
/// brought theirs back by then.
const SPARE_WORKER_DELAY: Duration = Duration::from_millis(20);

tokio::task_local! {
    /// Set while a call is answered that a Starlark script made.
    static INSIDE_STARLARK_CALL: ();
}

/// Cheap to clone; all clones are the same engine.
#[derive(Clone)]
pub struct StarlarkEngine(Arc<StarlarkEngineInner>);

struct StarlarkEngineInner {
    /// Our own binary.
    program: PathBuf,
    /// What scripts call by number.
    functions: Vec<Arc<Tool>>,
    /// Last used last, with when that was.
    idle: Mutex<Vec<(WorkerProcess, Instant)>>,
    /// Ends workers that nobody needs, while there are any.
    tidying: Mutex<Option<AbortOnDropHandle<()>>>,
    starting: AtomicUsize,
    turns: Semaphore,
    inside: Semaphore,
    loads: Semaphore,
    units: AtomicU64,
}

impl StarlarkEngine {
    /// `program` is a Moonlark binary: it serves as its own worker.
    pub fn new(program: PathBuf, modules: &[Module]) -> StarlarkEngine {
        StarlarkEngine(Arc::new(StarlarkEngineInner {
            program,
            functions: host_functions(modules).map(|function| function.tool.clone()).collect(),
            idle: Mutex::default(),
            tidying: Mutex::default(),
            starting: AtomicUsize::new(0),
            turns: Semaphore::new(MAX_WORKERS),
            inside: Semaphore::new(MAX_NESTED_WORKERS),
            loads: Semaphore::new(MAX_CONCURRENT_LOADS),
            units: AtomicU64::new(0),
        }))
    }

    /// A version of a script, which workers that have loaded it can keep.
    pub(crate) fn new_script_version(&self, folder: String, main: String) -> StarlarkScriptVersion {
        StarlarkScriptVersion { unit: self.0.units.fetch_add(1, Ordering::Relaxed), folder, main }
    }

    /// One of the places for extensions that load.
    pub(crate) async fn acquire_load_permit(&self) -> Option<SemaphorePermit<'_>> {
        self.0.loads.acquire().await.ok()
    }

    /// Start a worker now, for extensions that are about to be loaded.
    pub fn prepare_worker(&self) {
        if self.0.idle.lock().is_empty()
            // If it cannot be started, the first job says so.
            && let Ok(worker) = WorkerProcess::start(&self.0.program)
        {
            self.return_worker(worker);
        }
    }

    /// Do one job in a worker. Dropping the future kills the worker.
    pub(crate) async fn run_job(
        &self,
        call: &Call,
        script: &StarlarkScriptVersion,
        kind: WorkerJobKind,
        files: &ScriptFileReader,
    ) -> Result<Value> {
        let _turn = self.acquire_worker_permit().await?;
        let limits = call.limits();
        // A script that loads begins with its main file. What is wrong with that is said when
        // the worker asks for it.
        let is_load = matches!(kind, WorkerJobKind::Describe);
        let main_text = is_load.then(|| files(&script.main).ok()).flatten();
        let job = WorkerJob {
            script: script.clone(),
            kind,
            main_text,
            memory: limits.memory,
            value: limits.value,
            steps: limits.steps,
        };
        let mut worker = self.take_worker(is_load)?;
        let mut order = WorkerOrder::Job(job);
        let mut again = false;
        loop {
            let alive = worker.send_order(&order).await?.is_some();
            let report = if alive { worker.receive_report().await? } else { None };
            let Some(report) = report else {
                let death = worker.post_mortem(limits.memory).await;
                // It had asked for nothing yet, so nothing has happened.
                if death.by_others && !again && matches!(order, WorkerOrder::Job(_)) {
                    again = true;
                    worker = WorkerProcess::start(&self.0.program)?;
                    continue;
                }
                return Err(death.problem);
            };
            let answer = match report {
                WorkerReport::Done { reply, clean } => {
                    if clean {
                        self.return_worker(worker);
                    }
                    return reply.map_err(Problem::from);
                }
                report => {
                    INSIDE_STARLARK_CALL.scope((), self.answer_report(call, report, files)).await
                }
            };
            order = WorkerOrder::Answer(answer.map_err(Into::into));
        }
    }

    async fn acquire_worker_permit(&self) -> Result<SemaphorePermit<'_>> {
        if is_inside_starlark_call() {
            return self.0.inside.try_acquire().map_err(|_| {
                Problem::unavailable("too many extensions call each other at the moment")
                    .with_hint("try again, or load() the other extension's functions instead")
            });
        }
        let turn = self.0.turns.acquire().await;
        turn.map_err(|_| Problem::internal("the engine has stopped"))
    }

    /// What the script asked for, by the gateway.
    async fn answer_report(
        &self,
        call: &Call,
        report: WorkerReport,
        files: &ScriptFileReader,
    ) -> Result<Value> {
        match report {
            WorkerReport::Host { function, args } => match self.0.functions.get(function) {
                Some(tool) => call.gateway().call(call, tool, args).await,
                None => Err(Problem::internal("a script asked for an unknown host function")),
            },
            WorkerReport::Tool { name, args } => call.gateway().call(call, &name, args).await,
            WorkerReport::Print { text } => {
                call.log_message(LogLevel::Info, &text, None).map(|()| Value::Null)
            }
            WorkerReport::Read { path } => files(&path).map(Value::from),
            WorkerReport::Done { .. } => Ok(Value::Null),
        }
    }

    fn take_worker(&self, is_load: bool) -> Result<WorkerProcess> {
        let kept = self.0.idle.lock().pop();
        let worker = match kept {
            Some((worker, _)) => worker,
            None => WorkerProcess::start(&self.0.program)?,
        };
        // The workers that load are the spare ones when they are done.
        if !is_load {
            self.start_spare_worker();
        }
        Ok(worker)
    }

    fn return_worker(&self, worker: WorkerProcess) {
        let mut idle = self.0.idle.lock();
        if idle.len() < MAX_IDLE_WORKERS {
            idle.push((worker, Instant::now()));
        }
        if idle.len() > MIN_READY_WORKERS {
            let mut tidying = self.0.tidying.lock();
            tidying.get_or_insert_with(|| spawn_owned(end_idle_workers(Arc::downgrade(&self.0))));
        }
    }

    /// See to it that the next call finds a worker ready, unless it comes at once.
    fn start_spare_worker(&self) {
        let ready = self.0.idle.lock().len() + self.0.starting.load(Ordering::Relaxed);
        if ready >= MIN_READY_WORKERS {
            return;
        }
        self.0.starting.fetch_add(1, Ordering::Relaxed);
        let engine = self.clone();
        spawn_to_finish(async move {
            tokio::time::sleep(SPARE_WORKER_DELAY).await;
            let is_missing = engine.0.idle.lock().len() < MIN_READY_WORKERS;
            let started = is_missing.then(|| WorkerProcess::start(&engine.0.program));
            engine.0.starting.fetch_sub(1, Ordering::Relaxed);
            if let Some(Ok(worker)) = started {
                engine.return_worker(worker);
            }
        });
    }
}

/// End processes that nobody has needed for a while.
async fn end_idle_workers(engine: Weak<StarlarkEngineInner>) {
    loop {
        tokio::time::sleep(IDLE_WORKER_TIMEOUT).await;
        let Some(engine) = engine.upgrade() else { return };
        let mut idle = engine.idle.lock();
        let spare = idle.len().saturating_sub(MIN_READY_WORKERS);
        let rested =
            idle.iter().take(spare).take_while(|(_, since)| since.elapsed() >= IDLE_WORKER_TIMEOUT);
        let rested = rested.count();
        let ended: Vec<_> = idle.drain(..rested).collect();
        if idle.len() <= MIN_READY_WORKERS {
            // It is this very task, which has no more to wait for.
            let this = engine.tidying.lock().take();
            drop((idle, ended, this));
            return;
        }
    }
}

/// Whether this is part of a call that a Starlark script made.
pub(crate) fn is_inside_starlark_call() -> bool {
    INSIDE_STARLARK_CALL.try_with(|()| ()).is_ok()
}

/// All host functions in the order by which worker and engine number them.
pub(crate) fn host_functions(modules: &[Module]) -> impl Iterator<Item = &ModuleFunction> {
    modules.iter().flat_map(|module| &module.functions)
}
