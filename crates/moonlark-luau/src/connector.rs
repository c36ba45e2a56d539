//! A connector script: loaded once, run for every scan.
//!
//! What an item means, and where it goes, is not known here: items leave as
//! values, one by one, and a scan waits while whoever takes them is behind.

use std::collections::BTreeMap;
use std::sync::Arc;

use mlua::{Lua, Table, Value as Lv};
use moonlark_core::files::Snapshot;
use moonlark_core::gateway::Started;
use moonlark_core::nearest::nearest;
use moonlark_core::{Call, Caller, Code, Gateway, Problem, Result, Value, authored};
use tokio::sync::mpsc;

use crate::bridge::Bridge;
use crate::engine::Luau;
use crate::host::Shared;
use crate::script::Script;
use crate::unit::{MAX_LOOKS, Unit};
use crate::vm::Vm;

/// What a script may leave for its next scan.
pub(crate) const MAX_STATE: usize = 1024 * 1024;

/// What a scan finds: items as the script wrote them, or why one cannot be read.
pub type Items = mpsc::Sender<Result<Value>>;

/// A connector script that loads.
#[derive(Clone)]
pub struct Connector {
    engine: Luau,
    unit: Arc<Unit>,
    pub name: Option<String>,
    pub version: Option<String>,
    pub description: String,
}

/// How a scan ended that ended well.
#[derive(Debug, PartialEq)]
pub struct Scanned {
    /// What `state` was at its end.
    pub state: Value,
    /// Whether the script has used `state` at all.
    pub incremental: bool,
}

/// The global `connector`.
struct Header {
    name: Option<String>,
    version: Option<String>,
    description: String,
}

impl Luau {
    /// Load a connector script. Its top level runs here, in the same sandbox and
    /// with the same limits as a scan. Beside the outcome: the files it consists
    /// of, as with tools.
    pub async fn load_connector(
        &self,
        script: Script,
        gateway: &Gateway,
    ) -> (Result<Connector>, BTreeMap<String, String>) {
        let Script { file, folder, main, files, loading, .. } = script;
        let snapshot = Snapshot::new(files, MAX_LOOKS);
        let call = gateway.scoped(Caller::new("load"), loading);
        let loaded = match Unit::new(folder, main, &file, snapshot.clone()) {
            Ok(unit) => self.read_connector(Arc::new(unit), call).await,
            Err(problem) => Err(problem),
        };
        let loaded = loaded.map_err(|problem| authored::at_load(problem, &file, "connector.scan"));
        (loaded, snapshot.loaded())
    }

    async fn read_connector(&self, unit: Arc<Unit>, call: Call) -> Result<Connector> {
        let (engine, reading, deadline) = (self.clone(), unit.clone(), call.deadline());
        let loading = self.run(move |guard| async move {
            let mut vm = Vm::new(engine.connectors_prelude()?)?;
            guard.watch(vm.interrupt());
            let header = vm.load(&reading, &call, read).await;
            guard.done();
            header
        });
        let Header { name, version, description } = tokio::time::timeout_at(deadline, loading)
            .await
            .unwrap_or_else(|_| Err(Problem::new(Code::Timeout, "")))?;
        Ok(Connector { engine: self.clone(), unit, name, version, description })
    }
}

impl Connector {
    /// Run `connector.scan` in `call`, whose scope is the script's. It sees
    /// `state` as the last scan left it; what it finds goes to `items`.
    pub async fn scan(&self, call: &Call, state: Value, items: Items) -> Result<Scanned> {
        let (connector, its) = (self.clone(), call.clone());
        let scanning = self.engine.run(move |guard| async move {
            let mut vm = Vm::new(connector.engine.connectors_prelude()?)?;
            guard.watch(vm.interrupt());
            let ended = vm.scan(&connector.unit, &its, state, items).await;
            guard.done();
            ended
        });
        let ended = tokio::time::timeout_at(call.deadline(), scanning).await;
        let ended = ended.unwrap_or_else(|_| Err(Problem::new(Code::Timeout, "")));
        ended.map_err(|mut problem| {
            if problem.code == Code::Timeout {
                let limit = moonlark_core::limits::seconds(call.limits().timeout);
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
pub(crate) fn functions(lua: &Lua, shared: &Arc<Shared>, table: &Table) -> mlua::Result<()> {
    let host = shared.clone();
    let emit = lua.create_function(move |lua, item: Lv| {
        let Some(items) = host.items() else {
            let problem = Problem::tool_error("emit is only there while connector.scan runs");
            return host.refuse(lua, problem);
        };
        let call = host.call()?;
        let item = host.bridge.read(&item, "the item", call.limits().value);
        let item = item.map(|item| call.scope().secrets.redact_result(item));
        let sending = Box::pin(async move {
            let gone = || Problem::new(Code::Cancelled, "nobody takes the items any more");
            items.send(item).await.map_err(|_| gone())?;
            Ok(Value::Null)
        });
        host.answer(lua, Started::Running(sending))
    })?;
    table.raw_set("emit", emit)
}

const FIELDS: [&str; 4] = ["name", "version", "description", "scan"];

/// Read the `connector` table out of a script's globals. Only raw access:
/// nothing of the script runs here.
fn read(bridge: &Bridge, globals: &Table) -> Result<Header> {
    let connector = match globals.raw_get("connector") {
        Ok(Lv::Table(connector)) => connector,
        Ok(Lv::Nil) => {
            let is_tool = matches!(globals.raw_get("tool"), Ok(Lv::Table(_)));
            let problem = Problem::bad_script("the script defines no global table named connector");
            return Err(problem.hint(match is_tool {
                true => "this is a tool: it belongs into the tools folder",
                false => {
                    "start it with: connector = { name = \"…\", description = \"…\" }; or begin the file's name with _ if others are to require it"
                }
            }));
        }
        _ => return Err(Problem::bad_script("connector must be a table")),
    };
    if !matches!(connector.raw_get::<Lv>("scan"), Ok(Lv::Function(_))) {
        return Err(Problem::bad_script("connector.scan is not a function")
            .hint("add: function connector.scan(config) … end"));
    }
    let mut unknown = None;
    let _ = connector.for_each(|key: Lv, _: Lv| {
        if let Lv::String(key) = key {
            let key = key.to_string_lossy();
            if !FIELDS.contains(&key.as_str()) {
                unknown.get_or_insert(key);
            }
        }
        Ok(())
    });
    // Helpers kept in the table are fine; a misspelt field is not.
    if let Some((near, name)) = unknown.and_then(|name| Some((nearest(&name, FIELDS)?, name))) {
        return Err(Problem::bad_script(format!("connector.{name} means nothing"))
            .hint(format!("did you mean connector.{near}?")));
    }
    let text = |field: &str| {
        let value = connector.raw_get::<Lv>(field).unwrap_or(Lv::Nil);
        match bridge.read(&value, &format!("connector.{field}"), 64 * 1024)? {
            Value::Null => Ok(None),
            Value::Str(text) => Ok(Some(text)),
            other => Err(Problem::bad_script(format!(
                "connector.{field} must be a string, got {}",
                other.kind()
            ))),
        }
    };
    Ok(Header {
        name: text("name")?,
        version: text("version")?,
        description: text("description")?.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests;
