//! The Luau engine: where scripts run.
//!
//! A script starts on the thread of whoever called it: most are done, or wait
//! for the host, within microseconds, and a change of thread would cost more
//! than they do. One that computes on is preempted and moves to a small runtime
//! of its own, so that it cannot stall the threads that answer requests.

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use moonlark_core::module::{ModuleFunction, ScriptLanguage};
use moonlark_core::{Module, Problem, Result};
use moonlark_gateway::metrics::family::MetricFamily;
use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio_util::task::AbortOnDropHandle;

use crate::check;
use crate::prelude::{self, LuauPrelude};
use crate::script_memory::ScriptMemory;
use crate::vm_pool::VmPool;
use crate::watchdog::VmInterrupt;

/// Cheap to clone; all clones are the same engine.
#[derive(Clone)]
pub struct LuauEngine(Arc<LuauEngineInner>);

struct LuauEngineInner {
    modules: Vec<Module>,
    /// For scripts of tools, once there are any.
    tool_vms: LazyVmPool,
    /// The same for tests.
    test_vms: LazyVmPool,
    /// The same for scripts of agents.
    agent_vms: LazyVmPool,
    /// The same for connectors.
    connector_vms: LazyVmPool,
    /// The script threads, once a script computes for so long that it needs one.
    runtime: OnceLock<Result<Runtime>>,
}

/// Compiling its prelude takes milliseconds.
type LazyVmPool = OnceLock<Result<Arc<VmPool>>>;

/// A kind of scripts that is about to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedScripts {
    Tools,
    /// Scripts of agents, which are checked first.
    Agents,
}

impl LuauEngine {
    pub fn new(modules: &[Module]) -> Result<LuauEngine> {
        let modules: Vec<Module> = modules
            .iter()
            .filter(|module| module.is_for_language(ScriptLanguage::Luau))
            .map(without_examples)
            .collect();
        Ok(LuauEngine(Arc::new(LuauEngineInner {
            tool_vms: OnceLock::new(),
            test_vms: OnceLock::new(),
            agent_vms: OnceLock::new(),
            connector_vms: OnceLock::new(),
            modules,
            runtime: OnceLock::new(),
        })))
    }

    /// Set how many bytes the VMs of this process may hold together. Without a figure
    /// that is half of the machine, and at least a few times `one_script`.
    pub fn set_memory_total(&self, total: Option<u64>, one_script: u64) {
        ScriptMemory::of_process().set_total(total, one_script);
    }

    /// What the VMs of this process hold together.
    pub fn memory_metrics(&self) -> Vec<MetricFamily> {
        ScriptMemory::of_process().metric_families()
    }

    /// The compiled preludes as they are to be committed, by their paths in this crate: for
    /// `cargo x generate`, which writes them.
    pub fn prelude_bytecode_files(&self) -> Result<[(&'static str, Vec<u8>); 2]> {
        prelude::prelude_bytecode_files(&self.0.modules)
    }

    /// Make in the background what the first of these scripts would have to wait for. Within
    /// a runtime.
    pub fn prepare_for(&self, expected: ExpectedScripts) {
        if expected == ExpectedScripts::Agents {
            check::start_check_worker();
        }
        let engine = Arc::downgrade(&self.0);
        tokio::task::spawn_blocking(move || {
            let engine = engine.upgrade().map(LuauEngine);
            // What is wrong is said to whoever runs a script.
            let _ = engine.as_ref().map(|engine| match expected {
                ExpectedScripts::Tools => engine.tool_vms().map(drop),
                ExpectedScripts::Agents => engine.agent_vms().map(drop),
            });
        });
    }

    pub(crate) fn tool_vms(&self) -> Result<&Arc<VmPool>> {
        self.0.init_pool(&self.0.tool_vms, LuauPrelude::new, VmPool::new)
    }

    /// Tests find all that tools do, and what is only for tests. Each has a new VM.
    pub(crate) fn test_vms(&self) -> Result<&Arc<VmPool>> {
        self.0.init_pool(&self.0.test_vms, LuauPrelude::for_tests, VmPool::of_new_vms)
    }

    pub(crate) fn agent_vms(&self) -> Result<&Arc<VmPool>> {
        self.0.init_pool(&self.0.agent_vms, LuauPrelude::for_agents, VmPool::new)
    }

    /// Connectors find all that tools do, and what hands items over. Scans are rare, and
    /// each has a new VM.
    pub(crate) fn connector_vms(&self) -> Result<&Arc<VmPool>> {
        self.0.init_pool(&self.0.connector_vms, LuauPrelude::for_connectors, VmPool::of_new_vms)
    }

    /// Run `work`, here and then on the script threads; dropping the future
    /// stops it.
    pub(crate) async fn run_preemptible<T, F>(
        &self,
        work: impl FnOnce(InterruptGuard) -> F + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let guard = InterruptGuard::default();
        let mut work = Box::pin(work(guard.clone()));
        let here = std::future::poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            Poll::Pending if guard.was_preempted() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        if let Some(result) = here.await {
            return result;
        }
        let handle = self.0.script_threads()?.spawn(work);
        let mut waiting = ScriptTaskHandle { handle: AbortOnDropHandle::new(handle), guard };
        match (&mut waiting.handle).await {
            Ok(result) => result,
            Err(_) => Err(Problem::internal("the script engine failed")
                .with_hint("this is a defect of Moonlark: please report it with the server's log")),
        }
    }
}

impl LuauEngineInner {
    fn script_threads(&self) -> Result<&Runtime> {
        self.runtime.get_or_init(start_script_threads).as_ref().map_err(Clone::clone)
    }

