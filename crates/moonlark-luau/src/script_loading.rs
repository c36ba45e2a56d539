//! Loading a script: its main file is compiled, its top level runs, and what it says of
//! itself is read out of its globals.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use futures::future::BoxFuture;
use mlua::Table;
use moonlark_core::script_snapshot::{ScriptFileReader, ScriptSnapshot};
use moonlark_core::{Problem, ProblemCode, Result, tool_header};
use moonlark_gateway::{Call, Caller, Gateway};
use tokio::time::Instant;

use crate::engine::LuauEngine;
use crate::luau_bridge::Bridge;
use crate::script_unit::{MAX_FILE_LOOKUPS, ScriptUnit};
use crate::tool_script::ScriptFile;
use crate::vm::LuauVm;
use crate::vm_pool::VmPool;

/// A script that loads, with what it says of itself.
type LoadedScript<T> = (Arc<ScriptUnit>, T);

/// The files that a script consists of, as far as they were read.
type ReadFiles = BTreeMap<String, String>;

impl LuauEngine {
    /// Load a script as found on disk. `body` is what runs later, for messages. Beside the
    /// outcome: the files it consists of, so that a change of any can be noticed even when
    /// it did not load.
    pub(crate) async fn load_script_file<T: Send + 'static>(
        &self,
        script: ScriptFile,
        gateway: &Gateway,
        vms: Result<&Arc<VmPool>>,
        body: &str,
        read: impl FnOnce(&Bridge, &Table) -> Result<T> + Send + 'static,
    ) -> (Result<LoadedScript<T>>, ReadFiles) {
        let ScriptFile { file, folder, main, files, loading, .. } = script;
        let call = gateway.open_scoped_call(Caller::new("load"), loading);
        self.load_script([file, folder, main], files, call, vms, body, read).await
    }

    /// The same for a main file `[as messages show it, its folder, its path in there]`.
    pub(crate) async fn load_script<T: Send + 'static>(
        &self,
        [file, folder, main]: [String; 3],
        files: ScriptFileReader,
        call: Call,
        vms: Result<&Arc<VmPool>>,
        body: &str,
        read: impl FnOnce(&Bridge, &Table) -> Result<T> + Send + 'static,
    ) -> (Result<LoadedScript<T>>, ReadFiles) {
        let snapshot = ScriptSnapshot::new(files, MAX_FILE_LOOKUPS);
        let loaded = async {
            let unit = Arc::new(ScriptUnit::new(folder, main, &file, snapshot.clone())?);
            let (reading, deadline) = (unit.clone(), call.deadline());
            let loading = self.run_in_vm(vms?, move |vm| {
                Box::pin(async move { vm.load_script(&reading, &call, read).await })
            });
            Ok((unit, run_until(deadline, loading).await?))
        };
        let loaded = loaded.await;
        let loaded = loaded.map_err(|problem| tool_header::into_load_problem(problem, &file, body));
        (loaded, snapshot.finish_loading())
    }

    /// Do this in a VM of `vms`.
    pub(crate) async fn run_in_vm<T: Send + 'static>(
        &self,
        vms: &Arc<VmPool>,
        work: impl for<'v> FnOnce(&'v mut LuauVm) -> BoxFuture<'v, Result<T>> + Send + 'static,
    ) -> Result<T> {
        let vms = vms.clone();
        self.run_preemptible(move |guard| async move {
            let mut vm = vms.lease_vm(guard)?;
            let ended = work(&mut vm).await;
            vm.finish_run(ended)
        })
        .await
    }
}

/// What this gives until a deadline; afterwards a Problem without words.
pub(crate) async fn run_until<T>(
    deadline: Instant,
    running: impl Future<Output = Result<T>>,
) -> Result<T> {
    let ended = tokio::time::timeout_at(deadline, running).await;
    ended.unwrap_or_else(|_| Err(Problem::new(ProblemCode::Timeout, "")))
}
