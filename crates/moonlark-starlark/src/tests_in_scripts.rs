//! Files of tests: which tests there are, and running one.

use std::sync::Arc;

use moonlark_core::authored;
use moonlark_core::files::{Files, Snapshot};
use moonlark_core::module::Language;
use moonlark_core::{Call, Result, Value};

use crate::engine::{Script, Starlark};
use crate::wire::{Kind, MAX_FILES};

/// A file of tests that loads.
pub struct Tests {
    engine: Starlark,
    script: Script,
    files: Files,
    /// The tests in it, in alphabetical order.
    pub names: Vec<String>,
}

impl Starlark {
    /// Load the tests of `main`, a file of the folder that `files` reads from;
    /// `folder` is how messages call it.
    pub async fn tests(
        &self,
        folder: String,
        main: String,
        files: Files,
        call: &Call,
    ) -> Result<Tests> {
        let shown = format!("{folder}/{main}");
        let script = self.script(folder, main);
        let snapshot = Snapshot::new(files, MAX_FILES);
        let listed = self.run(call, &script, Kind::ListTests, &snapshot.reader()).await;
        let names = match listed.map_err(|problem| authored::at_load(problem, &shown, "a test"))? {
            Value::Array(names) => names,
            _ => Vec::new(),
        };
        let mut names: Vec<String> =
            names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect();
        names.sort();
        Ok(Tests { engine: self.clone(), script, files: snapshot.replay(), names })
    }
}

impl Tests {
    /// Run one test in `call`, which is its own.
    pub async fn run(self: &Arc<Self>, name: &str, call: &Call) -> Result<()> {
        if let Some(mocks) = call.mocks() {
            mocks.set_language(Language::Starlark);
        }
        let kind = Kind::Test { name: name.to_owned() };
        self.engine.run(call, &self.script, kind, &self.files).await.map(drop)
    }
}
