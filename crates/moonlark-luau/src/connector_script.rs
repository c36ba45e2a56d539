//! A connector script: loaded once, run for every scan.
//!
//! What an item means, and where it goes, is not known here: items leave as
//! values, one by one, and a scan waits while whoever takes them is behind.

use std::collections::BTreeMap;
use std::sync::Arc;

use mlua::{Table, Value as Lv};
use moonlark_core::{Problem, ProblemCode, Result, Value};
use moonlark_gateway::{Call, Gateway};
use tokio::sync::mpsc;

use crate::engine::LuauEngine;
use crate::header_table::{HeaderKind, HeaderTable};
use crate::luau_bridge::Bridge;
use crate::script_loading::run_until;
use crate::script_unit::ScriptUnit;
use crate::tool_script::ScriptFile;
use crate::vm_host::HostTable;

/// What a script may leave for its next scan.
pub(crate) const MAX_CONNECTOR_STATE_BYTES: usize = 1024 * 1024;

/// What a scan finds: items as the script wrote them, or why one cannot be read.
pub type ScanItemSender = mpsc::Sender<Result<Value>>;

/// A connector script that loads.
#[derive(Clone)]
pub struct ConnectorScript {
    engine: LuauEngine,
    unit: Arc<ScriptUnit>,
    pub name: Option<String>,
    pub version: Option<String>,
    pub description: String,
}

/// How a scan ended that ended well.
#[derive(Debug, PartialEq)]
pub struct CompletedScan {
    /// What `state` was at its end.
    pub state: Value,
    /// Whether the script has used `state` at all.
    pub incremental: bool,
}

/// The global `connector`.
struct ConnectorHeader {
    name: Option<String>,
    version: Option<String>,
    description: String,
}

impl LuauEngine {
    /// Load a connector script. Its top level runs here, in the same sandbox and
    /// with the same limits as a scan. Beside the outcome: the files it consists
    /// of, as with tools.
    pub async fn load_connector(
        &self,
        script: ScriptFile,
        gateway: &Gateway,
    ) -> (Result<ConnectorScript>, BTreeMap<String, String>) {
        let (vms, read) = (self.connector_vms(), read_connector_header);
        let (loaded, files) =
            self.load_script_file(script, gateway, vms, "connector.scan", read).await;
        let loaded = loaded.map(|(unit, header)| {
            let ConnectorHeader { name, version, description } = header;
            ConnectorScript { engine: self.clone(), unit, name, version, description }
        });
        (loaded, files)
    }
}

impl ConnectorScript {
    /// Run `connector.scan` in `call`, whose scope is the script's. It sees
    /// `state` as the last scan left it; what it finds goes to `items`.
    pub async fn run_scan(
        &self,
        call: &Call,
        state: Value,
        items: ScanItemSender,
    ) -> Result<CompletedScan> {
        let (unit, its) = (self.unit.clone(), call.clone());
        let scanning = self.engine.run_in_vm(self.engine.connector_vms()?, move |vm| {
            Box::pin(async move { vm.run_scan(&unit, &its, state, items).await })
        });
        let ended = run_until(call.deadline(), scanning).await;
        ended.map_err(|mut problem| {
            if problem.code == ProblemCode::Timeout {
                let limit = moonlark_core::limits::format_seconds(call.limits().timeout);
                problem.message = format!("the scan was not done after {limit}");
                problem.hint = Some(
                    "raise its timeout, or let it use `state` to go on where it was".to_owned(),
                );
            }
            call.scope().secrets.redact_problem(&mut problem);
            problem
        })
    }
}

/// The function behind `emit`. What cannot be read is an item that failed, not
/// the end of the scan.
pub(crate) fn add_connector_functions(table: &HostTable) -> mlua::Result<()> {
    table.add_function("emit", |lua, host, item: Lv| {
        let Some(items) = host.items() else {
            let problem = Problem::tool_error("emit is only there while connector.scan runs");
            return host.reply_with_problem(lua, problem);
        };
        let call = host.call()?;
        let item = host.bridge.read_value(&item, "the item", call.limits().value);
        let item = item.map(|item| call.scope().secrets.redact_result(item));
        let sending = Box::pin(async move {
            let gone = || Problem::new(ProblemCode::Cancelled, "nobody takes the items any more");
            items.send(item).await.map_err(|_| gone())?;
            Ok(Value::Null)
        });
        host.poll_or_wait(lua, sending, None)
    })
}

const CONNECTOR_TABLE: HeaderKind = HeaderKind {
    name: "connector",
    example: "name = \"…\", description = \"…\"",
    function: "scan",
    params: "config",
    aliases: &[],
    max_field_bytes: 64 * 1024,
};

/// Read the `connector` table out of a script's globals.
fn read_connector_header(bridge: &Bridge, globals: &Table) -> Result<ConnectorHeader> {
    let connector = HeaderTable::find(bridge, globals, &CONNECTOR_TABLE)?;
    connector.check_field_names(&["name", "version", "description"])?;
    Ok(ConnectorHeader {
        name: connector.read_text("name")?,
        version: connector.read_text("version")?,
        description: connector.read_text("description")?.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests;
