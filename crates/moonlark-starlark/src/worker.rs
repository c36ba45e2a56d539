//! The worker: this binary in another role. It evaluates scripts, one job at a
//! time, and asks the engine for whatever is not pure computation.
//!
//! It holds no secrets and no grants, has an empty environment, and may be
//! killed at any moment.

#![expect(
    clippy::panic,
    reason = "derived for values of the interpreter: paging them out, which nobody asks for"
)]

mod call_arguments;
mod engine_link;
mod evaluation;
mod extension_description;
mod handler_context;
mod native_function;
mod starlark_bridge;
mod starlark_errors;
mod starlark_globals;
mod starlark_mcp_compat;
mod testing_functions;
mod try_call;
mod worker_memory;

use std::io::Write as _;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;

use moonlark_core::{Module, Problem};

use crate::worker_protocol::{WorkerOrder, WorkerReport};
use engine_link::EngineLink;
use evaluation::LoadedScriptCache;
pub(crate) use worker_memory::OUT_OF_MEMORY_EXIT_CODE;

/// The argument that makes this binary a worker.
pub const WORKER_MODE_ARG: &str = "__worker";

/// Evaluation recurses on the native stack; it is reserved, not used up.
const WORKER_STACK_BYTES: usize = 512 * 1024 * 1024;

/// Jobs after which a worker looks whether it has grown.
const JOBS_PER_MEMORY_CHECK: u64 = 16;

/// Serve jobs from the socket on stdin until it closes.
pub fn run_worker(modules: Vec<Module>) -> ExitCode {
    worker_memory::harden_process();
    let worker = std::thread::Builder::new()
        .stack_size(WORKER_STACK_BYTES)
        .spawn(move || serve_jobs(modules));
    match worker.map(std::thread::JoinHandle::join) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn serve_jobs(modules: Vec<Module>) {
    let Some(link) = EngineLink::from_stdin().map(std::rc::Rc::new) else { return };
    let mut units = LoadedScriptCache::new(modules);
    for count in 1_u64.. {
        let Some(WorkerOrder::Job(job)) = link.receive_order() else { return };
        let limit = job.memory;
        let done = std::panic::catch_unwind(AssertUnwindSafe(|| units.run_job(&link, job)));
        let (reply, clean) = match done {
            // Looking costs more than most calls.
            Ok(Ok(value)) => {
                (Ok(value), count % JOBS_PER_MEMORY_CHECK != 0 || worker_memory::is_small())
            }
            Ok(Err(problem)) => {
                // There must be enough left to say so.
                worker_memory::lift_memory_limit();
                (Err(problem), worker_memory::is_small())
            }
            // A panic leaves the interpreter in an unknown state.
            Err(panic) => {
                worker_memory::lift_memory_limit();
                (Err(panic_problem(&*panic, limit)), false)
            }
        };
        link.send_report(&WorkerReport::Done { reply: reply.map_err(Into::into), clean });
        if !clean {
            let _ = std::io::stderr().flush();
            return;
        }
    }
}

/// Builtins of the interpreter panic where memory or a size runs out.
fn panic_problem(panic: &(dyn std::any::Any + Send), limit: usize) -> Problem {
    let words = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or(panic.downcast_ref::<&str>().copied())
        .unwrap_or_default();
    if words.contains("out of memory") || words.contains("capacity overflow") {
        return crate::worker_process::out_of_memory_problem(limit);
    }
    Problem::limit_exceeded("the script asked for more than the interpreter can do")
        .with_hint("look for a very large list, string or number")
}
