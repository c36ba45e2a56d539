//! The Luau engine: one small runtime for all scripts, so that nothing a
//! script does can stall the threads that answer requests.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use moonlark_core::{Module, Problem, Result};
use tokio::runtime::Runtime;
use tokio_util::task::AbortOnDropHandle;

use crate::prelude::Prelude;
use crate::script::{Guard, Waiting};

/// VMs kept ready over all scripts; each holds about a quarter of a megabyte.
const PARKED: usize = 128;

/// Cheap to clone; all clones are the same engine.
#[derive(Clone)]
pub struct Luau(Arc<Inner>);

struct Inner {
    prelude: Arc<Prelude>,
    runtime: Option<Runtime>,
    parked: AtomicUsize,
}

impl Luau {
    pub fn new(modules: &[Module]) -> Result<Luau> {
        let threads = std::thread::available_parallelism().map_or(2, |cores| cores.get().max(2));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .thread_name("script")
            .enable_all()
            .build()
            .map_err(|error| {
                Problem::internal(format!("cannot start the script threads: {error}"))
            })?;
        Ok(Luau(Arc::new(Inner {
            prelude: Prelude::new(modules)?,
            runtime: Some(runtime),
            parked: AtomicUsize::new(0),
        })))
    }

    pub(crate) fn prelude(&self) -> &Arc<Prelude> {
        &self.0.prelude
    }

    /// Run `work` on the script threads; dropping the future stops it.
    pub(crate) async fn run<T, F>(
        &self,
        work: impl FnOnce(Guard) -> F + Send + 'static,
    ) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let Some(runtime) = &self.0.runtime else {
            return Err(Problem::internal("the engine has stopped"));
        };
        let guard = Guard::default();
        let handle = runtime.spawn(work(guard.clone()));
        let mut waiting = Waiting { handle: AbortOnDropHandle::new(handle), guard };
        match (&mut waiting.handle).await {
            Ok(result) => result,
            Err(_) => Err(Problem::internal("the script engine failed")
                .hint("this is a defect of Moonlark: please report it with the server's log")),
        }
    }

    /// Whether one more idle VM may be kept.
    pub(crate) fn may_park(&self) -> bool {
        if self.0.parked.fetch_add(1, Ordering::Relaxed) < PARKED {
            return true;
        }
        self.unparked();
        false
    }

    /// A kept VM was taken or dropped.
    pub(crate) fn unparked(&self) {
        self.0.parked.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Dropping a runtime waits for it, which async code must not do.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
