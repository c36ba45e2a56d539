//! `faulty MODE [--http | --sse]`: an MCP server that does what a server must
//! not, one fault at a time.
//!
//! It is written against the wire, without an MCP library and with HTTP by hand,
//! so that nothing stands between a fault and whoever has to bear it. What goes
//! wrong with every request, or before the first, is a mode; what goes wrong in
//! one call is a tool by the name of the fault. A fault of a transport is both:
//! `faulty half` ends in the middle of its first answer, `faulty healthy` has a
//! tool `half` that does.
//!
//! `COUNT_FILE` in its environment names a file that gets a line for its start,
//! for each call and for each cancellation. `tests/upstream_faults.rs` says what
//! must come of all this.

// A program of its own, which has no terminal to protect.
#![allow(clippy::disallowed_macros, clippy::disallowed_methods)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, unreachable_pub)]

mod calls;
mod http;
mod http_faults;
mod listing;
mod server;
mod sse;
mod start;
mod stdio;

use std::sync::Arc;

use server::Server;

const USAGE: &str = "usage: faulty MODE [--http | --sse]";

/// Threads enough for calls that wait to be read, and stacks enough to write
/// what is nested a thousand deep.
fn main() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(8).thread_stack_size(64 * 1024 * 1024).enable_all();
    runtime.build().unwrap().block_on(async { tokio::spawn(serve()).await.unwrap() });
    // Whatever is still going on here, a call or a read, is not waited for.
    std::process::exit(0);
}

async fn serve() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mode = arguments.first().expect(USAGE).clone();
    start::misbehave(&mode).await;
    match arguments.get(1).map(String::as_str) {
        None => stdio::serve(Arc::new(Server::new(mode, stdio::FAULTS))).await,
        Some("--http") => http::serve(Arc::new(Server::new(mode, http_faults::FAULTS))).await,
        Some("--sse") => sse::serve(Arc::new(Server::new(mode, sse::FAULTS))).await,
        Some(_) => panic!("{USAGE}"),
    }
}
