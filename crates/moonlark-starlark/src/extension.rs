//! A Starlark extension: described once, its handlers called in workers.

use std::collections::BTreeMap;
use std::sync::Arc;

use moonlark_core::script_snapshot::{ScriptFileReader, ScriptSnapshot};
use moonlark_core::tool::{CallScope, Source, SourceKind, Tool};
use moonlark_core::tool_header::{self, ToolHeader};
use moonlark_core::value::Object;
use moonlark_core::{Problem, ProblemCode, Result, Value};
use moonlark_gateway::tool_body::ToolBody;
use moonlark_gateway::{Call, Caller, Gateway};

use tokio::sync::Semaphore;

use crate::engine::{
    MAX_WORKERS_PER_EXTENSION, StarlarkEngine, StarlarkScriptVersion, is_inside_starlark_call,
};
use crate::worker_protocol::{MAX_EXTENSION_FILES, WorkerJobKind};

/// An extension as found on disk.
pub struct ExtensionFile {
    /// The extensions folder as messages show it.
    pub folder: String,
    /// Its main file in there.
    pub main: String,
    pub files: ScriptFileReader,
    pub scope: CallScope,
    /// What it may do while it loads.
    pub loading: Arc<CallScope>,
}

/// An extension that works.
pub struct LoadedExtension {
    pub tools: Vec<Tool>,
    /// It describes no extension: it is there for others to load.
    pub library: bool,
    /// Such a file makes tools all the same, which nobody finds there.
    pub hides_tools: bool,
}

impl StarlarkEngine {
    /// Load an extension and make its tools. Beside the outcome: the files it
    /// consists of, as far as they were read, so that a change of any can be
    /// noticed even when it did not load.
    pub async fn load_extension(
        &self,
        extension: ExtensionFile,
        gateway: &Gateway,
    ) -> (Result<LoadedExtension>, BTreeMap<String, String>) {
        let ExtensionFile { folder, main, files, scope, loading } = extension;
        let shown = format!("{folder}/{main}");
        let snapshot = ScriptSnapshot::new(files, MAX_EXTENSION_FILES);
        let script = Arc::new(self.new_script_version(folder, main));
        // Before the clock starts.
        let _turn = self.acquire_load_permit().await;
        let call = gateway.open_scoped_call(Caller::new("load"), loading);
        let recording = snapshot.file_reader();
        let describing = self.run_job(&call, &script, WorkerJobKind::Describe, &recording);
        let described = match tokio::time::timeout_at(call.deadline(), describing).await {
            Ok(described) => described,
            Err(_) => Err(Problem::new(ProblemCode::Timeout, "")),
        };
        let texts = snapshot.finish_loading();
        let turns = Semaphore::new(MAX_WORKERS_PER_EXTENSION);
        let unit = ExtensionVersion {
            engine: self.clone(),
            script,
            files: snapshot.recorded_file_reader(),
            turns,
        };
        let loaded = described
            .and_then(|described| unit.into_tools(described, &shown, scope))
            .map_err(|problem| tool_header::into_load_problem(problem, &shown, "a handler"));
        (loaded, texts)
    }
}

/// One version of an extension.
struct ExtensionVersion {
    engine: StarlarkEngine,
    script: Arc<StarlarkScriptVersion>,
    files: ScriptFileReader,
    turns: Semaphore,
}

impl ExtensionVersion {
    fn into_tools(
        self,
        described: Value,
        shown: &str,
        scope: CallScope,
    ) -> Result<LoadedExtension> {
        let Value::Object(mut about) = described else {
            let hides_tools = described == Value::Bool(true);
            return Ok(LoadedExtension { tools: Vec::new(), library: true, hides_tools });
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
            let body = ToolBody::from_async_fn(move |call, args| {
                call_handler(unit.clone(), handler, call, args)
            });
            ToolHeader::from_fields(fields, &what)?.into_tool(
                None,
                source.clone(),
                scope.clone(),
                body,
            )
        });
        let (mut made, mut mistakes) = (Vec::new(), Vec::new());
        for tool in tools {
            match tool {
                Ok(tool) => made.push(tool),
                Err(mistake) => mistakes.push(mistake),
            }
        }
        if !mistakes.is_empty() {
            return Err(tool_header::merge_mistakes(mistakes));
        }
        Ok(LoadedExtension { tools: made, library: false, hides_tools: false })
    }
}

async fn call_handler(
    unit: Arc<ExtensionVersion>,
    handler: usize,
    call: Call,
    args: Value,
) -> Result<Value> {
    let caller = Value::from_fields([
        ("surface", call.caller().surface.into()),
        ("name", call.caller().name().into()),
        ("client", call.caller().client.clone().into()),
    ]);
    let config = match &call.scope().config {
        Value::Null => Value::Object(Object::new()),
        config => config.clone(),
    };
    let context = Value::from_fields([("config", config), ("caller", caller)]);
    let kind = WorkerJobKind::Call { handler, args, context };
    let _turn = if is_inside_starlark_call() { None } else { unit.turns.acquire().await.ok() };
    unit.engine.run_job(&call, &unit.script, kind, &unit.files).await
}