    /// Whoever comes while it is made waits for it.
    fn init_pool<'a>(
        &self,
        pool: &'a LazyVmPool,
        prelude: fn(&[Module]) -> Result<Arc<LuauPrelude>>,
        make: fn(Arc<LuauPrelude>) -> Arc<VmPool>,
    ) -> Result<&'a Arc<VmPool>> {
        let made = pool.get_or_init(|| prelude(&self.modules).map(make));
        made.as_ref().map_err(Clone::clone)
    }
}

/// A module as far as scripts run with it: the examples are most of what there is to copy.
fn without_examples(module: &Module) -> Module {
    let bare = |function: &ModuleFunction| ModuleFunction {
        name: function.name,
        tool: function.tool.clone(),
        params: function.params.clone(),
        returns: function.returns.clone(),
        needs: function.needs,
        examples: Vec::new(),
    };
    Module {
        functions: module.functions.iter().map(bare).collect(),
        constants: module.constants.clone(),
        ..*module
    }
}

fn start_script_threads() -> Result<Runtime> {
    let threads = std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2));
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_name("script")
        .on_thread_park(moonlark_child::release_thread_memory)
        .enable_all()
        .build()
        .map_err(|error| Problem::internal(format!("cannot start the script threads: {error}")))
}

/// Cancels the script when the caller's future is dropped.
#[derive(Clone, Default)]
pub(crate) struct InterruptGuard(Arc<Mutex<Option<Arc<VmInterrupt>>>>);

impl InterruptGuard {
    pub(crate) fn watch_interrupt(&self, interrupt: &Arc<VmInterrupt>) {
        *self.0.lock() = Some(interrupt.clone());
    }

    /// The run is over; its VM may belong to somebody else from here on.
    pub(crate) fn finish_run(&self) {
        *self.0.lock() = None;
    }

    /// Whether the script has used up its time on the thread that called it.
    fn was_preempted(&self) -> bool {
        self.0.lock().as_ref().is_some_and(|interrupt| interrupt.was_preempted())
    }

    fn cancel_run(&self) {
        if let Some(interrupt) = &*self.0.lock() {
            interrupt.cancel_run();
        }
    }
}

/// The caller's end of a run.
struct ScriptTaskHandle<T> {
    handle: AbortOnDropHandle<Result<T>>,
    guard: InterruptGuard,
}

impl<T> Drop for ScriptTaskHandle<T> {
    fn drop(&mut self) {
        self.guard.cancel_run();
    }
}

impl Drop for LuauEngineInner {
    fn drop(&mut self) {
        // Dropping a runtime waits for it, which async code must not do.
        if let Some(Ok(runtime)) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
