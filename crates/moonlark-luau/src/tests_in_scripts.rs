//! Files of tests: which tests there are, and running one.

use std::sync::Arc;

use mlua::{Table, Value as Lv};
use moonlark_core::authored;
use moonlark_core::files::{Files, Snapshot};
use moonlark_core::limits::seconds;
use moonlark_core::module::Language;
use moonlark_core::{Call, Code, Problem, Result};

use crate::engine::Luau;
use crate::unit::{MAX_LOOKS, Unit, shown};
use crate::vm::Vm;

/// A file of tests that loads.
pub struct Tests {
    engine: Luau,
    unit: Arc<Unit>,
    /// The tests in it, in alphabetical order.
    pub names: Vec<String>,
}

impl Luau {
    /// Load the tests of `main`, a file of the folder that `files` reads from;
    /// `folder` is how messages call it.
    pub async fn tests(
        &self,
        folder: String,
        main: String,
        files: Files,
        call: &Call,
    ) -> Result<Tests> {
        let file = shown(&folder, &main);
        let files = Snapshot::new(files, MAX_LOOKS);
        let listed = match Unit::new(folder, main, &file, files.clone()) {
            Ok(unit) => self.list_tests(Arc::new(unit), call).await,
            Err(problem) => Err(problem),
        };
        files.loaded();
        listed.map_err(|problem| authored::at_load(problem, &file, "a test"))
    }

    async fn list_tests(&self, unit: Arc<Unit>, call: &Call) -> Result<Tests> {
        let (engine, reading, call) = (self.clone(), unit.clone(), call.clone());
        let deadline = call.deadline();
        let listing = self.run(move |guard| async move {
            let mut vm = Vm::new(engine.test_prelude()?)?;
            guard.watch(vm.interrupt());
            let names = vm.load(&reading, &call, |_, globals| Ok(names(globals))).await;
            guard.done();
            names
        });
        let names = tokio::time::timeout_at(deadline, listing)
            .await
            .unwrap_or_else(|_| Err(Problem::new(Code::Timeout, "")))?;
        Ok(Tests { engine: self.clone(), unit, names })
    }
}

impl Tests {
    /// Run one test in `call`, which is its own.
    pub async fn run(self: &Arc<Self>, name: &str, call: &Call) -> Result<()> {
        if !self.names.iter().any(|known| known == name) {
            return Err(Problem::internal(format!("there is no test {name}")));
        }
        if let Some(mocks) = call.mocks() {
            mocks.set_language(Language::Luau);
        }
        let (tests, name, its) = (self.clone(), name.to_owned(), call.clone());
        let running = self.engine.run(move |guard| async move {
            let mut vm = Vm::new(tests.engine.test_prelude()?)?;
            guard.watch(vm.interrupt());
            let ended = vm.test(&tests.unit, &its, &name).await;
            guard.done();
            ended
        });
        let ended = tokio::time::timeout_at(call.deadline(), running).await;
        match ended {
            Ok(Err(problem)) if problem.code == Code::Timeout => Err(timed_out(call)),
            Ok(ended) => ended,
            Err(_) => Err(timed_out(call)),
        }
    }
}

/// The global functions that are tests.
fn names(globals: &Table) -> Vec<String> {
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

fn timed_out(call: &Call) -> Problem {
    let limit = seconds(call.limits().timeout);
    Problem::new(Code::Timeout, format!("the test timed out after {limit}"))
}

#[cfg(test)]
mod tests;
