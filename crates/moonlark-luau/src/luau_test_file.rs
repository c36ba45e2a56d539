//! Files of tests: which tests there are, and running one.

use std::sync::Arc;

use mlua::{Table, Value as Lv};
use moonlark_core::limits::format_seconds;
use moonlark_core::module::ScriptLanguage;
use moonlark_core::script_snapshot::ScriptFileReader;
use moonlark_core::{Problem, ProblemCode, Result};
use moonlark_gateway::Call;

use crate::engine::LuauEngine;
use crate::luau_bridge::Bridge;
use crate::script_loading::run_until;
use crate::script_unit::{ScriptUnit, display_path};

/// A file of tests that loads.
pub struct LuauTestFile {
    engine: LuauEngine,
    unit: Arc<ScriptUnit>,
    /// The tests in it, in alphabetical order.
    pub names: Vec<String>,
}

impl LuauEngine {
    /// Load the tests of `main`, a file of the folder that `files` reads from;
    /// `folder` is how messages call it.
    pub async fn load_tests(
        &self,
        folder: String,
        main: String,
        files: ScriptFileReader,
        call: &Call,
    ) -> Result<LuauTestFile> {
        let main = [display_path(&folder, &main), folder, main];
        let read = |_: &Bridge, globals: &Table| Ok(test_function_names(globals));
        let vms = self.test_vms();
        let (loaded, _) = self.load_script(main, files, call.clone(), vms, "a test", read).await;
        loaded.map(|(unit, names)| LuauTestFile { engine: self.clone(), unit, names })
    }
}

impl LuauTestFile {
    /// Run one test in `call`, which is its own.
    pub async fn run_test(self: &Arc<Self>, name: &str, call: &Call) -> Result<()> {
        if !self.names.iter().any(|known| known == name) {
            return Err(Problem::internal(format!("there is no test {name}")));
        }
        if let Some(mocks) = call.mocks() {
            mocks.set_language(ScriptLanguage::Luau);
        }
        let (unit, name, its) = (self.unit.clone(), name.to_owned(), call.clone());
        let running = self.engine.run_in_vm(self.engine.test_vms()?, move |vm| {
            Box::pin(async move { vm.run_test(&unit, &its, &name).await })
        });
        run_until(call.deadline(), running).await.map_err(|problem| {
            if problem.code != ProblemCode::Timeout {
                return problem;
            }
            let limit = format_seconds(call.limits().timeout);
            Problem::new(ProblemCode::Timeout, format!("the test timed out after {limit}"))
        })
    }
}

/// The global functions that are tests.
fn test_function_names(globals: &Table) -> Vec<String> {
    let mut names = Vec::new();
    let _ = globals.for_each(|key: Lv, value: Lv| {
        if let (Lv::String(key), Lv::Function(_)) = (key, value) {
            let key = key.to_string_lossy();
            if key.starts_with("test_") {
                names.push(key);
            }
        }
        Ok(())
    });
    names.sort();
    names
}

#[cfg(test)]
mod tests;
