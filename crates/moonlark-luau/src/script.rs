//! A Lua tool script: loaded once, run on every call.

use std::sync::Arc;

use crossbeam_queue::ArrayQueue;
use mlua::chunk::Compiler;
use moonlark_core::authored;
use moonlark_core::tool::{Body, Scope, Source, Tool};
use moonlark_core::{Call, Caller, Gateway, Place, Problem, Result, Value};
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use crate::engine::Luau;
use crate::vm::Vm;
use crate::watchdog::Interrupt;
use crate::{errors, tool_table};

/// Longest script. The compiler's memory is not under the VM's limit.
pub const MAX_SOURCE: usize = 256 * 1024;

/// VMs kept ready for one script.
const WARM: usize = 32;

/// A script as found on disk.
pub struct Script {
    /// Where it is, relative to the project: appears in every message.
    pub file: String,
    pub text: String,
    /// The name it has in the configuration, if it is there.
    pub configured: Option<String>,
    pub scope: Scope,
    /// What it may do while it loads.
    pub loading: Arc<Scope>,
}

/// A script's compiled form and its text, for messages.
pub(crate) struct Code {
    file: String,
    chunk: String,
    text: String,
    bytecode: Vec<u8>,
}

impl Code {
    fn compile(file: &str, text: String) -> Result<Code> {
        if text.len() > MAX_SOURCE {
            return Err(Problem::bad_script(format!(
                "the script is larger than {} KB",
                MAX_SOURCE / 1024
            ))
            .at(Place::file(file)));
        }
        let mut code = Code {
            file: file.to_owned(),
            // `=` makes Luau show the name as it is.
            chunk: format!("={file}"),
            text,
            bytecode: Vec::new(),
        };
        let compiler = Compiler::new().set_optimization_level(2).set_debug_level(1);
        code.bytecode = match compiler.compile(&code.text) {
            Ok(bytecode) => bytecode,
            Err(error) => return Err(syntax_error(&error, &code)),
        };
        Ok(code)
    }

    pub(crate) fn name(&self) -> &str {
        &self.file
    }

    pub(crate) fn chunk_name(&self) -> &str {
        &self.chunk
    }

    pub(crate) fn bytecode(&self) -> &[u8] {
        &self.bytecode
    }

    pub(crate) fn line(&self, number: u32) -> &str {
        self.text.lines().nth(number.saturating_sub(1) as usize).unwrap_or_default()
    }
}

/// The compiler knows no file name: it reports `12: message`.
fn syntax_error(error: &mlua::Error, code: &Code) -> Problem {
    let message = match error {
        mlua::Error::SyntaxError { message, .. } => message.clone(),
        other => other.to_string(),
    };
    let message = errors::first_line(&message);
    errors::syntax(&format!("{}:{message}", code.name()), code)
}

impl Luau {
    /// Load a script and make it a tool. Its top level runs here, in the same
    /// sandbox and with the same limits as a call.
    pub async fn load(&self, script: Script, gateway: &Gateway) -> Result<Tool> {
        let Script { file, text, configured, scope, loading } = script;
        let code = Arc::new(Code::compile(&file, text)?);
        let call = gateway.scoped(Caller::new("load"), loading);
        let (engine, reading) = (self.clone(), code.clone());
        let deadline = call.deadline();
        let loaded = self.run(move |guard| async move {
            let mut vm = Vm::new(engine.prelude())?;
            guard.watch(vm.interrupt());
            let header = vm.load(&reading, &call, tool_table::read).await;
            guard.done();
            header
        });
        let header = tokio::time::timeout_at(deadline, loaded)
            .await
            .unwrap_or_else(|_| Err(Problem::new(moonlark_core::Code::Timeout, "")))
            .map_err(|problem| authored::at_load(problem, &file, "tool.execute"))?;
        let warm = Arc::new(Warm { code, vms: ArrayQueue::new(WARM), engine: self.clone() });
        let source = Source { kind: moonlark_core::tool::SourceKind::Script, name: file };
        let body = Body::later(move |call, args| execute(warm.clone(), call, args));
        header.into_tool(configured, Arc::new(source), scope, body)
    }
}

struct Warm {
    code: Arc<Code>,
    vms: ArrayQueue<Vm>,
    engine: Luau,
}

async fn execute(warm: Arc<Warm>, call: Call, args: Value) -> Result<Value> {
    let engine = warm.engine.clone();
    engine
        .run(move |guard| async move {
            let mut vm = match warm.vms.pop() {
                Some(vm) => {
                    warm.engine.unparked();
                    vm
                }
                None => Vm::new(warm.engine.prelude())?,
            };
            guard.watch(vm.interrupt());
            let result = vm.execute(&warm.code, &call, args).await;
            guard.done();
            if result.is_ok()
                && vm.is_clean()
                && warm.engine.may_park()
                && warm.vms.push(vm).is_err()
            {
                warm.engine.unparked();
            }
            result
        })
        .await
}

/// Cancels the script when the caller's future is dropped.
#[derive(Clone, Default)]
pub(crate) struct Guard(Arc<Mutex<Option<Arc<Interrupt>>>>);

impl Guard {
    fn watch(&self, interrupt: &Arc<Interrupt>) {
        *self.0.lock() = Some(interrupt.clone());
    }

    /// The run is over; its VM may belong to somebody else from here on.
    fn done(&self) {
        *self.0.lock() = None;
    }

    /// Whether the script has used up its time on the thread that called it.
    pub(crate) fn was_preempted(&self) -> bool {
        self.0.lock().as_ref().is_some_and(|interrupt| interrupt.was_preempted())
    }

    pub(crate) fn cancel(&self) {
        if let Some(interrupt) = &*self.0.lock() {
            interrupt.cancel();
        }
    }
}

/// The caller's end of a run.
pub(crate) struct Waiting<T> {
    pub(crate) handle: AbortOnDropHandle<Result<T>>,
    pub(crate) guard: Guard,
}

impl<T> Drop for Waiting<T> {
    fn drop(&mut self) {
        self.guard.cancel();
    }
}
