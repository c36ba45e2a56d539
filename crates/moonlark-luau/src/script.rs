//! A Lua tool script: loaded once, run on every call.

use std::collections::BTreeMap;
use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use moonlark_core::authored;
use moonlark_core::files::{Files, Snapshot};
use moonlark_core::tool::{Body, Scope, Source, SourceKind, Tool};
use moonlark_core::{Call, Caller, Code, Gateway, Problem, Result, Value};

use crate::engine::{Luau, ParkingSlot};
use crate::tool_table;
use crate::unit::{MAX_LOOKS, Unit};
use crate::vm::Vm;

/// VMs kept ready for one script.
const WARM: usize = 32;

/// A script as found on disk.
pub struct Script {
    /// Where it is, relative to the project: appears in every message.
    pub file: String,
    /// The folder that `require` stays inside, as messages show it.
    pub folder: String,
    /// The script's path in there.
    pub main: String,
    pub files: Files,
    /// The name it has in the configuration, if it is there.
    pub configured: Option<String>,
    pub scope: Scope,
    /// What it may do while it loads.
    pub loading: Arc<Scope>,
}

impl Luau {
    /// Load a script and make it a tool. Its top level runs here, in the same
    /// sandbox and with the same limits as a call. Beside the outcome: the
    /// files it consists of, as far as they were read, so that a change of any
    /// can be noticed even when it did not load.
    pub async fn load(
        &self,
        script: Script,
        gateway: &Gateway,
    ) -> (Result<Tool>, BTreeMap<String, String>) {
        let Script { file, folder, main, files, configured, scope, loading } = script;
        let snapshot = Snapshot::new(files, MAX_LOOKS);
        let call = gateway.scoped(Caller::new("load"), loading);
        let unit = Unit::new(folder, main, &file, snapshot.clone());
        let header = match unit {
            Ok(unit) => {
                let unit = Arc::new(unit);
                let (engine, reading, deadline) = (self.clone(), unit.clone(), call.deadline());
                let loaded = self.run(move |guard| async move {
                    let mut vm = Vm::new(engine.prelude())?;
                    guard.watch(vm.interrupt());
                    let header = vm.load(&reading, &call, tool_table::read).await;
                    guard.done();
                    header
                });
                tokio::time::timeout_at(deadline, loaded)
                    .await
                    .unwrap_or_else(|_| Err(Problem::new(Code::Timeout, "")))
                    .map(|header| (header, unit))
            }
            Err(problem) => Err(problem),
        };
        let tool = header
            .map_err(|problem| authored::at_load(problem, &file, "tool.execute"))
            .and_then(|(header, unit)| {
                let warm = Warm { unit, vms: ArrayQueue::new(WARM), engine: self.clone() };
                let warm = Arc::new(warm);
                let source = Source { kind: SourceKind::Script, name: file };
                let body = Body::later(move |call, args| execute(warm.clone(), call, args));
                header.into_tool(configured, Arc::new(source), scope, body)
            });
        (tool, snapshot.loaded())
    }
}

struct Warm {
    unit: Arc<Unit>,
    vms: ArrayQueue<ParkedVm>,
    engine: Luau,
}

/// An idle VM with its place among all that are kept.
struct ParkedVm {
    vm: Vm,
    _slot: ParkingSlot,
}

async fn execute(warm: Arc<Warm>, call: Call, args: Value) -> Result<Value> {
    let engine = warm.engine.clone();
    engine
        .run(move |guard| async move {
            let mut vm = match warm.vms.pop() {
                Some(parked) => parked.vm,
                None => Vm::new(warm.engine.prelude())?,
            };
            guard.watch(vm.interrupt());
            let result = vm.execute(&warm.unit, &call, args).await;
            guard.done();
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
