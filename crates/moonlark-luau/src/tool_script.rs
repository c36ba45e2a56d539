//! A Lua tool script: loaded once, run on every call.

use std::collections::BTreeMap;
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use moonlark_core::script_snapshot::ScriptFileReader;
use moonlark_core::tool::{CallScope, Source, SourceKind, Tool};
use moonlark_core::{Result, Value};
use moonlark_gateway::tool_body::ToolBody;
use moonlark_gateway::{Call, Gateway};

use crate::engine::{LuauEngine, VmParkingSlot};
use crate::script_memory::ScriptMemory;
use crate::script_unit::ScriptUnit;
use crate::tool_table;
use crate::vm::LuauVm;

/// VMs kept ready for one script.
const MAX_WARM_VMS: usize = 32;

/// A script as found on disk.
pub struct ScriptFile {
    /// Where it is, relative to the project: appears in every message.
    pub file: String,
    /// The folder that `require` stays inside, as messages show it.
    pub folder: String,
    /// The script's path in there.
    pub main: String,
    pub files: ScriptFileReader,
    /// The name it has in the configuration, if it is there.
    pub configured: Option<String>,
    pub scope: CallScope,
    /// What it may do while it loads.
    pub loading: Arc<CallScope>,
}

impl LuauEngine {
    /// Load a script and make it a tool. Its top level runs here, in the same
    /// sandbox and with the same limits as a call. Beside the outcome: the
    /// files it consists of, as far as they were read, so that a change of any
    /// can be noticed even when it did not load.
    pub async fn load_tool(
        &self,
        script: ScriptFile,
        gateway: &Gateway,
    ) -> (Result<Tool>, BTreeMap<String, String>) {
        let (file, scope) = (script.file.clone(), script.scope.clone());
        let configured = script.configured.clone();
        let read = tool_table::read_tool_header;
        let prelude = Ok(self.prelude());
        let (loaded, files) =
            self.load_script_file(script, gateway, prelude, "tool.execute", read).await;
        let tool = loaded.and_then(|(unit, header)| {
            let warm = VmPool { unit, vms: ArrayQueue::new(MAX_WARM_VMS), engine: self.clone() };
            let warm = Arc::new(warm);
            ScriptMemory::of_process().register_pool(&warm);
            let source = Source { kind: SourceKind::Script, name: file };
            let body = ToolBody::from_async_fn(move |call, args| {
                execute_in_pool(warm.clone(), call, args)
            });
            header.into_tool(configured, Arc::new(source), scope, body)
        });
        (tool, files)
    }
}

pub(crate) struct VmPool {
    unit: Arc<ScriptUnit>,
    vms: ArrayQueue<ParkedVm>,
    engine: LuauEngine,
}

impl VmPool {
    pub(crate) fn drop_idle_vms(&self) {
        while self.vms.pop().is_some() {}
    }
}

/// An idle VM with its place among all that are kept.
struct ParkedVm {
    vm: LuauVm,
    _slot: VmParkingSlot,
}

async fn execute_in_pool(warm: Arc<VmPool>, call: Call, args: Value) -> Result<Value> {
    let engine = warm.engine.clone();
    engine
        .run_preemptible(move |guard| async move {
            let mut vm = match warm.vms.pop() {
                Some(parked) => parked.vm,
                None => LuauVm::new(warm.engine.prelude())?,
            };
            guard.watch_interrupt(vm.interrupt());
            let result = vm.run_execute(&warm.unit, &call, args).await;
            guard.finish_run();
            if result.is_ok()
                && vm.is_clean()
                && let Some(slot) = warm.engine.parking_slot()
            {
                // Where there are enough of this script, it goes.
                let _ = warm.vms.push(ParkedVm { vm, _slot: slot });
            }
            result
        })
        .await
}

#[cfg(test)]
mod tests;
