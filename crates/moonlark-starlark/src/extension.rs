//! A Starlark extension: described once, its handlers called in workers.

use std::collections::BTreeMap;
use std::sync::Arc;

use moonlark_core::authored::{self, Header};
use moonlark_core::files::{Files, Snapshot};
use moonlark_core::tool::{Body, Scope, Source, SourceKind, Tool};
use moonlark_core::value::Object;
use moonlark_core::{Call, Caller, Code, Gateway, Problem, Result, Value};

use tokio::sync::Semaphore;

use crate::engine::{MOST_OF_ONE, Script, Starlark, is_inside};
use crate::wire::{Kind, MAX_FILES};

/// An extension as found on disk.
pub struct Extension {
    /// The extensions folder as messages show it.
    pub folder: String,
    /// Its main file in there.
    pub main: String,
    pub files: Files,
    pub scope: Scope,
    /// What it may do while it loads.
    pub loading: Arc<Scope>,
}

/// An extension that works.
pub struct Loaded {
    pub tools: Vec<Tool>,
    /// It describes no extension: it is there for others to load.
    pub library: bool,
    /// Such a file makes tools all the same, which nobody finds there.
    pub hides_tools: bool,
}

impl Starlark {
    /// Load an extension and make its tools. Beside the outcome: the files it
    /// consists of, as far as they were read, so that a change of any can be
    /// noticed even when it did not load.
    pub async fn load(
        &self,
        extension: Extension,
        gateway: &Gateway,
    ) -> (Result<Loaded>, BTreeMap<String, String>) {
        let Extension { folder, main, files, scope, loading } = extension;
        let shown = format!("{folder}/{main}");
        let snapshot = Snapshot::new(files, MAX_FILES);
        let script = Arc::new(self.script(folder, main));
        // Before the clock starts.
        let _turn = self.turn_to_load().await;
        let call = gateway.scoped(Caller::new("load"), loading);
        let recording = snapshot.reader();
        let describing = self.run(&call, &script, Kind::Describe, &recording);
        let described = match tokio::time::timeout_at(call.deadline(), describing).await {
            Ok(described) => described,
            Err(_) => Err(Problem::new(Code::Timeout, "")),
        };
        let texts = snapshot.loaded();
        let turns = Semaphore::new(MOST_OF_ONE);
        let unit = Unit { engine: self.clone(), script, files: snapshot.replay(), turns };
        let loaded = described
            .and_then(|described| unit.into_tools(described, &shown, scope))
            .map_err(|problem| authored::at_load(problem, &shown, "a handler"));
        (loaded, texts)
    }
}

/// One version of an extension.
struct Unit {
    engine: Starlark,
    script: Arc<Script>,
    files: Files,
    turns: Semaphore,
}

impl Unit {
    fn into_tools(self, described: Value, shown: &str, scope: Scope) -> Result<Loaded> {
        let Value::Object(mut about) = described else {
            let hides_tools = described == Value::Bool(true);
            return Ok(Loaded { tools: Vec::new(), library: true, hides_tools });
        };
        let mut take = |name: &str| about.swap_remove(name).unwrap_or(Value::Null);
        let (version, allowed) = (take("version"), take("allowed_exec"));
        let Value::Array(tools) = take("tools") else {
            return Err(Problem::bad_script("Extension.tools must be a list of Tool(…)"));
        };
        let source = Arc::new(Source { kind: SourceKind::Extension, name: shown.to_owned() });
        let unit = Arc::new(self);
        let tools = tools.into_iter().enumerate().map(|(handler, fields)| {
            let Value::Object(mut fields) = fields else {
                return Err(Problem::internal("a tool was not described"));
            };
            fields.insert("version".to_owned(), version.clone());
            fields.insert("allowed_exec".to_owned(), allowed.clone());
            let what = match fields.get("name") {
                Some(Value::Str(name)) => name.clone(),
                _ => format!("tools[{handler}]"),
            };
            let unit = unit.clone();
            let body =
                Body::later(move |call, args| call_handler(unit.clone(), handler, call, args));
            Header::read(fields, &what)?.into_tool(None, source.clone(), scope.clone(), body)
        });
        let tools = tools.collect::<Result<_>>()?;
        Ok(Loaded { tools, library: false, hides_tools: false })
    }
}

async fn call_handler(unit: Arc<Unit>, handler: usize, call: Call, args: Value) -> Result<Value> {
    let caller = Value::object([
        ("surface", call.caller().surface.into()),
        ("name", call.caller().name().into()),
        ("client", call.caller().client.clone().into()),
    ]);
    let config = match &call.scope().config {
        Value::Null => Value::Object(Object::new()),
        config => config.clone(),
    };
    let context = Value::object([("config", config), ("caller", caller)]);
    let kind = Kind::Call { handler, args, context };
    let _turn = if is_inside() { None } else { unit.turns.acquire().await.ok() };
    unit.engine.run(&call, &unit.script, kind, &unit.files).await
}
