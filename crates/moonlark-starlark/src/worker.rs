//! The worker: this binary in another role. It evaluates scripts, one job at a
//! time, and asks the engine for whatever is not pure computation.
//!
//! It holds no secrets and no grants, has an empty environment, and may be
//! killed at any moment.

#![expect(
    clippy::panic,
    reason = "derived for values of the interpreter: paging them out, which nobody asks for"
)]

mod args;
mod authoring;
mod bridge;
mod context;
mod errors;
mod evaluate;
mod familiar;
mod globals;
mod link;
pub mod memory;
mod native;
mod testing;
mod trying;

use std::io::Write as _;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;

use moonlark_core::{Module, Problem};

use crate::wire::{Order, Report};
use evaluate::Units;
use link::Link;
pub(crate) use memory::OUT_OF_MEMORY;

/// The argument that makes this binary a worker.
pub const MODE: &str = "__worker";

/// Evaluation recurses on the native stack; it is reserved, not used up.
const STACK: usize = 512 * 1024 * 1024;

/// Jobs after which a worker looks whether it has grown.
const LOOK: u64 = 16;

/// Serve jobs from the socket on stdin until it closes.
pub fn main(modules: Vec<Module>) -> ExitCode {
    memory::harden();
    let worker = std::thread::Builder::new().stack_size(STACK).spawn(move || serve(modules));
    match worker.map(std::thread::JoinHandle::join) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn serve(modules: Vec<Module>) {
    let Some(link) = Link::on_stdin().map(std::rc::Rc::new) else { return };
    let mut units = Units::new(modules);
    for count in 1_u64.. {
        let Some(Order::Job(job)) = link.receive() else { return };
        let limit = job.memory;
        let done = std::panic::catch_unwind(AssertUnwindSafe(|| units.work(&link, job)));
        let (reply, clean) = match done {
            // Looking costs more than most calls.
            Ok(Ok(value)) => (Ok(value), count % LOOK != 0 || memory::is_small()),
            Ok(Err(problem)) => {
                // There must be enough left to say so.
                memory::unlimited();
                (Err(problem), memory::is_small())
            }
            // A panic leaves the interpreter in an unknown state.
            Err(panic) => {
                memory::unlimited();
                (Err(explain(&*panic, limit)), false)
            }
        };
        link.send(&Report::Done { reply: reply.map_err(Into::into), clean });
        if !clean {
            let _ = std::io::stderr().flush();
            return;
        }
    }
}

/// Builtins of the interpreter panic where memory or a size runs out.
fn explain(panic: &(dyn std::any::Any + Send), limit: usize) -> Problem {
    let words = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or(panic.downcast_ref::<&str>().copied())
        .unwrap_or_default();
    if words.contains("out of memory") || words.contains("capacity overflow") {
        return crate::process::out_of_memory(limit);
    }
    Problem::limit("the script asked for more than the interpreter can do")
        .hint("look for a very large list, string or number")
}
