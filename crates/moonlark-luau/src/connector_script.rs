//! A connector script: loaded once, run for every scan.
//!
//! What an item means, and where it goes, is not known here: items leave as
//! values, one by one, and a scan waits while whoever takes them is behind.

use std::collections::BTreeMap;
use std::sync::Arc;

use mlua::{Lua, Table, Value as Lv};
use moonlark_core::nearest::nearest_name;
use moonlark_core::script_snapshot::ScriptSnapshot;
use moonlark_core::{Problem, ProblemCode, Result, Value, tool_header};
use moonlark_gateway::{Call, Caller, Gateway};
use tokio::sync::mpsc;

use crate::engine::LuauEngine;
use crate::luau_bridge::Bridge;
use crate::script_unit::{MAX_FILE_LOOKUPS, ScriptUnit};
use crate::tool_script::ScriptFile;
use crate::vm::LuauVm;
use crate::vm_host::VmHost;

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
        let ScriptFile { file, folder, main, files, loading, .. } = script;
        let snapshot = ScriptSnapshot::new(files, MAX_FILE_LOOKUPS);
        let call = gateway.open_scoped_call(Caller::new("load"), loading);
        let loaded = match ScriptUnit::new(folder, main, &file, snapshot.clone()) {
            Ok(unit) => self.read_connector(Arc::new(unit), call).await,
            Err(problem) => Err(problem),
        };
        let loaded = loaded
            .map_err(|problem| tool_header::into_load_problem(problem, &file, "connector.scan"));
        (loaded, snapshot.finish_loading())
    }

    async fn read_connector(&self, unit: Arc<ScriptUnit>, call: Call) -> Result<ConnectorScript> {
        let (engine, reading, deadline) = (self.clone(), unit.clone(), call.deadline());
        let loading = self.run_preemptible(move |guard| async move {
            let mut vm = LuauVm::new(engine.connectors_prelude()?)?;
            guard.watch_interrupt(vm.interrupt());
            let header = vm.load_script(&reading, &call, read_connector_header).await;
            guard.finish_run();
            header
        });
        let ConnectorHeader { name, version, description } =
            tokio::time::timeout_at(deadline, loading)
                .await
                .unwrap_or_else(|_| Err(Problem::new(ProblemCode::Timeout, "")))?;
        Ok(ConnectorScript { engine: self.clone(), unit, name, version, description })
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
        let (connector, its) = (self.clone(), call.clone());
        let scanning = self.engine.run_preemptible(move |guard| async move {
            let mut vm = LuauVm::new(connector.engine.connectors_prelude()?)?;
            guard.watch_interrupt(vm.interrupt());
            let ended = vm.run_scan(&connector.unit, &its, state, items).await;
            guard.finish_run();
            ended
        });
        let ended = tokio::time::timeout_at(call.deadline(), scanning).await;
        let ended = ended.unwrap_or_else(|_| Err(Problem::new(ProblemCode::Timeout, "")));
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
pub(crate) fn add_connector_functions(
    lua: &Lua,
    shared: &Arc<VmHost>,
    table: &Table,
) -> mlua::Result<()> {
    let host = shared.clone();
    let emit = lua.create_function(move |lua, item: Lv| {
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
    })?;
    table.raw_set("emit", emit)
}

const CONNECTOR_FIELDS: [&str; 4] = ["name", "version", "description", "scan"];

/// Read the `connector` table out of a script's globals. Only raw access:
/// nothing of the script runs here.
fn read_connector_header(bridge: &Bridge, globals: &Table) -> Result<ConnectorHeader> {
    let connector = match globals.raw_get("connector") {
        Ok(Lv::Table(connector)) => connector,
        Ok(Lv::Nil) => {
            let is_tool = matches!(globals.raw_get("tool"), Ok(Lv::Table(_)));
            let problem = Problem::bad_script("the script defines no global table named connector");
            return Err(problem.with_hint(if is_tool { "this is a tool: it belongs into the tools folder" } else {
                    "start it with: connector = { name = \"…\", description = \"…\" }; or begin the file's name with _ if others are to require it"
                }));
        }
        _ => return Err(Problem::bad_script("connector must be a table")),
    };
    if !matches!(connector.raw_get::<Lv>("scan"), Ok(Lv::Function(_))) {
        return Err(Problem::bad_script("connector.scan is not a function")
            .with_hint("add: function connector.scan(config) … end"));
    }
    let mut unknown = None;
    let _ = connector.for_each(|key: Lv, _: Lv| {
        if let Lv::String(key) = key {
            let key = key.to_string_lossy();
            if !CONNECTOR_FIELDS.contains(&key.as_str()) {
                unknown.get_or_insert(key);
            }
        }
        Ok(())
    });
    // Helpers kept in the table are fine; a misspelt field is not.
    if let Some((near, name)) =
        unknown.and_then(|name| Some((nearest_name(&name, CONNECTOR_FIELDS)?, name)))
    {
        return Err(Problem::bad_script(format!("connector.{name} means nothing"))
            .with_hint(format!("did you mean connector.{near}?")));
    }
    let text = |field: &str| {
        let value = connector.raw_get::<Lv>(field).unwrap_or(Lv::Nil);
        match bridge.read_value(&value, &format!("connector.{field}"), 64 * 1024)? {
            Value::Null => Ok(None),
            Value::Str(text) => Ok(Some(text)),
            other => Err(Problem::bad_script(format!(
                "connector.{field} must be a string, got {}",
                other.kind()
            ))),
        }
    };
    Ok(ConnectorHeader {
        name: text("name")?,
        version: text("version")?,
        description: text("description")?.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests;
