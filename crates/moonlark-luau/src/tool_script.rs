//! A Lua tool script: loaded once, run on every call.

use std::collections::BTreeMap;
use std::sync::Arc;

use moonlark_core::script_snapshot::ScriptFileReader;
use moonlark_core::tool::{CallScope, Source, SourceKind, Tool};
use moonlark_core::{Result, Value};
use moonlark_gateway::tool_body::ToolBody;
use moonlark_gateway::{Call, Gateway};

use crate::engine::LuauEngine;
use crate::script_unit::ScriptUnit;
use crate::tool_table;

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
        let (loaded, files) =
            self.load_script_file(script, gateway, self.tool_vms(), "tool.execute", read).await;
        let tool = loaded.and_then(|(unit, header)| {
            let source = Source { kind: SourceKind::Script, name: file };
            let engine = self.clone();
            let body = ToolBody::from_async_fn(move |call, args| {
                execute_in_pool(engine.clone(), unit.clone(), call, args)
            });
            header.into_tool(configured, Arc::new(source), scope, body)
        });
        (tool, files)
    }
}

async fn execute_in_pool(
    engine: LuauEngine,
    unit: Arc<ScriptUnit>,
    call: Call,
    args: Value,
) -> Result<Value> {
    let vms = engine.tool_vms()?.clone();
    engine
        .run_preemptible(move |guard| async move {
            let mut vm = vms.lease_vm(guard)?;
            let result = vm.run_execute(&unit, &call, args).await;
            vm.finish_run(result)
        })
        .await
}

#[cfg(test)]
mod tests;
