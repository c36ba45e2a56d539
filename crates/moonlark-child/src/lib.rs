//! Processes and tasks that do not outlive Moonlark, nor the handle they are held by.
//!
//! Commands of scripts and upstream servers are started through here. It knows
//! nothing of what they are for.
#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::disallowed_methods)
)]

mod memory_return;
mod owned_task;
mod process_allocator;
mod process_ending;
mod supervised;
mod supervisor;

pub use memory_return::{release_thread_memory, request_memory_return, return_memory_when_idle};
pub use owned_task::{spawn_owned, spawn_to_finish, try_spawn_to_finish, wait_for_finishing_tasks};
pub use process_allocator::{ProcessAllocator, exit_when_out_of_memory};
pub use process_ending::ProcessEnding;
pub use supervised::{LaunchSpec, SupervisedProcess, SupervisorHandle};
pub use supervisor::supervise_if_asked;
