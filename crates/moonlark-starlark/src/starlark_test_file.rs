//! Files of tests: which tests there are, and running one.

use std::sync::Arc;

use moonlark_core::module::ScriptLanguage;
use moonlark_core::script_snapshot::{ScriptFileReader, ScriptSnapshot};
use moonlark_core::{Result, Value, tool_header};
use moonlark_gateway::Call;

use crate::engine::{StarlarkEngine, StarlarkScriptVersion};
use crate::worker_protocol::{MAX_EXTENSION_FILES, WorkerJobKind};

/// A file of tests that loads.
pub struct StarlarkTestFile {
    engine: StarlarkEngine,
    script: StarlarkScriptVersion,
    files: ScriptFileReader,
    /// The tests in it, in alphabetical order.
    pub names: Vec<String>,
}

impl StarlarkEngine {
    /// Load the tests of `main`, a file of the folder that `files` reads from;
    /// `folder` is how messages call it.
    pub async fn load_tests(
        &self,
        folder: String,
        main: String,
        files: ScriptFileReader,
        call: &Call,
    ) -> Result<StarlarkTestFile> {
        let shown = format!("{folder}/{main}");
        let script = self.new_script_version(folder, main);
        let snapshot = ScriptSnapshot::new(files, MAX_EXTENSION_FILES);
        let listed =
            self.run_job(call, &script, WorkerJobKind::ListTests, &snapshot.file_reader()).await;
        let names = match listed
            .map_err(|problem| tool_header::into_load_problem(problem, &shown, "a test"))?
        {
            Value::Array(names) => names,
            _ => Vec::new(),
        };
        let mut names: Vec<String> =
            names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect();
        names.sort();
        Ok(StarlarkTestFile {
            engine: self.clone(),
            script,
            files: snapshot.recorded_file_reader(),
            names,
        })
    }
}

impl StarlarkTestFile {
    /// Run one test in `call`, which is its own.
    pub async fn run_test(self: &Arc<Self>, name: &str, call: &Call) -> Result<()> {
        if let Some(mocks) = call.mocks() {
            mocks.set_language(ScriptLanguage::Starlark);
        }
        let kind = WorkerJobKind::Test { name: name.to_owned() };
        self.engine.run_job(call, &self.script, kind, &self.files).await.map(drop)
    }
}
