//! Files of tests: which tests there are, and running one.

use std::sync::Arc;

use mlua::{Table, Value as Lv};
use moonlark_core::limits::format_seconds;
use moonlark_core::module::ScriptLanguage;
use moonlark_core::script_snapshot::{ScriptFileReader, ScriptSnapshot};
use moonlark_core::{Problem, ProblemCode, Result, tool_header};
use moonlark_gateway::Call;

use crate::engine::LuauEngine;
use crate::script_unit::{MAX_FILE_LOOKUPS, ScriptUnit, display_path};
use crate::vm::LuauVm;

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
        let file = display_path(&folder, &main);
        let files = ScriptSnapshot::new(files, MAX_FILE_LOOKUPS);
        let listed = match ScriptUnit::new(folder, main, &file, files.clone()) {
            Ok(unit) => self.list_tests(Arc::new(unit), call).await,
            Err(problem) => Err(problem),
        };
        files.finish_loading();
        listed.map_err(|problem| tool_header::into_load_problem(problem, &file, "a test"))
    }

    async fn list_tests(&self, unit: Arc<ScriptUnit>, call: &Call) -> Result<LuauTestFile> {
        let (engine, reading, call) = (self.clone(), unit.clone(), call.clone());
        let deadline = call.deadline();
        let listing = self.run_preemptible(move |guard| async move {
            let mut vm = LuauVm::new(engine.test_prelude()?)?;
            guard.watch_interrupt(vm.interrupt());
            let names = vm
                .load_script(&reading, &call, |_, globals| Ok(test_function_names(globals)))
                .await;
            guard.finish_run();
            names
        });
        let names = tokio::time::timeout_at(deadline, listing)
            .await
            .unwrap_or_else(|_| Err(Problem::new(ProblemCode::Timeout, "")))?;
        Ok(LuauTestFile { engine: self.clone(), unit, names })
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
        let (tests, name, its) = (self.clone(), name.to_owned(), call.clone());
        let running = self.engine.run_preemptible(move |guard| async move {
            let mut vm = LuauVm::new(tests.engine.test_prelude()?)?;
            guard.watch_interrupt(vm.interrupt());
            let ended = vm.run_test(&tests.unit, &its, &name).await;
            guard.finish_run();
            ended
        });
        let ended = tokio::time::timeout_at(call.deadline(), running).await;
        match ended {
            Ok(Err(problem)) if problem.code == ProblemCode::Timeout => {
                Err(test_timeout_problem(call))
            }
            Ok(ended) => ended,
            Err(_) => Err(test_timeout_problem(call)),
        }
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

fn test_timeout_problem(call: &Call) -> Problem {
    let limit = format_seconds(call.limits().timeout);
    Problem::new(ProblemCode::Timeout, format!("the test timed out after {limit}"))
}

#[cfg(test)]
mod tests;
